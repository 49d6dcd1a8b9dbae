"""Attack runs and check that nothing is lost, nothing is left behind, and every failure is a clean error.

    python benchmarks/attacks.py                 # all of them, about a quarter of an hour on one core
    python benchmarks/attacks.py writers files   # some

- ``train``: SIGKILL `nrf train` at random moments and resume it, by ``kill_resume.py``; the end must be bit-equal.
- ``reproduce``: the same with `nrf reproduce --jobs 2`; no finished cell may be lost, no worker may survive, and
  records and weights must be equal.
- ``detect``: the same with `nrf detect fit` over an existing detector and `nrf detect score` over existing scores; what
  is there must be the old or the new one, whole, and the next command must sweep what was left.
- ``writers``: two `nrf train --resume` of one folder at once; one must be refused, the other must not notice.
- ``files``: damage checkpoints, metrics and files of cells at random; each must end in a fallback or a clean error.

Prints a summary; exits 1 if anything failed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

import kill_resume
from nrf.reproduce.runner.cells import CellFile
from nrf.reproduce.runner.run import CELLS
from nrf.training import RunFolder
from nrf.training import checkpoint as ckpt

REPRODUCE = ["reproduce", "gmm", "--quick", "--jobs", "2", "--quiet"]
LEFT = re.compile(r"\.partial-|^\.lock$|\.damaged$")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attacks", nargs="*", choices=[[], *ATTACKS], help="which; all if none is given")
    parser.add_argument("--kills", type=int, default=20, help="how many times to kill")
    parser.add_argument("--damages", type=int, default=100, help="how many files to damage")
    parser.add_argument("--seed", type=int, default=0, help="seed of moments and damages")
    options = parser.parse_args()
    results = {}
    for name in options.attacks or ATTACKS:
        print(f"== {name}")
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            failures = ATTACKS[name](Path(folder), options)
            results[name] = failures
            print(f"   {time.perf_counter() - started:.0f} s", *(f"   FAILED: {f}" for f in failures), sep="\n")
    print("\nsummary")
    for name, failures in results.items():
        print(f"  {name:10} {'ok' if not failures else f'{len(failures)} failures'}")
    return 1 if any(results.values()) else 0


def nrf(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "nrf", *map(str, arguments)]


def left_behind(folder: Path) -> list[str]:
    return [f"left behind: {path}" for path in folder.rglob("*") if LEFT.search(path.name)]


# ---------------------------------------------------------------------------------------------------------------- kills


def kill_train(folder: Path, options: argparse.Namespace) -> list[str]:
    settings = argparse.Namespace(kills=options.kills, preset="gmm-short", iterations=2000, seed=options.seed)
    failures = ["the end differs from an uninterrupted run"] if kill_resume.compare(folder, settings) else []
    return failures + left_behind(folder)


def kill_reproduce(folder: Path, options: argparse.Namespace) -> list[str]:
    whole, failures, kills, runs = folder / "whole", [], 0, 0
    started = time.perf_counter()
    subprocess.run(nrf(*REPRODUCE, "--out", whole), check=True, stdout=subprocess.DEVNULL)
    duration = time.perf_counter() - started
    print(f"uninterrupted: {duration:.1f} s")
    moments = random.Random(options.seed)
    while kills < options.kills:
        runs += 1
        out, before = folder / f"killed-{runs}", set[str]()
        while True:
            last = kills >= options.kills
            # Semaphores of the workers, which joblib cleans up and tells of, go to standard error.
            process = subprocess.Popen(
                nrf(*REPRODUCE, "--out", out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            try:
                code = process.wait(None if last else moments.uniform(3.0, 3.0 + duration / 4))
            except subprocess.TimeoutExpired:
                workers = children(process.pid)
                process.send_signal(signal.SIGKILL)
                process.wait()
                kills += 1
                failures += [f"worker {pid} was alive 5 s after its parent" for pid in survivors(workers)]
                kept = finished(out)
                failures += [f"lost after kill {kills}: {name}" for name in before - kept]
                before, cells = kept, len(kept)
                print(f"kill {kills:2d}: {len(workers)} workers ended, {cells} cells kept")
                continue
            if code:
                return [*failures, f"exit code {code} after {kills} kills"]
            break
        failures += compared(whole, out) + left_behind(out)
    print(f"{kills} kills over {runs} run(s)")
    return failures


def finished(out: Path) -> set[str]:
    """Names of the cells in the file of a run, as the next run will find them."""
    return {cell.name for cell in CellFile(out / "gmm-quick" / CELLS).read()[0]}


def kill_detect(folder: Path, options: argparse.Namespace) -> list[str]:
    from nrf import NRFDetector

    rng, failures = random.Random(options.seed), []
    rows = [f"{rng.gauss(0, 1):.3f},{rng.gauss(0, 1):.3f},{rng.choice('abc')}" for _ in range(2000)]
    (folder / "rows.csv").write_text("\n".join(["x,y,kind", *rows]) + "\n")
    model, scores = folder / "model", folder / "scores.csv"
    fit = nrf("detect", "fit", folder / "rows.csv", "--out", model, "--max-iter", 5, "--quiet")
    score = nrf("detect", "score", model, folder / "rows.csv", "--out", scores)
    for name, command in (("fit", fit), ("score", score)):
        started = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        took = time.perf_counter() - started
        for kill in range(options.kills // 2):
            # Most of the time goes into imports and training; what may be lost is written at the end.
            moment = took * rng.uniform(0.6, 1.1)
            seeded = [*command, "--seed", str(kill)] if name == "fit" else command
            process = subprocess.Popen(seeded, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(moment)
            process.kill()
            process.wait()
            try:
                NRFDetector.load(model)
            except Exception as error:
                failures.append(f"{name}, kill {kill}: the detector is lost: {error}")
            if name == "score" and len(scores.read_text().splitlines()) != len(rows) + 1:
                failures.append(f"{name}, kill {kill}: the scores are not whole")
        for partial in folder.rglob(".partial-*"):
            os.utime(partial, (0, 0))  # as if it had lain there for long: younger ones may be somebody's
        subprocess.run(command, check=True, capture_output=True)
    return failures + left_behind(folder)


def children(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(stat.parent.name))
        except (OSError, ValueError, IndexError):  # gone meanwhile
            continue
    return found


def survivors(pids: list[int], seconds: float = 5.0) -> list[int]:
    def alive(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    end = time.monotonic() + seconds
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.1)
    return [pid for pid in pids if alive(pid)]


def compared(whole: Path, other: Path) -> list[str]:
    """Records row by row, and weights bit by bit."""
    failures = []
    rows = [json.loads((out / "gmm-quick" / "gmm.json").read_text())["rows"] for out in (whole, other)]
    if [r for r in rows[0] if "seconds" not in r["metric"]] != [r for r in rows[1] if "seconds" not in r["metric"]]:
        failures.append(f"{other.name}: the records differ")
    for run in sorted(whole.rglob("runs/*/config.json")):
        twin = other / run.parent.relative_to(whole)
        one, two = (ckpt.read(RunFolder(f).latest()).tensors for f in (run.parent, twin))
        if one.keys() != two.keys() or not all(torch.equal(one[k], two[k]) for k in one):
            failures.append(f"{twin}: the weights differ")
    return failures


# ---------------------------------------------------------------------------------------------------------- two writers


def two_writers(folder: Path, options: argparse.Namespace) -> list[str]:
    settings = argparse.Namespace(preset="gmm-short", iterations=1500)
    whole, both = folder / "whole", folder / "both"
    subprocess.run(kill_resume.command(whole, settings), check=True, stdout=subprocess.DEVNULL)
    command = [*kill_resume.command(both, settings), "--resume"]
    pair = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate()[1] for process in pair]
    codes = sorted(process.returncode for process in pair)
    failures = [] if codes == [0, 2] else [f"exit codes {codes}, expected one 0 and one 2"]
    if not any(f"{both} is in use by process" in text for text in said):
        failures.append(f"nobody was told that the folder is in use: {said}")
    if not kill_resume.equal(whole, both):
        failures.append("the run differs from one without a second writer")
    return failures + left_behind(folder)


# -------------------------------------------------------------------------------------------------------- damaged files


def damaged(content: bytes, rng: random.Random) -> bytes:
    kind = rng.choice(["flip", "flip", "flip", "cut", "empty", "noise", "head"])
    if kind == "empty" or not content:
        return b""
    if kind == "cut":
        return content[: rng.randrange(len(content))]
    if kind == "noise":
        return rng.randbytes(len(content) // 2 + 1)
    changed = bytearray(content)
    for _ in range(rng.choice([1, 1, 4, 64])):  # in text and headers rather than in numbers, every second time
        place = rng.randrange(min(len(content), 2000) if kind == "head" or rng.random() < 0.5 else len(content))
        changed[place] ^= 1 << rng.randrange(8)
    return bytes(changed)


def damaged_files(folder: Path, options: argparse.Namespace) -> list[str]:
    """In this process: a start of Python for each would take longer than all the rest."""
    from contextlib import redirect_stderr, redirect_stdout
    from io import StringIO

    from nrf.cli import main as run

    def call(*arguments: object) -> tuple[int, str]:
        said = StringIO()
        with redirect_stderr(said), redirect_stdout(StringIO()):
            return run([str(a) for a in arguments]), said.getvalue()

    length = ["--train.iterations", 40, "--train.checkpoint-every", 10, "--train.log-every", 5, "--train.keep", 3]
    train = ["train", "gmm-short", "--quiet", "--train.threads", 1, *length]
    first, cells = folder / "run", folder / "cells"
    assert call(*train, "--out", first)[0] == 0
    assert call(*REPRODUCE[:-3], "--jobs", 1, "--quiet", "--out", cells)[0] == 0
    wanted = ckpt.read(RunFolder(first).latest()).tensors
    rng, failures, outcomes = random.Random(options.seed), [], {"as before": 0, "fallback": 0, "clean error": 0}

    def attack(source: Path, pattern: str, commands: list[Callable[[Path], list[object]]]) -> None:
        copy = folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(source, copy)
        path = rng.choice(sorted(copy.glob(pattern)))
        before = path.read_bytes()
        path.write_bytes(damaged(before, rng))
        for command in commands:
            code, said = call(*command(copy))
            name = path.relative_to(copy)
            if code not in (0, 2) or "internal error" in said or "Traceback" in said:
                failures.append(f"{name}: exit code {code}: {said.strip()}")
                (Path(tempfile.gettempdir()) / f"damaged-{len(failures)}-{path.name}").write_bytes(path.read_bytes())
            outcomes["clean error" if code else "fallback" if said else "as before"] += 1
            if not code and command is resume:
                found = ckpt.read(RunFolder(copy).latest()).tensors
                if found.keys() != wanted.keys() or not all(torch.equal(found[k], wanted[k]) for k in wanted):
                    failures.append(f"{name}: the resumed run ended with other weights")

    def resume(copy: Path) -> list[object]:
        return [*train, "--out", copy, "--resume"]

    def sample(copy: Path) -> list[object]:
        return ["sample", copy, "--n", 5, "--out", folder / "s.npz"]

    def again(copy: Path) -> list[object]:
        return [*REPRODUCE[:-3], "--jobs", 1, "--quiet", "--out", copy]

    # Warnings go through logging; here they belong to what a command says.
    import logging

    class ToStderr(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            print(record.getMessage(), file=sys.stderr)

    logging.getLogger("nrf").addHandler(ToStderr())
    for i in range(options.damages):
        kind = ("checkpoint", "checkpoint", "metrics", "config", "reproduce")[i % 5]
        if kind == "checkpoint":
            attack(first, "checkpoints/*.safetensors", [sample, resume])
        elif kind == "metrics":
            attack(first, "metrics.jsonl", [resume])
        elif kind == "config":
            attack(first, "config.json", [sample, resume])
        else:
            attack(cells, rng.choice(["*/cells.jsonl", "*/cells.jsonl", "*/runs/*/checkpoints/*.safetensors"]), [again])
    print(f"{options.damages} damaged files: {outcomes}")
    return failures


ATTACKS: dict[str, Callable[[Path, argparse.Namespace], list[str]]] = {
    "train": kill_train,
    "reproduce": kill_reproduce,
    "detect": kill_detect,
    "writers": two_writers,
    "files": damaged_files,
}


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
