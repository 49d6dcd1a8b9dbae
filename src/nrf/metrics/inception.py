"""The Inception network on whose features published scores are based, read from a local file of its weights.

The file is the one that `torch-fidelity` and `pytorch-fid` use: the network of the original TensorFlow scripts, with
average pooling that ignores the padding, maximum pooling in the last block, and the resizing of these scripts.

Reference:
    Szegedy et al., "Rethinking the inception architecture for computer vision", 2015.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, max_pool2d, relu

from nrf.errors import InputError

SIDE = 299
FEATURES = 2048
CLASSES = 1008


class Conv(nn.Module):
    """Convolution, batch norm, ReLU."""

    def __init__(
        self, n_in: int, n_out: int, kernel: int | tuple[int, int], stride: int = 1, padding: int | tuple[int, int] = 0
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(n_in, n_out, kernel, stride, padding, bias=False)
        self.bn = nn.BatchNorm2d(n_out, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        return relu(self.bn(self.conv(x)), inplace=True)


def _row(n_in: int, n_out: int, length: int) -> Conv:
    return Conv(n_in, n_out, (1, length), padding=(0, length // 2))


def _column(n_in: int, n_out: int, length: int) -> Conv:
    return Conv(n_in, n_out, (length, 1), padding=(length // 2, 0))


def _mean_pool(x: Tensor) -> Tensor:
    return avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)


class BlockA(nn.Module):
    """Parallel branches: 1×1, 5×5, two 3×3, and pooling."""

    def __init__(self, n_in: int, n_pool: int) -> None:
        super().__init__()
        self.branch1x1 = Conv(n_in, 64, 1)
        self.branch5x5_1, self.branch5x5_2 = Conv(n_in, 48, 1), Conv(48, 64, 5, padding=2)
        self.branch3x3dbl_1, self.branch3x3dbl_2 = Conv(n_in, 64, 1), Conv(64, 96, 3, padding=1)
        self.branch3x3dbl_3 = Conv(96, 96, 3, padding=1)
        self.branch_pool = Conv(n_in, n_pool, 1)

    def forward(self, x: Tensor) -> Tensor:
        double = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        five = self.branch5x5_2(self.branch5x5_1(x))
        return torch.cat([self.branch1x1(x), five, double, self.branch_pool(_mean_pool(x))], 1)


class BlockB(nn.Module):
    """Parallel branches with stride 2, which halve the side."""

    def __init__(self, n_in: int) -> None:
        super().__init__()
        self.branch3x3 = Conv(n_in, 384, 3, stride=2)
        self.branch3x3dbl_1, self.branch3x3dbl_2 = Conv(n_in, 64, 1), Conv(64, 96, 3, padding=1)
        self.branch3x3dbl_3 = Conv(96, 96, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        double = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        return torch.cat([self.branch3x3(x), double, max_pool2d(x, 3, stride=2)], 1)


class BlockC(nn.Module):
    """Parallel branches with 7×7 convolutions as rows and columns."""

    def __init__(self, n_in: int, n_mid: int) -> None:
        super().__init__()
        self.branch1x1 = Conv(n_in, 192, 1)
        self.branch7x7_1, self.branch7x7_2 = Conv(n_in, n_mid, 1), _row(n_mid, n_mid, 7)
        self.branch7x7_3 = _column(n_mid, 192, 7)
        self.branch7x7dbl_1, self.branch7x7dbl_2 = Conv(n_in, n_mid, 1), _column(n_mid, n_mid, 7)
        self.branch7x7dbl_3, self.branch7x7dbl_4 = _row(n_mid, n_mid, 7), _column(n_mid, n_mid, 7)
        self.branch7x7dbl_5 = _row(n_mid, 192, 7)
        self.branch_pool = Conv(n_in, 192, 1)

    def forward(self, x: Tensor) -> Tensor:
        seven = self.branch7x7_3(self.branch7x7_2(self.branch7x7_1(x)))
        double = self.branch7x7dbl_3(self.branch7x7dbl_2(self.branch7x7dbl_1(x)))
        double = self.branch7x7dbl_5(self.branch7x7dbl_4(double))
        return torch.cat([self.branch1x1(x), seven, double, self.branch_pool(_mean_pool(x))], 1)


class BlockD(nn.Module):
    """Parallel branches that halve the side again."""

    def __init__(self, n_in: int) -> None:
        super().__init__()
        self.branch3x3_1, self.branch3x3_2 = Conv(n_in, 192, 1), Conv(192, 320, 3, stride=2)
        self.branch7x7x3_1, self.branch7x7x3_2 = Conv(n_in, 192, 1), _row(192, 192, 7)
        self.branch7x7x3_3, self.branch7x7x3_4 = _column(192, 192, 7), Conv(192, 192, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        three = self.branch3x3_2(self.branch3x3_1(x))
        seven = self.branch7x7x3_4(self.branch7x7x3_3(self.branch7x7x3_2(self.branch7x7x3_1(x))))
        return torch.cat([three, seven, max_pool2d(x, 3, stride=2)], 1)


class BlockE(nn.Module):
    """Parallel branches with 3×3 convolutions as a row and a column; the last block pools by the maximum."""

    def __init__(self, n_in: int, *, last: bool) -> None:
        super().__init__()
        self.last = last
        self.branch1x1 = Conv(n_in, 320, 1)
        self.branch3x3_1 = Conv(n_in, 384, 1)
        self.branch3x3_2a, self.branch3x3_2b = _row(384, 384, 3), _column(384, 384, 3)
        self.branch3x3dbl_1, self.branch3x3dbl_2 = Conv(n_in, 448, 1), Conv(448, 384, 3, padding=1)
        self.branch3x3dbl_3a, self.branch3x3dbl_3b = _row(384, 384, 3), _column(384, 384, 3)
        self.branch_pool = Conv(n_in, 192, 1)

    def forward(self, x: Tensor) -> Tensor:
        three = self.branch3x3_1(x)
        double = self.branch3x3dbl_2(self.branch3x3dbl_1(x))
        pooled = max_pool2d(x, 3, stride=1, padding=1) if self.last else _mean_pool(x)
        found = [self.branch1x1(x), self.branch3x3_2a(three), self.branch3x3_2b(three)]
        return torch.cat(
            [*found, self.branch3x3dbl_3a(double), self.branch3x3dbl_3b(double), self.branch_pool(pooled)], 1
        )


class Inception(nn.Module):
    """Features and logits of images in [−1, 1]; logits without the last bias, as in the original score."""

    def __init__(self) -> None:
        super().__init__()
        self.Conv2d_1a_3x3 = Conv(3, 32, 3, stride=2)
        self.Conv2d_2a_3x3, self.Conv2d_2b_3x3 = Conv(32, 32, 3), Conv(32, 64, 3, padding=1)
        self.Conv2d_3b_1x1, self.Conv2d_4a_3x3 = Conv(64, 80, 1), Conv(80, 192, 3)
        self.Mixed_5b, self.Mixed_5c, self.Mixed_5d = BlockA(192, 32), BlockA(256, 64), BlockA(288, 64)
        self.Mixed_6a = BlockB(288)
        self.Mixed_6b, self.Mixed_6c = BlockC(768, 128), BlockC(768, 160)
        self.Mixed_6d, self.Mixed_6e = BlockC(768, 160), BlockC(768, 192)
        self.Mixed_7a = BlockD(768)
        self.Mixed_7b, self.Mixed_7c = BlockE(1280, last=False), BlockE(2048, last=True)
        self.fc = nn.Linear(FEATURES, CLASSES)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        x = torch.round((images + 1) * 127.5).clamp(0, 255)  # to the 256 values of a stored image
        x = (resized(x, SIDE) - 128) / 128
        x = self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x)))
        x = max_pool2d(x, 3, stride=2)
        x = max_pool2d(self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(x)), 3, stride=2)
        for name in ("5b", "5c", "5d", "6a", "6b", "6c", "6d", "6e", "7a", "7b", "7c"):
            x = getattr(self, f"Mixed_{name}")(x)
        features = x.mean((2, 3))
        return features, features @ self.fc.weight.T


def resized(images: Tensor, side: int) -> Tensor:
    """Resize bilinearly as TensorFlow 1 does: pixel i of the result is taken at i·(old side)/(new side).

    Example:
        >>> resized(torch.tensor([0.0, 2.0]).reshape(1, 1, 1, 2).expand(1, 1, 2, 2), 4)[0, 0, 0].tolist()
        [0.0, 1.0, 2.0, 2.0]
    """
    for dim in (2, 3):
        old = images.shape[dim]
        place = torch.arange(side, device=images.device, dtype=images.dtype) * (old / side)
        low = place.floor().long().clamp_max(old - 1)
        high = (low + 1).clamp_max(old - 1)
        share = (place - low).reshape([-1 if d == dim else 1 for d in range(4)])
        images = torch.lerp(images.index_select(dim, low), images.index_select(dim, high), share)
    return images


def read_inception(path: Path | str) -> Inception:
    """Read the network from a file of its weights, of which nothing but tensors is loaded.

    Args:
        path: The file, ``pt_inception-2015-12-05-*.pth``.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path} does not exist; give the file of Inception's weights, pt_inception-2015-12-05-*.pth")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise InputError(f"{path} is not a file of weights that can be read safely: {error}") from error
    network = Inception()
    try:
        network.load_state_dict(state)
    except (RuntimeError, TypeError, AttributeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"{path} does not hold the weights of this Inception network: {reason}") from error
    return network.eval().requires_grad_(False)
