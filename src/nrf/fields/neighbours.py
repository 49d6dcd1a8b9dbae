"""A field of neighbours: how far away the nearest known rows are, compared with how far apart those are themselves.

``u(x) = −(mean_i log(d_i + ε) − s · mean_i ℓ_i − m) / t`` over the k nearest anchors, where ``ℓ_i`` is the same mean
log-distance from anchor ``i`` to its own neighbours: a row is odd if its neighbours are farther from it than from each
other. ``m`` and ``t`` are mean and standard deviation of that difference over the anchors, where no anchor is its own
neighbour.

There is no training that could fail. The field has no normaliser: far from all rows, ``exp u`` falls like a power of
the distance.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from nrf.errors import InputError
from nrf.models import apart
from nrf.networks import Shape
from nrf.networks.base import size_of

CELLS = 2**19
"""Number of distances between rows and anchors that are in memory at once."""
FLOOR = 1e-3
"""ε, as a share of the median distance of an anchor to its nearest one."""
LEAST_EPSILON = 1e-5
"""Smallest ε: about as far as a value of some tens of scales is off in 32 bits, which may differ between programs."""
LEAST_SPREAD = 0.02
"""Smallest t; rows that are all equally far apart, as any two rows are, would give 0."""
REPEATS = 10
"""Number of rows drawn per anchor, before duplicates are removed; with more duplicates there are fewer anchors."""
TIE = 1e-6
"""Squared distances that differ by less than this share of the squares they are computed from count as equal."""


@dataclass(frozen=True)
class Neighbours:
    """Configuration of a field of neighbours."""

    k: int = 5
    """Number of neighbours; all other anchors if there are fewer."""
    share: float = 0.4
    """s: 0 uses the distance alone, 1 the distance relative to the neighbours' own distances."""
    max_anchors: int = 6000
    """Largest number of training rows that are kept as anchors."""

    def __post_init__(self) -> None:
        if self.k < 1 or self.max_anchors < 2:
            raise InputError(f"k ≥ 1 and max_anchors ≥ 2 are needed, got {self.k} and {self.max_anchors}")
        if not 0 <= self.share <= 1:
            raise InputError(f"share must be from 0 to 1, got {self.share}")

    def build(self, event_shape: Shape) -> NeighbourField:
        """The field, before it is fitted."""
        return NeighbourField(event_shape, self)


def distinct(rows: Tensor) -> Tensor:
    """Remove duplicate rows, in the order of first appearance; at least two rows are kept, if there were two.

    Among many equal rows, distances between anchors would be 0 and carry no information.

    Example:
        >>> distinct(torch.tensor([[1.0], [2.0], [1.0], [3.0]])).flatten().tolist()
        [1.0, 2.0, 3.0]
    """
    _, first = np.unique((rows + 0.0).cpu().numpy(), axis=0, return_index=True)  # −0 and 0 are the same
    kept = torch.from_numpy(np.sort(first))
    return rows[kept.to(rows.device)] if len(kept) > 1 else rows[:2]


class Near(NamedTuple):
    """The nearest anchors of rows, ``(replicas, rows, k)`` each."""

    distances: Tensor
    places: Tensor
    own: Tensor
    """Mean of the neighbours' own mean log-distances, ``(replicas, rows)``; equally distant anchors share a place."""


class NeighbourField(nn.Module):
    """The field as a potential, high = near.

    An anchor within ε of a row does not count as its neighbour, so training rows score as new rows do. An exact match
    is not needed: numbers that are given in 32 bits, or read by another program, differ by rounding.

    Replicas each have anchors of their own, as one more dimension in front of all buffers.

    Args:
        event_shape: Shape of one row.
        config: Number of neighbours and anchors.

    Example:
        >>> field = Neighbours(k=2).build((1,))
        >>> field.fit(torch.arange(10.0)[:, None], torch.Generator().manual_seed(0))
        >>> u = field(torch.tensor([[4.0], [4.5], [20.0]]))
        >>> bool(u[2] < u[0] < u[1])
        True
    """

    GROWS: ClassVar = {"anchors": -2, "own": -1}
    """The dimension of each buffer whose length depends on the fit; that length is the same for all."""
    FEWEST: ClassVar = 2
    """The smallest such length."""

    anchors: Tensor
    own: Tensor
    epsilon: Tensor
    middle: Tensor
    spread: Tensor

    def __init__(self, event_shape: Shape, config: Neighbours) -> None:
        super().__init__()
        self.event_shape, self.config, self.n = tuple(event_shape), config, 1
        self.register_buffer("anchors", torch.zeros(2, size_of(event_shape)))
        self.register_buffer("own", torch.zeros(2))
        self.register_buffer("epsilon", torch.ones(()))
        self.register_buffer("middle", torch.zeros(()))
        self.register_buffer("spread", torch.ones(()))

    @torch.no_grad()
    def fit(self, rows: Tensor, rng: torch.Generator) -> None:
        """Draw anchors from rows, and learn how far apart they are."""
        flat = rows.flatten(1).to(self.anchors)
        if len(flat) < 2:
            raise InputError(f"neighbours need at least 2 rows, got {len(flat)}")
        shuffled = flat[torch.randperm(len(flat), generator=rng)[: REPEATS * self.config.max_anchors].to(flat.device)]
        self.anchors = distinct(shuffled)[: self.config.max_anchors]
        self.own = flat.new_zeros(len(self.anchors))
        first = self._near(self.anchors).distances[0, :, 0]
        apart_from_others = first[first > 0]
        size = float(apart_from_others.median()) if len(apart_from_others) else 1.0
        self.epsilon.fill_(max(FLOOR * size, LEAST_EPSILON))
        self.own = self._logs(self._near(self.anchors).distances)[0]
        raw = self._raw(self._near(self.anchors))
        self.middle.fill_(float(raw.mean()))
        self.spread.fill_(max(float(raw.std(correction=0)), LEAST_SPREAD))

    @property
    def k(self) -> int:
        """Number of neighbours."""
        return min(self.config.k, self.anchors.shape[-2] - 1)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            raw = self._raw(self._near(x))
            return ((self.middle.view(self.n, 1) - raw) / self.spread.view(self.n, 1)).flatten()

    def gradient(self, x: Tensor) -> Tensor:
        """``∇u``, in closed form; the neighbours' own part is constant as long as the neighbours are the same."""
        return self.value_and_gradient(x)[1]

    @torch.no_grad()
    def value_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """``u`` and its gradient, from one search."""
        near = self._near(x)
        value = (self.middle.view(self.n, 1) - self._raw(near)) / self.spread.view(self.n, 1)
        points = apart(x.flatten(1), self.n)
        steep = 1 / (near.distances * (near.distances + self.epsilon.view(self.n, 1, 1)))
        steep = torch.where(near.distances > 0, steep, 0.0)  # 0 on top of an anchor, where there is no direction away
        away = points[:, :, None] - self._at(near.places)
        slope = -(steep[..., None] * away).mean(2) / self.spread.view(self.n, 1, 1)
        return value.flatten(), slope.reshape(x.shape)

    @torch.no_grad()
    def nearest(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The nearest anchors of rows and their distances, ``(rows, k, size)`` and ``(rows, k)``.

        Replicas have anchors of their own; those of the first are returned.
        """
        near = self._near(x.repeat(self.n, *(1,) * (x.ndim - 1)))
        return self._at(near.places)[0], near.distances[0]

    def stacked(self, fields: Sequence[Self]) -> Self:
        """Stack the modules of all replicas into one."""
        together = copy.deepcopy(self)
        together.n = len(fields)
        for name, _ in self.named_buffers():
            together.register_buffer(name, torch.stack([one.get_buffer(name) for one in fields]))
        return together

    # ------------------------------------------------------------------------------------------------------ the search

    def _near(self, x: Tensor) -> Near:
        points = apart(x.flatten(1), self.n)
        anchors = self.anchors.view(self.n, *self.anchors.shape[-2:])
        squares = anchors.square().sum(2)
        share = max(1, CELLS // (self.n * anchors.shape[1]))  # of rows whose distances stay in the cache
        parts = [self._search(part, anchors, squares) for part in torch.split(points, share, 1)]
        return Near(*(torch.cat(found, 1) for found in zip(*parts, strict=True)))

    def _search(self, points: Tensor, anchors: Tensor, squares: Tensor) -> Near:
        """Find the nearest few by matrix products, then compute their distances without those rounding errors."""
        k, n_found = self.k, min(self.k + 2, anchors.shape[1])
        by_products = torch.baddbmm(squares[:, None], points, anchors.mT, alpha=-2)  # without the rows' own squares
        found = by_products.topk(n_found, dim=2, largest=False).indices
        distances = (points[:, :, None] - self._at(found)).square().sum(3).sqrt()
        distances, order = distances.sort(2)
        places = found.gather(2, order)
        if n_found < k + 2:  # infinitely far away
            distances = nn.functional.pad(distances, (0, 1), value=math.inf)
            places = nn.functional.pad(places, (0, 1))
        itself = distances[:, :, :1] <= self.epsilon.view(self.n, 1, 1)
        farther = torch.where(itself, distances[:, :, k + 1 :], distances[:, :, k : k + 1])[:, :, 0]
        distances = torch.where(itself, distances[:, :, 1 : k + 1], distances[:, :, :k])
        places = torch.where(itself, places[:, :, 1 : k + 1], places[:, :, :k])
        own = self._own.gather(1, places.flatten(1)).view(places.shape).mean(2)
        last = distances[:, :, -1]
        slack = TIE * (1 + points.square().sum(2) + squares.amax(1, keepdim=True).clamp_max(1e30))
        tied = farther.square() - last.square() <= slack
        if bool(tied.any()):
            own = torch.where(tied, self._shared(by_products, points, distances, places, slack), own)
        return Near(distances, places, own)

    def _shared(self, by_products: Tensor, points: Tensor, distances: Tensor, places: Tensor, slack: Tensor) -> Tensor:
        """``Near.own`` where several anchors are as far away as the last neighbour: they share the places left."""
        last = distances[:, :, -1:].square()
        level = (by_products - (last - points.square().sum(2, keepdim=True))).abs() <= slack[:, :, None]
        closer = last - distances.square() > slack[:, :, None]
        mean = (level.to(points) @ self._own[:, :, None])[:, :, 0] / level.sum(2).clamp_min(1)
        before = self._own.gather(1, places.flatten(1)).view(places.shape)
        return torch.where(closer, before, mean[:, :, None]).mean(2)

    def _at(self, places: Tensor) -> Tensor:
        """Anchors by their indices."""
        size = self.anchors.shape[-1]
        if self.n == 1:  # whole rows at once
            return self.anchors.view(-1, size).index_select(0, places.flatten()).view(*places.shape, size)
        flat = self.anchors.view(self.n, -1, size).gather(1, places.flatten(1)[:, :, None].expand(-1, -1, size))
        return flat.view(*places.shape, size)

    @property
    def _own(self) -> Tensor:
        return self.own.view(self.n, -1)

    def _logs(self, distances: Tensor) -> Tensor:
        return torch.log(distances + self.epsilon.view(self.n, 1, 1)).mean(2)

    def _raw(self, near: Near) -> Tensor:
        """The field before it is standardised; high = far, ``(replicas, rows)``."""
        return self._logs(near.distances) - self.config.share * near.own

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        for name, buffer in list(self.named_buffers(recurse=False)):
            stored = state.get(prefix + name)
            if stored is not None and stored.shape != buffer.shape:
                setattr(self, name, buffer.new_empty(stored.shape))
        super()._load_from_state_dict(state, prefix, *rest)
