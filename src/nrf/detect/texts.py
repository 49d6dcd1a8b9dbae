"""The text of CSV cells as values of the kind a column had at fit, and labels compared as text."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.detect.columns import CategoricalColumn, Column, DroppedColumn, KeptColumn, NumericColumn
from nrf.detect.values import Kind
from nrf.errors import InputError

DAY = 86_400
WANTED = {"numeric": "no number", "boolean": "neither true nor false", "datetime": "no ISO date or time"}


def converted(path: Path, column: Column, text: Any, first: int) -> Any:
    """The text of a CSV column in the type that goes with its kind.

    Args:
        path: The file, for errors.
        column: What the encoder knows of it.
        text: Arrow array of strings.
        first: Number of the first row, for errors.
    """
    text = with_missing(text)
    kind: Kind = "missing" if isinstance(column, DroppedColumn) else column.kind
    if isinstance(column, CategoricalColumn):
        kind = column.holds
    if kind == "categorical":
        return text
    pa, pc = arrow(), arrow("compute")
    text = pc.utf8_trim_whitespace(text)
    text = pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)
    ways = [_to(pa.float64())] if isinstance(column, DroppedColumn) else _ways(column, kind)
    for way in ways:
        values = _tried(way, text)
        if values is not None:
            return values
    if isinstance(column, DroppedColumn):  # the constant is all that counts: what is no number is not that
        return pa.array([None if v is None else as_number(v) for v in text.to_pylist()], pa.float64())
    good, bad = 0, len(text)  # the first value that cannot be converted: so many can, with so many not all can
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (good, middle) if _tried(ways[0], text.slice(0, middle)) is None else (middle, bad)
    value = text[good].as_py()
    raise InputError(f"{path}: column {column.name!r}, row {first + good}: {value!r} is {WANTED[kind]}")


def with_missing(text: Any) -> Any:
    """Strings of a CSV file with nulls for those that mean a missing value.

    Example:
        >>> import pyarrow as pa
        >>> with_missing(pa.array(["NA", "", "00123"])).to_pylist()
        [None, None, '00123']
    """
    pa, pc = arrow(), arrow("compute")
    words = pa.array(arrow("csv").ConvertOptions().null_values, text.type)
    return pc.if_else(pc.is_in(text, value_set=words), pa.scalar(None, text.type), text)


def _to(kind: Any) -> Callable[[Any], Any]:
    return lambda text: arrow("compute").cast(text, kind)


def _ways(column: KeptColumn, kind: Kind) -> list[Callable[[Any], Any]]:
    """How the text may be read, the likeliest way first."""
    pa, pc = arrow(), arrow("compute")

    def time_of_day(text: Any) -> Any:
        return pc.cast(pc.cast(pc.binary_join_element_wise("1970-01-01", text, " "), pa.timestamp("s")), pa.int64())

    if kind == "datetime":
        return [_to(pa.timestamp(unit, tz)) for unit in ("us", "ns") for tz in (None, "UTC")]
    if kind == "boolean":
        return [_to(pa.bool_())]
    clock = isinstance(column, NumericColumn) and column.integer and column.low >= 0 and column.high < DAY
    return [_to(pa.float64()), time_of_day] if clock else [_to(pa.float64())]


def _tried(way: Callable[[Any], Any], text: Any) -> Any:
    try:
        return way(text)
    except arrow().ArrowInvalid:
        return None


def label_is(labels: Any, wanted: str) -> NDArray[np.bool_]:
    """Which labels are the wanted one: the same text, or if there is none such, the same number or truth value.

    Example:
        >>> import pyarrow as pa
        >>> label_is(pa.array(["1.0", "2.0", None]), "1").tolist()
        [True, False, False]
    """
    known = [v for v in labels.unique().to_pylist() if v is not None]
    same = [wanted] if wanted in known else [v for v in known if _meaning(v) == _meaning(wanted)]
    pa, pc = arrow(), arrow("compute")
    mask: NDArray[np.bool_] = np.asarray(pc.is_in(labels, value_set=pa.array(same, pa.string())))
    return mask


def _meaning(text: str) -> tuple[str, float | str]:
    number = as_number(text)
    if number is not None:
        return "number", number
    folded = text.strip().casefold()
    return ("truth", folded) if folded in ("true", "false") else ("text", text)


def as_number(text: str) -> float | None:
    """The number a text stands for, or ``None``."""
    try:
        return float(text)
    except ValueError:
        return None


def arrow(module: str = "") -> Any:
    """pyarrow, which is optional, or one of its modules."""
    try:
        return importlib.import_module(f"pyarrow.{module}" if module else "pyarrow")
    except ImportError as error:
        raise InputError('files of tables need pyarrow; install it with `pip install "nrf[tables]"`') from error
