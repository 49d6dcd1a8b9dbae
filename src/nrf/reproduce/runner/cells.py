"""The cells of an experiment in one file, a line each; a line is added whole or, after a kill, not at all.

What is stored of a cell is its settings, the revision and the commit of its code, and its result, with a checksum. A
line may also say how long the experiment has been worked on so far; the largest such number holds.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from nrf.errors import InputError
from nrf.reproduce.runner.experiment import Cell

log = logging.getLogger(__name__)

REMEDY = "delete that line and run again"
_FIELDS = {"cell", "revision", "settings", "configuration", "commit", "result", "wall_seconds", "digest"}


@dataclass(frozen=True)
class Stored:
    """What a file holds of a cell."""

    name: str
    revision: int
    settings: dict[str, Any] | None
    """None where they are not known, so that it is nobody's result."""
    commit: str | None
    result: dict[str, Any]
    configuration: str | None = None
    """Of cells of 0.1.0, which had no settings of their own: digest of those of the whole experiment."""

    def as_line(self, wall_seconds: float | None = None) -> dict[str, Any]:
        """For the file."""
        line = {"cell": self.name, "revision": self.revision, "settings": self.settings}
        line |= {"configuration": self.configuration, "commit": self.commit, "result": self.result}
        if wall_seconds is not None:
            line["wall_seconds"] = round(wall_seconds, 1)
        return line | {"digest": _digest(line)}


class CellFile:
    """The file; it need not be there yet."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> tuple[list[Stored], float]:
        """All cells, and the seconds spent so far; what is damaged is an error that names the line."""
        if not self.path.exists():
            return [], 0.0
        with _opened(self.path, write=False) as file:
            content = file.read()
        lines, torn = _split(content)
        if torn:
            log.warning("%s: the last line is not whole, as after a kill; what it was of is done again", self.path)
        found, seconds = [], [0.0]
        for i, line in enumerate(lines, 1):
            if not line.strip():
                continue
            where = f"{self.path}, line {i}"
            parsed = _parsed(line, where)
            if "wall_seconds" in parsed:
                seconds.append(_seconds(parsed["wall_seconds"], where))
            if set(parsed) != {"wall_seconds"}:
                found.append(_stored(parsed, where))
        return found, max(seconds)

    def find(self, cells: Sequence[Cell]) -> dict[str, Stored]:
        """The results that belong to these cells, by name: those of the same settings and revision."""
        by_name: dict[str, list[Stored]] = {}
        for stored in self.read()[0]:
            by_name.setdefault(stored.name, []).append(stored)
        found = {}
        for cell in cells:
            for stored in by_name.get(cell.name, ()):
                if cell.has(stored.revision, stored.settings):
                    found[cell.name] = stored
        return found

    def add(self, lines: Iterable[dict[str, Any]]) -> None:
        """Append lines: all of them are on the disk when this returns."""
        content = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        if not content:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with _opened(self.path, write=True) as file:
            before = file.read()
            whole, torn = _split(before)
            if torn:
                file.truncate(len(before) - len(torn))
            elif whole and not before.endswith(b"\n"):
                content = b"\n" + content
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def take_from(self, other: CellFile) -> None:
        """Append what another file has and this one has not."""
        theirs, seconds = other.read()
        mine, so_far = self.read()
        known = {_digest(stored.as_line()) for stored in mine}
        lines = [stored.as_line() for stored in theirs if _digest(stored.as_line()) not in known]
        if seconds > so_far:
            lines.append({"wall_seconds": round(seconds, 1)})
        self.add(lines)


@contextmanager
def _opened(path: Path, *, write: bool) -> Iterator[BinaryIO]:
    """The file, to be read or appended to; one process writes at a time, and none while another reads."""
    with path.open("a+b" if write else "rb") as file:
        with suppress(OSError):  # some network file systems have no locks
            fcntl.flock(file.fileno(), fcntl.LOCK_EX if write else fcntl.LOCK_SH)
        file.seek(0)
        yield file


def _split(content: bytes) -> tuple[list[bytes], bytes]:
    """Lines, and what is left of one that was being written when its process was killed."""
    *lines, last = content.split(b"\n")
    if last:
        try:
            json.loads(last)
        except (ValueError, RecursionError):
            return lines, last
        lines.append(last)
    return lines, b""


def _parsed(line: bytes, where: str) -> dict[str, Any]:
    try:
        content = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: damaged ({' '.join(str(error).split())[:200]}); {REMEDY}") from error
    if not isinstance(content, dict):
        raise InputError(f"{where}: damaged (not a cell); {REMEDY}")
    return content


def _seconds(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise InputError(f"{where}: damaged ({value!r} is no number of seconds); {REMEDY}")
    return float(value)


def _stored(line: dict[str, Any], where: str) -> Stored:
    unknown, missing = sorted(set(line) - _FIELDS), sorted(_FIELDS - {"wall_seconds"} - set(line))
    if unknown or missing:
        raise InputError(f"{where}: damaged (fields missing {missing}, unknown {unknown}); {REMEDY}")
    if line["digest"] != _digest({name: value for name, value in line.items() if name != "digest"}):
        raise InputError(f"{where}: damaged (the cell does not match its checksum); {REMEDY}")
    kinds: dict[str, Any] = {"cell": str, "revision": int, "settings": dict | None, "configuration": str | None}
    kinds |= {"commit": str | None, "result": dict}
    for name, kind in kinds.items():
        if not isinstance(line[name], kind):
            raise InputError(f"{where}: damaged ({name} is {line[name]!r}); {REMEDY}")
    return Stored(
        line["cell"], line["revision"], line["settings"], line["commit"], line["result"], line["configuration"]
    )


def _digest(line: dict[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(line, sort_keys=True).encode(), digest_size=16).hexdigest()
