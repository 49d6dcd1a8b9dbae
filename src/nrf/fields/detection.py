"""The field of the detector: neighbours times a density, a network around a mixture of Gaussians.

``u(x) = (a(x) + w b(x)) / (1 + w)``, where ``a`` is the field of neighbours and ``b`` the log-density in nats, less its
mean over held-out rows, by its standard deviation there; both are about a standard normal's on normal rows. Where ``b``
is below −3 its logarithm counts: one factor alone must not decide everything.

Tables with categories have a third factor, a tree of pairs of columns (:mod:`nrf.fields.pairs`):
``u = (a + w b + v c) / (1 + w + v)``.

The density is ``log r(x) + λ u(x) − log Z`` (:mod:`nrf.fields.referenced`). λ is what held-out rows ask for, so a
network that has learned nothing has no say, and the field is that of its reference and of the neighbours: a floor.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn

from nrf.errors import InputError
from nrf.fields.nats import log_density
from nrf.fields.neighbours import NeighbourField, Neighbours
from nrf.fields.pairs import PairField, PairTree
from nrf.fields.referenced import (
    STRENGTHS,
    Choice,
    NetworkChoice,
    Referenced,
    ReferencedLevels,
    best_strength,
    normalise,
)
from nrf.fields.references import AnyReference, MixtureReference, ReferenceMeasure
from nrf.models import apart, frozen, gradient
from nrf.networks import LevelsMLPPotential, Shape
from nrf.seeds import randn

TAIL = 3.0
"""Standard deviations below the mean from which on the logarithm of the distance counts."""
LEAST_SPREAD = 1e-3
"""In nats: rows that are all as likely say nothing about it."""
LEAST_GAIN = 1e-3
"""Nats per held-out row that count as a gain: less than that a network has before it is trained, too."""


class DetectionField(nn.Module):
    """The product as a potential, high = normal; a learner of noise levels learns the density in it.

    Before :func:`settle` it is the density alone, as it is learned.

    Args:
        density: A network around a reference.
        neighbours: The field of neighbours; none, and the field is the density.
        weight: w.
        units: What each column is multiplied by before; nothing, if there are none. Density and neighbours themselves
            take rows in these units, and so do pairs.
        pairs: The field of pairs of columns beside the two, if there is one.
    """

    def __init__(
        self,
        density: ReferencedLevels,
        neighbours: NeighbourField | None,
        weight: float,
        units: Sequence[float] = (),
        pairs: PairField | None = None,
    ) -> None:
        super().__init__()
        self.density, self.neighbours, self.standing = density, neighbours, Standing()
        self.pairs = pairs
        self.weight, self.units = weight, tuple(units)

    def scaled(self, x: Tensor) -> Tensor:
        """Rows in the units of density and neighbours."""
        return x * x.new_tensor(self.units) if self.units else x

    def forward(self, x: Tensor) -> Tensor:
        x = self.scaled(x)
        b: Tensor = self.density(x)
        if self.neighbours is None or not self.standing.is_known:
            return b
        a: Tensor = self.neighbours(x)
        total: Tensor = a + self.weight * self.standing(b)
        if self.pairs is not None:
            total = total + self.pairs.config.weight * self.pairs(x)
        return total / self.total_weight

    @property
    def total_weight(self) -> float:
        """Of all factors."""
        return 1 + self.weight + (0.0 if self.pairs is None else self.pairs.config.weight)

    def log_density(self, x: Tensor) -> Tensor:
        """Of the density alone, in nats."""
        found: Tensor = self.density(self.scaled(x))
        return found

    def gradient(self, x: Tensor) -> Tensor:
        """``∇u``, in closed form where the network has one; pairs have no slope."""
        x = self.scaled(x)
        slope = self.density.gradient(x)
        if self.neighbours is None or not self.standing.is_known:
            return self.scaled(slope)
        with torch.no_grad():
            steep = self.standing.slope(self.density(x)).view(-1, *(1,) * (x.ndim - 1))
        return self.scaled((gradient(self.neighbours, x) + self.weight * steep * slope) / self.total_weight)

    def start_from(self, x: Tensor, rng: torch.Generator | None = None) -> None:
        """Fit the reference to rows in the units of the density."""
        self.density.start_from(x, rng)


class Standing(nn.Module):
    """``(b − m) / s``, the logarithm of what is below −3: where a log-density stands among those of normal rows."""

    middle: Tensor
    spread: Tensor
    n_rows: Tensor
    """Rows that the field knows; 0 before it is settled."""

    def __init__(self) -> None:
        super().__init__()
        self.n = 1
        self.register_buffer("middle", torch.zeros(()))
        self.register_buffer("spread", torch.ones(()))
        self.register_buffer("n_rows", torch.zeros((), dtype=torch.int64))

    @property
    def is_known(self) -> bool:
        """Whether it was fitted."""
        return bool((self.n_rows > 0).all())

    def fit(self, values: Tensor, n_rows: int) -> None:
        """Take mean and deviation of log-densities of normal rows; of one model, which knows so many rows."""
        self.middle.copy_(values.mean())
        self.spread.copy_(values.std(correction=0).clamp_min(LEAST_SPREAD))
        self.n_rows.fill_(n_rows)

    def forward(self, values: Tensor) -> Tensor:
        z = self._z(values)
        return torch.where(z < -TAIL, -TAIL - torch.log1p((-TAIL - z).clamp_min(0)), z).flatten()

    def slope(self, values: Tensor) -> Tensor:
        """The derivative."""
        z = self._z(values)
        steep = torch.where(z < -TAIL, 1 / (1 + (-TAIL - z).clamp_min(0)), 1.0)
        return (steep / self.spread.view(self.n, 1)).flatten()

    def stacked(self, standings: Sequence[Self]) -> Self:
        """Those of all replicas."""
        together = copy.deepcopy(self)
        together.n = len(standings)
        for name, _ in self.named_buffers():
            together.register_buffer(name, torch.stack([one.get_buffer(name) for one in standings]))
        return together

    def _z(self, values: Tensor) -> Tensor:
        return (apart(values, self.n) - self.middle.view(self.n, 1)) / self.spread.view(self.n, 1)


@dataclass(frozen=True)
class Detection:
    """What builds the detector's field."""

    network: NetworkChoice = field(default_factory=LevelsMLPPotential)
    """The network, with noise levels."""
    reference: AnyReference = field(default_factory=MixtureReference)
    """The reference of the density."""
    bound: float | None = 5.0
    """The network says at most so many nats; not bounded if not given."""
    neighbours: Neighbours | None = field(default_factory=Neighbours)
    """The field of neighbours; none for the density alone."""
    weight: float = 0.5
    """Of the density beside the neighbours."""
    units: tuple[float, ...] = ()
    """What each column is multiplied by before."""
    data_init: bool = True
    """Fit the reference to training rows before training."""
    pairs: PairTree | None = None
    """The tree of pairs of columns beside neighbours and density, if there is one."""

    @property
    def bias_spread(self) -> float:
        """The network begins near 0."""
        return 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.weight < float("inf"):
            raise InputError(f"weight must be finite and not negative, got {self.weight}")
        if self.pairs is not None and self.neighbours is None:
            raise InputError("pairs stand beside neighbours; give these, too, or leave out both for the density alone")

    def build(self, event_shape: Shape) -> DetectionField:
        """The field, before it is fitted."""
        density = Referenced(self.network, self.reference, self.bound).build(event_shape)
        if not isinstance(density, ReferencedLevels):
            raise InputError(f"{type(self.network).__name__} has no noise levels; take LevelsMLPPotential")
        neighbours = None if self.neighbours is None else self.neighbours.build(event_shape)
        if self.units and event_shape != (len(self.units),):
            raise InputError(f"there are {len(self.units)} units for rows of shape {event_shape}")
        pairs = None if self.pairs is None else self.pairs.build(event_shape)
        return DetectionField(density, neighbours, self.weight, self.units, pairs)


class HeldOut:
    """What held-out rows say about a density while it is learned: how much of the network holds.

    Args:
        density: One model; its reference is fitted, and stays as it is.
        rows: Held-out rows.
        rng: All randomness: noise of the smallest level on the rows, and draws of the reference.
        n_draws: Draws of the reference.
    """

    def __init__(self, density: ReferencedLevels, rows: Tensor, rng: torch.Generator, n_draws: int = 4096) -> None:
        sigma = density.sigmas[0]
        self.rows = rows + sigma * randn(rows.shape, rng, rows.dtype)
        self.draws = density.measure.sample(n_draws, rng, sigma)

    @torch.no_grad()
    def choice(self, density: ReferencedLevels) -> Choice:
        """λ as the rows would have it now; 0 where it gains nothing over the reference, or less than its error."""
        with frozen(density):
            said, drawn = (density.tilt.bounded(density.outputs(x))[:, 0] for x in (self.rows, self.draws))
        found = best_strength(said.double(), drawn.double(), STRENGTHS)
        least = max(LEAST_GAIN, found.standard_error)
        return found if found.gain > least else Choice(0.0, 0.0, found.standard_error)


class Ground(NamedTuple):
    """What a field that scores stands on, fitted to all rows."""

    rows: Tensor
    n_rows: int
    """How many rows those stand for."""
    measure: ReferenceMeasure
    neighbours: NeighbourField | None
    pairs: PairField | None = None


def ground_of(
    potential: DetectionField, rows: Tensor, n_rows: int, rng: torch.Generator, pairs: PairField | None = None
) -> Ground:
    """Fit copies of a model's reference and neighbours to rows.

    Args:
        potential: One model.
        rows: All rows.
        n_rows: How many rows those stand for.
        rng: All randomness.
        pairs: The field of pairs, which is fitted already; a copy of the model's own, if it is not given.
    """
    measure, neighbours = copy.deepcopy(potential.density.measure), copy.deepcopy(potential.neighbours)
    measure.fit(rows, rng)
    if neighbours is not None:
        neighbours.fit(rows, rng)
    return Ground(rows, n_rows, measure, neighbours, copy.deepcopy(potential.pairs if pairs is None else pairs))


@torch.no_grad()
def settle(potential: DetectionField, held: HeldOut | None, ground: Ground, rng: torch.Generator) -> Choice:
    """Make of a learned density the field that scores.

    Held-out rows choose λ, and say where log-densities of normal rows lie. Then all rows count: reference, neighbours
    and pairs become those of the ground, and the normaliser is found.

    Args:
        potential: One model, after training; it is changed.
        held: Of rows that were kept out of training; without them λ is 0, and all rows say where log-densities lie.
        ground: Fitted to all rows.
        rng: All randomness.
    """
    density = potential.density
    choice = Choice(0.0, 0.0, 0.0) if held is None else held.choice(density)
    density.tilt.strength.fill_(choice.strength)
    if held is not None:
        normalise(density, rng)
        potential.standing.fit(log_density(density, held.rows), ground.n_rows)
    density.measure = ground.measure
    normalise(density, rng)
    if held is None:
        potential.standing.fit(log_density(density, ground.rows), ground.n_rows)
    potential.neighbours, potential.pairs = ground.neighbours, ground.pairs
    return choice
