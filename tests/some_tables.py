"""Tables that several tests need."""

from __future__ import annotations

import datetime as dt
import warnings

import pytest

from nrf.detect.tables.frame import as_columns
from nrf.detect.tables.schema import Schema
from nrf.errors import InputError

pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

NAN = float("nan")
DAYS = [dt.datetime(2020, 1, d, 12, 30, 15, 250_000) for d in (1, 2, 5, 9)]
STAMPS = [d.replace(tzinfo=dt.UTC).timestamp() for d in DAYS]


def mixed(library: str = "pandas"):
    """One table with every kind of column, some with missing values."""
    table = pa.table(
        {
            "age": pa.array([30, 41, 25, 60]),
            "income": pa.array([1.5, None, 2.5, 1000.25]),
            "member": pa.array([True, False, None, True]),
            "colour": pa.array(["red", None, "blue", "red"]),
            "grade": pa.array(["b", "a", "c", "a"]).dictionary_encode(),
            "joined": pa.array(DAYS, pa.timestamp("us")),
        }
    )
    return {"pandas": table.to_pandas, "polars": lambda: pl.from_arrow(table), "arrow": lambda: table}[library]()


def quiet_fit(table, **kwargs) -> Schema:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return Schema.fit(table, **kwargs)


def fit_or_none(table, **kwargs) -> Schema | None:
    """``None`` if random columns happen to be constant, all of them."""
    frame = as_columns(table)
    columns = (frame.column(i) for i in range(len(frame.names)))
    if all(len({None if v != v else v for v in c}) < 2 for c in columns):
        with pytest.raises(InputError, match="no column distinguishes rows"):
            Schema.fit(frame, **kwargs)
        return None
    return quiet_fit(table, **kwargs)
