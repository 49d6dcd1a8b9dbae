"""What the detector's default field costs: CPU-seconds of fits, rows scored per second, memory of a streamed file.

    python benchmarks/detector_speed.py                    # prints
    python benchmarks/detector_speed.py --results results  # and writes results/detector-speed.json, of committed code
    python benchmarks/detector_speed.py --streaming        # memory of a streamed file alone; the record keeps the rest

Each fit is the first of a process of its own, with one thread. CPU-seconds hardly depend on what else the machine
does; rows per second on two threads do, so they want a machine that is otherwise idle. About three minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from nrf.reproduce.runner.record import Row
from speed.detection import PEAK
from speed.record import make_record, require_committed, write_beside

FITS = ((200, 10), (1000, 20), (10_000, 120), (1_000_000, 120))
SCORED, COLUMNS = 400_000, 120
STREAMED = (200_000, 800_000)

FIT = """
import json, sys, time
import numpy as np
from nrf import NRFDetector
from nrf.metrics import auroc
from speed.detection import rows_of, shuffled
n, columns = map(int, sys.argv[1:])
rows = rows_of(n, columns)
began, wall = time.process_time(), time.perf_counter()
detector = NRFDetector(random_state=0).fit(rows)
found = {"CPU-seconds to fit": time.process_time() - began, "seconds to fit": time.perf_counter() - wall}
normal = rows_of(5000, columns, seed=2)
scores = detector.score_samples(np.concatenate([normal, shuffled(normal)]))
print(json.dumps(found | {"AUROC": auroc(scores, np.repeat([0, 1], 5000))}))
"""

SCORE = """
import json, sys, time
import torch
from nrf import NRFDetector
from speed.detection import rows_of
field, n, columns = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
detector, rows = NRFDetector(field=field, random_state=0).fit(rows_of(10_000, columns)), rows_of(n, columns, seed=3)
detector.score_samples(rows[:10_000])
rates = []
for _ in range(3):
    cpu, wall = time.process_time(), time.perf_counter()
    detector.score_samples(rows)
    rates.append((n / (time.process_time() - cpu), n / (time.perf_counter() - wall)))
print(json.dumps({"cpu": max(r[0] for r in rates), "wall": max(r[1] for r in rates)}))
"""

WRITE = """
import sys
import pyarrow as pa
from pyarrow import csv
from nrf import NRFDetector
from speed.detection import rows_of
folder, columns = sys.argv[1], int(sys.argv[2])
names = [f"x{i}" for i in range(columns)]
table = lambda n, seed: pa.table({name: column for name, column in zip(names, rows_of(n, columns, seed).T.copy())})
NRFDetector(random_state=0).fit(table(10_000, 0)).save(f"{folder}/model")
for n in map(int, sys.argv[3:]):
    with csv.CSVWriter(f"{folder}/{n}.csv", table(1, 0).schema) as file:
        for start in range(0, n, 100_000):
            file.write_table(table(min(100_000, n - start), 10 + start))
"""


def fits(sizes: tuple[tuple[int, int], ...]) -> Iterator[Row]:
    """CPU-seconds of the first fit of a process, and the AUROC on columns that depend on each other."""
    for n, columns in sizes:
        case = f"{n:,} rows, {columns} columns"
        for metric, value in _python(FIT, str(n), str(columns)).items():
            yield Row("NRFDetector", metric, value, case=case)


def scoring(n: int, columns: int) -> Iterator[Row]:
    """Rows scored per CPU-second of one thread, and per second on two."""
    for field in ("product", "density"):
        case = f"field={field}, {columns} columns"
        one, two = (_python(SCORE, field, str(n), str(columns), threads=threads) for threads in (1, 2))
        yield Row("NRFDetector", "rows scored per CPU-second, one thread", one["cpu"], case=case)
        yield Row("NRFDetector", "rows scored per second, two threads", two["wall"], case=case)


def streaming(lengths: tuple[int, ...], columns: int) -> Iterator[Row]:
    """Peak of memory of `nrf detect score` on CSV files of some lengths."""
    with tempfile.TemporaryDirectory() as folder:
        _run(WRITE, folder, str(columns), *map(str, lengths))
        for n in lengths:
            command = [sys.executable, "-m", "nrf", "detect", "score", f"{folder}/model", f"{folder}/{n}.csv"]
            peak = int(_run(PEAK, *command, "--out", f"{folder}/scores.csv"))
            yield Row("nrf detect score", "MB at the peak", peak * 1024 / 1e6, case=f"{n:,} rows, {columns} columns")


def _python(program: str, *arguments: str, threads: int = 1) -> dict[str, float]:
    found: dict[str, float] = json.loads(_run(program, *arguments, threads=threads).splitlines()[-1])
    return found


def _run(program: str, *arguments: str, threads: int = 1) -> str:
    here = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    env = os.environ | {"OMP_NUM_THREADS": str(threads), "PYTHONPATH": here}
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, help="folder for detector-speed.json")
    parser.add_argument("--streaming", action="store_true", help="measure the memory of a streamed file alone")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything works; no record")
    options = parser.parse_args()
    results = None if options.quick else options.results
    require_committed(results)
    began, rows = time.time(), []
    sections = (
        [fits(FITS[:1]), scoring(2000, 5), streaming((1000,), 5)]
        if options.quick
        else [fits(FITS), scoring(SCORED, COLUMNS), streaming(STREAMED, COLUMNS)]
    )
    for section in sections[-1:] if options.streaming else sections:
        for row in section:
            rows.append(row)
            print(f"{row.method:18} {row.case:32} {row.metric:42} {row.mean:,.3f}", flush=True)
    if results is not None:
        command = f"python benchmarks/detector_speed.py{' --streaming' if options.streaming else ''} --results results"
        write_beside(results, make_record("detector-speed", command, rows, began))
    return 0


if __name__ == "__main__":
    sys.exit(main())
