"""The detector against what people would use instead, by rows; and of an inclusive field how it grows and scores."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.detect import NRFDetector, Training
from nrf.errors import InputError
from nrf.reproduce.baselines import find_baseline, shortened
from nrf.reproduce.detectors.cells import measure
from nrf.reproduce.detectors.sets import Task
from nrf.reproduce.runner.record import Row
from speed.timing import QUICK, Block, Effort, in_turn

Floats = NDArray[np.float32]

COLUMNS = 120
FACTORS = 12
SIZES = (10_000, 100_000, 1_000_000)
TEST_ROWS = 5000
WIDTHS = ((128, 64), (256, 128))
"""Of the networks of an inclusive field that are scored with: its default for more than 100,000 rows, and for fewer."""
LONGEST = 240.0
"""Seconds that a fit may be expected to take; what would take longer, by its time for fewer rows, is left out."""
PEERS = ("NRF", "Deep SVDD", "autoencoder", "ALAD (PyOD)", "isolation forest", "one-class SVM")
GROWS = {"one-class SVM": 2.0}
"""Power of the rows that time grows with, where it is not 1."""

PEAK = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
"""Runs a command and prints its peak. In a process of its own: one that this process started would count what it held
itself at that moment."""


def rows_of(n: int, columns: int = COLUMNS, seed: int = 0) -> Floats:
    """Columns that depend on a few common factors, bent."""
    rng = np.random.default_rng(seed)
    mix = np.random.default_rng(99).normal(size=(FACTORS, columns)).astype(np.float32)
    found = np.tanh(rng.standard_normal((n, FACTORS), dtype=np.float32) @ mix / 2)
    found += 0.3 * rng.standard_normal((n, columns), dtype=np.float32)
    return found


def shuffled(rows: Floats, seed: int = 1) -> Floats:
    """Anomalies: a quarter of the columns taken from other rows."""
    rng, found = np.random.default_rng(seed), rows.copy()
    for column in rng.choice(rows.shape[1], rows.shape[1] // 4, replace=False):
        found[:, column] = rows[rng.permutation(len(rows)), column]
    return found


def detectors(effort: Effort) -> Iterator[Row]:
    """Time to fit and to score, and AUROC, of each method at its defaults."""
    sizes = (200, 400) if effort is QUICK else SIZES
    normal = rows_of(min(TEST_ROWS, sizes[0]), seed=2)
    spent: dict[str, tuple[int, float]] = {}
    for size in sizes:
        task = Task("factors", rows_of(size), normal, shuffled(normal))
        for name in PEERS:
            if name in spent:
                before, seconds = spent[name]
                if seconds * (size / before) ** GROWS.get(name, 1.0) > LONGEST:
                    continue
            system = find_baseline(name)
            found = measure(shortened(system) if effort is QUICK else system, task, 0)
            spent[name] = size, found["fit_seconds"]
            case = f"{size:,} rows"
            yield Row(name, "seconds to fit", found["fit_seconds"], case=case)
            rate = len(task.labels) / max(found["score_seconds"], 1e-9)
            yield Row(name, "rows scored a second", rate, case=case)
            yield Row(name, "AUROC", found["auroc"], case=case)


def scoring(effort: Effort) -> Iterator[Row]:
    """Rows a second of a large array, by torch and by ONNX runtime where it is there."""
    n = 2000 if effort is QUICK else 1_000_000
    rows = rows_of(n, seed=3)
    for widths in WIDTHS:
        detector = _fitted(COLUMNS, training=Training(widths=widths))
        blocks: dict[str, Block] = {"score_samples": partial(detector.score_samples, rows)}
        with tempfile.TemporaryDirectory() as folder:
            session = _onnx_session(detector, Path(folder) / "detector.onnx")
            if session is not None:
                blocks["ONNX runtime"] = partial(session, rows)
            times = in_turn(blocks, effort)
        case = f"{n:,} rows, {COLUMNS} columns, networks {'-'.join(map(str, widths))}"
        for name in blocks:
            yield Row(name, "million rows a second", n / times.seconds(name) / 1e6, case=case)
        if len(blocks) > 1:
            faster, sd = times.ratio("ONNX runtime", "score_samples"), times.spread("ONNX runtime", "score_samples")
            yield Row("score_samples", "times faster than ONNX runtime", faster, sd, times.n, case=case)


def _fitted(columns: int, **settings: Any) -> NRFDetector:
    chosen: dict[str, Any] = {"field": "inclusive", "max_iter": 20, "random_state": 0} | settings
    return NRFDetector(**chosen).fit(rows_of(5000, columns))


def _onnx_session(detector: NRFDetector, path: Path) -> Callable[[Floats], object] | None:
    try:
        import onnx  # noqa: F401
        import onnxruntime  # type: ignore[import-untyped]
    except ImportError:
        return None
    from nrf.detect.onnx import export_onnx

    export_onnx(detector, path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = os.cpu_count() or 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda rows: session.run(None, {name: rows})


def growth(effort: Effort) -> Iterator[Row]:
    """Powers by which time grows, fitted on a logarithmic scale, and memory when a file is streamed."""
    quick = effort is QUICK
    detector, most = _fitted(COLUMNS), 4000 if quick else 1_000_000
    sizes = [most // 8, most // 4, most // 2, most]
    everything = rows_of(most, seed=4)
    times = in_turn({str(n): lambda n=n: detector.score_samples(everything[:n]) for n in sizes}, effort)  # type: ignore[misc]
    yield Row("scoring", "power of time in rows", _power(sizes, [times.seconds(str(n)) for n in sizes]))
    columns = [30, 60, 120, 240]
    yield Row("fitting", "power of time in columns", _power(columns, [_fit_seconds(c, quick=quick) for c in columns]))
    lengths = [5, 10, 20, 40]
    seconds = [_fit_seconds(COLUMNS, quick=quick, training=Training(n_steps=n)) for n in lengths]
    yield Row("fitting", "power of time in steps of the revision", _power(lengths, seconds))
    with tempfile.TemporaryDirectory() as folder:
        detector.save(Path(folder) / "model")
        few, many = (1000, 4000) if quick else (400_000, 1_000_000)  # both of many batches
        peaks = [_streamed(Path(folder), everything, n) for n in (few, many)]
    for n, peak in zip((few, many), peaks, strict=True):
        yield Row("streaming a CSV file", "MB at the peak", peak, case=f"{n:,} rows")


def _power(sizes: list[int], seconds: list[float]) -> float:
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def _fit_seconds(columns: int, *, quick: bool, **settings: Any) -> float:
    rows = rows_of(300 if quick else 5000, columns)
    rounds, iterations = (1, 5) if quick else (3, 200)
    found = []
    for _ in range(rounds):
        started = time.perf_counter()
        NRFDetector(field="inclusive", random_state=0, max_iter=iterations, **settings).fit(rows)
        found.append(time.perf_counter() - started)
    return min(found)


def _streamed(folder: Path, rows: Floats, n: int) -> float:
    """Peak of memory, in MB, of a process that scores a file of so many rows."""
    source = folder / f"{n}.csv"
    header = ",".join(f"x{i}" for i in range(rows.shape[1]))
    with source.open("w") as file:
        file.write(header + "\n")
        for part in np.array_split(rows[:n], max(1, n // 10_000)):
            np.savetxt(file, part, fmt="%.4g", delimiter=",")
    command = [sys.executable, "-m", "nrf", "detect", "score", str(folder / "model"), str(source)]
    command += ["--out", str(folder / "scores.csv")]
    found = subprocess.run([sys.executable, "-c", PEAK, *command], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        raise InputError(f"scoring a file failed: {' '.join(command)}\n{found.stderr}")
    return int(found.stdout) * (1 if sys.platform == "darwin" else 1024) / 1e6
