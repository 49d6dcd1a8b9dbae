"""Revision through the first layer: the same positions as step by step, and only where that holds."""

from __future__ import annotations

import pytest
import torch

from nrf.learners import InclusiveConfig, Revision
from nrf.learners.first_layer import first_layer
from nrf.networks import MLPGenerator, MLPPotential, OneClassCNNPotential
from nrf.samplers import SGHMC, SGLD, Langevin, SecondOrderLangevin, run
from nrf.seeds import stream
from nrf.targets import PotentialTarget

SAMPLERS = [
    SGLD(step_size=0.5, temperature=0.0, decay=(5.0, 1.0)),
    SGHMC(step_size=0.3, friction=0.7, temperature=0.0),
    Langevin(step_size=0.5, temperature=0.0),
]
POTENTIAL = MLPPotential(widths=(6, 4), activation="tanh")


def built(config=POTENTIAL, shape=(9,)):
    torch.manual_seed(0)
    return config.build(shape).double()


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("shape", [(9,), (1, 3, 3)], ids=str)
def test_positions_are_those_of_steps_of_x(sampler, shape):
    u = built(shape=shape)
    assert first_layer(u, sampler) is not None
    x, rng = torch.randn((20, *shape), dtype=torch.double), stream(0, "x")
    stepped = run(sampler, (x,), PotentialTarget(u), 12, rng).position[0]
    revised, _ = Revision(n_steps=12)(u, None, sampler, x, torch.zeros(20, 1), rng)
    assert (stepped - x).abs().max() > 0.01
    torch.testing.assert_close(revised, stepped, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("config", "shape", "sampler"),
    [
        (POTENTIAL, (9,), SGLD(temperature=1e-3)),
        (POTENTIAL, (9,), SGLD(temperature=0.0, box=(-1.0, 1.0))),
        (POTENTIAL, (9,), SecondOrderLangevin(temperature=0.0)),
        (POTENTIAL, (5,), SGLD(temperature=0.0)),
        (MLPPotential(widths=(6, 4), confinement=3.0), (9,), SGLD(temperature=0.0)),
        (MLPPotential(widths=(6, 4), norm="batch"), (9,), SGLD(temperature=0.0)),
        (MLPPotential(widths=()), (9,), SGLD(temperature=0.0)),
        (OneClassCNNPotential(width=4), (3, 32, 32), SGLD(temperature=0.0)),
    ],
    ids=["noise", "box", "other sampler", "wider layer", "confinement", "batch norm", "no hidden layer", "images"],
)
def test_not_where_it_would_be_wrong_or_longer(config, shape, sampler):
    assert first_layer(built(config, shape), sampler) is None


def test_compiled_is_equal():
    torch.manual_seed(0)
    u, q = POTENTIAL.build((9,)), MLPGenerator(latent_dim=2, widths=(8,), norm="none").build((9,))
    learner = InclusiveConfig().build(u, q, SAMPLERS[1], Revision(n_steps=5))
    x, h = q.propose(16, stream(0, "x"))
    eager = learner.revise(x, h, stream(0, "r"))[0]
    learner.compile()
    torch.testing.assert_close(learner.revise(x, h, stream(0, "r"))[0], eager, rtol=1e-5, atol=1e-6)
