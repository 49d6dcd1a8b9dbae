"""Revision as learners call it: in which precision."""

from __future__ import annotations

import pytest
import torch

from nrf.learners import Revision
from nrf.learners.reviser import Half, Reviser
from nrf.models import gradient
from nrf.networks import MLPPotential, OneClassCNNGenerator, OneClassCNNPotential
from nrf.samplers import SGHMC
from nrf.seeds import DrawsFrom, stream

SHAPE = (3, 16, 16)


def _revised(config, half):
    with DrawsFrom(stream(0, "weights")):
        potential = config.build(SHAPE)
        generator = OneClassCNNGenerator(latent_dim=4, width=2).build(SHAPE)
    x, h = torch.randn(4, *SHAPE, generator=stream(1, "x")), torch.zeros(4, 4)
    reviser = Reviser(potential, generator, SGHMC(step_size=1.0, friction=0.5, temperature=0.0), Revision(5))
    with torch.autocast("cpu", torch.bfloat16, enabled=half, cache_enabled=False):
        return x, reviser(x, h, stream(0, "noise"))[0]


def test_convolutions_climb_in_16_bits_where_products_are_and_positions_stay_in_32():
    x, exact = _revised(OneClassCNNPotential(width=8), half=False)
    _, rounded = _revised(OneClassCNNPotential(width=8), half=True)
    assert rounded.dtype == torch.float32
    assert not torch.equal(rounded, exact)
    moved, rounded_moved = exact - x, rounded - x
    assert moved.norm() > 0
    assert (rounded_moved - moved).norm() < 0.2 * moved.norm()


def test_a_perceptron_climbs_in_32_bits_always():
    _, exact = _revised(MLPPotential(widths=(8,)), half=False)
    _, rounded = _revised(MLPPotential(widths=(8,)), half=True)
    assert torch.equal(rounded, exact)


def test_half_has_the_value_in_32_bits_and_the_gradient_of_a_rounded_network():
    with DrawsFrom(stream(0, "weights")):
        potential = OneClassCNNPotential(width=4, norm="none").build(SHAPE).requires_grad_(False)
    x = torch.randn(2, *SHAPE, generator=stream(1, "x"))
    torch.testing.assert_close(Half(potential)(x), potential(x))
    found, want = gradient(Half(potential), x), gradient(potential, x)
    assert found.dtype == torch.float32
    assert (found - want).norm() == pytest.approx(0, abs=0.2 * float(want.norm()))
