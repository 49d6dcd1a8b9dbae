"""Levels, hashed or one by one."""

from __future__ import annotations

import dataclasses

import pytest

from nrf.detect.tables.columns.categorical import HASHED, UNSEEN, level_hash
from nrf.detect.tables.schema import Schema

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
    out = encoder.encode(table)
    assert (out.sum(axis=1) == 1).all()
    assert [int(i) for i in out[:200].argmax(axis=1)] == [level_hash(n) % 16 for n in names]
    assert out[200, 16] == 1
    assert len(set(out[:200].argmax(axis=1))) == 16
    new = encoder.encode(pd.DataFrame({"c": ["somebody else"]}))
    assert new[0].tolist() == [0] * 17 + [1, 0]
    decoded = [encoder.decode(r)["c"] for r in (out[0], out[200], new[0])]
    assert level_hash(decoded[0]) % 16 == level_hash(names[0]) % 16
    assert decoded[0] in names
    assert decoded[1:] == [None, UNSEEN]
    old = dataclasses.replace(encoder, columns=(dataclasses.replace(c, examples=()),))
    assert old.decode(out[0])["c"] == HASHED
    assert Schema.fit(table, max_levels=200).columns[0].hashed_buckets is None


def test_the_hash_never_changes():
    assert level_hash("a") == 4681665781835383343
    assert level_hash("") != level_hash(" ")
    assert 0 <= level_hash("\ud800") < 2**64
