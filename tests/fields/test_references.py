"""Reference measures: densities that integrate to 1, gradients, exact draws, blurring, leave-one-out, storage."""

from __future__ import annotations

import math

import pytest
import torch
from torch.distributions import MultivariateNormal

from nrf.config import from_json, to_json
from nrf.errors import InputError
from nrf.fields import (
    REFERENCES,
    GaussianReference,
    KernelReference,
    MixtureReference,
    NoReference,
    quadrature,
)
from nrf.fields.em import RIDGES, choose_ridge, fit_mixture, loo_bandwidth
from nrf.fields.references import AnyReference
from nrf.networks import replica_state, stack
from nrf.seeds import stream, streams

NORMALISED = {
    "gaussian": GaussianReference(),
    "diagonal": GaussianReference("diagonal"),
    "mixture": MixtureReference(n_components=5),
    "kernel": KernelReference(n_anchors=60),
}


def _rows(n=300, size=2, seed=0):
    """Three clusters, the columns correlated."""
    rng = stream(seed, "rows")
    places = 3 * torch.randn(3, size, generator=rng)
    turn = torch.randn(size, size, generator=rng)
    return places[torch.randint(3, (n,), generator=rng)] + 0.6 * torch.randn(n, size, generator=rng) @ turn


def _fitted(name, rows=None, seed=0):
    rows = _rows() if rows is None else rows
    measure = NORMALISED[name].build(tuple(rows.shape[1:]))
    measure.fit(rows, stream(seed, "fit"))
    return measure


@pytest.mark.parametrize("sigma", [0.0, 0.7])
@pytest.mark.parametrize("name", NORMALISED)
def test_a_reference_integrates_to_one(name, sigma):
    measure, rows = _fitted(name), _rows()
    box = rows.min(0).values - 8, rows.max(0).values + 8
    found = quadrature(lambda x: measure.log_density(x, sigma), box, 500_000)
    assert found.log_value == pytest.approx(0.0, abs=2e-3)


@pytest.mark.parametrize("sigma", [0.0, 0.7])
@pytest.mark.parametrize("name", NORMALISED)
def test_gradients_are_those_of_autograd(name, sigma):
    measure = _fitted(name, _rows().double()).double()
    x = _rows(20, seed=1).double().requires_grad_(True)
    (want,) = torch.autograd.grad(measure.log_density(x, sigma).sum(), x)
    torch.testing.assert_close(measure.gradient(x.detach(), sigma), want, rtol=1e-6, atol=1e-6)
    each = torch.full((20,), sigma, dtype=torch.float64)
    torch.testing.assert_close(measure.gradient(x.detach(), each), want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("sigma", [0.0, 0.7])
@pytest.mark.parametrize("name", NORMALISED)
def test_draws_have_the_density(name, sigma, rng):
    """E_r[f] over draws is ∫ f r, here for r itself: a wrong weight, place or width shows."""
    measure = _fitted(name)
    draws = measure.sample(20_000, rng, sigma)
    values = measure.log_density(draws, sigma).exp()
    rows = _rows()
    box = rows.min(0).values - 8, rows.max(0).values + 8
    want = quadrature(lambda x: 2 * measure.log_density(x, sigma), box).value
    assert abs(float(values.mean()) - want) < 5 * float(values.std()) / math.sqrt(len(values))
    torch.testing.assert_close(draws.mean(0), rows.mean(0), rtol=0, atol=0.3)


@pytest.mark.parametrize("name", NORMALISED)
def test_blurring_is_noise_on_draws(name, rng):
    """The mean of r over noise at a point is the blurred density there."""
    measure, x = _fitted(name), _rows(5, seed=2)
    around = x[:, None] + 0.7 * torch.randn(5, 40_000, 2, generator=rng)
    want = measure.log_density(around.flatten(0, 1)).exp().view(5, -1).mean(1)
    torch.testing.assert_close(measure.log_density(x, 0.7).exp(), want, rtol=0.08, atol=1e-4)


def test_no_reference():
    measure = NoReference().build((2,))
    x = _rows(4)
    assert not measure.normalised
    assert float(measure(x).abs().sum()) == float(measure.gradient(x).abs().sum()) == 0
    with pytest.raises(InputError, match="nothing to draw from"):
        measure.sample(3, stream(0, "draws"))


def test_leave_one_out_leaves_out(rng):
    rows = _rows(50)
    measure = _fitted("kernel", rows)
    own = measure.own(rows)
    assert sorted(own.tolist()) == list(range(50))  # every row is an anchor, each its own
    for i in (0, 17):
        others = torch.cat([rows[:i], rows[i + 1 :]])
        rest = KernelReference(bandwidth=float(measure.bandwidth)).build((2,))
        rest.fit(others, rng)
        for sigma in (0.0, 0.5):
            left = measure.log_density(rows[i : i + 1], sigma, own[i : i + 1])
            torch.testing.assert_close(left, rest.log_density(rows[i : i + 1], sigma), rtol=1e-4, atol=1e-4)
            assert float(left) < float(measure.log_density(rows[i : i + 1], sigma)) - 1e-3
    strange = _rows(7, seed=5)
    assert measure.own(strange).tolist() == [-1] * 7
    torch.testing.assert_close(
        measure.log_density(strange, 0.1, measure.own(strange)), measure.log_density(strange, 0.1)
    )


def test_of_equal_rows_only_one_is_left_out():
    rows = _rows(10).repeat(2, 1)
    measure = _fitted("kernel", rows)
    left = measure.log_density(rows, 0.0, measure.own(rows))
    assert float((measure.log_density(rows) - left).max()) < math.log(2) + 1e-4


def test_the_bandwidth_has_the_greatest_leave_one_out_likelihood():
    rows = _rows(400)
    best = loo_bandwidth(rows)

    def likelihood(h):
        measure = KernelReference(bandwidth=h).build((2,))
        measure.fit(rows, stream(0, "fit"))
        return float(measure.log_density(rows, 0.0, measure.own(rows)).mean())

    assert likelihood(best) > max(likelihood(best / 1.3), likelihood(best * 1.3))
    assert loo_bandwidth(3 * rows) == pytest.approx(3 * best, rel=1e-3)


def test_rows_that_repeat_do_not_close_the_kernels():
    rows = _rows(100)
    assert loo_bandwidth(rows.repeat(2, 1)) == pytest.approx(loo_bandwidth(rows), rel=0.1)
    assert loo_bandwidth(torch.ones(10, 2)) == 1.0


def test_em_never_loses():
    found = fit_mixture(_rows(600, 4).double(), stream(0, "em"), n_components=6, ridge=0.02)
    steps = torch.tensor(found.objectives).diff()
    assert len(steps) >= 2
    assert float(steps.min()) > -1e-9
    assert float(found.log_weights.exp().sum()) == pytest.approx(1.0)
    assert found.objectives[-1] > found.objectives[0] + 0.005


def test_a_mixture_finds_what_a_gaussian_cannot():
    rows, fresh = _rows(2000)[:1000], _rows(2000)[1000:]
    held_out = {name: float(_fitted(name, rows).log_density(fresh).mean()) for name in ("gaussian", "mixture")}
    assert held_out["mixture"] > held_out["gaussian"] + 0.3


def _held_out(rows, fresh, ridge, **settings):
    measure = MixtureReference(ridge=ridge, **settings).build(tuple(rows.shape[1:]))
    measure.fit(rows, stream(0, "fit"))
    return float(measure.log_density(fresh).mean())


def test_narrow_modes_get_a_small_ridge():
    rng = stream(0, "narrow")
    places = 3 * torch.randn(8, 2, generator=rng)
    rows = places[torch.randint(8, (1200,), generator=rng)] + 0.03 * torch.randn(1200, 2, generator=rng)
    chosen = _held_out(rows[:600], rows[600:], None)
    assert chosen > _held_out(rows[:600], rows[600:], 0.02) + 1
    assert chosen > max(_held_out(rows[:600], rows[600:], ridge) for ridge in RIDGES) - 0.1


def test_few_rows_in_correlated_columns_get_a_wide_ridge():
    """Forty columns of three numbers and a little noise: a small ridge takes the directions of chance for true ones."""
    rng = stream(0, "thin")
    rows = torch.randn(260, 3, generator=rng) @ torch.randn(3, 40, generator=rng) + 0.5 * torch.randn(
        260, 40, generator=rng
    )
    chosen = _held_out(rows[:130], rows[130:], None, n_components=1, diagonal_share=0.0)
    assert chosen > _held_out(rows[:130], rows[130:], RIDGES[-1], n_components=1, diagonal_share=0.0) + 0.3


def test_too_few_rows_do_not_choose_a_ridge(rng):
    assert choose_ridge(_rows(95), rng, fit_mixture) == RIDGES[0]


def test_the_likelihood_of_a_mixture_is_that_of_its_measure():
    measure, fitted = _fitted("mixture"), fit_mixture(_rows().double(), stream(0, "fit"), n_components=5)
    fresh = _rows(50, seed=1)
    assert fitted.log_likelihood(fresh.double()) == pytest.approx(float(measure(fresh).mean()), abs=1e-4)


def test_one_component_is_a_gaussian():
    rows = _rows(4000, 3)
    measure = MixtureReference(n_components=1, ridge=1e-6, diagonal_share=0.0).build((3,))
    measure.fit(rows, stream(0, "fit"))
    exact = MultivariateNormal(rows.mean(0), torch.cov(rows.T) + 0.5**2 * torch.eye(3))
    torch.testing.assert_close(measure.log_density(rows[:9], 0.5), exact.log_prob(rows[:9]), rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("name", NORMALISED)
def test_the_same_randomness_gives_the_same_reference(name):
    x = _rows(5, seed=1)
    assert torch.equal(_fitted(name, seed=3)(x), _fitted(name, seed=3)(x))


@pytest.mark.parametrize("name", NORMALISED)
def test_what_was_fitted_is_in_the_state(name):
    measure, x = _fitted(name), _rows(5, seed=1)
    again = from_json(AnyReference, to_json(NORMALISED[name])).build((2,))
    assert not torch.equal(again(x), measure(x))
    again.load_state_dict(measure.state_dict())
    assert torch.equal(again(x), measure(x))
    assert torch.equal(again.sample(4, stream(0, "draws")), measure.sample(4, stream(0, "draws")))


@pytest.mark.parametrize("name", NORMALISED)
def test_replicas_have_their_own(name):
    alone = [_fitted(name, _rows(seed=seed)) for seed in (0, 1)]
    both = stack(alone)
    x = _rows(6, seed=4)
    own = torch.tensor([0, 1, -1, 2, -1, 3]) if name == "kernel" else None
    for i, one in enumerate(alone):
        part = slice(3 * i, 3 * i + 3)
        mine = None if own is None else own[part]
        torch.testing.assert_close(
            both.log_densities(x, (0.0, 0.4), own)[part], one.log_densities(x[part], (0.0, 0.4), mine)
        )
        torch.testing.assert_close(both.gradient(x, 0.4)[part], one.gradient(x[part], 0.4))
        draws = both.sample(8, streams([5, 6], "draws"), 0.1)
        torch.testing.assert_close(draws[4 * i : 4 * i + 4], one.sample(4, stream(5 + i, "draws"), 0.1))
        assert set(replica_state(both.state_dict(), i)) == set(one.state_dict())


def test_rows_of_any_shape():
    rows = _rows(40, 8).view(40, 2, 2, 2)
    for name in NORMALISED:
        measure = _fitted(name, rows)
        assert measure(rows).shape == (40,)
        assert measure.gradient(rows).shape == measure.sample(40, stream(0, "x")).shape == rows.shape


def test_settings_that_make_no_reference_are_refused():
    for make in (
        lambda: MixtureReference(n_components=0),
        lambda: MixtureReference(ridge=0),
        lambda: KernelReference(n_anchors=1),
        lambda: KernelReference(bandwidth=0.0),
        lambda: KernelReference().build((2,)).fit(_rows(1), stream(0, "fit")),
        lambda: MixtureReference().build((2,)).fit(_rows(1), stream(0, "fit")),
    ):
        with pytest.raises(InputError):
            make()
    assert set(REFERENCES) == {"none", "gaussian", "mixture", "kernel"}
