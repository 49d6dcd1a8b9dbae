"""The replicas inside a detector: pairs of networks built from one spec, trained at once, scored together."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nrf.detect.calibration import ROUNDING
from nrf.detect.parallel import one_thread
from nrf.errors import InputError, NonFiniteError
from nrf.fields import DetectionField
from nrf.learners.base import Learner
from nrf.models import LatentGenerator, gradient, replicas_of
from nrf.networks import Shape, Snapshot, replica_state, stack
from nrf.runs.spec import PairSpec
from nrf.seeds import DrawsFrom
from nrf.training import Trainer

Floats = NDArray[np.floating]
OnLog = Callable[[Trainer, Mapping[str, float]], object]

CHUNK_VALUES = 1 << 18
"""Number of values in a chunk of rows that is scored at once: small enough to stay in a processor's cache."""
SMALL_CHUNK = 256
PRICED_ROWS = 100_000
SLOPE_ROWS = 1000
SMALL_WORK = 1 << 24
"""Products of weights and rows below which training stays on one thread."""
NOVELTY_COST = 2.0
"""How much a novelty lowers the score, in distances from the median of the training scores to their 1 % quantile."""
ATTEMPTS = 3
"""How many times unstable training is started before its last stable state is used."""

log = logging.getLogger(__name__)


class Replicas:
    """Pairs of one architecture, each from a seed of its own.

    Args:
        learner: Owns the pairs while they are trained.
        shape: Shape of an event.
        novelty_columns: Columns of a row that no network sees, since they were 0 in training. Values there lower the
            potential by a fixed amount: a factor of the density that need not be learned, and could not be. So does the
            distance by which a value of another column is beyond the range of training, of which the networks know
            nothing either.
    """

    def __init__(self, learner: Learner, shape: Shape, novelty_columns: Sequence[int] = ()) -> None:
        self.learner, self.shape, self.novelty_columns = learner, shape, list(novelty_columns)
        self.averaged: dict[str, nn.Module] = {}
        self.settled: nn.Module | None = None
        self.novelty_costs = torch.zeros(self.count)
        self.bounds = torch.tensor([[-math.inf], [math.inf]]).repeat(1, shape[0])
        self._seen = [i for i in range(shape[0] + len(novelty_columns)) if i not in set(novelty_columns)]

    @classmethod
    def of(
        cls,
        spec: PairSpec,
        data: Tensor,
        seeds: Sequence[int],
        potential: nn.Module | None = None,
        generator: LatentGenerator | None = None,
        novelty_columns: Sequence[int] = (),
    ) -> Replicas:
        """Build new replicas, as :meth:`nrf.runs.spec.PairSpec.build` does.

        Args:
            spec: What to build.
            data: Training rows, as the networks see them.
            seeds: One per replica.
            potential: A module of the user's own in place of the spec's potential; each replica starts from a copy.
            generator: The same for the generator.
            novelty_columns: As for the class.
        """
        learner = spec.build(data, seeds, potential=potential, generator=generator)
        return cls(learner, tuple(data.shape[1:]), novelty_columns)

    @property
    def count(self) -> int:
        """Number of pairs."""
        return replicas_of(self.learner.modules["potential"])

    def module(self, name: str) -> nn.Module:
        """A network as it is used: settled, or averaged over the last part of training if the average was kept."""
        if name == "potential" and self.settled is not None:
            return self.settled
        return self.learned(name)

    def learned(self, name: str) -> nn.Module:
        """A network as training left it, averaged if the average was kept."""
        return self.averaged.get(name, self.learner.modules[name])

    def alone(self, spec: PairSpec) -> list[nn.Module]:
        """A copy of each replica's potential by itself, as training left it; ``spec`` is what they were built by."""
        together = self.learned("potential")
        return [copy_of(together)] if self.count == 1 else alone(together, self.count, spec, self.shape)

    def settle(self, potentials: Sequence[nn.Module]) -> None:
        """Use these potentials, one per replica, from now on; training continues from its own networks."""
        self.settled = potentials[0] if len(potentials) == 1 else stack(potentials)

    def take_averages(self, trainer: Trainer) -> None:
        """Use the averaged weights that a trainer of these replicas keeps, if it does."""
        self.averaged = trainer.averaged()

    def seen(self, rows: Tensor) -> Tensor:
        """The columns of the rows that the networks see."""
        if self._seen == list(range(len(self._seen))):
            return rows[:, : len(self._seen)] if self.novelty_columns else rows
        return rows[:, self._seen]

    def know(self, rows: Tensor, before: Replicas | None = None) -> None:
        """Set the known ranges of values and the cost of a novelty from training rows.

        Args:
            rows: The training rows.
            before: Replicas trained on other rows before, whose ranges count as known too.
        """
        seen = self.seen(rows)
        low, high = seen.amin(0), seen.amax(0)
        if before is not None:
            low, high = low.minimum(before.bounds[0].to(low)), high.maximum(before.bounds[1].to(high))
        self.bounds = torch.stack([low, high]).cpu()
        u = self._learned_potentials(seen[:PRICED_ROWS])
        least, middle = (torch.quantile(u, q, dim=1) for q in (0.01, 0.5))
        self.novelty_costs = (NOVELTY_COST * (middle - least)).clamp_min(1.0).cpu()

    def potentials(self, rows: Tensor) -> Tensor:
        """The potential of each row under each replica, ``(replicas, rows)``."""
        return self.scorer()(rows)

    def scorer(self) -> Callable[[Tensor], Tensor]:
        """:meth:`potentials` of the replicas as they are now, for many calls."""
        still = self._still()
        return lambda rows: self._by_chunks(self._potentials_of, still, rows)

    @property
    def has_density(self) -> bool:
        """Whether there is a density with a known normaliser."""
        return isinstance(self.settled, DetectionField)

    def log_densities(self) -> Callable[[Tensor], Tensor]:
        """The log-density of each row under each replica, as a function for many calls."""
        still = self._still()
        assert isinstance(still, DetectionField)
        found: nn.Module = _LogDensity(still)
        return lambda rows: self._by_chunks(lambda field, x: self._learned_of(field, self.seen(x)), found, rows)

    def _potentials_of(self, still: nn.Module, rows: Tensor) -> Tensor:
        seen = self.seen(rows)
        if not self.novelty_columns:
            return self._learned_of(still, seen)
        known = self._known(seen)
        odd = rows[:, self.novelty_columns].sum(1)
        if self.clamps:
            odd = odd + (seen - known).abs_().sum(1)
        u = self._learned_of(still, known)
        return u - self.novelty_costs.to(u)[:, None] * odd

    def gradient(self, still: nn.Module, rows: Tensor) -> Tensor:
        """Gradient of the mean potential of the replicas, by row.

        Args:
            still: A snapshot of the potential.
            rows: Rows at which to take it.
        """
        n, seen = self.count, self.seen(rows)
        known = self._known(seen) if self.novelty_columns else seen
        repeated = known.repeat(n, *(1,) * (seen.ndim - 1))
        found = gradient(still, repeated).reshape(n, *seen.shape).mean(0)
        if not self.novelty_columns:
            return found
        cost = self.novelty_costs.mean().to(rows)
        whole = torch.empty_like(rows)
        whole[:, self._seen] = torch.where(seen == known, found, -cost * (seen - known).sign())
        whole[:, self.novelty_columns] = -cost
        return whole

    def tolerance(self, rows: Tensor, potentials: Tensor, sizes: Tensor | float) -> float:
        """The difference of scores below which rounding, of sums or of values, may decide which one is higher.

        Args:
            rows: Calibration rows.
            potentials: Potentials of these rows.
            sizes: Size of the numbers behind each value of a row; in single precision these are off by 6e-8 of their
                size, and twice that is allowed for.
        """
        size = max(1.0, float(torch.quantile(potentials.abs().flatten()[:PRICED_ROWS], 0.9)))
        slopes = self.gradient(self._still(), rows[:SLOPE_ROWS]).abs() * sizes
        return ROUNDING * size + torch.finfo(torch.float32).eps * float(slopes.flatten(1).sum(1).amax())

    @property
    def clamps(self) -> bool:
        """Whether values beyond the known range are clamped to it: a network alone knows nothing outside."""
        return not isinstance(self.learner.modules["potential"], DetectionField)

    def _known(self, seen: Tensor) -> Tensor:
        """Rows with values clamped to the known range, if the field is a network alone."""
        if not self.clamps:
            return seen
        low, high = self.bounds.to(seen)
        return seen.clamp(low, high)

    def _learned_potentials(self, rows: Tensor) -> Tensor:
        return self._by_chunks(self._learned_of, self._still(), rows)

    def _still(self) -> nn.Module:
        return Snapshot(self.module("potential")).copy

    @torch.no_grad()
    def _by_chunks(self, values_of: Callable[[nn.Module, Tensor], Tensor], still: nn.Module, rows: Tensor) -> Tensor:
        """The values of a function of the frozen potential and of rows, computed chunk by chunk."""
        size = max(SMALL_CHUNK, CHUNK_VALUES // max(1, rows[:1].numel() * self.count))
        return torch.cat([values_of(still, chunk) for chunk in torch.split(rows, size)], 1)

    def _learned_of(self, potential: nn.Module, rows: Tensor) -> Tensor:
        n, length = self.count, len(rows)
        if (
            length < SMALL_CHUNK
        ):  # always the same kind of product, or rounding would make a row's score depend on its batch
            rows = torch.cat([rows, rows.new_zeros(SMALL_CHUNK - length, *rows.shape[1:])])
        values: Tensor = potential(rows if n == 1 else rows.repeat(n, *(1,) * (rows.ndim - 1)))
        return values.reshape(n, len(rows))[:, :length]

    def go_on_from(self, before: Replicas) -> None:
        """Take over the weights of replicas trained before."""
        if before.count != self.count:
            raise InputError(f"n_estimators was {before.count} and is {self.count} now; a warm start keeps it")
        if type(before.learner) is not type(self.learner):
            raise InputError("the fit before had another field; a warm start keeps it")
        for name, module in self.learner.modules.items():
            there = before.learner.modules[name]
            if isinstance(module, DetectionField) and isinstance(there, DetectionField):
                module, there = module.density.body, there.density.body  # the reference stays that of the new rows
            module.load_state_dict(there.state_dict())

    def packed(self) -> dict[str, Any]:
        """All values, without the modules that hold them."""
        tensors = {f"last/{n}/{k}": v for n, m in self.learner.modules.items() for k, v in m.state_dict().items()}
        tensors |= {f"averaged/{n}/{k}": v for n, m in self.averaged.items() for k, v in m.state_dict().items()}
        if self.settled is not None:
            tensors |= {f"settled/potential/{k}": v for k, v in self.settled.state_dict().items()}
        tensors |= {"surprise_costs": self.novelty_costs, "bounds": self.bounds}
        return {"shape": self.shape, "count": self.count, "tensors": {k: v.cpu() for k, v in tensors.items()}}

    @classmethod
    def unpacked(
        cls,
        packed: Mapping[str, Any],
        spec: PairSpec,
        potential: nn.Module | None,
        generator: LatentGenerator | None,
        novelty_columns: Sequence[int],
        device: str = "cpu",
    ) -> Replicas:
        """Replicas with the values :meth:`packed` gave."""
        blank = torch.zeros(2, *packed["shape"], device=device)
        config: Any = spec.potential
        plain = replace(spec, potential=replace(config, data_init=False))
        found = cls.of(plain, blank, range(packed["count"]), potential, generator, novelty_columns)
        found.novelty_costs, found.bounds = (packed["tensors"][name] for name in ("surprise_costs", "bounds"))
        kept = {key.split("/")[1] for key in packed["tensors"] if key.startswith("averaged/")}
        found.averaged = {name: copy_of(found.learner.modules[name]) for name in sorted(kept)}
        for kind, modules in (("last", found.learner.modules), ("averaged", found.averaged)):
            for name, module in modules.items():
                prefix = f"{kind}/{name}/"
                state = {k.removeprefix(prefix): v for k, v in packed["tensors"].items() if k.startswith(prefix)}
                module.load_state_dict(state)
        prefix = "settled/potential/"
        state = {k.removeprefix(prefix): v for k, v in packed["tensors"].items() if k.startswith(prefix)}
        if state:
            found.settled = copy_of(found.learner.modules["potential"])
            found.settled.load_state_dict(state)
        return found


def alone(together: nn.Module, count: int, spec: PairSpec, shape: Shape) -> list[nn.Module]:
    """The potentials that were stacked, each by itself."""
    found = []
    for i in range(count):
        with DrawsFrom(torch.Generator()):
            own = spec.potential.build(shape)
        own.load_state_dict(replica_state(together.state_dict(), i))
        found.append(own)
    return found


class _LogDensity(nn.Module):
    """The density inside a field, of rows as the field takes them."""

    def __init__(self, field: DetectionField) -> None:
        super().__init__()
        self.field = field

    def forward(self, x: Tensor) -> Tensor:
        return self.field.log_density(x)


def copy_of(module: nn.Module) -> nn.Module:
    """A copy of a module that shares no values with it."""
    found = copy.deepcopy(module)
    found.replicas = replicas_of(module)  # type: ignore[assignment]
    return found


@dataclass(frozen=True)
class TrainedReplicas:
    """The result of training."""

    replicas: Replicas
    spec: PairSpec
    """The settings with which they were trained in the end."""
    n_iter: int
    """Number of iterations."""


def train_replicas(
    spec: PairSpec,
    data: Tensor,
    seeds: Sequence[int],
    build: Callable[[PairSpec], Replicas],
    *,
    verbose: int | None = None,
    on_log: OnLog | None = None,
    warn: Callable[[str], None],
) -> TrainedReplicas:
    """Train to the end, in several attempts if needed; warn once if the first one did not succeed.

    Each further attempt has a fourth of the learning rates and half the sampler's step of the one before. If the last
    one fails too, the last good state is kept: with finite data there is always one, at worst that of the networks
    before training.

    Args:
        spec: What to train, and how.
        data: Training rows.
        seeds: One per replica.
        build: Makes the replicas of an attempt.
        verbose: 1 for progress always, 0 for none, None for progress on a terminal.
        on_log: As for :meth:`nrf.training.Trainer.fit`.
        warn: Takes the warning.
    """
    if spec.train.iterations == 0:  # nothing to train, so no optimisers, which take a second to import
        replicas = build(spec)
        _require_finite(replicas, data)
        return TrainedReplicas(replicas, spec, 0)
    quiet, piped = verbose is not None and not verbose, bool(verbose)
    for attempt in range(ATTEMPTS):
        replicas = build(spec)
        trainer = Trainer(replicas.learner, data, spec.train, seeds)
        try:
            with threads_for(replicas, spec.train.batch_size):
                trainer.fit(quiet=quiet, piped=piped, label="NRFDetector", on_log=on_log)
            replicas.take_averages(trainer)
            _require_finite(replicas, data)
            if attempt > 0:
                warn(
                    f"training became unstable and was restarted ({attempt} of at most {ATTEMPTS - 1} times); it "
                    f"then ran to its end with {_rates(spec)}. The detector can be used; give these two values, or "
                    "lower ones, to save the lost attempts"
                )
            return TrainedReplicas(replicas, spec, trainer.step)
        except NonFiniteError as error:
            reason = error
            log.info("attempt %d with %s failed: %s", attempt + 1, _rates(spec), error)
        if attempt < ATTEMPTS - 1:
            spec = _slower(spec)
    trainer.return_to_good()
    replicas.take_averages(trainer)
    _require_finite(replicas, data)
    warn(
        f"training stayed unstable in {ATTEMPTS} attempts, the last with {_rates(spec)} ({reason}): the detector is "
        f"that of iteration {trainer.step} of {spec.train.iterations}, the last stable one, and may find little. Try "
        "fewer columns, more rows, or a lower learning_rate"
    )
    return TrainedReplicas(replicas, spec, trainer.step)


def _slower(spec: PairSpec) -> PairSpec:
    """A fourth of the learning rates, half the sampler's step."""
    learner = spec.learner
    return replace(
        spec,
        sampler=replace(spec.sampler, step_size=spec.sampler.step_size / 2),
        learner=replace(learner, potential_lr=learner.potential_lr / 4, generator_lr=learner.generator_lr / 4),
    )


def _rates(spec: PairSpec) -> str:
    return f"learning_rate={spec.learner.potential_lr:.2g} and step_size={spec.sampler.step_size:.2g}"


@contextmanager
def threads_for(replicas: Replicas, batch: int) -> Iterator[None]:
    """Use one thread where products are so small that a second one costs more than it gains."""
    weights = sum(p.numel() for p in replicas.learner.modules["potential"].parameters())
    with one_thread() if weights * batch < SMALL_WORK else nullcontext():
        yield


def _require_finite(replicas: Replicas, data: Tensor) -> None:
    values = replicas._learned_potentials(data[:1000])
    if not torch.isfinite(values).all():
        raise NonFiniteError("the trained potential has values that are not finite")
