"""A search for a detector's settings without labels: keep the candidate that detects synthetic anomalies best.

Synthetic anomalies differ from real ones, and have chosen wrongly before (docs/scale.md): the result is a hint, not
proof.
"""

from __future__ import annotations

import csv
import io
import json
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from nrf.detect.detector import NRFDetector
from nrf.detect.selection import synthetic_auroc
from nrf.detect.settings import Training
from nrf.detect.storage import is_free
from nrf.detect.tables.frame import in_common_form, taken
from nrf.detect.windows import Windows
from nrf.errors import InputError
from nrf.files import require_folder, write_atomically
from nrf.processes import ray_cluster

Engine = Literal["local", "ray"]
Parameters = dict[str, Any]
TRIALS, BEST, MODEL = "trials.csv", "best.json", "model"
HELD_OUT = 0.3
"""Share of the rows that candidates are compared on."""
SPACE: Mapping[str, Sequence[Any]] = {
    "field": ("product", "density"),
    "scaling": ("auto", "quartiles", "deviation"),
    "n_estimators": (1, 3),
    "max_iter": (None, 300),
    "training__learning_rate": (None, 0.001, 0.02),
}
"""The values that each parameter may have; the first one is the default. Settings of training matter only where a
network is trained."""


@dataclass(frozen=True)
class Trial:
    """One candidate."""

    number: int
    parameters: Parameters
    auroc: float
    """AUROC of held-out rows against synthetic anomalies."""
    seconds: float


@dataclass(frozen=True)
class Search:
    """The result of a search."""

    trials: tuple[Trial, ...]
    """The trials in the order of their numbers, without those for which there was no time."""
    best: Trial
    detector: NRFDetector
    """The detector with the best parameters, fitted to all rows."""


OnTrial = Callable[[Trial], object]


def candidates(
    count: int, seed: int = 0, space: Mapping[str, Sequence[Any]] = SPACE, base: Parameters | None = None
) -> list[Parameters]:
    """Different points of a space: the defaults, then others drawn at random, at most as many as there are.

    Args:
        count: Number of candidates.
        seed: Seed of the draw.
        space: The values that each parameter may have, the default first.
        base: Parameters that all of them have.
    """
    if count < 1:
        raise InputError(f"there must be at least one trial, got {count}")
    sizes = [len(values) for values in space.values()]
    if not sizes or not all(sizes):
        raise InputError("each parameter of the space needs at least one value")
    rng = np.random.default_rng(seed)
    rest = 1 + rng.permutation(math.prod(sizes) - 1)
    found: dict[str, Parameters] = {}
    for place in (0, *rest.tolist()):
        point = {name: values[i] for (name, values), i in zip(space.items(), _unravel(place, sizes), strict=True)}
        whole = {**(base or {}), **{name: value for name, value in point.items() if value is not None}}
        if not whole.get("max_iter") and whole.get("field") != "inclusive":  # no network, so no training settings
            whole = {k: v for k, v in whole.items() if k not in space or not k.startswith("training__")}
        found.setdefault(repr(whole), whole)
        if len(found) == count:
            break
    return list(found.values())


def _unravel(place: int, sizes: Sequence[int]) -> list[int]:
    found = []
    for size in reversed(sizes):
        place, i = divmod(place, size)
        found.append(i)
    return found[::-1]


def make_detector(parameters: Parameters, seed: int) -> NRFDetector:
    """An unfitted detector; ``training__sigma`` is the setting ``sigma`` of its training."""
    settings = {name.removeprefix("training__"): v for name, v in parameters.items() if name.startswith("training__")}
    plain = {name: value for name, value in parameters.items() if not name.startswith("training__")}
    return NRFDetector(**plain, training=Training(**settings) if settings else None, random_state=seed, verbose=0)


def tune(
    X: Any,
    *,
    trials: int = 12,
    seed: int = 0,
    seconds: float | None = None,
    engine: Engine = "local",
    space: Mapping[str, Sequence[Any]] = SPACE,
    base: Parameters | None = None,
    on_trial: OnTrial | None = None,
) -> Search:
    """Compare candidates by :func:`nrf.detect.selection.synthetic_auroc` and fit the best one to all rows.

    All are fitted to the same 70 % of the rows with the same seed, and meet the same synthetic anomalies, made from the
    other 30 %. So the engine changes nothing but the time. Of equally good candidates the first is taken, and the first
    candidate has the defaults.

    Args:
        X: Normal rows: a table or an array.
        trials: Maximum number of candidates.
        seed: Seed of candidates, split, fits and anomalies.
        seconds: Time limit for the trials, if any: no trial starts later. With Ray, running trials are stopped.
        engine: ``local``, one after the other in this process, or ``ray``, with Ray Tune: on the cluster that
            ``RAY_ADDRESS`` names, else on the cores of this machine.
        space: The values that each parameter may have, the default first.
        base: Parameters that all candidates have.
        on_trial: Called with each trial when it is done; with Ray, when all are done.
    """
    if engine not in get_args(Engine):
        raise InputError(f"engine must be 'local' or 'ray', got {engine!r}")
    if seconds is not None and not seconds > 0:
        raise InputError(f"the time for the trials must be above 0, got {seconds}")
    X = in_common_form(X)
    X = np.asarray(X) if isinstance(X, list | tuple) else X
    if len(X) < 20:
        raise InputError(f"a search needs at least 20 rows, got {len(X)}")
    points = candidates(trials, seed, space, base)
    for point in points:
        make_detector(point, seed)  # unknown names are found here
        if isinstance(point.get("features"), Windows):
            raise InputError("candidates are compared on rows drawn at random, which breaks a series: no windows here")
    order = np.random.RandomState(seed).permutation(len(X))
    n_held = round(HELD_OUT * len(X))
    parts = taken(X, np.sort(order[n_held:])), taken(X, np.sort(order[:n_held]))
    run = _by_ray if engine == "ray" else _locally
    done = []
    for trial in run(points, parts, seed, seconds):
        done.append(trial)
        if on_trial is not None:
            on_trial(trial)
    if not done:
        raise InputError(f"no trial was done within {seconds:g} seconds; give more time, or fewer rows")
    done.sort(key=lambda trial: trial.number)
    best = max(done, key=lambda trial: trial.auroc)  # the first of equal ones
    return Search(tuple(done), best, make_detector(best.parameters, seed).fit(X))


@dataclass(frozen=True)
class _AsWhole:
    """A detector for which synthetic anomalies are made in the user's columns, not in encoded ones, so that candidates
    of different scaling meet the same anomalies."""

    detector: NRFDetector

    def score_samples(self, X: Any) -> Any:
        return self.detector.score_samples(X)


def _tried(number: int, parameters: Parameters, parts: tuple[Any, Any], seed: int) -> Trial:
    started = time.perf_counter()
    train, held = parts
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about columns and thresholds: the last fit repeats them
        detector = make_detector(parameters, seed).fit(train)
        found = synthetic_auroc(_AsWhole(detector), held, seed=seed)
    return Trial(number, parameters, found, time.perf_counter() - started)


def _locally(points: Sequence[Parameters], parts: tuple[Any, Any], seed: int, seconds: float | None) -> Iterator[Trial]:
    started = time.monotonic()
    for number, point in enumerate(points):
        if seconds is not None and number and time.monotonic() - started >= seconds:
            return
        yield _tried(number, point, parts, seed)


def _by_ray(points: Sequence[Parameters], parts: tuple[Any, Any], seed: int, seconds: float | None) -> Iterator[Trial]:
    """A trial of Ray Tune for each candidate."""
    import tempfile

    with ray_cluster(), tempfile.TemporaryDirectory() as folder:
        from ray import tune as ray_tune
        from ray.tune import RunConfig, TuneConfig

        trainable = ray_tune.with_parameters(_ray_trial, points=list(points), parts=parts, seed=seed)
        results = ray_tune.Tuner(
            trainable,
            param_space={"number": ray_tune.grid_search(list(range(len(points))))},
            tune_config=TuneConfig(metric="auroc", mode="max", time_budget_s=seconds),
            run_config=RunConfig(storage_path=folder, verbose=0),
        ).fit()
        for result in map(results.__getitem__, range(len(results))):
            if result.error is not None:
                raise InputError(f"a trial failed: {str(result.error).strip().splitlines()[-1]}")
            if result.metrics and "auroc" in result.metrics:
                number = int(result.metrics["number"])
                yield Trial(number, points[number], float(result.metrics["auroc"]), float(result.metrics["seconds"]))


def _ray_trial(
    config: dict[str, int], points: Sequence[Parameters], parts: tuple[Any, Any], seed: int
) -> dict[str, float]:
    import torch

    torch.set_num_threads(1)
    number = config["number"]
    trial = _tried(number, points[number], parts, seed)
    return {"number": number, "auroc": trial.auroc, "seconds": trial.seconds}


# ---------------------------------------------------------------------------------------------------------- the folder


def require_free(folder: str | Path) -> None:
    """Raise before the work if the results of a search cannot be written there."""
    folder = Path(folder)
    require_folder(folder)
    known = {TRIALS, BEST, MODEL}
    if folder.is_dir():
        others = sorted(path.name for path in folder.iterdir() if path.name not in known and path.name[0] != ".")
        if others or not is_free(folder / MODEL):
            raise InputError(f"{folder} holds {others[0] if others else MODEL}, which no search wrote; choose another")


def write_search(search: Search, folder: str | Path) -> None:
    """Write the table of trials, the best parameters, and the fitted detector."""
    folder = Path(folder)
    require_free(folder)
    folder.mkdir(parents=True, exist_ok=True)
    search.detector.save(folder / MODEL)
    names = list(dict.fromkeys(name for trial in search.trials for name in trial.parameters))
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["trial", *names, "auroc", "seconds"])
    for trial in search.trials:
        values = [_written(trial.parameters.get(name)) for name in names]
        table.writerow([trial.number, *values, f"{trial.auroc:.6f}", f"{trial.seconds:.2f}"])
    write_atomically(folder / TRIALS, text.getvalue().encode())
    best = {"trial": search.best.number, "auroc": search.best.auroc, "parameters": search.best.parameters}
    write_atomically(folder / BEST, (json.dumps(best, indent=1) + "\n").encode())


def _written(value: Any) -> str:
    return "" if value is None else str(value)
