"""Evidence that rows are no longer like those before them: online conformal p-values, and bets on them.

:class:`OnlineRanks` turns each value into its smoothed rank among *all* values before it. If rows are exchangeable
(independent draws of one law, say), these p-values are exactly uniform and independent of each other, however few
values there were at the start. Ranks among one fixed set of calibration rows are not: given the set they all have the
same small bias, which a long stream is sure to show.

:class:`Bets` multiplies a capital of 1 by bets on the p-values. If they are uniform, no bet has an edge, and by Ville's
inequality the capital ever reaches 1/level with probability level at most. docs/drift.md has the arguments.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

CHUNK = 128
"""Number of rows that are ranked at once: each is compared with all others of the chunk, and a byte holds the count."""
EARLIER = ~np.tri(CHUNK, dtype=bool)
"""``EARLIER[j, i]``: whether row j of a chunk is before row i."""
MOST_BINS = 512
"""Resolution of the ranks; it bounds memory, and costs no validity."""


class OnlineRanks:
    """Smoothed ranks of values among all values before them, of several series at once, in bounded memory.

    Some first values, the reference, are sorted; with random numbers that break ties, no two are equal. The next value
    is as likely to fall into any of the n + 1 gaps between them, and after t more values a gap with c of those has the
    probability (c + 1)/(n + 1 + t): by exchangeability the new value's place among all n + t is uniform, and the gap
    has c + 1 places. So only counts per gap must be kept: neighbouring gaps are joined into at most :data:`MOST_BINS`,
    and a random place within the gap makes the rank exactly uniform.

    Args:
        n_series: Number of series.
        seed: Seed of the random numbers that break ties.
        reference: Values ``(n, n_series)`` to start from; without them the stream's first ``burn_in`` rows serve as the
            reference, and get no ranks.
        burn_in: That number of rows.
    """

    def __init__(self, n_series: int, seed: int, reference: Floats | None = None, burn_in: int = 0) -> None:
        self.n_series, self.burn_in = n_series, burn_in
        self._rng = np.random.Generator(np.random.PCG64(seed))
        self._waiting = np.zeros((0, n_series))
        self._edges = self._breaks = np.zeros((n_series, 0))
        self._counts: Counts = np.zeros((n_series, 1), dtype=np.int64)
        self._ready = False
        if reference is not None or not burn_in:
            self._start(np.zeros((0, n_series)) if reference is None else reference)

    @property
    def waiting(self) -> int:
        """Number of rows still needed for a reference."""
        return 0 if self._ready else self.burn_in - len(self._waiting)

    def update(self, values: Floats) -> Floats:
        """P-values of the next rows of the stream, ``(n, n_series)``; rows of the burn-in have none."""
        if not self._ready:
            n = self.waiting
            self._waiting, values = np.concatenate([self._waiting, values[:n]]), values[n:]
            if self.waiting:
                return np.zeros((0, self.n_series))
            self._start(self._waiting)
        parts = [self._ranked(values[i : i + CHUNK]) for i in range(0, len(values), CHUNK)]
        return np.concatenate([np.zeros((0, self.n_series)), *parts])

    def _start(self, reference: Floats) -> None:
        """Sort the reference, and keep some of its values as the edges of bins, with the number of gaps in each."""
        n = len(reference)
        breaks = self._rng.random((n, self.n_series))
        order = np.lexsort((breaks, reference), axis=0)
        m = min(n, MOST_BINS - 1)
        places = np.arange(1, m + 1) * (n + 1) // (m + 1)
        self._edges, self._breaks = (
            np.ascontiguousarray(np.take_along_axis(part, order, 0)[places - 1].T) for part in (reference, breaks)
        )
        gaps = np.diff(places, prepend=0, append=n + 1)
        self._counts = np.tile(gaps, (self.n_series, 1)).astype(np.int64)
        self._waiting, self._ready = np.zeros((0, self.n_series)), True
        self._index()

    def _index(self) -> None:
        """For each series its different edges, and keys that rise: the number of the edge, and what breaks its ties."""
        self._different, self._keys = [], []
        for edges, breaks in zip(self._edges, self._breaks, strict=True):
            different, number = np.unique(edges, return_inverse=True)
            self._different.append(different)
            self._keys.append(number + breaks)

    def _ranked(self, values: Floats) -> Floats:
        n = len(values)
        breaks, places = np.moveaxis(self._rng.random((n, 2, self.n_series)), 0, -1)
        bins = np.empty((self.n_series, n), dtype=np.int16)
        for i, (different, keys) in enumerate(zip(self._different, self._keys, strict=True)):
            near = np.searchsorted(different, values[:, i])
            tied = different[np.minimum(near, len(different) - 1)] == values[:, i] if len(different) else False
            bins[i] = np.searchsorted(keys, near + np.where(tied, breaks[i], 0.0))
        earlier, others, own = EARLIER[:n, :n], bins[:, :, None], bins[:, None, :]
        lower = np.add.reduce(((others < own) & earlier).view(np.uint8), axis=1, dtype=np.uint8)
        same = np.add.reduce(((others == own) & earlier).view(np.uint8), axis=1, dtype=np.uint8)
        below = np.cumsum(self._counts, axis=1) - self._counts
        places_of = bins.astype(np.int64)
        lower = lower + np.take_along_axis(below, places_of, 1)
        same = same + np.take_along_axis(self._counts, places_of, 1)
        total = self._counts[0].sum() + np.arange(n)
        for i in range(self.n_series):
            self._counts[i] += np.bincount(bins[i], minlength=self._counts.shape[1])
        p: Floats = ((lower + (1.0 - places) * same) / total).T  # above 0, as 1 − places is
        return p

    def to_json(self) -> dict[str, Any]:
        """All of it, ready for :func:`json.dumps`."""
        return {
            "n_series": self.n_series,
            "burn_in": self.burn_in,
            "ready": self._ready,
            "random": self._rng.bit_generator.state,
            "waiting": self._waiting.tolist(),
            "edges": self._edges.tolist(),
            "breaks": self._breaks.tolist(),
            "counts": self._counts.tolist(),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> OnlineRanks:
        """What :meth:`to_json` wrote; a ValueError, KeyError or TypeError if it is damaged."""
        n = int(data["n_series"])
        found = cls(n, 0, burn_in=int(data["burn_in"]))
        found._rng.bit_generator.state = data["random"]
        found._ready = bool(data["ready"])
        found._waiting = np.array(data["waiting"], dtype=np.float64).reshape(-1, n)
        found._edges = np.array(data["edges"], dtype=np.float64).reshape(n, -1)
        found._breaks = np.array(data["breaks"], dtype=np.float64).reshape(found._edges.shape)
        found._counts = np.array(data["counts"], dtype=np.int64).reshape(n, -1)
        sums = found._counts.sum(1)
        if found._ready and (found._counts.shape[1] != found._edges.shape[1] + 1 or len(set(sums.tolist())) > 1):
            raise ValueError("counts do not belong to the edges")
        if found._counts.min(initial=0) < 0 or not np.isfinite(found._edges).all():
            raise ValueError("counts or edges that are impossible")
        found._index()
        return found


LINEAR = np.array([-0.9, -0.5, -0.2, 0.2, 0.5, 0.9])
"""Bets 1 + ε (2p − 1): values have moved up or down."""
CURVED = np.array([-0.8, 0.8])
"""Bets 1 + ε (6p² − 6p + 1): less or more values at both ends."""
PARTS, PART_BET = 8, 0.15
"""Bets on one of so many equal parts of [0, 1]: 1 + ε (8 [p in the part] − 1). They detect levels that are more
frequent than before, wherever these are in the order."""
PRIOR = np.concatenate(
    [np.full(6, 0.5 / 6), np.full(2, 0.125 / 2), np.full(2, 0.125 / 2), np.full(PARTS, 0.25 / PARTS)]
)
"""Share of the capital that each bet gets: linear, curved, powers of p and of 1 − p, parts."""
BLOCK = 32
"""Rows per block: products of so many bets, each between 0.1 and 2²⁶, never overflow a double."""
AT_ONCE = 1024
"""Rows whose bets are in memory at the same time: 18 numbers for each row and series."""
PARTS_OF_STATE = ("log_size", "paid", "product")
START = 100.0
"""A share ln 2/(1 + ln 2) of the capital is bet in the first so many rows, and the rest ever more slowly."""


class Bets:
    """The capital of several players, one for each series, who bet on p-values: under uniform ones all are martingales.

    A player splits a capital of 1 among several simple bets, and holds back a part to start further bets later: a bet
    that began before a change has lost by then. ``R(t) = 1/(1 + ln(1 + t/START))`` is held back after t rows. The
    capital of one bet, ``C(t) = (C(t − 1) + prior (R(t − 1) − R(t))) f(p(t))``, is a sum over all starts, so one number
    keeps it.

    Within a block of rows ``C = F Σ payments / F`` with the product F of the bets since the block's first row, which
    NumPy does for all bets at once; between blocks the size of each capital goes into a logarithm. Blocks begin at
    fixed rows, so that it makes no difference how rows are divided into calls.

    Args:
        n_series: Number of series.
    """

    def __init__(self, n_series: int) -> None:
        self.n, self.n_series = 0, n_series
        shape = (n_series, len(PRIOR))
        self._log_size = np.zeros(shape)
        """Logarithm of each capital at the block's first row; 0 at the very first, where there is none."""
        self._paid = np.zeros(shape)
        """Capital at the block's first row and payments since, each divided by the bets before it, in that size."""
        self._product = np.ones(shape)
        """Product of the bets since the block's first row."""

    def update(self, p: Floats) -> Floats:
        """The logarithm (to base e) of each capital after each of these rows ``(n, n_series)``."""
        parts = [self._updated(p[i : i + AT_ONCE]) for i in range(0, len(p), AT_ONCE)]
        return np.concatenate([np.zeros((0, self.n_series)), *parts])

    def _updated(self, p: Floats) -> Floats:
        bets, parts, done = all_bets(p), [np.zeros((0, self.n_series))], 0
        while done < len(p):
            if self.n % BLOCK == 0 and self.n:
                capital = self._paid * self._product
                self._log_size += np.log(capital)
                self._paid, self._product = np.ones_like(capital), np.ones_like(capital)
            rows = min(BLOCK - self.n % BLOCK, len(p) - done)
            parts.append(self._played(bets[done : done + rows]))
            done += rows
        return np.concatenate(parts)

    def _played(self, bets: Floats) -> Floats:
        """The logarithm of the capital after each row of one block."""
        before = self.n + np.arange(len(bets), dtype=np.float64)
        paid = np.exp(_log_held(before) + _log_held(before + 1)) * np.log1p(1 / (START + before))
        products = np.multiply.accumulate(np.concatenate([self._product[None], bets]))
        payments = paid[:, None, None] * (PRIOR * np.exp(-self._log_size)) / products[:-1]
        sums = np.add.accumulate(np.concatenate([self._paid[None], payments]))
        self._product, self._paid, self.n = products[-1], sums[-1], self.n + len(bets)
        base = np.maximum(self._log_size.max(1), 0.0)  # neither sums nor what is held back are too large then
        capital = (products[1:] * sums[1:] * np.exp(self._log_size - base[:, None])).sum(-1)
        held = np.exp(_log_held(before + 1)[:, None] - base)
        total: Floats = base + np.log(capital + held)
        return total

    def to_json(self) -> dict[str, Any]:
        """All of it, ready for :func:`json.dumps`."""
        parts = {"log_size": self._log_size, "paid": self._paid, "product": self._product}
        return {"n": self.n, **{name: part.tolist() for name, part in parts.items()}}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Bets:
        """What :meth:`to_json` wrote; a ValueError, KeyError or TypeError if it is damaged."""
        found = cls(len(data["paid"]))
        found.n = int(data["n"])
        parts = [np.array(data[name], dtype=np.float64).reshape(found._paid.shape) for name in PARTS_OF_STATE]
        if found.n < 0 or not np.isfinite(parts).all() or parts[1].min() < 0 or parts[2].min() <= 0:
            raise ValueError("numbers that are impossible")
        found._log_size, found._paid, found._product = parts
        return found


def all_bets(p: Floats) -> Floats:
    """All bets, along a new last axis; each has the mean 1 over [0, 1]."""
    x = p[..., None]
    found = np.empty((*p.shape, len(PRIOR)))
    found[..., :6] = 1 + LINEAR * (2 * x - 1)
    found[..., 6:8] = 1 + CURVED * (6 * x * (x - 1) + 1)
    found[..., 8:9], found[..., 9:10] = 0.5 / np.sqrt(x), 0.5 / np.sqrt(np.maximum(1 - x, 2.0**-53))
    hit = np.minimum((PARTS * x).astype(np.int64), PARTS - 1) == np.arange(PARTS)
    found[..., 10:] = np.where(hit, 1 + PART_BET * (PARTS - 1), 1 - PART_BET)
    return found


def _log_held(rows: Floats) -> Floats:
    """The logarithm of what is held back after so many rows."""
    found: Floats = -np.log1p(np.log1p(rows / START))
    return found
