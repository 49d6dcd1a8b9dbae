"""CSV text that arrives bit by bit is read like a file of it."""

from __future__ import annotations

import io

import pytest

from nrf.detect.tables.arriving import line_batches
from nrf.detect.tables.files import FileColumns, batches
from nrf.detect.tables.schema import Schema
from nrf.errors import InputError

pa = pytest.importorskip("pyarrow")

TEXT = """id;size;colour;note
1;1,5;red;x
2;;"a; ""b""
c";y

3;2;blue;z
"""


class Trickle(io.BytesIO):
    """So many bytes at a time."""

    def __init__(self, content: bytes, size: int) -> None:
        super().__init__(content)
        self.size = size

    def read1(self, n: int | None = -1, /) -> bytes:
        return self.read(self.size)


@pytest.fixture
def schema():
    return Schema.fit(pa.table({"size": [1.5, None, 2.0], "colour": ["red", "blue", "red"]}))


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_as_a_file(schema, size, ending, tmp_path):
    from nrf.detect.tables.dialect import Dialect

    known = FileColumns(ids=("id",), dialect=Dialect(separator=";", decimal=","))
    content = TEXT.replace("\n", ending).encode("utf-8-sig")
    found = list(line_batches(schema, Trickle(content, size), drop=["note"], known=known))
    table = pa.concat_tables([batch.table for batch in found])
    path = tmp_path / "rows.csv"
    path.write_bytes(content)
    (whole,) = batches(schema, path, drop=["note"], known=known)
    assert table.to_pydict() == whole.table.to_pydict()
    assert table["colour"].to_pylist() == ["red", f'a; "b"{ending}c', "blue"]
    assert [batch.first for batch in found] == ([1, 2, 3] if size < 8 else [1])
    assert pa.concat_tables([batch.ids for batch in found]).to_pydict() == {"id": ["1", "2", "3"]}


def test_the_last_row_needs_no_line_break(schema):
    found = list(line_batches(schema, io.BytesIO(b"colour,size\nred,1\nblue,2")))
    assert [batch.table.to_pylist() for batch in found] == [
        [{"size": 1.0, "colour": "red"}],
        [{"size": 2.0, "colour": "blue"}],
    ]
    assert list(line_batches(schema, io.BytesIO(b"colour,size\n"))) == []


def test_rows_keep_their_numbers_over_pieces(schema):
    content = b"colour,size\n" + b"red,1\n" * 50 + b"red,x\n"
    with pytest.raises(InputError, match="standard input: column 'size', row 51: 'x' is no number"):
        list(line_batches(schema, Trickle(content, 64)))
