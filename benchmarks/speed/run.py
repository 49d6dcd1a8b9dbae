"""All sections in one run, and their record."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from nrf.errors import InputError
from nrf.reproduce.runner.record import Record, Row
from speed.detection import detectors, growth, scoring
from speed.generation import generation
from speed.record import make_record, require_committed
from speed.samplers import samplers
from speed.timing import QUICK, Effort
from speed.training import iterations, parts, peaks, revisions

Section = Callable[[Effort], Iterator[Row]]

SECTIONS: dict[str, Section] = {
    "machine": peaks,
    "revision": revisions,
    "iteration": iterations,
    "parts": parts,
    "generation": generation,
    "samplers": samplers,
    "scoring": scoring,
    "growth": growth,
    "detectors": detectors,
}


def bench(
    only: Sequence[str], results: Path | None, say: Callable[[str, Row], object], *, quick: bool = False
) -> Record:
    """Measure the sections, telling each row as it is found, and write ``bench.json``.

    Args:
        only: Names of sections; none for all of them.
        results: Folder for the record; None to write nothing.
        say: Called with the section and the row.
        quick: Measure for a moment only: to see that everything works, not to read the numbers.
    """
    unknown = [name for name in only if name not in SECTIONS]
    if unknown:
        raise InputError(f"unknown section {unknown[0]!r}; known are {', '.join(SECTIONS)}")
    require_committed(results)
    started, rows = time.time(), []
    for name in only or SECTIONS:
        for row in SECTIONS[name](QUICK if quick else Effort()):
            say(name, row)
            rows.append(row)
    words = ["nrf", "bench", *(f"--only {name}" for name in only), *(["--quick"] if quick else [])]
    record = make_record("bench", " ".join(words), rows, started)
    if results is not None:
        record.write(results / "bench.json")
    return record
