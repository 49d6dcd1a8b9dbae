"""`nrf detect score` of a directory of Parquet files."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Literal

from nrf.cli.parsing import Stopped, say
from nrf.cli.show import Percent, said_warnings


def score_folder(
    model: Path,
    data: Path,
    out: Path,
    engine: Literal["local", "ray"],
    drop: tuple[str, ...],
    ids: tuple[str, ...],
    device: str,
) -> int:
    """Score all files, and say how many rows there are and how many are flagged."""
    from nrf.detect.directory import score_directory

    started = time.perf_counter()
    try:
        with said_warnings(), Percent("scoring") as bar:
            found = score_directory(
                model, data, out, engine=engine, drop=drop, ids=ids or None, device=device, on_file=bar.reached
            )
    except KeyboardInterrupt as stop:
        raise Stopped(f"stopped; finished files are kept in {out}: the same command goes on from there") from stop
    seconds = time.perf_counter() - started
    say(f"{found.rows} rows in {found.files} files, {found.scored} of them scored now in {seconds:.1f} s: {out}")
    say(f"{found.anomalies} flagged")
    return 0
