"""Deep structured energy-based models: an energy trained by denoising score matching.

The energy is ``E(x) = ½‖x − b‖² − Σ_k f_k(x)`` with a network f, and ``x − ∇E(x)`` is its reconstruction of x. Training
makes that the clean row when x is the row with noise, which is score matching for the noisy data.

Reference:
    Zhai et al., "Deep structured energy based models for anomaly detection", 2016. DSEBM-e scores by the energy,
    DSEBM-r by the error of reconstruction.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from nrf.reproduce.baselines.network import NetworkBaseline


class Energy(nn.Module):
    """``E(x)``."""

    def __init__(self, n_columns: int, widths: tuple[int, ...]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for n_in, n_out in pairwise((n_columns, *widths)):
            layers += [nn.Linear(n_in, n_out), nn.Softplus()]
        self.features = nn.Sequential(*layers)
        self.centre = nn.Parameter(torch.zeros(n_columns))

    def forward(self, x: Tensor) -> Tensor:
        square = (x - self.centre).square().sum(1) / 2
        return square - self.features(x).sum(1)  # type: ignore[no-any-return]


@dataclass
class DSEBM(NetworkBaseline):
    """An energy by denoising score matching.

    Example:
        >>> import numpy as np
        >>> rows = np.random.default_rng(0).normal(size=(300, 2)).astype(np.float32)
        >>> model = DSEBM(epochs=20, batch_size=50, learning_rate=1e-2).fit(rows)
        >>> low, high = model.score_samples(np.array([[6.0, 6.0], [0.0, 0.0]], dtype=np.float32))
        >>> bool(low < high)
        True
    """

    score: Literal["energy", "reconstruction"] = "energy"
    """DSEBM-e or DSEBM-r."""
    widths: tuple[int, ...] = (128, 64, 32)
    """Units of the layers under the energy."""
    noise: float = 0.1
    """Standard deviation of the noise on training rows."""

    def build(self, shape: tuple[int, ...]) -> nn.Module:
        return Energy(shape[0], self.widths)

    def reconstruct(self, x: Tensor, *, for_training: bool = False) -> Tensor:
        """``x − ∇E(x)``."""
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            (grad,) = torch.autograd.grad(self.network(x).sum(), x, create_graph=for_training)
        return x - grad

    def loss(self, batch: Tensor, rng: torch.Generator) -> Tensor:
        noisy = batch + self.noise * torch.randn(batch.shape, generator=rng)
        return (batch - self.reconstruct(noisy, for_training=True)).square().sum(1).mean()

    def normality(self, rows: Tensor) -> Tensor:
        if self.score == "energy":
            with torch.no_grad():
                energy: Tensor = self.network(rows)
            return -energy
        return -(rows - self.reconstruct(rows)).square().sum(1)
