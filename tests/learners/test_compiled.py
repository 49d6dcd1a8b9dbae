"""The compiled revision gives what the steps one by one give; where it cannot be compiled, they are taken."""

from __future__ import annotations

import logging

import pytest
import torch

from nrf.learners import InclusiveConfig, PCDConfig, Revision, as_replicas
from nrf.learners.reviser import Reviser
from nrf.networks import MLPGenerator, MLPPotential, OneClassCNNGenerator, OneClassCNNPotential, Snapshot, stack
from nrf.samplers import BAOAB, HMC, MALA, SGHMC, SGLD, CoopNet
from nrf.seeds import streams


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield
    torch._dynamo.reset()


@pytest.fixture
def no_compiler(monkeypatch):
    def fails(*args, **kwargs):
        def call(*args):
            raise RuntimeError("no C++ compiler found\nand a long story")

        return call

    monkeypatch.setattr(torch, "compile", fails)


def _pair(replicas=1):
    us = [MLPPotential(widths=(8, 8)).build((2,)) for _ in range(replicas)]
    qs = [MLPGenerator(latent_dim=2, widths=(6,), sigma=0.3).build((2,)) for _ in range(replicas)]
    return (us[0], qs[0]) if replicas == 1 else (stack(us), stack(qs))


CASES = {
    "x, SGHMC, cold": (SGHMC(0.05, temperature=0.1), Revision(3, "x"), 1),
    "x, SGLD, no noise, reflected": (SGLD(0.5, temperature=0.0, box=(-0.5, 0.5), box_mode="reflect"), Revision(3), 1),
    "joint, BAOAB": (BAOAB(0.02, latent_step_size=0.01), Revision(3, "joint", n_inner=2), 1),
    "conditional, replicas": (CoopNet(0.02, latent_step_size=0.01, n_x=2, n_h=2), Revision(1, "conditional"), 2),
    "x, SGLD with decay, replicas": (SGLD(0.05, decay=(2.0, 1.0)), Revision(3, "x"), 2),
    "x, MALA, replicas": (MALA(0.5), Revision(4, "x"), 2),
    "x, HMC, reflected": (HMC(0.2, n_leapfrog=2, box=(-1.0, 1.0)), Revision(3, "x"), 1),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_compiled_is_equal(case):
    sampler, revision, replicas = case
    potential, generator = _pair(replicas)
    compiled, plain = (Reviser(potential, generator, sampler, revision) for _ in range(2))
    compiled.compile()
    assert compiled.is_compiled
    x, h = torch.randn(10, 2), torch.randn(10, 2)
    mine, theirs = (streams(list(range(replicas)), "test") for _ in range(2))
    for _ in range(2):  # the second call meets weights that have moved
        ours, want = compiled(x, h, mine), plain(x, h, theirs)
        for a, b in zip(ours, want, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
        assert not torch.equal(ours[0], x)
        torch.testing.assert_close(compiled.diagnostics, plain.diagnostics)
        assert ("acceptance" in compiled.diagnostics) == sampler.adjusted
        with torch.no_grad():
            for p in potential.parameters():
                p.add_(0.1)
    assert compiled.is_compiled, "it fell back to steps one by one"
    assert torch.equal(mine.get_state(), theirs.get_state())


ITERATIONS = {
    "batch statistics, frozen gains, noise": (
        {"statistics": "batch", "sigma": 0.0},
        SGLD(0.05, temperature=0.1),
        Revision(3),
        InclusiveConfig(data_noise=0.1, control_weight=0.1),
        1,
    ),
    "running statistics, control, through the first layer": (
        {"sigma": 0.0},
        SGHMC(0.05, friction=0.7, temperature=0.0),
        Revision(3),
        InclusiveConfig(control_weight=0.3, optimizer="rmsprop"),
        1,
    ),
    "joint, noise of proposals": (
        {"sigma": 0.3},
        SGLD(0.02),
        Revision(2, "joint"),
        InclusiveConfig(control_weight=0.1),
        1,
    ),
    "replicas": ({"sigma": 0.3}, SGLD(0.05), Revision(2), InclusiveConfig(control_weight=0.1), 2),
    "accept and reject": ({"sigma": 0.3}, MALA(0.5), Revision(3), InclusiveConfig(control_weight=0.1), 1),
}


@pytest.mark.parametrize("case", ITERATIONS.values(), ids=ITERATIONS)
def test_a_compiled_iteration_takes_the_same_steps(case):
    settings, sampler, revision, config, replicas = case

    def learner():
        torch.manual_seed(1)
        gains = {"train_gain": "last" if settings.get("statistics") == "batch" else "all"}
        pairs = [
            (
                MLPPotential(widths=(4, 3), **gains).build((5,)),
                MLPGenerator(latent_dim=2, widths=(6,), **settings).build((5,)),
            )
            for _ in range(replicas)
        ]
        for _, q in pairs:  # a bias before a batch norm has no gradient but rounding, of which Adam would make steps
            q.network[0].bias.requires_grad_(False)
        return as_replicas([config.build(*pair, sampler, revision) for pair in pairs])

    ours, plain = learner(), learner()
    first = {f"{n} {k}": v.clone() for n, m in ours.modules.items() for k, v in m.state_dict().items()}
    assert ours.compile()
    mine, theirs = (streams(list(range(replicas)), "test") for _ in range(2))
    for step in range(3):
        batch = torch.randn(8, 5, generator=torch.Generator().manual_seed(step))
        got, want = ours.update(batch, mine), plain.update(batch, theirs)
        assert list(got) == list(want)
        for name in want:
            torch.testing.assert_close(got[name], want[name], rtol=1e-4, atol=1e-5)
    assert ours._whole is not None
    assert ours._whole.works, "it fell back to the parts"
    assert torch.equal(mine.get_state(), theirs.get_state())
    for name, module in plain.modules.items():
        state = ours.modules[name].state_dict()
        for key, value in module.state_dict().items():
            torch.testing.assert_close(state[key], value, rtol=1e-3, atol=1e-4)
        assert any(not torch.equal(value, first[f"{name} {key}"]) for key, value in state.items()), name


def test_a_compiled_iteration_sees_what_changes_between_calls():
    def learner():
        torch.manual_seed(1)
        u = MLPPotential(widths=(4, 3)).build((5,))
        q = MLPGenerator(latent_dim=2, widths=(6,), sigma=0.3, norm="batch").build((5,))
        q.network[0].bias.requires_grad_(False)  # has no gradient but rounding
        return InclusiveConfig(control_weight=0.1).build(u, q, SGLD(0.05), Revision(2))

    ours, plain = learner(), learner()
    assert ours.compile()
    long = torch.randn(5, 12).t()
    mine, theirs = (streams([0], "test") for _ in range(2))
    for batch, training in ((torch.randn(8, 5), True), (long, True), (long[:8], True), (torch.randn(8, 5), False)):
        for one in (ours, plain):
            one.generator.train(training)
        got, want = ours.update(batch, mine), plain.update(batch, theirs)
        for name in want:
            torch.testing.assert_close(got[name], want[name], rtol=1e-4, atol=1e-5)
    assert ours._whole.works
    assert len(ours._whole._compiled) == 3  # a strided batch of eight is no case of its own


def test_the_compiler_does_not_tire_of_many_models(monkeypatch):
    seen = []

    def backend(graph, inputs):
        seen.append(graph)
        return graph

    compile_with = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, **_: compile_with(f, backend=backend, dynamic=False))
    x, h = torch.randn(10, 2), torch.randn(10, 2)
    with torch._dynamo.config.patch(recompile_limit=2):  # a monkeypatch would leave the setting deleted
        for n in range(1, 5):
            reviser = Reviser(*_pair(), SGLD(0.05), Revision(1))
            reviser.compile()
            reviser(x, h, streams([0], "test"))
            assert len(seen) == n


def test_an_iteration_that_cannot_be_compiled_is_computed_part_by_part(no_compiler, caplog):
    torch.manual_seed(1)
    ours = InclusiveConfig().build(*_pair(), SGLD(0.05), Revision(2))
    torch.manual_seed(1)
    plain = InclusiveConfig().build(*_pair(), SGLD(0.05), Revision(2))
    assert ours.compile()
    batch = torch.randn(8, 2)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            got, want = (learner.update(batch, streams([0], "test")) for learner in (ours, plain))
    assert {k: float(v) for k, v in got.items()} == {k: float(v) for k, v in want.items()}
    assert len(caplog.records) == 2  # the iteration's and the revision's, once each


def test_shorter_steps_are_compiled_anew():
    learner = InclusiveConfig().build(*_pair(), SGLD(0.05), Revision(2))
    learner.compile()
    learner.shorten_steps(0.5)
    assert learner._whole.sampler.step_size == 0.025


def test_learners_compile_what_can_be_compiled():
    u, q = _pair()
    assert InclusiveConfig().build(u, q, SGLD(), Revision(2)).compile()
    assert PCDConfig().build(u, q, SGLD(), Revision(2)).compile()
    together = as_replicas([InclusiveConfig().build(*_pair(), SGLD(), Revision(2)) for _ in range(2)])
    assert together.compile()
    own_statistics = MLPGenerator(latent_dim=2, widths=(6,), sigma=0.3, statistics="batch").build((2,))
    assert not InclusiveConfig().build(u, own_statistics, SGLD(), Revision(2, "joint")).compile()
    assert InclusiveConfig().build(u, own_statistics, SGLD(), Revision(2, "x")).compile()
    images = OneClassCNNPotential().build((3, 32, 32)), OneClassCNNGenerator().build((3, 32, 32))
    assert not InclusiveConfig().build(*images, SGLD(), Revision(2)).compile()


def test_without_a_compiler_the_steps_are_taken_one_by_one(no_compiler, caplog):
    u, q = _pair()
    reviser, plain = (Reviser(u, q, SGLD(0.05), Revision(3)) for _ in range(2))
    reviser.compile()
    x, h = torch.randn(10, 2), torch.randn(10, 2)
    with caplog.at_level(logging.WARNING):
        got = reviser(x, h, streams([0], "test"))
    assert torch.equal(got[0], plain(x, h, streams([0], "test"))[0])
    assert not reviser.is_compiled
    assert [r.message for r in caplog.records] == [
        "the revision is not compiled (no C++ compiler found); its steps are taken one by one"
    ]


@pytest.mark.parametrize("norm", ["weight", "spectral", "none"])
@pytest.mark.parametrize("replicas", [1, 2])
def test_a_snapshot_follows_on_request_and_changes_nothing(norm, replicas):
    nets = [MLPPotential(widths=(4, 3), norm=norm).build((2,)) for _ in range(replicas)]
    u = nets[0] if replicas == 1 else stack(nets)
    state = {k: v.clone() for k, v in u.state_dict().items()}
    snapshot, x = Snapshot(u), torch.randn(6, 2)
    snapshot.refresh()
    assert all(torch.equal(state[k], v) for k, v in u.state_dict().items())
    assert all(m.training for m in u.modules())
    assert not any(p.requires_grad for p in snapshot.copy.parameters())
    before = snapshot.copy(x)
    torch.testing.assert_close(before, u.eval()(x))
    with torch.no_grad():
        for p in u.parameters():
            p.mul_(0.5)
    assert torch.equal(snapshot.copy(x), before)
    snapshot.refresh()
    torch.testing.assert_close(snapshot.copy(x), u(x))
