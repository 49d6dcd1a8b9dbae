"""Score a long CSV file with `nrf detect score` and measure memory and speed.

    python benchmarks/stream_memory.py --rows 5000000

Writes a file of that many rows in a temporary folder, fits a small detector to other rows of the same kind, and scores
first a thousand rows, then the whole file, in processes of their own. Exits 0 if the peak of resident memory stays
below the limit and all rows are in the output.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from nrf.detect import NRFDetector

CHUNK = 250_000
MIX = np.random.default_rng(0).normal(size=(2, 5))
CITIES = np.array([f"city-{i:02}" for i in range(20)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows of the file")
    parser.add_argument("--limit", type=float, default=1500, help="most memory that may be used, in MB")
    parser.add_argument("--fdr", type=float, help="flag by false discovery rate, which takes a second pass")
    parser.add_argument("--format", choices=("csv", "parquet"), default="csv", help="form of the file")
    parser.add_argument("--folder", type=Path, help="where to make the temporary folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        return measure(Path(folder), options)


def measure(folder: Path, options: argparse.Namespace) -> int:
    model = folder / "model"
    NRFDetector(max_iter=200, random_state=0).fit(rows(20_000, seed=1)).save(model)
    small, big = (folder / f"{name}.{options.format}" for name in ("small", "big"))
    write(small, 1000)
    write(big, options.rows)
    print(f"{options.rows} rows, {big.stat().st_size / 1e6:.0f} MB as {options.format}")
    base_seconds, base = score(model, small, options)
    print(f"1000 rows: {base_seconds:.1f} s, peak {base:.0f} MB (Python, torch, Arrow)")
    seconds, peak = score(model, big, options)
    rate = options.rows / max(seconds - base_seconds, 1e-9)
    print(f"all rows: {seconds:.1f} s, {rate:.0f} rows/s without the start, peak {peak:.0f} MB ({peak - base:+.0f} MB)")
    written = lines_of(big.with_suffix(".scores.csv")) - 1
    if written != options.rows:
        print(f"{written} rows in the output")
        return 1
    return 0 if peak < options.limit else 1


def rows(n: int, seed: int) -> pa.Table:
    """Numbers that go with each other, whole numbers, and a city that goes with them."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 2))
    mixed = z @ MIX + 0.3 * rng.normal(size=(n, 5))
    columns: dict[str, object] = {f"x{i}": mixed[:, i].round(5) for i in range(5)}
    columns["count"] = rng.poisson(np.exp(1 + 0.5 * z[:, 0]))
    columns["city"] = CITIES[np.clip((3 * z[:, 1] + 10).astype(int), 0, len(CITIES) - 1)]
    return pa.table(columns)


def write(path: Path, n: int) -> None:
    schema = rows(1, seed=0).schema
    make = csv.CSVWriter if path.suffix == ".csv" else parquet.ParquetWriter
    with make(path, schema) as writer:
        for start in range(0, n, CHUNK):
            writer.write_table(rows(min(CHUNK, n - start), seed=start + 2))


def score(model: Path, source: Path, options: argparse.Namespace) -> tuple[float, float]:
    """Seconds and the peak of memory in MB, which is that of the largest process so far."""
    out = source.with_suffix(".scores.csv")
    command = [sys.executable, "-m", "nrf", "detect", "score", str(model), str(source), "--out", str(out)]
    if options.fdr is not None:
        command += ["--fdr", str(options.fdr)]
    started = time.perf_counter()
    print(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip())
    seconds = time.perf_counter() - started
    unit = 1 if sys.platform == "darwin" else 1024
    return seconds, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * unit / 1e6


def lines_of(path: Path) -> int:
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


if __name__ == "__main__":
    sys.exit(main())
