"""The loop: same seed same bytes, resume bit by bit, nothing corrupt read, nothing bad written."""

from __future__ import annotations

import copy
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import save

from nrf.errors import CheckpointError, InputError, NonFiniteError
from nrf.learners import (
    ExclusiveConfig,
    GANConfig,
    Inclusive,
    InclusiveConfig,
    LevelsConfig,
    PCDConfig,
    ReplayConfig,
    Revision,
)
from nrf.networks import LevelsMLPPotential, MLPGenerator, MLPPotential
from nrf.runs.presets import PRESETS
from nrf.runs.train import train
from nrf.runs.trained import TrainedModel
from nrf.samplers import MALA, SGHMC
from nrf.training import RunFolder, TrainConfig
from nrf.training import checkpoint as ckpt
from nrf.training.batches import Batches

BASE = replace(
    PRESETS["gmm-released"],
    train=TrainConfig(iterations=14, batch_size=100, log_every=4, checkpoint_every=5, keep=9, threads=1),
)
VARIANTS = {
    "weight norm, batch norm": BASE,
    "spectral norm, averaged": replace(
        BASE, potential=MLPPotential(norm="spectral"), train=replace(BASE.train, ema_decay=0.9)
    ),
    "joint, rmsprop, momentum": replace(
        BASE,
        generator=MLPGenerator(latent_dim=2, sigma=0.1),
        sampler=SGHMC(0.01, latent_step_size=1e-5),
        revision=Revision(3, "joint"),
        learner=InclusiveConfig(optimizer="rmsprop", betas=(0.5, 0.9)),
    ),
    "by the potential": replace(BASE, learner=InclusiveConfig(generator_loss="potential")),
    "chains in memory": replace(BASE, learner=PCDConfig(n_chains=300), train=replace(BASE.train, ema_decay=0.9)),
    "replay": replace(BASE, learner=ReplayConfig(buffer_size=300, noise_range=(-6.0, 6.0))),
    "a third network": replace(BASE, learner=ExclusiveConfig(entropy="variational")),
    "gan": replace(BASE, learner=GANConfig()),
    "noise levels, averaged, replicas": replace(
        BASE,
        potential=LevelsMLPPotential(widths=(8, 8), n_levels=4, n_waves=4),
        generator=MLPGenerator(latent_dim=2, sigma=0.1),
        sampler=SGHMC(0.001, latent_step_size=1e-5),
        revision=Revision(2, "joint", start_level=-1),
        learner=LevelsConfig(generator_lr=1e-3, likelihood_weight=0.1),
        train=replace(BASE.train, ema_decay=0.9),
        replicas=2,
    ),
    "replicas, averaged": replace(BASE, replicas=3, train=replace(BASE.train, ema_decay=0.9)),
    "replicas, chains in memory": replace(BASE, replicas=2, learner=PCDConfig(n_chains=300)),
    "compiled": replace(BASE, train=replace(BASE.train, compile="always")),
    "accept and reject, chains in memory": replace(BASE, learner=PCDConfig(n_chains=300), sampler=MALA(0.05)),
}


def _tensors(folder):
    path = RunFolder(folder).latest()
    return dict(ckpt.read(path).tensors), path.name


def _equal(a, b):
    assert a.keys() == b.keys()
    different = [k for k in a if not torch.equal(a[k], b[k])]
    assert not different


@pytest.mark.parametrize("name", VARIANTS)
def test_resumed_run_equals_the_uninterrupted_one(tmp_path, name):
    preset = VARIANTS[name]
    train("t", preset, tmp_path / "whole", quiet=True)
    short = replace(preset, train=replace(preset.train, iterations=7))
    train("t", short, tmp_path / "parts", quiet=True)
    train("t", preset, tmp_path / "parts", resume=True, quiet=True)
    (whole, last), (parts, last_too) = _tensors(tmp_path / "whole"), _tensors(tmp_path / "parts")
    assert last == last_too == "step-000000014.safetensors"
    _equal(whole, parts)


def test_falling_learning_rates_resume_too(tmp_path):
    """As after a kill: the last checkpoint is gone, the run is the same."""
    preset = replace(BASE, train=replace(BASE.train, lr_final=0.1))
    trainer = train("t", preset, tmp_path / "whole", quiet=True)
    rate = trainer.learner.optimizers["potential"].param_groups[0]["lr"]
    assert rate == pytest.approx(preset.learner.potential_lr * (1 - 0.9 * 13 / 14))
    train("t", preset, tmp_path / "killed", quiet=True)
    RunFolder(tmp_path / "killed").latest().unlink()
    train("t", preset, tmp_path / "killed", resume=True, quiet=True)
    _equal(_tensors(tmp_path / "whole")[0], _tensors(tmp_path / "killed")[0])
    longer = replace(preset, train=replace(preset.train, iterations=20))
    with pytest.raises(InputError, match=r"train.iterations was 14, now 20"):
        train("t", longer, tmp_path / "killed", resume=True, quiet=True)


def test_metrics_of_a_resumed_run_are_those_of_the_uninterrupted_one(tmp_path):
    """A kill after step 12 leaves metrics beyond the checkpoint of step 10, and half a line; both must go."""
    train("t", BASE, tmp_path / "whole", quiet=True)
    train("t", BASE, tmp_path / "killed", quiet=True)
    folder = RunFolder(tmp_path / "killed")
    folder.checkpoint_path(14).unlink()
    with folder.metrics_path.open("a") as file:
        file.write('{"step": 15, "u_da')
    train("t", BASE, tmp_path / "killed", resume=True, quiet=True)
    strip = lambda rows: [{k: v for k, v in row.items() if k != "seconds"} for row in rows]  # noqa: E731
    whole, killed = RunFolder(tmp_path / "whole").metrics(), folder.metrics()
    assert [row["step"] for row in whole] == [4, 8, 12, 14]
    assert strip(whole) == strip(killed)


def test_same_seed_same_bytes_other_seed_other_bytes(tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train("t", replace(BASE, seed=seed), tmp_path / name, quiet=True)
    a, b, c = (_tensors(tmp_path / n)[0] for n in "abc")
    _equal(a, b)
    assert not torch.equal(a["module/potential/body.1.bias"], c["module/potential/body.1.bias"])


@pytest.mark.slow
def test_sigkill_at_any_moment(tmp_path):
    """A real process, killed at random moments and resumed until it is done, ends with the same bits."""
    arguments = ["--train.iterations", "300", "--train.checkpoint-every", "10", "--train.log-every", "7"]
    command = [sys.executable, "-m", "nrf", "train", "gmm-short", "--quiet", *arguments, "--out"]
    subprocess.run([*command, str(tmp_path / "whole")], check=True, capture_output=True)
    metrics = tmp_path / "killed" / "metrics.jsonl"
    for delay in (0.0, 0.013, 0.11):
        seen = metrics.stat().st_mtime_ns if metrics.exists() else 0
        process = subprocess.Popen([*command, str(tmp_path / "killed"), "--resume"], stdout=subprocess.DEVNULL)
        # Resuming rewrites the file once; the next change is a line of this process: it trains, and is killed.
        changes = 0
        while changes < (2 if seen else 1) and process.poll() is None:
            now = metrics.stat().st_mtime_ns if metrics.exists() else 0
            changes, seen = changes + (now != seen), now
            time.sleep(0.001)
        time.sleep(delay)
        assert process.poll() is None, "the run ended before it could be killed; make it longer"
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run([*command, str(tmp_path / "killed"), "--resume"], check=True, capture_output=True)
    _equal(_tensors(tmp_path / "whole")[0], _tensors(tmp_path / "killed")[0])
    assert not list((tmp_path / "killed" / "checkpoints").glob(".partial-*"))


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path):
    before = signal.getsignal(signal.SIGINT)
    preset = replace(
        BASE, train=replace(BASE.train, iterations=100_000, log_every=1, checkpoint_every=100_000, compile="never")
    )

    def interrupt(trainer, row):
        if trainer.step == 6:
            os.kill(os.getpid(), signal.SIGINT)

    trainer = train("t", preset, tmp_path / "run", quiet=True, on_log=interrupt)
    assert trainer.step == 6
    assert RunFolder(tmp_path / "run").latest().name == "step-000000006.safetensors"
    assert signal.getsignal(signal.SIGINT) is before
    train("t", replace(preset, train=replace(preset.train, iterations=14)), tmp_path / "run", resume=True, quiet=True)
    train("t", BASE, tmp_path / "whole", quiet=True)
    _equal(_tensors(tmp_path / "run")[0], _tensors(tmp_path / "whole")[0])


def test_trains_outside_the_main_thread(tmp_path):
    done = []
    thread = threading.Thread(target=lambda: done.append(train("t", BASE, tmp_path / "run", quiet=True).step))
    thread.start()
    thread.join()
    assert done == [14]


# ------------------------------------------------------------------------------------------------------- wrong files


@pytest.fixture
def run_folder(tmp_path):
    train("t", BASE, tmp_path / "run", quiet=True)
    return RunFolder(tmp_path / "run")


def _resume(folder):
    longer = replace(BASE, train=replace(BASE.train, iterations=20))
    return train("t", longer, folder.path, resume=True, quiet=True)


def _truncated(keep):
    return lambda content: content[:keep]


def _flipped(content):
    changed = bytearray(content)
    changed[-100] ^= 1
    return bytes(changed)


def _renumbered(content):
    assert content.count(b'\\"step\\": 14') == 1
    return content.replace(b'\\"step\\": 14', b'\\"step\\": 13')


def _foreign(content):
    return save({"x": torch.zeros(2)})


DAMAGE = {
    "empty": (_truncated(0), "truncated or not a safetensors file"),
    "five bytes": (_truncated(5), "truncated or not a safetensors file"),
    "hundred bytes": (_truncated(100), "truncated or not a safetensors file"),
    "one byte short": (_truncated(-1), "truncated or not a safetensors file"),
    "flipped bit": (_flipped, "damaged, the content does not match its checksum"),
    "changed header": (_renumbered, "damaged, the content does not match its checksum"),
    "foreign": (_foreign, "not a checkpoint of nrf"),
    "huge header": (lambda content: b"\xff" * 8 + content[8:], "a header of 18446744073709551615 bytes"),
    "large header": (
        lambda content: (17 * 2**20).to_bytes(8, "little") + b" " * (18 * 2**20),
        "a header of 17825792 bytes",
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_taken(run_folder, tmp_path, caplog, kind):
    damage, words = DAMAGE[kind]
    path = run_folder.latest()
    path.write_bytes(damage(path.read_bytes()))
    assert TrainedModel.load(run_folder.path).step == 10
    assert f"{path}: " in caplog.text
    assert words in caplog.text
    with pytest.raises(CheckpointError, match=words):
        TrainedModel.load(run_folder.path, step=14)
    caplog.clear()
    assert _resume(run_folder).step == 20
    assert f"{path}: " in caplog.text
    train("t", replace(BASE, train=replace(BASE.train, iterations=20)), tmp_path / "whole", quiet=True)
    _equal(_tensors(tmp_path / "whole")[0], _tensors(run_folder.path)[0])
    assert run_folder.steps() == [5, 10, 15, 20]
    assert (path.parent / f"{path.name}.damaged").is_file()


def test_a_damaged_checkpoint_does_not_push_out_whole_ones(run_folder):
    """It counts as the newest by its name, so that with one to keep every whole one would be deleted."""
    run_folder.latest().rename(run_folder.checkpoint_path(900))
    run_folder.checkpoint_path(900).write_bytes(b"")
    longer = replace(BASE, train=replace(BASE.train, iterations=20, keep=1))
    assert train("t", longer, run_folder.path, resume=True, quiet=True).step == 20
    assert run_folder.steps() == [20]


def test_if_no_checkpoint_is_whole_that_is_an_error(run_folder):
    for path in run_folder.checkpoint_paths():
        path.write_bytes(b"")
    for read in (_resume, lambda folder: TrainedModel.load(folder.path)):
        with pytest.raises(CheckpointError, match=r"step-000000014.safetensors.*no checkpoint in .* is whole"):
            read(run_folder)
    assert run_folder.steps() == [5, 10, 14]


def _content(path):
    """Tensors and JSON, to be changed and written with a checksum that fits."""
    stored = ckpt.read(path)
    return dict(stored.tensors), {k: copy.deepcopy(v) for k, v in stored.meta.items() if k != "digest"}


BAD_FIELDS = {
    "no step": {"step": None},
    "a step of another type": {"step": "14"},
    "a negative step": {"step": -1},
    "no seconds": {"seconds": None},
    "NaN seconds": {"seconds": float("nan")},
    "sums of another type": {"sums": [1]},
    "a sum that is no number": {"sums": {"loss": "x"}},
    "no rollbacks": {"rollbacks": None},
    "no order": {"order": 3},
    "no averages": {"averaged": None},
    "no optimisers": {"optimizers": []},
    "no configuration": {"config": []},
    "no shape": {"event_shape": 2},
}


@pytest.mark.parametrize("kind", BAD_FIELDS)
def test_a_checkpoint_with_bad_fields_counts_as_damaged(run_folder, caplog, kind):
    path = run_folder.latest()
    tensors, meta = _content(path)
    meta = {k: v for k, v in {**meta, **BAD_FIELDS[kind]}.items() if v is not None}
    ckpt.write(path, ckpt.Checkpoint(tensors, meta))
    assert TrainedModel.load(run_folder.path).step == 10
    assert _resume(run_folder).step == 20
    culprit = "loss" if kind == "a sum that is no number" else next(iter(BAD_FIELDS[kind]))
    assert f"{path}: not the checkpoint of a run: {culprit} is " in caplog.text


def test_weights_that_are_not_finite_count_as_damaged(run_folder, caplog):
    path = run_folder.latest()
    tensors, meta = _content(path)
    name = next(k for k, v in tensors.items() if k.startswith("module/") and v.is_floating_point())
    ckpt.write(path, ckpt.Checkpoint({**tensors, name: torch.full_like(tensors[name], torch.nan)}, meta))
    assert TrainedModel.load(run_folder.path).step == 10
    assert f"{path}: {name} holds values that are not finite" in caplog.text


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors, meta: tensors.pop("rng/learner"),
        lambda tensors, meta: tensors.update({"rng/learner": torch.zeros(3, dtype=torch.uint8)}),
        lambda tensors, meta: tensors.update({"rng/learner": torch.zeros(3)}),
        lambda tensors, meta: tensors.update({"optimizer/potential/x/y": torch.zeros(3)}),
        lambda tensors, meta: tensors.update({"optimizer/potential/x": torch.zeros(3)}),
        lambda tensors, meta: meta["optimizers"].update(potential=3),
        lambda tensors, meta: meta["optimizers"].update(potential=[{}]),
        lambda tensors, meta: meta["optimizers"].update(potential=None),
        lambda tensors, meta: meta["optimizers"]["potential"][0].update(betas=3),
    ],
)
def test_a_checkpoint_without_a_state_to_resume_is_refused(run_folder, change):
    path = run_folder.latest()
    tensors, meta = _content(path)
    change(tensors, meta)
    ckpt.write(path, ckpt.Checkpoint(tensors, meta))
    with pytest.raises(CheckpointError, match=re.escape(str(path))):
        _resume(run_folder)


@pytest.mark.parametrize(
    "line", [b"{", b"[]", b"3", b"\xff\xfe", b'{"loss": 1}', b'{"step": "4"}', b"[" * 100_000, b""]
)
def test_damaged_lines_of_metrics_are_left_out(run_folder, caplog, line):
    whole = run_folder.metrics()
    first, *rest = run_folder.metrics_path.read_bytes().splitlines(keepends=True)
    run_folder.metrics_path.write_bytes(first + line + b"\n" + b"".join(rest))
    assert run_folder.metrics() == whole
    assert f"{run_folder.metrics_path}: line 2 is damaged" in caplog.text
    _resume(run_folder)
    assert run_folder.metrics()[: len(whole) - 1] == whole[:-1]
    caplog.clear()
    run_folder.metrics()
    assert not caplog.text


def test_other_version_is_named(run_folder, monkeypatch):
    stored = ckpt.read(run_folder.latest())
    monkeypatch.setattr(ckpt, "VERSION", 99)
    ckpt.write(run_folder.latest(), stored)
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="checkpoint version 99"):
        _resume(run_folder)


def test_checkpoint_of_another_network_is_refused(run_folder, tmp_path):
    other = replace(BASE, potential=MLPPotential(widths=(7,)))
    train("t", other, tmp_path / "other", quiet=True)
    foreign = RunFolder(tmp_path / "other").latest()
    run_folder.latest().write_bytes(foreign.read_bytes())
    with pytest.raises(CheckpointError, match="does not fit the model"):
        _resume(run_folder)


def test_other_data_is_refused(run_folder, fake_splits):
    with pytest.raises(CheckpointError, match="trained on other data"):
        train("t", BASE, run_folder.path, resume=True, quiet=True, splits=fake_splits("gmm"))


def test_settings_that_would_make_it_another_run_are_refused(run_folder):
    changed = replace(BASE, sampler=replace(BASE.sampler, step_size=0.5), seed=3)
    with pytest.raises(InputError, match=r"sampler.step_size was 0.01, now 0.5, seed was 0, now 3"):
        train("t", changed, run_folder.path, resume=True, quiet=True)
    with pytest.raises(InputError, match="holds a run of preset 't', not 'other'"):
        train("other", BASE, run_folder.path, resume=True, quiet=True)
    with pytest.raises(InputError, match="already holds a run; add --resume"):
        train("t", BASE, run_folder.path, quiet=True)


def test_checkpoints_hold_no_pickle_and_can_be_read_by_anyone(run_folder):
    content = run_folder.latest().read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    meta = json.loads(header["__metadata__"]["nrf"])
    assert meta["step"] == 14
    assert meta["order"]["epoch"] == 0
    assert meta["order"]["cursor"] == 14
    assert meta["config"]["sampler"]["type"] == "SGLD"
    assert meta["versions"]["torch"] == str(torch.__version__)
    assert {"module", "optimizer", "rng"} == {k.split("/")[0] for k in header if k != "__metadata__"}


def test_files_have_the_users_usual_permissions(tmp_path):
    (tmp_path / "plain").write_text("")
    ckpt.write_atomically(tmp_path / "atomic", b"")
    assert (tmp_path / "atomic").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_write_is_atomic(tmp_path, monkeypatch):
    """A failure while writing leaves the old file and no rubbish."""
    path = tmp_path / "step-000000001.safetensors"
    ckpt.write(path, ckpt.Checkpoint({"x": torch.zeros(3)}, {}))
    before = path.read_bytes()

    def full(_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        ckpt.write(path, ckpt.Checkpoint({"x": torch.ones(3)}, {}))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


# --------------------------------------------------------------------------------------------------------- not finite


def test_divergence_stops_with_step_culprit_and_last_good_checkpoint(tmp_path):
    learner = InclusiveConfig(potential_lr=1e18)
    preset = replace(BASE, learner=learner, train=replace(BASE.train, checkpoint_every=1, iterations=200))
    with pytest.raises(NonFiniteError) as caught:
        train("t", preset, tmp_path / "run", quiet=True)
    message = str(caught.value)
    assert "training stopped at step" in message
    assert "last good checkpoint" in message
    for path in RunFolder(tmp_path / "run").checkpoint_paths():
        stored = ckpt.read(path).tensors
        assert all(torch.isfinite(v).all() for k, v in stored.items() if k.startswith("module/"))


def test_a_state_that_is_not_finite_is_never_saved(tmp_path):
    def spoil(trainer, row):
        with torch.no_grad():
            trainer.learner.potential.body[1].bias[0] = float("inf")

    preset = replace(BASE, train=replace(BASE.train, log_every=5))
    with pytest.raises(NonFiniteError, match=r"step 5: parameter body.1.bias of the potential.*none was written yet"):
        train("t", preset, tmp_path / "run", quiet=True, on_log=spoil)
    assert RunFolder(tmp_path / "run").latest() is None


# ------------------------------------------------------------------------------------------------------- small things


def test_batches_are_a_new_permutation_each_epoch():
    batches = Batches(torch.arange(10.0)[:, None], 4, seeds=[0])
    assert batches.per_epoch == 2
    epochs = [torch.cat([batches.at(2 * e), batches.at(2 * e + 1)]).flatten().tolist() for e in range(2)]
    assert all(len(set(epoch)) == 8 for epoch in epochs)
    assert epochs[0] != epochs[1]
    again = Batches(torch.arange(10.0)[:, None], 4, seeds=[0])
    assert again.at(3).flatten().tolist() == epochs[1][4:]


def test_batch_larger_than_the_data():
    assert len(Batches(torch.zeros(5, 1), 100, seeds=[0]).at(0)) == 5
    with pytest.raises(InputError, match="at least 2 rows"):
        Batches(torch.zeros(1, 1), 100, seeds=[0])


def test_old_checkpoints_are_pruned(tmp_path):
    preset = replace(BASE, train=replace(BASE.train, keep=2, checkpoint_every=2))
    train("t", preset, tmp_path / "run", quiet=True)
    assert [p.stem for p in RunFolder(tmp_path / "run").checkpoint_paths()] == ["step-000000012", "step-000000014"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "iterations or as epochs"),
        ({"iterations": 1, "epochs": 1}, "iterations or as epochs"),
        ({"iterations": -1}, "iterations must be at least 0"),
        ({"epochs": 1, "batch_size": 0}, "batch_size"),
        ({"epochs": 1, "ema_decay": 1.0}, "ema_decay"),
        ({"epochs": 1, "lr_final": 2.0}, "lr_final"),
    ],
)
def test_train_config_checks_itself(settings, message):
    with pytest.raises(InputError, match=message):
        TrainConfig(**settings)


def test_length_in_epochs():
    assert TrainConfig(epochs=3).length(16) == 48


def test_averaged_weights_are_the_running_mean(tmp_path):
    """Against the definition: a ← 0.9 a + 0.1 w, starting at the first weights."""
    preset = replace(BASE, train=replace(BASE.train, ema_decay=0.9, log_every=1))
    name, seen = "body.1.bias", []

    def note(trainer, row):
        seen.append(trainer.learner.potential.state_dict()[name].clone())

    train("t", preset, tmp_path / "run", quiet=True, on_log=note)
    average = seen[0]
    for weights in seen[1:]:
        average = 0.9 * average + 0.1 * weights
    torch.testing.assert_close(_tensors(tmp_path / "run")[0][f"averaged/potential/module.{name}"], average)


def test_progress_is_silent_off_terminal(tmp_path, capsys):
    train("t", BASE, tmp_path / "run")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == ""


def test_time_is_counted_over_interruptions(tmp_path):
    short = replace(BASE, train=replace(BASE.train, iterations=7))
    train("t", short, tmp_path / "run", quiet=True)
    first = ckpt.read(RunFolder(tmp_path / "run").latest()).meta["seconds"]
    time.sleep(0.01)
    train("t", BASE, tmp_path / "run", resume=True, quiet=True)
    assert ckpt.read(RunFolder(tmp_path / "run").latest()).meta["seconds"] > first > 0


def test_a_replica_is_the_run_of_its_seed(tmp_path):
    """In single precision and through the files: the potential and the samples of each replica.

    Adam turns the rounding of a vanishing gradient into a whole step, hence small steps here; the learners' contract
    compares in double precision.
    """
    slow = InclusiveConfig(betas=(0.9, 0.999), potential_lr=1e-4, generator_lr=1e-4)
    preset = replace(PRESETS["gmm-short"], learner=slow, train=replace(BASE.train, ema_decay=0.9))
    train("t", replace(preset, seed=4, replicas=3), tmp_path / "together", quiet=True)
    x = torch.randn(50, 2, generator=torch.Generator().manual_seed(0)).numpy() * 3
    for i in range(3):
        train("t", replace(preset, seed=4 + i), tmp_path / f"alone-{i}", quiet=True)
        for averaged in (False, True):
            one = TrainedModel.load(tmp_path / f"alone-{i}", averaged=averaged)
            same = TrainedModel.load(tmp_path / "together", averaged=averaged, replica=i)
            np.testing.assert_allclose(same.score_samples(x), one.score_samples(x), rtol=1e-3, atol=1e-3)
            np.testing.assert_allclose(same.sample(100)[0], one.sample(100)[0], rtol=1e-3, atol=1e-3)
    scores = [TrainedModel.load(tmp_path / "together", replica=i).score_samples(x) for i in range(3)]
    assert np.abs(scores[0] - scores[1]).max() > 0.1
    with pytest.raises(InputError, match=r"holds 3 model.*got 3"):
        TrainedModel.load(tmp_path / "together", replica=3)


def test_compiling_is_decided_by_the_settings_alone(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(Inclusive, "compile", lambda self: asked.append(True) or False)
    monkeypatch.setattr("nrf.training.trainer.COMPILE_FROM", 8)
    for how, expected in (("auto", 1), ("never", 0), ("always", 1)):
        asked.clear()
        train("t", replace(BASE, train=replace(BASE.train, compile=how)), tmp_path / how, quiet=True)
        assert len(asked) == expected, how
    short = replace(BASE, train=replace(BASE.train, iterations=5))
    asked.clear()
    train("t", short, tmp_path / "short", quiet=True)
    assert not asked
