"""One model looked at after every epoch, and which of its epochs a column reports."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nrf.data import Splits
from nrf.detect.selection import synthetic_anomalies, synthetic_images
from nrf.errors import InputError
from nrf.files import read_json, write_atomically
from nrf.metrics import auroc
from nrf.models import frozen
from nrf.reproduce.runner.experiment import NEVER, Deadline
from nrf.runs.spec import Preset
from nrf.runs.train import train
from nrf.training import Trainer
from nrf.training.batches import MOST_WATCHED

Curve = list[dict[str, float]]
"""Numbers of a model after each epoch: those logged, and metrics by the weights they are of."""
Numbers = Callable[[nn.Module, Tensor], Mapping[str, float]]
"""From a potential and the watched rows to metrics; ``synthetic AUROC`` among them."""

COLUMNS = ("last", "selected", "oracle")
LAST, AVERAGED = "last weights", "averaged weights"
CHUNK = 8192


def train_to_the_end(
    name: str,
    preset: Preset,
    out: Path,
    deadline: Deadline = NEVER,
    *,
    splits: Splits | None = None,
    look: Callable[[Trainer, Mapping[str, float]], object] | None = None,
    quiet: bool = True,
) -> Trainer:
    """Train, or go on with it; a run that stops before its end, by time or on request, ends the cell.

    Args:
        name: For the record.
        preset: What to train.
        out: Run folder.
        deadline: When to stop, with a checkpoint.
        splits: The data; those of the preset if not given.
        look: Called with each line of metrics.
        quiet: No progress bar.
    """

    def on_log(trainer: Trainer, row: Mapping[str, float]) -> bool:
        if look is not None:
            look(trainer, row)
        return deadline.passed()

    trainer = train(name, preset, out, resume=True, quiet=quiet, splits=splits, on_log=on_log)
    if trainer.step < trainer.total:
        deadline.end()
    return trainer


def train_and_watch(
    name: str, preset: Preset, splits: Splits, out: Path, numbers: Numbers, deadline: Deadline = NEVER
) -> Curve:
    """Train, or go on with it; numbers of the model as it was after every epoch.

    Args:
        name: For the record.
        preset: With a share of rows to watch.
        splits: Its data.
        out: Run folder; the curve so far lies there, too.
        numbers: What to measure.
        deadline: When to stop.
    """
    curve_path = out / "curve.json"
    per_epoch = _batches(preset, len(splits.train))
    preset = replace(preset, train=replace(preset.train, log_every=per_epoch, checkpoint_every=per_epoch))
    curve: Curve = read_curve(curve_path)

    def look(trainer: Trainer, row: Mapping[str, float]) -> None:
        assert trainer.health is not None
        del curve[trainer.step // per_epoch - 1 :]
        kept = {name: float(value) for name, value in row.items() if name != "seconds"}
        for weights, potential in _potentials(trainer).items():
            kept |= {f"{weights}: {key}": value for key, value in numbers(potential, trainer.health.watched).items()}
        curve.append(kept)
        write_atomically(curve_path, json.dumps(curve).encode())

    train_to_the_end(name, preset, out, deadline, splits=splits, look=look)
    return curve


def read_curve(path: Path) -> list[dict[str, Any]]:
    """The points of a run so far, none if it has not begun."""
    if not path.is_file():
        return []
    remedy = f"delete the folder {path.parent} and run again"
    points = read_json(path, remedy)
    if not isinstance(points, list) or not all(isinstance(point, dict) for point in points):
        raise InputError(f"{path}: damaged (not a list of points); {remedy}")
    return points


def weights_of(curve: Sequence[Mapping[str, float]]) -> str:
    """Which weights a user of this run gets: averaged ones where they are kept."""
    return AVERAGED if any(key.startswith(AVERAGED) for key in curve[-1]) else LAST


def values_of(curve: Sequence[Mapping[str, float]], metric: str) -> list[float]:
    """A metric of the weights that a user gets, by epoch."""
    weights = weights_of(curve)
    return [point[f"{weights}: {metric}"] for point in curve]


def chosen(curve: Sequence[Mapping[str, float]], column: str, metric: str) -> int:
    """The epoch that a column reports, counted from 0.

    ``selected`` is the epoch after which watched rows were separated best from synthetic anomalies, ``oracle`` the one
    with the best metric on test rows.
    """
    if column == "last":
        return len(curve) - 1
    return int(np.argmax(values_of(curve, "synthetic AUROC" if column == "selected" else metric)))


def potential_of(potential: nn.Module, rows: NDArray[np.float32] | Tensor, chunk: int = CHUNK) -> NDArray[np.float32]:
    """The potential of each row."""
    with torch.no_grad(), frozen(potential):
        parts = [potential(part) for part in torch.split(torch.as_tensor(rows), chunk)]
    return torch.cat(parts).numpy()


def synthetic(potential: nn.Module, watched: Tensor, chunk: int = CHUNK) -> float:
    """Mean AUROC of watched rows, or images, against anomalies made of them."""
    kinds = synthetic_images if watched.ndim == 4 else synthetic_anomalies
    normal, truth = potential_of(potential, watched, chunk), np.repeat([0, 1], len(watched))
    made = [potential_of(potential, rows, chunk) for rows in kinds(watched).values()]
    return float(np.mean([auroc(np.concatenate([normal, scores]), truth) for scores in made]))


def _potentials(trainer: Trainer) -> dict[str, nn.Module]:
    found = {LAST: trainer.learner.modules["potential"]}
    if trainer.averages:
        found[AVERAGED] = trainer.averaged()["potential"]
    return found


def _batches(preset: Preset, n: int) -> int:
    watched = min(MOST_WATCHED, round(preset.train.watch_share * n))
    return (n - watched) // min(preset.train.batch_size, n - watched)
