"""What an iteration of image generation costs: its arithmetic, its time, and the field's beside a GAN's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from nrf.learners import Learner, SNGANConfig
from nrf.reproduce.runner.record import Row
from nrf.runs.presets import find_preset
from nrf.runs.spec import Preset
from nrf.seeds import stream
from speed.machine import operations
from speed.timing import QUICK, Block, Effort, in_turn

CASES = {"cifar10-cnn": 64, "cifar10-cnn-released": 64, "cifar10-resnet": 8, "cifar10-resnet-released": 8}
"""Presets, and images of a batch: the residual pair with fewer, for its time is what many of them multiply."""
QUICK_WIDTH = 4
SHAPE = (3, 32, 32)


def generation(effort: Effort) -> Iterator[Row]:
    """Inclusive-NRF and SNGAN on the same networks: arithmetic of an image, time of an iteration, and their ratio."""
    for name, batch in CASES.items():
        preset = _sized(find_preset(name), batch, quick=effort is QUICK)
        methods = {"inclusive-NRF": preset, "SNGAN": _adversarial(preset)}
        data = 2 * torch.rand((batch, *SHAPE), generator=stream(0, "bench rows")) - 1
        learners = {method: sized.build(data, sized.seeds) for method, sized in methods.items()}
        blocks: dict[str, Block] = {method: _iteration(learner, data) for method, learner in learners.items()}
        case = f"{name}, batches of {batch}"
        for method, block in blocks.items():
            yield Row(method, "GFLOP an image", operations(block) / batch / 1e9, preset=name, case=case)
        times = in_turn(blocks, effort)
        for method in blocks:
            yield Row(method, "seconds an iteration", times.seconds(method), preset=name, case=case)
        ratio, sd = times.ratio("inclusive-NRF", "SNGAN"), times.spread("inclusive-NRF", "SNGAN")
        yield Row("inclusive-NRF", "times SNGAN's iteration", ratio, sd, times.n, name, case)


def _sized(preset: Preset, batch: int, *, quick: bool) -> Preset:
    preset = replace(preset, train=replace(preset.train, batch_size=batch, channels_last=True))
    if not quick:
        return preset
    pair: tuple[Any, Any] = preset.potential, preset.generator
    potential, generator = (replace(network, width=QUICK_WIDTH) for network in pair)
    return replace(preset, potential=potential, generator=generator)


def _adversarial(preset: Preset) -> Preset:
    learner = SNGANConfig(betas=(0.0, 0.9), potential_lr=2e-4, generator_lr=2e-4)
    return replace(preset, learner=learner, generator=replace(preset.generator, sigma=0.0))


def _iteration(learner: Learner, data: Tensor) -> Block:
    for module in learner.modules.values():
        module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    batch, rng = data.contiguous(memory_format=torch.channels_last), stream(0, "bench")
    return lambda: learner.update(batch, rng)
