"""Kill a training run with SIGKILL at random moments, resume it each time, and compare with an uninterrupted run.

    python benchmarks/kill_resume.py --kills 20

Exits 0 if every tensor of the last checkpoint (weights, averaged weights, optimiser moments, random state) is equal bit
by bit and the logged metrics are equal too.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from nrf.training import RunFolder
from nrf.training import checkpoint as ckpt


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20, help="how many times to kill")
    parser.add_argument("--preset", default="gmm-short", help="preset to train")
    parser.add_argument("--iterations", type=int, default=2000, help="length of the run")
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return compare(Path(folder), options)


def compare(folder: Path, options: argparse.Namespace) -> int:
    whole = folder / "whole"
    started = time.perf_counter()
    subprocess.run(command(whole, options), check=True, stdout=subprocess.DEVNULL)
    duration = time.perf_counter() - started
    training = ckpt.read(reached(whole)).meta["seconds"]
    print(f"uninterrupted: {options.iterations} iterations of {options.preset} in {duration:.1f} s")
    moments, kills, runs = random.Random(options.seed), 0, 0
    while kills < options.kills:
        runs += 1
        killed = folder / f"killed-{runs}"
        while True:
            # From just before the first iteration on: training, logging, writing a checkpoint.
            delay = duration - training + moments.uniform(-0.3, 2.5 * training / options.kills)
            process = subprocess.Popen([*command(killed, options), "--resume"], stdout=subprocess.DEVNULL)
            try:
                code = process.wait(None if kills == options.kills else delay)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
                kills += 1
                last = reached(killed)
                print(f"kill {kills:2d} after {delay:5.2f} s; newest checkpoint: {last.name if last else 'none yet'}")
                continue
            if code != 0:
                print("a resumed run failed")
                return 1
            break
        if not equal(whole, killed):
            return 1
    print(f"{kills} kills over {runs} run(s), no difference")
    return 0


def command(out: Path, options: argparse.Namespace) -> list[str]:
    length = [
        "--train.iterations",
        str(options.iterations),
        "--train.checkpoint-every",
        "20",
        "--train.log-every",
        "10",
    ]
    return [sys.executable, "-m", "nrf", "train", options.preset, "--quiet", *length, "--out", str(out)]


def reached(folder: Path) -> Path | None:
    return RunFolder(folder).latest()


def equal(whole: Path, killed: Path) -> bool:
    one, other = (ckpt.read(reached(f)).tensors for f in (whole, killed))
    same = [k for k in one if k in other and torch.equal(one[k], other[k])]
    rows = [[{k: v for k, v in r.items() if k != "seconds"} for r in RunFolder(f).metrics()] for f in (whole, killed)]
    print(f"{killed.name}: {len(same)} of {len(one)} tensors equal bit by bit; ", end="")
    print(f"{len(rows[0])} lines of metrics {'equal' if rows[0] == rows[1] else 'NOT equal'}")
    return len(same) == len(one) == len(other) and rows[0] == rows[1]


if __name__ == "__main__":
    sys.exit(main())
