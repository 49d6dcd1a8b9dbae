"""The one training loop: data order, metrics, checkpoints, resume.

A run is a function of its seed, its data and its configuration. Killed at any moment and resumed from its newest
checkpoint, it ends with the same bits as one that was never interrupted.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from nrf.errors import CheckpointError, InputError, NonFiniteError
from nrf.learners.base import Learner
from nrf.seeds import streams
from nrf.training import checkpoint as ckpt
from nrf.training.batches import Batches
from nrf.training.folder import RunFolder
from nrf.training.health import require_finite_state
from nrf.training.progress import ProgressBar

COMPILE_FROM = 10_000
"""Iterations from which compiling the revision pays: it costs ten to thirty seconds and wins milliseconds."""


@dataclass(frozen=True)
class TrainConfig:
    """Length, batches and bookkeeping of a run."""

    batch_size: int = 100
    """Rows a batch."""
    iterations: int | None = None
    """Length of the run in iterations; give this or epochs."""
    epochs: int | None = None
    """Length of the run in epochs; give this or iterations."""
    lr_final: float = 1.0
    """Share of the learning rates that is left at the end of the run; they fall in a straight line."""
    log_every: int = 100
    """Iterations between two lines of metrics."""
    checkpoint_every: int = 1000
    """Iterations between two checkpoints: what a kill can cost."""
    keep: int = 2
    """Newest checkpoints that are kept."""
    ema_decay: float | None = None
    """Decay of averaged weights of both networks, kept beside the last ones; none if not given."""
    threads: int | None = None
    """Threads of the linear algebra; tiny networks are fastest with 1. All cores if not given."""
    compile: Literal["auto", "always", "never"] = "auto"
    """Compile the revision: where the run is long enough to win the compiler's time back, always, or never."""

    def __post_init__(self) -> None:
        if (self.iterations is None) == (self.epochs is None):
            raise InputError("give the length of training as iterations or as epochs, and None for the other")
        for name in (
            "batch_size",
            "iterations",
            "epochs",
            "log_every",
            "checkpoint_every",
            "keep",
            "threads",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} must be at least 1, got {value}")
        if self.ema_decay is not None and not 0 < self.ema_decay < 1:
            raise InputError(f"ema_decay must lie between 0 and 1, got {self.ema_decay}")
        if not 0 <= self.lr_final <= 1:
            raise InputError(f"lr_final must lie between 0 and 1, got {self.lr_final}")

    def length(self, batches_per_epoch: int) -> int:
        """The run's length in iterations."""
        if self.iterations is not None:
            return self.iterations
        assert self.epochs is not None
        return self.epochs * batches_per_epoch


class Trainer:
    """Runs a learner over data.

    Args:
        learner: Freshly built; resuming overwrites its state.
        data: Training rows on the learner's device.
        config: Length and bookkeeping.
        seeds: Seed of the data order and of the learner's randomness: one, or one a replica.
        folder: Where the run lives; without one nothing is written.
        description: Stored in each checkpoint: what it takes to build the models again.
    """

    def __init__(
        self,
        learner: Learner,
        data: Tensor,
        config: TrainConfig,
        seeds: Sequence[int],
        folder: RunFolder | None = None,
        description: Mapping[str, Any] | None = None,
    ) -> None:
        self.learner, self.config, self.folder, self.description = learner, config, folder, description or {}
        self.batches = Batches(data, config.batch_size, seeds)
        self.total = config.length(self.batches.per_epoch)
        self.rng = streams(seeds, "learner", device=data.device)
        self.averages = _averages(learner.modules, config.ema_decay)
        self._first_rates = {name: [g["lr"] for g in opt.param_groups] for name, opt in learner.optimizers.items()}
        self.step = 0
        self._seconds = 0.0
        self._sums: dict[str, float] = {}
        self._count = 0
        self._fingerprint = self.batches.fingerprint()
        self._last_good: Path | None = None
        # By the settings alone: a run that is taken up again must not change its arithmetic.
        if config.compile == "always" or (config.compile == "auto" and self.total >= COMPILE_FROM):
            learner.compile()

    @property
    def seconds(self) -> float:
        """Time spent on iterations, over all sittings."""
        return self._seconds

    def resume(self) -> bool:
        """Take up the newest checkpoint; False if there is none yet."""
        folder = self._folder()
        path = folder.latest()
        if path is None:
            folder.rewind_metrics(0)
            return False
        stored = ckpt.read(path)
        self._require_same_data(stored, path)
        for name, module in self.learner.modules.items():
            ckpt.load_module(module, stored, f"module/{name}", path)
        for name, optimizer in self.learner.optimizers.items():
            ckpt.load_optimizer(optimizer, stored, name, path)
        for name, average in self.averages.items():
            ckpt.load_module(average, stored, f"averaged/{name}", path)
        self.rng.set_state(stored.tensors["rng/learner"])
        self.step = stored.meta["step"]
        self._seconds = stored.meta["seconds"]
        self._sums, self._count = dict(stored.meta["sums"]), stored.meta["count"]
        self._last_good = path
        folder.rewind_metrics(self.step)
        return True

    def fit(
        self,
        *,
        quiet: bool = False,
        label: str = "training",
        on_log: Callable[[Trainer, Mapping[str, float]], object] | None = None,
    ) -> bool:
        """Train to the end; False if a signal asked to stop, after writing a checkpoint, or if ``on_log`` said True."""
        with (
            _graceful_stop(self.folder is not None) as stop_requested,
            ProgressBar(label, self.total, self.step, quiet=quiet) as bar,
        ):
            enough = False
            while self.step < self.total:
                started = time.perf_counter()
                self._iterate()
                self._seconds += time.perf_counter() - started
                bar.advance()
                if self.step % self.config.log_every == 0 or self.step == self.total:
                    row = self._log()
                    bar.show({k: row[k] for k in list(row)[3:6]})
                    enough = on_log is not None and on_log(self, row) is True
                stop = stop_requested() or enough
                due = stop or self.step % self.config.checkpoint_every == 0 or self.step == self.total
                if due and self.folder is not None:
                    self.save()
                if stop and self.step < self.total:
                    return False
        return True

    def save(self) -> Path:
        """Write a checkpoint of this moment, unless the state is not sound."""
        try:
            require_finite_state(self.learner.modules)
        except NonFiniteError as error:
            raise self._stopped(error, self.step) from error
        tensors, groups = ckpt.pack(self.learner.modules, self.learner.optimizers, self.averages)
        tensors["rng/learner"] = self.rng.get_state()
        epoch, cursor = self.batches.position(self.step)
        meta = {
            **self.description,
            "step": self.step,
            "seconds": self._seconds,
            "sums": self._sums,
            "count": self._count,
            "optimizers": groups,
            "averaged": sorted(self.averages),
            "order": {
                "epoch": epoch,
                "cursor": cursor,
                "rows": len(self.batches.data),
                "batch_size": self.batches.batch_size,
                "fingerprint": self._fingerprint,
            },
        }
        folder = self._folder()
        path = folder.checkpoint_path(self.step)
        ckpt.write(path, ckpt.Checkpoint(tensors, meta))
        self._last_good = path
        folder.prune(self.config.keep)
        return path

    def _folder(self) -> RunFolder:
        if self.folder is None:
            raise InputError("this run has no folder to keep checkpoints in")
        return self.folder

    def _iterate(self) -> None:
        if self.config.lr_final < 1:
            self._set_rates(1 - (1 - self.config.lr_final) * self.step / self.total)
        try:
            metrics = self.learner.update(self.batches.at(self.step), self.rng)
        except NonFiniteError as error:
            raise self._stopped(error, self.step + 1) from error
        self.step += 1
        for name, average in self.averages.items():
            average.update_parameters(self.learner.modules[name])
        for name, value in metrics.items():
            self._sums[name] = self._sums.get(name, 0.0) + float(value)
        self._count += 1

    def _set_rates(self, share: float) -> None:
        for name, optimizer in self.learner.optimizers.items():
            for group, rate in zip(optimizer.param_groups, self._first_rates[name], strict=True):
                group["lr"] = share * rate

    def _log(self) -> dict[str, Any]:
        """One line: the means since the line before."""
        means = {name: value / self._count for name, value in self._sums.items()}
        epoch, _ = self.batches.position(self.step)
        row = {"step": self.step, "epoch": epoch, "seconds": round(self._seconds, 3), **means}
        if self.folder is not None:
            self.folder.append_metrics(row)
        self._sums, self._count = {}, 0
        return row

    def _stopped(self, error: NonFiniteError, step: int) -> NonFiniteError:
        last = self._last_good or "none was written yet"
        return NonFiniteError(f"training stopped at step {step}: {error}; last good checkpoint: {last}")

    def _require_same_data(self, stored: ckpt.Checkpoint, path: Path) -> None:
        order = stored.meta.get("order", {})
        if order.get("fingerprint") != self._fingerprint:
            raise CheckpointError(
                f"{path}: trained on other data ({order.get('rows')} rows, not the same as these "
                f"{len(self.batches.data)}); resume with the data the run was started on"
            )
        if order.get("batch_size") != self.batches.batch_size:
            raise InputError(f"{path}: batch size {order.get('batch_size')}, now {self.batches.batch_size}")
        if bool(self.averages) != bool(stored.meta["averaged"]):
            raise InputError(
                f"{path}: averaged weights were {'kept' if stored.meta['averaged'] else 'not kept'} before"
            )


def _averages(modules: Mapping[str, nn.Module], decay: float | None) -> dict[str, AveragedModel]:
    if decay is None:
        return {}
    average = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
    # A module without parameters is a learner's memory, not something to average.
    learned = {name: module for name, module in modules.items() if any(True for _ in module.parameters())}
    return {name: AveragedModel(module, multi_avg_fn=average) for name, module in learned.items()}


@contextmanager
def _graceful_stop(wanted: bool) -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C or SIGTERM into a wish to stop after this iteration; a second one is obeyed at once.

    Where nothing can be kept, or signals are another thread's, they do what they always do.
    """
    asked = threading.Event()
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return
    previous = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}

    def ask(number: int, frame: object) -> None:
        asked.set()
        signal.signal(number, previous[signal.Signals(number)])

    for s in previous:
        signal.signal(s, ask)
    try:
        yield asked.is_set
    finally:
        for s, handler in previous.items():
            signal.signal(s, handler)


def use_threads(threads: int | None) -> None:
    """Set the number of threads for the whole process; part of what makes results repeat bit by bit."""
    if threads is not None:
        torch.set_num_threads(threads)
