"""Revisions against the arithmetic they are made of, and iterations against a plain loop."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from nrf.learners.base import SamplingLearner
from nrf.learners.inclusive import Inclusive, likelihood_step
from nrf.networks import Shape
from nrf.reproduce.runner.record import Row
from nrf.runs.presets import find_preset
from nrf.runs.spec import Preset
from nrf.seeds import stream, streams
from nrf.training.batches import Batches
from nrf.training.trainer import COMPILE_FROM
from speed.machine import bare_gradient, convolution_peak, gemm_peak, operations
from speed.reference import plain_iteration
from speed.timing import Block, Effort, Times, in_turn, threads

CASES: dict[str, tuple[str, Shape, int]] = {
    "GMM": ("gmm-released", (2,), 1600),
    "KDDCUP": ("kddcup-sghmc-released", (121,), 198_000),
    "MNIST": ("mnist-sghmc-released", (1, 28, 28), 6000),
    "CIFAR-10": ("cifar10-one-class-sghmc-released", (3, 32, 32), 5000),
}
"""Potentials by the data they are for: a preset, the shape of an event, and about how many are trained on, on which it
hangs whether a run is compiled. Values are drawn: speed is the same."""
ROWS = 4096
REPLICAS = 10


def peaks(effort: Effort) -> Iterator[Row]:
    """What the machine reaches in this run."""
    for n in sorted({1, os.cpu_count() or 1}):
        with threads(n):
            case = f"{n} thread" + "s" * (n > 1)
            yield Row("large matrix product", "GFLOP/s", gemm_peak(effort) / 1e9, case=case)
            yield Row("convolution", "GFLOP/s", convolution_peak(effort) / 1e9, case=case)


def revisions(effort: Effort) -> Iterator[Row]:
    """Each potential's revision, as training runs it, against the bare products and convolutions of its gradients."""
    for case, (name, shape, n_rows) in CASES.items():
        preset = find_preset(name)
        with threads(_threads(preset)):
            learner, _ = _learner(preset, shape, n_rows)
            n_steps = preset.revision.n_steps
            rng = stream(0, "bench")
            x, h = (t.detach() for t in learner.generator.propose(preset.train.batch_size, rng))
            bare = bare_gradient(learner.potential, x)
            blocks: dict[str, Block] = {
                "bare": lambda bare=bare, n=n_steps: [bare() for _ in range(n)],  # type: ignore[misc]
                "ours": lambda learner=learner, x=x, h=h, rng=rng: learner.revise(x, h, rng),  # type: ignore[misc]
            }
            times = in_turn(blocks, effort)
            conv = case == "CIFAR-10"
            peak = convolution_peak(effort) if conv else gemm_peak(effort)
        rate = n_steps * bare.operations / times.seconds("ours")
        yield Row("revision", "GFLOP/s", rate / 1e9, preset=name, case=case)
        yield Row("revision", "share of the machine's peak", rate / peak, preset=name, case=case)
        share, sd = times.ratio("bare", "ours"), times.spread("bare", "ours")
        yield Row("revision", "share of the bare arithmetic's speed", share, sd, times.n, name, case)


def iterations(effort: Effort) -> Iterator[Row]:
    """Iterations of training, as the trainer runs them, against a plain loop, each at its better number of threads."""
    counts = sorted({1, os.cpu_count() or 1})
    for case, (name, shape, n_rows) in CASES.items():
        preset = find_preset(name)
        models = {"ours": 1} | ({"replicas": REPLICAS} if case == "GMM" else {})
        blocks: dict[str, Block] = {}
        for n in counts:
            for method, replicas in models.items():
                sized = replace(preset, replicas=replicas)
                with threads(n):
                    learner, data = _learner(sized, shape, n_rows)
                blocks[f"{method} {n}"] = _with_threads(_iteration(learner, sized, data), n)
            blocks[f"plain {n}"] = _with_threads(plain_iteration(preset, data), n)
        times = in_turn(blocks, effort)
        plain = _fastest("plain", counts, times)
        for method, replicas in models.items():
            ours = _fastest(method, counts, times)
            faster, sd = times.ratio(plain, ours) * replicas, times.spread(plain, ours) * replicas
            named = "iteration" if replicas == 1 else f"iteration of {replicas} replicas, per model"
            yield Row(named, "times faster than the plain loop", faster, sd, times.n, name, case)
            yield Row(named, "milliseconds", 1000 * times.seconds(ours) / replicas, preset=name, case=case)


def parts(effort: Effort) -> Iterator[Row]:
    """Where the time of an iteration goes: its parts, each by itself, at the preset's number of threads.

    A compiled iteration is one function and may take less than its parts.
    """
    for case, (name, shape, n_rows) in CASES.items():
        preset = find_preset(name)
        with threads(_threads(preset)):
            learner, data = _learner(preset, shape, n_rows)
            assert isinstance(learner, Inclusive)
            times = in_turn(_blocks(learner, preset, data), effort)
            work = operations(_iteration(_learner(preset, shape, 0)[0], preset, data))
        for part in times.rounds:
            yield Row(part, "milliseconds", 1000 * times.seconds(part), preset=name, case=case)
        rate = work / times.seconds("whole iteration")
        yield Row("whole iteration", "GFLOP/s of products and convolutions", rate / 1e9, preset=name, case=case)


def _blocks(learner: Inclusive, preset: Preset, data: Tensor) -> dict[str, Block]:
    size, weight, rng = preset.train.batch_size, learner.config.control_weight, stream(0, "bench")
    batch = data[:size]
    proposal = learner.propose(size, rng)
    x, h = proposal.x, proposal.h
    return {
        "whole iteration": _iteration(learner, preset, data),
        "proposal": lambda: learner.propose(size, rng),
        "revision": lambda: learner.revised(proposal, rng),
        "step of the potential": lambda: likelihood_step(learner, batch, x, weight),
        "step of the generator": lambda: learner.step_generator(learner.propose(size, rng), x, h, rng),
    }


def _fastest(method: str, counts: list[int], times: Times) -> str:
    return min((f"{method} {n}" for n in counts), key=times.seconds)


def _threads(preset: Preset) -> int:
    return preset.train.threads or os.cpu_count() or 1


def _learner(preset: Preset, shape: Shape, n_rows: int) -> tuple[SamplingLearner, Tensor]:
    """The preset's learner on drawn rows, compiled where its trainer would."""
    data = torch.rand((ROWS, *shape), generator=stream(0, "bench rows"))
    learner = preset.build(data, preset.seeds)
    assert isinstance(learner, SamplingLearner)
    if preset.train.length(n_rows // preset.train.batch_size) >= COMPILE_FROM:
        learner.compile()
    return learner, data


def _iteration(learner: SamplingLearner, preset: Preset, data: Tensor) -> Callable[[], None]:
    batches, rng, step = Batches(data, preset.train.batch_size, preset.seeds), streams(preset.seeds, "learner"), [0]

    def iterate() -> None:
        learner.update(batches.at(step[0]), rng)
        step[0] += 1

    return iterate


def _with_threads(block: Block, n: int) -> Block:
    def run() -> None:
        torch.set_num_threads(n)
        block()

    return run
