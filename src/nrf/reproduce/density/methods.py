"""What is compared: ways to learn a density from rows, and what each of them gives back.

Rows are centred and divided by one number before a method sees them, so that one choice of settings serves all sets.
Where something is chosen, it is by a part of the training rows that is held out.
"""

from __future__ import annotations

import importlib.util
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from nrf.errors import needs
from nrf.fields import Integral, quadrature
from nrf.fields.em import loo_bandwidth
from nrf.seeds import DrawsFrom, stream

Box = tuple[Tensor, Tensor]
Normaliser = Literal["exact", "learned", "unknown"]
"""Of a density: 1 by construction, 1 if it was learned well, or to be estimated first."""
MOST_FOR_QUADRATURE = 3
STRIP = 4096
FALL = 0.2
"""Share of a rate that is left after it fell."""


class Learned(ABC):
    """A density, as it was learned."""

    normaliser: ClassVar[Normaliser] = "exact"

    @abstractmethod
    def log_density(self, x: Tensor) -> Tensor:
        """Of rows, in nats; up to a constant where the normaliser is unknown."""

    @abstractmethod
    def draw(self, n: int, seed: int) -> Tensor:
        """Independent samples."""

    def integral(self, box: Box, n_points: int, seed: int) -> Integral | None:
        """``∫ exp log_density`` by a way that does not trust it; None where there is none.

        Args:
            box: What a quadrature goes over.
            n_points: Its points.
            seed: Of a way that has randomness.
        """
        if len(box[0]) > MOST_FOR_QUADRATURE:
            return None
        return quadrature(self.log_density, box, n_points)


@dataclass(frozen=True)
class Method(ABC):
    """A way to learn a density, with its settings."""

    label: ClassVar[str]
    slow: ClassVar[bool] = False
    """Whether fewer models must do."""
    by_chance: ClassVar[bool] = True
    """Whether two seeds differ on the same rows."""
    together: ClassVar[bool] = False
    """Whether the models of several seeds are learned at once, on the same rows."""

    @property
    def name(self) -> str:
        """As tables have it."""
        return self.label

    @property
    def spread(self) -> float:
        """Root of the mean variance of a column that rows shall have."""
        return 1.0

    @abstractmethod
    def fit(self, rows: Tensor, seeds: Sequence[int]) -> list[Learned]:
        """Learn from rows, a model a seed."""


# ------------------------------------------------------------------------------------------------------ without a field


@dataclass(frozen=True)
class Gaussian(Method):
    """One Gaussian with the rows' mean and covariance."""

    label = "Gaussian"
    by_chance = False

    def fit(self, rows: Tensor, seeds: Sequence[int]) -> list[Learned]:
        law = torch.distributions.MultivariateNormal(rows.double().mean(0), torch.cov(rows.double().T))
        return [_Law(law) for _ in seeds]


class _Law(Learned):
    def __init__(self, law: Any) -> None:
        self.law = law

    def log_density(self, x: Tensor) -> Tensor:
        found: Tensor = self.law.log_prob(x.double())
        return found

    def draw(self, n: int, seed: int) -> Tensor:
        with DrawsFrom(stream(seed, "density", "draw")):
            found: Tensor = self.law.sample((n,))
        return found.float()


@dataclass(frozen=True)
class Kernel(Method):
    """A Gaussian kernel at every row; under the bandwidth that is taken, rows left out one by one are most likely."""

    label = "kernel estimate"
    by_chance = False

    def fit(self, rows: Tensor, seeds: Sequence[int]) -> list[Learned]:
        order = torch.randperm(len(rows), generator=stream(seeds[0], "density", "bandwidth"))
        width = loo_bandwidth(rows.double()[order])
        return [_Kernel(rows, width) for _ in seeds]


class _Kernel(Learned):
    def __init__(self, anchors: Tensor, width: float) -> None:
        self.anchors, self.width = anchors.double(), width

    def log_density(self, x: Tensor) -> Tensor:
        n, d = self.anchors.shape
        constant = math.log(n) + d / 2 * math.log(2 * math.pi * self.width**2)
        found = []
        for rows in torch.split(x.double(), STRIP):
            squared = torch.cdist(rows, self.anchors).square()
            found.append(torch.logsumexp(-squared / (2 * self.width**2), 1) - constant)
        return torch.cat(found)

    def draw(self, n: int, seed: int) -> Tensor:
        rng = stream(seed, "density", "draw")
        chosen = torch.randint(len(self.anchors), (n,), generator=rng)
        noise = torch.randn(n, self.anchors.shape[1], generator=rng, dtype=torch.float64)
        return (self.anchors[chosen] + self.width * noise).float()


@dataclass(frozen=True)
class FittedMixture(Method):
    """scikit-learn's mixture of Gaussians, with the number of components that has the least BIC."""

    components: tuple[int, ...] = (1, 2, 4, 8, 12, 16, 24, 32, 40)

    label = "mixture by BIC"

    def fit(self, rows: Tensor, seeds: Sequence[int]) -> list[Learned]:
        from sklearn.mixture import GaussianMixture

        x, found = rows.double().numpy(), []
        for seed in seeds:
            fits = [GaussianMixture(n, random_state=seed, reg_covar=1e-5).fit(x) for n in self.components]
            found.append(_Fitted(min(fits, key=lambda fit: float(fit.bic(x)))))
        return list(found)


class _Fitted(Learned):
    def __init__(self, mixture: Any) -> None:
        self.mixture = mixture

    def log_density(self, x: Tensor) -> Tensor:
        return torch.from_numpy(self.mixture.score_samples(x.double().numpy()))

    def draw(self, n: int, seed: int) -> Tensor:
        self.mixture.set_params(random_state=seed)
        rows = self.mixture.sample(n)[0]  # component after component
        return torch.from_numpy(np.random.default_rng(seed).permutation(rows)).float()


@dataclass(frozen=True)
class Flow(Method):
    """zuko's neural spline flow: autoregressive, stopped where held-out rows are no longer more likely."""

    transforms: int = 3
    widths: tuple[int, ...] = (64, 64)
    bins: int = 8
    lr: float = 5e-3
    weight_decay: float = 0.3
    batch_size: int = 256
    held_out: float = 0.1
    most_epochs: int = 500
    patience: int = 15
    """Epochs without a better likelihood of the held-out rows; training then goes back to the best epoch."""
    falls: int = 1
    """How often it goes on from there with a fifth of the rate."""

    label = "flow"

    def fit(self, rows: Tensor, seeds: Sequence[int]) -> list[Learned]:
        return [self._fit(rows, seed) for seed in seeds]

    def _fit(self, rows: Tensor, seed: int) -> Learned:
        with needs("density", "a normalising flow"):
            import zuko
        scale = rows.std(0)
        held, kept = split(rows / scale, self.held_out, seed)
        with DrawsFrom(stream(seed, "weights")):
            flow: Any = zuko.flows.NSF(
                rows.shape[1], transforms=self.transforms, hidden_features=self.widths, bins=self.bins
            )
        optimiser = torch.optim.AdamW(flow.parameters(), lr=self.lr, weight_decay=self.weight_decay)
        rng = stream(seed, "density", "flow")
        best, since, falls, weights = -math.inf, 0, 0, flow.state_dict()
        for _ in range(self.most_epochs):
            self._epoch(flow, optimiser, kept, rng)
            with torch.no_grad():
                level = float(flow().log_prob(held).mean())
            since += 1
            if level > best:
                best, since = level, 0
                weights = {name: value.clone() for name, value in flow.state_dict().items()}
            if since > self.patience:
                if falls == self.falls:
                    break
                since, falls = 0, falls + 1
                flow.load_state_dict(weights)
                optimiser.param_groups[0]["lr"] *= FALL
        flow.load_state_dict(weights)
        return _Flow(flow.eval().requires_grad_(False), scale)

    def _epoch(self, flow: Any, optimiser: torch.optim.Optimizer, rows: Tensor, rng: torch.Generator) -> None:
        for batch in torch.split(torch.randperm(len(rows), generator=rng), self.batch_size):
            loss = -flow().log_prob(rows[batch]).mean()
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
            optimiser.step()


class _Flow(Learned):
    def __init__(self, flow: Any, scale: Tensor) -> None:
        self.flow, self.scale = flow, scale

    @torch.no_grad()
    def log_density(self, x: Tensor) -> Tensor:
        law = self.flow()
        values = torch.cat([law.log_prob(rows) for rows in torch.split(x.float() / self.scale, STRIP)])
        return values.double() - float(torch.log(self.scale.double()).sum())

    @torch.no_grad()
    def draw(self, n: int, seed: int) -> Tensor:
        with DrawsFrom(stream(seed, "density", "draw")):
            found: Tensor = self.flow().sample((n,))
        return found * self.scale


def has_flows() -> bool:
    """Whether zuko is installed, which comes with the extra `density`."""
    return importlib.util.find_spec("zuko") is not None


def split(rows: Tensor, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Rows that are held out, and the others."""
    order = torch.randperm(len(rows), generator=stream(seed, "density", "held out"))
    n = max(1, round(share * len(rows)))
    return rows[order[:n]], rows[order[n:]]
