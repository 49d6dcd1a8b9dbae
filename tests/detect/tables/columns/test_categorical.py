"""Levels, hashed or one by one."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from nrf.config import from_json
from nrf.detect.tables.columns.categorical import HASHED, UNSEEN, CategoricalColumn, level_hash
from nrf.detect.tables.schema import Schema
from nrf.errors import InputError

pd = pytest.importorskip("pandas")


def test_unseen_levels():
    encoder = Schema.fit(pd.DataFrame({"c": ["a", "b"]}))
    out = encoder.encode(pd.DataFrame({"c": ["zzz", "", "b"]}))
    assert out.tolist() == [[0, 0, 1, 0], [0, 0, 1, 0], [0, 1, 0, 0]]
    assert encoder.decode(out[0]) == {"c": UNSEEN}


def test_hashed_levels():
    names = [f"user {i}" for i in range(200)]
    table = pd.DataFrame({"c": [*names, None, *names * 4]})
    encoder = Schema.fit(table, max_levels=100, hash_buckets=16)
    (c,) = encoder.columns
    assert (c.levels, c.hashed_buckets, len(c.hashes)) == ((), 16, 200)
    assert encoder.n_outputs == 16 + 3
    assert c.signs
    out = encoder.encode(table)
    assert (np.abs(out[:200, :16]) == 0.25).all()  # 1 / √16
    assert [[x > 0 for x in row] for row in out[:200, :16].tolist()] == [
        [level_hash(n) >> bit & 1 == 1 for bit in range(16)] for n in names
    ]
    assert (out[:200, 16:] == 0).all()
    assert out[200].tolist() == [0] * 16 + [1, 0, 0]
    assert len(np.unique(out[:200], axis=0)) > 190  # in 16 buckets there would be 16
    new = encoder.encode(pd.DataFrame({"c": ["somebody else"]}))
    assert new[0].tolist() == [0] * 17 + [1, 0]
    assert [encoder.decode(r)["c"] for r in (out[200], new[0])] == [None, UNSEEN]
    again = Schema.from_json(json.loads(json.dumps(encoder.to_json())))
    np.testing.assert_array_equal(again.encode(table), out)


def test_hashed_levels_come_back_as_the_nearest_of_the_most_frequent():
    names = [f"user {i}" for i in range(200)]
    often = names[50:66]
    encoder = Schema.fit(pd.DataFrame({"c": [*names * 5, *often]}), max_levels=100, hash_buckets=16)
    (c,) = encoder.columns
    assert sorted(c.examples) == sorted(often)
    for level in often:
        (row,) = encoder.encode(pd.DataFrame({"c": [level]}))
        found = encoder.decode(row)["c"]
        assert level_hash(found) % 2**16 == level_hash(level) % 2**16
        np.testing.assert_array_equal(encoder.snap(row), row)
        np.testing.assert_array_equal(encoder.snap(0.3 * row), row)
    rows = encoder.encode(pd.DataFrame({"c": names}))
    codes = encoder.encode(pd.DataFrame({"c": often}))
    for row in rows:
        snapped = encoder.snap(row)
        assert encoder.decode(row)["c"] == encoder.decode(snapped)["c"]
        nearest = ((codes - row) ** 2).sum(1).min()
        assert ((snapped - row) ** 2).sum() == pytest.approx(nearest)


def test_buckets_of_an_earlier_version_are_what_they_were():
    names = [f"user {i}" for i in range(200)]
    hashes = tuple(sorted(level_hash(n) for n in names))
    examples = [None] * 16
    for n in names:
        examples[level_hash(n) % 16] = n
    stored = {"type": "CategoricalColumn", "name": "c", "levels": [], "hashed_buckets": 16, "has_missing": True}
    column = from_json(CategoricalColumn, stored | {"hashes": list(hashes), "examples": examples})
    assert not column.signs
    old = Schema((column,), "table", 100, 16)
    out = old.encode(pd.DataFrame({"c": [*names, None]}))
    assert (out.sum(axis=1) == 1).all()
    assert [int(i) for i in out[:200].argmax(axis=1)] == [level_hash(n) % 16 for n in names]
    assert [old.decode(row)["c"] for row in out] == [*(examples[level_hash(n) % 16] for n in names), None]
    np.testing.assert_array_equal([old.snap(row) for row in out], out)
    unknown = dataclasses.replace(old, columns=(dataclasses.replace(column, examples=()),))
    assert unknown.decode(out[0])["c"] == HASHED


def test_more_buckets_than_a_hash_has_bits_hold_a_level_each():
    table = pd.DataFrame({"c": [f"user {i}" for i in range(200)] * 5})
    column = Schema.fit(table, max_levels=100, hash_buckets=65).columns[0]
    assert (column.signs, column.n_signs) == (False, 0)
    with pytest.raises(InputError, match="signs, at most 64, need one"):
        dataclasses.replace(column, signs=True)


def test_few_levels_have_outputs_of_their_own():
    table = pd.DataFrame({"c": [f"user {i}" for i in range(200)] * 5})
    assert Schema.fit(table, max_levels=200).columns[0].hashed_buckets is None


def test_the_hash_never_changes():
    assert level_hash("a") == 4681665781835383343
    assert level_hash("") != level_hash(" ")
    assert 0 <= level_hash("\ud800") < 2**64
