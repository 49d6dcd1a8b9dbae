"""Fields around a reference: bounded, differentiable, learned by every learner, λ by held-out rows, stored."""

from __future__ import annotations

import math

import pytest
import torch
from safetensors.torch import load_file, save_file

from nrf.config import from_json, to_json
from nrf.errors import InputError
from nrf.fields import (
    GaussianReference,
    KernelReference,
    MixtureReference,
    NoReference,
    Referenced,
    choose_strength,
    importance_integral,
    log_density,
    normalise,
    quadrature,
    sample,
)
from nrf.learners import InclusiveConfig, LevelsConfig, PCDConfig, ReplayConfig, Revision
from nrf.learners.base import as_replicas
from nrf.models import frozen, gradient
from nrf.networks import LevelsMLPPotential, MLPGenerator, MLPPotential, data_dependent_init, replica_state
from nrf.samplers import SGLD
from nrf.seeds import DrawsFrom, stream, streams

PLAIN = MLPPotential(widths=(12,), activation="softplus")
LEVELS = LevelsMLPPotential(widths=(12,), n_levels=4, sigma_min=0.1)
REFERENCES = {
    "none": NoReference(),
    "gaussian": GaussianReference(),
    "mixture": MixtureReference(n_components=4),
    "kernel": KernelReference(n_anchors=80),
}
NORMALISED = {name: one for name, one in REFERENCES.items() if name != "none"}


def _rows(n=300, seed=0):
    """A ring: neither a Gaussian nor a few of them."""
    rng = stream(seed, "ring")
    turn = 2 * math.pi * torch.rand(n, generator=rng)
    return 2 * torch.stack([turn.cos(), turn.sin()], 1) + 0.25 * torch.randn(n, 2, generator=rng)


def _built(network, reference, *, seed=0, **settings):
    """With a network whose outputs are far from 0."""
    with DrawsFrom(stream(seed, "weights")):
        u = Referenced(network, reference, **settings).build((2,))
        data_dependent_init(u, _rows())
        last = [m for m in u.modules() if isinstance(m, torch.nn.Linear)][-1]
        torch.nn.init.normal_(last.weight)
    return u


BOX = torch.full((2,), -9.0), torch.full((2,), 9.0)


@pytest.mark.parametrize("name", NORMALISED)
def test_the_network_is_bounded_wherever_rows_are(name):
    near, far = _rows(50).double(), 1000 * _rows(50).double()
    u = _built(PLAIN, NORMALISED[name], bound=2.0).double().requires_grad_(False)
    assert float(u.network(far).abs().max()) > 10
    assert float((u(far) - u.measure(far)).abs().max()) <= 2.0 + 1e-6
    assert float((u(near) - u.measure(near)).abs().max()) > 0.1
    free = _built(PLAIN, NORMALISED[name], bound=None).double()
    torch.testing.assert_close(free(near), free.measure(near) + free.network(near))


@pytest.mark.parametrize("network", [PLAIN, LEVELS], ids=["plain", "levels"])
@pytest.mark.parametrize("name", REFERENCES)
def test_gradients_are_those_of_autograd(name, network):
    u = _built(network, REFERENCES[name], bound=2.0).double()
    u.tilt.strength.fill_(0.7)
    x = _rows(9, seed=1).double()
    values = [lambda x: u(x)] if network is PLAIN else [lambda x, k=k: u(x, k) for k in range(4)]
    slopes = [u.gradient(x)] if network is PLAIN else [u.gradient(x, k) for k in range(4)]
    for value, found in zip(values, slopes, strict=True):
        torch.testing.assert_close(found, gradient(value, x), rtol=1e-6, atol=1e-6)
    if network is PLAIN:
        torch.testing.assert_close(u.value_and_gradient(x)[0], u(x))
    else:
        mixed = torch.arange(9) % 4
        want = torch.stack([slopes[k][i] for i, k in enumerate(mixed.tolist())])
        torch.testing.assert_close(u.gradient(x, mixed), want)


@pytest.mark.parametrize("name", NORMALISED)
def test_the_normaliser_is_the_integral(name, rng):
    u = _built(PLAIN, NORMALISED[name], bound=2.0)
    with pytest.raises(InputError, match="not known yet"):
        log_density(u, _rows(2))
    before = quadrature(u, BOX).log_value
    assert abs(before) > 0.1
    error = normalise(u, rng, n_draws=20_000)
    assert 0 < error < 0.05
    assert abs(quadrature(lambda x: log_density(u, x), BOX).log_value) < 4 * error + 2e-3
    other = importance_integral(u, u.measure, rng, sigmas=(0.0, 1.0))
    assert abs(other.log_value) < 4 * math.hypot(error, other.standard_error)


def test_every_level_gets_its_normaliser(rng):
    u = _built(LEVELS, MixtureReference(n_components=4), bound=2.0)
    box = tuple(2 * corner for corner in BOX)
    assert max(abs(quadrature(lambda x, k=k: log_density(u, x, k), box).log_value) for k in range(4)) > 0.1
    normalise(u, rng, n_draws=20_000)
    for k in range(4):
        assert quadrature(lambda x, k=k: log_density(u, x, k), box).log_value == pytest.approx(0.0, abs=0.06)


@pytest.mark.parametrize("network", [PLAIN, LEVELS], ids=["plain", "levels"])
def test_held_out_rows_choose_the_strength(network, rng):
    """A network that says the ring from its middle is used; one that says the contrary is not."""
    u = _built(network, GaussianReference(), bound=5.0)

    def said(sign):
        return lambda x: (-2 * sign * (x.norm(dim=1) - 2).clamp(-2, 2).abs())[:, None].expand(-1, len(u.sigmas))

    u.outputs = said(1.0)
    right = choose_strength(u, _rows(400, seed=3), rng)
    assert right.strength > 0.5
    assert right.gain > 5 * right.standard_error > 0
    assert float(u.tilt.strength) == pytest.approx(right.strength)
    u.outputs = said(-1.0)
    wrong = choose_strength(u, _rows(400, seed=3), rng)
    assert (wrong.strength, wrong.gain) == (0.0, 0.0)
    near = _rows(20)
    torch.testing.assert_close(u(near), u.measure.log_density(near, u.sigmas[0]))


def test_a_strength_is_a_share(rng):
    u = _built(PLAIN, GaussianReference())
    for rows, strengths in ((_rows(3), (0.0, 1.5)), (_rows(3), ()), (_rows(3)[:0], (0.5,))):
        with pytest.raises(InputError, match="λ is chosen"):
            choose_strength(u, rows, rng, strengths=strengths)
    with pytest.raises(InputError, match="nothing to draw from"):
        normalise(_built(PLAIN, NoReference()), rng)
    with pytest.raises(InputError, match="bound"):
        Referenced(PLAIN, bound=0.0).build((2,))


def _learner(config, u, rows):
    with DrawsFrom(stream(0, "generator")):
        q = MLPGenerator(latent_dim=2, widths=(16,), sigma=0.2).build((2,))
    return config.build(u, q, SGLD(0.01), Revision(3, target="x"))


LEARNERS = {"inclusive": InclusiveConfig(), "pcd": PCDConfig(n_chains=64), "replay": ReplayConfig(buffer_size=64)}


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize("learner", LEARNERS)
def test_learners_train_the_network_and_leave_the_reference(learner, name):
    u, rows = _built(PLAIN, REFERENCES[name]), _rows()
    fitted = {key: value.clone() for key, value in u.measure.state_dict().items()}
    weights = [p.clone() for p in u.network.parameters()]
    trained, rng = _learner(LEARNERS[learner], u, rows), streams([0], "learner")
    for i in range(3):
        trained.update(rows[40 * i : 40 * i + 40], rng)
    assert all(torch.equal(value, fitted[key]) for key, value in u.measure.state_dict().items())
    assert all(not torch.equal(a, b) for a, b in zip(weights[:2], u.network.parameters(), strict=False))


def test_levels_learn_what_the_reference_does_not_know(rng):
    """The ring around a Gaussian: the field gains half a nat over it, on rows it has not seen."""
    rows, fresh = _rows(2000), _rows(1000, seed=7)
    with DrawsFrom(stream(0, "weights")):
        network = LevelsMLPPotential(widths=(48, 48), n_levels=5, sigma_min=0.15, sigma_max=3.0)
        u = Referenced(network, GaussianReference(), bound=8.0).build((2,))
    data_dependent_init(u, rows)
    learner, order = _learner(LevelsConfig(), u, rows), stream(0, "order")
    for step in range(400):
        learner.optimizers["potential"].param_groups[0]["lr"] = 5e-3 * (1 - step / 400)
        learner.update(rows[torch.randint(2000, (200,), generator=order)], streams([step], "learner"))
    found = choose_strength(u, fresh, rng)
    assert found.strength > 0.7
    assert found.gain > 0.5
    assert quadrature(lambda x: log_density(u, x), BOX).log_value == pytest.approx(0.0, abs=0.05)
    with frozen(u):
        draws = sample(u, 500, torch.zeros(0, 2), SGLD(0.005), 10, rng)
    assert float((draws.norm(dim=1) - 2).abs().median()) < 0.4


def test_levels_leave_the_row_s_own_kernel_out():
    """Kernels as sharp as needles: with its own one, a row would be as likely as the needle is sharp."""
    rows = _rows(60)
    u = _built(LEVELS, KernelReference(bandwidth=0.01), bound=1.0)
    u.start_from(rows)
    learner = _learner(LevelsConfig(), u, rows)
    found = learner.losses(rows, streams([0], "losses"))
    u.measure.own = lambda batch: None
    seen = learner.losses(rows, streams([0], "losses"))
    assert float((found[1] - seen[1]).detach()) > 0.05  # rows are not as easy to tell as they would be


@pytest.mark.parametrize("name", REFERENCES)
def test_what_learning_sees_is_the_field(name):
    """Values, scores, and the gradients of a loss of scores in the weights; kernels left out, too."""
    u = _built(LEVELS, REFERENCES[name], bound=2.0).double()
    level, own = torch.arange(9) % 4, u.measure.own(_rows().double())
    own = None if own is None else own[:9]
    found = []
    for levels in (lambda x: u.levels_to_learn(x, level, own), lambda x: u.levels(x, own)):
        x = (_rows(9).double() + 0.1).requires_grad_(True)
        values = levels(x)
        (score,) = torch.autograd.grad(values.gather(1, level[:, None]).sum(), x, create_graph=True)
        loss = score.square().sum() + values.logsumexp(1).sum()
        found.append([values, score, *torch.autograd.grad(loss, list(u.body.parameters()))])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("network", [PLAIN, LEVELS], ids=["plain", "levels"])
@pytest.mark.parametrize("name", REFERENCES)
def test_replicas_learn_as_they_would_alone(name, network):
    config = LevelsConfig() if network is LEVELS else InclusiveConfig()
    rows = _rows().double()

    def learners():
        return [_learner(config, _built(network, REFERENCES[name], seed=seed), rows) for seed in (0, 1)]

    for learner in (alone := learners()):
        for module in learner.modules.values():
            module.double()
    twins = learners()
    for learner in twins:
        for module in learner.modules.values():
            module.double()
    torch.set_default_dtype(torch.float64)
    try:
        both = as_replicas(twins)
        for i in range(2):
            both.update(rows[60 * i : 60 * i + 60], streams([5 + i, 15 + i], "learner"))
            for k, learner in enumerate(alone):
                learner.update(rows[60 * i + 30 * k : 60 * i + 30 * k + 30], streams([5 + 10 * k + i], "learner"))
    finally:
        torch.set_default_dtype(torch.float32)
    state = both.modules["potential"].state_dict()
    for k, learner in enumerate(alone):
        for key, value in learner.modules["potential"].state_dict().items():
            torch.testing.assert_close(replica_state(state, k)[key], value, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("network", [PLAIN, LEVELS], ids=["plain", "levels"])
@pytest.mark.parametrize("name", NORMALISED)
def test_stored_and_read(name, network, tmp_path, rng):
    config = Referenced(network, NORMALISED[name], bound=2.0)
    u = _built(network, NORMALISED[name], bound=2.0)
    choose_strength(u, _rows(50, seed=3), rng, strengths=(0.4,))
    save_file({key: value.contiguous() for key, value in u.state_dict().items()}, tmp_path / "field.safetensors")
    again = from_json(Referenced, to_json(config)).build((2,))
    again.load_state_dict(load_file(tmp_path / "field.safetensors"))
    x = _rows(5, seed=4)
    assert torch.equal(log_density(again, x), log_density(u, x))
