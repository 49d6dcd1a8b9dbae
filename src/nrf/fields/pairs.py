"""A tree of pairs of columns: whether values of a row go together, two at a time.

Each column becomes a few bins: quantiles of a number, levels of a category. For two columns
``r(a, b) = log[(n_ab + κ p_a p_b) / ((n + κ) p_a p_b)]`` measures how much more often two bins occur together than if
the columns were independent; κ pseudo-rows of independent columns limit the influence of rare pairs. The tree connects
all columns by the pairs with the most mutual information (Chow and Liu, 1968), and ``t = −Σ r`` over its edges is high
for a row that breaks such a dependence.

The field is ``−max(0, (t − q) / s)``, with q the 90 % quantile and s the standard deviation of t on held-out rows, for
which a tree of the other rows is used. It is 0 for most rows, and low for those with a value that does not fit the
others. Bins make it piecewise constant, so its gradient is 0.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from nrf.errors import InputError
from nrf.models import apart
from nrf.networks import Shape
from nrf.networks.base import size_of

Span = tuple[int, int]
"""Index of a column's first output, and one past that of its last."""

TAIL = 3.0
"""Standard deviations above the knee beyond which only the logarithm of the distance counts."""
LEAST_SPREAD = 0.02
"""Smallest standard deviation, in nats; rows whose pairs are all alike would give 0."""
MOST_ROWS, MOST_CELLS = 100_000, 2**29
"""Largest number of rows that a tree is fitted to, and of rows times pairs of columns; more rows are subsampled."""
BEYOND = 1e30
"""Value of a cut that is not needed."""
MOST_BINS, MOST_LEVELS = 64, 1024
SIGNS = 8
"""Number of leading signs of a code that determine its bin."""


@dataclass(frozen=True)
class PairTree:
    """Configuration of a tree of pairs: the outputs that encode each column, and how columns are binned."""

    numbers: tuple[Span, ...] = ()
    """Numeric columns: one output each, or two if a flag of missing values follows."""
    categories: tuple[Span, ...] = ()
    """Categorical columns with one output per level: the largest is the row's level; no level if none is above 0."""
    codes: tuple[tuple[int, int, int], ...] = ()
    """Categorical columns ``(start, middle, stop)`` whose levels are encoded by the signs of the outputs from start to
    middle; those from middle to stop are like the outputs of ``categories``. The first 8 signs determine the bin."""
    bins: int = 16
    """Largest number of bins of a numeric column."""
    levels: int = 256
    """Largest number of levels of a category with a bin each, the most frequent ones; the others share a bin."""
    kappa: float = 20.0
    """κ: number of pseudo-rows of independent columns that are added to each pair."""
    knee: float = 0.9
    """Share of held-out rows for which the field is 0."""
    weight: float = 0.5
    """Weight of this field in a product with others."""

    def __post_init__(self) -> None:
        if not 2 <= self.bins <= MOST_BINS or not 1 <= self.levels <= MOST_LEVELS:
            raise InputError(f"2 to {MOST_BINS} bins and up to {MOST_LEVELS} levels, got {self.bins}, {self.levels}")
        if not 0 < self.kappa < float("inf") or not 0 <= self.weight < float("inf") or not 0 <= self.knee <= 1:
            raise InputError(
                f"kappa must be positive, weight not negative and knee from 0 to 1, got {self.kappa}, {self.weight} "
                f"and {self.knee}"
            )
        if any(not start < signs <= stop for start, signs, stop in self.codes):
            raise InputError("a code needs signs, and what is beside them comes after")
        spans = sorted(self.spans)
        if len(spans) < 2:
            raise InputError(f"pairs need at least 2 columns, got {len(spans)}")
        ends = [0, *(stop for _, stop in spans)]
        if any(start < end or stop <= start for end, (start, stop) in zip(ends, spans, strict=False)):
            raise InputError("each column of a tree of pairs needs outputs of its own")
        if any(stop - start > 2 for start, stop in self.numbers):
            raise InputError("a number has one output and at most one flag")

    @property
    def spans(self) -> tuple[Span, ...]:
        """Outputs of each column: numbers, categories, codes."""
        return (*self.numbers, *self.categories, *((start, stop) for start, _, stop in self.codes))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bins of each column: numbers, categories, codes; the first bin is that of missing values."""
        widths = [min(stop - start, self.levels) for start, stop in self.categories]
        widths += [2 ** min(SIGNS, signs - start) + stop - signs for start, signs, stop in self.codes]
        return (*(self.bins + 1 for _ in self.numbers), *(width + 1 for width in widths))

    def build(self, event_shape: Shape) -> PairField:
        """The field, before it is fitted."""
        return PairField(event_shape, self)


class PairField(nn.Module):
    """The field as a potential: 0 for most rows, lower where values do not go together.

    Before it is fitted it is 0. Bins without a training row contribute 0, since other parts of a detector score values
    that are new. Replicas each have a tree of their own, as one more dimension in front of all buffers.

    Args:
        event_shape: Shape of one row.
        config: Columns and bins.

    Example:
        >>> x = torch.arange(600).remainder(3)
        >>> rows = torch.cat([nn.functional.one_hot(x), nn.functional.one_hot(x)], 1).float()
        >>> field = PairTree(categories=((0, 3), (3, 6))).build((6,))
        >>> field.fit(rows[100:], rows[:100], torch.Generator().manual_seed(0))
        >>> field(torch.tensor([[1.0, 0, 0, 1, 0, 0], [1.0, 0, 0, 0, 1, 0]])) < -1
        tensor([False,  True])
    """

    GROWS: ClassVar = {"ratios": -1}
    """The dimension of each buffer whose length depends on the fit."""

    cuts: Tensor
    """Boundaries between the bins of each numeric column, ascending."""
    levels: Tensor
    """The bin of each output of a category."""
    edges: Tensor
    """The columns of each pair of the tree."""
    ratios: Tensor
    """``r`` of all bins, pair after pair."""
    knee: Tensor
    spread: Tensor

    def __init__(self, event_shape: Shape, config: PairTree) -> None:
        super().__init__()
        self.event_shape, self.config, self.n = tuple(event_shape), config, 1
        if max(stop for _, stop in config.spans) > size_of(event_shape):
            raise InputError(f"a column of the tree of pairs is beyond rows of shape {tuple(event_shape)}")
        widths = sum(stop - start for start, stop in config.categories)
        self.register_buffer("cuts", torch.full((len(config.numbers), config.bins - 1), BEYOND))
        self.register_buffer("levels", torch.zeros(widths, dtype=torch.int64))
        self.register_buffer("edges", torch.zeros(len(config.sizes) - 1, 2, dtype=torch.int64))
        self.register_buffer("ratios", torch.zeros(1))
        self.register_buffer("knee", torch.zeros(()))
        self.register_buffer("spread", torch.ones(()))

    # ------------------------------------------------------------------------------------------------------------- fit

    @torch.no_grad()
    def fit(self, learned: Tensor, held: Tensor, rng: torch.Generator) -> None:
        """Fit the tree to all rows, and the quantile above which the field is not 0.

        Args:
            learned: Training rows.
            held: Held-out rows; a tree of the training rows alone gives their quantile and spread.
            rng: Draws a subsample if there are many rows.
        """
        if not len(learned) or not len(held):
            raise InputError(f"pairs need rows and held-out rows, got {len(learned)} and {len(held)}")
        self.fit_tree(learned, rng)
        found = self.unlikeliness(held)[0]
        knee, spread = torch.quantile(found, self.config.knee), found.std(correction=0)
        self.fit_tree(torch.cat([held, learned]), rng)
        self.knee.fill_(float(knee))
        self.spread.fill_(max(float(spread), LEAST_SPREAD))

    @torch.no_grad()
    def fit_tree(self, rows: Tensor, rng: torch.Generator) -> None:
        """Learn bins, tree and ratios from rows."""
        flat, sizes = rows.flatten(1).to(self.cuts), self.config.sizes
        n_pairs = len(sizes) * (len(sizes) - 1) // 2
        most = min(MOST_ROWS, max(1000, MOST_CELLS // n_pairs))
        if len(flat) > most:
            flat = flat[torch.randperm(len(flat), generator=rng)[:most].to(flat.device)]
        self._fit_cuts(flat)
        self._fit_levels(flat)
        bins = self._bins(flat, self.cuts, self.levels).cpu().numpy()
        shares = [np.bincount(one, minlength=size) / bins.shape[1] for one, size in zip(bins, sizes, strict=True)]
        information = np.full((len(sizes), len(sizes)), -np.inf)
        for i in range(len(sizes)):
            for j in range(i):
                counts, expected = _pair(bins, shares, i, j)
                information[i, j] = information[j, i] = _information(counts, expected, self.config.kappa)
        edges = _widest_tree(information)
        tables = [_ratios(*_pair(bins, shares, i, j), self.config.kappa).ravel() for i, j in edges]
        self.edges.copy_(torch.tensor(edges))
        self.ratios = torch.from_numpy(np.concatenate(tables)).to(self.cuts)

    def _fit_cuts(self, rows: Tensor) -> None:
        """Put cuts halfway between two values, so that no rounding moves a value to another bin."""
        self.cuts.fill_(BEYOND)
        for place, (start, stop) in enumerate(self.config.numbers):
            values = rows[:, start]
            if stop - start == 2:
                values = values[rows[:, start + 1] <= 0.5]
            known, counts = np.unique(values.double().cpu().numpy(), return_counts=True)
            between, bins = (known[:-1] + known[1:]) / 2, self.config.bins
            if len(known) > bins:
                last = np.searchsorted(np.cumsum(counts), np.arange(1, bins) * len(values) / bins)
                between = between[np.unique(last[last < len(between)])]
            self.cuts[place, : len(between)] = torch.from_numpy(between).to(self.cuts)

    def _fit_levels(self, rows: Tensor) -> None:
        """Give the most frequent levels bins of their own."""
        end = 0
        for start, stop in self.config.categories:
            width = stop - start
            best, is_level = _largest(rows[:, start:stop])
            counts = torch.bincount(best[is_level], minlength=width)
            kept = counts.argsort(descending=True, stable=True)[: self.config.levels].sort().values
            self.levels[end : end + width] = 0
            self.levels[end + kept] = torch.arange(1, len(kept) + 1, device=kept.device)
            end += width

    # ----------------------------------------------------------------------------------------------------------- score

    @property
    def is_fitted(self) -> bool:
        """Whether there is a tree."""
        return self.ratios.shape[-1] > 1

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        if not self.is_fitted:
            return x.new_zeros(len(x))
        beyond = (self.unlikeliness(x) - self.knee.view(self.n, 1)) / self.spread.view(self.n, 1)
        beyond = beyond.clamp_min(0)
        return -torch.where(beyond > TAIL, TAIL + torch.log1p((beyond - TAIL).clamp_min(0)), beyond).flatten()

    def gradient(self, x: Tensor) -> Tensor:
        """``∇u``: 0, since the field is piecewise constant."""
        return torch.zeros_like(x)

    def unlikeliness(self, x: Tensor) -> Tensor:
        """The statistic ``t`` of rows, ``(replicas, rows)``."""
        points = apart(x.flatten(1), self.n)
        parts = [buffer.view(self.n, *one) for buffer, one in self._buffers_of_one()]
        return torch.stack([self._of_one(*each) for each in zip(points, *parts, strict=True)])

    def stacked(self, fields: Sequence[Self]) -> Self:
        """Stack the modules of all replicas into one; shorter tables are padded to the longest."""
        together = copy.deepcopy(self)
        together.n = len(fields)
        longest = max(len(one.ratios) for one in fields)
        for name, _ in self.named_buffers():
            buffers = [one.get_buffer(name) for one in fields]
            if name == "ratios":
                buffers = [nn.functional.pad(one, (0, longest - len(one))) for one in buffers]
            together.register_buffer(name, torch.stack(buffers))
        return together

    def tables(self) -> list[tuple[int, int, int]]:
        """For each pair of the tree, of one model: its columns, and where its ratios start."""
        found, start = [], 0
        for i, j in self.edges.tolist():
            found.append((i, j, start))
            start += self.config.sizes[i] * self.config.sizes[j]
        return found

    def _buffers_of_one(self) -> list[tuple[Tensor, Sequence[int]]]:
        """The buffers of a tree, and their shapes in one model."""
        kept = ((self.cuts, 2), (self.levels, 1), (self.edges, 2), (self.ratios, 1))
        return [(buffer, buffer.shape[buffer.ndim - dimensions :]) for buffer, dimensions in kept]

    def _of_one(self, points: Tensor, cuts: Tensor, levels: Tensor, edges: Tensor, ratios: Tensor) -> Tensor:
        bins = self._bins(points, cuts, levels)
        sizes = edges.new_tensor(self.config.sizes)[edges]
        areas = sizes.prod(1)
        places = bins.index_select(0, edges[:, 0]).mul_(sizes[:, 1:]).add_(bins.index_select(0, edges[:, 1]))
        places.add_((areas.cumsum(0) - areas)[:, None])
        # In doubles, so that the result does not depend on the order of the sum, however many rows there are.
        return -ratios.take(places).sum(0, dtype=torch.float64).to(points)

    def _bins(self, rows: Tensor, cuts: Tensor, levels: Tensor) -> Tensor:
        """The bin of each column, ``(columns, rows)``."""
        config = self.config
        found = torch.empty(len(config.sizes), len(rows), dtype=torch.int64, device=rows.device)
        n_numbers = len(config.numbers)
        if n_numbers:
            values = rows[:, [start for start, _ in config.numbers]].T.contiguous()
            found[:n_numbers] = _n_below(values, cuts).add_(1)
        for place, (start, stop) in enumerate(config.numbers):
            if stop - start == 2:
                found[place].masked_fill_(rows[:, start + 1] > 0.5, 0)
        end = 0
        for place, (start, stop) in enumerate(config.categories, n_numbers):
            best, is_level = _largest(rows[:, start:stop])
            found[place] = levels[end : end + stop - start][best].mul_(is_level)
            end += stop - start
        for place, (start, signs, stop) in enumerate(config.codes, n_numbers + len(config.categories)):
            found[place] = _coded(rows[:, start:signs], rows[:, signs:stop])
        return found

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        stored = state.get(prefix + "ratios")
        if stored is not None and stored.shape != self.ratios.shape:
            self.ratios = self.ratios.new_empty(stored.shape)
        super()._load_from_state_dict(state, prefix, *rest)
        self._require_sound()

    def _require_sound(self) -> None:
        """Check that every lookup finds a value."""
        sizes, edges = self.edges.new_tensor(self.config.sizes), self.edges
        end = 0
        for start, stop in self.config.categories:
            own = self.levels[..., end : end + stop - start]
            end += stop - start
            if bool((own < 0).any()) or bool((own > min(stop - start, self.config.levels)).any()):
                raise InputError("a level of the tree of pairs has a bin that does not exist")
        if bool((edges < 0).any()) or bool((edges >= len(sizes)).any()):
            raise InputError("the tree of pairs joins columns that do not exist")
        if self.is_fitted and int(sizes[edges].prod(-1).sum(-1).max()) > self.ratios.shape[-1]:
            raise InputError("the tree of pairs lacks some of its ratios")


Counts = npt.NDArray[np.float64]


def _n_below(values: Tensor, cuts: Tensor) -> Tensor:
    """Number of cuts of its column below each value, ``(columns, rows)``; faster than a search among few cuts."""
    found = torch.zeros(values.shape, dtype=torch.uint8, device=values.device)
    above = torch.empty(values.shape, dtype=torch.bool, device=values.device)
    for cut in cuts.T:
        found += torch.gt(values, cut[:, None], out=above).view(torch.uint8)
    return found.long()


def _coded(signs: Tensor, others: Tensor) -> Tensor:
    """The bin of a code: of its first signs, or of the outputs after the signs if one is above 0; 0 if all are 0."""
    signs = signs[:, :SIGNS]
    powers = 2 ** torch.arange(signs.shape[1], device=signs.device)
    found = torch.where(signs[:, 0] == 0, 0, ((signs > 0) * powers).sum(1) + 1)
    if others.shape[1]:
        best, is_there = _largest(others)
        found = torch.where(is_there, best + 1 + 2 ** signs.shape[1], found)
    return found


def _largest(outputs: Tensor) -> tuple[Tensor, Tensor]:
    """The index of the largest output of each row (ties go to the first), and whether it is above 0."""
    best = outputs.argmax(1)
    return best, outputs.gather(1, best[:, None])[:, 0] > 0


def _pair(bins: npt.NDArray[np.int64], shares: Sequence[Counts], i: int, j: int) -> tuple[Counts, Counts]:
    """Number of rows in each pair of bins of two columns, and their share if the columns were independent."""
    shape = len(shares[i]), len(shares[j])
    counts = np.bincount(bins[i] * shape[1] + bins[j], minlength=shape[0] * shape[1]).reshape(shape)
    return counts.astype(np.float64), np.outer(shares[i], shares[j])


def _ratios(counts: Counts, expected: Counts, kappa: float) -> Counts:
    """``r``, and 0 for bins without a row."""
    e = np.where(expected > 0, expected, 1.0)
    return np.where(expected > 0, np.log((counts + kappa * e) / ((counts.sum() + kappa) * e)), 0.0)


def _information(counts: Counts, expected: Counts, kappa: float) -> float:
    """Mean ``r`` of the rows, each left out of the counts that its own ``r`` is computed from."""
    there = counts > 0
    c, e = counts[there], expected[there]
    return float((c * np.log((c - 1 + kappa * e) / ((c.sum() - 1 + kappa) * e))).sum() / c.sum())


def _widest_tree(information: Counts) -> list[Span]:
    """The maximum spanning tree (Prim): pairs that connect all columns with the greatest sum; ties go to the first."""
    best, other = information[0].copy(), np.zeros(len(information), dtype=np.int64)
    left = np.arange(len(information)) > 0
    edges = []
    while left.any():
        j = int(np.where(left, best, -np.inf).argmax())
        left[j] = False
        edges.append((j, int(other[j])))
        closer = information[j] > best
        best, other = np.where(closer, information[j], best), np.where(closer, j, other)
    return edges
