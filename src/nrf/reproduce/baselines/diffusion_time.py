"""How much noise is in a row? A network that is trained to tell from noised normal rows says it of any row.

Reference:
    Livernoche, Jain, Hezaveh & Ravanbakhsh, "On diffusion modeling for anomaly detection", 2024: the classifier, DTE-C,
    with the noise schedule, widths, bins and length of training that its authors use, but no weight decay. Their
    DTE-NP, which needs no network, orders rows as the mean distance to the five nearest training rows does.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from nrf.reproduce.baselines.network import NetworkBaseline

STEPS = 400
WIDTHS = (256, 512, 256)
DROPOUT = 0.5


@dataclass
class DiffusionTimeClassifier(NetworkBaseline):
    """Minus the expected bin of the noise level."""

    epochs: int = 400
    """Passes over the rows."""
    batch_size: int = 64
    """Rows per batch."""
    bins: int = 7
    """The noise levels are divided into so many classes."""

    def build(self, shape: tuple[int, ...]) -> nn.Module:
        layers, n_in = list[nn.Module](), shape[0]
        for width in WIDTHS:
            layers += [nn.Linear(n_in, width), nn.ReLU(), nn.Dropout(DROPOUT)]
            n_in = width
        return nn.Sequential(*layers, nn.Linear(n_in, self.bins))

    def prepare(self, data: Tensor) -> Tensor:
        self.sizes = (1 - torch.cumprod(1 - torch.linspace(1e-4, 1e-2, STEPS), 0)).sqrt()
        return data

    def loss(self, batch: Tensor, rng: torch.Generator) -> Tensor:
        step = torch.randint(STEPS, (len(batch),), generator=rng)
        noised = batch + self.sizes[step, None] * torch.randn(batch.shape, generator=rng)
        return functional.cross_entropy(self.network(noised), step * self.bins // STEPS)

    def normality(self, rows: Tensor) -> Tensor:
        chances = torch.softmax(self.network(rows), dim=1)
        return -(chances @ torch.arange(self.bins, dtype=chances.dtype))
