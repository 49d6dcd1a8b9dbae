"""The SNGAN paper's residual pair for 32×32 images (its table 4)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional

from nrf.networks.base import DataInitialised, Latent, Shape, require_image
from nrf.networks.layers import PotentialNorm, Scalar, batch_norm, normalised


class UpBlock(nn.Module):
    """Batch norm, ReLU and convolution twice, with upsampling to twice the side, and an upsampled shortcut."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = batch_norm(n_in, 2, "running"), batch_norm(n_out, 2, "running")
        self.conv_1 = nn.Conv2d(n_in, n_out, 3, padding=1)
        self.conv_2 = nn.Conv2d(n_out, n_out, 3, padding=1)
        self.shortcut = nn.Conv2d(n_in, n_out, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv_1(_double(functional.relu(self.norm_1(x))))
        y = self.conv_2(functional.relu(self.norm_2(y)))
        out: Tensor = y + _double(self.shortcut(x))
        return out


class DownBlock(nn.Module):
    """ReLU and convolution twice, with a shortcut; average pooling may halve the side.

    Args:
        n_in: Channels in.
        n_out: Channels out.
        norm: Normalisation of the convolutions; ``batch`` also normalises before each ReLU.
        halve: Halve height and width.
        first: The block sees pixels: no activation or batch norm before its first convolution.
    """

    def __init__(self, n_in: int, n_out: int, norm: PotentialNorm, *, halve: bool, first: bool = False) -> None:
        super().__init__()
        self.halve, self.first = halve, first
        with_batch_norm = norm == "batch"
        self.norm_1 = batch_norm(n_in, 2, "running") if with_batch_norm and not first else nn.Identity()
        self.norm_2 = batch_norm(n_out, 2, "running") if with_batch_norm else nn.Identity()
        self.conv_1 = normalised(nn.Conv2d(n_in, n_out, 3, padding=1), norm)
        self.conv_2 = normalised(nn.Conv2d(n_out, n_out, 3, padding=1), norm)
        learned = halve or n_in != n_out
        self.shortcut = normalised(nn.Conv2d(n_in, n_out, 1), norm) if learned else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = x if self.first else functional.relu(self.norm_1(x))
        y = self.conv_2(functional.relu(self.norm_2(self.conv_1(y))))
        shortcut = self.shortcut(x)
        if self.halve:
            y, shortcut = functional.avg_pool2d(y, 2), functional.avg_pool2d(shortcut, 2)
        out: Tensor = y + shortcut
        return out


class SumPool(nn.Module):
    """ReLU, then the sum over all pixels."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(x).sum((2, 3))


@dataclass(frozen=True)
class ResNetPotential(DataInitialised):
    """Four residual blocks, a sum over pixels, one output unit."""

    width: int = 128
    """Channels of every block."""
    norm: PotentialNorm = "spectral"
    """Spectral norm, weight norm, batch norm, or none."""

    def build(self, event_shape: Shape) -> nn.Module:
        n_in, _ = require_image(self, event_shape, multiple=4)
        w = self.width
        return Scalar(
            nn.Sequential(
                DownBlock(n_in, w, self.norm, halve=True, first=True),
                DownBlock(w, w, self.norm, halve=True),
                DownBlock(w, w, self.norm, halve=False),
                DownBlock(w, w, self.norm, halve=False),
                SumPool(),
                normalised(nn.Linear(w, 1), self.norm),
            )
        )


@dataclass(frozen=True)
class ResNetGenerator(Latent):
    """A linear layer, three residual blocks that double the size, and a convolution."""

    latent_dim: int = 128
    """Size of the latent code h."""
    width: int = 256
    """Channels of every block."""

    def network(self, event_shape: Shape) -> nn.Module:
        n_out, side = require_image(self, event_shape, multiple=8)
        w, start = self.width, side // 8
        return nn.Sequential(
            nn.Linear(self.latent_dim, w * start * start),
            nn.Unflatten(1, (w, start, start)),
            UpBlock(w, w),
            UpBlock(w, w),
            UpBlock(w, w),
            batch_norm(w, 2, "running"),
            nn.ReLU(),
            nn.Conv2d(w, n_out, 3, padding=1),
            nn.Tanh(),
        )


def _double(x: Tensor) -> Tensor:
    return functional.interpolate(x, scale_factor=2, mode="nearest")
