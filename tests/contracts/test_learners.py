"""One contract for every registered learner."""

from __future__ import annotations

import pytest
import torch

import nrf.learners
from nrf.config import from_json, to_json
from nrf.errors import NonFiniteError
from nrf.learners import LEARNERS, Revision, as_replicas
from nrf.networks import LevelsMLPPotential, MLPGenerator, MLPPotential, replica_state
from nrf.runs.spec import LearnerChoice
from nrf.samplers import SGLD, CoopNet
from nrf.seeds import stream, streams

# Beside each learner's defaults: its other ways. (revision, settings)
WAYS = {
    "inclusive": {
        "joint": (Revision(3, "joint", n_inner=2), {"optimizer": "rmsprop"}),
        "by the potential": (Revision(1, "x"), {"generator_loss": "potential"}),
        "controlled": (Revision(3, "x"), {"control_weight": 0.1}),
        "smoothed": (Revision(3, "x"), {"data_noise": 0.3}),
    },
    "exclusive": {"variational": (Revision(3, "x"), {"entropy": "variational", "entropy_weight": 1.0})},
    "wgan-gp": {"three critic steps": (Revision(3, "x"), {"n_critic": 3})},
    "coopnet": {"default": (Revision(2, "conditional"), {})},
    "levels": {
        "with a generator": (Revision(2, "joint", start_level=1), {"generator_lr": 1e-3}),
        "codes by the flow": (Revision(1, start_level=1), {"generator_lr": 1e-3, "pairs": "flow"}),
        "polished": (Revision(1, start_level=-1), {"likelihood_weight": 0.1, "control_weight": 0.1, "data_noise": 0.1}),
    },
}
LEVELS = LevelsMLPPotential(widths=(8, 8), n_levels=3, sigma_min=0.3, n_waves=4)
CASES = [
    (name, way)
    for name in LEARNERS
    for way in dict.fromkeys([*({} if name == "coopnet" else {"default"}), *WAYS.get(name, {})])
]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}, {case[1]}")
def make(request):
    """A function that builds the same fresh learner each time."""
    name, way = request.param
    revision, settings = WAYS.get(name, {}).get(way, (Revision(3, "x"), {}))

    def build(sampler=None, seed=0):
        sampler = sampler or (CoopNet if name == "coopnet" else SGLD)(0.01, latent_step_size=1e-3)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            u = (LEVELS if name == "levels" else MLPPotential(widths=(8, 8))).build((3,))
            q = MLPGenerator(latent_dim=4 if "pairs" in settings else 2, widths=(8,), sigma=0.3).build((3,))
            return LEARNERS[name](**settings).build(u, q, sampler, revision)

    build.name = name
    return build


@pytest.mark.parametrize("name", LEARNERS)
def test_goes_through_json(name):
    config = LEARNERS[name](potential_lr=0.125, betas=(0.25, 0.75))
    assert from_json(LearnerChoice, to_json(config)) == config


def _batch():
    return torch.randn(16, 3, generator=torch.Generator().manual_seed(1))


def _state(learner):
    return {f"{n}.{k}": v.clone() for n, m in learner.modules.items() for k, v in m.state_dict().items()}


def _train(learner, steps=3, seed=0):
    rng = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        metrics = learner.update(_batch(), rng)
    return metrics


def test_what_has_an_optimiser_learns_and_nothing_else_does(make, no_global_randomness):
    learner = make()
    assert {"potential", "generator"} <= set(learner.modules)
    before = {n: [p.clone() for p in m.parameters() if p.requires_grad] for n, m in learner.modules.items()}
    _train(learner)
    for name, module in learner.modules.items():
        if name not in learner.optimizers:
            assert all(torch.equal(a, b) for a, b in zip(before[name], module.parameters(), strict=True)), name
            continue
        now = [p for p in module.parameters() if p.requires_grad]
        moved = [not torch.equal(a, b) for a, b in zip(before[name], now, strict=True)]
        # A bias before batch norm has no gradient worth the name; all weights must move.
        assert sum(moved) >= len(moved) - 1, name


def test_same_seed_same_bytes(make):
    one, same, other = make(), make(), make()
    _train(one, seed=0), _train(same, seed=0), _train(other, seed=1)
    a, b, c = _state(one), _state(same), _state(other)
    assert all(torch.equal(a[k], b[k]) for k in a)
    assert any(not torch.equal(a[k], c[k]) for k in a)


def test_metrics_are_finite_scalars_without_graph(make):
    metrics = _train(make())
    for name, value in metrics.items():
        assert value.ndim == 0, name
        assert not value.requires_grad, name
        assert torch.isfinite(value), name


def test_modules_stay_in_training_mode_with_their_gradients(make):
    learner = make()
    trained = {n: [p.requires_grad for p in m.parameters()] for n, m in learner.modules.items()}
    _train(learner)
    for name, module in learner.modules.items():
        assert module.training, name
        assert [p.requires_grad for p in module.parameters()] == trained[name]


def test_nan_in_a_batch_is_named(make):
    batch = _batch()
    batch[3, 1] = float("nan")
    with pytest.raises(NonFiniteError, match="batch has 1 non-finite of 48 values"):
        make().update(batch, torch.Generator().manual_seed(0))


class Broken(SGLD):
    """A sampler whose first coordinate runs away."""

    def move(self, z, delta, size, rng):
        return torch.where(torch.arange(z.shape[1]) == 0, float("inf"), z)


def test_a_sampler_that_runs_away_is_named(make):
    if make.name not in {"inclusive", "cd", "pcd", "replay"}:
        pytest.skip("uses no sampler, or CoopNet's own")
    with pytest.raises(NonFiniteError, match="revised samples has 16 non-finite of 48 values"):
        _train(make(Broken()))


@pytest.fixture
def in_double_precision():
    """So that only a wrong computation, not its rounding, tells replicas from models alone."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("in_double_precision")
def test_replicas_end_where_each_would_have_ended_alone(make):
    seeds = [3, 4, 5]
    alone = [make(seed=seed) for seed in seeds]
    batches = [torch.randn(4, 16, 3, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
    together = as_replicas([make(seed=seed) for seed in seeds])
    rng = streams(seeds, "learner")
    for step in range(4):
        metrics = together.update(torch.cat([b[step] for b in batches]), rng)
    own = []
    for learner, seed, batch in zip(alone, seeds, batches, strict=True):
        generator = stream(seed, "learner")
        own.append([learner.update(batch[step], generator) for step in range(4)][-1])
    for name, module in together.modules.items():
        for i, learner in enumerate(alone):
            state = module.state_dict()
            mine = {"chains": state["chains"].chunk(3)[i]} if "chains" in state else replica_state(state, i)
            for key, value in learner.modules[name].state_dict().items():
                torch.testing.assert_close(mine[key], value, rtol=1e-7, atol=1e-9, msg=f"{name} {key} of {i}")
    for name, value in metrics.items():
        torch.testing.assert_close(value, torch.stack([m[name] for m in own]).mean(), rtol=1e-7, atol=1e-9, msg=name)


def test_replicas_do_not_feel_each_other(make):
    """Another model in the second place leaves the first one as it was, bit by bit."""
    ends = []
    for neighbour in (1, 2):
        learner = as_replicas([make(seed=0), make(seed=neighbour)])
        rng = streams([0, neighbour], "learner")
        for _ in range(3):
            learner.update(torch.cat([_batch(), neighbour * _batch()]), rng)
        ends.append({f"{n}.{k}": v for n, m in learner.modules.items() for k, v in m.state_dict().items()})
    for key, value in ends[0].items():
        first, same = value.chunk(2)[0], ends[1][key].chunk(2)[0]
        assert torch.equal(first, same), key


def test_the_former_name_of_as_replicas_still_works():
    with pytest.warns(DeprecationWarning, match="use nrf.learners.as_replicas"):
        assert nrf.learners.side_by_side is as_replicas
    with pytest.raises(AttributeError, match="no attribute 'side_by'"):
        nrf.learners.side_by  # noqa: B018
