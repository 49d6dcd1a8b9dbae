"""Do the samplers sample the law they claim? Exact stationary laws, exact steps, a skewed target."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import digamma, polygamma

from gaussian import Linear, LinearGaussian, baoab, first_order, second_order, simulate, z_scores
from nrf.errors import InputError
from nrf.samplers import BAOAB, HMC, MALA, SGHMC, SGLD, CoopNet, Langevin, SecondOrderLangevin, polynomial, run
from nrf.targets import ConditionalTarget, JointTarget, PotentialTarget

N = 20_000
LIMIT = 4.5  # standard errors; some ten entries in some twenty tests


def test_sgld_has_the_variance_of_its_discretisation_and_not_of_the_density():
    """Step 0.5 on variance 4: x ← (7/8)x + η has variance 1/(1 − 49/64) = 4.267."""
    samples = simulate(SGLD(step_size=0.5), lambda z, l: (-z[0] / 4,), [1], 40 * N, 60)
    assert samples.var().item() == pytest.approx(64 / 15, rel=0.01)
    assert abs(samples.var().item() - 4) > 0.2


@pytest.mark.parametrize("temperature", [1.0, 0.3])
@pytest.mark.parametrize("kind", [SGLD, Langevin])
def test_first_order_stationary_covariance(kind, temperature):
    model = LinearGaussian()
    samples = simulate(kind(step_size=0.3, temperature=temperature), PotentialTarget(model.potential), [2], N, 150)
    law = first_order(-model.P, np.full(2, 0.3), temperature)
    assert np.abs(z_scores(samples, law.stationary())).max() < LIMIT


@pytest.mark.parametrize("temperature", [1.0, 0.3])
@pytest.mark.parametrize("kind", [SGHMC, SecondOrderLangevin])
def test_second_order_stationary_covariance(kind, temperature):
    model = LinearGaussian()
    sampler = kind(step_size=0.3, friction=0.4, temperature=temperature)
    samples = simulate(sampler, PotentialTarget(model.potential), [2], N, 200)
    law = second_order(-model.P, np.full(2, 0.3), temperature, 0.4)
    assert np.abs(z_scores(samples, law.stationary()[:2, :2])).max() < LIMIT


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_baoab_stationary_covariance(temperature):
    model = LinearGaussian()
    sampler = BAOAB(step_size=0.4, friction=0.4, temperature=temperature)
    samples = simulate(sampler, PotentialTarget(model.potential), [2], N, 150)
    law = baoab(-model.P, np.full(2, 0.4), temperature, 0.4).stationary()[:2, :2]
    assert np.abs(z_scores(samples, law)).max() < LIMIT
    # At this long step SGHMC's own law is far off; BAOAB's is the density's.
    np.testing.assert_allclose(law, temperature * np.linalg.inv(model.P), rtol=1e-9)
    biased = second_order(-model.P, np.full(2, 0.4), temperature, 0.4).stationary()[:2, :2]
    assert np.abs(biased - law).max() > 0.1 * np.abs(law).max()


def test_baoab_on_the_joint_target():
    """The noise and bias of the stochastic gradient stay; they are known."""
    model = LinearGaussian()
    drift, gradient_noise = model.joint_drift(0.15, 1)
    sampler = BAOAB(step_size=0.1, latent_step_size=0.2, friction=0.5)
    target = JointTarget(model.potential, model.generator, 0.15, torch.Generator().manual_seed(9))
    samples = simulate(sampler, target, [2, 2], N, 300)
    law = baoab(drift, np.array([0.1] * 2 + [0.2] * 2), 1.0, 0.5, gradient_noise)
    assert np.abs(z_scores(samples, law.stationary()[:4, :4])).max() < LIMIT


def test_baoab_is_the_textbooks_splitting():
    """Against B-A-O-A-B with its two half kicks, on a target that is not linear, at temperature 0."""
    force = lambda z: -(z**3)  # noqa: E731
    z, v, t, c = 1.3, 0.0, 0.5, 0.7
    for _ in range(5):
        v += t / 2 * force(z)
        z += t / 2 * v
        v *= c
        z += t / 2 * v
        v += t / 2 * force(z)
    sampler = BAOAB(step_size=0.25, friction=0.3, temperature=0.0)
    start = (torch.tensor([1.3], dtype=torch.float64),)
    chain = run(sampler, start, lambda p, l: (force(p[0]),), 5, torch.Generator())
    assert chain.position[0].item() == pytest.approx(z, rel=1e-12)


@pytest.mark.parametrize("n_inner", [1, 3])
@pytest.mark.parametrize("momentum", [False, True])
def test_joint_target_stationary_covariance(n_inner, momentum):
    """Alg. 2 on a linear-Gaussian generator: the random h* adds known noise and a known bias to the gradient."""
    model, step, latent_step, inner = LinearGaussian(), 0.1, 0.1, 0.15
    drift, gradient_noise = model.joint_drift(inner, n_inner)
    sizes = np.array([step] * 2 + [latent_step] * 2)
    if momentum:
        sampler = SGHMC(step_size=step, latent_step_size=latent_step, friction=0.5)
        law = second_order(drift, sizes, 1.0, 0.5, gradient_noise)
    else:
        sampler = SGLD(step_size=step, latent_step_size=latent_step)
        law = first_order(drift, sizes, 1.0, gradient_noise)
    target = JointTarget(model.potential, model.generator, inner, torch.Generator().manual_seed(9), n_inner=n_inner)
    samples = simulate(sampler, target, [2, 2], N, 400)
    assert np.abs(z_scores(samples, law.stationary()[:4, :4])).max() < LIMIT


def test_the_joint_law_is_not_the_law_without_the_inner_noise():
    """The test above can fail: leaving out the noise of h* is visible at its sample size."""
    model = LinearGaussian()
    drift, gradient_noise = model.joint_drift(0.15, 1)
    sizes = np.full(4, 0.1)
    with_noise = first_order(drift, sizes, 1.0, gradient_noise).stationary()
    without = first_order(drift, sizes, 1.0).stationary()
    error = np.sqrt((np.outer(np.diag(with_noise), np.diag(with_noise)) + with_noise**2) / N)
    assert np.abs((with_noise - without) / error).max() > 2 * LIMIT


def test_joint_law_tends_to_the_truth():
    """Small steps and many inner moves: p(x) q(h | x) itself (in the exact law; no simulation)."""
    model = LinearGaussian()
    gaps = []
    for step, n_inner in ((0.004, 1), (0.004, 200), (0.0004, 200)):
        drift, noise = model.joint_drift(0.02, n_inner)
        law = first_order(drift, np.full(4, step), 1.0, noise).stationary()
        gaps.append(np.abs(law - model.truth()).max())
    assert gaps[0] > 5 * gaps[1]  # one inner move leaves a bias that no small step removes
    assert gaps[1] > 5 * gaps[2]
    assert gaps[2] < 0.001


@pytest.mark.parametrize("kind", [Langevin, SecondOrderLangevin])
def test_exact_samplers_on_the_exact_joint_gradient(kind):
    model = LinearGaussian()

    def exact(position, l):
        return tuple(map(torch.from_numpy, model.exact_gradient(*(z.numpy() for z in position))))

    samples = simulate(kind(step_size=0.05), exact, [2, 2], N, 500)
    sizes = np.full(4, 0.05)
    if kind is Langevin:
        law = first_order(model.exact_drift(), sizes, 1.0).stationary()
    else:
        law = second_order(model.exact_drift(), sizes, 1.0, 0.1).stationary()[:4, :4]
    assert np.abs(z_scores(samples, law)).max() < LIMIT


def test_coopnet_stationary_covariance():
    """n_x steps of x by itself, then n_h of h with x held: a product of linear maps."""
    model, step, latent_step = LinearGaussian(), 0.2, 0.15
    sampler = CoopNet(step_size=step, latent_step_size=latent_step, n_x=2, n_h=3)
    samples = simulate(sampler, ConditionalTarget(model.potential, model.generator), [2, 2], N, 80)
    of_x = np.block([[-model.P, np.zeros((2, 2))], [np.zeros((2, 4))]])
    of_h = np.block([[np.zeros((2, 4))], [model.latent_drift_x, model.latent_drift_h]])
    move_x = first_order(of_x, np.array([step, step, 0, 0]), 1.0)
    move_h = first_order(of_h, np.array([0, 0, latent_step, latent_step]), 1.0)
    law = Linear(np.eye(4), np.zeros((4, 4)))
    for move in (move_x, move_x, move_h, move_h, move_h):
        law = law.then(move)
    assert np.abs(z_scores(samples, law.stationary())).max() < LIMIT


@pytest.mark.parametrize("sampler", [SGLD(step_size=0.02), SGHMC(step_size=0.003, friction=0.2), BAOAB(step_size=0.1)])
def test_skewed_target(sampler):
    """The logarithm of a Gamma(2) variable: a wrong sign that a symmetric target hides moves its mean and skewness."""
    samples = simulate(sampler, lambda z, l: (2 - z[0].exp(),), [1], N, 700).flatten()
    mean, variance = digamma(2.0), polygamma(1, 2.0)
    skewness = polygamma(2, 2.0) / variance**1.5
    centred = (samples - samples.mean()) / samples.std()
    assert samples.mean().item() == pytest.approx(mean, abs=0.03)
    assert samples.var().item() == pytest.approx(variance, rel=0.05)
    assert centred.pow(3).mean().item() == pytest.approx(skewness, abs=0.12)
    assert skewness < -0.7


def _cold(**settings):
    return {"temperature": 0.0, "latent_step_size": 0.2, "decay": (2.0, 1.0), **settings}


def _pull(position, l):
    """A gradient that tells blocks and steps apart."""
    x, h = position
    return -x + 0.1 * l, -2 * h


def test_sgld_at_temperature_zero_step_by_step():
    x, h = 1.0, -3.0
    chain = run(SGLD(step_size=0.5, **_cold()), (torch.tensor([x]), torch.tensor([h])), _pull, 3, torch.Generator())
    for l in range(3):
        factor = 1 / (1 + l / 2)
        x, h = x + 0.5 * factor * (-x + 0.1 * l), h + 0.2 * factor * (-2 * h)
    assert chain.position[0].item() == pytest.approx(x, rel=1e-6)
    assert chain.position[1].item() == pytest.approx(h, rel=1e-6)


def test_sghmc_at_temperature_zero_step_by_step():
    x, h, vx, vh = 1.0, -3.0, 0.0, 0.0
    sampler = SGHMC(step_size=0.5, friction=0.25, **_cold())
    chain = run(sampler, (torch.tensor([x]), torch.tensor([h])), _pull, 3, torch.Generator())
    for l in range(3):
        factor = 1 / (1 + l / 2)
        vx = 0.75 * vx + 0.5 * factor * (-x + 0.1 * l)
        vh = 0.75 * vh + 0.2 * factor * (-2 * h)
        x, h = x + vx, h + vh
    assert [z.item() for z in chain.position] == pytest.approx([x, h], rel=1e-6)
    assert [v.item() for v in chain.state.momentum] == pytest.approx([vx, vh], rel=1e-6)


def test_coopnet_at_temperature_zero_step_by_step():
    class Blocks:
        def __call__(self, position, l):
            return _pull(position, l)

        def block(self, position, l, index):
            return _pull(position, l)[index]

    sampler = CoopNet(step_size=0.5, n_x=2, n_h=1, **_cold())
    chain = run(sampler, (torch.tensor([1.0]), torch.tensor([-3.0])), Blocks(), 2, torch.Generator())
    x, h = 1.0, -3.0
    for l in range(2):
        for i in range(2):
            t = 2 * l + i
            x += 0.5 / (1 + t / 2) * (-x + 0.1 * t)
        h += 0.2 / (1 + l / 2) * (-2 * h)
    assert [z.item() for z in chain.position] == pytest.approx([x, h], rel=1e-6)


def test_polynomial_schedule_is_the_papers():
    sampler = SGLD(**polynomial(a=10, b=1000, c=2))
    for t in (0, 1, 500, 1999):
        assert sampler.step_sizes(t, 1)[0] == pytest.approx((10 * (1 + t / 1000)) ** -2)


def test_reflection_turns_position_and_momentum_round():
    sampler = SGHMC(step_size=1.0, friction=0.0, temperature=0.0, box=(0.0, 1.0), box_mode="reflect")
    chain = run(sampler, (torch.tensor([0.5]),), lambda z, l: (torch.tensor([0.7]),), 1, torch.Generator())
    assert chain.position[0].item() == pytest.approx(0.8)  # 1.2 folded back at 1
    assert chain.state.momentum[0].item() == pytest.approx(-0.7)


def test_clipping_stops_at_the_wall():
    sampler = SGLD(step_size=1.0, temperature=0.0, box=(0.0, 1.0))
    chain = run(sampler, (torch.tensor([0.5]),), lambda z, l: (torch.tensor([0.7]),), 1, torch.Generator())
    assert chain.position[0].item() == 1.0


def test_reflected_sampling_of_a_flat_density_is_uniform():
    sampler = SGLD(step_size=0.05, box=(0.0, 1.0), box_mode="reflect")
    samples = simulate(sampler, lambda z, l: (torch.zeros_like(z[0]),), [1], N, 60).flatten()
    # Kolmogorov–Smirnov distance; its 99.9 % point is 1.95/√n.
    distance = (samples.sort().values - torch.linspace(0, 1, N, dtype=torch.float64)).abs().max().item()
    assert distance < 1.95 / math.sqrt(N)


def test_an_exact_sampler_refuses_a_stochastic_gradient():
    model = LinearGaussian()
    target = JointTarget(model.potential, model.generator, 0.1, torch.Generator())
    start = (torch.zeros(1, 2, dtype=torch.float64),) * 2
    for kind, other in ((SecondOrderLangevin, "SGHMC"), (Langevin, "SGLD"), (HMC, "SGHMC"), (MALA, "SGLD")):
        with pytest.raises(InputError, match=rf"{kind.__name__} is defined by exact gradients.*use {other}"):
            run(kind(), start, target, 1, torch.Generator())


def test_coopnet_asks_for_a_target_by_blocks():
    with pytest.raises(InputError, match="ConditionalTarget"):
        run(CoopNet(), (torch.zeros(1), torch.zeros(1)), _pull, 1, torch.Generator())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"step_size": 0.0}, "step_size"),
        ({"step_size": float("inf")}, "step_size"),
        ({"latent_step_size": -1.0}, "latent_step_size"),
        ({"temperature": -0.1}, "temperature"),
        ({"decay": (0.0, 1.0)}, "decay"),
        ({"box": (1.0, 1.0)}, "box"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        SGLD(**settings)


@pytest.mark.parametrize("kind", [SGHMC, SecondOrderLangevin, BAOAB])
def test_friction_is_a_share(kind):
    with pytest.raises(InputError, match="friction"):
        kind(friction=1.5)
