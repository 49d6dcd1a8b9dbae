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
    parser.add_argument("--iterations", type=int, default=400, help="length of the run")
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return compare(Path(folder), options)


def compare(folder: Path, options: argparse.Namespace) -> int:
    whole, killed = folder / "whole", folder / "killed"
    started = time.perf_counter()
    subprocess.run(command(whole, options), check=True, stdout=subprocess.DEVNULL)
    duration = time.perf_counter() - started
    print(f"uninterrupted: {options.iterations} iterations of {options.preset} in {duration:.1f} s")
    moments, kills, attempts = random.Random(options.seed), 0, 0
    while kills < options.kills:
        # Any moment of a whole run's duration: while starting, training, logging or writing a checkpoint.
        delay = moments.uniform(0.2, duration)
        attempts += 1
        process = subprocess.Popen([*command(killed, options), "--resume"], stdout=subprocess.DEVNULL)
        try:
            if process.wait(delay) != 0:
                print("a resumed run failed")
                return 1
            print(f"attempt {attempts}: done before the kill at {delay:.2f} s; starting over for more kills")
            reached(killed).unlink()
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
            last = reached(killed)
            print(f"kill {kills:2d} after {delay:5.2f} s; newest checkpoint: {last.name if last else 'none yet'}")
    subprocess.run([*command(killed, options), "--resume"], check=True, stdout=subprocess.DEVNULL)
    return verdict(whole, killed, kills)


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


def verdict(whole: Path, killed: Path, kills: int) -> int:
    one, other = (ckpt.read(reached(f)).tensors for f in (whole, killed))
    different = [k for k in one if k not in other or not torch.equal(one[k], other[k])]
    rows = [[{k: v for k, v in r.items() if k != "seconds"} for r in RunFolder(f).metrics()] for f in (whole, killed)]
    print(f"{kills} kills: {len(one) - len(different)} of {len(one)} tensors equal bit by bit; ", end="")
    print(f"{len(rows[0])} lines of metrics {'equal' if rows[0] == rows[1] else 'NOT equal'}")
    return 0 if not different and len(one) == len(other) and rows[0] == rows[1] else 1


if __name__ == "__main__":
    sys.exit(main())
