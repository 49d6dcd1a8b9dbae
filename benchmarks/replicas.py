"""Ten replicas together against ten runs one after the other, and our iteration against a plain one.

    python benchmarks/replicas.py

All in one run, as ratios. "Plain" is the same algorithm as scripts have it: for each step of the revision,
autograd through the whole module with its weight norm, parameters' gradients included, one model at a time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace

import torch

from nrf.runs.presets import PRESETS
from nrf.runs.spec import Preset, load_splits
from nrf.seeds import streams
from nrf.training.batches import Batches
from speed.reference import plain_iteration


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="gmm-released", choices=[n for n in PRESETS if n.startswith("gmm")])
    parser.add_argument("--replicas", type=int, default=10)
    parser.add_argument("--iterations", type=int, default=200, help="iterations of each timed block")
    parser.add_argument("--rounds", type=int, default=5, help="timed blocks of each; the median counts")
    options = parser.parse_args()
    preset = PRESETS[options.preset]
    threads = torch.get_num_threads()
    together = replace(preset, replicas=options.replicas)
    blocks: dict[str, tuple[Callable[[int], None], int, int]] = {
        "plain, one model": (plain_iterations(preset), 1, 1),
        "one model": (iterations(preset, compiled=False), 1, 1),
        "one model, compiled": (iterations(preset, compiled=True), 1, 1),
        "replicas, 1 thread": (iterations(together, compiled=False), options.replicas, 1),
        "replicas, 1 thread, compiled": (iterations(together, compiled=True), options.replicas, 1),
        f"replicas, {threads} threads, compiled": (iterations(together, compiled=True), options.replicas, threads),
    }
    for block, _, n in blocks.values():  # compile and warm up
        torch.set_num_threads(n)
        block(3)
    found: dict[str, list[float]] = {name: [] for name in blocks}
    for _ in range(options.rounds):  # in turn, so that a busy moment of the machine hits all alike
        for name, (block, models, n) in blocks.items():
            torch.set_num_threads(n)
            started = time.perf_counter()
            block(max(1, options.iterations // models))
            spent = time.perf_counter() - started
            found[name].append(1000 * spent / max(1, options.iterations // models) / models)
    median = {name: sorted(values)[len(values) // 2] for name, values in found.items()}
    print(f"{options.preset}, {options.replicas} replicas; milliseconds for an iteration of one model, and ratios")
    names = list(blocks)
    for name in names:
        alone, plain = median["one model"] / median[name], median[names[0]] / median[name]
        print(f"{name:36} {median[name]:7.2f} ms   {alone:5.2f}x ours alone   {plain:5.2f}x plain")
    best_alone = min(median["one model"], median["one model, compiled"])
    best_together = min(value for name, value in median.items() if name.startswith("replicas"))
    print(
        f"{options.replicas} replicas against as many runs one after the other (each at its best): "
        f"{best_alone / best_together:.2f}x; against runs as they are without compiling: "
        f"{median['one model'] / best_together:.2f}x"
    )
    print(
        f"our iteration against the plain one, per model: alone {median[names[0]] / best_alone:.2f}x, "
        f"replicas {median[names[0]] / best_together:.2f}x"
    )


def iterations(preset: Preset, *, compiled: bool) -> Callable[[int], None]:
    """Our training loop, ready to go on for some iterations."""
    data = torch.from_numpy(load_splits(preset.data).train)
    learner = preset.build(data, preset.seeds)
    if compiled:
        learner.compile()
    batches, rng, step = Batches(data, preset.train.batch_size, preset.seeds), streams(preset.seeds, "learner"), [0]

    def run(n: int) -> None:
        for _ in range(n):
            learner.update(batches.at(step[0]), rng)
            step[0] += 1

    return run


def plain_iterations(preset: Preset) -> Callable[[int], None]:
    """Alg. 1 as a script would have it, with x revised only."""
    data = torch.from_numpy(load_splits(preset.data).train)
    iterate = plain_iteration(replace(preset, revision=replace(preset.revision, target="x")), data)

    def run(n: int) -> None:
        for _ in range(n):
            iterate()

    return run


if __name__ == "__main__":
    main()
