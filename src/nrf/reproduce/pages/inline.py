"""Single numbers within the sentences of a page, each from a row of a record.

The marker names the record, the method and the metric, then, where the row has them, ``preset=``, ``case=`` and
``column=``. ``form=`` is a format (``.3f`` if not given), ``times=`` a factor (100 turns a share into percent), and the
words ``sd``, ``n`` and ``paper`` ask for mean ± SD, for the number of values, and for the paper's number beside ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from nrf.errors import InputError
from nrf.reproduce.pages.records import Records
from nrf.reproduce.runner.record import Row

_VALUE = re.compile(r"(<!-- value: (?P<row>[^>]*?) -->)(?P<text>[^<]*)(<!-- /value -->)")
_MARKER = re.compile(r"<!-- (?:value: |/value)")
_AT_START = re.compile(r"^\s*<!-- value: ", re.MULTILINE)
"""There Markdown takes the whole line for HTML, and shows its marks."""
_PLACES = ("preset", "case", "column")
_FLAGS = ("sd", "n", "paper")


def fill_values(text: str, records: Records, where: str = "page") -> str:
    """The page with each of its single numbers made anew."""
    if len(_MARKER.findall(text)) != 2 * len(_VALUE.findall(text)):
        raise InputError(f"{where}: each <!-- value: … --> needs a <!-- /value --> behind its number, and nothing else")
    found = _AT_START.search(text)
    if found:
        line = text[: found.end()].count("\n") + 1
        raise InputError(
            f"{where}:{line}: a value cannot begin a line, which Markdown would take for HTML; move a word up"
        )

    def number(match: re.Match[str]) -> str:
        return f"{match[1]}{value(match['row'], records, where)}{match[4]}"

    return _VALUE.sub(number, text)


def value(asked: str, records: Records, where: str = "page") -> str:
    """The number that a marker asks for."""
    names, options, flags = list[str](), dict[str, str](), set[str]()
    for part in _parts(asked):
        key, equals, setting = part.partition("=")
        if len(names) < 3:
            names.append(part)
        elif part in _FLAGS:
            flags.add(part)
        elif equals and key in (*_PLACES, "form", "times"):
            options[key] = setting
        else:
            known = ", ".join((*(f"{name}=" for name in (*_PLACES, "form", "times")), *_FLAGS))
            raise InputError(f"{where}: {part!r} in the value {asked!r} is not one of {known}")
    if len(names) < 3:
        raise InputError(f"{where}: the value {asked!r} needs a record, a method and a metric, with ; between them")
    record, method, metric = names
    try:
        row = records.rows(record).get(method, metric, **{k: v for k, v in options.items() if k in _PLACES})
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    return _written(row, options.get("form", ".3f"), float(options.get("times", 1)), flags).replace("-", "−")


def _parts(asked: str) -> Iterator[str]:
    yield from (part.strip() for part in asked.split(";"))


def _written(row: Row, form: str, times: float, flags: set[str]) -> str:
    if "n" in flags:
        return str(row.n)
    mean, sd = (row.paper, row.paper_sd) if "paper" in flags else (row.mean, row.sd)
    if mean is None:
        raise InputError(f"the paper has no number of {row.method!r}, {row.metric!r}")
    scaled = replace(row, mean=mean * times, sd=None if sd is None or "sd" not in flags else sd * times)
    return scaled.text(form)
