"""Train the detector's own field: a density around a mixture, judged by held-out rows, with neighbours and pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from nrf.detect.replicas import Replicas
from nrf.fields import Choice, DetectionField, Ground, HeldOut, PairField, ground_of, settle
from nrf.fields.detection import LEAST_GAIN
from nrf.runs.spec import PairSpec
from nrf.seeds import stream

HELD_SHARE, MOST_HELD, FEWEST_HELD = 0.2, 2000, 5
"""Training rows that are kept out to judge the network: their share, and the largest and the least number. With fewer
there are none."""
MOST_REMEMBERED = 6000
"""Maximum number of rows of earlier fits that a fit uses in addition to those it is given, and together with them."""
PATIENCE = 8
"""Number of lines of metrics without a gain after which training ends."""


@dataclass(frozen=True)
class Parts:
    """Training rows, some of which are held out to judge."""

    rows: Tensor
    """All rows."""
    n_rows: int
    """How many rows these stand for."""
    learned: Tensor
    held: Tensor | None

    @classmethod
    def of(cls, rows: Tensor, seed: int, before: Replicas | None = None) -> Parts:
        """Hold out a fifth of the rows, at random.

        Args:
            rows: New rows.
            seed: Seed of all randomness.
            before: Replicas of an earlier fit that these rows are added to.
        """
        rng = stream(seed, "parts")
        rows, n_rows = pooled(rows, before, rng)
        n_held = min(int(HELD_SHARE * len(rows)), MOST_HELD)
        if n_held < FEWEST_HELD:
            return cls(rows, n_rows, rows, None)
        order = torch.randperm(len(rows), generator=rng).to(rows.device)
        return cls(rows, n_rows, rows[order[n_held:]], rows[order[:n_held]])


def pooled(rows: Tensor, before: Replicas | None, rng: torch.Generator) -> tuple[Tensor, int]:
    """Rows joined with those that an earlier fit remembers, and how many rows all of them stand for.

    The remembered rows are its anchors, each of which counts for as many rows as it was drawn from; or, for a field
    without neighbours, draws of its reference.

    Args:
        rows: New rows.
        before: Replicas of the earlier fit that these rows are added to, if there is one.
        rng: Source of all randomness.
    """
    field = None if before is None else before.module("potential")
    if not isinstance(field, DetectionField):
        return rows, len(rows)
    n_before = int(field.standing.n_rows.flatten()[0])
    if field.neighbours is None:
        n = field.density.tilt.n
        remembered = field.density.measure.sample(n * math.ceil(min(n_before, MOST_REMEMBERED) / n), rng)
    else:
        remembered = field.neighbours.anchors
        remembered = remembered if remembered.ndim == 2 else remembered[0]  # replicas have rows in common
    weights = torch.cat([torch.full((len(remembered),), n_before / len(remembered)), torch.ones(len(rows))])
    # The rows with the largest u^(1/w), for uniform u, are a draw without replacement in proportion to the weights w.
    keys = torch.log(torch.rand(len(weights), generator=rng)) / weights
    drawn = keys.topk(min(len(weights), MOST_REMEMBERED)).indices
    return torch.cat([remembered.to(rows), rows])[drawn.to(rows.device)], n_before + len(rows)


class Judge:
    """Judges replicas by held-out rows while they are trained, and builds the final fields in the end.

    Args:
        replicas: Replicas before training.
        spec: The spec that they were built by.
        parts: Their rows.
        seeds: One per replica.
    """

    def __init__(self, replicas: Replicas, spec: PairSpec, parts: Parts, seeds: Sequence[int]) -> None:
        self.replicas, self.spec, self.seeds = replicas, spec, seeds
        self.held: list[HeldOut | None] = []
        self.grounds: list[Ground] = []
        pairs = self._pairs(parts)
        for one, seed in zip(self._alone(), seeds, strict=True):
            rng = stream(seed, "ground")
            self.held.append(None if parts.held is None else HeldOut(one.density, parts.held, rng))
            self.grounds.append(ground_of(one, parts.rows, parts.n_rows, rng, pairs))
        self.best_gain, self.best_step, self._best = 0.0, 0, self._state()

    def look(self, step: int) -> dict[str, float]:
        """The gain of the replicas on held-out rows now; if it is the best so far, the weights are remembered."""
        found = [held.choice(one.density) for held, one in zip(self.held, self._alone(), strict=True) if held]
        if not found:
            return {}
        gain = sum(choice.gain for choice in found) / len(found)
        if gain > self.best_gain + LEAST_GAIN:
            self.best_gain, self.best_step, self._best = gain, step, self._state()
        return {"held_out_gain": gain, "strength": sum(choice.strength for choice in found) / len(found)}

    def settle(self, *, best: bool) -> list[Choice]:
        """Build the fields that score, from the present weights or from the best ones, which are then restored."""
        if best:
            self.replicas.learned("potential").load_state_dict(self._best)
        potentials, parts = self._alone(), zip(self.held, self.grounds, self.seeds, strict=True)
        choices = [
            settle(one, held, ground, stream(seed, "settle"))
            for one, (held, ground, seed) in zip(potentials, parts, strict=True)
        ]
        self.replicas.settle(potentials)
        return choices

    def _pairs(self, parts: Parts) -> PairField | None:
        """The field of pairs, the same for all replicas; without held-out rows it has no effect."""
        pairs = self._alone()[0].pairs
        if pairs is not None and parts.held is not None:
            pairs.fit(parts.learned, parts.held, stream(self.seeds[0], "pairs"))
        return pairs

    def _alone(self) -> list[DetectionField]:
        return cast("list[DetectionField]", self.replicas.alone(self.spec))

    def _state(self) -> dict[str, Tensor]:
        return {name: value.clone() for name, value in self.replicas.learned("potential").state_dict().items()}
