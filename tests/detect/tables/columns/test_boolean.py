"""Booleans."""

from __future__ import annotations

import pytest

from nrf.detect.tables.matching import SchemaError
from nrf.detect.tables.schema import Schema

pd = pytest.importorskip("pandas")


def test_booleans_take_zeros_and_ones():
    encoder = Schema.fit(pd.DataFrame({"b": [True, False, False]}))
    assert encoder.encode(pd.DataFrame({"b": [1, 0]})).tolist() == [[1, 0], [0, 0]]
    with pytest.raises(SchemaError, match=r"'b' had booleans at fit, now it has numbers, for example 2\.0"):
        encoder.encode(pd.DataFrame({"b": [1, 2]}))
