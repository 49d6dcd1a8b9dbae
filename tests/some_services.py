"""Detectors to serve, and clients that ask for them."""

from __future__ import annotations

import datetime as dt
import functools
import json
import warnings
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("fastapi")
pytest.importorskip("httpx")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # starlette would have another client than httpx
    from starlette.testclient import TestClient

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

from nrf.detect import NRFDetector
from nrf.serve.app import detection_app
from nrf.serve.limits import Limits
from nrf.serve.served import Models

JSON, CSV = "application/json", "text/csv"
PARQUET, ARROW = "application/vnd.apache.parquet", "application/vnd.apache.arrow.stream"


def mixed_table(n: int = 240, seed: int = 0):
    """Numbers, whole ones, booleans, levels, dates, gaps, and a constant column."""
    rng = np.random.default_rng(seed)
    gap = np.arange(n) % 17 == 0
    start = dt.datetime(2024, 3, 1)
    return pa.table(
        {
            "size": rng.normal(size=n),
            "count": rng.poisson(9, n),
            "wide": pa.array(rng.normal(size=n) * 10, mask=gap),
            "member": rng.random(n) < 0.4,
            "colour": pa.array(np.array(["red", "green", "blue"])[rng.integers(0, 3, n)], mask=np.roll(gap, 3)),
            "when": [start + dt.timedelta(minutes=701 * int(m)) for m in rng.integers(0, 140, n)],
            "site": np.full(n, 7.0),
        }
    )


def number_table(n: int = 200, seed: int = 0):
    """Three numbers and levels: what goes the short way."""
    rng = np.random.default_rng(seed)
    columns = {name: rng.normal(size=n) for name in "abc"}
    return pa.table({**columns, "kind": np.array(["x", "y"])[rng.integers(0, 2, n)]})


@functools.cache
def fitted(which: str, seed: int = 0) -> NRFDetector:
    """A detector of one of the tables."""
    table = {"mixed": mixed_table, "numbers": number_table}[which](seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return NRFDetector(random_state=seed, false_alarm_rate=0.1).fit(table)


def client(models: Models | Path, *, limits: Limits | None = None, host: str = "127.0.0.1", **options) -> TestClient:
    """A client of a service in this process."""
    models = models if isinstance(models, Models) else Models(models)
    app = detection_app(models, limits=limits, hosts=("127.0.0.1", "localhost"), **options)
    return TestClient(app, base_url=f"http://{host}", raise_server_exceptions=False)


def json_rows(table) -> bytes:
    """Rows by name."""
    return json.dumps({"rows": table.to_pylist()}, default=lambda value: value.isoformat()).encode()


def json_lists(table) -> bytes:
    """Names once, then values."""
    rows = [list(row.values()) for row in table.to_pylist()]
    content = {"columns": table.column_names, "rows": rows}
    return json.dumps(content, default=lambda value: value.isoformat()).encode()


def csv_bytes(table) -> bytes:
    """A header and rows."""
    sink = pa.BufferOutputStream()
    pa_csv.write_csv(table, sink)
    return sink.getvalue().to_pybytes()


def parquet_bytes(table, **options) -> bytes:
    """A Parquet file."""
    sink = pa.BufferOutputStream()
    pa_parquet.write_table(table, sink, **options)
    return sink.getvalue().to_pybytes()


def arrow_bytes(table, **options) -> bytes:
    """An Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as stream:
        stream.write_table(table)
    return sink.getvalue().to_pybytes()


BODIES = {
    "JSON rows": (JSON, json_rows),
    "JSON lists": (JSON, json_lists),
    "CSV": (CSV, csv_bytes),
    "Parquet": (PARQUET, parquet_bytes),
    "Arrow": (ARROW, arrow_bytes),
}


def post(asked, path: str, body: bytes, kind: str = JSON, **headers):
    """A request with a body."""
    return asked.post(path, content=body, headers={"Content-Type": kind, **headers})


def message(answer) -> str:
    """What an error says."""
    return answer.json()["error"]["message"]
