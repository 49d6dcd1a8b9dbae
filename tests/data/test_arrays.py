"""A user's file is read right or refused with the cell that is wrong."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nrf.data import read_array
from nrf.errors import InputError

ROWS = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, -6.5]])


def _save(path: Path, content: Any) -> Path:
    if isinstance(content, str):
        path.write_text(content)
    elif isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, dict):
        np.savez(path, **content)
    else:
        np.save(path, content)
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.npz", {"x": ROWS, "y": np.zeros(3)}),
        ("a.npz", {"rows": ROWS}),
        ("a.npy", ROWS),
        ("a.NPY", ROWS),
        ("a.csv", "1,2\n3,4\n5,-6.5\n"),
        ("a.csv", "height,width\n1,2\n\n3, 4\n5,-6.5"),
        ("a.csv", '"height, cm","width"\n1,2\n3,4\n5,-6.5\n'),
        ("a.csv", "\ufeffa,b\r\n1,2\r\n3,4\r\n5,-6.5\r\n"),
        ("a.txt", "1 2\n3\t4\n5   -6.5\n"),
        ("a.txt", "# x y\n1 2\n3 4\n5 -6.5\n"),
        ("a.txt", "x y\n1 2\n3 4\n5 -6.5\n"),
    ],
)
def test_every_form_gives_the_same_rows(tmp_path: Path, name: str, content: Any) -> None:
    path = tmp_path / name
    if name.endswith("NPY"):
        with path.open("wb") as stream:
            np.save(stream, content)
    else:
        _save(path, content)
    rows = read_array(path, (2,))
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows, ROWS.astype(np.float32))


@pytest.mark.parametrize("shape", [(4, 12), (4, 3, 2, 2)])
def test_images_may_be_flat(tmp_path: Path, shape: tuple[int, ...]) -> None:
    images = np.arange(48, dtype=np.uint8).reshape(shape)
    rows = read_array(_save(tmp_path / "a.npy", images), (3, 2, 2))
    np.testing.assert_array_equal(rows, images.reshape(4, 3, 2, 2))


def test_a_single_column(tmp_path: Path) -> None:
    assert read_array(_save(tmp_path / "a.csv", "x\n1\n2\n"), (1,)).tolist() == [[1.0], [2.0]]
    assert read_array(_save(tmp_path / "a.npy", np.array([1.0, 2.0])), (1,)).shape == (2, 1)


class Evil:
    """Unpickling this would be noticed."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("a pickle was loaded",))


REFUSED: list[tuple[str, Any, tuple[int, ...], str]] = [
    ("a.xlsx", "", (2,), r"suffix '\.xlsx'; files can be \.npz, \.npy, \.csv, \.txt"),
    ("a", "", (2,), r"suffix '\(none\)'"),
    ("a.csv", "1,2,3\n4,5,6\n", (2,), r"a\.csv has 3 columns, the model expects 2"),
    ("a.npy", np.zeros((5, 3)), (2,), r"a\.npy has 3 columns, the model expects 2"),
    ("a.npy", np.zeros((5, 7)), (3, 2, 2), "has 7 columns, the model expects 12"),
    (
        "a.npy",
        np.zeros((5, 3, 2)),
        (3, 2, 2),
        r"shape \(5, 3, 2\), the model expects \(n, 3, 2, 2\) or \(n, 12\)",
    ),
    ("a.npy", np.zeros((3, 2, 2)), (3, 2, 2), r"the model expects \(n, 3, 2, 2\)"),
    ("a.npy", np.zeros(2), (2,), r"shape \(2,\), the model expects \(n, 2\)"),
    ("a.npy", np.float64(3), (1,), r"shape \(\), the model expects \(n, 1\)"),
    ("a.csv", "a,b\n1,2\n3,nan\n", (2,), "row 2, column 2 is nan, not a finite"),
    ("a.npy", np.array([[1, np.inf], [np.nan, 0]]), (2,), "row 1, column 2 is inf.*2 such cells"),
    ("a.npy", np.array([[1.0, 1e300]]), (2,), r"row 1, column 2 is 1e\+300, not a finite 32-bit"),
    ("a.csv", "a,b\n1,2\n3,four\n", (2,), "row 2, column 2 is 'four', not a number"),
    ("a.csv", "1,2\n,4\n", (2,), "row 2, column 1 is an empty cell, not a number"),
    ("a.csv", "1,two\n3,4\n", (2,), "row 1, column 2 is 'two', not a number"),
    ("a.csv", "a,b\n1,2\n3\n", (2,), "row 2 has 1 columns, row 1 has 2"),
    ("a.csv", "", (2,), "is empty"),
    ("a.csv", "a,b\n", (2,), "is empty"),
    ("a.csv", b"\xff\xfe\x00", (2,), "not a text file in UTF-8"),
    ("a.npy", np.zeros((0, 2)), (2,), "is empty"),
    ("a.npy", b"", (2,), r"not a readable \.npy file"),
    ("a.npy", b"garbage that is no array", (2,), "is not a NumPy file"),
    ("a.npz", b"PK\x03\x04 cut off", (2,), r"not a readable \.npz file"),
    ("a.npz", {"a": ROWS, "b": ROWS}, (2,), "holds a, b; name the array to be read `x`"),
    ("a.npz", {}, (2,), "holds no arrays"),
    ("a.npy", np.array([["a", "b"]]), (2,), "values of type <U1, not real numbers"),
    ("a.npy", np.array([[1j, 2]]), (2,), "values of type complex128"),
    ("a.npy", np.array([[Evil(), 1]], dtype=object), (2,), "pickled Python objects"),
    ("a.npz", {"x": np.array([[Evil(), 1]], dtype=object)}, (2,), "pickled Python objects"),
]


@pytest.mark.parametrize(("name", "content", "event_shape", "message"), REFUSED)
def test_refused_with_the_reason(
    tmp_path: Path, name: str, content: Any, event_shape: tuple[int, ...], message: str
) -> None:
    path = _save(tmp_path / name, content)
    with pytest.raises(InputError, match=message) as caught:
        read_array(path, event_shape)
    assert str(path) in str(caught.value)


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.csv does not exist"):
        read_array(tmp_path / "none.csv", (2,))
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        read_array(tmp_path / "folder.csv", (2,))


def test_a_wrong_suffix_of_numpys_two_forms_is_told(tmp_path: Path) -> None:
    _save(tmp_path / "a.npy", ROWS).rename(tmp_path / "a.npz")
    with pytest.raises(InputError, match=r"rename it to \.npy"):
        read_array(tmp_path / "a.npz", (2,))
    _save(tmp_path / "b.npz", {"x": ROWS}).rename(tmp_path / "b.npy")
    with pytest.raises(InputError, match=r"rename it to \.npz"):
        read_array(tmp_path / "b.npy", (2,))


def _header(shape: str, kind: str = "'<f8'") -> bytes:
    text = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


@pytest.mark.parametrize(
    "header",
    [
        _header("(1000000000000, 2)"),  # more than any memory
        _header("(100000000000000000000, 2)"),  # more than a 64-bit number
        _header("(-1, 2)"),
        _header("'x'"),
        _header("(" * 3000 + ")" * 3000),
        _header("(2, 2)", "[('a', '<f8')]"),
    ],
)
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_headers_that_promise_too_much(tmp_path: Path, header: bytes, suffix: str) -> None:
    path = tmp_path / f"x{suffix}"
    path.write_bytes(header)
    if suffix == ".npz":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x.npy", header)
    with pytest.raises(InputError, match=r"does not fit into memory|is not a readable|real numbers|is empty"):
        read_array(path, (2,))


def test_a_small_archive_of_a_large_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros((1000, 2)))
    assert read_array(tmp_path / "x.npz", (2,)).shape == (1000, 2)
    monkeypatch.setattr("os.sysconf", lambda name: 100)  # 100 pages of 100 bytes
    with pytest.raises(InputError, match=r"memory \(unpacked it has 16128 bytes, this machine 10000\)"):
        read_array(tmp_path / "x.npz", (2,))
