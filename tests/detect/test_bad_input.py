"""Bad input, by name: each kind gives a message that says what is wrong, or a right answer."""

from __future__ import annotations

import contextlib
import datetime as dt
import decimal
import hashlib
import json
import shutil
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from scipy import sparse

from nrf.detect import NRFDetector, SchemaError, Training
from nrf.detect.storage import _digest
from nrf.detect.tables.columns import CategoricalColumn
from nrf.detect.tables.stream import read_table, score_stream
from nrf.errors import CheckpointError, InputError
from nrf.models import LatentGenerator

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

NAN, INF = float("nan"), float("inf")
X = np.random.default_rng(0).normal(size=(40, 3))
IMAGES = np.random.default_rng(0).random((30, 1, 5, 5))


def table(**changes):
    """A table with every kind of column; changes replace or add some."""
    rows = pd.DataFrame(
        {
            "size": X[:, 0],
            "count": range(40),
            "colour": ["red", "blue"] * 20,
            "member": [True, False] * 20,
            "day": pd.date_range("2024-01-01", periods=40),
        }
    )
    return rows.assign(**changes)


def detector(**settings_) -> NRFDetector:
    return NRFDetector(max_iter=3, random_state=0).set_params(**settings_)


def fit(rows, **settings_) -> NRFDetector:
    return detector(**settings_).fit(rows)


def with_cell(value, dtype=None):
    """The array with one cell changed."""
    changed = np.array(X, dtype=dtype)
    changed[3, 1] = value
    return changed


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Fitted detectors of an array, a table and images, and the second one saved."""
    fitted = SimpleNamespace(array=fit(X), table=fit(table()), images=fit(IMAGES), saved=tmp_path_factory.mktemp("m"))
    fitted.table.save(fitted.saved)
    return fitted


def finite(scores, n: int) -> None:
    assert scores.shape == (n,)
    assert np.isfinite(scores).all()


# -------------------------------------------------------------------------------------------------------- fit: refused

REFUSED_AT_FIT = {
    "empty": (np.empty((0, 3)), ValueError, r"0 sample\(s\).* minimum of 2"),
    "no columns": (np.empty((5, 0)), ValueError, r"0 feature\(s\)"),
    "one row": (X[:1], ValueError, r"1 sample\(s\).* minimum of 2"),
    "all missing": (np.full((30, 3), NAN), InputError, "no column distinguishes rows: 'x0' \\(all missing\\)"),
    "zero variance": (np.ones((30, 3)), InputError, "'x2' \\(constant\\); give at least one that varies"),
    "infinity": (with_cell(INF), ValueError, "contains infinity"),
    "minus infinity": (with_cell(-INF), ValueError, "contains infinity"),
    "a string in an array": (with_cell("abc", object), InputError, "column x1 .* 'abc', .* give a data frame"),
    "strings in lists": ([[1, "a"], [2, "b"]] * 10, InputError, "column x1 of the array holds 'a', which is no number"),
    "dates in an array": (np.array([["2020-01-01"]] * 9, "datetime64[D]"), InputError, "column x0 .* data frame"),
    "complex numbers": (X.astype(complex), ValueError, "Complex data not supported"),
    "a sparse matrix": (sparse.csr_matrix(X), TypeError, "dense data is required"),
    "one dimension": (X[:, 0], ValueError, "Expected 2D array, got 1D array"),
    "three dimensions": (X.reshape(10, 4, 3), ValueError, "dim 3"),
    "five dimensions": (np.zeros((2, 2, 2, 2, 2)), ValueError, "dim 5"),
    "a number": (5, ValueError, "Expected 2D array, got scalar"),
    "None": (None, ValueError, "Expected 2D array, got scalar"),
    "the name of a file": (
        "rows.csv",
        InputError,
        "not the name 'rows.csv'; read a file with read_table",
    ),
    "the path of a file": (Path("rows.csv"), InputError, "not the name 'rows.csv'"),
    "a dictionary": ({"a": [1, 2]}, TypeError, "not 'dict'"),
    "rows that are dictionaries": ([{"a": 1}] * 5, TypeError, "not 'dict'"),
    "cells that are dictionaries": (np.array([[{"a": 1}, 1]] * 5, dtype=object), InputError, "column x0 .*'a': 1"),
    "rows of unequal length": ([[1, 2], [3]], ValueError, "inhomogeneous"),
    "bytes": (np.array([[b"a", b"b"], [b"c", b"d"]] * 10), InputError, "column x0 .* b'a'"),
    "a series": (pd.Series(range(30)), InputError, "single series; .*make it a table with .to_frame"),
    "a polars series": (pl.Series(range(30)), InputError, "single series"),
    "a lazy table": (pl.LazyFrame({"a": [1, 2]}), InputError, "run its query first, with .collect"),
    "a table without rows": (table()[:0], InputError, "no rows"),
    "a table without columns": (table()[[]], InputError, "no columns"),
    "a table of one row": (table()[:1], InputError, "constant|at least 2 rows"),
    "infinity in a table": (table(size=INF), InputError, "column 'size' has 40 infinite values; replace them"),
    "mixed types": (table(colour=[1, "red"] * 20), InputError, "column 'colour' mixes numbers and strings, for ex"),
    "truth and numbers": (table(colour=[True, 2] * 20), InputError, "mixes booleans and numbers"),
    "nested values": (table(colour=[[1]] * 40), InputError, "column 'colour' holds nested values"),
    "complex cells": (table(size=1j), InputError, "column 'size' holds complex numbers"),
    "periods": (table(day=pd.period_range("2020", periods=40, freq="D")), InputError, "of type Period; turn them"),
    "numbers beyond floats": (
        table(count=pd.Series([10**400 + i for i in range(40)], dtype=object)),
        InputError,
        "beyond the range",
    ),
    "names twice": (pd.concat([table(), table()[["size"]]], axis=1), InputError, "used more than once: 'size'"),
    "names that are no strings": (table().rename(columns={"day": 3}), InputError, "3 is of type int; rename them"),
    "names of two levels": (
        table().set_axis(pd.MultiIndex.from_product([["p"], list("abcde")]), axis=1),
        InputError,
        "is of type tuple; rename them",
    ),
    "images without rows": (np.zeros((0, 1, 5, 5)), InputError, "there are no images"),
    "one image": (IMAGES[:1], InputError, "at least 2 rows"),
    "images with missing pixels": (np.full((20, 1, 5, 5), NAN), InputError, "missing or infinite; fill them"),
    "black images": (np.zeros((20, 1, 5, 5)), InputError, "all pixels of all images are equal"),
    "images of strings": (np.full((3, 1, 2, 2), "a"), InputError, "images hold numbers"),
}


@pytest.mark.parametrize("name", REFUSED_AT_FIT)
def test_refused_at_fit(name):
    rows, error, message = REFUSED_AT_FIT[name]
    with pytest.raises(error, match=message):
        fit(rows)


def test_a_refused_fit_leaves_an_unfitted_detector():
    fresh = detector()
    with pytest.raises(ValueError, match="infinity"):
        fresh.fit(with_cell(INF))
    with pytest.raises(ValueError, match="not fitted"):
        fresh.score_samples(X)


def test_a_refused_fit_leaves_the_fit_before():
    fitted = fit(X)
    before = fitted.score_samples(X)
    for rows in (with_cell(INF), table(size=INF), table()[:0]):
        with pytest.raises(ValueError, match=r"infinit|no rows"):
            fitted.fit(rows)
        np.testing.assert_array_equal(fitted.score_samples(X), before)


# -------------------------------------------------------------------------------------------------- parameters: refused

REFUSED_PARAMETERS = {
    "false_alarm_rate 0": ({"false_alarm_rate": 0}, "false_alarm_rate must lie in"),
    "false_alarm_rate 2": ({"false_alarm_rate": 2}, "false_alarm_rate must lie in"),
    "false_alarm_rate nan": ({"false_alarm_rate": NAN}, "false_alarm_rate must lie in"),
    "false_alarm_rate text": ({"false_alarm_rate": "low"}, "false_alarm_rate must lie in"),
    "contamination 0.7": ({"contamination": 0.7}, r"contamination must lie in \(0, 0.5\]"),
    "contamination auto": ({"contamination": "auto"}, "contamination must lie in"),
    "calibration_fraction 1": ({"calibration_fraction": 1}, "calibration_fraction must lie in"),
    "n_estimators 0": ({"n_estimators": 0}, "n_estimators must be a whole number from 1 on"),
    "n_estimators 1.5": ({"n_estimators": 1.5}, "n_estimators must be a whole number from 1 on"),
    "combine x": ({"combine": "x"}, "combine must be 'potential' or 'rank'"),
    "negative sigma": ({"training__sigma": -1.0}, "sigma must be finite and not negative"),
    "max_iter -1": ({"max_iter": -1}, "max_iter must be a whole number from 1 on"),
    "max_iter False": ({"max_iter": False}, "max_iter must be a whole number from 1 on"),
    "max_iter 0 of what is learned": ({"max_iter": 0, "field": "inclusive"}, "whole number from 1 on in an inclusive"),
    "max_iter 0 with settings": ({"max_iter": 0, "training__sigma": 0.5}, "whole number from 1 on in an inclusive"),
    "a field": ({"field": "energy"}, "field must be one of 'auto', 'product', 'density', 'inclusive', got 'energy'"),
    "sigma of a product": (
        {"field": "product", "training__sigma": 0.5},
        "sigma belong.* to field='inclusive'; give that",
    ),
    "a network of a product": ({"field": "density", "potential": torch.nn.Linear(3, 1)}, "make an inclusive field"),
    "batch_size 0": ({"training__batch_size": 0}, "batch_size must be a whole number from 1 on"),
    "latent_dim 0": ({"training__latent_dim": 0}, "latent_dim must be a whole number from 1 on"),
    "negative n_steps": ({"training__n_steps": -1}, "n_steps must not be negative"),
    "negative step_size": ({"training__step_size": -1.0}, "step_size must be positive"),
    "a first step smaller than the last": (
        {"training__first_step_size": 0.001, "training__step_size": 0.01},
        r"first_step_size must be at least step_size, 0.01, got 0.001",
    ),
    "a first step that is no number": (
        {"training__first_step_size": NAN},
        "first_step_size must be at least step_size",
    ),
    "a first step of one": (
        {"training__first_step_size": 0.1, "training__n_steps": 1},
        "revisions of two steps or more",
    ),
    "negative temperature": ({"training__temperature": -1.0}, "temperature must be finite and not negative"),
    "learning_rate 0": ({"training__learning_rate": 0.0}, "learning rates must be positive"),
    "max_levels 0": ({"max_levels": 0}, "max_levels must be a whole number from 1 on"),
    "random_state text": ({"random_state": "x"}, "cannot be used to seed"),
    "a potential of another width": ({"potential": torch.nn.Linear(4, 1)}, r"does not take rows of shape \(2, 3\)"),
    "a generator that is none": ({"generator": torch.nn.Linear(3, 1)}, "must be a nrf.models.LatentGenerator"),
    "a generator of another width": (
        {"generator": LatentGenerator(torch.nn.Linear(2, 7), 2, 1.0)},
        r"events of shape \(7,\), the data have \(3,\)",
    ),
}


@pytest.mark.parametrize("name", REFUSED_PARAMETERS)
def test_refused_parameters(name):
    changes, message = REFUSED_PARAMETERS[name]
    with pytest.raises(ValueError, match=message):
        fit(X, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"device": "nope"}, "device 'nope'"),
        ({"training__learning_rate": NAN}, "learning rates? must be"),
        ({"training__widths": (0,)}, "widths"),
        ({"training__widths": 5}, "widths"),
        ({"training__n_steps": 1.5}, "n_steps"),
        ({"training__step_size": "x"}, "step_size"),
        ({"training__first_step_size": "x"}, "first_step_size must be a number"),
        ({"potential": 5}, "potential"),
    ],
    ids=str,
)
def test_parameters_that_should_be_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        fit(X, **changes)


def test_a_false_alarm_rate_of_0_given_to_fit():
    with pytest.raises(InputError, match="false_alarm_rate"):
        detector().fit(X, false_alarm_rate=0)


def test_a_false_alarm_rate_of_5_given_to_fit():
    with pytest.raises(InputError, match="false_alarm_rate must lie"):
        detector().fit(X, false_alarm_rate=5)


# -------------------------------------------------------------------------------------------------- scoring: refused

REFUSED_ARRAYS = {
    "empty": (X[:0], ValueError, r"0 sample\(s\)"),
    "a column too few": (X[:, :2], ValueError, "has 2 features, but NRFDetector is expecting 3"),
    "a column too many": (np.c_[X, X[:, 0]], ValueError, "has 4 features, but NRFDetector is expecting 3"),
    "infinity": (with_cell(INF), InputError, "column 'x1' has 1 infinite value; replace them"),
    "a string": (with_cell("abc", object), InputError, "column x1 of the array holds 'abc', which is no number"),
    "complex numbers": (X.astype(complex), ValueError, "Complex data not supported"),
    "a sparse matrix": (sparse.csr_matrix(X), TypeError, "dense data is required"),
    "one dimension": (X[0], ValueError, "Expected 2D array, got 1D array"),
    "images": (IMAGES, ValueError, "dim 4"),
    "None": (None, ValueError, "Expected 2D array"),
    "rows of unequal length": ([[1, 2, 3], [4]], ValueError, "inhomogeneous"),
    "a series": (pd.Series([1.0, 2.0, 3.0]), InputError, "single series"),
}

REFUSED_TABLES = {
    "a column is missing": (table().drop(columns="count"), ValueError, "now missing:\n- count"),
    "a column is new": (table(extra=1), ValueError, "unseen at fit time:\n- extra"),
    "another order": (table()[["day", "size", "count", "colour", "member"]], ValueError, "must be in the same order"),
    "strings for numbers": (table(size="q"), SchemaError, "'size' had numbers at fit, now it has strings, for ex"),
    "one string among numbers": (
        table(size=pd.Series([1.0] * 39 + ["oops"], dtype=object)),
        SchemaError,
        "'size' mixes numbers and strings, for example 'oops'",
    ),
    "numbers for strings": (table(colour=3), SchemaError, "'colour' had strings at fit, now it has numbers"),
    "7 for a boolean": (table(member=7), SchemaError, "'member' had booleans at fit, now it has numbers, for ex"),
    "strings for booleans": (table(member="true"), SchemaError, "'member' had booleans at fit, now it has strings"),
    "strings for dates": (table(day="2024-01-01"), SchemaError, "'day' had dates at fit, now it has strings"),
    "numbers for dates": (table(day=3), SchemaError, "'day' had dates at fit, now it has numbers"),
    "infinity": (table(size=INF), SchemaError, "column 'size' has 40 infinite values"),
    "nested values": (table(colour=[[1]] * 40), SchemaError, "'colour' holds nested values"),
    "two mistakes": (table(size="q", day=3), SchemaError, "(?s)'size' had numbers.*'day' had dates"),
    "names twice": (pd.concat([table(), table()[["size"]]], axis=1), InputError, "used more than once"),
    "names that are no strings": (table().rename(columns={"day": 3}), InputError, "3 is of type int"),
    "no rows": (table()[:0], InputError, "no rows; give at least one"),
    "one row as a series": (table().iloc[0], InputError, "single series; for one row .*table.iloc"),
}

REFUSED_IMAGES = {
    "another size": (np.zeros((3, 1, 6, 5)), r"have the shape \(1, 6, 5\), at fit it was \(1, 5, 5\)"),
    "channels last": (np.zeros((3, 5, 5, 1)), r"have the shape \(5, 5, 1\)"),
    "without channels": (np.zeros((3, 5, 5)), "got 3 dimensions"),
    "flat": (np.zeros((3, 25)), "got 2 dimensions"),
    "a table": (table(), "got 2 dimensions"),
    "missing pixels": (np.full((3, 1, 5, 5), NAN), "missing or infinite"),
    "infinite pixels": (np.full((3, 1, 5, 5), INF), "missing or infinite"),
    "strings": (np.full((3, 1, 5, 5), "a"), "images hold numbers"),
    "complex numbers": (np.zeros((3, 1, 5, 5), dtype=complex), "images hold numbers, got complex"),
    "none": (np.zeros((0, 1, 5, 5)), "there are no images"),
    "None": (None, "got 0 dimensions"),
}


@pytest.mark.parametrize("name", REFUSED_ARRAYS)
def test_arrays_refused_at_scoring(world, name):
    rows, error, message = REFUSED_ARRAYS[name]
    for method in ("score_samples", "predict", "p_values", "discoveries", "explain"):
        with pytest.raises(error, match=message):
            getattr(world.array, method)(rows)


@pytest.mark.parametrize("name", REFUSED_TABLES)
def test_tables_refused_at_scoring(world, name):
    rows, error, message = REFUSED_TABLES[name]
    with pytest.raises(error, match=message):
        world.table.score_samples(rows)


@pytest.mark.parametrize("name", REFUSED_IMAGES)
def test_images_refused_at_scoring(world, name):
    rows, message = REFUSED_IMAGES[name]
    with pytest.raises(InputError, match=message):
        world.images.score_samples(rows)


def test_an_array_for_a_table(world):
    with pytest.raises(InputError, match=r"column x\d of the array holds .* give a data frame"):
        world.table.score_samples(table().to_numpy())


def test_images_are_not_explained_as_tables(world):
    with pytest.raises(InputError, match="images have no columns to explain"):
        world.images.explain(IMAGES)


@pytest.mark.parametrize(
    "method",
    [
        "score_samples",
        "decision_function",
        "predict",
        "score_spread",
        "p_values",
        "discoveries",
        "explain",
    ],
)
def test_an_unfitted_detector(method):
    with pytest.raises(ValueError, match="not fitted yet"):
        getattr(detector(), method)(X)


def test_an_unfitted_detector_is_neither_saved_nor_exported(tmp_path):
    for call in (
        lambda: detector().save(tmp_path / "m"),
        lambda: detector().export(tmp_path / "m.onnx"),
        lambda: detector().set_threshold(false_alarm_rate=0.1),
    ):
        with pytest.raises(ValueError, match="not fitted yet"):
            call()
    assert not any(tmp_path.iterdir())


def test_thresholds_that_cannot_be(world):
    for arguments, message in (
        ({}, "either false_alarm_rate or contamination"),
        ({"false_alarm_rate": 0.1, "contamination": 0.1}, "either false_alarm_rate or contamination"),
        ({"false_alarm_rate": 2}, "between 0 and 1"),
        ({"false_alarm_rate": NAN}, "between 0 and 1"),
        ({"contamination": 0.1}, "needs X"),
        ({"contamination": 0.9, "X": X}, r"\(0, 0.5\]"),
    ):
        with pytest.raises(InputError, match=message):
            world.array.set_threshold(**arguments)
    with pytest.raises(InputError, match="between 0 and 1"):
        world.array.predict_fdr(X, 2)
    with pytest.raises(InputError, match="one model has no spread"):
        world.array.score_spread(X)


def test_going_on_with_other_rows(world):
    with pytest.raises(ValueError, match="has 2 features"):
        fit(X).partial_fit(X[:, :2])
    with pytest.raises(InputError, match="at least 2 rows"):
        fit(X).partial_fit(X[:1])
    with pytest.raises(ValueError, match="now missing"):
        fit(table()).partial_fit(table().drop(columns="count"))


# ------------------------------------------------------------------------------------------------------- right answers


def test_two_rows():
    fitted = fit(X[:2])
    assert fitted.calibrated_on_ == "training rows"
    finite(fitted.score_samples(X), 40)


def test_one_row_scores_as_it_does_in_company(world):
    alone = np.concatenate([world.array.score_samples(X[i : i + 1]) for i in range(5)])
    np.testing.assert_allclose(alone, world.array.score_samples(X)[:5], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(X.astype(np.float32), id="float32"),
        pytest.param(X.astype(np.float64).tolist(), id="lists"),
        pytest.param(torch.tensor(X), id="torch"),
        pytest.param(X.astype(np.longdouble), id="longdouble"),
        pytest.param(X.astype(object), id="objects"),
        pytest.param(np.asfortranarray(X), id="fortran"),
        pytest.param(X.astype(">f8"), id="big-endian"),
    ],
)
def test_other_types_of_the_same_numbers(world, rows):
    np.testing.assert_allclose(world.array.score_samples(rows), world.array.score_samples(X), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(table().astype({"colour": "category"}), id="categories"),
        pytest.param(table().astype({"count": "Int64", "size": "Float64"}), id="nullable"),
        pytest.param(table(count=[decimal.Decimal(i) for i in range(40)]), id="decimals"),
        pytest.param(table(day=table()["day"].dt.tz_localize("UTC")), id="time zone"),
        pytest.param(table(member=[1, 0] * 20), id="0 and 1"),
        pytest.param(pl.from_pandas(table()), id="polars"),
        pytest.param(pa.Table.from_pandas(table(), preserve_index=False), id="arrow"),
        pytest.param(table().set_index(pd.Index(range(100, 140))), id="another index"),
    ],
)
def test_other_types_of_the_same_table(world, rows):
    np.testing.assert_allclose(
        world.table.score_samples(rows), world.table.score_samples(table()), rtol=1e-4, atol=1e-5
    )


def test_missing_values(world):
    finite(world.array.score_samples(np.full((4, 3), NAN)), 4)
    finite(world.table.score_samples(table(size=NAN, colour=None, day=pd.NaT)), 40)
    finite(world.table.score_samples(table(count=pd.array([None] * 40, dtype="Int64"))), 40)


def test_a_column_without_values():
    with pytest.warns(UserWarning, match="'x3' \\(all missing\\)"):
        fitted = fit(np.c_[X, np.full(40, NAN)])
    finite(fitted.score_samples(np.c_[X, np.full(40, NAN)]), 40)
    finite(fitted.score_samples(np.c_[X, np.ones(40)]), 40)


def test_a_constant_column():
    with pytest.warns(UserWarning, match="'x3' \\(constant\\)"):
        fitted = fit(np.c_[X, np.ones(40)])
    finite(fitted.score_samples(np.c_[X, np.ones(40)]), 40)


def test_a_new_category(world):
    scores = world.table.score_samples(table(colour="green"))
    finite(scores, 40)
    assert not np.allclose(scores, world.table.score_samples(table()))


def test_empty_strings_are_a_category_of_their_own():
    fitted = fit(table(colour=["", "red"] * 20))
    column = next(c for c in fitted.encoder_.columns if c.name == "colour")
    assert isinstance(column, CategoricalColumn)
    assert column.levels == ("", "red")
    finite(fitted.score_samples(table(colour="")), 40)


def test_strange_strings():
    """Half a character, a zero byte, a hundred thousand letters."""
    strange = ["\ud800", "a\0b", "x" * 100_000, "😀"] * 10
    fitted = fit(table(colour=pd.Series(strange, dtype=object)))
    finite(fitted.score_samples(table(colour=pd.Series(strange, dtype=object))), 40)


def test_more_categories_than_fit():
    rows = pd.DataFrame({"name": [str(i % 80) for i in range(1600)], "x": np.arange(1600) ** 0.5})
    fitted = fit(rows)
    assert fitted.encoder_.columns[0].hashed_buckets == 32
    finite(fitted.score_samples(rows), 1600)


def test_dates_alone():
    rows = table()[["day"]]
    far = pd.DataFrame({"day": [dt.datetime(9999, 12, 31), dt.datetime(1, 1, 1)]}, dtype=object)
    finite(fit(rows).score_samples(rows), 40)
    finite(fit(rows).score_samples(far), 2)


def test_times_of_day_are_numbers():
    finite(fit(table(day=[dt.time(i % 24) for i in range(40)])).score_samples(table(day=dt.time(3))), 40)


@pytest.mark.parametrize("far", [1e300, np.finfo(np.float64).max, -1e300])
def test_huge_values(world, far):
    finite(world.array.score_samples(with_cell(far)), 40)
    rows = np.where(np.arange(120).reshape(40, 3) % 7 == 0, far, X)
    finite(fit(rows).score_samples(rows), 40)


def test_tiny_values():
    finite(fit(X * 1e-300).score_samples(X * 1e-300), 40)


def test_huge_pixels(world):
    finite(world.images.score_samples(np.full((2, 1, 5, 5), 1e6)), 2)
    with pytest.raises(InputError, match="2 rows have a potential that is not finite"):
        world.images.score_samples(np.full((2, 1, 5, 5), 1e38))


def test_integers_beyond_the_doubles():
    """Neighbours beyond 2^53 are one number to a double: a column of them is constant, and that is said."""
    near = pd.DataFrame({"id": 2**60 + np.arange(40), "x": X[:, 0]})
    with pytest.warns(UserWarning, match="'id' \\(constant\\)"):
        finite(fit(near).score_samples(near), 40)
    apart = pd.DataFrame({"id": 2**60 + np.arange(40) * 2**54, "x": X[:, 0]})
    finite(fit(apart).score_samples(apart), 40)
    unsigned = np.array([[2**64 - 1, 1], [5, 2]] * 10, dtype=np.uint64)
    finite(fit(unsigned).score_samples(unsigned), 20)


def test_booleans_as_an_array():
    finite(fit(X > 0).score_samples(X > 0), 40)


def test_names_that_are_numbers():
    rows = pd.DataFrame(X)
    finite(fit(rows).score_samples(rows), 40)


def test_a_batch_larger_than_the_data():
    finite(fit(X, training__batch_size=10**6).score_samples(X), 40)


def test_as_many_columns_as_there_may_be():
    rows = np.random.default_rng(0).random((4, 100_000), dtype=np.float32)
    fitted = fit(rows, max_iter=1, training=Training(n_steps=1, widths=(2,), latent_dim=1))
    finite(fitted.score_samples(rows), 4)


def test_masked_values_are_missing():
    masked = np.ma.masked_greater(X, 1)
    plain = np.where(X > 1, NAN, X)
    np.testing.assert_allclose(fit(masked).score_samples(masked), fit(plain).score_samples(plain))


def test_a_record_batch(world):
    (batch,) = pa.Table.from_pandas(table(), preserve_index=False).to_batches()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        finite(world.table.score_samples(batch), 40)


# ----------------------------------------------------------------------------------------------------- saved detectors


@pytest.fixture
def copied(world, tmp_path):
    """A copy of a saved detector to tamper with."""
    return shutil.copytree(world.saved, tmp_path / "copy")


def change(*keys_and_value):
    """A change of one value in the JSON."""

    def do(folder):
        *keys, last, value = keys_and_value
        path = folder / "detector.json"
        description = json.loads(path.read_text())
        place = description
        for key in keys:
            place = place[key]
        place[last] = value
        path.write_text(json.dumps(description))

    return do


def remove(name):
    return lambda folder: (folder / name).unlink()


def replace(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def weights_of(folder):
    (path,) = folder.glob("weights-*.safetensors")
    return path


def flip(folder):
    """One bit of the last weight."""
    path = weights_of(folder)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))


def truncate(folder):
    path = weights_of(folder)
    path.write_bytes(path.read_bytes()[:-100])


def reforge(edit):
    """Other tensors, with a digest that fits."""

    def do(folder):
        from safetensors.torch import load, save

        old = weights_of(folder)
        content = save(edit(load(old.read_bytes())))
        digest = hashlib.blake2b(content, digest_size=16).hexdigest()
        old.unlink()
        (folder / f"weights-{digest}.safetensors").write_bytes(content)
        change("weights_digest", digest)(folder)

    return do


def forget(folder):
    path = folder / "detector.json"
    description = json.loads(path.read_text())
    del description["offset"]
    path.write_text(json.dumps(description))


COLUMN = ("encoder", "encoder", "columns", 0)
TAMPERED = {
    "weights changed": (flip, "damaged or of another detector|does not match"),
    "weights cut off": (truncate, "damaged or of another detector|does not match"),
    "weights empty": (
        lambda folder: weights_of(folder).write_bytes(b""),
        "damaged or of another detector|does not match",
    ),
    "weights missing": (lambda folder: weights_of(folder).unlink(), r"has no weights-\w+\.safetensors"),
    "tensors missing": (
        reforge(lambda t: {k: v for k, v in t.items() if not k.startswith("last/potential")}),
        "cannot be read|damaged",
    ),
    "calibration missing": (
        reforge(lambda t: {k: v for k, v in t.items() if k != "calibration/scores"}),
        "calibration/scores|damaged",
    ),
    "json missing": (remove("detector.json"), "has no detector.json"),
    "json empty": (replace("detector.json", b""), "damaged"),
    "json cut off": (replace("detector.json", b'{"format": "nrf-det'), "damaged"),
    "json not utf-8": (replace("detector.json", b"\xff\xfe"), "damaged"),
    "json of something else": (replace("detector.json", b"[]"), "not the description of a detector"),
    "another format": (change("format", "x"), "not the description of a detector"),
    "unknown version": (change("version", 99), "version 99, this nrf reads version"),
    "unknown field": (change("surprise", 1), "fields missing or unknown: surprise|damaged"),
    "field missing": (forget, "fields missing or unknown: offset|damaged"),
    "digest changed": (change("weights_digest", "00"), "damaged"),
    "unknown parameter": (change("parameters", "surprise", 1), "surprise|damaged"),
    "another number of members": (change("members", "count", 7), "cannot be read|damaged"),
    "another shape": (change("members", "shape", [3]), "cannot be read|damaged"),
    "scale 0": (change(*COLUMN, "scale", 0), "column 'size' needs finite numbers|damaged"),
    "no recipe": (change("recipe", None), "PairSpec|damaged"),
    "encoder of another version": (change("encoder", "version", 9), "version 9|damaged"),
    "modules of the user": (change("custom_modules", ["potential"]), "give them to load|damaged"),
    "median changed": (change(*COLUMN, "median", 5.0), "damaged"),
    "threshold changed": (change("offset", 1e9), "damaged"),
    "threshold a word": (change("offset", "x"), "damaged|cannot be read"),
    "members a word": (change("members", "count", "x"), "damaged|cannot be read"),
    "no members": (change("members", "count", 0), "damaged|cannot be read"),
    "no shape": (change("members", "shape", []), "damaged|cannot be read"),
    "no parameters": (change("parameters", None), "damaged|cannot be read"),
    "no encoder": (change("encoder", None), "damaged|cannot be read"),
    "names a number": (change("feature_names_in", 5), "damaged|cannot be read"),
    "json too deep": (replace("detector.json", b"[" * 100_000), "damaged"),
}


HARMLESS = ("median changed", "threshold changed")
"""Another detector, but one that can be."""


@pytest.mark.parametrize("name", [name for name in TAMPERED if name not in HARMLESS])
def test_forged_detectors(copied, name):
    """With a digest that fits, what cannot be is refused all the same."""
    tamper, message = TAMPERED[name]
    tamper(copied)
    path = copied / "detector.json"
    with contextlib.suppress(OSError, ValueError, RecursionError, AttributeError):
        change("digest", _digest(json.loads(path.read_text())))(copied)
    with pytest.raises((CheckpointError, InputError), match=message):
        NRFDetector.load(copied)


@pytest.mark.parametrize("name", TAMPERED)
def test_tampered_detectors(copied, name):
    tamper, message = TAMPERED[name]
    tamper(copied)
    with pytest.raises((CheckpointError, InputError), match=message):
        NRFDetector.load(copied)


def test_what_is_no_detector(world, tmp_path):
    (tmp_path / "file").write_text("x")
    for place in (tmp_path, tmp_path / "nothing", tmp_path / "file"):
        with pytest.raises(CheckpointError, match=r"is no saved detector: it (has no detector\.json|does not exist)"):
            NRFDetector.load(place)
    with pytest.raises(InputError, match="leave out potential"):
        NRFDetector.load(world.saved, potential=torch.nn.Linear(2, 2))


def test_a_foreign_place_is_not_written_to(world, tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    for place in (tmp_path, tmp_path / "letter.txt"):
        with pytest.raises(InputError, match="exists and is no saved detector; choose another place"):
            world.table.save(place)
    with pytest.raises(OSError, match="Not a directory"):
        world.table.save(tmp_path / "letter.txt" / "m")
    assert [p.name for p in tmp_path.iterdir()] == ["letter.txt"]
    assert (tmp_path / "letter.txt").read_text() == "dear"


def test_a_detector_is_exported_to_onnx_or_not_at_all(world, tmp_path):
    with pytest.raises(InputError, match="'pickle'"):
        world.array.export(tmp_path / "m", "pickle")
    with pytest.raises(InputError, match="combine='potential'"):
        fit(X, combine="rank").export(tmp_path / "m.onnx")
    assert not any(tmp_path.iterdir())


# ---------------------------------------------------------------------------------------------------------------- files

HEADER = b"size,count,colour,member,day\n"
ROW = b"0.5,3,red,true,2024-01-05\n"
BROKEN_FILES = {
    "empty": ("x.csv", b"", "is empty"),
    "header alone": ("x.csv", HEADER, "no rows"),
    "not utf-8": ("x.csv", HEADER + b"0.5,3,r\xe9d,true,2024-01-05\n", "column 'colour', row 1 is not UTF-8"),
    "last line cut off": ("x.csv", HEADER + ROW * 3 + b"0.5,3,re", "row 4 has 3 values, the header has 5"),
    "a value too many": ("x.csv", HEADER + ROW + b"1,2,3,4,5,6\n", "row 2 has 6 values, the header has 5"),
    "an open quote": ("x.csv", HEADER + ROW + b'0.5,3,"red,true,2024-01-05\n', "row 2 has 3 values|never closed"),
    "names twice": ("x.csv", b"size,size\n1,2\n", "used more than once: 'size'"),
    "semicolons without rows": ("x.csv", HEADER.replace(b",", b";"), "no rows"),
    "no parquet": ("x.parquet", HEADER + ROW, "no Parquet file"),
    "gzip cut off": ("x.csv.gz", b"\x1f\x8b\x08\x00", "cannot be read"),
    "a spreadsheet": ("x.xlsx", b"PK\x03\x04", "must end in"),
}


@pytest.mark.parametrize("name", BROKEN_FILES)
def test_broken_files(world, tmp_path, name):
    file, content, message = BROKEN_FILES[name]
    (tmp_path / file).write_bytes(content)
    for call in (lambda p: read_table(p), lambda p: score_stream(world.table, p, tmp_path / "s.csv")):
        with pytest.raises(InputError, match=message):
            call(tmp_path / file)
    assert not (tmp_path / "s.csv").exists()


def test_a_parquet_file_cut_off(world, tmp_path):
    parquet.write_table(pa.Table.from_pandas(table(), preserve_index=False), tmp_path / "x.parquet")
    content = (tmp_path / "x.parquet").read_bytes()
    for share in (0.1, 0.5, 0.99):
        (tmp_path / "x.parquet").write_bytes(content[: int(share * len(content))])
        with pytest.raises(InputError, match="truncated, damaged or no Parquet file"):
            score_stream(world.table, tmp_path / "x.parquet", tmp_path / "s.csv")


# ---------------------------------------------------------------------------------------------------------- any table

CELLS = {
    "float": st.floats(width=64),
    "finite": st.floats(allow_nan=False, allow_infinity=False),
    "small": st.integers(-3, 3),
    "integer": st.integers(-(2**63), 2**63 - 1),
    "flag": st.booleans(),
    "text": st.text(max_size=3),
    "time": st.datetimes(min_value=dt.datetime(1700, 1, 1), max_value=dt.datetime(2200, 1, 1)),
    "nothing": st.none(),
    "nested": st.lists(st.integers(), max_size=2),
}
GOOD = ("finite", "small", "integer", "flag", "text", "time")


@st.composite
def pairs(draw):
    """Two tables with the same columns: mostly of one sound type each, with or without gaps; sometimes of others."""
    columns = {}
    for i in range(draw(st.integers(0 if draw(st.integers(0, 9)) == 0 else 1, 4))):
        kinds = draw(st.lists(st.sampled_from(GOOD), min_size=1, max_size=1))
        if draw(st.integers(0, 9)) == 0:
            kinds = draw(st.lists(st.sampled_from(sorted(CELLS)), min_size=1, max_size=2))
        gaps = [st.none()] if draw(st.booleans()) else []
        columns[f"c{i}"] = st.one_of(*gaps, *(CELLS[kind] for kind in kinds))
    sizes = draw(st.integers(0 if draw(st.integers(0, 9)) == 0 else 2, 30)), draw(st.integers(1, 3))
    return [
        pd.DataFrame(
            {c: pd.Series([draw(cells) for _ in range(n)], dtype=object) for c, cells in columns.items()},
            index=range(n),
        )
        for n in sizes
    ]


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(pairs())
def test_any_table_gives_finite_scores_or_a_message(both):
    rows, others = both
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = detector(max_iter=5)
        try:
            fitted.fit(rows)
            finite(fitted.score_samples(rows), len(rows))
            event("fitted")
            finite(fitted.score_samples(others), len(others))
            event("scored others")
        except ValueError as error:  # an InputError is one, and so is what scikit-learn raises
            assert len(str(error)) > 10  # noqa: PT017
