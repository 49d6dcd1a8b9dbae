"""The record of an experiment: one JSON file of one form, checked when written and when read."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nrf
from nrf.errors import InputError
from nrf.files import write_atomically

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

COLUMNS = ("last", "selected", "oracle", None)
Quoted = tuple[float | None, float | None]
"""The paper's mean and SD, where it has them."""

_TEXT, _NUMBER = (str, type(None)), (int, float, type(None))
_KINDS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "Record": {
        "experiment": str,
        "command": str,
        "commit": _TEXT,
        "versions": dict,
        "machine": dict,
        "seeds": list,
        "wall_seconds": (int, float),
        "rows": list,
    },
    "Row": {
        "method": str,
        "metric": str,
        "mean": (int, float),
        "sd": _NUMBER,
        "n": int,
        "preset": _TEXT,
        "case": _TEXT,
        "column": _TEXT,
        "paper": _NUMBER,
        "paper_sd": _NUMBER,
        "quoted": bool,
    },
}


def spread(mean: float | None, sd: float | None = None, form: str = ".3f", sd_form: str | None = None) -> str:
    """Mean ± SD as text: nothing where there is no mean, the mean alone where there is no SD.

    Example:
        >>> spread(0.5, 0.25, ".2f"), spread(0.5), spread(None)
        ('0.50 ± 0.25', '0.500', '')
    """
    if mean is None:
        return ""
    return f"{mean:{form}}" if sd is None else f"{mean:{form}} ± {sd:{sd_form or form}}"


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

    @classmethod
    def of(
        cls,
        values: Sequence[float] | NDArray[np.floating],
        method: str,
        metric: str,
        *,
        preset: str | None = None,
        case: str | None = None,
        column: str | None = None,
        paper: Quoted | None = None,
    ) -> Row:
        """Mean, standard deviation (with n − 1; none of a single value) and number of values.

        Example:
            >>> Row.of([1.0, 3.0], "ours", "AUROC").sd
            1.4142135623730951
        """
        import numpy as np  # not at the top: `nrf --help` knows rows, too

        sd = float(np.std(values, ddof=1)) if len(values) > 1 else None
        return cls(method, metric, float(np.mean(values)), sd, len(values), preset, case, column, *(paper or ()))

    def text(self, form: str = ".3f", sd_form: str | None = None) -> str:
        """Mean ± SD, formatted by :func:`spread`."""
        return spread(self.mean, self.sd, form, sd_form)

    def paper_text(self, form: str = ".3f", sd_form: str | None = None) -> str:
        """The same of the paper's number, empty where it has none."""
        return spread(self.paper, self.paper_sd, form, sd_form)

    def distance(self) -> float | None:
        """How many standard deviations ours lies above the paper's; None where one of them has none."""
        both = ((self.sd or 0.0) ** 2 + (self.paper_sd or 0.0) ** 2) ** 0.5
        return None if self.paper is None or self.quoted or both == 0 else (self.mean - self.paper) / both


@dataclass(frozen=True)
class Record:
    """All rows of an experiment and what it takes to get them again."""

    experiment: str
    command: str
    commit: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    seeds: Sequence[int] = ()
    wall_seconds: float = 0.0
    rows: Sequence[Row] = ()

    def write(self, path: Path | str) -> None:
        """Write as JSON, atomically."""
        write_atomically(Path(path), (json.dumps(asdict(self), indent=1, allow_nan=False) + "\n").encode())

    def beside(self, path: Path) -> Record:
        """This record with the rows that an earlier one has of methods and settings that are not in this one.

        Their commits are named, too; the seconds are those of this record alone.
        """
        if not path.exists():
            return self
        earlier, mine = Record.read(path), {(row.method, row.preset) for row in self.rows}
        kept = [row for row in earlier.rows if (row.method, row.preset) not in mine]
        if not kept:
            return self
        commits = {name for record in (earlier, self) for name in (record.commit or "").split(", ") if name}
        return replace(self, commit=", ".join(sorted(commits)), rows=[*self.rows, *kept])

    @classmethod
    def read(cls, path: Path | str) -> Record:
        """Read and check."""
        try:
            content = json.loads(Path(path).read_text())
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(f"{path}: cannot be read as a record: {error}") from error
        return parse(content, str(path))


def parse(content: Any, where: str) -> Record:
    """Check the form of a record; what is wrong is named.

    A field that is missing, because the record is older than it, has its default; one that is unknown is an error.
    """
    values = _checked(Record, content, where)
    rows = [Row(**_checked(Row, row, f"{where}: row {i}")) for i, row in enumerate(values.get("rows", ()), 1)]
    return Record(**{**values, "rows": rows})


def _checked(kind: type, content: Any, where: str) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise InputError(f"{where}: not an object with named fields")
    known = fields(kind)
    needed = {f.name for f in known if f.default is MISSING and f.default_factory is MISSING}
    missing, unknown = sorted(needed - set(content)), sorted(set(content) - {f.name for f in known})
    if missing or unknown:
        raise InputError(f"{where}: fields missing {missing}, unknown {unknown}")
    for name, value in content.items():
        wanted = _KINDS[kind.__name__][name]
        numeric_bool = isinstance(value, bool) and wanted is not bool
        if not isinstance(value, wanted) or numeric_bool:
            raise InputError(f"{where}: {name} is {value!r}")
    return content


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


# ------------------------------------------------------------------------------------------------- which code it was


def commit(package: Path | None = None) -> str | None:
    """The commit of the checkout this package is run from, with ``+`` if it was changed; None outside of one.

    Args:
        package: Folder of the package, for a look at another one.
    """
    folder = _package() if package is None else package
    try:
        _git(folder, "ls-files", "--error-unmatch", ".")  # an error where git has none of its files
        changed = "+" if _git(folder, "status", "--porcelain", ".") else ""
        return _git(folder, "rev-parse", "--short=12", "HEAD") + changed
    except (OSError, subprocess.CalledProcessError):
        return None


def kept_with_code(place: Path, package: Path | None = None) -> bool:
    """Whether a folder lies in the checkout this package is run from and is not ignored by git."""
    folder = _package() if package is None else package
    if commit(folder) is None:
        return False
    root, target = Path(_git(folder, "rev-parse", "--show-toplevel")).resolve(), place.resolve()
    if not target.is_relative_to(root):
        return False
    ignored = subprocess.run(["git", "check-ignore", "-q", str(target / "x")], cwd=folder, capture_output=True)
    return ignored.returncode != 0


def require_clean(place: Path, option: str, package: Path | None = None) -> None:
    """A folder that git keeps with the code gets no number of code that git does not have.

    Args:
        place: The folder that is to be written to.
        option: Which option names the folder.
        package: Folder of the package, for a look at another one.
    """
    if (commit(package) or "").endswith("+") and kept_with_code(place, package):
        raise InputError(
            f"the code has changes that are not committed, and {place} is kept with the code: nobody could tell what "
            f"made these numbers. Commit the changes first, or write elsewhere: {option} runs/results"
        )


def _package() -> Path:
    return Path(nrf.__file__).parent


def _git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()
