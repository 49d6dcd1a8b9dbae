"""Several ranks train as one does: torchrun with two of them, on this machine's processors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from nrf.cli import main
from nrf.errors import InputError
from nrf.ranks import Ranks
from nrf.runs.presets import find_preset
from nrf.seeds import Shard, rand, randn, stream
from nrf.training import RunFolder, Trainer
from nrf.training.checkpoint import read

LENGTH = ["--train.iterations", "6", "--train.log-every", "3", "--train.checkpoint-every", "3"]
SETTINGS = ["--generator.norm", "none", *LENGTH, "--train.lr-final", "1.0", "--train.threads", "1", "--quiet"]


def _by_ranks(count: int, *arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    return subprocess.run([*command, "-m", "nrf", "train", *arguments], capture_output=True, text=True, timeout=300)


def _newest(folder: Path):
    return read(RunFolder(folder).latest())


def _same(a, b, tolerance):
    assert a.tensors.keys() == b.tensors.keys()
    for key, value in a.tensors.items():
        torch.testing.assert_close(
            value, b.tensors[key], rtol=tolerance, atol=tolerance, msg=lambda m, key=key: f"{key}: {m}"
        )


@pytest.mark.slow
def test_two_ranks_take_the_steps_of_one(tmp_path):
    alone, both = tmp_path / "alone", tmp_path / "both"
    assert main(["train", "digits", "--out", str(alone), *SETTINGS]) == 0
    done = _by_ranks(2, "digits", "--out", str(both), *SETTINGS)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("trained 6 steps") == 1  # one of them speaks
    _same(_newest(alone), _newest(both), 1e-5)
    metrics = [RunFolder(folder).metrics_path.read_text().splitlines() for folder in (alone, both)]
    assert len(metrics[0]) == len(metrics[1]) == 2


@pytest.mark.slow
def test_a_run_of_two_is_resumed_by_one_and_the_other_way(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert main(["train", "digits", "--out", str(whole), *SETTINGS]) == 0
    short = [*SETTINGS, "--train.iterations", "3"]
    done = _by_ranks(2, "digits", "--out", str(parts), *short)
    assert done.returncode == 0, done.stderr
    assert main(["train", "digits", "--out", str(parts), "--resume", "--train.iterations", "6", "--quiet"]) == 0
    _same(_newest(whole), _newest(parts), 1e-5)


def test_what_ranks_cannot_share_is_refused():
    preset = find_preset("digits")
    data = torch.rand(50, 64)
    learner = preset.build(data, preset.seeds)
    with pytest.raises(InputError, match="a batch of 50 rows cannot be shared by 3 ranks"):
        Trainer(learner, data, preset.train, [0], ranks=Ranks(0, 3))


def test_a_shard_is_a_part_of_the_whole_and_moves_with_it():
    whole, parts = stream(0, "x"), [Shard(stream(0, "x"), rank, 3) for rank in range(3)]
    for draw in (randn, rand, randn):
        together = draw((6, 2), whole)
        assert (torch.cat([draw((2, 2), part) for part in parts]) == together).all()
    assert (parts[1].get_state() == whole.get_state()).all()
