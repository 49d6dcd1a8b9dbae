"""Images as the networks take them: 32-bit floats in [−1, 1]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.detect.tables.frame import without_gradient
from nrf.errors import InputError

FAR = 1e3
"""Values this many times farther from 0 than from each other are encoded in 64 bits."""
TINY = 1e-30
"""Ranges below this, or above its inverse, are encoded in 64 bits, too."""


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
        """Find the range of training images ``(n, channels, height, width)``."""
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
            if array.min() < array.max():
                raise InputError(f"pixels near {low:g} differ by less than 64-bit floats can tell; subtract their mean")
            raise InputError("all pixels of all images are equal: there is nothing to learn")
        if not np.isfinite(high - low):
            raise InputError(f"pixels from {low:g} to {high:g} are too far apart for 64-bit floats; rescale them")
        return cls(tuple(array.shape[1:]), low, high)

    def encode(self, images: Any) -> NDArray[np.float32]:
        """Map values from the range at fit to [−1, 1]; values outside the range end up outside [−1, 1]."""
        array = _checked(images)
        if tuple(array.shape[1:]) != self.shape:
            raise InputError(f"images have the shape {array.shape[1:]}, at fit it was {self.shape}")
        width = self.high - self.low
        if max(abs(self.low), abs(self.high)) > FAR * width or not TINY < width < 1 / TINY:
            return self._encode_exactly(array)
        scaled: NDArray[np.float32] = np.multiply(array, 2 / width, dtype=np.float32)
        scaled -= np.float32(1 + 2 * self.low / width)
        return scaled

    def _encode_exactly(self, array: NDArray[Any]) -> NDArray[np.float32]:
        """The same in 64 bits, image by image, for ranges that 32 bits would hardly resolve."""
        scaled = np.empty(array.shape, dtype=np.float32)
        for place, image in enumerate(array):
            with np.errstate(over="ignore"):
                away = image.astype(np.float64) - self.low
                scaled[place] = 2 * (away / (self.high - self.low)) - 1
        if not np.isfinite(scaled).all():
            raise InputError(f"images hold values too far from those at fit, {self.low:g} to {self.high:g}")
        return scaled


def _checked(images: Any) -> NDArray[Any]:
    array = np.asarray(without_gradient(images))
    if array.ndim != 4:
        raise InputError(f"images come as (n, channels, height, width), got {array.ndim} dimensions")
    if array.dtype.kind not in "fiub":
        raise InputError(f"images hold numbers, got {array.dtype}")
    if len(array) == 0:
        raise InputError("there are no images")
    if array.size == 0:
        raise InputError(f"images of shape {array.shape[1:]} have no pixels")
    if not np.isfinite(array).all():
        raise InputError("images hold values that are missing or infinite; fill them first")
    return array
