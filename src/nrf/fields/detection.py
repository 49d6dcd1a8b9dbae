"""The detector's field: a field of neighbours times a density, which is a network around a mixture of Gaussians.

``u(x) = (a(x) + w b(x)) / (1 + w)``, where ``a`` is the field of neighbours and ``b`` the log-density in nats,
standardised by its mean and standard deviation over held-out rows; on normal rows both are roughly standard normal.
Below −3, ``b`` falls only logarithmically, so that one factor alone does not decide everything.

Tables with categories have a third factor, a tree of pairs of columns (:mod:`nrf.fields.pairs`):
``u = (a + w b + v c) / (1 + w + v)``.

The density is ``log r(x) + λ u(x) − log Z`` (:mod:`nrf.fields.referenced`). Held-out rows choose λ. For a network that
has learned nothing it is 0, and the field falls back to its reference and the neighbours.
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
"""Standard deviations below the mean beyond which the log-density counts only by the logarithm of its distance."""
LEAST_SPREAD = 1e-3
"""Smallest standard deviation, in nats; rows that are all equally likely would give 0."""
LEAST_GAIN = 1e-3
"""Smallest gain that counts, in nats per held-out row; an untrained network, too, can gain less than this."""


class DetectionField(nn.Module):
    """The product of fields as a potential, high = normal; a learner of noise levels trains the density in it.

    Before :func:`settle` it is the density alone.

    Args:
        density: A network around a reference.
        neighbours: The field of neighbours; ``None`` leaves the density alone.
        weight: The weight w of the density.
        units: The factor that each column is multiplied by first; no factors if empty. Density, neighbours and pairs
            take rows in these units.
        pairs: The field of pairs of columns, if there is one.
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
        """The sum of the weights of all factors."""
        return 1 + self.weight + (0.0 if self.pairs is None else self.pairs.config.weight)

    def log_density(self, x: Tensor) -> Tensor:
        """The log-density of the density alone, in nats."""
        found: Tensor = self.density(self.scaled(x))
        return found

    def gradient(self, x: Tensor) -> Tensor:
        """``∇u``, in closed form where the network has one; pairs have a gradient of 0."""
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
    """Standardises log-densities by those of normal rows: ``(b − m) / s``, with a logarithmic tail below −3."""

    middle: Tensor
    spread: Tensor
    n_rows: Tensor
    """Number of rows that the field is fitted to; 0 before it is settled."""

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
        """Take the mean and standard deviation of log-densities of normal rows, for one model fitted to ``n_rows``."""
        self.middle.copy_(values.mean())
        self.spread.copy_(values.std(correction=0).clamp_min(LEAST_SPREAD))
        self.n_rows.fill_(n_rows)

    def forward(self, values: Tensor) -> Tensor:
        z = self._z(values)
        return torch.where(z < -TAIL, -TAIL - torch.log1p((-TAIL - z).clamp_min(0)), z).flatten()

    def slope(self, values: Tensor) -> Tensor:
        """The derivative with respect to the log-density."""
        z = self._z(values)
        steep = torch.where(z < -TAIL, 1 / (1 + (-TAIL - z).clamp_min(0)), 1.0)
        return (steep / self.spread.view(self.n, 1)).flatten()

    def stacked(self, standings: Sequence[Self]) -> Self:
        """Stack the modules of all replicas into one."""
        together = copy.deepcopy(self)
        together.n = len(standings)
        for name, _ in self.named_buffers():
            together.register_buffer(name, torch.stack([one.get_buffer(name) for one in standings]))
        return together

    def _z(self, values: Tensor) -> Tensor:
        return (apart(values, self.n) - self.middle.view(self.n, 1)) / self.spread.view(self.n, 1)


@dataclass(frozen=True)
class Detection:
    """Configuration of the detector's field."""

    network: NetworkChoice = field(default_factory=LevelsMLPPotential)
    """The network, with noise levels."""
    reference: AnyReference = field(default_factory=MixtureReference)
    """The reference of the density."""
    bound: float | None = 5.0
    """Largest output of the network, in nats; not bounded if not given."""
    neighbours: Neighbours | None = field(default_factory=Neighbours)
    """The field of neighbours; none for the density alone."""
    weight: float = 0.5
    """Weight of the density relative to the neighbours."""
    units: tuple[float, ...] = ()
    """The factor that each column is multiplied by first; no factors if empty."""
    data_init: bool = True
    """Fit the reference to training rows before training."""
    pairs: PairTree | None = None
    """The tree of pairs of columns as a third factor, if there is one."""

    @property
    def bias_spread(self) -> float:
        """The network begins near 0."""
        return 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.weight < float("inf"):
            raise InputError(f"weight must be finite and not negative, got {self.weight}")
        if self.pairs is not None and self.neighbours is None:
            raise InputError("pairs need neighbours: give these, too, or leave out both for the density alone")

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
    """Held-out rows, by which λ, the share of the network to use, is chosen while a density is learned.

    Args:
        density: One model; its reference is fitted, and is not changed.
        rows: Held-out rows.
        rng: Source of all randomness: noise of the smallest level on the rows, and draws of the reference.
        n_draws: Number of draws of the reference.
    """

    def __init__(self, density: ReferencedLevels, rows: Tensor, rng: torch.Generator, n_draws: int = 4096) -> None:
        sigma = density.sigmas[0]
        self.rows = rows + sigma * randn(rows.shape, rng, rows.dtype)
        self.draws = density.measure.sample(n_draws, rng, sigma)

    @torch.no_grad()
    def choice(self, density: ReferencedLevels) -> Choice:
        """The best λ for the density as it is now; 0 if its gain over the reference is not above its error.

        Args:
            density: The density, as it is learned so far.
        """
        with frozen(density):
            said, drawn = (density.tilt.bounded(density.outputs(x))[:, 0] for x in (self.rows, self.draws))
        found = best_strength(said.double(), drawn.double(), STRENGTHS)
        least = max(LEAST_GAIN, found.standard_error)
        return found if found.gain > least else Choice(0.0, 0.0, found.standard_error)


class Ground(NamedTuple):
    """The parts of a scoring field that are fitted to all rows."""

    rows: Tensor
    n_rows: int
    """Number of training rows that ``rows`` stand for."""
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
        n_rows: Number of training rows that these stand for.
        rng: Source of all randomness.
        pairs: The field of pairs, already fitted; a copy of the model's own if not given.
    """
    measure, neighbours = copy.deepcopy(potential.density.measure), copy.deepcopy(potential.neighbours)
    measure.fit(rows, rng)
    if neighbours is not None:
        neighbours.fit(rows, rng)
    return Ground(rows, n_rows, measure, neighbours, copy.deepcopy(potential.pairs if pairs is None else pairs))


@torch.no_grad()
def settle(potential: DetectionField, held: HeldOut | None, ground: Ground, rng: torch.Generator) -> Choice:
    """Turn a learned density into the field that scores.

    Held-out rows choose λ, and give mean and spread of the log-densities of normal rows. Then all rows are used:
    reference, neighbours and pairs become those of ``ground``, and the normaliser is computed.

    Args:
        potential: One model, after training; it is changed.
        held: Rows that were kept out of training; without them λ is 0, and all rows give mean and spread.
        ground: The parts that are fitted to all rows.
        rng: Source of all randomness.

    Returns:
        λ and its gain.
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
