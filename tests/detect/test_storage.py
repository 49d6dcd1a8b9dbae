"""Saved detectors: whole whenever a process is killed, without training rows, and not to be trusted when read."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import stat
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from nrf import NRFDetector
from nrf.config import to_json
from nrf.detect import Training, storage
from nrf.detect.storage import _digest
from nrf.errors import CheckpointError, InputError
from nrf.learners import ReplayConfig

SMALL = Training(widths=(6,), latent_dim=2, batch_size=32)
TINY = {"max_iter": 4, "training": SMALL, "random_state": 0, "verbose": 0}
OLD = Path(__file__).parents[1] / "fixtures" / "detector-0.1.0"


def table(n=120, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "size": rng.normal(50, 10, n),
            "colour": rng.choice(["red", "green", "blue"], n),
            "zone": rng.choice([f"z{i}" for i in range(8)], n),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 90, n), unit="D"),
            "same": 7.0,
        }
    )


def fitted(rows, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return NRFDetector(**TINY | settings).fit(rows)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Two detectors of one table, saved with rows and without, and one of images."""
    home = tmp_path_factory.mktemp("world")
    first, second = fitted(table(), max_levels=4, n_estimators=2, keep_examples=True), fitted(table(), max_levels=4)
    images = fitted(np.random.default_rng(0).random((40, 1, 6, 6)))
    for name, detector in (("rows", first), ("plain", second), ("images", images)):
        detector.save(home / name)
    return home, first, second


@pytest.fixture
def copied(world, tmp_path):
    return shutil.copytree(world[0] / "rows", tmp_path / "copy")


# ------------------------------------------------------------------------------------------------------- all or nothing


def forked(work):
    """A process that does some work and then ends, with 1 if it failed."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return child


def exit_code(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_detector_is_whole_whenever_a_save_is_killed(world, tmp_path):
    _, first, second = world
    path, rows, rng = tmp_path / "model", table(20, 5), random.Random(0)
    first.save(path)
    known = {detector.score_samples(rows).tobytes() for detector in (first, second)}
    begun = time.perf_counter()
    second.save(path)
    first.save(path)
    both = time.perf_counter() - begun
    seen, whole = set(), len(list(path.iterdir()))

    def saves():
        while True:
            second.save(path)
            first.save(path)

    rounds = 0
    while rounds < 15 or (seen != known and rounds < 200):  # on a slow machine a kill may often come before the first
        rounds += 1
        child = forked(saves)
        time.sleep(rng.uniform(0, 2 * both))
        os.kill(child, signal.SIGKILL)
        assert exit_code(child) == -signal.SIGKILL
        seen.add(NRFDetector.load(path).score_samples(rows).tobytes())
    assert seen == known, "the old one and the new one, each in some of the rounds, and nothing between"
    second.save(path)
    assert len(list(path.iterdir())) == whole, "what is left over is swept"
    first.save(path)
    assert len(list(path.iterdir())) == 2


@pytest.mark.parametrize("moment", range(1, 6))
def test_a_first_save_that_is_killed_blocks_no_other(world, tmp_path, monkeypatch, moment):
    """Stopped at each of the renames and directory flushes in turn, as a kill would: no clean-up."""
    _, first, _ = world
    path, calls = tmp_path / "model", []

    def counted(function):
        def call(*args, **kwargs):
            calls.append(function)
            if len(calls) == moment:
                os._exit(9)
            return function(*args, **kwargs)

        return call

    def work():
        monkeypatch.setattr(os, "replace", counted(os.replace))
        monkeypatch.setattr(os, "fsync", counted(os.fsync))
        first.save(path)

    assert exit_code(forked(work)) == 9
    assert list(path.iterdir()), "something was left"
    with pytest.raises(CheckpointError, match=r"it has no detector\.json; a save was interrupted"):
        NRFDetector.load(path)
    first.save(path)
    assert len(list(path.iterdir())) == 2
    NRFDetector.load(path)


def test_what_a_killed_save_of_the_first_version_left_blocks_no_save(world, tmp_path):
    (tmp_path / "model").mkdir()
    shutil.copy(OLD / "weights.safetensors", tmp_path / "model")
    world[1].save(tmp_path / "model")
    assert not (tmp_path / "model" / "weights.safetensors").exists()


def test_weights_of_others_are_left_alone(world, tmp_path):
    content = save_tensors({"bert.embeddings": torch.zeros(3)})
    (tmp_path / "weights.safetensors").write_bytes(content)
    with pytest.raises(InputError, match="is no saved detector; choose another place"):
        world[1].save(tmp_path)
    assert (tmp_path / "weights.safetensors").read_bytes() == content


def test_a_detector_of_the_first_version_is_replaced(world, tmp_path):
    shutil.copytree(OLD, tmp_path / "model")
    world[1].save(tmp_path / "model")
    assert NRFDetector.load(tmp_path / "model").n_estimators == 2
    assert len(list((tmp_path / "model").iterdir())) == 2


def test_a_detector_replaced_while_it_is_read_is_read_again(world, tmp_path, monkeypatch):
    _, first, second = world
    path, rows = tmp_path / "model", table(20, 5)
    first.save(path)
    read, done = storage._read_description, []

    def and_then_replaced(folder):
        description = read(folder)
        if not done:
            done.append(second.save(path))
        return description

    monkeypatch.setattr(storage, "_read_description", and_then_replaced)
    again = NRFDetector.load(path)
    np.testing.assert_array_equal(again.score_samples(rows), second.score_samples(rows))


def test_two_saves_at_once_leave_one_detector(world, tmp_path):
    _, first, second = world
    path = tmp_path / "model"
    children = [
        forked(lambda detector=detector: [detector.save(path) for _ in range(8)]) for detector in (first, second)
    ]
    assert [exit_code(child) for child in children] == [0, 0]
    NRFDetector.load(path)
    assert len(list(path.iterdir())) == 2


# -------------------------------------------------------------------------------------------------- no rows in the file


def _weights(folder):
    (path,) = folder.glob("weights*.safetensors")
    return path


def test_rows_are_stored_only_if_asked_for_and_for_the_owner_alone(world):
    home, first, _ = world
    assert "calibration/rows" not in load_tensors(_weights(home / "plain").read_bytes())
    stored = load_tensors(_weights(home / "rows").read_bytes())["calibration/rows"]
    assert torch.equal(stored, first.fitted_.calibrated.rows)
    assert stat.S_IMODE(_weights(home / "rows").stat().st_mode) == 0o600
    assert stat.S_IMODE(_weights(home / "plain").stat().st_mode) == 0o644 & ~_umask()
    assert NRFDetector.load(home / "rows").keep_examples
    assert NRFDetector.load(home / "plain").fitted_.calibrated.rows is None


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_no_row_can_be_found_in_the_files(tmp_path):
    """A row of ones among normal ones, held out or not: none of its encoded values is in the file."""
    rows = np.random.default_rng(3).normal(size=(100, 4))
    detector = fitted(rows)
    detector.save(tmp_path / "m")
    content = b"".join(p.read_bytes() for p in (tmp_path / "m").iterdir())
    held = detector.fitted_.calibrated.rows.numpy()[:, :4]
    assert not any(row.tobytes() in content for row in held)
    detector.set_params(keep_examples=True).save(tmp_path / "m")
    content = b"".join(p.read_bytes() for p in (tmp_path / "m").iterdir())
    assert all(row.tobytes() in content for row in held)


def test_a_detector_without_rows_scores_and_explains(world):
    home, _, second = world
    again, rows = NRFDetector.load(home / "plain"), table(30, 9)
    np.testing.assert_array_equal(again.p_values(rows), second.p_values(rows))
    usual = rows[again.p_values(rows) > 0.2]  # but for the size that they are given, nothing is odd about them
    for explanation in again.explain(usual.assign(size=900.0)[:5]):
        assert explanation.is_anomaly
        assert explanation.reached
        assert explanation.changes[0].feature == "size"
        drop = explanation.score - explanation.revised_score
        assert explanation.contributions["size"] == pytest.approx(drop, rel=0.05)
        assert sum(explanation.contributions.values()) == pytest.approx(drop, abs=1e-3)


def test_partial_fit_without_rows_calibrates_on_the_new_ones_alone(world):
    home, _, _ = world
    again = NRFDetector.load(home / "plain")
    again.partial_fit(table(200, 3))
    assert len(again.calibration_.scores) == 40, "a fifth of the new rows"
    np.testing.assert_allclose(
        again.calibration_.scores,
        np.sort(again.members_.potentials(again.fitted_.calibrated.rows)[0].double()),
        rtol=1e-6,
    )
    with_rows = NRFDetector.load(home / "rows")
    before = len(with_rows.calibration_.scores)
    with_rows.partial_fit(table(200, 3))
    assert len(with_rows.calibration_.scores) == before + 40


def test_partial_fit_without_rows_and_with_too_few_says_so(world):
    home, _, _ = world
    few = NRFDetector.load(home / "plain")
    with pytest.warns(RuntimeWarning, match=r"saved without its calibration rows \(keep_examples=False\), and 6 rows"):
        few.partial_fit(table(30, 3))
    assert (few.predict(table()) == 1).all()
    none = NRFDetector.load(home / "plain")
    scores = none.score_samples(table())
    with pytest.raises(InputError, match=r"fewer than 20 rows .* nothing is left to calibrate on.*keep_examples=True"):
        none.partial_fit(table(10, 3))
    np.testing.assert_array_equal(none.score_samples(table()), scores)


def test_files_of_the_first_version_keep_their_rows():
    old = NRFDetector.load(OLD)
    assert old.fitted_.calibrated.rows.shape == (12, 4)
    old.partial_fit(np.random.default_rng(1).normal(size=(60, 3)))
    assert len(old.calibration_.scores) == 12 + 12


# -------------------------------------------------------------------------------------------------------- hostile files


def forged(folder, change=None, tensors=None):
    """Change the JSON, or the tensors, of a saved detector, with digests that fit."""
    path = folder / "detector.json"
    description = json.loads(path.read_text())
    if tensors is not None:
        old = _weights(folder)
        content = tensors(load_tensors(old.read_bytes()))
        content = content if isinstance(content, bytes) else save_tensors(content)
        description["weights_digest"] = hashlib.blake2b(content, digest_size=16).hexdigest()
        old.unlink()
        (folder / f"weights-{description['weights_digest']}.safetensors").write_bytes(content)
    if change is not None:
        change(description)
    description["digest"] = _digest(description)
    path.write_text(json.dumps(description))


def put(*keys_and_value):
    def change(description):
        *keys, last, value = keys_and_value
        for key in keys:
            description = description[key]
        assert isinstance(last, int) or last in description, "a field that is there"
        description[last] = value

    return change


COLUMNS = ("encoder", "encoder", "columns")
HOSTILE = {
    "a billion members": (put("members", "count", 10**9), "surprise_costs is .* it must be .*1000000000"),
    "a wide network": (put("recipe", "potential", "widths", [10**9]), "widths of MLPPotential is 1000000000"),
    "a wide network, but not too wide": (put("recipe", "potential", "widths", [1000]), "original|bias"),
    "many layers": (put("recipe", "potential", "widths", [1] * 10**6), "widths of MLPPotential are 1000000"),
    "a long code": (put("recipe", "generator", "latent_dim", 10**8), "latent_dim of MLPGenerator is 100000000"),
    "a learner with a memory": (
        put("recipe", "learner", to_json(ReplayConfig(buffer_size=10**9))),
        "its learner is a ReplayConfig",
    ),
    "a large shape": (put("members", "shape", [10**9]), "rows of shape .1000000000."),
    "many buckets": (
        lambda d: [put(*COLUMNS, 2, *to)(d) for to in (("signs", False), ("examples", []), ("hashed_buckets", 10**9))],
        "1000000000 buckets",
    ),
    "many signs": (put(*COLUMNS, 2, "hashed_buckets", 10**9), "an example of each bucket"),
    "signs without examples": (put(*COLUMNS, 2, "examples", []), "signs, at most 64, need one"),
    "buckets without examples": (put(*COLUMNS, 2, "hashed_buckets", 31), "an example of each bucket"),
    "offset NaN": (put("offset", float("nan")), "NaN in it is not finite"),
    "offset infinite": (put("offset", float("inf")), "Infinity in it is not finite"),
    "offset a flag": (put("offset", True), "offset must be a number"),
    "another way to combine": (put("parameters", "combine", "zzz"), "combine must be 'potential' or 'rank'"),
    "rate 7": (put("parameters", "false_alarm_rate", 7), "false_alarm_rate must lie in"),
    "rate 7 of the rule": (put("threshold_rule", "rate", 7), "rate of the threshold is 7"),
    "another scaling": (put("parameters", "scaling", "zzz"), "scaling must be"),
    "a flag that is none": (put("parameters", "keep_examples", 3), "keep_examples must be"),
    "a seed that is none": (put("parameters", "random_state", "x"), "random_state must be a whole number"),
    "callbacks": (lambda d: d["parameters"].update(callbacks=[1]), "never stored: callbacks"),
    "n_iter a word": (put("n_iter", "x"), "n_iter must be a whole number"),
    "no features": (put("n_features_in", 0), "n_features_in must be a whole number from 1 on"),
    "other features": (put("n_features_in", 4), "5 names in feature_names_in, but n_features_in is 4"),
    "calibrated on nothing": (put("calibrated_on", "zzz"), "calibrated_on is 'zzz'"),
    "range turned round": (put(*COLUMNS, 0, "low", 1e6), "least value above its greatest"),
    "resolution 0": (put(*COLUMNS, 3, "resolution", 0), "positive resolution"),
    "health a word": (put("health", "zzz"), "health must be"),
    "weights elsewhere": (put("weights_digest", "../../secret"), "does not match"),
}
TENSORS = {
    "NaN weights": ("last/potential/body.1.bias", lambda t: t * float("nan"), "body.1.bias has values .* not finite"),
    "infinite scores": ("calibration/scores", lambda t: t + float("inf"), "calibration/scores has values"),
    "negative costs": ("surprise_costs", lambda t: -t, "surprise_costs must not be negative"),
    "bounds of another shape": ("bounds", lambda t: t[:, :2], "bounds is .* it must be"),
    "bounds turned round": ("bounds", lambda t: t.flip(0), "bounds must be finite"),
    "bounds NaN": ("bounds", lambda t: t * float("nan"), "bounds must be finite"),
    "open bounds": ("bounds", lambda t: t / 0, "bounds must be finite"),
    "negative variance": ("last/generator/network.1.running_var", lambda t: -t, "negative variances"),
    "directions of length 0": (
        "last/potential/body.1.parametrizations.weight.original1",
        torch.zeros_like,
        "its potential is not finite",
    ),
    "huge gains": (
        "last/potential/body.3.parametrizations.weight.original0",
        lambda t: t.sign() * 3e38,
        "its potential is not finite",
    ),
    "scores of another type": ("calibration/member-1", lambda t: t.float(), "member-1 is torch.float32"),
    "fewer rows than scores": ("calibration/rows", lambda t: t[1:].clone(), "calibration/rows is"),
    "no scores": ("calibration/scores", lambda t: t[:0], "calibration/scores is"),
    "a tensor too many": ("surplus", None, "belong to nothing: surplus"),
    "averages too many": ("averaged/memory/x", None, "belong to nothing: averaged/memory/x"),
    "half an average": ("averaged/potential/body.1.bias", None, "averaged/potential/.* is missing|it must be"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_the_description_cannot_say(copied, name):
    change, message = HOSTILE[name]
    forged(copied, change)
    with pytest.raises(CheckpointError, match=message):
        NRFDetector.load(copied)


@pytest.mark.parametrize("name", TENSORS)
def test_what_the_tensors_cannot_be(copied, name):
    key, edit, message = TENSORS[name]

    def change(tensors):
        changed = torch.zeros(3) if edit is None else edit(tensors[key]).contiguous()
        return tensors | {key: changed}

    forged(copied, tensors=change)
    with pytest.raises(CheckpointError, match=message):
        NRFDetector.load(copied)


def test_a_description_or_a_header_that_is_too_large_is_not_read(copied):
    def long_header(tensors):
        return (2**40).to_bytes(8, "little") + b"{" + b" " * 100

    forged(copied, tensors=long_header)
    with pytest.raises(CheckpointError, match="no safetensors file, or not all of it"):
        NRFDetector.load(copied)
    with (copied / "detector.json").open("ab") as file:
        file.truncate(65 * 2**20)
    with pytest.raises(CheckpointError, match="more than the 67108864 that a description may have"):
        NRFDetector.load(copied)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("parameters", {"n_components": 3, "random_state": 0}, "feature step has arrays|makes 4 columns"),
        ("shape", [1, 7, 6], "feature step has arrays"),
        ("type", "ClipBenignTail", "unexpected keyword"),
    ],
)
def test_a_feature_step_that_does_not_fit(world, tmp_path, key, value, message):
    folder = shutil.copytree(world[0] / "images", tmp_path / "images")
    forged(folder, put("features", key, value))
    with pytest.raises(CheckpointError, match=message):
        NRFDetector.load(folder)


# --- many damaged files, in a process that may not use much memory

VALUES = [
    None,
    True,
    False,
    -1,
    0,
    1,
    7,
    10**9,
    10**30,
    1e308,
    -1e308,
    1e-308,
    float("nan"),
    "",
    "zzz",
    [],
    {},
    [1] * 5,
]


def _places(value, path=()):
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        yield (*path, key)
        yield from _places(part, (*path, key))


def _spoil_json(description, rng):
    kept = ("format", "version", "versions", "digest", "weights_digest")
    path = rng.choice([p for p in _places(description) if p[0] not in kept])
    place = description
    for key in path[:-1]:
        place = place[key]
    last, how = path[-1], rng.random()
    if how < 0.15:
        del place[last]
    elif how < 0.3 and isinstance(place, list):
        place.append(copy.deepcopy(place[last]))
    elif how < 0.5 and isinstance(place[last], int | float):
        place[last] = place[last] * rng.choice([-1, 10, 10**6, 0.5])
    else:
        place[last] = rng.choice(VALUES)


def _spoil_tensors(tensors, rng):
    name = rng.choice(sorted(tensors))
    value = tensors[name].clone()
    how = rng.randrange(8)
    if how == 0:
        del tensors[name]
    elif how == 1:
        tensors[name] = value[..., None].contiguous()
    elif how == 2:
        tensors[name] = value.to(rng.choice([torch.float16, torch.float64, torch.int32, torch.bool, torch.bfloat16]))
    elif how == 3:
        tensors[name + "x"] = tensors.pop(name)
    elif how == 4:
        content = save_tensors(tensors)
        return content[: rng.randrange(len(content))]
    elif how == 5:
        content = bytearray(save_tensors(tensors))
        content[rng.randrange(min(2000, len(content)))] ^= 1 << rng.randrange(8)
        return bytes(content)
    elif value.is_floating_point() and value.numel():
        value.view(-1)[rng.randrange(value.numel())] = rng.choice([float("nan"), float("inf"), 3e38, -3e38, 0.0, -1.0])
        tensors[name] = value
    return tensors


def damage_many(home, scratch, n, headroom):
    """Load many damaged copies of saved detectors; how many loaded, and how many were refused, by class."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + headroom, used + headroom))
    rows = {"rows": table(20, 5), "images": np.random.default_rng(1).random((4, 1, 6, 6)), "plain": table(20, 5)}
    found = {"loaded": 0, "CheckpointError": 0, "InputError": 0, "SchemaError": 0}
    for seed in range(n):
        rng = random.Random(seed)
        name = ("rows", "images", "plain")[seed % 3]
        folder = shutil.copytree(Path(home) / name, Path(scratch) / str(seed))
        if rng.random() < 0.6:
            forged(folder, lambda description, rng=rng: _spoil_json(description, rng))
        else:
            forged(folder, tensors=lambda tensors, rng=rng: _spoil_tensors(tensors, rng))
        begun = time.process_time()
        try:
            detector = NRFDetector.load(folder)
            scores, p_values = detector.score_samples(rows[name]), detector.p_values(rows[name])
            assert np.isfinite(scores).all(), seed
            assert ((p_values > 0) & (p_values <= 1)).all(), seed
            found["loaded"] += 1
        except (CheckpointError, InputError) as error:
            found[type(error).__name__] += 1
        assert time.process_time() - begun < 5, seed
        shutil.rmtree(folder)
    return found


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_two_hundred_damaged_files_are_refused_or_harmless(world, tmp_path):
    code = (
        "import json, sys, torch; torch.set_num_threads(1); sys.path.insert(0, sys.argv[1]); "
        "from test_storage import damage_many; "
        "print(json.dumps(damage_many(sys.argv[2], sys.argv[3], 200, 300 * 2**20)))"
    )
    command = [sys.executable, "-c", code, str(Path(__file__).parent), str(world[0]), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert sum(found.values()) == 200
    assert found["CheckpointError"] >= 100, found
    assert found["loaded"] >= 5, found
