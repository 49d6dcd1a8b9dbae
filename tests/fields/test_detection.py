"""The detector's field: the product, where log-densities stand, what held-out rows make of a network."""

from __future__ import annotations

import math

import pytest
import torch

from nrf.errors import InputError
from nrf.fields import Detection, HeldOut, MixtureReference, Neighbours, ground_of, quadrature, settle
from nrf.fields.detection import LEAST_GAIN, LEAST_SPREAD, TAIL, Standing
from nrf.fields.referenced import STRENGTHS, best_strength
from nrf.models import gradient
from nrf.networks import LevelsMLPPotential, MLPPotential, stack
from nrf.seeds import DrawsFrom, stream

NETWORK = LevelsMLPPotential(widths=(8,), n_levels=3, sigma_min=0.1, sigma_max=2.0, covariance="full")
REFERENCE = MixtureReference(n_components=3, ridge=0.02)


def _rows(n=300, name="rows"):
    rng = stream(0, name)
    return torch.randn(n, 2, generator=rng) * torch.tensor([1.0, 0.5]) + 2 * torch.randint(2, (n, 1), generator=rng)


def _built(seed=0, **settings):
    """A field whose reference is fitted, with a network of random weights."""
    with DrawsFrom(stream(seed, "init")):
        field = Detection(**{"network": NETWORK, "reference": REFERENCE} | settings).build((2,))
    field.start_from(_rows() * _units(field), stream(seed, "start"))
    return field


def _units(field):
    return torch.tensor(field.units) if field.units else torch.ones(2)


def _settled(strength=0.0, seed=0, **settings):
    """The field that scores; with a strength other than 0 it is set by hand."""
    field = _built(seed, **settings)
    rows = _rows() * _units(field)
    settle(field, None, ground_of(field, rows, len(rows), stream(seed, "ground")), stream(seed, "settle"))
    if strength:
        field.density.tilt.strength.fill_(strength)
    return field


def test_the_product_is_the_mean_of_neighbours_and_standing_density():
    field, new = _settled(strength=0.7, weight=0.5), _rows(50, "new")
    a, b = field.neighbours(new), field.density(new)
    z = (b - field.standing.middle) / field.standing.spread
    z = torch.where(z < -3, -3 - torch.log(1 + (-3 - z).clamp_min(0)), z)
    torch.testing.assert_close(field(new), (a + 0.5 * z) / 1.5)
    torch.testing.assert_close(field.log_density(new), b)
    torch.testing.assert_close(_settled(weight=0.0)(new), field.neighbours(new))


def test_without_neighbours_it_is_the_density():
    field, new = _settled(strength=0.7, neighbours=None), _rows(50, "new")
    torch.testing.assert_close(field(new), field.density(new))
    torch.testing.assert_close(field.gradient(new), field.density.gradient(new))


def test_before_it_is_settled_it_is_the_density_that_is_learned():
    field, new = _built(), _rows(50, "new")
    torch.testing.assert_close(field(new), field.density(new))
    torch.testing.assert_close(field.gradient(new), field.density.gradient(new))


def test_units_stretch_the_columns():
    """The field of stretched rows, and rows in units that stretch them, are the same one; the slope is that of x."""
    new = _rows(50, "new")
    field = _settled(strength=0.7, units=(0.6, 2.0))
    plain = Detection(network=NETWORK, reference=REFERENCE).build((2,))
    plain.load_state_dict(field.state_dict())
    units = torch.tensor([0.6, 2.0])
    torch.testing.assert_close(field(new), plain(new * units))
    torch.testing.assert_close(field.log_density(new), plain.log_density(new * units))
    torch.testing.assert_close(field.gradient(new), units * plain.gradient(new * units))


@pytest.mark.parametrize("settings", [{}, {"neighbours": None}, {"units": (0.6, 1.0)}])
def test_its_gradient_is_that_of_its_values(settings):
    field = _settled(strength=0.7, **settings).double()
    new = torch.cat([_rows(30, "new"), 4 * _rows(10, "far")]).double()
    step = 1e-6 * torch.eye(2, dtype=torch.float64)
    numeric = torch.stack([(field(new + e) - field(new - e)).detach() / 2e-6 for e in step], 1)
    torch.testing.assert_close(gradient(field, new), numeric, rtol=1e-4, atol=1e-5)


def test_replicas_are_the_fields_that_they_are_made_of():
    fields = [_settled(strength=0.3 + 0.3 * seed, seed=seed) for seed in range(3)]
    together, new = stack(fields), _rows(20, "new")
    many = new.repeat(3, 1)
    torch.testing.assert_close(together(many), torch.cat([one(new) for one in fields]), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(together.log_density(many), torch.cat([one.log_density(new) for one in fields]))
    slopes = torch.cat([one.gradient(new) for one in fields])
    torch.testing.assert_close(together.gradient(many), slopes, rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------------------------------------------------- standing


def test_standing_is_a_z_score_with_a_logarithm_below_minus_3():
    standing = Standing()
    assert not standing.is_known
    values = torch.randn(500, generator=stream(0, "values")) * 4 - 7
    standing.fit(values, 500)
    assert standing.is_known
    z = standing(values[values > values.mean()])
    torch.testing.assert_close(z, (values[values > values.mean()] - values.mean()) / values.std(correction=0))
    below = values.mean() - values.std(correction=0) * torch.tensor([TAIL, TAIL + math.e - 1, TAIL + math.e**5 - 1])
    torch.testing.assert_close(standing(below), torch.tensor([-3.0, -4.0, -8.0]), rtol=1e-4, atol=1e-4)


def test_the_slope_of_standing():
    standing = Standing().double()
    standing.fit(torch.arange(10.0, dtype=torch.float64), 10)
    at = torch.tensor([-1000.0, -20.0, -5.0, 3.0, 9.0], dtype=torch.float64)
    torch.testing.assert_close(
        standing.slope(at), (standing(at + 1e-6) - standing(at - 1e-6)) / 2e-6, rtol=1e-5, atol=1e-8
    )


def test_rows_that_are_all_as_likely_have_a_spread_all_the_same():
    standing = Standing()
    standing.fit(torch.full((20,), -3.0), 20)
    assert float(standing.spread) == pytest.approx(LEAST_SPREAD)
    assert torch.isfinite(standing(torch.tensor([-3.0, -4.0]))).all()


# --------------------------------------------------------------------------------------------------------------- settle


def _says(field, u):
    """Let the network say what a function of rows says, at all levels."""

    class Said(torch.nn.Module):
        def forward(self, x):
            return u(x)[:, None].expand(-1, 3)

    field.density.body = Said()
    field.density.reference.mean.zero_()
    field.density.reference.variances.fill_(1.0)
    return field


def _judged(field, rows=None):
    rows = _rows() if rows is None else rows
    held = HeldOut(field.density, _rows(400, "held"), stream(0, "held"))
    ground = ground_of(field, rows, len(rows), stream(0, "ground"))
    return settle(field, held, ground, stream(0, "settle")), ground


def test_a_network_that_says_noise_is_the_reference():
    field = _says(_built(), lambda x: torch.sin(40 * x[:, 0] + 17 * x[:, 1]))
    choice, ground = _judged(field)
    assert (choice.strength, choice.gain) == (0.0, 0.0)
    new = _rows(50, "new")
    sigma = field.density.sigmas[0]
    torch.testing.assert_close(field.log_density(new), ground.measure.log_density(new, sigma))
    torch.testing.assert_close(field.log_density(new), _settled().log_density(new))
    assert field.density.is_normalised


@pytest.mark.parametrize(
    ("size", "turned"),
    [
        pytest.param(0.1, lambda x: torch.sin(2 * x[:, 0]), id="within its error"),
        pytest.param(0.003, lambda x: torch.cos(3 * x[:, 1]), id="next to nothing"),
    ],
)
def test_a_gain_by_chance_is_none(size, turned):
    """So few held-out rows differ from draws of the reference in everything, a little."""
    field = _built()
    held = HeldOut(field.density, _rows(400, "held"), stream(0, "held"))
    way = math.copysign(size, float(turned(held.rows).mean() - turned(held.draws).mean()))
    _says(field, lambda x: way * turned(x))
    chance = best_strength(*(way * turned(x).double() for x in (held.rows, held.draws)), STRENGTHS)
    assert chance.strength > 0
    assert (chance.gain > chance.standard_error) != (chance.gain > LEAST_GAIN)
    assert held.choice(field.density).strength == 0


def test_a_network_that_knows_more_has_a_say():
    """The reference is one Gaussian around two heaps; the network knows where nothing is between them."""
    field = _built(reference=MixtureReference(n_components=1))
    _says(field, lambda x: 2 - 6 * torch.exp(-2 * (x.sum(1) - 2).square()))
    choice, _ = _judged(field)
    assert choice.strength > 0
    assert choice.gain > choice.standard_error > 0
    box = torch.full((2,), -9.0), torch.full((2,), 11.0)
    assert abs(quadrature(field.log_density, box).log_value) < 0.05
    blurred = HeldOut(field.density, _rows(400, "held"), stream(0, "held")).rows
    said = field.log_density(blurred)
    assert float(field.standing.middle) == pytest.approx(float(said.mean()), abs=0.05)
    assert float(field.standing.spread) == pytest.approx(float(said.std()), rel=0.05)


def test_without_held_out_rows_the_network_has_no_say():
    field = _says(_built(), lambda x: 3 - x.square().sum(1))
    rows = _rows()
    ground = ground_of(field, rows, 1000, stream(0, "ground"))
    choice = settle(field, None, ground, stream(0, "settle"))
    assert choice.strength == 0
    assert int(field.standing.n_rows) == 1000
    assert float(field.standing.middle) == pytest.approx(float(field.log_density(rows).mean()), abs=1e-5)


def test_in_the_end_all_rows_count():
    """Reference and neighbours are those of the ground, not those that training had."""
    field, rows = _built(), _rows() + 5
    _judged(field, rows)
    assert {tuple(row) for row in field.neighbours.anchors.tolist()} == {tuple(row) for row in rows.tolist()}
    assert bool((field.density.measure.sample(500, stream(0, "draws")).mean(0) > 4).all())


def test_density_integrates_to_1():
    field = _settled()
    box = torch.full((2,), -9.0), torch.full((2,), 11.0)
    assert abs(quadrature(field.log_density, box).log_value) < 1e-3


def test_it_is_stored_with_what_was_fitted():
    field, new = _settled(strength=0.4), _rows(20, "new")
    again = Detection(network=NETWORK, reference=REFERENCE).build((2,))
    again.load_state_dict(field.state_dict())
    assert torch.equal(again(new), field(new))
    assert torch.equal(again.log_density(new), field.log_density(new))


@pytest.mark.parametrize("weight", [-0.1, math.inf, math.nan])
def test_a_weight_that_is_none(weight):
    with pytest.raises(InputError, match="weight must be finite and not negative"):
        Detection(weight=weight)


def test_what_cannot_be_built():
    with pytest.raises(InputError, match="has no noise levels; take LevelsMLPPotential"):
        Detection(network=MLPPotential(widths=(8,))).build((2,))
    with pytest.raises(InputError, match="3 units for rows of shape"):
        Detection(network=NETWORK, units=(1.0, 1.0, 1.0), neighbours=Neighbours()).build((2,))
