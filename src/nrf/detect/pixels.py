"""Images as the networks take them: 32-bit floats in [−1, 1]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.errors import InputError


@dataclass(frozen=True)
class PixelScale:
    """The shape of the images and the range of their values at fit.

    Example:
        >>> scale = PixelScale.fit(np.array([[[[0, 255], [51, 204]]]], dtype=np.uint8))
        >>> scale.encode(np.full((1, 1, 2, 2), 255, dtype=np.uint8)).max()
        np.float32(1.0)
    """

    shape: tuple[int, ...]
    low: float
    high: float

    def __post_init__(self) -> None:
        if len(self.shape) != 3 or min(self.shape) < 1:
            raise InputError(f"images have channels, height and width, not the shape {self.shape}")
        if not -np.inf < self.low < self.high < np.inf:
            raise InputError(f"the range of pixels must be finite and not empty, got {self.low:g} to {self.high:g}")

    @classmethod
    def fit(cls, images: Any) -> PixelScale:
        """From training images ``(n, channels, height, width)``."""
        array = _checked(images)
        height, width, channels = array.shape[1:]
        if channels in (1, 3, 4) and channels < min(height, width) and (channels != 4 or height == width):
            raise InputError(
                f"images of shape {array.shape[1:]} seem to have their channels last; bring them to the front with "
                "np.moveaxis(X, -1, 1)"
            )
        low, high = float(array.min()), float(array.max())
        if array.dtype == np.uint8:
            low, high = 0.0, 255.0
        if high <= low:
            raise InputError("all pixels of all images are equal: there is nothing to learn")
        return cls(tuple(array.shape[1:]), low, high)

    def encode(self, images: Any) -> NDArray[np.float32]:
        """Values from the range at fit to [−1, 1]; values beyond it go beyond."""
        array = _checked(images)
        if tuple(array.shape[1:]) != self.shape:
            raise InputError(f"images have the shape {array.shape[1:]}, at fit it was {self.shape}")
        scaled: NDArray[np.float32] = np.multiply(array, 2 / (self.high - self.low), dtype=np.float32)
        scaled -= np.float32(1 + 2 * self.low / (self.high - self.low))
        return scaled


def _checked(images: Any) -> NDArray[Any]:
    array = np.asarray(images)
    if array.ndim != 4:
        raise InputError(f"images come as (n, channels, height, width), got {array.ndim} dimensions")
    if array.dtype.kind not in "fiub":
        raise InputError(f"images hold numbers, got {array.dtype}")
    if len(array) == 0:
        raise InputError("there are no images")
    if not np.isfinite(array).all():
        raise InputError("images hold values that are missing or infinite; fill them first")
    return array
