"""The record of an experiment: one JSON file of one form, checked when written and when read."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from nrf.errors import InputError
from nrf.files import write_atomically

COLUMNS = ("last", "selected", "oracle", None)


@dataclass(frozen=True)
class Row:
    """One number of a table, ours or quoted, with the paper's beside it where there is one."""

    method: str
    metric: str
    mean: float
    sd: float | None = None
    n: int = 1
    preset: str | None = None
    case: str | None = None
    """Class, split or draw the number belongs to; None for all of them."""
    column: str | None = None
    """``last``, ``selected`` or ``oracle`` for detection; None where no epoch is chosen."""
    paper: float | None = None
    paper_sd: float | None = None
    quoted: bool = False
    """True where the number is not ours."""

    def __post_init__(self) -> None:
        if self.column not in COLUMNS:
            raise InputError(f"column of {self.method} is {self.column!r}, not one of last, selected, oracle or none")
        if self.n < 1 or (self.sd is not None and self.sd < 0):
            raise InputError(f"{self.method}, {self.metric}: n = {self.n} and sd = {self.sd} make no sense")

    def distance(self) -> float | None:
        """How many standard deviations ours lies above the paper's; None where one of them has none."""
        spread = ((self.sd or 0.0) ** 2 + (self.paper_sd or 0.0) ** 2) ** 0.5
        return None if self.paper is None or self.quoted or spread == 0 else (self.mean - self.paper) / spread


@dataclass(frozen=True)
class Record:
    """All rows of an experiment and what it takes to get them again."""

    experiment: str
    command: str
    commit: str | None
    versions: dict[str, str]
    machine: dict[str, Any]
    seeds: Sequence[int]
    wall_seconds: float
    rows: Sequence[Row]

    def write(self, path: Path | str) -> None:
        """Write as JSON, atomically."""
        write_atomically(Path(path), (json.dumps(asdict(self), indent=1, allow_nan=False) + "\n").encode())

    @classmethod
    def read(cls, path: Path | str) -> Record:
        """Read and check."""
        try:
            content = json.loads(Path(path).read_text())
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(f"{path}: cannot be read as a record: {error}") from error
        return parse(content, str(path))


def parse(content: Any, where: str) -> Record:
    """Check the form of a record; what is wrong is named."""
    values = _require_fields(Record, content, where)
    kinds: dict[str, type | tuple[type, ...]] = {
        "experiment": str,
        "command": str,
        "commit": (str, type(None)),
        "versions": dict,
        "machine": dict,
        "seeds": list,
        "wall_seconds": (int, float),
        "rows": list,
    }
    _require_kinds(values, kinds, where)
    return Record(
        **{**values, "rows": [_parse_row(row, f"{where}: row {i}") for i, row in enumerate(values["rows"], 1)]}
    )


def _parse_row(content: Any, where: str) -> Row:
    values = _require_fields(Row, content, where)
    text, number = (str, type(None)), (int, float, type(None))
    kinds: dict[str, type | tuple[type, ...]] = {"method": str, "metric": str, "mean": (int, float), "sd": number}
    kinds |= {
        "n": int,
        "preset": text,
        "case": text,
        "column": text,
        "paper": number,
        "paper_sd": number,
        "quoted": bool,
    }
    _require_kinds(values, kinds, where)
    return Row(**values)


def _require_fields(kind: type, content: Any, where: str) -> dict[str, Any]:
    names = {f.name for f in fields(kind)}
    if not isinstance(content, dict) or set(content) != names:
        given = set(content) if isinstance(content, dict) else set()
        raise InputError(f"{where}: fields missing {sorted(names - given)}, unknown {sorted(given - names)}")
    return content


def _require_kinds(values: dict[str, Any], kinds: dict[str, type | tuple[type, ...]], where: str) -> None:
    for name, kind in kinds.items():
        value = values[name]
        numeric_bool = isinstance(value, bool) and kind is not bool
        if not isinstance(value, kind) or numeric_bool:
            raise InputError(f"{where}: {name} is {value!r}")


def machine() -> dict[str, Any]:
    """What the time depends on, without a name of its own."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        lines = (
            line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")
        )
        model = next(lines, model)
    return {"system": platform.system(), "processor": model, "cores": os.cpu_count()}


def commit() -> str | None:
    """The commit of the checkout this package is run from, with ``+`` if it was changed; None outside of one."""
    try:
        _git("ls-files", "--error-unmatch", Path(__file__).name)
        changed = "+" if _git("status", "--porcelain", str(Path(__file__).parent.parent)) else ""
        return _git("rev-parse", "--short=12", "HEAD") + changed
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(*words: str) -> str:
    here = Path(__file__).parent
    return subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True).stdout.strip()
