"""One contract for every registered network."""

from __future__ import annotations

import pytest
import torch

from nrf.config import from_json, to_json
from nrf.errors import InputError
from nrf.models import frozen, gradient
from nrf.networks import GENERATORS, POTENTIALS
from nrf.runs.spec import GeneratorChoice, PotentialChoice

IMAGE = (3, 16, 16)
EVENTS = {"mlp": (5,), "levels-mlp": (5,)}  # the others take images
SMALL = {"mlp": {"widths": (12, 8)}, "levels-mlp": {"widths": (12, 8), "n_waves": 6}}


def _build(make, event):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make.build(event)


@pytest.fixture(params=POTENTIALS, ids=str)
def potential(request):
    config = POTENTIALS[request.param](**SMALL.get(request.param, {"width": 4}))
    return config, EVENTS.get(request.param, IMAGE)


@pytest.fixture(params=GENERATORS, ids=str)
def generator(request):
    config = GENERATORS[request.param](latent_dim=6, sigma=0.1, **SMALL.get(request.param, {"width": 4}))
    return config, EVENTS.get(request.param, IMAGE)


def test_potential_gives_one_number_a_row(potential, rng):
    config, event = potential
    u = _build(config, event)
    x = torch.randn(4, *event, generator=rng)
    assert u(x).shape == (4,)
    assert torch.isfinite(u(x)).all()
    assert from_json(PotentialChoice, to_json(config)) == config


@pytest.mark.parametrize("norm", ["weight", "spectral", "batch", "none"])
def test_rows_do_not_influence_each_other_in_a_revision(potential, norm, rng):
    config, event = potential
    u = _build(type(config)(**{**vars(config), "norm": norm}), event)
    x = torch.randn(4, *event, generator=rng)
    u(x)  # moves running statistics away from their start
    with frozen(u):
        together, alone = gradient(u, x), torch.cat([gradient(u, row) for row in x.split(1)])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-6)
    assert u.training
    assert all(p.requires_grad for p in u.parameters())


@pytest.mark.parametrize("norm", ["weight", "spectral"])
def test_frozen_gives_the_gradient_of_the_evaluated_network(potential, norm, rng):
    """Cached weights and no parameter gradients are a matter of cost, not of value."""
    config, event = potential
    u = _build(type(config)(**{**vars(config), "norm": norm}), event)
    x = torch.randn(4, *event, generator=rng)
    with frozen(u):
        fast = gradient(u, x)
    torch.testing.assert_close(fast, gradient(u.eval(), x))


def test_generator_proposes_events(generator, rng, no_global_randomness):
    config, event = generator
    q = _build(config, event)
    x, h = q.propose(4, rng)
    assert x.shape == (4, *event)
    assert h.shape == (4, 6)
    assert q.log_joint(x, h).shape == (4,)
    assert from_json(GeneratorChoice, to_json(config)) == config


def test_proposal_is_mean_plus_noise_of_size_sigma(generator, rng):
    config, event = generator
    q = _build(config, event)
    with frozen(q):
        x, h = q.propose(200, rng)
        residual = x - q(h)
    assert residual.std().item() == pytest.approx(0.1, rel=0.05)


@pytest.mark.parametrize("make", [r[n] for r in (POTENTIALS, GENERATORS) for n in r if n not in EVENTS])
def test_wrong_event_shape_is_said(make):
    with pytest.raises(InputError, match="takes square images"):
        make().build((7,))
