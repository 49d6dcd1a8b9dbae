"""Adversarially learned anomaly detection: how far a row is from its reconstruction, as a discriminator sees it.

An encoder E and a generator G are trained against three discriminators. Dxz tells pairs ``(x, E(x))`` from
``(G(z), z)``, Dxx tells ``(x, x)`` from ``(x, G(E(x)))``, and Dzz tells ``(z, z)`` from ``(z, E(G(z)))``. The score is
the L1 distance of ``(x, x)`` and ``(x, G(E(x)))`` in the last hidden layer of Dxx.

Reference:
    Zenati et al., "Adversarially learned anomaly detection", 2018: the losses, the score, spectral norm in the
    discriminators and the layers of its KDDCUP experiment. Rates and batches are ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus
from torch.nn.utils.parametrizations import spectral_norm

from nrf.reproduce.baselines.network import NetworkBaseline
from nrf.seeds import randn

SLOPE = 0.2


class Discriminator(nn.Module):
    """One hidden layer over a pair of vectors, each layer spectrally normalised; dropout during training."""

    def __init__(self, first: int, second: int, width: int, dropout: float) -> None:
        super().__init__()
        self.hidden = nn.Sequential(spectral_norm(nn.Linear(first + second, width)), nn.LeakyReLU(SLOPE))
        self.dropout = nn.Dropout(dropout)
        self.out = spectral_norm(nn.Linear(width, 1))

    def features(self, a: Tensor, b: Tensor) -> Tensor:
        """The last hidden layer."""
        found: Tensor = self.hidden(torch.cat([a, b], 1))
        return found

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """One logit per row, high for the true pair."""
        found: Tensor = self.out(self.dropout(self.features(a, b))).squeeze(1)
        return found


class Adversaries(nn.Module):
    """Encoder, generator and the three discriminators."""

    def __init__(self, n_columns: int, latent_dim: int, width: int, dropout: float) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(n_columns, width // 2), nn.LeakyReLU(SLOPE), nn.Linear(width // 2, latent_dim)
        )
        self.generator = nn.Sequential(
            nn.Linear(latent_dim, width // 2),
            nn.LeakyReLU(SLOPE),
            nn.Linear(width // 2, width),
            nn.LeakyReLU(SLOPE),
            nn.Linear(width, n_columns),
        )
        self.dxz = Discriminator(n_columns, latent_dim, width, dropout)
        self.dxx = Discriminator(n_columns, n_columns, width, dropout)
        self.dzz = Discriminator(latent_dim, latent_dim, width // 4, dropout)

    def logits(self, x: Tensor, z: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Logits of the three true pairs, and of the three false ones."""
        code, made = self.encoder(x), self.generator(z)
        pairs = [
            self.dxz(torch.cat([x, made]), torch.cat([code, z])),
            self.dxx(torch.cat([x, x]), torch.cat([x, self.generator(code)])),
            self.dzz(torch.cat([z, z]), torch.cat([z, self.encoder(made)])),
        ]
        return [pair[: len(x)] for pair in pairs], [pair[len(x) :] for pair in pairs]


def discriminator_loss(true: list[Tensor], false: list[Tensor]) -> Tensor:
    """The log loss of discriminators: true pairs high, false ones low."""
    return _sum(true, lambda logit: softplus(-logit)) + _sum(false, softplus)


def generator_loss(true: list[Tensor], false: list[Tensor]) -> Tensor:
    """The loss of encoder and generator: the same with the labels of the pairs exchanged."""
    return discriminator_loss(false, true)


def _sum(logits: list[Tensor], loss: Callable[[Tensor], Tensor]) -> Tensor:
    return torch.stack([loss(logit).mean() for logit in logits]).sum()


@dataclass
class ALAD(NetworkBaseline):
    """Own code: a step of the discriminators, then one of encoder and generator; the last model scores."""

    latent_dim: int = 32
    """Size of the code."""
    width: int = 128
    """Units of Dxz, Dxx and the generator's last hidden layer; the others have a half, and Dzz a quarter."""
    dropout: float = 0.2
    """Dropout of the discriminators during training; scores have none."""
    epochs: int = 100
    batch_size: int = 64
    learning_rate: float = 1e-3

    STORED_NAME: ClassVar[str] = "OwnALAD"
    """`ALAD` was PyOD's in stored cells."""

    def build(self, shape: tuple[int, ...]) -> nn.Module:
        return Adversaries(shape[0], self.latent_dim, self.width, self.dropout)

    @property
    def adversaries(self) -> Adversaries:
        """The network."""
        return cast(Adversaries, self.network)

    def optimizers(self) -> list[torch.optim.Optimizer]:
        nets = self.adversaries
        players = ((nets.dxz, nets.dxx, nets.dzz), (nets.encoder, nets.generator))
        return [
            torch.optim.Adam([p for net in player for p in net.parameters()], lr=self.learning_rate, betas=(0.5, 0.999))
            for player in players
        ]

    def losses(self, batch: Tensor, rng: torch.Generator) -> list[Callable[[], Tensor]]:
        z = randn((len(batch), self.latent_dim), rng)
        nets = self.adversaries
        return [lambda: discriminator_loss(*nets.logits(batch, z)), lambda: generator_loss(*nets.logits(batch, z))]

    def loss(self, batch: Tensor, rng: torch.Generator) -> Tensor:
        """The loss of the discriminators; see :meth:`losses`."""
        return self.losses(batch, rng)[0]()

    @torch.no_grad()
    def normality(self, rows: Tensor) -> Tensor:
        nets = self.adversaries
        again: Tensor = nets.generator(nets.encoder(rows))
        return -(nets.dxx.features(rows, rows) - nets.dxx.features(rows, again)).abs().sum(1)
