"""Signs, without labels, of whether training goes well or badly.

Some rows are kept out of training and watched. On a sound run their potential lies a little above that of revised
samples and the order among them settles; on a run that goes wrong the gap grows without bound, samples leave the range
of the data, or the ranking of the watched rows changes from one line of metrics to the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from nrf.errors import NonFiniteError
from nrf.learners.base import Learner, PairLearner, SamplingLearner
from nrf.models import frozen
from nrf.seeds import streams

MARGIN = 0.1
"""Share of a column's range by which a sample may lie outside of it."""
LEFT_LIMIT = 0.9
"""Share of samples far outside the data above which a run counts as lost."""
GROWTH, LEAST_GROWTH = 3.0, 50.0
"""Factor, and nats, by which the gap on training rows must exceed its smallest value so far for a run to count as
lost. The gap of a sound run is a sum over columns: with more than 50 of them, it is one nat per column instead."""
SETTLED = 0.2
"""Share of a run after which its gap is expected to shrink."""
FAR = 3.0
"""Distance outside the data that counts as far, in ranges of a column."""


def require_finite_state(modules: Mapping[str, nn.Module]) -> None:
    """Raise an error that names module and tensor if a state holds a NaN or an infinity."""
    for name, module in modules.items():
        for key, value in module.state_dict().items():
            if isinstance(value, Tensor) and value.is_floating_point() and not torch.isfinite(value).all():
                raise NonFiniteError(f"parameter {key} of the {name} is not finite")


class Health:
    """Measures how healthy a run is; its random numbers are its own, so measuring changes nothing.

    Args:
        learner: The learner that is trained.
        watched: Rows kept out of training.
        data: Training rows, for the range of each column.
        n_samples: Number of samples to revise; with the batch size, a compiled revision is not compiled again.
        seeds: One per replica.
    """

    def __init__(self, learner: Learner, watched: Tensor, data: Tensor, n_samples: int, seeds: Sequence[int]) -> None:
        self.learner, self.watched, self.seeds, self.n_samples = learner, watched, list(seeds), n_samples
        low, high = (data.amin(), data.amax()) if data.ndim > 2 else (data.amin(0), data.amax(0))  # pixels share one
        span = high - low
        # A column that never changes has no range of its own: it gets the widest one; a narrow one a tenth of that.
        widest = span.max().clamp_min(1e-6)
        unit = torch.where(span > 0, span.clamp_min(0.1 * widest), widest)
        self._low, self._high, self._span = low, high, unit
        self.before: Tensor | None = None
        """Potentials of the watched rows at the last measurement."""

    @torch.no_grad()
    def measure(self, step: int, *, remember: bool = True) -> dict[str, float]:
        """Measure the current state; numbers are means over replicas.

        - ``watched_u``: mean potential of the watched rows; ``watched_drift``: how far it moved since the last
          measurement, in standard deviations over the rows; ``watched_rank_correlation``: whether their order is still
          the same.
        - ``watched_gap``: their potential minus that of new revised samples, in the same unit.
        - ``samples_outside``, ``samples_far``: share of samples that left the range of the data in some column, by a
          tenth of it and by three times.
        - ``samples_effective``: effective sample size if samples are weighted by ``exp u``, as a share.
        - ``potential_gradient``, ``generator_gradient``: norms of the last gradients.

        Args:
            step: The current step; each has random numbers of its own.
            remember: Whether the next measurement compares with this one.
        """
        found = self._gradients()
        if not isinstance(self.learner, PairLearner):
            return found
        n = self.learner.replicas
        with frozen(self.learner.potential):
            u = self.learner.potential(self.watched.repeat(n, *(1,) * (self.watched.ndim - 1))).reshape(n, -1)
        spread = u.std(1).clamp_min(1e-12)
        found["watched_u"] = float(u.mean())
        found["watched_spread"] = float(spread.mean())
        if self.before is not None:
            found["watched_drift"] = float(((u - self.before).mean(1).abs() / spread).mean())
            found["watched_rank_correlation"] = float(_rank_correlation(u, self.before).mean())
        if remember:
            self.before = u
        if isinstance(self.learner, SamplingLearner):
            found |= self._samples(self.learner, step, u, spread)
        return found

    def _samples(self, learner: SamplingLearner, step: int, u: Tensor, spread: Tensor) -> dict[str, float]:
        n, rng = learner.replicas, streams(self.seeds, "health", step, device=self.watched.device)
        with frozen(learner.generator, learner.potential):
            x, h = learner.generator.propose(n * self.n_samples, rng)
            x, _ = learner.revise(x, h, rng)
            u_samples = learner.potential(x).reshape(n, -1)
        outside = torch.maximum(self._low - x, x - self._high) / self._span
        worst = outside.flatten(1).amax(1)
        weights = torch.softmax(u_samples.double(), 1)
        effective = 1 / weights.square().sum(1) / u_samples.shape[1]
        return {
            "watched_gap": float(((u.mean(1) - u_samples.mean(1)) / spread).mean()),
            "samples_outside": float((worst > MARGIN).float().mean()),
            "samples_far": float((worst > FAR).float().mean()),
            "samples_effective": float(effective.mean()),
        }

    def _gradients(self) -> dict[str, float]:
        found = {}
        for name in self.learner.optimizers:
            grads = [p.grad for p in self.learner.modules[name].parameters() if p.grad is not None]
            if grads:
                norms = torch.stack(torch._foreach_norm(grads))
                found[f"{name}_gradient"] = float(norms.norm())
        return found


def training_gap(numbers: Mapping[str, float]) -> float | None:
    """Potential of training rows minus that of revised samples, from a line of metrics; None for other learners."""
    if "u_data" in numbers and "u_revised" in numbers:
        return float(numbers["u_data"] - numbers["u_revised"])
    return None


def complaint(
    numbers: Mapping[str, float], least_gap: float | None = None, *, settled: bool = True, size: int = 1
) -> str | None:
    """Why a run with these numbers is lost; None if it is not.

    Args:
        numbers: A line of metrics.
        least_gap: The smallest training gap of earlier lines. As long as samples follow the potential, the gap shrinks;
            when the potential has become too steep for the sampler's step, samples scatter and the gap explodes.
        settled: Whether the run is past its beginning, in which proposals can be anywhere.
        size: Values of an event: the columns of a row, or the pixels and channels of an image.
    """
    for name, value in numbers.items():
        if value != value or abs(value) == float("inf"):
            return f"{name.replace('_', ' ')} is not finite"
    if not settled:
        return None
    far = numbers.get("samples_far", 0.0)
    if far > LEFT_LIMIT:
        return f"{100 * far:.0f} % of the samples are far outside the range of the data"
    gap_now = training_gap(numbers)
    if least_gap is not None and gap_now is not None:
        least_gap = max(least_gap, 0.0)
        limit = max(GROWTH * least_gap, least_gap + max(LEAST_GROWTH, size))
        if gap_now > limit:
            return f"the gap between training rows and samples grew from {least_gap:.3g} to {gap_now:.3g} nats"
    return None


def _rank_correlation(a: Tensor, b: Tensor) -> Tensor:
    """Spearman's rank correlation of each row of a with the same row of b."""
    ranks = [v.argsort(1).argsort(1).double() for v in (a, b)]
    centred = [r - r.mean(1, keepdim=True) for r in ranks]
    found: Tensor = (centred[0] * centred[1]).sum(1) / (centred[0].norm(dim=1) * centred[1].norm(dim=1)).clamp_min(
        1e-12
    )
    return found
