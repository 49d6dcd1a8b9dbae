"""Watching a run without labels: the numbers, the guard, and that looking changes nothing."""

from __future__ import annotations

import json
import logging
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from nrf.errors import InputError, NonFiniteError
from nrf.networks import MLPGenerator, MLPPotential
from nrf.runs.presets import find_preset
from nrf.runs.train import train
from nrf.samplers import SGLD
from nrf.training import RunFolder, TrainConfig, Trainer
from nrf.training.health import Health, complaint

PRESET = find_preset("gmm-short")
DATA = torch.randn(400, 2, generator=torch.Generator().manual_seed(0))


def config(**changes):
    plain = TrainConfig(batch_size=20, iterations=12, log_every=4, checkpoint_every=6, compile="never")
    return replace(plain, **changes)


def trainer(preset=PRESET, **changes):
    learner = preset.build(DATA, preset.seeds)
    return Trainer(learner, DATA, config(**changes), preset.seeds)


@pytest.fixture
def health():
    learner = PRESET.build(DATA, PRESET.seeds)
    return Health(learner, DATA[:50], DATA[50:], 30, [0])


def test_the_first_numbers_are_what_they_say(health):
    learner = health.learner
    first = health.measure(0)
    u = learner.potential(DATA[:50]).detach()
    assert first["watched_u"] == pytest.approx(float(u.mean()), abs=1e-5)
    assert first["watched_spread"] == pytest.approx(float(u.std()), rel=1e-4)
    assert "watched_drift" not in first
    with torch.no_grad():
        for p in learner.potential.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=torch.Generator().manual_seed(1)))
    second = health.measure(1)
    v = learner.potential(DATA[:50]).detach()
    assert second["watched_drift"] == pytest.approx(float((v - u).mean().abs() / v.std()), rel=1e-3)
    assert second["watched_rank_correlation"] == pytest.approx(spearmanr(u, v).statistic, abs=1e-6)
    assert second["samples_outside"] >= second["samples_far"]
    assert 0 < second["samples_effective"] <= 1


def test_samples_far_away_are_counted(health):
    with torch.no_grad():
        for p in health.learner.generator.network[-3].parameters():
            p.mul_(100)
    found = health.measure(0)
    assert found["samples_outside"] > 0.8
    assert found["samples_far"] > 0.5


def test_a_column_that_never_changes_is_measured_by_the_widest_range():
    """One level of a category that training rows never have must not make every sample count as lost."""
    constant = torch.cat([DATA[:, :1], torch.zeros(len(DATA), 1)], 1)
    learner = PRESET.build(constant, PRESET.seeds)
    with torch.no_grad():
        bias = learner.generator.network[-3].bias
        bias.copy_(torch.tensor([0.0, 1.0]) * 0.5 * float(DATA[:, 0].max() - DATA[:, 0].min()))
    found = Health(learner, constant[:50], constant[50:], 30, [0]).measure(0)
    assert found["samples_far"] == 0


def test_all_pixels_of_images_have_one_range():
    images = torch.zeros(20, 1, 4, 4)
    images[:, :, 0, 0] = torch.linspace(0, 1, 20)[:, None]
    preset = replace(PRESET, potential=MLPPotential(), generator=MLPGenerator(sigma=0.0))
    learner = preset.build(images, preset.seeds)
    health = Health(learner, images[:5], images, 10, [0])
    assert (health._low, health._high, health._span) == (0.0, 1.0, 1.0)


def test_looking_changes_nothing():
    plain = trainer(watch_share=0.1)
    plain.fit(quiet=True)
    looked = trainer(watch_share=0.1, log_every=1)
    looked.fit(quiet=True)
    for name, value in plain.learner.potential.state_dict().items():
        assert torch.equal(value, looked.learner.potential.state_dict()[name])


def test_watched_rows_are_not_trained_on():
    run = trainer(watch_share=0.1)
    assert run.health is not None
    assert len(run.health.watched) == 40
    assert len(run.batches.data) == 360
    rows = {tuple(r) for r in run.batches.data.tolist()}
    assert not any(tuple(r) in rows for r in run.health.watched.tolist())


def test_replicas_are_watched_too():
    run = trainer(replace(PRESET, replicas=3), watch_share=0.1)
    rows = []
    run.fit(quiet=True, on_log=lambda _, row: rows.append(dict(row)))
    assert run.health is not None
    assert run.health.before.shape == (3, 40)
    assert np.isfinite(list(rows[-1].values())).all()
    assert "watched_rank_correlation" in rows[-1]


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"u_data": float("nan")}, "u data is not finite"),
        ({"samples_far": 0.95}, "95 % of the samples"),
    ],
)
def test_complaints(numbers, words):
    assert words in str(complaint(numbers))


def test_at_the_beginning_samples_may_be_anywhere():
    numbers = {"samples_far": 1.0}
    assert complaint(numbers, settled=False) is None
    assert complaint(numbers) is not None
    assert complaint({"watched_u": float("nan")}, settled=False) is not None


def test_a_gap_that_explodes_is_a_complaint():
    assert complaint({"u_data": 0.0, "u_revised": -100.0}) is None, "nothing to compare with"
    assert complaint({"u_data": 0.0, "u_revised": -100.0}, least_gap=40.0) is None
    assert complaint({"u_data": 0.0, "u_revised": -49.0}, least_gap=1.0) is None
    assert complaint({"u_data": 0.0, "u_revised": -1.0}, least_gap=-263.0) is None, "samples above the rows are no gap"
    assert "grew from 20 to 100 nats" in str(complaint({"u_data": 0.0, "u_revised": -100.0}, least_gap=20.0))


def test_the_gap_of_many_columns_may_be_wide():
    numbers = {"u_data": 0.0, "u_revised": -200.0}
    assert complaint(numbers, least_gap=20.0, size=250) is None, "less than a nat per column"
    assert complaint(numbers, least_gap=20.0, size=150) is not None
    assert complaint({"u_data": 0.0, "u_revised": -900.0}, least_gap=299.0, size=250) is not None


def test_a_run_whose_gap_explodes_goes_back(monkeypatch):
    run = trainer(guard=True, iterations=40, log_every=4, checkpoint_every=4)
    update, step = run.learner.update, run.learner.sampler.step_size

    def bad_from_the_middle(batch, rng):
        metrics = update(batch, rng)
        lost = run.step >= 20 and run.rollbacks == 0
        return metrics | {"u_data": torch.tensor(0.0), "u_revised": torch.tensor(-500.0 if lost else -1.0)}

    monkeypatch.setattr(run.learner, "update", bad_from_the_middle)
    rows = []
    assert run.fit(quiet=True, on_log=lambda _, row: rows.append(row["step"]))
    assert run.rollbacks == 1
    assert run.learner.sampler.step_size == step / 2
    assert rows == list(range(4, 41, 4)), "the lost lines are not told, and are made again"


def test_the_gap_may_grow_while_a_run_begins(monkeypatch):
    run = trainer(guard=True, iterations=40, log_every=4, checkpoint_every=4)
    update = run.learner.update

    def grows_at_first(batch, rng):
        gap = 0.0 if run.step < 4 else 60.0
        return update(batch, rng) | {"u_data": torch.tensor(0.0), "u_revised": torch.tensor(-gap)}

    monkeypatch.setattr(run.learner, "update", grows_at_first)
    assert run.fit(quiet=True)
    assert run.rollbacks == 0


def test_a_sound_run_has_no_complaint():
    rows = []
    trainer(watch_share=0.1, guard=True).fit(quiet=True, on_log=lambda _, row: rows.append(dict(row)))
    assert complaint(rows[-1]) is None
    assert rows[-1]["rollbacks"] == 0


def test_a_run_that_diverges_goes_back_and_on_with_half_the_step(caplog):
    wild = replace(PRESET, sampler=SGLD(step_size=3.0, temperature=0.0))
    unguarded = trainer(wild, watch_share=0.1, iterations=200, checkpoint_every=20)
    rows = []
    unguarded.fit(quiet=True, on_log=lambda _, row: rows.append(dict(row)))
    assert any(complaint(row) for row in rows), "the case is meant to diverge"
    run = trainer(wild, watch_share=0.1, guard=True, iterations=200, checkpoint_every=20)
    rates = {name: o.param_groups[0]["lr"] for name, o in run.learner.optimizers.items()}
    with caplog.at_level(logging.INFO):
        try:
            run.fit(quiet=True)
        except NonFiniteError:
            assert run.rollbacks == 5
    assert run.rollbacks >= 1
    assert run.learner.sampler.step_size == pytest.approx(3.0 / 2**run.rollbacks)
    for name, optimizer in run.learner.optimizers.items():
        assert optimizer.param_groups[0]["lr"] == pytest.approx(rates[name] / 2**run.rollbacks)
    assert "with half the sampler's step and learning rates" in caplog.text
    assert all(record.levelno == logging.INFO for record in caplog.records), "a warning would reach standard error"


def test_a_gap_is_measured_anew_after_going_back(monkeypatch):
    """Shorter steps leave samples farther away: that alone is no reason to go back again."""
    run = trainer(guard=True, iterations=40, log_every=4, checkpoint_every=4)
    update = run.learner.update

    def wide_from_the_middle(batch, rng):
        gap = 500.0 if run.step >= 20 else 1.0
        return update(batch, rng) | {"u_data": torch.tensor(0.0), "u_revised": torch.tensor(-gap)}

    monkeypatch.setattr(run.learner, "update", wide_from_the_middle)
    assert run.fit(quiet=True)
    assert run.rollbacks == 1


def test_the_last_good_state_can_be_taken(monkeypatch):
    run = trainer(guard=True, iterations=40, log_every=4, checkpoint_every=4)
    update = run.learner.update

    def lost_from_the_middle(batch, rng):
        if run.step >= 21:
            raise NonFiniteError("lost")
        return update(batch, rng)

    monkeypatch.setattr(run.learner, "update", lost_from_the_middle)
    with pytest.raises(NonFiniteError):
        run.fit(quiet=True)
    run.return_to_good()
    assert run.step == 20
    assert all(torch.isfinite(p).all() for m in run.learner.modules.values() for p in m.parameters())
    with pytest.raises(InputError, match="train with guard"):
        trainer().return_to_good()


def test_a_guarded_run_is_resumed_bit_by_bit(tmp_path):
    preset = replace(PRESET, sampler=SGLD(step_size=1.0, temperature=0.0))
    preset = replace(preset, train=config(watch_share=0.1, guard=True, iterations=40, checkpoint_every=8, log_every=4))
    train("x", preset, tmp_path / "whole", quiet=True)

    class KilledError(Exception):
        pass

    def kill(trainer, row):
        if row["step"] == 28:
            raise KilledError

    with pytest.raises(KilledError):
        train("x", preset, tmp_path / "cut", quiet=True, on_log=kill)
    train("x", preset, tmp_path / "cut", quiet=True, resume=True)
    lines = [RunFolder(tmp_path / name).metrics() for name in ("whole", "cut")]
    for rows in lines:
        for row in rows:
            row.pop("seconds")
    assert json.dumps(lines[0]) == json.dumps(lines[1])


def test_what_cannot_be_watched_says_so():
    with pytest.raises(InputError, match="watch_share must lie"):
        config(watch_share=0.9)
    with pytest.raises(InputError, match="too little to watch"):
        trainer(watch_share=0.001)
