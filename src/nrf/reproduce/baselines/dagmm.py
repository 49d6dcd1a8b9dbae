"""Deep autoencoding Gaussian mixture model: a density over an autoencoder's code and its errors.

Reference:
    Zong et al., "Deep autoencoding Gaussian mixture model for unsupervised anomaly detection", 2018. The layers, the
    weights of the three losses and the two error features are the ones of its KDDCUP experiment.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from nrf.reproduce.baselines.network import CHUNK, NetworkBaseline

RIDGE = 1e-6


class Compressor(nn.Module):
    """Autoencoder and membership network."""

    def __init__(self, n_columns: int, widths: tuple[int, ...], n_components: int) -> None:
        super().__init__()
        sizes = (n_columns, *widths)
        self.encoder = nn.Sequential(*_layers(sizes))
        self.decoder = nn.Sequential(*_layers(sizes[::-1]))
        self.membership = nn.Sequential(
            nn.Linear(widths[-1] + 2, 10), nn.Tanh(), nn.Dropout(0.5), nn.Linear(10, n_components), nn.Softmax(1)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Reconstruction; code with the two errors; memberships."""
        code = self.encoder(x)
        again = self.decoder(code)
        size = x.norm(dim=1).clamp_min(1e-6)
        relative = (x - again).norm(dim=1) / size
        cosine = nn.functional.cosine_similarity(x, again, dim=1)
        z = torch.cat([code, relative[:, None], cosine[:, None]], 1)
        return again, z, self.membership(z)


def _layers(sizes: tuple[int, ...]) -> Iterator[nn.Module]:
    """Linear layers with tanh between them, none after the last."""
    for i, (n_in, n_out) in enumerate(pairwise(sizes)):
        if i:
            yield nn.Tanh()
        yield nn.Linear(n_in, n_out)


@dataclass(frozen=True)
class Mixture:
    """Weights, means and Cholesky factors of a Gaussian mixture."""

    weights: Tensor
    means: Tensor
    factors: Tensor

    @classmethod
    def of(cls, z: Tensor, memberships: Tensor) -> Mixture:
        """By the soft memberships of the rows."""
        total = memberships.sum(0).clamp_min(1e-6)
        means = memberships.T @ z / total[:, None]
        apart = z[:, None] - means
        covariances = torch.einsum("nk,nki,nkj->kij", memberships, apart, apart) / total[:, None, None]
        ridge = RIDGE * torch.eye(z.shape[1])
        return cls(total / total.sum(), means, torch.linalg.cholesky(covariances + ridge))

    def energy(self, z: Tensor) -> Tensor:
        """``−log p(z)``."""
        apart = (z[:, None] - self.means).transpose(0, 1)
        solved = torch.linalg.solve_triangular(self.factors, apart.transpose(1, 2), upper=False)
        square = solved.square().sum(1).T
        log_det = 2 * self.factors.diagonal(dim1=1, dim2=2).log().sum(1)
        log_density = -0.5 * (square + log_det + z.shape[1] * math.log(2 * math.pi))
        return -torch.logsumexp(self.weights.log() + log_density, 1)

    def penalty(self) -> Tensor:
        """Sum of the inverse variances: keeps a component from shrinking to a point."""
        variances = self.factors.square().sum(2)
        return (1 / variances).sum()


@dataclass
class DAGMM(NetworkBaseline):
    """Autoencoder and mixture trained together; the energy of a row is its score, negated."""

    widths: tuple[int, ...] = (60, 30, 10, 1)
    """Units of the encoder; the decoder mirrors them."""
    n_components: int = 4
    """Of the mixture."""
    energy_weight: float = 0.1
    """Weight of the mixture's energy beside the error of reconstruction."""
    penalty_weight: float = 0.005
    """Weight of the penalty against components that shrink to a point."""
    epochs: int = 200

    def build(self, shape: tuple[int, ...]) -> nn.Module:
        return Compressor(shape[0], self.widths, self.n_components)

    def loss(self, batch: Tensor, rng: torch.Generator) -> Tensor:
        again, z, memberships = self.network(batch)
        mixture = Mixture.of(z, memberships)
        error = (batch - again).square().sum(1).mean()
        energy, penalty = mixture.energy(z).mean(), mixture.penalty()
        total: Tensor = error + self.energy_weight * energy + self.penalty_weight * penalty
        return total

    @torch.no_grad()
    def finish(self, data: Tensor) -> None:
        """The mixture of all training rows."""
        parts = [self.network(part)[1:] for part in torch.split(data, CHUNK)]
        z, memberships = (torch.cat(part) for part in zip(*parts, strict=True))
        self.mixture = Mixture.of(z.double(), memberships.double())

    @torch.no_grad()
    def normality(self, rows: Tensor) -> Tensor:
        return -self.mixture.energy(self.network(rows)[1].double())
