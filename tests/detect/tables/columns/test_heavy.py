"""Standard coordinates: deviations from the mean, and normal scores of ranks where tails are heavy."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import math
import warnings

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import ndtri
from scipy.stats import rankdata

from nrf.detect.tables.columns import NumericColumn
from nrf.detect.tables.columns.heavy import Inverse, Knots, Stacked
from nrf.detect.tables.columns.squash import squash
from nrf.detect.tables.schema import Schema
from nrf.errors import InputError
from some_tables import fit_or_none

pd = pytest.importorskip("pandas")

RNG = np.random.default_rng(0)
HEAVY = {
    "t": RNG.standard_t(2, 5000),
    "cauchy": RNG.standard_cauchy(3000),
    "log-normal": np.exp(3 * RNG.normal(size=4000)),
    "counts": np.r_[np.zeros(2000), RNG.poisson(1, 300), 1e6].astype(float),
    "rare": (np.arange(300) % 40 == 0) * 2.5 + (np.arange(300) == 7) * 1.5,
    "all but two": np.r_[np.full(50, 7.0), 7.5, 8.0],
    "far from zero": 1e6 + RNG.standard_t(2, 500),
    "small": np.r_[RNG.normal(size=20), 90.0],
    "tiny": RNG.standard_t(2, 100) * 1e-310,
    "huge": RNG.standard_t(1.5, 100) * 1e290,
}


def fit(x, **options):
    (column,) = Schema.fit(np.asarray(x, dtype=float)[:, None], keep=["x0"], **options).columns
    return column


def expected(x: np.ndarray) -> np.ndarray:
    """What the coordinates are if every distinct value is a knot."""
    z = (x - x.mean()) / x.std()
    if np.mean(z**4) <= 6:
        return np.clip(z, -30, 30)
    return np.clip((squash(z) + ndtri(rankdata(x) / (len(x) + 1))) / 2, -30, 30)


# ------------------------------------------------------------------------------------------------------------------ fit


def test_numbers_without_heavy_tails_are_standardised():
    x = np.random.default_rng(1).normal(5, 3, size=(400, 2))
    x[:, 1] = np.arange(400) % 7
    schema = Schema.fit(x)
    for c, values in zip(schema.columns, x.T, strict=True):
        assert (c.mean, c.scale) == (pytest.approx(values.mean()), pytest.approx(values.std()))
        assert (c.median, c.knots, c.scores, c.two_valued) == (np.median(values), (), (), False)
    np.testing.assert_allclose(schema.encode(x)[:, :2], (x - x.mean(0)) / x.std(0), rtol=1e-5, atol=1e-6)
    far = schema.encode(x.mean(0) + np.array([[10.0], [29.0], [31.0], [-1e9]]) * x.std(0))[:, :2]
    np.testing.assert_allclose(
        far, np.repeat([[10.0], [29.0], [30 + np.log(2)], [-30 - np.log(1e9 - 29)]], 2, axis=1), rtol=1e-5
    )


@pytest.mark.parametrize("name", ["counts", "rare", "all but two", "small"])
def test_few_values_are_all_knots(name):
    x = HEAVY[name]
    c = fit(x)
    assert len(c.knots) == len(c.scores) == len(np.unique(x))
    np.testing.assert_allclose([c.encoded(v) for v in x], expected(x), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["t", "cauchy", "log-normal", "far from zero"])
def test_many_values_have_256_knots_at_most(name):
    x = HEAVY[name]
    c = fit(x)
    assert 200 < len(c.knots) == len(c.scores) <= 256
    ends = np.sort((x - c.mean) / c.scale)[[0, 1, 7, -8, -2, -1]]
    assert set(ends) <= set(c.knots)  # the farthest values have their own
    np.testing.assert_allclose([c.encoded(v) for v in x[:500]], expected(x)[:500], atol=0.05)


@pytest.mark.parametrize(("outlier", "heavy"), [(3.5, False), (8.0, True)])
def test_the_mean_fourth_power_tells_which_columns_are_heavy(outlier, heavy):
    x = np.r_[np.linspace(-2, 2, 60), outlier]
    assert (np.mean(((x - x.mean()) / x.std()) ** 4) > 6) == heavy
    assert bool(fit(x).knots) == heavy


def test_rounding_errors_are_no_ranks():
    x = np.array([0.1 + 0.2] * 50 + [0.3] * 50 + [1.0] * 5)
    c = fit(x)
    assert len(c.knots) == 2
    assert c.encoded(0.1 + 0.2) == pytest.approx(c.encoded(0.3), abs=1e-12)


def test_large_whole_numbers_that_differ_by_rounding_have_no_knots():
    x = np.full(50, 2.0**60)
    x[0] += 256.0
    c = fit(x)
    assert not c.knots
    assert np.isfinite(c.encoded(x[0]))


# ----------------------------------------------------------------------------------------------------- missing values


def test_missing_values_are_the_mean_or_the_median_of_a_heavy_column():
    x = np.stack([np.arange(100) % 9, np.exp(np.arange(100) % 10)], axis=1).astype(float)
    x[:10] = np.nan
    x[10, 1] = 1e9
    schema = Schema.fit(x)
    light, heavy = schema.columns
    assert (bool(light.knots), bool(heavy.knots)) == (False, True)
    row = schema.encode(np.full((1, 2), np.nan))[0]
    assert row.tolist() == [0.0, 1.0, np.float32(heavy.encoded(np.nanmedian(x[:, 1]))), 1.0, 0.0]
    assert schema.decode(row) == {"x0": None, "x1": None}
    np.testing.assert_array_equal(schema.snap(row), row)
    full = Schema.fit(x[10:])
    values = full.decode(full.encode(np.full((1, 2), np.nan))[0])  # not flagged: the values themselves
    assert (values["x0"], values["x1"]) == (4, pytest.approx(np.median(x[10:, 1]), rel=1e-5))


# ----------------------------------------------------------------------------------------------------------- two values


@pytest.mark.parametrize("share", [0.5, 0.02])
def test_numbers_of_two_values(share):
    """By their distance, from the one that is more frequent: a value that is rare is no outlier by its rarity."""
    x = np.where(np.arange(200) < 200 * share, 2.5, 1.0)
    for rows, sign in ((x, 1.0), (3.5 - x, -1.0)):
        schema = Schema.fit(rows[:, None])
        (c,) = schema.columns
        common, rare = (1.0, 2.5) if sign > 0 or share == 0.5 else (2.5, 1.0)
        assert (c.two_valued, c.mean, c.median, c.scale, c.knots) == (True, None, common, 1.5, ())
        out = schema.encode(rows[:, None])[:, 0]
        np.testing.assert_array_equal(out, (rows - common) / 1.5)
        assert set(out) == {0.0, (rare - common) / 1.5}
        assert c.jitter == (pytest.approx(0.3),)
        assert c.decode_rounded([0.1 * (rare - common)]) == common
        assert c.decode_rounded([2 * (rare - common)]) == rare
        assert c.snap([0.1 * (rare - common)]) == [0.0]
    assert not fit(np.r_[x, 1.5]).two_valued


# ------------------------------------------------------------------------------------------------------------- decoding


@pytest.mark.parametrize("name", HEAVY)
def test_heavy_numbers_come_back(name):
    x = HEAVY[name]
    schema = Schema.fit(x[:, None], keep=["x0"])
    (c,) = schema.columns
    assert c.knots
    some = x[:: max(1, len(x) // 200)]
    rows = schema.encode(some[:, None])
    error = 1e-6 * (c.scale + np.abs(some - c.mean)) + 1e-12 * np.abs(some) + 1e-320
    back = np.array([schema.decode(row)["x0"] for row in rows], dtype=float)
    assert (np.abs(back - some) <= error).all()
    assert c.decode_column(rows[:, :1].tolist(), some) == back.tolist()


@pytest.mark.parametrize("name", HEAVY)
def test_the_inverse_is_exact(name):
    c = fit(HEAVY[name])
    z = np.unique(np.r_[c.knots, -3.0, 3.0, np.linspace(-40, 40, 801), 1e6, -1e6])
    y = Stacked.of([c.table]).encode(z[None].copy())[0]
    assert (np.diff(y) >= 0).all()
    np.testing.assert_allclose(y, (squash(z) + np.interp(z, c.knots, c.scores)) / 2, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(Inverse.of(c.table).decode(y), z, rtol=1e-9, atol=1e-12)


def test_decoding_goes_beyond_the_range_and_stays_finite():
    c = fit(HEAVY["t"])
    assert c.decoded(30.0) > 1e10
    assert c.decoded(-30.0) < -1e10
    assert math.isfinite(c.decoded(1e4))
    assert math.isfinite(c.decoded(-1e4))
    beyond = 30 + np.expm1(2.0)  # deviations, where the output is 32
    assert fit(np.arange(9.0)).decoded(32.0) == pytest.approx(4 + beyond * np.arange(9.0).std())


def test_digits_follow_the_part_where_most_values_are():
    """The standard deviation is that of one wild value; the others keep their digits."""
    x = np.r_[np.random.default_rng(0).normal(size=500), 1e6]
    c = fit(x)
    for value in x[:20]:
        assert c.decode_rounded([c.encoded(value)]) == pytest.approx(value, abs=1e-4)
    np.testing.assert_allclose([c.snap([c.encoded(v)])[0] for v in x[:20]], [c.encoded(v) for v in x[:20]], atol=1e-3)


def test_dates():
    days = [dt.datetime(2024, 1, 1) + dt.timedelta(days=int(d)) for d in np.random.default_rng(0).integers(0, 20, 60)]
    table = pd.DataFrame({"t": [*days, dt.datetime(1970, 1, 1)], "n": range(61)})
    schema = Schema.fit(table[["t"]])
    (c,) = schema.columns
    assert (c.kind, c.needs_double, len(c.knots) > 2, c.jitter) == ("datetime", True, True, (0.0,))
    rows = schema.encode(table[["t"]])
    assert [schema.decode_rounded(row)["t"] for row in rows] == table["t"].tolist()
    assert c.decode_column(rows[:, :1].tolist(), np.zeros(61)) == [schema.decode(row)["t"] for row in rows]


# ------------------------------------------------------------------------------------------------- sizes and precision


def test_sizes_say_how_much_rounding_moves_outputs():
    """Single precision moves most training values by less than its relative error, times the size."""
    for name in ("t", "log-normal", "small"):
        x = HEAVY[name]
        c = fit(x)
        moved = np.abs([c.encoded(float(v)) - c.encoded(w) for v, w in zip(x.astype(np.float32), x, strict=True)])
        assert np.mean(moved <= c.sizes[0] * 2.0**-24) >= 0.85
        assert 3 <= c.sizes[0] <= 1000
    assert fit([1e9, 1e9 + 1, 1e9 + 5]).sizes == (1000.0,)


@pytest.mark.parametrize(
    ("x", "wide"),
    [
        (HEAVY["t"], False),
        (HEAVY["log-normal"], False),
        (HEAVY["counts"], False),
        (HEAVY["rare"], False),
        (HEAVY["all but two"], False),
        (HEAVY["far from zero"], True),
        (HEAVY["tiny"], True),
        (HEAVY["huge"], True),
        (np.r_[np.zeros(50), np.full(50, 1.0), np.full(50, 1.0 + 1e-9), 1e3], True),  # one number in 32 bits
        (np.r_[np.repeat(np.arange(30.0), 5), np.full(5, 7 + 1e-9), 1e4], True),  # two of many knots are
    ],
)
def test_numbers_that_need_doubles(x, wide):
    c = fit(x)
    assert c.knots
    assert c.needs_double == wide


# ----------------------------------------------------------------------------------------------------------------- JSON


def test_json_and_back():
    schema = Schema.fit(np.stack([HEAVY["t"][:3000], HEAVY["cauchy"], np.arange(3000) % 2], axis=1))
    text = json.dumps(schema.to_json(), allow_nan=False)
    again = Schema.from_json(json.loads(text))
    assert again == schema
    assert [c.two_valued for c in again.columns] == [False, False, True]
    x = np.stack([HEAVY["cauchy"], HEAVY["t"][:3000], np.arange(3000) % 3], axis=1)
    np.testing.assert_array_equal(again.encode(x), schema.encode(x))


def test_records_from_before_are_squashed():
    schema = Schema.fit(HEAVY["t"][:, None], scaling="quartiles")
    stored = json.loads(json.dumps(schema.to_json()))
    for name in ("mean", "knots", "scores"):
        del stored["encoder"]["columns"][0][name]
    again = Schema.from_json(stored)
    assert again == schema
    assert again.columns[0].mean is None
    np.testing.assert_array_equal(again.encode(HEAVY["t"][:, None]), schema.encode(HEAVY["t"][:, None]))


@pytest.mark.parametrize(
    "change",
    [
        {"mean": None},
        {"knots": (0.0,), "scores": (0.0,)},
        {"knots": (0.0, 1.0)},
        {"scores": ()},
        {"knots": ()},
        {"knots": (1.0, 0.0), "scores": (0.0, 1.0)},
        {"knots": (0.0, 0.0), "scores": (0.0, 1.0)},
        {"knots": (0.0, 5e-324), "scores": (0.0, 1.0)},
        {"knots": (0.0, 1.0), "scores": (1.0, 0.0)},
        {"knots": (0.0, math.inf), "scores": (0.0, 1.0)},
        {"knots": (0.0, 1.0), "scores": (0.0, math.nan)},
        {"knots": tuple(range(257)), "scores": tuple(range(257))},
    ],
)
def test_knots_that_make_no_curve_are_refused(change):
    column = fit(HEAVY["t"])
    with pytest.raises(InputError, match="'x0' needs a mean and 2 to 256 finite knots"):
        dataclasses.replace(column, **change)


# -------------------------------------------------------------------------------------------------------------- attacks


def test_columns_of_both_scalings_side_by_side():
    """No fit makes such a schema, a stored one may hold it."""
    x = np.stack([HEAVY["t"][:3000], HEAVY["cauchy"], np.arange(3000) % 9], axis=1)
    ways = [Schema.fit(x, scaling=scaling) for scaling in ("auto", "quartiles")]
    both = Schema((ways[0].columns[0], ways[1].columns[1], ways[0].columns[2]), "array")
    outs = [way.encode(x) for way in ways]
    np.testing.assert_array_equal(
        both.encode(x), np.stack([outs[i][:, j] for i, j in ((0, 0), (1, 1), (0, 2), (0, 3))], 1)
    )


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_few_rows(n):
    for x in (np.arange(n), np.r_[np.zeros(n - 1), 1.0], np.r_[np.zeros(n - 1), 1e300], np.arange(n) * 5e-324):
        c = fit(x)
        assert not c.knots
        assert np.isfinite([c.encoded(float(v)) for v in x]).all()
        assert np.ptp([c.encoded(float(v)) for v in x]) >= 1


def test_a_constant_with_missing_values():
    schema = Schema.fit([[5.0], [np.nan], [5.0]])
    assert schema.encode([[5.0], [np.nan], [6.0]]).tolist() == [[0, 0, 0], [0, 1, 0], [1, 0, 0]]
    assert (schema.columns[0].mean, schema.columns[0].two_valued) == (5.0, False)


def test_whole_numbers_beyond_doubles():
    x = np.r_[2**53 + np.arange(0, 400, 2), 2**62].astype(float)
    c = fit(x)
    assert isinstance(c.decode([c.encoded(x[0])]), int)
    assert np.isfinite([c.encoded(v) for v in x]).all()


ANY = st.floats(allow_nan=False, allow_infinity=False)
CORE = st.lists(st.one_of(ANY, st.floats(-5, 5), st.integers(-3, 3).map(float)), min_size=1, max_size=5)
OTHERS = st.lists(st.one_of(ANY, st.floats(-1e6, 1e6)), min_size=0, max_size=3)


@settings(max_examples=200, deadline=None)
@example([0.0], [3.402823364973241e38], 8, [])  # rounded to the largest number of 32 bits
@example([0.0], [3.402823364973241e38], 1, [])
@given(CORE, OTHERS, st.integers(1, 40), st.lists(ANY, max_size=3))
def test_whatever_the_tails_are(core, others, copies, later):
    x = np.array(core * copies + others)[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        schema = fit_or_none(x, keep=["x0"])
        if schema is None:
            return
        (c,) = schema.columns
        rows = np.r_[x[-8:], x[:1], np.array(later).reshape(-1, 1)]
        out = schema.encode(rows)
        assert np.isfinite(out).all()
        order = np.argsort(rows[:, 0])
        assert (np.diff(out[order, 0]) >= -1e-6).all()  # no larger number has a smaller output
        again = Schema.from_json(json.loads(json.dumps(schema.to_json(), allow_nan=False)))
        assert again == schema
        np.testing.assert_allclose(out[:, 0], [c.encoded(float(v)) for v in rows[:, 0]], rtol=1e-6, atol=1e-6)
        assert np.isfinite([*c.sizes, *c.jitter]).all()
        assert c.needs_double in (True, False)
        for value, row in zip(rows[:, 0], out, strict=True):
            decoded = c.decode([float(row[0])])
            assert math.isfinite(decoded)
            assert np.isfinite(schema.snap(row)).all()
            distance = abs(value - c.centre)
            if c.low <= value <= c.high and distance / c.scale < 30:
                error = 1e-6 * c.scale + 2e-4 * distance + 1e-12 * abs(value) + 0.5 * c.integer + 1e-300
                assert abs(decoded - value) <= error


def test_knots_of_sorted_values():
    found = Knots.of(np.array([0.0, 0.0, 1.0, 3.0]), np.zeros(4))
    assert found is not None
    assert found.values == (0.0, 1.0, 3.0)
    np.testing.assert_allclose(found.scores, ndtri(np.array([1.5, 3, 4]) / 5), atol=1e-7)
    assert Knots.of(np.zeros(4), np.zeros(4)) is None
    assert isinstance(fit(HEAVY["small"]), NumericColumn)
