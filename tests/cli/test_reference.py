"""The command line on fields around a reference: chosen for any preset, resumed, scored and checked."""

from __future__ import annotations

import numpy as np
import pytest

from nrf.cli import main
from nrf.fields import KernelReference, MixtureReference, Referenced
from nrf.runs.presets import find_preset
from nrf.runs.train import stored_preset
from nrf.runs.trained import TrainedModel

SHORT = ["--train.iterations", "4", "--train.batch-size", "64", "--train.log-every", "2", "--quiet"]


@pytest.mark.parametrize("preset", ["gmm-short", "gmm-reference"])
def test_a_reference_for_any_preset(preset, tmp_path, capsys):
    run, rows = tmp_path / "run", tmp_path / "x.npy"
    np.save(rows, np.random.default_rng(0).normal(size=(9, 2)).astype(np.float32))
    options = ["reference:kernel", "--reference.n-anchors", "50", "--bound", "3", "--train.watch-share", "0.2"]
    steps = ["--sampler.step-size", "1e-4", "--potential.widths", "8"]
    assert main(["train", preset, "--out", str(run), *options, *steps, *SHORT]) == 0
    assert "by held-out rows" in capsys.readouterr().out
    _, stored = stored_preset(run)
    base = find_preset(preset).potential
    network = base.network if isinstance(base, Referenced) else base
    assert stored.potential == Referenced(
        type(network)(**{**vars(network), "widths": (8,)}), KernelReference(n_anchors=50), bound=3.0
    )
    assert main(["train", preset, "--out", str(run), "--resume", "--quiet"]) == 0
    capsys.readouterr()
    assert main(["score", str(run), str(rows), "--out", str(tmp_path / "s.npy"), "--log-density"]) == 0
    assert "nats" in capsys.readouterr().out
    np.testing.assert_array_equal(np.load(tmp_path / "s.npy"), TrainedModel.load(run).log_density(np.load(rows)))
    assert main(["density", str(run), "--chains", "20", "--between", "1", "--moves", "1"]) == 0
    said = capsys.readouterr().out
    assert "integral by quadrature: " in said
    way = "from the reference" if preset == "gmm-short" else "annealed importance sampling, 20 chains"
    assert f"{way}: " in said


def test_the_preset_around_a_mixture(tmp_path, capsys):
    preset = find_preset("gmm-reference")
    assert isinstance(preset.potential.reference, MixtureReference)
    assert main(["train", "gmm-reference", "--out", str(tmp_path), "--train.watch-share", "0.0", *SHORT]) == 0
    assert "strength 1 (no rows were held out" in capsys.readouterr().out
    assert stored_preset(tmp_path)[1].potential == preset.potential


def test_a_bound_needs_a_reference(tmp_path, capsys):
    assert main(["train", "gmm-short", "--out", str(tmp_path / "run"), "--bound", "3", *SHORT]) == 2
    assert "add one, such as reference:kernel" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
