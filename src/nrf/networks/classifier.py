"""A small residual classifier of 32×32 images; its features replace Inception's where those weights are missing."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu


class ConvBlock(nn.Module):
    """Convolution, batch norm, ReLU, and optional pooling that halves the side."""

    def __init__(self, n_in: int, n_out: int, *, halve: bool = False) -> None:
        super().__init__()
        self.conv = nn.Conv2d(n_in, n_out, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(n_out)
        self.halve = halve

    def forward(self, x: Tensor) -> Tensor:
        y = relu(self.norm(self.conv(x)))
        return max_pool2d(y, 2) if self.halve else y


class Residual(nn.Module):
    """Two blocks with a shortcut around them."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.first, self.second = ConvBlock(n, n), ConvBlock(n, n)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.second(self.first(x))
        return out


class Classifier(nn.Module):
    """Features and logits of images in [−1, 1].

    Args:
        width: Channels of the first convolution; two, four and eight times as many later.
        n_classes: Number of classes.
        channels: Channels of the images.

    Example:
        >>> import torch
        >>> [tuple(t.shape) for t in Classifier(width=4)(torch.zeros(2, 3, 32, 32))]
        [(2, 32), (2, 10)]
    """

    def __init__(self, width: int = 24, n_classes: int = 10, channels: int = 3) -> None:
        super().__init__()
        w = width
        self.body = nn.Sequential(
            ConvBlock(channels, w),
            ConvBlock(w, 2 * w, halve=True),
            Residual(2 * w),
            ConvBlock(2 * w, 4 * w, halve=True),
            ConvBlock(4 * w, 8 * w, halve=True),
            Residual(8 * w),
        )
        self.head = nn.Linear(8 * w, n_classes)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        features = self.body(images).amax((2, 3))
        return features, self.head(features)
