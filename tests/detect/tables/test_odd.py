"""Values that are rare and legal: tensors with gradients, signalling NaNs, 128-bit integers, odd ranges of pixels."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest
import torch

from nrf import NRFDetector
from nrf.detect.pixels import PixelScale
from nrf.detect.tables.frame import as_columns
from nrf.errors import InputError

FAST = {"max_iter": 3, "random_state": 0, "verbose": 0}


@pytest.mark.parametrize("shape", [(40, 3), (40, 1, 8, 8)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_tensors_that_require_a_gradient_are_taken_by_their_values(shape, dtype):
    rows = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    plain = rows.float().numpy() if dtype == torch.bfloat16 else rows.numpy()
    wanted = NRFDetector(**FAST).fit(plain).score_samples(plain)
    given = rows.clone().requires_grad_(True)
    detector = NRFDetector(**FAST).fit(given)
    assert (detector.score_samples(given) == wanted).all()
    assert given.grad is None


def test_a_signalling_nan_is_a_missing_value():
    frame = as_columns([[Decimal("sNaN")], [Decimal(1)], [Decimal("NaN")]])
    np.testing.assert_array_equal(frame.column(0), [np.nan, 1, np.nan])


@pytest.mark.parametrize("kind", ["Int128", "UInt128"])
def test_integers_of_128_bits_are_numbers(kind):
    pl = pytest.importorskip("polars")
    if not hasattr(pl, kind):
        pytest.skip("not in this version of polars")
    frame = as_columns(pl.DataFrame({"a": pl.Series([1, None, 2**100], dtype=getattr(pl, kind))}))
    assert frame.kinds == ("numeric",)
    np.testing.assert_array_equal(frame.column(0), [1, np.nan, 2.0**100])


# --------------------------------------------------------------------------------------------------------------- pixels

RANGES = {
    "far": (1e9 - 1, 1e9 + 1, np.float64),
    "farther": (-1e12, -1e12 + 1, np.float64),
    "integers": (10**12, 10**12 + 7, np.int64),
    "tiny": (0.0, 1e-40, np.float32),
    "tiny and signed": (-1e-310, 1e-310, np.float64),
    "wide": (-1e300, 1e300, np.float64),
}


@pytest.mark.parametrize("kind", RANGES)
def test_pixels_of_any_range_are_encoded_as_those_of_an_everyday_one(kind):
    low, high, dtype = RANGES[kind]
    steps = np.arange(8).reshape(2, 1, 2, 2)
    images = (steps * (high - low) // 7 + low if dtype == np.int64 else low + steps / 7 * (high - low)).astype(dtype)
    scaled = PixelScale.fit(images).encode(images)
    assert scaled.dtype == np.float32
    np.testing.assert_allclose(scaled, 2 * steps / 7 - 1, atol=1e-3)


def test_everyday_pixels_are_encoded_as_before():
    rng = np.random.default_rng(0)
    for images in (rng.random((5, 1, 4, 4), dtype=np.float32), rng.integers(0, 256, (5, 1, 4, 4)).astype(np.uint8)):
        scale = PixelScale.fit(images)
        width = scale.high - scale.low
        wanted = np.multiply(images, 2 / width, dtype=np.float32) - np.float32(1 + 2 * scale.low / width)
        np.testing.assert_array_equal(scale.encode(images), wanted)


def test_pixels_that_cannot_be_told_apart_are_refused():
    near = np.array([10**18, 10**18 + 1]).reshape(2, 1, 1, 1)
    with pytest.raises(InputError, match="differ by less than 64-bit floats can tell"):
        PixelScale.fit(near)
    with pytest.raises(InputError, match="too far apart for 64-bit floats"):
        PixelScale.fit(np.array([-1.7e308, 1.7e308]).reshape(2, 1, 1, 1))
    with pytest.raises(InputError, match="all pixels of all images are equal"):
        PixelScale.fit(np.ones((2, 1, 1, 1)))
    scale = PixelScale.fit(np.array([1e9, 1e9 + 1]).reshape(2, 1, 1, 1))
    with pytest.raises(InputError, match="too far from those at fit"):
        scale.encode(np.full((1, 1, 1, 1), 1e300))


@pytest.mark.parametrize("shape", [(4, 1, 0, 5), (4, 0, 5, 5), (4, 1, 5, 0)])
def test_images_without_pixels_are_refused(shape):
    with pytest.raises(InputError, match="have no pixels"):
        NRFDetector(**FAST).fit(np.zeros(shape))
