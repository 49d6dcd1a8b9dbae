"""The one training loop: data order, metrics, checkpoints, resume.

A run is a function of its seed, its data and its configuration. Killed at any moment and resumed from its newest
checkpoint, it ends with the same bits as one that was never interrupted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from nrf.errors import CheckpointError, InputError, NonFiniteError
from nrf.learners.base import Learner, SamplingLearner
from nrf.ranks import ALONE, Ranks
from nrf.seeds import Seeded, Shard, streams
from nrf.training import checkpoint as ckpt
from nrf.training.augment import augmented
from nrf.training.averages import averages_of, take_statistics
from nrf.training.batches import Batches, set_aside
from nrf.training.folder import RunFolder
from nrf.training.health import SETTLED, Health, complaint, require_finite_state, training_gap
from nrf.training.process import graceful_stop
from nrf.training.progress import ProgressBar

log = logging.getLogger(__name__)

MOST_ROLLBACKS = 5
"""Rollbacks after which a run is given up; each halves the sampler's step and the learning rates."""
COMPILE_FROM = 5000
"""Fewest iterations for which compiling the revision pays: it costs ten to thirty seconds and saves milliseconds."""


@dataclass(frozen=True)
class TrainConfig:
    """Length, batches and bookkeeping of a run."""

    batch_size: int = 100
    """Rows per batch."""
    iterations: int | None = None
    """Length of the run in iterations, 0 to leave the networks untrained; give this or epochs."""
    epochs: int | None = None
    """Length of the run in epochs; give this or iterations."""
    lr_final: float = 1.0
    """Share of the learning rates that is left at the end of the run; they fall in a straight line."""
    log_every: int = 100
    """Iterations between two lines of metrics."""
    checkpoint_every: int = 1000
    """Iterations between two checkpoints; a kill loses at most so many."""
    keep: int = 2
    """Number of checkpoints to keep, the newest ones."""
    ema_decay: float | None = None
    """Decay of averaged weights of both networks, kept in addition to the last ones; none if not given."""
    shift: int = 0
    """Move each image of a batch at random by up to so many pixels in each direction."""
    flip: bool = False
    """Mirror every second image of a batch, left to right, at random."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Arithmetic of the networks: with bfloat16, torch's autocast computes products in 16 bits; weights and sums stay
    in 32. It is faster on processors that support it; a perceptron's gradients in closed form stay in 32 bits."""
    channels_last: bool = False
    """Keep images and convolutions with their channels last, which is the faster order on many processors."""
    sample_every: int | None = None
    """Iterations between two pictures of samples in the run folder, generated next to revised; none if not given."""
    threads: int | None = None
    """Threads of the linear algebra; tiny networks are fastest with 1. All cores if not given."""
    watch_share: float = 0.0
    """Share of the rows, 5,000 at most, that is kept out of training and watched: each line of metrics then says how
    healthy the run is."""
    guard: bool = False
    """If a run diverges, go back to its last good checkpoint, and continue with half the sampler's step and half the
    learning rates. Metrics show the divergence; those of watched rows show more."""
    compile: Literal["auto", "always", "never"] = "auto"
    """Compile the revision: if the run is long enough to make up for the compiler's time, always, or never."""

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
            "sample_every",
            "threads",
        ):
            value = getattr(self, name)
            least = 0 if name == "iterations" else 1
            if value is not None and value < least:
                raise InputError(f"{name} must be at least {least}, got {value}")
        if self.ema_decay is not None and not 0 < self.ema_decay < 1:
            raise InputError(f"ema_decay must lie between 0 and 1, got {self.ema_decay}")
        if self.shift < 0:
            raise InputError(f"shift must not be negative, got {self.shift}")
        if not 0 <= self.lr_final <= 1:
            raise InputError(f"lr_final must lie between 0 and 1, got {self.lr_final}")
        if not 0 <= self.watch_share <= 0.5:
            raise InputError(f"watch_share must lie between 0 and 0.5, got {self.watch_share}")

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
        seeds: Seed of the data order and of the learner's randomness: one, or one per replica.
        folder: The run folder; without one nothing is written.
        description: Stored in each checkpoint: everything that is needed to build the models again.
        ranks: The processes that train together; each gets the same arguments.
        at_end: Called after the last iteration, before its checkpoint; what it returns becomes part of the last line
            of metrics.
    """

    def __init__(
        self,
        learner: Learner,
        data: Tensor,
        config: TrainConfig,
        seeds: Sequence[int],
        folder: RunFolder | None = None,
        description: Mapping[str, Any] | None = None,
        ranks: Ranks = ALONE,
        at_end: Callable[[Trainer], Mapping[str, float]] | None = None,
    ) -> None:
        self.learner, self.config, self.folder, self.description = learner, config, folder, description or {}
        if config.channels_last:
            for module in learner.modules.values():
                module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.ranks = learner.ranks = ranks
        self.seeds = list(seeds)
        watched, data = set_aside(data, config.watch_share, seeds[0])
        self.batches = Batches(data, config.batch_size, seeds)
        self.health = None
        if watched is not None:
            self.health = Health(learner, watched, data, self.batches.batch_size, seeds)
        self.rollbacks, self._at_end = 0, at_end
        self._least_gap: float | None = None
        self._good: ckpt.Checkpoint | None = None
        self.total = config.length(self.batches.per_epoch)
        self.rng = self._shared(streams(seeds, "learner", device=data.device))
        self.averages = averages_of(learner.modules, config.ema_decay)
        self._first_rates = {name: [g["lr"] for g in opt.param_groups] for name, opt in learner.optimizers.items()}
        self.step = 0
        self._seconds = 0.0
        self._sums: dict[str, float] = {}
        self._count = 0
        self._fingerprint = self.batches.fingerprint()
        self._last_good: Path | None = None
        # By the settings alone: a run that is resumed must not change its arithmetic.
        if config.compile == "always" or (config.compile == "auto" and self.total >= COMPILE_FROM):
            learner.compile()

    def _shared(self, rng: Seeded) -> Seeded:
        if self.ranks.count == 1:
            return rng
        self.ranks.require_divides(self.batches.batch_size)
        remembers = [n for n, m in self.learner.modules.items() if not any(True for _ in m.parameters())]
        if not isinstance(rng, torch.Generator) or remembers:
            what = f"a learner with a memory ({', '.join(remembers)})" if remembers else "replicas"
            raise InputError(f"{what} cannot be trained by several ranks; start it without torchrun")
        return Shard(rng, self.ranks.rank, self.ranks.count)

    @property
    def seconds(self) -> float:
        """Time spent on iterations, including that before a resume."""
        return self._seconds

    def resume(self) -> bool:
        """Resume from the newest checkpoint; False if there is none yet."""
        newest = self._folder().newest(set_aside=self.ranks.leads)
        if newest is None:
            self._rewind(0)
            return False
        path, stored = newest
        self._require_same_data(stored, path)
        for _ in range(stored.meta["rollbacks"]):
            self._slow_down()
        try:
            self._restore(stored, path)
        except (LookupError, TypeError, RuntimeError) as error:
            raise CheckpointError(f"{path}: holds no state to resume from: {error}") from error
        self._last_good = path
        self._rewind(self.step)
        return True

    def _restore(self, stored: ckpt.Checkpoint, path: Path) -> None:
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
        self.rollbacks = stored.meta["rollbacks"]
        self._least_gap = stored.meta.get("least_gap")
        if self.health is not None:
            self.health.before = stored.tensors.get("health/before")

    def fit(
        self,
        *,
        quiet: bool = False,
        piped: bool = False,
        label: str = "training",
        on_log: Callable[[Trainer, Mapping[str, float]], object] | None = None,
    ) -> bool:
        """Train to the end, or until a stop is asked for.

        Args:
            quiet: Show no progress line, not even on a terminal.
            piped: Print progress as plain lines where standard error is not a terminal.
            label: First words of the progress line.
            on_log: Called with the trainer and every line of metrics; training stops if it returns True.

        Returns:
            False if a signal or ``on_log`` stopped training before its end. A checkpoint is written first.
        """
        with (
            graceful_stop(self.folder is not None) as stop_requested,
            ProgressBar(label, self.total, self.step, quiet=quiet, piped=piped) as bar,
        ):
            enough = False
            while self.step < self.total:
                if self.config.guard and self._good is None:
                    self._good = self._packed()
                started = time.perf_counter()
                try:
                    self._iterate()
                    self._seconds += time.perf_counter() - started
                    bar.advance()
                    if self.step % self.config.log_every == 0 or self.step == self.total:
                        row = self._log()
                        bar.show({k: row[k] for k in list(row)[3:6]})
                        enough = on_log is not None and on_log(self, row) is True
                    stop = self.ranks.any(stop_requested() or enough)
                    due = stop or self.step % self.config.checkpoint_every == 0 or self.step == self.total
                    if due and (self.folder is not None or self.config.guard):
                        self._keep()
                except NonFiniteError as error:
                    if not self.config.guard or self.rollbacks >= MOST_ROLLBACKS:
                        raise
                    self._roll_back(error)
                    bar.move_to(self.step)
                    continue
                if stop and self.step < self.total:
                    return False
        return True

    def _keep(self) -> None:
        if self.config.guard and self._count and self.health is not None:  # not measured yet
            _refuse(self.health.measure(self.step, remember=False), settled=self._settled)
        if self.folder is not None:
            self.save()
        if self.config.guard:
            self._good = self._packed()

    def _roll_back(self, error: NonFiniteError) -> None:
        """Return to the last good state, and continue from there with smaller steps."""
        lost, times = self.step, self.rollbacks + 1
        self._slow_down()
        self.return_to_good()
        self.rollbacks = times
        self._least_gap = None  # with shorter steps samples come less close, so earlier gaps cannot be compared
        self._set_rates(self._rate_share())
        self._rewind(self.step)
        log.info("step %d: %s; back to step %d with half the sampler's step and learning rates", lost, error, self.step)

    def return_to_good(self) -> None:
        """Return to the last state that the guard found good: at worst the one before the first iteration."""
        if self._good is None:
            raise InputError("no good state was kept; train with guard")
        self._restore(self._good, Path("memory"))

    def _rewind(self, step: int) -> None:
        if self.folder is not None and self.ranks.leads:
            self.folder.rewind_metrics(step)

    def _slow_down(self) -> None:
        """Halve the sampler's step and the learning rates."""
        if not isinstance(self.learner, SamplingLearner):
            kind = type(self.learner).__name__
            raise InputError(f"{kind} has no sampler whose step could be halved; leave guard out")
        self.learner.shorten_steps(0.5)
        self._first_rates = {name: [rate / 2 for rate in rates] for name, rates in self._first_rates.items()}

    def save(self) -> Path:
        """Write a checkpoint of the current state; an error if that is not finite."""
        stored = self._packed()
        folder = self._folder()
        path = folder.checkpoint_path(self.step)
        if self.ranks.leads:
            ckpt.write(path, stored)
            folder.prune(self.config.keep)
        self._last_good = path
        return path

    def _packed(self) -> ckpt.Checkpoint:
        """A copy of everything that a run needs to continue."""
        try:
            require_finite_state(self.learner.modules)
        except NonFiniteError as error:
            raise self._stopped(error, self.step) from error
        self.averaged()
        tensors, groups = ckpt.pack(self.learner.modules, self.learner.optimizers, self.averages)
        tensors["rng/learner"] = self.rng.get_state()
        if self.health is not None and self.health.before is not None:
            tensors["health/before"] = self.health.before
        epoch, cursor = self.batches.position(self.step)
        meta = {
            **self.description,
            "step": self.step,
            "seconds": self._seconds,
            "sums": dict(self._sums),
            "count": self._count,
            "rollbacks": self.rollbacks,
            "least_gap": self._least_gap,
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
        return ckpt.Checkpoint({name: value.clone() for name, value in tensors.items()}, meta)

    def averaged(self) -> dict[str, nn.Module]:
        """The averaged networks, with batch norm statistics of their own; none if no averages are kept."""
        if self.averages:
            rng = streams(self.seeds, "averages", device=self.batches.data.device)
            take_statistics(self.averages, self.learner, self.batches, rng)
        return {name: average.module for name, average in self.averages.items()}

    def _folder(self) -> RunFolder:
        if self.folder is None:
            raise InputError("this run has no folder to keep checkpoints in")
        return self.folder

    def _iterate(self) -> None:
        if self.config.lr_final < 1:
            self._set_rates(self._rate_share())
        try:
            metrics = self._update()
        except NonFiniteError as error:
            raise self._stopped(error, self.step + 1) from error
        self.step += 1
        for name, average in self.averages.items():
            average.update_parameters(self.learner.modules[name])
        for name, value in metrics.items():
            self._sums[name] = self._sums.get(name, 0.0) + float(value)
        self._count += 1

    def _update(self) -> Mapping[str, Tensor]:
        batch = self.ranks.part(self.batches.at(self.step))
        batch = augmented(batch, self.config.shift, self.config.flip, self.rng)
        if self.config.channels_last and batch.ndim == 4:
            batch = batch.contiguous(memory_format=torch.channels_last)
        failed: NonFiniteError | None = None
        metrics: Mapping[str, Tensor] = {}
        half = self.config.precision == "bfloat16"
        try:
            # Weights change within an update, so casts of them must not be cached.
            with torch.autocast(batch.device.type, torch.bfloat16, enabled=half, cache_enabled=False):
                metrics = self.learner.update(batch, self.rng)
        except NonFiniteError as error:
            failed = error
        if self.ranks.any(failed is not None):
            raise failed or NonFiniteError("another rank has numbers that are not finite")
        self.ranks.average_statistics(self.learner.modules.values())
        return metrics

    @property
    def _settled(self) -> bool:
        return self.step >= SETTLED * self.total

    def _rate_share(self) -> float:
        """Share of the learning rates that is left at this step."""
        return 1 - (1 - self.config.lr_final) * self.step / self.total

    def _set_rates(self, share: float) -> None:
        for name, optimizer in self.learner.optimizers.items():
            for group, rate in zip(optimizer.param_groups, self._first_rates[name], strict=True):
                group["lr"] = share * rate

    def _log(self) -> dict[str, Any]:
        """Log one line of metrics: the means since the line before."""
        means = self.ranks.means({name: value / self._count for name, value in self._sums.items()})
        epoch, _ = self.batches.position(self.step)
        row = {"step": self.step, "epoch": epoch, "seconds": round(self._seconds, 3), **means}
        if self.health is not None:
            row |= self.health.measure(self.step)
        if self.config.guard:
            _refuse(row, self._least_gap, settled=self._settled, size=self.batches.data[0].numel())
            row["rollbacks"] = self.rollbacks
            gap = training_gap(means)
            if gap is not None and self._settled:
                self._least_gap = gap if self._least_gap is None else min(gap, self._least_gap)
        if self._at_end is not None and self.step == self.total:
            row |= self._at_end(self)
        if self.folder is not None and self.ranks.leads:
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


def _refuse(numbers: Mapping[str, float], least_gap: float | None = None, *, settled: bool, size: int = 1) -> None:
    trouble = complaint(numbers, least_gap, settled=settled, size=size)
    if trouble is not None:
        raise NonFiniteError(trouble)
