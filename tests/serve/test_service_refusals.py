"""Bad requests: each is refused with a status and words that say what to do. None ends the service."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import numpy as np
import pytest

from nrf.cli import main
from nrf.detect import NRFDetector, Windows
from nrf.errors import InputError
from nrf.serve import bodies
from nrf.serve.bodies import _is_compressed
from nrf.serve.limits import Limits, Refused
from nrf.serve.served import Models
from some_services import (
    ARROW,
    BODIES,
    CSV,
    JSON,
    PARQUET,
    arrow_bytes,
    client,
    csv_bytes,
    fitted,
    json_rows,
    message,
    mixed_table,
    pa,
    parquet_bytes,
    post,
)

LIMITS = Limits(max_rows=50, max_bytes=450_000, max_unpacked=400_000, max_explained=3)
TABLE = mixed_table(4, seed=1)
ROW = json.loads(json_rows(TABLE))["rows"][1]


def rows(*changed: dict) -> bytes:
    """The good row with some values changed; ... takes a column away."""
    found = [{k: v for k, v in (ROW | change).items() if v is not ...} for change in changed]
    return json.dumps({"rows": found}).encode()


def lists(columns, *values) -> bytes:
    return json.dumps({"columns": columns, "rows": values}).encode()


def with_value(text: str) -> bytes:
    """The good row with a size that is written so."""
    return rows({"size": "HERE"}).replace(b'"HERE"', text.encode())


def repeated(table, n: int):
    return pa.concat_tables([table] * n)


def with_views(n_bytes: int):
    """A table with a long text in a column of views, and a missing one that says it is shorter than none."""
    text = b"x" * n_bytes
    views = np.zeros((2, 4), dtype=np.int32)
    views[0] = n_bytes, int.from_bytes(text[:4], "little"), 0, 0
    views[1, 0] = -(2**31)
    parts = [pa.py_buffer(b"\x01"), pa.py_buffer(views.tobytes()), pa.py_buffer(text)]
    column = pa.Array.from_buffers(pa.string_view(), 2, parts)
    column.validate(full=True)
    return TABLE.slice(0, 2).set_column(4, "colour", column)


def with_text(text: bytes):
    """The first row with these bytes for a text, whether they are one or not."""
    parts = [None, pa.py_buffer(np.array([0, len(text)], dtype=np.int32).tobytes()), pa.py_buffer(text)]
    return TABLE.slice(0, 1).set_column(4, "colour", pa.Array.from_buffers(pa.string(), 1, parts))


def with_date(values):
    return TABLE.slice(0, 1).set_column(5, "when", values)


LONG = mixed_table(40, seed=2).set_column(4, "colour", pa.array(["x" * 20_000] * 40))
HEADER, *LINES = csv_bytes(TABLE).decode().splitlines()

BAD = {
    # name: path, body, content type, status, words
    "no body": ("/score", b"", JSON, 400, "the body is empty; send rows"),
    "no content type": ("/score", rows({}), "", 415, "Content-Type is ''; it must be one of application/json"),
    "another content type": ("/score", rows({}), "text/plain", 415, "it must be one of application/json, text/csv"),
    "a form": ("/score", b"a=1", "application/x-www-form-urlencoded", 415, "it must be one of"),
    "another charset": ("/score", rows({}), f"{JSON}; charset=latin-1", 415, "send UTF-8"),
    "not JSON": ("/score", b"{rows: 1}", JSON, 400, "the body is not JSON: Expecting property name"),
    "half of a JSON": ("/score", rows({})[:-9], JSON, 400, "the body is not JSON"),
    "two JSONs": ("/score", rows({}) + rows({}), JSON, 400, "not JSON: Extra data"),
    "not UTF-8": ("/score", b'{"rows": ["\xff"]}', JSON, 400, "the body is not UTF-8"),
    "half a character": ("/score", rows({"colour": "\ud800"}), JSON, 400, "the body is not UTF-8"),
    "NaN": ("/score", with_value("NaN"), JSON, 400, "NaN is no JSON; write null for a missing value"),
    "Infinity": ("/score", with_value("-Infinity"), JSON, 400, "-Infinity is no JSON"),
    "a number beyond all": ("/score", with_value("1e999"), JSON, 422, "column 'size' has 1 infinite value"),
    "a huge whole number": ("/score", with_value("9" * 400), JSON, 422, "beyond the range of 64-bit floats"),
    "too many digits": ("/score", with_value("9" * 5000), JSON, 400, "the body is not JSON"),
    "deep nesting": ("/score", b'{"rows":' + b"[" * 90_000, JSON, 400, "nested too deeply"),
    "a list": ("/score", b"[1, 2]", JSON, 422, 'the body has no "rows"'),
    "a number": ("/score", b"7", JSON, 422, 'the body has no "rows"'),
    "rows that are none": ("/score", b'{"rows": 7}', JSON, 422, '"rows" is no list'),
    "no rows": ("/score", b'{"rows": []}', JSON, 422, "the body has no rows; give at least one"),
    "rows of numbers": ("/score", b'{"rows": [1]}', JSON, 422, "some rows are no objects"),
    "another key": ("/score", b'{"rows": [{}], "path": "/etc"}', JSON, 422, "the body has 'path', which is not known"),
    "empty rows": ("/score", b'{"rows": [{}]}', JSON, 422, "column 'size' is not in the table; add it"),
    "a column missing": ("/score", rows({"wide": ...}), JSON, 422, "column 'wide' is not in the table; add it"),
    "an unknown column": ("/score", rows({"new": 1}), JSON, 422, "column 'new' was not there at fit; remove it"),
    "text for a number": ("/score", rows({"size": "1.5"}), JSON, 422, "'size' had numbers at fit, now it has strings"),
    "a number for text": ("/score", rows({"colour": 3}), JSON, 422, "'colour' had strings at fit, now it has numbers"),
    "7 for a boolean": ("/score", rows({"member": 7}), JSON, 422, "'member' had booleans at fit, now it has numbers"),
    "no date": ("/score", rows({"when": "1/2/2024"}), JSON, 422, "'when' holds '1/2/2024', which is no ISO date"),
    "no such day": ("/score", rows({"when": "2024-02-30"}), JSON, 422, "holds '2024-02-30', which is no ISO date"),
    "nested values": ("/score", rows({"size": [1]}), JSON, 422, "column 'size' holds nested values"),
    "mixed types": ("/score", rows({}, {"size": "q"}), JSON, 422, "column 'size' mixes numbers and strings"),
    "ragged objects": ("/score", rows({}, {"size": ...}), JSON, 422, "'size' is in the first row, but not in row 2"),
    "ragged objects, more": ("/score", rows({}, {"b": 1}), JSON, 422, "'b' is in row 2, but not in the first row"),
    "ragged lists": ("/score", lists(["a", "b"], [1, 2], [1]), JSON, 422, "row 2 has 1 values, there are 2 columns"),
    "names twice": ("/score", lists(["a", "a"], [1, 2]), JSON, 422, "column 'a' is there more than once"),
    "names that are none": ("/score", lists([1], [1]), JSON, 422, '"columns" is no list of names'),
    "too many rows": ("/score", rows(*[{}] * 51), JSON, 413, "has 51 rows, at most 50 are taken"),
    "too large": ("/score", b" " * 450_001, JSON, 413, "the body is larger than 450000 bytes"),
    "too many to explain": ("/explain", rows(*[{}] * 4), JSON, 413, "4 rows are too many to explain, at most 3"),
    "an unknown model": ("/score?model=other", rows({}), JSON, 404, "there is no model of that name"),
    "a path for a model": ("/score?model=..%2F..%2Fetc", rows({}), JSON, 404, "there is no model of that name"),
    "fdr above 1": ("/predict?fdr=1.5", rows({}), JSON, 422, "fdr must be a number between 0 and 1, got '1.5'"),
    "fdr in words": ("/predict?fdr=low", rows({}), JSON, 422, "fdr must be a number between 0 and 1, got 'low'"),
    "fdr NaN": ("/predict?fdr=nan", rows({}), JSON, 422, "fdr must be a number between 0 and 1"),
    "two rates": ("/predict?fdr=0.1&false_alarm_rate=0.1", rows({}), JSON, 422, "give either fdr or false_alarm_rate"),
    "a rate twice": ("/predict?fdr=0.1&fdr=0.2", rows({}), JSON, 422, "the parameter 'fdr' is given twice"),
    "no flag": ("/score?log_density=maybe", rows({}), JSON, 422, "log_density must be true or false"),
    "an unknown parameter": ("/score?file=x.csv", rows({}), JSON, 422, "the parameter 'file' is not known"),
    "CSV without rows": ("/score", HEADER.encode(), CSV, 400, "no rows"),
    "CSV header twice": ("/score", b"size,size\n1,2\n", CSV, 422, "column 'size' is there more than once"),
    "ragged CSV": ("/score", f"{HEADER}\n1,2\n".encode(), CSV, 400, "row 1 has 2 values, the header has 7"),
    "CSV not UTF-8": ("/score", f"{HEADER}\n{LINES[1]}\n".encode().replace(b'"', b"\xff"), CSV, 400, "not UTF-8"),
    "text in CSV numbers": (
        "/score", "\n".join([HEADER, LINES[1].replace(LINES[1].split(",")[0], "many")]).encode(), CSV, 422,
        "column 'size', row 1: 'many' is no number; leave the cell empty",
    ),
    "CSV infinity": (
        "/score", "\n".join([HEADER, LINES[1].replace(LINES[1].split(",")[0], "inf")]).encode(), CSV, 422,
        "column 'size' has 1 infinite value",
    ),
    "an open quote": ("/score", f'{HEADER}\n"{LINES[1]}\n'.encode(), CSV, 400, "a quote is opened and never closed"),
    "CSV of nothing": ("/score", b"\n\n", CSV, 400, "is empty"),
    "half a Parquet file": ("/score", parquet_bytes(TABLE)[:-20], PARQUET, 400, "truncated, damaged or no Parquet"),
    "no Parquet file": ("/score", b"PAR1 and more", PARQUET, 400, "truncated, damaged or no Parquet"),
    "Parquet, too many rows": ("/score", parquet_bytes(repeated(TABLE, 20)), PARQUET, 413, "has 80 rows, at most 50"),
    "a Parquet bomb": ("/score", parquet_bytes(LONG, use_dictionary=False), PARQUET, 413, "bytes unpacked, at most"),
    "a Parquet bomb in a dictionary": ("/score", parquet_bytes(LONG), PARQUET, 413, "bytes unpacked, at most 400000"),
    "an Arrow bomb in a dictionary": (
        "/score", arrow_bytes(LONG.set_column(4, "colour", LONG["colour"].dictionary_encode())), ARROW, 413,
        "bytes unpacked, at most 400000",
    ),
    "compressed Arrow": ("/score", arrow_bytes(TABLE, compression="zstd"), ARROW, 422, "the Arrow stream are compr"),
    "half an Arrow stream": ("/score", arrow_bytes(TABLE)[:-300], ARROW, 400, "truncated, damaged or no Arrow stream"),
    "no Arrow stream": ("/score", b"ARROW1" * 30, ARROW, 400, "truncated, damaged or no Arrow stream"),
    "Arrow, too many rows": ("/score", arrow_bytes(repeated(TABLE, 20)), ARROW, 413, "at most 50 are taken"),
    "Arrow without rows": ("/score", arrow_bytes(TABLE.slice(0, 0)), ARROW, 422, "the body has no rows"),
    "an Arrow bomb of views": ("/score", arrow_bytes(with_views(400_001)), ARROW, 413, "bytes unpacked, at most 400"),
    "a date beyond the calendar": (
        "/explain", arrow_bytes(with_date(pa.array([2**62], pa.timestamp("s")))), ARROW, 422,
        "column 'when' holds values that Python has no type for",
    ),
    "a time zone that is none": (
        "/explain", arrow_bytes(with_date(pa.array([0], pa.timestamp("us", "No/Where")))), ARROW, 422,
        "in a known time zone",
    ),
    "a date after the last": ("/explain", rows({"when": "9999-12-31T23:59:59-23:00"}), JSON, 422, "no ISO date"),
    "Arrow, text that is none": ("/score", arrow_bytes(with_text(b"\xff")), ARROW, 400, "Invalid UTF8"),
    "Parquet, text that is none": ("/score", parquet_bytes(with_text(b"\xff")), PARQUET, 400, "Invalid UTF8"),
    "Arrow, nested": (
        "/score", arrow_bytes(TABLE.set_column(0, "size", pa.array([[1.0]] * 4))), ARROW, 422, "holds nested values",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "mixed"
    fitted("mixed").save(folder)
    return folder


@pytest.fixture(scope="module")
def asked(saved):
    with client(saved, limits=LIMITS) as found:
        yield found


def test_the_good_row_is_good(asked):
    assert post(asked, "/score", rows({})).status_code == 200
    assert len(BAD) >= 60


@pytest.mark.parametrize("name", BAD)
def test_a_bad_request_is_refused_in_words(asked, name):
    path, body, kind, status, words = BAD[name]
    answer = post(asked, path, body, kind)
    assert answer.status_code == status, answer.text
    assert words in message(answer)
    assert set(answer.json()) == {"error"}
    assert len(answer.content) < 5000
    assert post(asked, "/score", rows({})).status_code == 200, "and the next one is answered"


def test_what_is_wrong_is_said_column_by_column(asked):
    answer = post(asked, "/score", rows({"size": "q", "colour": ..., "new": 1, "when": "soon"})).json()["error"]
    assert set(answer["columns"]) == {"size", "colour", "new", "when"}
    assert "had numbers at fit" in answer["columns"]["size"]
    assert all(text in answer["message"] for text in answer["columns"].values())


def test_methods_addresses_hosts_and_encodings(asked, saved):
    assert asked.get("/score").status_code == 405
    assert asked.put("/score", content=b"{}").status_code == 405
    assert "another method" in message(asked.delete("/models"))
    assert asked.get("/scores").status_code == 404
    assert "/openapi.json says" in message(asked.get("/scores"))
    assert message(asked.get("/model?fdr=1")).startswith("the parameter 'fdr' is not known")
    for host in ("elsewhere.example", "127.0.0.1.elsewhere.example", "", "127.0.0.1:1:2"):
        answer = asked.get("/models", headers={"Host": host})
        assert answer.status_code == 400, host
        assert "names another machine" in message(answer)
    assert asked.get("/models", headers={"Host": "localhost:8765"}).status_code == 200
    packed = post(asked, "/score", rows({}), **{"Content-Encoding": "gzip"})
    assert (packed.status_code, "compressed bodies" in message(packed)) == (415, True)
    bad_length = post(asked, "/score", rows({}), **{"Content-Length": "-5"})
    assert bad_length.status_code == 400
    assert "no whole number" in message(bad_length)
    long_length = post(asked, "/score", rows({}), **{"Content-Length": "9" * 30})
    assert long_length.status_code == 413


def test_a_body_is_counted_while_it_arrives(asked):
    """Without a Content-Length, to the byte."""

    def sent(n_bytes):
        parts = (b" " * min(10_000, n_bytes - i) for i in range(0, n_bytes, 10_000))
        return asked.post("/score", content=parts, headers={"Content-Type": JSON})

    assert sent(LIMITS.max_bytes).status_code == 400, "it is read, and is no JSON"
    answer = sent(LIMITS.max_bytes + 1)
    assert answer.status_code == 413
    assert answer.headers["connection"] == "close"
    said = post(asked, "/score", rows({}), **{"Content-Length": str(LIMITS.max_bytes + 1)})
    assert said.status_code == 413, "what it says of itself is enough"


def test_what_is_read_is_no_more_than_the_limit_and_a_part():
    """The rest of a body that is too long is left where it is."""
    taken = []

    async def parts():
        for i in range(100):
            taken.append(i)
            yield b" " * 1000

    with pytest.raises(Refused, match="larger than 5000 bytes"):
        asyncio.run(Limits(max_bytes=5000).read(None, parts()))
    assert len(taken) == 6


def test_a_parquet_bomb_is_not_unpacked(asked, monkeypatch):
    """Its metadata say how large it is."""
    opened = []

    class Watched:
        def __init__(self, source, **options):
            self._file = pa.parquet.ParquetFile(source, **options)
            self.metadata, self.schema_arrow = self._file.metadata, self._file.schema_arrow

        def read(self, **options):
            opened.append(options)
            return self._file.read(**options)

    monkeypatch.setattr(bodies, "pa_parquet", SimpleNamespace(ParquetFile=Watched))
    assert post(asked, "/score", parquet_bytes(TABLE), PARQUET).status_code == 200
    assert len(opened) == 1
    assert post(asked, "/score", parquet_bytes(LONG, use_dictionary=False), PARQUET).status_code == 413
    assert len(opened) == 1


def test_limits_are_kept_to_the_row(asked):
    """As many as are allowed are answered, by every kind of body."""
    full = pa.concat_tables([TABLE] * 12 + [TABLE.slice(0, 2)])
    assert full.num_rows == LIMITS.max_rows
    for kind, written in BODIES.values():
        assert post(asked, "/score", written(full), kind).status_code == 200, kind
        more = pa.concat_tables([full, TABLE.slice(0, 1)])
        answer = post(asked, "/score", written(more), kind)
        assert (answer.status_code, "51 rows, at most 50" in message(answer)) == (413, True), kind
    assert post(asked, "/explain", rows(*[{}] * LIMITS.max_explained)).status_code == 200


def test_without_the_token_nothing_is_told(saved):
    with client(saved, token="correct-horse-battery") as asked:
        for path in ("/models", "/model", "/metrics", "/openapi.json", "/nowhere"):
            answer = asked.get(path)
            assert answer.status_code == 401, path
            assert answer.headers["www-authenticate"] == "Bearer"
            assert "a token is needed" in message(answer)
        near = ("correct-horse-batterx", "correct-horse-batteryy", "correct-horse", "CORRECT-HORSE-BATTERY")
        others = ("Bearer wrong", "Bearer", "Basic correct-horse-battery", "correct-horse-battery", "Bearer é")
        for given in (*others, *(f"Bearer {token}" for token in near)):
            answer = asked.get("/models", headers={"Authorization": given.encode("latin-1")})
            assert answer.status_code == 401, given
            assert "the token is wrong" in message(answer)
        assert post(asked, "/score", rows({})).status_code == 401
        assert asked.get("/health").status_code == 200
        assert asked.get("/page/style.css").status_code == 200
        good = {"Authorization": "Bearer correct-horse-battery"}
        assert asked.get("/models", headers=good).status_code == 200
        assert post(asked, "/score", rows({}), **good).status_code == 200
        assert asked.get("/openapi.json", headers=good).json()["components"]["securitySchemes"]


def test_the_header_of_a_message_says_whether_it_is_compressed():
    for compression in (None, "lz4", "zstd"):
        for table in (TABLE, TABLE.set_column(4, "colour", TABLE["colour"].dictionary_encode())):
            body = arrow_bytes(table, **({} if compression is None else {"compression": compression}))
            reader = pa.ipc.MessageReader.open_stream(pa.BufferReader(body))
            kinds = [(m.type, m.metadata.to_pybytes()) for m in reader if m.type != "schema"]
            assert kinds
            assert {_is_compressed(header) for _, header in kinds} == {compression is not None}
    with pytest.raises(ValueError, match="damaged"):
        _is_compressed(b"\xff" * 8)


def test_random_bytes_are_refused(asked):
    """Good bodies with some bytes changed are read or refused, and never end in an internal error."""
    rng = np.random.default_rng(0)
    for kind, body in ((PARQUET, parquet_bytes(TABLE)), (ARROW, arrow_bytes(TABLE)), (CSV, csv_bytes(TABLE))):
        for _ in range(60):
            changed = bytearray(body)
            for place in rng.integers(0, len(body), 3):
                changed[place] = rng.integers(0, 256)
            answer = post(asked, "/score", bytes(changed), kind)
            assert answer.status_code in (200, 400, 413, 415, 422), (kind, answer.text)


def test_a_detector_of_windows_is_not_served(tmp_path):
    """It would ask for columns that no table has."""
    rows = np.random.default_rng(0).normal(size=(200, 2))
    NRFDetector(features=Windows(3), random_state=0).fit(rows).save(tmp_path / "model")
    with pytest.raises(InputError, match=r"sees windows of rows .* score whole files with `nrf detect score`"):
        Models(tmp_path / "model")


def test_what_cannot_be_served_is_said_at_the_start(tmp_path, saved, capsys):
    with pytest.raises(InputError, match="give a model, or --models"):
        Models()
    with pytest.raises(InputError, match="has no saved detector"):
        Models(folder=tmp_path)
    for arguments, words in (
        ([], "give a model, or --models"),
        ([str(tmp_path / "none")], "is no saved detector"),
        ([str(saved), "--port", "0"], "port must lie between"),
        ([str(saved), "--host", "0.0.0.0"], "give --token-file FILE with a token, or say --no-token"),
        ([str(saved), "--host", "0.0.0.0", "--token-file", str(tmp_path / "no")], "the token cannot be read"),
        ([str(saved), "--max-rows", "0"], "max_rows must be above 0"),
        ([str(saved), "--seconds", "inf"], "seconds must be above 0 and finite"),
        ([str(saved), "--drift", "1"], "drift must lie between 0 and 1, got 1.0; 0 watches nothing"),
    ):
        assert main(["serve", *arguments]) == 2, arguments
        assert words in capsys.readouterr().err
    (tmp_path / "token").write_text("short\n")
    assert main(["serve", str(saved), "--token-file", str(tmp_path / "token")]) == 2
    assert "openssl rand -hex 32" in capsys.readouterr().err
