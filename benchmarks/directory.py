"""Score a directory of Parquet files with `nrf detect score`, and measure memory over time and speed.

    python benchmarks/directory.py --files 20 --rows 1000000                  # 20 million rows, eight float32 columns
    python benchmarks/directory.py --files 4 --rows 100000 --field product    # the default field
    python benchmarks/directory.py --files 4 --rows 100000 --engine ray
    python benchmarks/directory.py --results results                          # and writes results/directory.json

The files lie in a temporary folder (--folder says where) and go with it. Memory is the resident memory of the command
and its children, looked at every half second: the peak of each tenth of the run is printed. Exits 0 if all rows were
scored and the last tenth took no more than a given amount above the second (--grows, in MB). A record is of committed
code, and keeps what was measured with other fields and engines.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from nrf.detect import NRFDetector
from nrf.reproduce.runner.record import Row
from speed.record import make_record, require_committed, write_beside

COLUMNS = 8
GROUP_ROWS = 100_000
MIX = np.random.default_rng(0).normal(size=(3, COLUMNS))


def rows(n: int, seed: int) -> pa.Table:
    """Eight columns that depend on each other."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 3)) @ MIX + 0.3 * rng.normal(size=(n, COLUMNS))
    return pa.table({f"x{i}": z[:, i].astype(np.float32) for i in range(COLUMNS)})


def write(folder: Path, files: int, n: int) -> int:
    """The directory; its size in bytes."""
    folder.mkdir()
    for i in range(files):
        with parquet.ParquetWriter(folder / f"part-{i:03}.parquet", rows(1, 0).schema) as writer:
            for start in range(0, n, GROUP_ROWS):
                writer.write_table(rows(min(GROUP_ROWS, n - start), seed=1 + i * n + start))
    return sum(path.stat().st_size for path in folder.iterdir())


def resident(pid: int) -> float:
    """MB of a process and all that it started."""
    parents: dict[int, list[int]] = {}
    sizes: dict[int, float] = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            status = dict(line.split(":", 1) for line in (place / "status").read_text().splitlines() if ":" in line)
            parents.setdefault(int(status["PPid"]), []).append(int(place.name))
            sizes[int(place.name)] = int(status.get("VmRSS", "0 kB").split()[0]) / 1024
        except (OSError, ValueError, KeyError):  # it has ended
            continue
    total, todo = 0.0, [pid]
    while todo:
        one = todo.pop()
        total += sizes.get(one, 0.0)
        todo += parents.get(one, [])
    return total


def measured(command: list[str]) -> tuple[float, float, list[float]]:
    """Seconds, CPU-seconds and MB every half second of a command."""
    before, started, found = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter(), list[float]()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
    while process.poll() is None:
        found.append(resident(process.pid))
        time.sleep(0.5)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - started, cpu, found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=20)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of each file")
    parser.add_argument("--field", choices=("density", "product"), default="density")
    parser.add_argument("--engine", choices=("local", "ray"), default="local")
    parser.add_argument("--train", type=int, default=20_000, help="rows to fit to")
    parser.add_argument("--grows", type=float, default=50, help="MB that memory may grow by")
    parser.add_argument("--folder", type=Path, help="where to make the temporary folder")
    parser.add_argument("--results", type=Path, help="folder for directory.json")
    options = parser.parse_args()
    require_committed(options.results)
    began = time.time()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        detector = NRFDetector(field=options.field, random_state=0, verbose=0)
        detector.fit(rows(options.train, seed=0)).save(folder / "model")
        size = write(folder / "rows", options.files, options.rows)
        total = options.files * options.rows
        print(f"{total} rows in {options.files} files, {size / 1e6:.0f} MB; field {options.field}, {options.engine}")
        command = [sys.executable, "-m", "nrf", "detect", "score", *(str(folder / n) for n in ("model", "rows"))]
        seconds, cpu, memory = measured([*command, "--out", str(folder / "scores"), "--engine", options.engine])
        counts = json.loads((folder / "scores" / "manifest.json").read_text())["files"].values()
        tenths = [max(part) for part in np.array_split(memory, 10) if len(part)]
        print(
            f"{seconds:.0f} s, {cpu:.0f} s of CPU: {total / seconds:.0f} rows/s, {total / cpu:.0f} rows per CPU-second"
        )
        print(f"resident MB by tenths of the run: {' '.join(f'{mb:.0f}' for mb in tenths)}; peak {max(memory):.0f}")
        print(f"{sum(count['rows'] for count in counts)} scored, {sum(count['anomalies'] for count in counts)} flagged")
    if options.results is not None:
        numbers = {
            "files": options.files,
            "rows": total,
            "columns": COLUMNS,
            "training rows": options.train,
            "MB of files": size / 1e6,
            "seconds": seconds,
            "CPU-seconds": cpu,
            "rows scored": sum(count["rows"] for count in counts),
            "rows flagged": sum(count["anomalies"] for count in counts),
        }
        method = "nrf detect score" + (" --engine ray" if options.engine == "ray" else "")
        found = [Row(method, metric, float(value), preset=options.field) for metric, value in numbers.items()]
        found += [
            Row(method, "resident MB at most", float(mb), preset=options.field, case=f"part {i} of {len(tenths)}")
            for i, mb in enumerate(tenths, 1)
        ]
        settings = " ".join(
            f"--{name} {getattr(options, name)}" for name in ("files", "rows", "field", "engine", "train")
        )
        command_line = f"python benchmarks/directory.py {settings} --results results"
        write_beside(options.results, make_record("directory", command_line, found, began))
    whole = sum(count["rows"] for count in counts) == total
    return 0 if whole and (len(tenths) < 2 or tenths[-1] - tenths[1] <= options.grows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
