"""What `import nrf` offers: everything public, loaded on first use, and former names that still work and say so."""

from __future__ import annotations

import importlib
import inspect
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import nrf
from nrf.samplers import BAOAB, SGHMC, SGLD, run


def _fresh(code: str) -> str:
    """What a new interpreter prints."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_import_is_quick_and_submodules_come_on_first_use():
    """Counted in modules, not in seconds: nothing heavy is loaded before it is asked for."""
    code = """
import sys, nrf
heavy = {"torch", "numpy", "sklearn", "scipy", "matplotlib", "tyro"}
early = sorted(heavy & set(sys.modules))
shown = dir(nrf)
still = sorted(heavy & set(sys.modules))
print(early, still, nrf.samplers.SGLD.__name__, nrf.runs.spec.DataConfig.__name__, "torch" in sys.modules)
"""
    assert _fresh(code) == "[] [] SGLD DataConfig True"


def test_everything_public_is_shown_and_there():
    assert set(dir(nrf)) == set(nrf.__all__)
    assert {"NRFDetector", "TrainedModel", "samplers", "targets", "detect"} <= set(dir(nrf))
    for name in dir(nrf):
        found = getattr(nrf, name)
        for part in getattr(found, "__all__", ()) if type(found) is type(nrf) else ():
            assert hasattr(found, part), f"nrf.{name}.{part}"


def test_public_names_are_documented():
    for name in set(dir(nrf)) - {"__version__", "PRESETS"}:
        assert (getattr(nrf, name).__doc__ or "").strip(), name
    for package in (nrf.samplers, nrf.learners, nrf.networks, nrf.data, nrf.metrics, nrf.training, nrf.detect):
        for name in package.__all__:
            found = getattr(package, name)
            if inspect.isclass(found) or inspect.isfunction(found):
                text = found.__doc__ or ""
                assert text.strip(), f"{package.__name__}.{name}"
                assert not text.startswith(f"{name}("), f"{package.__name__}.{name} has a dataclass's own line only"


def test_what_does_not_exist_is_an_attribute_error():
    for module, name in ((nrf, "nonsense"), (nrf.runs, "nonsense"), (nrf.runs.trained, "nonsense")):
        with pytest.raises(AttributeError, match=f"module '{module.__name__}' has no attribute 'nonsense'"):
            getattr(module, name)


FORMER = {
    "nrf.Trained": "nrf.runs.trained.TrainedModel",
    "nrf.runs.trained.Trained": "nrf.runs.trained.TrainedModel",
    "nrf.experiments.presets.find_preset": "nrf.runs.presets.find_preset",
    "nrf.experiments.presets.PRESETS": "nrf.runs.presets.PRESETS",
    "nrf.experiments.run.train": "nrf.runs.train.train",
    "nrf.experiments.trained.Trained": "nrf.runs.trained.TrainedModel",
    "nrf.experiments.base.Preset": "nrf.runs.spec.Preset",
    "nrf.experiments.base.DataConfig": "nrf.runs.spec.DataConfig",
    "nrf.detect.files.read_training": "nrf.detect.tables.files.read_training",
    "nrf.detect.files.Dialect": "nrf.detect.tables.dialect.Dialect",
    "nrf.detect.given.novelties": "nrf.detect.tables.given.novelties",
    "nrf.detect.stream.score_stream": "nrf.detect.tables.stream.score_stream",
    "nrf.detect.selection.made_anomalies": "nrf.detect.selection.synthetic_anomalies",
    "nrf.detect.selection.made_images": "nrf.detect.selection.synthetic_images",
}


def _found(path: str):
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("former", FORMER)
def test_names_that_the_pages_of_0_1_showed_still_work_and_say_what_to_use(former):
    with pytest.warns(DeprecationWarning, match=r"is deprecated since 0\.2 and goes in 0\.4; use nrf\.") as seen:
        assert _found(former) is _found(FORMER[former])
    assert seen[0].filename == __file__, "the warning points at the user's line"
    with pytest.raises(AttributeError, match="nonsense"):
        _found(former.rpartition(".")[0] + ".nonsense")


def _short(**changes):
    preset = nrf.find_preset("digits")
    return replace(preset, train=replace(preset.train, iterations=2, watch_share=0.0), **changes)


def test_paths_may_be_text(tmp_path):
    folder = str(tmp_path / "run")
    nrf.train("digits", _short(), folder, quiet=True)
    model = nrf.TrainedModel.load(folder)
    rows = nrf.data.resolve("digits").test[:3]
    np.savetxt(tmp_path / "rows.csv", rows, delimiter=",")
    assert nrf.data.read_array(str(tmp_path / "rows.csv"), (64,)).shape == (3, 64)
    assert nrf.training.RunFolder(folder).path == Path(folder)
    with pytest.warns(DeprecationWarning, match=r"TrainedModel\.score_samples"):
        former = model.score(rows)
    np.testing.assert_array_equal(former, model.score_samples(rows))
    with pytest.raises(nrf.DataError, match="does not hold mnist"):
        nrf.data.resolve("mnist", str(tmp_path))


def test_a_chains_momentum_is_its_state_now():
    start = (torch.ones(2, 1),)
    for sampler, name in ((SGHMC(), "momentum"), (BAOAB(), "velocity"), (SGLD(), None)):
        chain = run(sampler, start, lambda z, l: (-z[0],), 2, torch.Generator().manual_seed(0))
        with pytest.warns(DeprecationWarning, match=r"Chain\.momentum.*use Chain\.state"):
            former = chain.momentum
        assert former is (None if name is None else getattr(chain.state, name))


def test_a_run_stored_with_the_hmc_of_0_1_is_what_it_was(tmp_path):
    """In 0.1 `HMC` was second-order Langevin dynamics without accept–reject; friction tells nothing else."""
    sampler = nrf.samplers.SecondOrderLangevin(step_size=0.01, friction=0.3, box=(0.0, 1.0))
    preset, folder = _short(sampler=sampler), tmp_path / "run"
    nrf.train("digits", preset, folder, quiet=True)
    weights = nrf.TrainedModel.load(folder).potential.state_dict()
    description = json.loads((folder / "config.json").read_text())
    assert description["config"]["sampler"]["type"] == "SecondOrderLangevin"
    description["config"]["sampler"]["type"] = "HMC"  # as 0.1.0 wrote it
    (folder / "config.json").write_text(json.dumps(description))
    longer = replace(preset, train=replace(preset.train, iterations=2))
    assert nrf.train("digits", longer, folder, resume=True, quiet=True).step == 2
    assert nrf.runs.train.stored_preset(folder)[1].sampler == sampler
    again = nrf.TrainedModel.load(folder)
    assert again.preset.sampler == sampler
    assert all(torch.equal(value, weights[key]) for key, value in again.potential.state_dict().items())


def test_the_hmc_of_now_is_stored_under_a_name_that_0_1_does_not_know():
    from nrf.config import from_json, to_json
    from nrf.runs.spec import SamplerChoice

    now = nrf.samplers.HMC(step_size=0.1, n_leapfrog=3)
    assert to_json(now)["type"] == "MetropolisHMC"
    assert from_json(SamplerChoice, to_json(now)) == now
    stored = {**to_json(nrf.samplers.SecondOrderLangevin(friction=0.4)), "type": "HMC"}
    assert from_json(SamplerChoice, stored) == nrf.samplers.SecondOrderLangevin(friction=0.4)
