"""Shifts and flips of images: what they do, that they repeat, and that tables have none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from nrf.data import Splits
from nrf.errors import InputError
from nrf.runs.presets import find_preset
from nrf.runs.train import train
from nrf.seeds import stream, streams
from nrf.training import TrainConfig
from nrf.training.augment import augmented


def test_a_shift_moves_every_pixel_alike_and_repeats_the_edge():
    x = torch.rand(200, 2, 6, 5)
    found = augmented(x, 2, False, stream(0, "x"))
    seen = set()
    for before, after in zip(x, found, strict=True):
        padded = torch.nn.functional.pad(before, (2, 2, 2, 2), mode="replicate")
        places = [(i, j) for i in range(5) for j in range(5) if (padded[:, i : i + 6, j : j + 5] == after).all()]
        assert len(places) == 1
        seen.add(places[0])
    assert len(seen) == 25


def test_about_half_are_mirrored():
    x = torch.rand(400, 1, 3, 4)
    found = augmented(x, 0, True, stream(0, "x"))
    same, mirrored = ((found == other).flatten(1).all(1) for other in (x, x.flip(3)))
    assert (same ^ mirrored).all()
    assert 150 < int(mirrored.sum()) < 250


def test_each_replica_draws_its_own():
    x = torch.rand(1, 1, 8, 8).expand(40, -1, -1, -1)
    together = augmented(x, 3, True, streams([5, 6], "x"))
    torch.testing.assert_close(together[:20], augmented(x[:20], 3, True, stream(5, "x")))
    torch.testing.assert_close(together[20:], augmented(x[:20], 3, True, stream(6, "x")))


def test_a_table_has_nothing_to_shift():
    assert (augmented(torch.ones(3, 2), 0, False, stream(0, "x")) == 1).all()
    with pytest.raises(InputError, match="only images"):
        augmented(torch.ones(3, 2), 1, False, stream(0, "x"))
    with pytest.raises(InputError, match="shift must not be negative"):
        TrainConfig(iterations=1, shift=-1)


def test_a_run_with_shifts_is_another_and_resumes_bit_by_bit(tmp_path):
    preset = find_preset("digits")
    short = replace(preset.train, iterations=8, log_every=4, checkpoint_every=4, ema_decay=None)
    moved = replace(preset, train=replace(short, shift=1, flip=True))
    given = {"quiet": True, "splits": Splits("images", np.random.default_rng(0).random((130, 1, 8, 8), np.float32))}
    plain = train("x", replace(preset, train=short), tmp_path / "plain", **given)
    whole = train("x", moved, tmp_path / "whole", **given)
    half = train("x", moved, tmp_path / "half", on_log=lambda t, row: row["step"] == 4, **given)
    assert half.step == 4
    again = train("x", moved, tmp_path / "half", resume=True, **given)
    states = [t.learner.potential.state_dict() for t in (whole, again, plain)]
    assert all((states[0][key] == states[1][key]).all() for key in states[0])
    assert any((states[0][key] != states[2][key]).any() for key in states[0])
