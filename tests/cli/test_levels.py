"""The command line on fields with noise levels: log-densities, their check, samples with and without a generator."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from nrf.cli import main
from nrf.runs.trained import TrainedModel

SHORT = ["--train.iterations", "10", "--train.batch-size", "64", "--quiet"]


@pytest.fixture(scope="module")
def levels(tmp_path_factory):
    folder = tmp_path_factory.mktemp("levels") / "run"
    pictures = ["--train.sample-every", "10", "--train.log-every", "10"]
    assert main(["train", "gmm-levels", "--out", str(folder), *SHORT, *pictures]) == 0
    return folder


@pytest.fixture
def rows(tmp_path):
    x = np.random.default_rng(0).normal(size=(9, 2)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    return tmp_path / "x.npy"


def test_log_density_in_every_format(levels, rows, tmp_path, capsys):
    want = TrainedModel.load(levels, averaged=True).log_density(np.load(rows))
    for name in ("p.csv", "p.npy", "p.npz"):
        out = str(tmp_path / name)
        assert main(["score", str(levels), str(rows), "--log-density", "--averaged", "--out", out]) == 0
        assert "nats, mean" in capsys.readouterr().out
    np.testing.assert_array_equal(np.load(tmp_path / "p.npy"), want)
    np.testing.assert_array_equal(np.load(tmp_path / "p.npz")["log_density"], want)
    assert (tmp_path / "p.csv").read_text().startswith("row,log_density\n1,")
    np.testing.assert_allclose(np.loadtxt(tmp_path / "p.csv", delimiter=",", skiprows=1)[:, 1], want, rtol=1e-6)


def test_the_density_is_checked(levels, capsys):
    assert main(["density", str(levels), "--chains", "50", "--between", "2", "--moves", "1"]) == 0
    out = capsys.readouterr().out
    assert "integral by quadrature: " in out
    assert "integral by annealed importance sampling, 50 chains: " in out
    found = TrainedModel.load(levels).normaliser(n_chains=50, n_between=2, n_moves=1)
    assert f"{found.annealed.log_value:+.4f} ± {found.annealed.standard_error:.4f} nats" in out
    assert ("too large to be trusted" in out) == (found.annealed.standard_error > 0.5)


def test_samples_without_a_generator_have_no_codes(levels, tmp_path, capsys):
    out = tmp_path / "s.npz"
    assert main(["sample", str(levels), "--n", "12", "--revise", "--steps", "1", "--out", str(out)]) == 0
    assert "12 annealed samples" in capsys.readouterr().out
    with np.load(out) as samples:
        assert samples["x"].shape == (12, 2)
        assert samples["h"].shape == (12, 0)


def test_pictures_while_training_are_of_annealed_samples(levels):
    assert Image.open(levels / "samples" / "step-000000010.png").size[0] > 100


def test_rows_are_revised_from_a_level(levels, rows, tmp_path):
    for level in ("0", "-1"):
        out = str(tmp_path / f"{level}.npz")
        assert main(["revise", str(levels), str(rows), "--steps", "2", "--start-level", level, "--out", out]) == 0
    kept, lost = (np.abs(np.load(tmp_path / f"{level}.npz")["x"] - np.load(rows)).mean() for level in ("0", "-1"))
    assert kept < 0.2 < lost


def test_a_generator_on_top_is_sampled_alone_and_revised(tmp_path, capsys):
    run, out = str(tmp_path / "run"), tmp_path / "s.npz"
    assert main(["train", "gmm-levels-generator", "--out", run, *SHORT, "--revision.n-steps", "1"]) == 0
    for flags, word in ([], "generated"), (["--revise", "--steps", "1"], "revised"):
        assert main(["sample", run, "--n", "12", *flags, "--out", str(out)]) == 0
        assert f"12 {word} samples" in capsys.readouterr().out
        assert np.load(out)["h"].shape == (12, 2)


def test_what_cannot_be_is_one_line(levels, rows, tmp_path, capsys):
    plain = str(tmp_path / "plain")
    assert main(["train", "gmm-short", "--out", plain, "--train.iterations", "2", "--quiet"]) == 0
    cases = {
        "up to a constant only": ["score", plain, str(rows), "--log-density", "--out", str(tmp_path / "u.csv")],
        "as in the presets gmm-levels": ["density", plain],
        "n_chains 2": ["density", str(levels), "--chains", "1"],
        "add --revise (revise=True) to sample down its noise levels": [
            *("sample", str(levels), "--out", str(tmp_path / "s.npz"))
        ],
        "has no noise levels": [
            *("revise", plain, str(rows), "--start-level", "1", "--out", str(tmp_path / "r.npz")),
        ],
        "leave train.sample_every out": [
            *("train", "gmm-short", "--out", str(tmp_path / "cd"), "--train.sample-every", "1", "learner:cd"),
        ],
    }
    for message, arguments in cases.items():
        capsys.readouterr()
        assert main(arguments) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
