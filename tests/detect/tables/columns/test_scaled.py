"""Numbers and times: medians, scales, the squash, and many columns at once."""

from __future__ import annotations

import json
import math
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nrf.detect.tables.columns import NumericColumn, Scaling
from nrf.detect.tables.columns.squash import squash, unsquash
from nrf.detect.tables.schema import Schema
from nrf.errors import InputError
from some_tables import fit_or_none

pl = pytest.importorskip("polars")

SCALINGS = get_args(Scaling)


def test_robust_scale_and_squash():
    x = np.arange(101.0)[:, None]
    encoder = Schema.fit(x, keep=["x0"], scaling="quartiles")
    (c,) = encoder.columns
    assert c == NumericColumn("x0", 50.0, 50 / 1.349, False, 0.0, 100.0, integer=True)
    np.testing.assert_allclose(encoder.encode(x)[:, 0], (x[:, 0] - 50) / (50 / 1.349), rtol=1e-6)
    far = encoder.encode([[50 + 10 * c.scale], [50 - 10 * c.scale]])[:, 0]
    np.testing.assert_allclose(far, [3 + math.log(8), -3 - math.log(8)], rtol=1e-6)


def test_squash_is_monotone_smooth_and_invertible():
    z = np.concatenate([np.linspace(-20, 20, 4001), [1e3, 1e10, 1e300]])
    y = squash(z)
    assert (np.diff(y[:4001]) > 0).all()
    assert (np.abs(np.diff(y[:4001], 2)) < 1.1e-4).all()
    np.testing.assert_allclose([unsquash(v) for v in y], z, rtol=1e-10)
    assert np.isfinite(squash([math.inf, -math.inf])).all()
    assert math.isfinite(unsquash(1e6))


def test_standard_deviation_where_quartiles_agree():
    x = np.zeros((100, 1))
    x[0], x[1] = 7, 3
    (c,) = Schema.fit(x, scaling="quartiles").columns
    assert c.scale == pytest.approx(np.std(x), rel=0.01)
    tiny = Schema.fit(x * 1e-200, scaling="quartiles")
    assert tiny.encode(x * 1e-200)[0, 0] > 3


def test_scaling_by_deviation():
    x = np.concatenate([np.linspace(0, 1e-3, 800), np.linspace(-10, 0, 200)])[:, None]
    by_quartiles, by_deviation = (Schema.fit(x, scaling=how).columns[0] for how in ("quartiles", "deviation"))
    assert by_quartiles.median == by_deviation.median
    np.testing.assert_allclose(by_deviation.scale, x.std())
    assert by_quartiles.scale < by_deviation.scale / 2
    with pytest.raises(InputError, match="'auto', 'quartiles' or 'deviation', got 'range'"):
        Schema.fit(x, scaling="range")


def test_rounding_errors_are_no_scale():
    x = np.array([0.1 + 0.2] * 50 + [0.3] * 50 + [1.0] * 5)[:, None]
    (c,) = Schema.fit(x, scaling="quartiles").columns
    assert c.scale == pytest.approx(np.std(x))


@pytest.mark.parametrize("scaling", SCALINGS)
def test_numbers_at_the_end_of_the_range(scaling):
    x = np.array([[-1.7e308], [1.7e308], [0.0], [1e308], [5e-324]])
    encoder = Schema.fit(x, scaling=scaling)
    assert np.isfinite(encoder.encode(x)).all()
    assert all(math.isfinite(encoder.decode(row)["x0"]) for row in encoder.encode(x))
    small = Schema.fit([[0.0], [5e-324], [1e-323]], scaling=scaling)
    assert np.isfinite(small.encode([[1.7e308], [-1.7e308]])).all()


@pytest.mark.parametrize("scaling", SCALINGS)
def test_single_precision_gives_what_doubles_give(scaling):
    rng = np.random.default_rng(0)
    draw = rng.normal if scaling == "auto" else rng.standard_cauchy  # heavy columns go by way of doubles
    x = (draw(size=(500, 4)) * [1, 1e-3, 1e4, 1] + [0, 0, 0, 1e3]).astype(np.float32)
    x[::7, 1] = np.nan
    encoder = Schema.fit(x, scaling=scaling)
    single, double = encoder.encode(x), encoder.encode(x.astype(np.float64))
    np.testing.assert_allclose(single, double, rtol=1e-5, atol=1e-4)
    assert (single != double).any()  # or the fast way was not taken


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("unit", [1e-60, 1e60])
def test_units_beyond_single_precision(unit, scaling):
    encoder = Schema.fit(np.random.default_rng(0).normal(size=(100, 2)) * unit, scaling=scaling)
    out = encoder.encode(np.zeros((3, 2), dtype=np.float32))
    np.testing.assert_array_equal(out, encoder.encode(np.zeros((3, 2))))
    largest = np.full((1, 2), np.finfo(np.float32).max)
    assert np.isfinite(encoder.encode(largest)).all()
    assert np.isfinite(encoder.encode(-largest)).all()


@pytest.mark.parametrize(("scaling", "least"), [("auto", 29.9), ("quartiles", 80), ("deviation", 80)])
def test_the_largest_number_of_single_precision_is_finite_when_encoded(scaling, least):
    x = np.random.default_rng(0).normal(size=(100, 2)).astype(np.float32) * 1e-3 - 1
    out = Schema.fit(x, scaling=scaling).encode(np.full((1, 2), np.finfo(np.float32).max))
    assert np.isfinite(out).all()
    assert (out[0, :2] > least).all()


@pytest.mark.parametrize("scaling", ["auto", "quartiles"])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("order", ["C", "F"])
def test_blocks_do_not_show(missing, order, scaling):
    x = np.random.default_rng(0).standard_t(1, size=(3001, 130)).astype(np.float32)
    if missing:
        x[::7, ::3] = np.nan
    x = np.asarray(x, order=order)
    x[:, 1] = np.random.default_rng(1).normal(size=len(x))  # a column without heavy tails among heavy ones
    encoder = Schema.fit(x, scaling=scaling)
    out = encoder.encode(x)
    np.testing.assert_array_equal(out, np.concatenate([encoder.encode(x[i : i + 1]) for i in range(len(x))]))
    np.testing.assert_allclose(out, encoder.encode(pl.DataFrame(x)), atol=2e-6)  # a table's go by way of doubles
    for j in (0, 1, 129):
        c = encoder.columns[j]
        given = np.where(np.isnan(x[:, j]), c.middle, x[:, j].astype(float))
        np.testing.assert_allclose(out[:, encoder.groups[j][1].start], [c.encoded(v) for v in given], atol=2e-6)


def test_numbers_of_two_values_are_levels():
    column = np.array([0.0, 0, 0, 5, 0, np.nan])
    other = np.array([7.0, 7, 7, 7, -1, 7])
    third = np.array([0.0, 1, 2, 3, 4, 5])
    encoder = Schema.fit(np.stack([column, other, third], axis=1), names=["a", "b", "c"], scaling="quartiles")
    assert [c.two_valued for c in encoder.kept_columns] == [True, True, False]
    rows = encoder.encode(np.stack([column, other, third], axis=1))
    assert rows[:, 0].tolist() == [0, 0, 0, 1, 0, 0]
    assert rows[:, 1].tolist() == [0, 0, 0, 0, 0, 1]  # the flag
    assert rows[:, 2].tolist() == [0, 0, 0, 0, -1, 0]
    assert encoder.jitter()[encoder.learned.index(encoder.groups[2][1].start)] == 0
    assert (encoder.jitter() > 0).sum() == 3  # both columns and the flag
    again = Schema.from_json(json.loads(json.dumps(encoder.to_json())))
    assert again == encoder
    assert encoder.decode(rows[3])["a"] == 5
    assert encoder.decode(rows[4])["b"] == -1


FLOATS = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.floats(-100, 100), st.sampled_from([0.0, 1.0]))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.lists(FLOATS, min_size=2, max_size=2), min_size=2, max_size=20), st.sampled_from(SCALINGS), st.data()
)
def test_random_numbers_come_back(rows, scaling, data):
    x = np.array(rows)
    encoder = fit_or_none(x, scaling=scaling)
    if encoder is None:
        return
    row = data.draw(st.sampled_from(rows))
    decoded = encoder.decode(encoder.encode([row])[0])
    for i, c in zip(encoder.kept, encoder.kept_columns, strict=True):
        # An output is a 32-bit float; in the tail it is a logarithm, whose error becomes a relative one.
        distance = abs(row[i] - c.centre)
        if distance / c.scale < 1e300:
            error = 1e-6 * c.scale + 2e-4 * distance + 1e-12 * abs(row[i]) + 0.5 * c.integer + 1e-300
            assert abs(decoded[c.name] - row[i]) <= error
