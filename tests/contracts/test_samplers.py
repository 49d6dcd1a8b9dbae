"""One contract for every registered sampler."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from nrf.config import from_json, to_json
from nrf.errors import InputError
from nrf.runs.spec import SamplerChoice
from nrf.samplers import SAMPLERS, run


class Quadratic:
    """−‖x‖²/2 − ‖h‖²: gradient by block or whole, and log-density."""

    exact = True

    def __call__(self, position, l):
        return tuple(self.block(position, l, i) for i in range(len(position)))

    def block(self, position, l, index):
        return -(1 + index) * position[index]

    def value_and_gradient(self, position):
        grad = self(position, 0)
        return sum((z * g).sum(1) / 2 for z, g in zip(position, grad, strict=True)), grad


@pytest.fixture(params=SAMPLERS, ids=str)
def kind(request):
    return SAMPLERS[request.param]


@pytest.fixture
def start():
    draw = torch.Generator().manual_seed(0)
    return tuple(torch.randn(7, d, generator=draw) for d in (3, 2))


def _run(sampler, start, seed=0, n_steps=4):
    return run(sampler, start, Quadratic(), n_steps, torch.Generator().manual_seed(seed))


def test_frozen_and_documented(kind):
    sampler = kind()
    with pytest.raises(dataclasses.FrozenInstanceError):
        sampler.step_size = 1.0
    assert kind.__doc__


def test_goes_through_json(kind):
    sampler = kind(step_size=0.125, decay=(10.0, 0.5), box=(-1.0, 2.0), box_mode="reflect", latent_step_size=0.5)
    assert from_json(SamplerChoice, to_json(sampler)) == sampler


def test_pure(kind, start, no_global_randomness):
    copies = tuple(z.clone() for z in start)
    chain = _run(kind(), start)
    assert all(torch.equal(z, c) for z, c in zip(start, copies, strict=True))
    assert [z.shape for z in chain.position] == [z.shape for z in start]
    assert not any(z.requires_grad for z in chain.position)


def test_same_seed_same_bytes_other_seed_other_bytes(kind, start):
    one, same, other = (_run(kind(), start, seed) for seed in (1, 1, 2))
    for a, b, c in zip(one.position, same.position, other.position, strict=True):
        assert torch.equal(a, b)
        assert not torch.equal(a, c)


def test_cold_chains_draw_nothing_and_climb(kind, start):
    rng = torch.Generator().manual_seed(0)
    before = rng.get_state()
    chain = run(kind(temperature=0.0), start, Quadratic(), 4, rng)
    assert torch.equal(rng.get_state(), before)
    for new, old in zip(chain.position, start, strict=True):
        assert new.norm() < old.norm()


def test_noise_grows_with_temperature(kind):
    start = tuple(torch.zeros(4000, 1) for _ in range(2))
    warm, hot = (_run(kind(temperature=t), start) for t in (1.0, 4.0))
    for a, b in zip(warm.position, hot.position, strict=True):
        assert b.std() / a.std() == pytest.approx(2.0, rel=0.08)


@pytest.mark.parametrize("mode", ["clip", "reflect"])
def test_box_holds_x_and_leaves_h(kind, start, mode):
    if kind.adjusted and mode == "clip":
        with pytest.raises(InputError, match="set box_mode to reflect"):
            kind(box=(-0.1, 0.1), box_mode=mode)
        return
    chain = _run(kind(step_size=0.5, box=(-0.1, 0.1), box_mode=mode), start)
    x, h = chain.position
    assert x.abs().max() <= 0.1 + 1e-6
    assert h.abs().max() > 0.1


def test_latent_step_size_moves_h_only(kind, start):
    near, far = (_run(kind(temperature=0.0, latent_step_size=size), start) for size in (1e-4, 1e-3))
    assert torch.equal(near.position[0], far.position[0])
    assert (far.position[1] - start[1]).norm() > 5 * (near.position[1] - start[1]).norm()


def test_decay_shortens_later_steps(kind, start):
    constant, decaying = (_run(kind(temperature=0.0, decay=d), start) for d in (None, (1.0, 2.0)))
    for c, d, z in zip(constant.position, decaying.position, start, strict=True):
        assert 0 < (d - z).norm() < (c - z).norm()


def test_a_chain_of_another_sampler_is_refused(kind, start):
    """A state is its sampler's own: none takes another's for it, or silently does without one."""

    class Foreign:
        pass

    sampler = kind()
    if sampler.init(start).state is None:
        pytest.skip("has no state")
    for state in (None, Foreign()):
        chain = sampler.init(start)._replace(state=state)
        with pytest.raises(InputError, match=r"start it with init\(\)"):
            sampler.step(chain, Quadratic(), 0, torch.Generator())


def test_an_adjusted_sampler_asks_for_a_log_density_and_tells_its_acceptance(kind, start):
    sampler = kind()
    chain = _run(sampler, start)
    found = {name: value.item() for name, value in sampler.diagnostics(chain).items()}
    assert all(math.isfinite(value) for value in found.values())
    if not sampler.adjusted:
        assert "acceptance" not in found
        return
    assert 0 < found["acceptance"] <= 1
    with pytest.raises(InputError, match="value_and_gradient"):
        run(sampler, start, lambda position, l: Quadratic()(position, l), 1, torch.Generator())


def test_steps_make_a_run(kind, start):
    sampler, rng = kind(), torch.Generator().manual_seed(3)
    chain = sampler.init(start)
    for l in range(4):
        chain = sampler.step(chain, Quadratic(), l, rng)
    seen = []
    whole = run(sampler, start, Quadratic(), 4, torch.Generator().manual_seed(3), trace=lambda l, c: seen.append(l))
    assert seen == [0, 1, 2, 3]
    assert all(torch.equal(a, b) for a, b in zip(chain.position, whole.position, strict=True))
