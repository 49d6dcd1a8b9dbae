"""Why a row is an anomaly: what would have to change, and how much each feature adds.

The *counterfactual* is the row after revision: pulled up the potential until it is typical. Only those features are
moved that must move for the row to pass as normal: a small set, in the user's own units. The climb can end at a local
maximum, so typical rows that share most features with the row are tried as goals too; a saved detector has such rows
only with ``keep_examples``. The *contributions* split the difference of potential between the two, feature by feature,
by the gradient along the line from the counterfactual to the row; they sum to that difference.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nrf.detect.features import PrincipalComponents
from nrf.detect.fitted import Fitted, opened
from nrf.detect.replicas import SMALL_CHUNK
from nrf.detect.tables.given import GivenRows, Novelty, given_rows
from nrf.detect.tables.schema import Schema
from nrf.errors import InputError
from nrf.fields import DetectionField
from nrf.networks import Snapshot
from nrf.samplers import SGLD, Position, run
from nrf.seeds import stream

if TYPE_CHECKING:
    from nrf.detect.detector import NRFDetector

NEAR_ROWS = 8
"""Number of typical rows that are tried as goals in addition to the end of the climb."""
TYPICAL_ROWS = 5000
"""Number of calibration rows among which they are searched."""
PATH_STEPS = 64
"""Number of points on the line along which contributions are summed."""


@dataclass(frozen=True)
class Change:
    """One feature that had to move."""

    feature: str
    value: Any
    """The row's own value; ``None`` if it is missing."""
    typical: Any
    """The value of the feature in the counterfactual."""
    contribution: float
    """The feature's part in the potential of the row: negative = makes it abnormal."""
    reason: str | None = None
    """Why the value is new, if nothing like it was there at fit: a level never seen, a missing value, …"""


@dataclass(frozen=True)
class Explanation:
    """One row explained."""

    score: float
    threshold: float
    p_value: float
    changes: tuple[Change, ...]
    """The features that had to move, the most abnormal first; empty if the row is normal as it is."""
    contributions: dict[str, float]
    """The part of every feature. They sum to the potential of the row minus that of its revision, or, if the row is
    normal as it is, minus that of the typical row where its climb ends."""
    revised: dict[str, Any]
    """The counterfactual row: all columns of the given row, with its own values where nothing had to move. As a table
    of one row it scores ``revised_score``."""
    revised_score: float
    reached: bool
    """Whether the counterfactual is above the threshold."""
    neighbours: tuple[dict[str, Any], ...] = ()
    """The nearest training rows that the field remembers, nearest first, as values by column; only with
    ``keep_examples`` and a field of neighbours."""

    @property
    def is_anomaly(self) -> bool:
        """Whether the row lies below the threshold."""
        return self.score < self.threshold


def explain(
    detector: NRFDetector | Fitted,
    X: Any,
    *,
    max_steps: int = 500,
    target: float | None = None,
    neighbours: bool = False,
) -> list[Explanation]:
    """Explain rows of a table, or, for a detector of windows, each window (see :func:`lowest_window`).

    Args:
        detector: A fitted detector of tables, or what its fit has learned.
        X: Rows.
        max_steps: Maximum number of steps of the revision.
        target: Potential that counts as typical; the median potential of the calibration rows if not given.
        neighbours: Whether to name the nearest training rows that the field remembers.
    """
    fitted, X = opened(detector, X)
    encoder, calibration = fitted.reader.encoder, fitted.calibrated.scores
    if encoder is None or fitted.reader.pixels is not None:
        raise InputError("images have no columns to explain; use counterfactual_images")
    if fitted.combine != "potential":
        raise InputError("ranks have no gradient: explain a detector with combine='potential'")
    given = given_rows(encoder, fitted.reader.prepared(X))
    rows, new = fitted.reader.encoded(given.frame), given.novelties()
    field = _Field(fitted)
    middle = float(np.median(calibration.scores)) if target is None else target
    revised = field.climb(rows, middle, max_steps)
    scores = field.values(rows)
    p_values = calibration.p_values(scores.cpu().numpy())
    typical = _typical_rows(fitted, field)
    near = _neighbours(fitted, rows, given) if neighbours else [()] * len(rows)
    return [
        replace(
            _explain_row(fitted, field, _Row(row, i, given, new[i]), [goal, *_nearest(typical, row)], score, p),
            neighbours=near[i],
        )
        for i, (row, goal, score, p) in enumerate(zip(rows, revised, scores.tolist(), p_values.tolist(), strict=True))
    ]


def lowest_window(detector: NRFDetector | Fitted, X: Any, row: int) -> NDArray[np.intp]:
    """The rows of the lowest-scoring window that holds a row: what to explain for a detector of windows.

    Args:
        detector: A fitted detector of windows.
        X: Rows of its series.
        row: Place of the row among them, from 0.
    """
    fitted, X = opened(detector, X)
    layout = fitted.reader.layout(X)
    if layout is None:
        raise InputError("this detector sees rows, not windows: explain the row itself")
    holding = np.any([layout.rows_at(place) == row for place in range(layout.size)], axis=0)
    if not holding.any():
        raise InputError(f"row {row + 1} is in no window: too few rows surround it without a gap")
    scores = np.where(holding, fitted.combined(fitted.potentials(X)), np.inf)
    first = layout.starts[int(np.argmin(scores))]
    return layout.order[first : first + layout.size]


@dataclass(frozen=True)
class _Group:
    """One column of the user's table, as the counterfactual moves it."""

    name: str
    place: slice
    """Its outputs; none if it was left out at fit as constant."""
    count: int = 0
    """Its share in the count of novelties, the last output."""


@dataclass(frozen=True)
class _Row:
    """A row, encoded and as it was given."""

    encoded: Tensor
    i: int
    given: GivenRows
    new: Sequence[Novelty]

    def groups(self, encoder: Schema) -> list[_Group]:
        """The columns that have outputs, and those left out that count as novelties."""
        counted = [novelty.column for novelty in self.new if novelty.counted]
        kept = [_Group(name, place, int(name in counted)) for name, place in encoder.groups]
        names = {group.name for group in kept}
        return [*kept, *(_Group(name, slice(0, 0), 1) for name in counted if name not in names)]


def _typical_rows(fitted: Fitted, field: _Field) -> Tensor:
    """Calibration rows with scores in the upper half; none if a detector was saved without them."""
    known = fitted.calibrated.rows
    if known is None:
        return torch.empty(0, 0)
    values = field.values(known[:TYPICAL_ROWS])
    return known[:TYPICAL_ROWS][values >= values.median()]


def _neighbours(fitted: Fitted, rows: Tensor, given: GivenRows) -> list[tuple[dict[str, Any], ...]]:
    """The anchors nearest to each row, in the user's units; none if the field has no anchors."""
    field, encoder = fitted.replicas.module("potential"), fitted.reader.encoder
    if not isinstance(field, DetectionField) or field.neighbours is None:
        return [()] * len(rows)
    assert encoder is not None
    anchors, _ = field.neighbours.nearest(field.scaled(fitted.replicas.seen(rows)))
    if field.units:
        anchors = anchors / anchors.new_tensor(field.units)
    near = []
    for i, each in enumerate(anchors):
        whole = rows.new_zeros(len(each), encoder.n_outputs)
        whole[:, encoder.learned] = each
        values = [encoder.decode_rounded(encoder.snap(row)) for row in whole.cpu().numpy()]
        near.append(tuple({name: given.in_kind(i, name, v) for name, v in row.items()} for row in values))
    return near


def _nearest(typical: Tensor, row: Tensor) -> Tensor:
    """Typical rows that have most in common with a row: how far apart they are in the other features counts little."""
    if not len(typical):
        return typical
    distance = (typical - row).abs().clamp_max(1.0).sum(1)
    return typical[distance.topk(min(NEAR_ROWS, len(typical)), largest=False).indices]


def counterfactual_images(detector: NRFDetector | Fitted, X: Any, *, max_steps: int = 500) -> NDArray[np.float32]:
    """Images after revision towards typical ones, in the units of ``X``."""
    fitted, X = opened(detector, X)
    reader = fitted.reader
    scale = reader.pixels
    if scale is None:
        raise InputError("this detector is for tables; use explain")
    field, step = _Field(fitted), reader.features
    if step is not None and not isinstance(step, PrincipalComponents):
        raise InputError(f"the columns of {type(step).__name__} cannot be turned back into images")
    revised = field.climb(reader.read(X), float(np.median(fitted.calibrated.scores.scores)), max_steps)
    if reader.encoder is not None and step is not None:
        columns = np.array([list(reader.encoder.decode(row.cpu().numpy()).values()) for row in revised])
        revised = torch.from_numpy(step.inverse_transform(columns, like=scale.encode(X)))
    out = (revised.clamp(-1, 1).cpu().numpy() + 1) / 2 * (scale.high - scale.low) + scale.low
    return np.asarray(out, dtype=np.float32)


def revised_rows(
    detector: NRFDetector | Fitted,
    X: Any,
    *,
    n_steps: int = 300,
    temperature: float = 0.1,
    step_size: float | None = None,
    random_state: int = 0,
) -> list[dict[str, Any]]:
    """Rows of a table after SGLD steps: how an anomaly drifts to the region of normal rows.

    Unlike the counterfactual of :func:`explain` it may change every feature and has no goal, so it ends at a typical
    row, not at the nearest one that passes as normal.

    Args:
        detector: A fitted detector of tables, or what its fit has learned.
        X: Rows.
        n_steps: Number of steps.
        temperature: Temperature of the noise: 1 samples the distribution of the field, 0 climbs to a peak, values
            between stay near a peak.
        step_size: If not given, a tenth of that in training, where steps are as coarse as the noise on rows.
        random_state: Seed of the noise.

    Returns:
        The revised rows in the user's units, by column.
    """
    fitted, X = opened(detector, X)
    encoder = fitted.reader.encoder
    if encoder is None or fitted.reader.pixels is not None:
        raise InputError("images have no columns; use counterfactual_images")
    if n_steps < 1:
        raise InputError(f"n_steps must be at least 1, got {n_steps}")
    given = given_rows(encoder, fitted.reader.prepared(X))
    rows, field = fitted.reader.encoded(given.frame), _Field(fitted)
    sampler = SGLD(step_size=field.step_size / 10 if step_size is None else step_size, temperature=temperature)
    known = torch.ones_like(rows[:1])
    known[:, field.replicas.novelty_columns] = 0.0  # nothing else is a novelty any more

    def slope(position: Position, step: int) -> Position:
        return (field.gradient(known * position[0]),)

    rng = stream(random_state, "revision", device=rows.device)
    (revised,) = run(sampler, (rows,), slope, n_steps, rng).position
    decoded = [encoder.decode_rounded(encoder.snap(row)) for row in (known * revised).cpu().numpy()]
    return [{name: given.in_kind(i, name, v) for name, v in values.items()} for i, values in enumerate(decoded)]


class _Field:
    """The combined potential of a fit's models, with its gradient."""

    def __init__(self, fitted: Fitted) -> None:
        self.replicas = fitted.replicas
        still = Snapshot(self.replicas.module("potential"))
        still.refresh()
        self.potential = still.copy
        self._potentials = self.replicas.scorer()
        self.step_size = fitted.spec.sampler.step_size

    def values(self, rows: Tensor) -> Tensor:
        """Mean potential of the replicas."""
        return self._potentials(rows).mean(0)

    def gradient(self, rows: Tensor) -> Tensor:
        """Gradient of the mean potential."""
        return self.replicas.gradient(self.potential, rows)

    def climb(self, rows: Tensor, target: float, max_steps: int) -> Tensor:
        """Pull rows up the potential with momentum and without noise, each until it reaches the target.

        A step that lands lower is undone and the row's step size halved, so that a row never gets worse. Values far
        beyond the range of training are brought to its edge first, if that is higher: where they are, hardly any slope
        leads back.
        """
        x, best = self._from_the_edge(rows)
        velocity = torch.zeros_like(x)
        shape = (-1, *(1,) * (x.ndim - 1))
        size = torch.full((len(x),), float(self.step_size), device=x.device, dtype=x.dtype)
        for _ in range(max_steps):
            active = best < target
            if not active.any():
                break
            velocity = 0.7 * velocity + size.reshape(shape) * self.gradient(x)
            proposed = self._possible(x + velocity, x)
            value = self.values(proposed)
            better = active & (value > best)
            x = torch.where(better.reshape(shape), proposed, x)
            best = torch.where(better, value, best)
            velocity = torch.where(better.reshape(shape), velocity, torch.zeros_like(velocity))
            size = torch.where(better, size * 1.1, size * 0.5).clamp(1e-5, 10.0)
        return x

    def _from_the_edge(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Rows with the values that are beyond the range of training at its edge, where that is higher; potentials."""
        x, best, replicas = rows.clone(), self.values(rows), self.replicas
        if replicas.novelty_columns:
            seen, (low, high) = replicas.seen(rows), replicas.bounds.to(rows)
            inside = seen.clamp(low, high)
            outside = (inside != seen).any(1)
            if outside.any():
                at_edge = rows.clone()
                at_edge[:, replicas._seen] = inside
                values = self.values(at_edge)
                better = outside & (values > best)
                x, best = torch.where(better[:, None], at_edge, x), torch.where(better, values, best)
        return x, best

    def _possible(self, rows: Tensor, before: Tensor) -> Tensor:
        """Rows with no novelty below 0, and no value further beyond the range of training than it was before.

        Novelties cannot be negative, and beyond that range the potential falls, whatever the slope inside: a step that
        leaves it in some columns would be undone in all.
        """
        replicas = self.replicas
        if replicas.novelty_columns:
            rows[:, replicas.novelty_columns] = rows[:, replicas.novelty_columns].clamp_min(0.0)
            seen, (low, high) = replicas.seen(before), replicas.bounds.to(rows)
            rows[:, replicas._seen] = replicas.seen(rows).clamp(seen.minimum(low), seen.maximum(high))
        return rows


def _explain_row(
    fitted: Fitted, field: _Field, row: _Row, goals: Sequence[Tensor], score: float, p: float
) -> Explanation:
    encoder = fitted.reader.encoder
    assert encoder is not None
    threshold, groups = fitted.rule.threshold, row.groups(encoder)
    goals = [torch.from_numpy(encoder.snap(goal.cpu().numpy())).to(goal) for goal in goals]
    moved: list[int] = []
    counterfactual, found = row.encoded, score
    if score < threshold:
        ways = _side_by_side(field, [_way(groups, row.encoded, goal, threshold) for goal in goals])
        moved, counterfactual, found = min(ways, key=lambda way: (way[2] < threshold, len(way[0]), -way[2]))
    contributions = _along_the_line(field, groups, counterfactual if moved else goals[0], row.encoded)
    own, reasons = row.given.rows[row.i], {novelty.column: novelty.reason for novelty in row.new}
    typical: dict[str, Any] = {column.name: column.value for column in encoder.dropped_columns}
    typical |= encoder.decode_rounded(counterfactual.cpu().numpy())
    names = sorted((groups[i].name for i in moved), key=contributions.__getitem__)
    changes = tuple(
        Change(
            name, own.get(name), row.given.in_kind(row.i, name, typical[name]), contributions[name], reasons.get(name)
        )
        for name in names
    )
    revised = own | {change.feature: change.typical for change in changes}
    return Explanation(score, threshold, p, changes, contributions, revised, found, found >= threshold)


Way = tuple[list[int], Tensor, float]
"""Features to move towards a goal, the row with them moved, and its potential."""


def _way(groups: Sequence[_Group], row: Tensor, goal: Tensor, threshold: float) -> Generator[Tensor, Tensor, Way]:
    """Features to move to the goal until the row is above the threshold: added greedily, then thinned out.

    A generator: it yields the rows whose potentials it needs next, and is sent those potentials.
    """
    left = [i for i, g in enumerate(groups) if g.count or not torch.equal(row[g.place], goal[g.place])]
    chosen, best = list[int](), -math.inf

    def moved(indices: Sequence[int]) -> Tensor:
        return _moved(row, goal, [groups[i] for i in indices])

    while left and best < threshold:
        values = yield torch.stack([moved([*chosen, j]) for j in left])
        place = int(values.argmax())
        best = float(values[place])
        chosen.append(left.pop(place))
    for i in list(chosen):
        rest = [j for j in chosen if j != i]
        if rest and float((yield moved(rest)[None])[0]) >= threshold:
            chosen = rest
    there = moved(chosen)
    return chosen, there, float((yield there[None])[0])


def _side_by_side(field: _Field, searches: Sequence[Generator[Tensor, Tensor, Way]]) -> list[Way]:
    """The results of searches that run in lockstep: what they ask for is evaluated together, since the potential of one
    row takes as long as that of :data:`nrf.detect.replicas.SMALL_CHUNK` rows, to which it is padded."""
    found: dict[int, Way] = {}
    asked = {i: next(search) for i, search in enumerate(searches)}
    while asked:
        rows = torch.cat(list(asked.values()))
        values = torch.cat([field.values(part) for part in torch.split(rows, SMALL_CHUNK)])
        for i, part in zip(list(asked), torch.split(values, [len(own) for own in asked.values()]), strict=True):
            try:
                asked[i] = searches[i].send(part)
            except StopIteration as end:
                found[i] = end.value
                del asked[i]
    return [found[i] for i in range(len(searches))]


def _moved(row: Tensor, goal: Tensor, groups: Sequence[_Group]) -> Tensor:
    out = row.clone()
    for group in groups:
        out[group.place] = goal[group.place]
        out[-1] -= group.count
    return out


def _along_the_line(field: _Field, groups: Sequence[_Group], start: Tensor, end: Tensor) -> dict[str, float]:
    """Integral of the gradient from start to end by feature; the remaining error is shared out, so the sum is exact.

    Novelties get no share of it: their cost is known exactly.
    """
    weights = (torch.arange(PATH_STEPS, device=end.device, dtype=end.dtype) + 0.5) / PATH_STEPS
    line = start + weights[:, None] * (end - start)
    parts = field.gradient(line).mean(0) * (end - start)
    ends = field.values(torch.stack([start, end]))
    total, difference = parts.sum(), ends[1] - ends[0]
    sized = parts.abs()
    sized[field.replicas.novelty_columns] = 0.0
    parts = parts + (difference - total) / sized.sum().clamp_min(1e-12) * sized
    each = float(parts[-1]) / max(1, sum(group.count for group in groups))  # every novelty counts the same
    return {group.name: float(parts[group.place].sum()) + each * group.count for group in groups}
