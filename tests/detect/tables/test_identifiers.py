"""Columns that name rows are left out, rare levels share an output, and the user can decide otherwise."""

from __future__ import annotations

import datetime as dt
import json
import warnings

import numpy as np
import pytest

from nrf.detect import NRFDetector
from nrf.detect.pixels import PixelScale
from nrf.detect.tables.columns import CategoricalColumn, DroppedColumn, NumericColumn
from nrf.detect.tables.columns.categorical import RARE, UNSEEN
from nrf.detect.tables.identifiers import why_identifier
from nrf.detect.tables.schema import Schema
from nrf.errors import InputError

pd = pytest.importorskip("pandas")

N = 400


def rng(seed=0):
    return np.random.default_rng(seed)


def left_out(table, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        encoder = Schema.fit(table, **options)
    return {c.name: c.detail for c in encoder.columns if isinstance(c, DroppedColumn) and c.reason == "identifier"}


def words(n, length, seed=0):
    vocabulary = [f"word{i}" for i in range(300)]
    return [" ".join(row) for row in rng(seed).choice(vocabulary, (n, length))]


def planes(n=N):
    """Like a register of planes: a name per row, and columns that describe it."""
    draw = rng(1)
    return pd.DataFrame(
        {
            "row": range(1000, 1000 + n),
            "tailnum": [f"N{10000 + i}" for i in draw.permutation(n)],
            "year": draw.integers(1960, 2014, n),
            "kind": draw.choice(["jet", "propeller", "helicopter"], n, p=[0.8, 0.15, 0.05]),
            "seats": draw.integers(2, 380, n),
            "weight": draw.gamma(2.0, 1e4, n),
            "note": words(n, 6),
        }
    )


# ------------------------------------------------------------------------------------------------------- identifiers


def test_columns_that_name_rows_are_left_out_with_one_message():
    with pytest.warns(UserWarning, match="look like identifiers") as caught:
        encoder = Schema.fit(planes().assign(same=1))
    assert len(caught) == 1
    text = str(caught[0].message)
    assert "'same' (constant)" in text
    assert "'row' (a running number), 'tailnum' (400 of 400 values are distinct), 'note' (free text)" in text
    assert "keep=['row', 'tailnum', 'note']" in text
    assert {c.name for c in encoder.kept_columns} == {"year", "kind", "seats", "weight"}


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(np.arange(N), id="counted up"),
        pytest.param(np.arange(N)[::-1] * 10, id="down in tens"),
        pytest.param(rng().permutation(N) + 7, id="shuffled"),
        pytest.param(np.sort(rng().permutation(3 * N)[:N]), id="a third of a longer table"),
        pytest.param(rng().permutation(2 * N)[:N], id="half of one, shuffled"),
        pytest.param(np.where(rng().random(N) < 0.1, np.nan, np.arange(N)), id="with holes"),
        pytest.param(rng().permutation(50), id="the least number of rows"),
    ],
)
def test_running_numbers(values):
    assert why_identifier("numeric", values.astype(float)) == "a running number"


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(rng().normal(size=N), id="distinct measurements"),
        pytest.param(np.arange(N) / 10, id="a grid of fractions"),
        pytest.param(np.floor(rng().lognormal(10, 2, N)), id="populations"),
        pytest.param(rng().choice(10**7, N, replace=False), id="distinct prices in cents"),
        pytest.param(rng().integers(0, 2 * N, N), id="flight numbers"),
        pytest.param(np.append(np.arange(N - 1), 5), id="one value twice"),
        pytest.param(rng().poisson(4, N), id="counts"),
        pytest.param(rng().integers(0, 2**62, N), id="beyond what doubles hold"),
        pytest.param(np.arange(49), id="too few rows"),
        pytest.param(np.full(N, np.nan), id="nothing"),
    ],
)
def test_numbers_that_are_none(values):
    assert why_identifier("numeric", values.astype(float)) is None


def days(numbers):
    return 86_400.0 * np.asarray(numbers, dtype=float)


@pytest.mark.parametrize(
    ("values", "found"),
    [
        pytest.param(days(np.arange(N)), True, id="every day"),
        pytest.param(rng().permutation(days(np.arange(N)))[: N // 2], True, id="a random half"),
        pytest.param(1.7e9 + 0.25 * np.arange(N), True, id="four a second"),
        pytest.param(days(rng().integers(0, 3000, N)), False, id="days, some twice"),
        pytest.param(days(rng().permutation(20_000)[:N]), False, id="birthdays, all distinct"),
        pytest.param(1.7e9 + np.cumsum(1e4 * rng().random(N)), True, id="events"),
        pytest.param(1.7e9 + rng().permutation(np.cumsum(1e4 * rng().random(N))), True, id="events, shuffled"),
        pytest.param(1.7e9 + 60 * rng().integers(0, N, N), False, id="minutes, many twice"),
        pytest.param(
            days(rng().permutation(20_000)[:N]) - 3600 * rng().integers(1, 3, N), False, id="birthdays, a zone"
        ),
        pytest.param(days(np.arange(49)), False, id="too few"),
    ],
)
def test_dates_are_kept_unless_they_say_when_a_row_happened(values, found):
    assert (why_identifier("datetime", values) is not None) == found


def objects(values):
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


@pytest.mark.parametrize(
    ("values", "found"),
    [
        pytest.param([f"N{i}" for i in range(N)], True, id="tail numbers"),
        pytest.param([f"N{i}" for i in range(360)] + ["none"] * 40, True, id="nine in ten"),
        pytest.param([f"N{i}" for i in range(320)] + ["none"] * 80, False, id="eight in ten"),
        pytest.param(words(N, 2), True, id="titles"),
        pytest.param(words(N // 2, 8) * 2, True, id="free text, each twice"),
        pytest.param(words(40, 8) * 10, False, id="long names of few levels"),
        pytest.param([f"N{i % 100}" for i in range(N)], False, id="many levels, each often"),
        pytest.param([f"N{i}" for i in range(49)], False, id="too few rows"),
        pytest.param([f"N{i}" for i in range(49)] + [None] * N, False, id="too few values"),
    ],
)
def test_levels_that_are_names(values, found):
    assert (why_identifier("categorical", objects(values)) is not None) == found


def test_a_small_table_has_no_identifiers():
    assert left_out(planes(49)) == {}
    assert set(left_out(planes(50))) == {"row", "tailnum", "note"}


def test_a_random_part_of_a_table_tells_the_same():
    table = planes(500)
    assert left_out(table.sample(frac=0.5, random_state=0)).keys() == left_out(table).keys()


def test_a_table_of_identifiers_alone_says_what_to_do():
    with pytest.raises(InputError, match=r"'x0' \(identifier\); .* name identifiers to use in keep"):
        Schema.fit(np.arange(100.0)[:, None])
    assert Schema.fit(np.arange(100.0)[:, None], keep=[0]).kept == (0,)


def test_an_identifier_is_ignored_in_later_tables():
    table = planes()
    encoder = Schema.from_json(json.loads(json.dumps(fitted(table).to_json())))
    out = encoder.encode(table)
    for content in ("somebody else", None, 5.0, [[1]] * N):
        np.testing.assert_array_equal(encoder.encode(table.assign(tailnum=content, row=content)), out)
    np.testing.assert_array_equal(encoder.encode(table.drop(columns=["tailnum", "row", "note"])), out)


def fitted(table, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return Schema.fit(table, **options)


# --------------------------------------------------------------------------------------------------- keep, categorical


def test_keep_and_categorical_by_name_or_place():
    table = planes()
    assert set(left_out(table, keep=["row", 6])) == {"tailnum"}
    assert isinstance(fitted(table, keep=["row"]).columns[0], NumericColumn)
    assert left_out(table, categorical=["tailnum"]).keys() == {"row", "note"}
    array = np.c_[np.arange(N), rng().normal(size=N)]
    assert left_out(array) == {"x0": "a running number"}
    assert left_out(array, keep=[0]) == left_out(array, keep=["x0"]) == {}
    numbered = pd.DataFrame({7: range(N), 0: rng().normal(size=N)})
    assert left_out(numbered) == {"7": "a running number"}
    assert left_out(numbered, keep=[7]) == {}


@pytest.mark.parametrize("parameter", ["categorical", "keep"])
def test_columns_that_are_not_there(parameter):
    for unknown in ("tail", 7, -1):
        with pytest.raises(InputError, match=f"{parameter} names columns that are not there: .*'row', 'tailnum'"):
            fitted(planes(), **{parameter: [unknown]})
    with pytest.raises(InputError, match=rf"give {parameter}=\['year'\]"):
        fitted(planes(), **{parameter: "year"})


def test_numbers_as_levels():
    zips = pd.DataFrame({"zip": [2134, 90210, 2134, 10001] * 10, "x": rng().normal(size=40)})
    encoder = Schema.fit(zips, categorical=["zip"])
    (column, _) = encoder.columns
    assert column.levels == ("10001", "2134", "90210")
    out = encoder.encode(zips)
    assert out[:4, :4].tolist() == [[0, 1, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0], [1, 0, 0, 0]]
    assert [encoder.decode(row)["zip"] for row in out[:2]] == [2134, 90210]
    assert encoder.encode(zips.assign(zip=99))[0, :4].tolist() == [0, 0, 0, 1]
    for same in (zips["zip"].astype(float), "0" + zips["zip"].astype(str)):  # as files may have it
        np.testing.assert_array_equal(encoder.encode(zips.assign(zip=same)), out)
    with pytest.raises(InputError, match="'zip' had numbers at fit, now it has dates"):
        encoder.encode(zips.assign(zip=dt.datetime(2020, 1, 1)))
    assert Schema.from_json(json.loads(json.dumps(encoder.to_json()))) == encoder
    by_place = Schema.fit(zips.to_numpy(), categorical=[0])
    np.testing.assert_array_equal(by_place.encode(zips.to_numpy()), out)


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([True, False, True, None], ["true", "False", "TRUE", None]),
        ([1.5, 2.0, 1.5, None], ["1.50", "2", "1.5", None]),
        (
            [dt.datetime(2020, 1, d) for d in (1, 2, 1)] + [None],
            ["2020-01-01", "2020-01-02T00:00Z", "2020-01-01", None],
        ),
    ],
)
def test_any_kind_as_levels(values, texts):
    table = pd.DataFrame({"c": pd.Series(values, dtype=object)})
    encoder = Schema.fit(table, categorical=["c"])
    out = encoder.encode(table)
    first, second, third, last = out[:, :3].argmax(axis=1)
    assert first == third != second
    assert last == 2
    assert [encoder.decode(row)["c"] for row in out] == values
    np.testing.assert_array_equal(encoder.encode(pd.DataFrame({"c": texts})), out)


# -------------------------------------------------------------------------------------------------------- rare levels


def test_rare_levels_share_an_output_that_new_ones_have_too():
    values = ["a"] * 300 + ["b"] * 80 + [f"r{i}" for i in range(20)]
    table = pd.DataFrame({"c": [*values, None]})
    encoder = Schema.fit(table)
    assert encoder.output_names[:5] == ("c=a", "c=b", f"c {RARE}", "c (missing)", f"c {UNSEEN}")
    out = encoder.encode(pd.DataFrame({"c": ["a", "r3", "never seen", None]}))
    assert out[:, :5].tolist() == [[1, 0, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 0]]
    assert (out[:, encoder.novelty_columns] == 0).all()
    with pytest.warns(DeprecationWarning, match=r"Schema\.novelty_columns"):
        assert encoder.surprises == encoder.novelty_columns
    assert encoder.decode(out[2])["c"] == RARE
    without = Schema.fit(table[:-1]).encode(pd.DataFrame({"c": [None, "never seen"]}))
    assert without.tolist() == [[0, 0, 0, 1, 1], [0, 0, 1, 0, 0]]  # missing is new, another level is not


@pytest.mark.parametrize(
    ("counts", "n_levels", "rare"),
    [
        pytest.param([500, 500], 2, False, id="a closed set"),
        pytest.param([500, 490, 4], 3, False, id="a closed set with a few odd rows"),
        pytest.param([500, 490, 4, 4, 4], 2, True, id="more of them"),
        pytest.param([500, 480, 5, 5, 5, 5], 6, False, id="five times is not rare"),
        pytest.param([10_000, 10_000, *[1] * 50], 52, False, id="too few rows beside many"),
        pytest.param([30, 30, 3, 3, 3], 5, False, id="three in a small table"),
        pytest.param([30, 30, 1, 1, 1, 1, 1], 2, True, id="once in a small table"),
        pytest.param([1] * 19, 19, False, id="hardly a table"),
        pytest.param([1] * 30, 0, True, id="names in a small table"),
    ],
)
def test_which_levels_are_rare(counts, n_levels, rare):
    values = [f"l{i}" for i, count in enumerate(counts) for _ in range(count)]
    (column, _) = fitted(pd.DataFrame({"c": values, "x": rng().normal(size=len(values))}), keep=["c"]).columns
    assert (len(column.levels), column.rare) == (n_levels, rare)


def test_many_levels_are_hashed_without_the_rare_ones():
    draw = rng()
    weights = 1 / np.arange(1, 2001)
    tails = draw.choice([f"N{i}" for i in range(2000)], 10_000, p=weights / weights.sum())
    table = pd.DataFrame({"tailnum": tails, "x": draw.normal(size=10_000)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no identifier
        encoder = Schema.fit(table)
    column = encoder.columns[0]
    counts = table["tailnum"].value_counts()
    assert isinstance(column, CategoricalColumn)
    assert (column.hashed_buckets, column.rare) == (32, True)
    assert len(column.hashes) == (counts >= 5).sum() < len(counts)
    out = encoder.encode(pd.DataFrame({"tailnum": [counts.index[0], counts.index[-1], "never seen"], "x": 0.0}))
    assert np.square(out[:, :32]).sum(axis=1).round(6).tolist() == [1, 0, 0]
    assert out[:, 32].tolist() == [0, 1, 1]
    assert (out[:, encoder.novelty_columns] == 0).all()
    assert encoder.decode(out[0])["tailnum"] == counts.index[0]
    few = Schema.fit(table, max_levels=int((counts >= 5).sum())).columns[0]
    assert (few.hashed_buckets, few.rare) == (None, True)


def test_an_encoder_of_version_0_1_0_is_what_it_was():
    stored = {
        "version": 1,
        "encoder": {
            "type": "TableEncoder",
            "columns": [
                {"type": "NumericColumn", "name": "size", "median": 2.5, "scale": 1.1119347664936992}
                | {"has_missing": True, "low": 1.0, "high": 4.0, "integer": False},
                {"type": "DatetimeColumn", "name": "day", "median": 1578052800.0, "scale": 272201.63083765755}
                | {"has_missing": False, "low": 1577836800.0, "high": 1578528000.0},
                {"type": "BooleanColumn", "name": "ok", "common": True, "has_missing": False},
                {"type": "CategoricalColumn", "name": "kind", "levels": ["a", "b", "c"], "hashed_buckets": None}
                | {"has_missing": False, "hashes": []},
                {"type": "CategoricalColumn", "name": "code", "levels": [], "hashed_buckets": 2, "has_missing": False}
                | {"hashes": [969071879878043935, 3113518941435925557, 14644173301201165553, 16593940277942513374]},
                {"type": "DroppedColumn", "name": "same", "reason": "constant", "value": 7.0},
            ],
            "source": "table",
            "max_levels": 3,
            "hash_buckets": 2,
        },
    }
    rows = pd.DataFrame(
        {
            "size": [3.0, None],
            "day": [dt.datetime(2020, 1, 3), None],
            "ok": [False, True],
            "kind": ["b", "z"],
            "code": ["q", "z"],
            "same": [7, 8],
        }
    )
    expected = [
        [0.44966667890548706, 0, -0.15870587527751923, 0, 0, 1, 0, 0, 0, 1, 0, 0],
        [0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 1, 2],
    ]
    assert Schema.from_json(stored).encode(rows).tolist() == expected


# -------------------------------------------------------------------------------------------------------- the detector


def test_normal_rows_with_names_of_their_own_are_not_flagged():
    """Every new row has a tail number never seen, and one in four a model never seen."""
    draw = rng(2)
    n = 1200
    table = planes(n).drop(columns=["row", "note"])
    table["model"] = np.where(draw.random(n) < 0.5, "A320", [f"type {i}" for i in draw.integers(0, 600, n)])
    with pytest.warns(UserWarning, match="'tailnum'"):
        detector = NRFDetector(random_state=0, max_iter=300).fit(table[:600])
    new = table[600:]
    assert (~new["model"].isin(table["model"][:600])).mean() > 0.15
    assert (detector.predict(new) == -1).mean() < 0.1
    # The column may be left out, or hold anything.
    scores = detector.score_samples(new)
    np.testing.assert_array_equal(detector.score_samples(new.drop(columns="tailnum")), scores)
    np.testing.assert_array_equal(detector.score_samples(new.assign(tailnum=None)), scores)
    with pytest.raises(ValueError, match="yet now missing"):
        detector.score_samples(new.drop(columns="seats"))


def test_the_detectors_parameters(tmp_path):
    table = planes(120)
    settings = {"keep": ["row"], "categorical": ["year", 1], "max_iter": 3, "random_state": 0}
    with pytest.warns(UserWarning, match=r"'note' \(free text\)"):
        detector = NRFDetector(**settings).fit(table)
    assert [c.kind for c in detector.encoder_.kept_columns[:3]] == ["numeric", "categorical", "categorical"]
    detector.save(tmp_path / "model")
    again = NRFDetector.load(tmp_path / "model")
    assert (again.keep, again.categorical) == (("row",), ("year", 1))
    np.testing.assert_array_equal(again.score_samples(table), detector.score_samples(table))
    with pytest.raises(InputError, match="keep names columns that are not there: 'tail'; there are 'row', 'tailnum'"):
        NRFDetector(keep=["tail"]).fit(table)
    for wrong in ("row", 3, [1.5], [True]):
        for name in ("keep", "categorical"):
            with pytest.raises(InputError, match=f"{name} (must be a list of columns|takes names of columns)"):
                NRFDetector(**{name: wrong}).fit(table)
    with pytest.raises(InputError, match="images have no columns"):
        NRFDetector(keep=["row"]).fit(np.zeros((30, 1, 8, 8)))


@pytest.mark.parametrize("shape", [(28, 28, 1), (32, 32, 3), (8, 8, 4), (24, 32, 3)])
def test_channels_last_are_refused_with_the_fix(shape):
    images = rng().random((30, *shape))
    with pytest.raises(InputError, match=r"channels last; .*np\.moveaxis\(X, -1, 1\)"):
        NRFDetector(max_iter=3).fit(images)
    PixelScale.fit(np.moveaxis(images, -1, 1))


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (16, 4, 4), (64, 1, 1), (16, 8, 4), (3, 3, 3)])
def test_other_images_are_taken(shape):
    assert PixelScale.fit(rng().random((30, *shape))).shape == shape
