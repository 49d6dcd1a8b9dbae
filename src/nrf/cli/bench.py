"""`nrf bench`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

import nrf
from nrf.cli.parsing import say
from nrf.errors import InputError
from nrf.files import require_folder

if TYPE_CHECKING:
    from nrf.reproduce.runner.record import Row


def _speed() -> Any:
    """The benchmarks, which lie beside the package in a checkout of the source."""
    folder = Path(nrf.__file__).parents[2] / "benchmarks"
    if not (folder / "speed").is_dir():
        raise InputError("the benchmarks come with the source, not with the package: run `make bench` in a checkout")
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    return importlib.import_module("speed")


def bench(
    only: Annotated[tyro.conf.Positional[list[str]], tyro.conf.arg(metavar="SECTION")],
    /,
    *,
    quick: bool = False,
    results: Path = Path("results"),
) -> int:
    """Measure speed as ratios in one run: against the machine's arithmetic, a plain loop, and other packages.

    Example: nrf bench revision --quick

    Args:
        only: Sections to measure: machine, revision, iteration, parts, generation, samplers, scoring, growth,
            detectors; all if not given.
        quick: A very short run, to see that everything works; writes no record.
        results: Folder for bench.json, which a run of all sections writes.
    """
    run = _speed().bench
    if not (quick or only):
        require_folder(results)
    shown: list[str] = []

    def show(section: str, row: Row) -> None:
        if section not in shown:
            shown.append(section)
            say(f"\n{section}")
        value = f"{row.mean:,.3g}" if abs(row.mean) < 1000 else f"{row.mean:,.0f}"
        spread = "" if row.sd is None else f" ± {row.sd:.2g}"
        say(f"  {row.method + (f' ({row.case})' if row.case else ''):64} {value + spread:>16}  {row.metric}")

    record = run(only, None if quick or only else results, show, quick=quick)
    if not (quick or only):
        say(f"\nrecord: {results / 'bench.json'} ({record.wall_seconds:.0f} s)")
    return 0
