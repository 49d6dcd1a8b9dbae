"""What training gives on four kinds of data: the table of docs/learners.md that tells one g from two.

    python benchmarks/one_generator.py gmm --preset gmm-paper --iterations 15000 --replicas 4
    python benchmarks/one_generator.py averages --iterations 4000
    python benchmarks/one_generator.py digits
    python benchmarks/one_generator.py kddcup --preset kddcup-sgld-released --epochs 3
    python benchmarks/one_generator.py tables --folder TABLES

It says nothing of how training is done, so that the sources of two versions can be compared: put those of the other
one first on the path, `PYTHONPATH=other/src python benchmarks/one_generator.py …`. Labels are read to report only.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from nrf.data import gmm
from nrf.detect import NRFDetector
from nrf.metrics import auroc, mode_coverage
from nrf.reproduce.gmm.cells import field_numbers
from nrf.reproduce.kddcup.cells import load, train_on
from nrf.runs.presets import PRESETS
from nrf.runs.spec import load_splits
from nrf.runs.train import train
from nrf.runs.trained import TrainedModel

DRAW = 100
Numbers = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("gmm", "averages", "digits", "kddcup", "tables"))
    parser.add_argument("--preset", help="of gmm and kddcup")
    parser.add_argument("--iterations", type=int, default=15_000, help="gmm: length of the run")
    parser.add_argument("--replicas", type=int, default=4, help="gmm: models; digits and tables: seeds")
    parser.add_argument("--epochs", type=int, default=3, help="kddcup: length of the runs")
    parser.add_argument("--folder", type=Path, help="tables: folder with NAME.npz of X and y")
    parser.add_argument("--tables", nargs="+", default=["glass", "vowels", "Pima", "letter"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    makers = {"gmm": _gmm, "averages": _averages, "digits": _digits, "kddcup": _kddcup, "tables": _tables}
    for case, models in makers[options.what](options):
        for name in models[0]:
            values = [model[name] for model in models]
            spread = np.std(values, ddof=1) if len(values) > 1 else 0.0
            print(f"{case:28} {name:42} {np.mean(values):10.3f} ± {spread:.3f}", flush=True)


def _gmm(options: argparse.Namespace) -> Iterator[tuple[str, list[Numbers]]]:
    options.preset = options.preset or "gmm-paper"
    preset = PRESETS[options.preset]
    preset = replace(
        preset, replicas=options.replicas, train=replace(preset.train, iterations=options.iterations, keep=1)
    )
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        seconds = train("one-g", preset, out, quiet=True).seconds
        for averaged in (False, True)[: 1 + (preset.train.ema_decay is not None)]:
            models = [TrainedModel.load(out, averaged=averaged, replica=i) for i in range(options.replicas)]
            weights = "averaged weights" if averaged else "last weights"
            yield f"{options.preset}, {weights}", [_of_mixture(model) for model in models]
    print(f"{seconds:.0f} s of training")


def _averages(options: argparse.Namespace) -> Iterator[tuple[str, list[Numbers]]]:
    """Averaged weights with statistics of their own, and with those of the last weights."""
    preset, every = PRESETS["gmm-short"], options.iterations // 4
    length = replace(preset.train, iterations=options.iterations, checkpoint_every=every, keep=4)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        train("one-g", replace(preset, replicas=options.replicas, train=length), out, quiet=True)
        for step in range(every, options.iterations + 1, every):
            found: dict[str, list[Numbers]] = {"last weights": [], "averaged": [], "averaged, last statistics": []}
            for i in range(options.replicas):
                last, own, borrowed = (
                    TrainedModel.load(out, averaged=averaged, step=step, replica=i) for averaged in (False, True, True)
                )
                for mine, other in zip(borrowed.generator.buffers(), last.generator.buffers(), strict=True):
                    mine.copy_(other)
                for models, model in zip(found.values(), (last, own, borrowed), strict=True):
                    models.append(_of_samples(model, "generation", revise=False))
            for weights, models in found.items():
                yield f"{step}, {weights}", models


def _of_samples(model: TrainedModel, kind: str, *, revise: bool) -> Numbers:
    samples = torch.from_numpy(model.sample(100 * DRAW, revise=revise)[0])
    modes, realistic = mode_coverage(samples, torch.from_numpy(gmm.means()).float(), gmm.SIGMA, DRAW)
    return {f"{kind}: modes": modes, f"{kind}: realistic": realistic}


def _of_mixture(model: TrainedModel) -> Numbers:
    found = _of_samples(model, "generation", revise=False) | _of_samples(model, "revision", revise=True)
    field = field_numbers(model, 400)
    return found | {k: v for k, v in field.items() if k.startswith("log-likelihood")}


def _digits(options: argparse.Namespace) -> Iterator[tuple[str, list[Numbers]]]:
    """As the demo has it: a model for each digit, averaged weights."""
    models: list[Numbers] = []
    for seed in range(options.replicas):
        found = []
        for digit in range(10):
            preset = replace(PRESETS["digits"], seed=seed)
            preset = replace(preset, data=replace(preset.data, normal=digit))
            splits = load_splits(preset.data)
            with tempfile.TemporaryDirectory() as folder:
                train("digits", preset, Path(folder) / "run", quiet=True, splits=splits)
                scores = TrainedModel.load(Path(folder) / "run", averaged=True).score_samples(splits.test)
            found.append(auroc(scores, splits.test_labels))
        models.append({"AUROC, mean of ten digits": float(np.mean(found))})
    yield "digits, averaged weights", models


def _kddcup(options: argparse.Namespace) -> Iterator[tuple[str, list[Numbers]]]:
    options.preset = options.preset or "kddcup-sgld-released"
    base = PRESETS[options.preset]
    curves = []
    for seed in (0, 1):
        preset = replace(base, seed=seed, train=replace(base.train, epochs=options.epochs, watch_share=0.025))
        with tempfile.TemporaryDirectory() as folder:
            curves.append(train_on(preset, load(seed), Path(folder) / "run"))
    for epoch in range(options.epochs):
        points = [curve[epoch] for curve in curves]
        kept = ("last weights: AUROC", "last weights: F1", "generator_loss", "revision_distance")
        yield f"{options.preset}, epoch {epoch + 1}", [{k: p[k] for k in kept if k in p} for p in points]


def _tables(options: argparse.Namespace) -> Iterator[tuple[str, list[Numbers]]]:
    for name in options.tables:
        with np.load(options.folder / f"{name}.npz") as file:
            x, y = file["X"], file["y"]
        models, started = [], time.perf_counter()
        for seed in range(options.replicas):
            normal = np.random.default_rng(seed).permutation(np.flatnonzero(y == 0))
            trained, kept = np.array_split(normal, 2)
            tested = np.concatenate([kept, np.flatnonzero(y == 1)])
            detector = NRFDetector(random_state=seed, verbose=0).fit(x[trained])
            models.append({"AUROC": auroc(detector.score_samples(x[tested]), y[tested])})
        yield f"{name} ({time.perf_counter() - started:.0f} s)", models


if __name__ == "__main__":
    main()
