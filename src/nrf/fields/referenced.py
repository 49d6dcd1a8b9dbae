"""Fields around a reference: ``log p(x) = log r(x) + λ u(x) − log Z``, with a bounded network ``u``.

The network learns the difference between the data and the reference. It is bounded by ``c tanh(u / c)``, so ``log p``
is nowhere farther than ``2 λ c`` from ``log r``: far from all rows, the field is that of the reference. Any learner of
fields trains it with λ = 1; afterwards :func:`choose_strength` sets λ by held-out rows.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self, Union

import torch
from torch import Tensor, nn

from nrf.errors import InputError
from nrf.fields.references import AnyReference, MixtureReference, ReferenceMeasure
from nrf.models import apart, frozen, gradient, value_and_gradient
from nrf.networks import POTENTIALS, PotentialConfig, Shape, data_dependent_init
from nrf.networks.closed_form import Plain, linearised
from nrf.networks.levels import Level, NoiseLevelPotential, Reference
from nrf.seeds import randn, stream

if TYPE_CHECKING:
    NetworkChoice = PotentialConfig
else:
    NetworkChoice = Union[tuple(POTENTIALS.values())]  # noqa: UP007

STRENGTHS = tuple(i / 20 for i in range(21))
"""Values of λ that are compared."""
NETWORK_ROWS = 2000
"""Largest number of rows for the data-dependent initialisation of the network."""


class Tilt(nn.Module):
    """``λ c tanh(u / c) − log Z``, for one level or several.

    Args:
        bound: The bound c; none if not given.
        n_levels: Number of levels; each has a normaliser.
    """

    strength: Tensor
    log_normaliser: Tensor
    known: Tensor

    def __init__(self, bound: float | None, n_levels: int = 1) -> None:
        super().__init__()
        if bound is not None and not 0 < bound < math.inf:
            raise InputError(f"the bound of a network must be positive and finite, got {bound}")
        self.bound, self.n = bound, 1
        self.register_buffer("strength", torch.ones(()))
        self.register_buffer("log_normaliser", torch.zeros(n_levels))
        self.register_buffer("known", torch.zeros((), dtype=torch.bool))

    def forward(self, raw: Tensor) -> Tensor:
        """Apply the tilt to the network's outputs ``(n, levels)``."""
        shift = self.log_normaliser.view(self.n, 1, -1)
        return (self._strength * apart(self.bounded(raw), self.n) - shift).flatten(0, 1)

    def bounded(self, raw: Tensor) -> Tensor:
        """``c tanh(u / c)``."""
        return raw if self.bound is None else self.bound * torch.tanh(raw / self.bound)

    def slope(self, raw: Tensor) -> Tensor:
        """The derivative with respect to the network's outputs, ``(n, levels)``."""
        inner = torch.ones_like(raw) if self.bound is None else 1 - torch.tanh(raw / self.bound).square()
        return (self._strength * apart(inner, self.n)).flatten(0, 1)

    def reset(self) -> None:
        """Return to the state before training: λ = 1, Z unknown."""
        self.strength.fill_(1.0)
        self.log_normaliser.zero_()
        self.known.fill_(False)

    def stacked(self, tilts: Sequence[Self]) -> Self:
        """Stack the modules of all replicas into one."""
        together = copy.deepcopy(self)
        together.n = len(tilts)
        for name, _ in self.named_buffers():
            together.register_buffer(name, torch.stack([one.get_buffer(name) for one in tilts]))
        return together

    @property
    def _strength(self) -> Tensor:
        return self.strength.view(self.n, 1, 1)


class ReferencedPotential(nn.Module):
    """``log r(x) + λ c tanh(u(x) / c) − log Z`` as a potential, for any learner that takes one.

    Until :func:`choose_strength` or :func:`normalise` has found Z, 1 is used in its place, and the potential is known
    up to a constant.

    Args:
        network: ``u``, with or without a gradient in closed form.
        measure: The reference ``r``.
        bound: The bound c; none if not given.
        bias_spread: Spread of biases in the network's data-dependent initialisation, which is skipped if not given.

    Example:
        >>> from nrf.networks import MLPPotential
        >>> p = Referenced(MLPPotential(widths=(8,)), MixtureReference(n_components=3)).build((2,))
        >>> rows = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
        >>> p.start_from(rows)
        >>> bool(((p(rows) - p.measure(rows)).abs() <= 5).all())
        True
    """

    def __init__(
        self,
        network: nn.Module,
        measure: ReferenceMeasure,
        bound: float | None,
        bias_spread: float | None = None,
    ) -> None:
        super().__init__()
        self.network, self.measure, self.tilt = network, measure, Tilt(bound)
        self.bias_spread = bias_spread
        self.sigmas = (0.0,)

    def forward(self, x: Tensor) -> Tensor:
        tilt: Tensor = self.tilt(self.outputs(x))
        return self.measure.log_density(x) + tilt[:, 0]

    @property
    def is_normalised(self) -> bool:
        """Whether Z was found, so that values are in nats."""
        return bool(self.tilt.known.all())

    def outputs(self, x: Tensor) -> Tensor:
        """Outputs of the network before they are bounded, ``(n, 1)``."""
        out: Tensor = self.network(x)
        return out[:, None]

    def gradient(self, x: Tensor) -> Tensor:
        """``∇ log p``, in closed form where the network has one."""
        return self.value_and_gradient(x)[1]

    def value_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """``log p`` and its gradient, by one evaluation of the network."""
        raw, slope = value_and_gradient(self.network, x)
        with torch.no_grad():
            value = self.measure.log_density(x) + self.tilt(raw[:, None])[:, 0]
            steep = self.tilt.slope(raw[:, None]).view(-1, *(1,) * (x.ndim - 1))
            return value, self.measure.gradient(x) + steep * slope

    def start_from(self, x: Tensor, rng: torch.Generator | None = None) -> None:
        """Data-dependent initialisation: fit the reference to rows, and start the network from them if asked to.

        Args:
            x: Training rows, all of them; the network starts from some.
            rng: Source of all randomness; one of seed 0 if not given.
        """
        rng = stream(0, "reference") if rng is None else rng
        self.measure.fit(x, rng)
        if self.bias_spread is not None:
            some = x[torch.randperm(len(x), generator=rng)[:NETWORK_ROWS].to(x.device)]
            data_dependent_init(self.network, some, self.bias_spread, rng)


class ReferencedLevels(NoiseLevelPotential):
    """``u(x, σ_k) = log r_{σ_k}(x) + λ c tanh(r_k(x) / c) − log Z_k``: a noise-level potential around any reference.

    The Gaussian of a noise-level potential is kept: it scales the rows, and the widest level is compared with it.

    Args:
        body: The network, ``(n, *event)`` to ``(n, levels)``.
        sigmas: Noise of each level, ascending.
        reference: The Gaussian.
        measure: The reference ``r``.
        bound: The bound c; none if not given.
    """

    def __init__(
        self,
        body: nn.Module,
        sigmas: Sequence[float],
        reference: Reference,
        measure: ReferenceMeasure,
        bound: float | None,
    ) -> None:
        super().__init__(body, sigmas, reference)
        self.measure, self.tilt = measure, Tilt(bound, len(sigmas))

    @property
    def is_normalised(self) -> bool:
        """Whether Z was found at every level, by draws of the reference."""
        return bool(self.tilt.known.all())

    def forward(self, x: Tensor, level: Level = 0) -> Tensor:
        if not isinstance(level, int):
            return super().forward(x, level)
        known = self.measure.log_density(x, self.sigmas[level])  # of one level only
        if not self.training and not bool(self.tilt.strength.any()):  # λ = 0, so the network is not needed
            shift = self.tilt.log_normaliser.view(self.tilt.n, 1, -1)[:, :, level]
            return (apart(known, self.tilt.n) - shift).flatten()
        tilt: Tensor = self.tilt(self.outputs(x))
        return known + tilt[:, level]

    def levels(self, x: Tensor, own: Tensor | None = None) -> Tensor:
        """The potential at every level, without the kernels in ``own`` (:meth:`ReferenceMeasure.own`), if given."""
        tilt: Tensor = self.tilt(self.outputs(x))
        return tilt + self.measure.log_densities(x, self.sigmas, own)

    def levels_to_learn(self, x: Tensor, level: Tensor, own: Tensor | None = None) -> Tensor:
        """All levels, for training: the reference has no parameters, so its part is not differentiated twice.

        Values are those of :meth:`levels`, and so is the first derivative in x of each row's own level. The reference
        adds nothing to other levels' derivatives, nor to second ones.
        """
        there = x.detach()
        known = self.measure.log_densities(there, self.sigmas, own)
        slope = self.measure.gradient(there, x.new_tensor(self.sigmas)[level], own)
        line = ((x - there) * slope).flatten(1).sum(1)  # the value 0, with the reference's gradient
        tilt: Tensor = self.tilt(self.outputs(x))
        return (tilt + known).scatter_add(1, level[:, None], line[:, None])

    def outputs(self, x: Tensor) -> Tensor:
        """Outputs of the network before they are bounded, ``(n, levels)``."""
        out: Tensor = self.body(self.reference.scaled(x))
        return out.to(x.dtype)

    def gradient(self, x: Tensor, level: Level = 0) -> Tensor:
        at = self._of_rows(level, x)
        if not (isinstance(self.body, Plain) and self.body.has_closed_form):
            return gradient(lambda rows: self(rows, at), x)
        with torch.no_grad():
            out, pull_back = linearised(self.body, self.reference.scaled(x))
            chosen = self.tilt.slope(out) * nn.functional.one_hot(at, out.shape[1]).to(out.dtype)
            slope = apart(pull_back(chosen).flatten(1), self.reference.n) / self.reference.scale()
            sigma = self.sigmas[level] if isinstance(level, int) else x.new_tensor(self.sigmas)[at]
            return slope.reshape(x.shape) + self.measure.gradient(x, sigma)

    def start_from(self, x: Tensor, rng: torch.Generator | None = None) -> None:
        """Fit the Gaussian and the reference to rows; ``rng`` is one of seed 0 if not given."""
        super().start_from(x)
        self.measure.fit(x, stream(0, "reference") if rng is None else rng)


AnyReferenced = ReferencedPotential | ReferencedLevels


@dataclass(frozen=True)
class Referenced:
    """Configuration of a potential around a reference, with any network of potentials."""

    network: NetworkChoice
    """The network; one with noise levels makes a noise-level potential."""
    reference: AnyReference = field(default_factory=MixtureReference)
    """The reference measure."""
    bound: float | None = 5.0
    """Largest output of the network, in nats; not bounded if not given."""

    @property
    def data_init(self) -> bool:
        """The reference is always fitted to training rows; the network inside starts as its own settings say."""
        return True

    @property
    def bias_spread(self) -> float:
        """0: the network inside uses the one of its own settings."""
        return 0.0

    def build(self, event_shape: Shape) -> AnyReferenced:
        """The potential, before its reference is fitted."""
        inner, measure = self.network.build(event_shape), self.reference.build(event_shape)
        if isinstance(inner, NoiseLevelPotential):
            return ReferencedLevels(inner.body, inner.sigmas, inner.reference, measure, self.bound)
        spread = self.network.bias_spread if self.network.data_init else None
        return ReferencedPotential(inner, measure, self.bound, spread)


@dataclass(frozen=True)
class Choice:
    """The λ that held-out rows chose, and its gain."""

    strength: float
    """λ."""
    gain: float
    """Nats per held-out row that the field gains over its reference alone; 0 where the network is not used."""
    standard_error: float
    """Standard error of the gain, from the rows and from the draws that the normaliser was estimated by."""


def choose_strength(
    potential: AnyReferenced,
    rows: Tensor,
    rng: torch.Generator,
    *,
    strengths: Sequence[float] = STRENGTHS,
    n_draws: int = 8192,
) -> Choice:
    """Set λ to the value under which held-out rows are most likely, and Z to the normaliser for that λ.

    ``Z(λ) = E_r[exp(λ u)]`` is the mean over exact draws of the reference. The likelihood is concave in λ, and λ = 0
    is the reference itself, so the field is never worse on these rows than its reference. A noise-level potential is
    judged at its smallest level, on rows blurred by that; all levels get their normalisers.

    Args:
        potential: One model, after training; it is changed.
        rows: Held-out rows.
        rng: Source of all randomness.
        strengths: Values of λ, each from 0 to 1.
        n_draws: Number of draws of the reference.

    Returns:
        λ, its gain and the standard error of that.
    """
    if len(rows) == 0 or not strengths or not all(0 <= one <= 1 for one in strengths):
        raise InputError("λ is chosen from values in [0, 1], by at least one held-out row")
    blurred = rows + potential.sigmas[0] * randn(rows.shape, rng, rows.dtype) if potential.sigmas[0] > 0 else rows
    with torch.no_grad(), frozen(potential):
        said = potential.tilt.bounded(potential.outputs(blurred))[:, 0].double()
        drawn = _outputs_of_draws(potential, n_draws, rng)
    found = best_strength(said, drawn[0], strengths)
    _set(potential, found.strength, drawn)
    return found


def best_strength(said: Tensor, drawn: Tensor, strengths: Sequence[float]) -> Choice:
    """The value of λ under which held-out rows are most likely, among some values.

    Args:
        said: Outputs of the bounded network at held-out rows.
        drawn: Its outputs at draws of the reference.
        strengths: Values of λ.
    """
    gains = [float(one * said.mean()) - _log_mean(one * drawn) for one in strengths]
    best = max(range(len(gains)), key=gains.__getitem__)
    strength = strengths[best]
    weights = torch.exp(strength * (drawn - drawn.max()))
    error = math.hypot(
        float(strength * said.std(correction=0)) / math.sqrt(len(said)),
        float(weights.std() / weights.mean()) / math.sqrt(len(drawn)),
    )
    return Choice(strength, gains[best], error)


def normalise(potential: AnyReferenced, rng: torch.Generator, *, n_draws: int = 8192) -> float:
    """Find Z at the current strength λ, by exact draws of the reference.

    Args:
        potential: One model; its normaliser is set.
        rng: Source of all randomness.
        n_draws: Number of draws of the reference.

    Returns:
        The standard error of log Z.
    """
    strength = float(potential.tilt.strength)
    if strength == 0:  # the reference itself
        _set(potential, 0.0, [torch.zeros(1)] * len(potential.sigmas))
        return 0.0
    with torch.no_grad(), frozen(potential):
        drawn = _outputs_of_draws(potential, n_draws, rng)
    _set(potential, strength, drawn)
    weights = torch.exp(strength * (drawn[0] - drawn[0].max()))
    return float(weights.std() / weights.mean()) / math.sqrt(n_draws)


def _outputs_of_draws(potential: AnyReferenced, n: int, rng: torch.Generator) -> list[Tensor]:
    """Outputs of the bounded network at draws of the reference, level by level."""
    if potential.tilt.n != 1:
        raise InputError("a normaliser is found for one model at a time, not for replicas")
    found = []
    for level, sigma in enumerate(potential.sigmas):
        draws = potential.measure.sample(n, rng, sigma)
        found.append(potential.tilt.bounded(potential.outputs(draws))[:, level].double())
    return found


def _set(potential: AnyReferenced, strength: float, drawn: Sequence[Tensor]) -> None:
    tilt = potential.tilt
    tilt.strength.fill_(strength)
    tilt.log_normaliser.copy_(torch.tensor([_log_mean(strength * one) for one in drawn]))
    tilt.known.fill_(True)


def _log_mean(values: Tensor) -> float:
    return float(torch.logsumexp(values, 0)) - math.log(len(values))
