"""Reference measures ``r(x)``: known densities that a field starts from, or is multiplied with.

Each is a mixture of Gaussians of some kind (one, a few, or one at every anchor), so its log-density is normalised, it
can be sampled exactly, and noise of size σ blurs it exactly: every variance grows by σ². Fitted values are
buffers, so checkpoints hold them like weights. Rows may have any event shape; they are taken as flat vectors.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from nrf.errors import InputError
from nrf.fields.em import fit_mixture, loo_bandwidth
from nrf.models import apart
from nrf.networks import Shape
from nrf.networks.base import size_of
from nrf.networks.levels import Reference
from nrf.seeds import Rng, rand, randn

CELLS = 2**19
"""Number of distances between rows and anchors that are in memory at once."""


class ReferenceMeasure(nn.Module, ABC):
    """Base class of all references. As a module it is a potential: ``forward`` is the log-density.

    Args:
        event_shape: Shape of one row.
    """

    normalised = True
    """Whether the log-density is in nats: the density integrates to 1."""

    def __init__(self, event_shape: Shape) -> None:
        super().__init__()
        self.event_shape = tuple(event_shape)

    def forward(self, x: Tensor) -> Tensor:
        return self.log_density(x)

    @abstractmethod
    def fit(self, rows: Tensor, rng: torch.Generator) -> None:
        """Fit the reference to rows; all randomness comes from ``rng``."""

    @abstractmethod
    def log_densities(self, x: Tensor, sigmas: Sequence[float], own: Tensor | None = None) -> Tensor:
        """``log r_σ(x)`` for every σ, ``(n, len(sigmas))``; the kernels in ``own`` (:meth:`own`) are left out."""

    @abstractmethod
    def gradient(self, x: Tensor, sigma: float | Tensor = 0.0, own: Tensor | None = None) -> Tensor:
        """``∇ log r_σ(x)`` in closed form, with one σ for all rows or one for each."""

    @abstractmethod
    def sample(self, n: int, rng: Rng, sigma: float = 0.0) -> Tensor:
        """``n`` exact draws of ``r_σ``; with replicas, of all of them together."""

    def log_density(self, x: Tensor, sigma: float = 0.0, own: Tensor | None = None) -> Tensor:
        """``log r_σ(x)``, one number per row."""
        return self.log_densities(x, (sigma,), own)[:, 0]

    def own(self, rows: Tensor) -> Tensor | None:
        """The index of the kernel centred at exactly each row, or −1; ``None`` for references without kernels."""
        return None


class NoMeasure(ReferenceMeasure):
    """No reference: ``log r = 0`` everywhere. It has no finite integral, so nothing can be drawn from it."""

    normalised = False

    def fit(self, rows: Tensor, rng: torch.Generator) -> None:
        """There is nothing to learn."""

    def log_densities(self, x: Tensor, sigmas: Sequence[float], own: Tensor | None = None) -> Tensor:
        return x.new_zeros(len(x), len(sigmas))

    def gradient(self, x: Tensor, sigma: float | Tensor = 0.0, own: Tensor | None = None) -> Tensor:
        return torch.zeros_like(x)

    def sample(self, n: int, rng: Rng, sigma: float = 0.0) -> Tensor:
        raise InputError("without a reference there is nothing to draw from; take a Gaussian, a mixture or a kernel")


class GaussianMeasure(ReferenceMeasure):
    """``N(m, S)`` with the mean and covariance of rows: the Gaussian of noise-level potentials."""

    def __init__(self, event_shape: Shape, covariance: Literal["full", "diagonal"]) -> None:
        super().__init__(event_shape)
        self.gaussian = Reference(size_of(event_shape), covariance)

    def fit(self, rows: Tensor, rng: torch.Generator) -> None:
        self.gaussian.fit(rows)

    def log_densities(self, x: Tensor, sigmas: Sequence[float], own: Tensor | None = None) -> Tensor:
        return self.gaussian.log_densities(x, sigmas)

    @torch.no_grad()
    def gradient(self, x: Tensor, sigma: float | Tensor = 0.0, own: Tensor | None = None) -> Tensor:
        return self.gaussian.gradient(x, sigma if isinstance(sigma, Tensor) else x.new_full((len(x),), sigma))

    @torch.no_grad()
    def sample(self, n: int, rng: Rng, sigma: float = 0.0) -> Tensor:
        return self.gaussian.shaped(randn((n, *self.event_shape), rng, self.gaussian.mean.dtype), sigma)


class Components(ReferenceMeasure):
    """Weighted Gaussians with diagonal covariances along axes that all of them share.

    Replicas each have their own, as one more dimension in front of all buffers; all must have as many components.
    """

    GROWS: ClassVar = {"means": -2, "variances": -2, "log_weights": -1}
    """The dimension of each buffer whose length depends on the fit; that length is the same for all."""

    centre: Tensor
    rotation: Tensor
    means: Tensor
    variances: Tensor
    log_weights: Tensor

    def __init__(self, event_shape: Shape) -> None:
        super().__init__(event_shape)
        size = size_of(event_shape)
        self.n = 1
        self.register_buffer("centre", torch.zeros(size))
        self.register_buffer("rotation", torch.zeros(0, 0))
        self.register_buffer("means", torch.zeros(1, size))
        self.register_buffer("variances", torch.ones(1, size))
        self.register_buffer("log_weights", torch.zeros(1))

    def keep(self, **tensors: Tensor) -> None:
        """Set buffers to these values, in the dtype of the measure."""
        for name, value in tensors.items():
            setattr(self, name, value.to(self.centre).contiguous())  # in memory as after loading

    def stacked(self, measures: Sequence[Self]) -> Self:
        """Stack the modules of all replicas into one."""
        sizes = {tuple(one.means.shape) for one in measures}
        if len(sizes) > 1:
            raise InputError(f"replicas need references of one size, got {sorted(sizes)}")
        together = copy.deepcopy(self)
        together.n = len(measures)
        for name, _ in self.named_buffers():
            together.register_buffer(name, torch.stack([one.get_buffer(name) for one in measures]))
        return together

    def log_densities(self, x: Tensor, sigmas: Sequence[float], own: Tensor | None = None) -> Tensor:
        points = self._points(x)
        logits = [self._without(self._logits(points, sigma), own) for sigma in sigmas]
        return torch.stack([torch.logsumexp(one, 2).flatten() for one in logits], 1)

    @torch.no_grad()
    def gradient(self, x: Tensor, sigma: float | Tensor = 0.0, own: Tensor | None = None) -> Tensor:
        points = self._points(x)
        find = self._slope_at_each if isinstance(sigma, Tensor) else self._slope
        return self._back(find(points, sigma, own)).reshape(x.shape)  # type: ignore[arg-type]

    def _slope(self, points: Tensor, sigma: float, own: Tensor | None) -> Tensor:
        shares = torch.softmax(self._without(self._logits(points, sigma), own), 2)
        precisions = 1 / self._blurred(sigma)
        return shares @ (self._means * precisions) - points * (shares @ precisions)

    def _slope_at_each(self, points: Tensor, sigma: Tensor, own: Tensor | None) -> Tensor:
        """The same with a σ for each row; it needs ``rows × components × size`` numbers in memory."""
        variances = self._blurred(0.0)[:, None] + apart(sigma, self.n)[:, :, None, None] ** 2
        away = points[:, :, None] - self._means[:, None]
        logits = self._log_weights[:, None] - (away.square() / variances + torch.log(variances)).sum(3) / 2
        shares = torch.softmax(self._without(logits, own), 2)
        return -(shares[:, :, :, None] * away / variances).sum(2)

    @torch.no_grad()
    def sample(self, n: int, rng: Rng, sigma: float = 0.0) -> Tensor:
        if n % self.n:
            raise InputError(f"{n} draws cannot be shared evenly by {self.n} replicas")
        dtype, size = self.centre.dtype, size_of(self.event_shape)
        places = apart(rand((n,), rng).to(dtype), self.n)
        heaps = torch.softmax(self._log_weights, 1).cumsum(1)
        chosen = torch.searchsorted(heaps, places).clamp_max(heaps.shape[1] - 1)[:, :, None].expand(-1, -1, size)
        noise = apart(randn((n, size), rng, dtype), self.n)
        scales = self._blurred(sigma).sqrt().expand(self._means.shape)
        points = self._means.gather(1, chosen) + scales.gather(1, chosen) * noise
        return (self._back(points) + self.centre.view(self.n, 1, -1)).reshape(n, *self.event_shape)

    @property
    def _means(self) -> Tensor:
        return self.means.view(self.n, *self.means.shape[-2:])

    @property
    def _log_weights(self) -> Tensor:
        return self.log_weights.view(self.n, -1)

    def _blurred(self, sigma: float) -> Tensor:
        """Variances, ``(replicas, components or 1, size or 1)``."""
        return self.variances.view(self.n, *self.variances.shape[-2:]) + sigma**2

    def _points(self, x: Tensor) -> Tensor:
        """Rows along the shared axes, ``(replicas, rows, size)``."""
        points = apart(x.flatten(1), self.n) - self.centre.view(self.n, 1, -1)
        return points @ self._axes if self.rotation.numel() else points

    def _back(self, points: Tensor) -> Tensor:
        return points @ self._axes.mT if self.rotation.numel() else points

    @property
    def _axes(self) -> Tensor:
        return self.rotation.view(self.n, *self.rotation.shape[-2:])

    def _logits(self, points: Tensor, sigma: float) -> Tensor:
        """Log of weight times density of every component, ``(replicas, rows, components)``."""
        variances, means = self._blurred(sigma), self._means
        squared = points.square() @ (1 / variances).mT - 2 * points @ (means / variances).mT
        constant = (means.square() / variances + torch.log(2 * math.pi * variances)).sum(2)
        return (self._log_weights - constant / 2)[:, None] - squared / 2

    def _without(self, logits: Tensor, own: Tensor | None) -> Tensor:
        if own is None:
            return logits
        mine = own.view(self.n, -1, 1)
        weights = self._log_weights[:, None].expand(-1, mine.shape[1], -1)
        kept = torch.where(mine >= 0, -torch.log1p(-weights.gather(2, mine.clamp_min(0)).exp()), 0.0)
        places = torch.arange(logits.shape[2], device=logits.device)
        return torch.where(places == mine, -math.inf, logits + kept)

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        for name, buffer in list(self.named_buffers(recurse=False)):
            stored = state.get(prefix + name)
            if stored is not None and stored.shape != buffer.shape:
                setattr(self, name, buffer.new_empty(stored.shape))
        super()._load_from_state_dict(state, prefix, *rest)


class MixtureMeasure(Components):
    """A mixture of Gaussians, by EM (:func:`nrf.fields.em.fit_mixture`)."""

    def __init__(self, event_shape: Shape, config: MixtureReference) -> None:
        super().__init__(event_shape)
        self.config = config

    @torch.no_grad()
    def fit(self, rows: Tensor, rng: torch.Generator) -> None:
        config = self.config
        found = fit_mixture(
            rows.flatten(1).double(),
            rng,
            n_components=config.n_components,
            max_rows=config.max_rows,
            min_rows=config.min_rows,
            ridge=config.ridge,
            diagonal_share=config.diagonal_share,
            prior_rows=config.prior_rows,
        )
        self.keep(
            centre=found.centre,
            rotation=found.rotation,
            means=found.means,
            variances=found.variances,
            log_weights=found.log_weights,
        )


class KernelMeasure(Components):
    """A Gaussian kernel of one bandwidth at each of some rows, the anchors."""

    def __init__(self, event_shape: Shape, config: KernelReference) -> None:
        super().__init__(event_shape)
        self.config = config
        self.variances = torch.ones(1, 1)

    @property
    def bandwidth(self) -> Tensor:
        """Standard deviation of the kernels; one per replica."""
        return self.variances.flatten().sqrt()

    @torch.no_grad()
    def fit(self, rows: Tensor, rng: torch.Generator) -> None:
        flat = rows.flatten(1).to(self.centre)
        if len(flat) < 2:
            raise InputError(f"a kernel estimate needs at least 2 rows, got {len(flat)}")
        anchors = flat[torch.randperm(len(flat), generator=rng)[: self.config.n_anchors]]
        centre = anchors.mean(0)
        # Centred as rows will be, by the same subtraction: a row that is an anchor is then found again, bit by bit.
        anchors = anchors - centre
        h = self.config.bandwidth
        h = loo_bandwidth(anchors) if h is None else h
        log_weights = torch.full((len(anchors),), -math.log(len(anchors)))
        self.keep(centre=centre, means=anchors, variances=torch.full((1, 1), h**2), log_weights=log_weights)

    @torch.no_grad()
    def own(self, rows: Tensor) -> Tensor:
        points = self._points(rows)
        nearest = (points @ self._means.mT - self._means.square().sum(2)[:, None] / 2).argmax(2)
        there = self._means.gather(1, nearest[:, :, None].expand(-1, -1, points.shape[2]))
        return torch.where((there == points).all(2), nearest, -1).flatten()

    def log_densities(self, x: Tensor, sigmas: Sequence[float], own: Tensor | None = None) -> Tensor:
        points = self._points(x)
        share = max(1, CELLS // (self.n * self._means.shape[1]))  # of rows whose distances stay in the cache
        parts = torch.split(points, share, 1)
        mine = [None] * len(parts) if own is None else torch.split(apart(own, self.n), share, 1)
        found = [self._at_levels(part, sigmas, left) for part, left in zip(parts, mine, strict=True)]
        return torch.cat(found, 1).flatten(0, 1)

    def _at_levels(self, points: Tensor, sigmas: Sequence[float], own: Tensor | None) -> Tensor:
        products, size = points @ self._means.mT, size_of(self.event_shape)  # the same for all levels
        found = []
        for sigma in sigmas:
            variance = self._blurred(sigma)
            heights = torch.logsumexp(self._without(self._near(products, variance), own), 2, keepdim=True)
            falls = points.square().sum(2, keepdim=True) / variance + size * torch.log(2 * math.pi * variance)
            found.append(heights - falls / 2)
        return torch.cat(found, 2)

    def _near(self, products: Tensor, variance: Tensor) -> Tensor:
        """Log of weight times kernel, less what does not depend on the anchor."""
        offsets = self._log_weights[:, None] - self._means.square().sum(2)[:, None] / (2 * variance)
        return torch.addcmul(offsets, products, 1 / variance)

    def _slope(self, points: Tensor, sigma: float, own: Tensor | None) -> Tensor:
        return self._pull(points, self._blurred(sigma).expand(-1, points.shape[1], -1), own)

    def _slope_at_each(self, points: Tensor, sigma: Tensor, own: Tensor | None) -> Tensor:
        return self._pull(points, self._blurred(0.0) + apart(sigma, self.n)[:, :, None] ** 2, own)

    def _pull(self, points: Tensor, variance: Tensor, own: Tensor | None) -> Tensor:
        """Towards the mean of the anchors, weighted by their nearness."""
        logits = self._near(points @ self._means.mT, variance)
        return (torch.softmax(self._without(logits, own), 2) @ self._means - points) / variance


@dataclass(frozen=True)
class NoReference:
    """No reference: the network alone."""

    def build(self, event_shape: Shape) -> ReferenceMeasure:
        """The measure, before it is fitted."""
        return NoMeasure(event_shape)


@dataclass(frozen=True)
class GaussianReference:
    """The Gaussian with mean and covariance of the rows."""

    covariance: Literal["full", "diagonal"] = "full"
    """Full, or diagonal where there are too many columns for a matrix."""

    def build(self, event_shape: Shape) -> ReferenceMeasure:
        """The measure, before it is fitted."""
        return GaussianMeasure(event_shape, self.covariance)


@dataclass(frozen=True)
class MixtureReference:
    """A mixture of Gaussians by EM: first with one covariance for all, then with variances of each along its axes."""

    n_components: int = 40
    """Largest number of components."""
    max_rows: int = 5000
    """Largest number of rows that EM uses, drawn at random."""
    min_rows: int = 20
    """Fewest rows per component; with fewer rows, fewer components are fitted."""
    ridge: float | None = None
    """Added to the common covariance, as a share of the columns' mean variance. If not given, one of a few values,
    chosen by the likelihood of a held-out fifth of the rows: narrow modes need a small one, few rows in many columns a
    larger one."""
    diagonal_share: float = 0.1
    """How far the common covariance is shrunk towards its diagonal, from 0 to 1."""
    prior_rows: float = 10.0
    """Number of rows that the common variance counts for in a component's own variances."""

    def __post_init__(self) -> None:
        if min(self.n_components, self.max_rows, self.min_rows) < 1:
            raise InputError("n_components, max_rows and min_rows must be at least 1")
        ridge = 1.0 if self.ridge is None else self.ridge
        if not (ridge > 0 and 0 <= self.diagonal_share <= 1 and self.prior_rows > 0):
            raise InputError("ridge and prior_rows must be positive, diagonal_share from 0 to 1")

    def build(self, event_shape: Shape) -> ReferenceMeasure:
        """The measure, before it is fitted."""
        return MixtureMeasure(event_shape, self)


@dataclass(frozen=True)
class KernelReference:
    """A kernel estimate: one Gaussian at each anchor."""

    n_anchors: int = 2000
    """Largest number of rows that are kept as anchors."""
    bandwidth: float | None = None
    """Bandwidth of the kernels; chosen by leave-one-out likelihood if not given."""

    def __post_init__(self) -> None:
        if self.n_anchors < 2 or (self.bandwidth is not None and not 0 < self.bandwidth < math.inf):
            raise InputError(f"n_anchors ≥ 2 and bandwidth > 0 are needed, got {self.n_anchors} and {self.bandwidth}")

    def build(self, event_shape: Shape) -> KernelMeasure:
        """The measure, before it is fitted."""
        return KernelMeasure(event_shape, self)


AnyReference = NoReference | GaussianReference | MixtureReference | KernelReference

REFERENCES: dict[str, type[AnyReference]] = {
    "none": NoReference,
    "gaussian": GaussianReference,
    "mixture": MixtureReference,
    "kernel": KernelReference,
}
"""References by name."""
