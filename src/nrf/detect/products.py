"""Training the detector's own field: a density around a mixture, which held-out rows judge, and neighbours beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from nrf.detect.replicas import Replicas
from nrf.fields import Choice, DetectionField, Ground, HeldOut, NeighbourField, ground_of, settle
from nrf.runs.spec import PairSpec
from nrf.seeds import stream

HELD_SHARE, MOST_HELD, FEWEST_HELD = 0.2, 2000, 5
"""Training rows that are kept out of training, to judge the network by; with fewer there is none."""
PATIENCE = 8
"""Lines of metrics without a gain after which training ends."""
LEAST_GAIN = 1e-3
"""Nats per row that count as a gain."""


@dataclass(frozen=True)
class Parts:
    """Training rows, and those of them that judge."""

    rows: Tensor
    """All of them."""
    learned: Tensor
    held: Tensor | None

    @classmethod
    def of(cls, rows: Tensor, seed: int) -> Parts:
        """Keep a fifth out, at random."""
        n_held = min(int(HELD_SHARE * len(rows)), MOST_HELD)
        if n_held < FEWEST_HELD:
            return cls(rows, rows, None)
        order = torch.randperm(len(rows), generator=stream(seed, "held out")).to(rows.device)
        return cls(rows, rows[order[n_held:]], rows[order[:n_held]])


def neighbours_of(replicas: Replicas | None) -> NeighbourField | None:
    """The neighbours that replicas score by, if they do."""
    field = None if replicas is None else replicas.module("potential")
    return field.neighbours if isinstance(field, DetectionField) else None


def pooled(rows: Tensor, before: NeighbourField | None, rng: torch.Generator) -> tuple[Tensor, int]:
    """Rows with the anchors of a fit before among them, and how many rows those stand for.

    Each anchor counts for as many rows as it was drawn from.

    Args:
        rows: New rows.
        before: Neighbours of the fit that these rows come beside, if there is one.
        rng: All randomness.
    """
    if before is None:
        return rows, len(rows)
    anchors, n_before = before.anchors.flatten(0, -2).to(rows), int(before.n_rows.flatten()[0])
    weights = torch.cat([torch.full((len(anchors),), n_before / len(anchors)), torch.ones(len(rows))])
    drawn = torch.multinomial(weights, min(len(weights), before.config.max_anchors), generator=rng)
    return torch.cat([anchors, rows])[drawn.to(rows.device)], n_before + len(rows)


class Judge:
    """Judges replicas by held-out rows while they are trained, and settles them in the end.

    Args:
        replicas: Before training.
        spec: What they were built by.
        parts: Their rows.
        seeds: One a replica.
        before: Neighbours of a fit that these rows come beside.
    """

    def __init__(
        self, replicas: Replicas, spec: PairSpec, parts: Parts, seeds: Sequence[int], before: NeighbourField | None
    ) -> None:
        self.replicas, self.spec, self.seeds = replicas, spec, seeds
        self.held: list[HeldOut | None] = []
        self.grounds: list[Ground] = []
        for one, seed in zip(self._alone(), seeds, strict=True):
            rng = stream(seed, "ground", device="cpu")
            self.held.append(None if parts.held is None else HeldOut(one.density, parts.held, rng))
            rows, n_rows = pooled(parts.rows, before, rng)
            ground = ground_of(one, rows, rng)
            if ground.neighbours is not None:
                ground.neighbours.n_rows.fill_(n_rows)
            self.grounds.append(ground)
        self.best_gain, self.best_step, self._best = 0.0, 0, self._state()

    def look(self, step: int) -> dict[str, float]:
        """What held-out rows say of the replicas now; where it is the best so far, the weights are remembered."""
        found = [held.choice(one.density) for held, one in zip(self.held, self._alone(), strict=True) if held]
        if not found:
            return {}
        gain = sum(choice.gain for choice in found) / len(found)
        if gain > self.best_gain + LEAST_GAIN:
            self.best_gain, self.best_step, self._best = gain, step, self._state()
        return {"held_out_gain": gain, "strength": sum(choice.strength for choice in found) / len(found)}

    def settle(self, *, best: bool) -> list[Choice]:
        """Make the field that scores, of the weights as they are or of the best ones, which training then has, too."""
        if best:
            self.replicas.learned("potential").load_state_dict(self._best)
        potentials, parts = self._alone(), zip(self.held, self.grounds, self.seeds, strict=True)
        choices = [
            settle(one, held, ground, stream(seed, "settle"))
            for one, (held, ground, seed) in zip(potentials, parts, strict=True)
        ]
        self.replicas.settle(potentials)
        return choices

    def _alone(self) -> list[DetectionField]:
        return cast("list[DetectionField]", self.replicas.alone(self.spec))

    def _state(self) -> dict[str, Tensor]:
        return {name: value.clone() for name, value in self.replicas.learned("potential").state_dict().items()}
