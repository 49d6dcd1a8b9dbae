"""The command line: what works, and one clear line with exit code 2 for what cannot."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from nrf._version import __version__
from nrf.cli import main
from nrf.reproduce.runner.record import Record
from nrf.samplers import SAMPLERS

SHORT = ["--train.iterations", "20", "--quiet"]


@pytest.fixture(scope="module")
def gmm(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli") / "gmm"
    assert main(["train", "gmm-short", "--out", str(folder), *SHORT, "--train.ema-decay", "0.9"]) == 0
    return folder


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli") / "digits"
    assert main(["train", "digits", "--out", str(folder), *SHORT, "--data.normal", "3"]) == 0
    return folder


@pytest.fixture
def fails(capsys):
    """Run a command that must fail: exit code 2, one line, no traceback; returns the line."""

    def run(*arguments) -> str:
        capsys.readouterr()
        assert main([str(a) for a in arguments]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1, error
        assert error.startswith("nrf: ")
        assert "Traceback" not in error
        return error

    return run


def test_the_whole_way(gmm, tmp_path):
    s, u, i = tmp_path / "s.npz", tmp_path / "u.csv", tmp_path / "i.png"
    assert main(["sample", str(gmm), "--n", "130", "--revise", "--out", str(s)]) == 0
    assert main(["score", str(gmm), str(s), "--out", str(u)]) == 0
    assert main(["interpolate", str(gmm), "--out", str(i)]) == 0
    with np.load(s) as samples:
        assert samples["x"].shape == (130, 2)
        assert samples["h"].shape == (130, 2)
    lines = u.read_text().splitlines()
    assert lines[0] == "row,potential"
    assert len(lines) == 131
    assert Image.open(i).size[0] > 100


def test_scores_are_the_potential_in_every_format(gmm, tmp_path):
    from nrf.runs.trained import TrainedModel

    x = np.random.default_rng(0).normal(size=(9, 2)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    want = TrainedModel.load(gmm).score_samples(x)
    for name in ("u.csv", "u.npy", "u.npz"):
        assert main(["score", str(gmm), str(tmp_path / "x.npy"), "--out", str(tmp_path / name)]) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "u.npy"), want)
    np.testing.assert_array_equal(np.load(tmp_path / "u.npz")["u"], want)
    csv = np.loadtxt(tmp_path / "u.csv", delimiter=",", skiprows=1)
    np.testing.assert_allclose(csv[:, 1], want, rtol=1e-6)
    np.testing.assert_array_equal(csv[:, 0], np.arange(1, 10))


def test_the_first_samples_do_not_depend_on_how_many(gmm, tmp_path):
    for n in (1, 250):
        assert main(["sample", str(gmm), "--n", str(n), "--revise", "--out", str(tmp_path / f"{n}.npz")]) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "1.npz")["x"], np.load(tmp_path / "250.npz")["x"][:1])


def test_revision_raises_the_potential(gmm, tmp_path, capsys):
    x = np.random.default_rng(0).normal(size=(50, 2)) * 3
    np.savetxt(tmp_path / "x.csv", x, delimiter=",", header="a,b", comments="")
    out = tmp_path / "r.npz"
    assert (
        main(["revise", str(gmm), str(tmp_path / "x.csv"), "--steps", "30", "--step-size", "0.01", "--out", str(out)])
        == 0
    )
    with np.load(out) as revised:
        np.testing.assert_allclose(revised["before"], x, rtol=1e-5)
        assert (revised["u"] >= revised["u_before"]).mean() > 0.9
    assert main(["revise", str(gmm), str(tmp_path / "x.csv"), "--steps", "0", "--out", str(out)]) == 0
    np.testing.assert_allclose(np.load(out)["x"], x, rtol=1e-5)


def test_revision_of_given_rows_works_for_every_sampler(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((3, 2), dtype=np.float32))
    for name in SAMPLERS:
        out = str(tmp_path / name)
        target = ["--revision.target", "conditional"] if name == "coopnet" else []
        assert main(["train", "gmm-short", "--out", out, *SHORT, *target, f"sampler:{name}"]) == 0
        assert main(["revise", out, str(tmp_path / "x.npy"), "--out", str(tmp_path / "r.npz")]) == 0


def test_pictures_of_images(digits, tmp_path):
    for arguments in (
        ["sample", str(digits), "--n", "9"],
        ["interpolate", str(digits), "--pairs", "2", "--steps", "3"],
    ):
        out = tmp_path / f"{arguments[0]}.png"
        assert main([*arguments, "--out", str(out)]) == 0
        assert len(set(Image.open(out).convert("L").tobytes())) > 10


def test_averaged_weights_are_used(gmm, tmp_path):
    np.save(tmp_path / "x.npy", np.ones((3, 2), dtype=np.float32))
    for flags, name in ([], "last"), (["--averaged"], "averaged"):
        assert main(["score", str(gmm), str(tmp_path / "x.npy"), *flags, "--out", str(tmp_path / f"{name}.npy")]) == 0
    assert not np.array_equal(np.load(tmp_path / "last.npy"), np.load(tmp_path / "averaged.npy"))


def test_replicas_are_trained_together_and_used_one_by_one(tmp_path, capsys):
    out = str(tmp_path / "run")
    assert main(["train", "gmm-short", "--out", out, *SHORT, "--replicas", "2"]) == 0
    np.save(tmp_path / "x.npy", np.ones((3, 2), dtype=np.float32))
    for i in ("0", "1"):
        score = ["score", out, str(tmp_path / "x.npy"), "--replica", i, "--out", str(tmp_path / f"{i}.npy")]
        assert main(score) == 0
    assert not np.array_equal(np.load(tmp_path / "0.npy"), np.load(tmp_path / "1.npy"))
    assert main(["sample", out, "--replica", "2", "--out", str(tmp_path / "s.npz")]) == 2
    assert "--replica goes from 0 to 1" in capsys.readouterr().err


def test_resume_takes_the_runs_own_settings(tmp_path, capsys):
    out = str(tmp_path / "run")
    assert (
        main(["train", "gmm-short", "--out", out, *SHORT, "--sampler.step-size", "0.02", "--train.lr-final", "1"]) == 0
    )
    assert main(["train", "gmm-short", "--out", out, "--resume", "--train.iterations", "25", "--quiet"]) == 0
    assert "trained 25 steps" in capsys.readouterr().out
    assert '"step_size": 0.02' in (tmp_path / "run" / "config.json").read_text()


def test_the_sampler_can_be_exchanged(tmp_path):
    out = str(tmp_path / "run")
    assert main(["train", "gmm-short", "--out", out, *SHORT, "sampler:sghmc", "--sampler.friction", "0.7"]) == 0
    text = (tmp_path / "run" / "config.json").read_text()
    assert '"type": "SGHMC"' in text
    assert '"friction": 0.7' in text


def test_the_learner_can_be_exchanged(tmp_path):
    out = str(tmp_path / "run")
    arguments = ["learner:wgan-gp", "--learner.n-critic", "2", "sampler:sgld", "--sampler.step-size", "0.1"]
    assert main(["train", "gmm-short", "--out", out, *SHORT, *arguments]) == 0
    text = (tmp_path / "run" / "config.json").read_text()
    assert '"type": "WGANGPConfig"' in text
    assert '"n_critic": 2' in text
    assert '"type": "SGLD"' in text
    assert main(["sample", out, "--n", "5", "--out", str(tmp_path / "s.npz")]) == 0


def test_demo_quick(tmp_path, capsys):
    assert main(["demo", "--quick", "--quiet", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    for word in ("generation", "revision", "noise levels", "integral", "peaks", "oracle", "untrained", "1-NN"):
        assert word in printed
    rows = {(row.method, row.metric, row.case) for row in Record.read(tmp_path / "demo.json").rows}
    assert {(name, "covered modes", None) for name in ("generation", "revision", "noise levels")} <= rows
    assert {("noise levels", name, None) for name in ("log-likelihood", "integral", "slope", "peaks")} <= rows
    assert {("last", "AUROC", "digit 1"), ("1-NN", "mean AUROC", None)} <= rows
    page = (tmp_path / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 5
    assert "http" not in page.replace("http-equiv", "")


def test_version_and_help(capsys):
    assert main(["--version"]) == 0
    assert __version__ in capsys.readouterr().out
    assert main(["--help"]) == 0
    assert "interpolate" in capsys.readouterr().out
    assert main(["train", "--help"]) == 0
    assert "gmm-paper" in capsys.readouterr().out
    assert main([]) == 2


@pytest.mark.parametrize(
    "command", ["sample", "revise", "score", "density", "interpolate", "demo", "data", "train gmm-short"]
)
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*command.split(), "--help"])
    assert stop.value.code == 0
    assert "usage: nrf" in capsys.readouterr().out


def test_data_commands(capsys):
    assert main(["data", "list"]) == 0
    assert "kddcup99" in capsys.readouterr().out
    assert main(["data", "verify", "gmm"]) == 0
    assert "checks passed" in capsys.readouterr().out


# ------------------------------------------------------------------------------------------------------------ mistakes


def test_unknown_names(fails, tmp_path):
    assert "did you mean gmm-short" in fails("train", "gmm-shrot", "--out", tmp_path / "x")
    assert "did you mean sample?" in fails("smaple")
    assert "`nrf --help` lists them" in fails("x")
    assert "did you mean mnist" in fails("data", "verify", "mnits")
    assert "which dataset?" in fails("data", "fetch")


def test_missing_files(fails, gmm, tmp_path):
    assert "nothing-here is not a run folder" in fails("sample", tmp_path / "nothing-here", "--out", tmp_path / "s.npz")
    assert "x.npz does not exist" in fails("score", gmm, tmp_path / "x.npz", "--out", tmp_path / "u.csv")


def test_missing_dataset_is_explained(fails, tmp_path, monkeypatch):
    monkeypatch.setenv("NRF_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("NRF_DATA", raising=False)
    assert "kddcup99" in fails("data", "verify", "kddcup99")


def test_wrong_columns_and_nan(fails, gmm, tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("1,2,3\n4,5,6\n")
    assert "3 columns, the model expects 2" in fails("score", gmm, path, "--out", tmp_path / "u.csv")
    path.write_text("1,2\n4,nan\n")
    message = fails("score", gmm, path, "--out", tmp_path / "u.csv")
    assert "row 2" in message
    assert "column 2" in message


def test_wrong_outputs_and_options(fails, gmm, tmp_path):
    assert "must end in .npz or .png" in fails("sample", gmm, "--out", tmp_path / "s.txt")
    assert "add --revise" in fails("sample", gmm, "--steps", "3", "--out", tmp_path / "s.npz")
    assert "at least 1" in fails("sample", gmm, "--n", "0", "--out", tmp_path / "s.npz")
    assert "2 steps" in fails("interpolate", gmm, "--steps", "1", "--out", tmp_path / "i.png")
    assert "temperature" in fails("sample", gmm, "--revise", "--temperature=-1", "--out", tmp_path / "s.npz")


def test_averaged_weights_that_were_not_kept(fails, tmp_path):
    assert main(["train", "gmm-short", "--out", str(tmp_path / "run"), *SHORT, "--train.ema-decay", "None"]) == 0
    message = fails("sample", tmp_path / "run", "--averaged", "--out", tmp_path / "s.npz")
    assert "kept no averaged weights; train with --train.ema-decay" in message


def test_run_folders_are_not_overwritten(fails, gmm):
    assert "already holds a run; add --resume" in fails("train", "gmm-short", "--out", gmm)
    assert "holds a run of preset 'gmm-short'" in fails("train", "digits", "--out", gmm, "--resume")


def test_settings_that_make_no_sense(fails, tmp_path):
    out = tmp_path / "x"
    assert "batch_size must be at least 1" in fails("train", "gmm-short", "--out", out, "--train.batch-size", "0")
    joint = ["--revision.target", "joint", "--generator.sigma", "0"]
    assert "sigma > 0" in fails("train", "gmm-short", "--out", out, *joint)
    where = ["--device", "nonsense"]
    assert "device 'nonsense' cannot be used" in fails("train", "gmm-short", "--out", tmp_path / "y", *where)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("gmm-short --revision.target joint --generator.sigma 0", "sigma > 0"),
        ("gmm-short sampler:coopnet", "set --revision.target conditional"),
        ("gmm-paper sampler:second-order-langevin", "is defined by exact gradients and the joint target"),
        ("gmm-paper sampler:mala", "MALA accepts or rejects by the log-density and the joint target"),
        ("gmm-paper sampler:hmc", "use sampler:sgld or sampler:sghmc"),
        ("gmm-short sampler:mala --sampler.box 0 1 --sampler.box-mode clip", "set box_mode to reflect"),
        ("gmm-short --revision.n-inner 0", "n_inner must be at least 1"),
        ("gmm-short --train.batch-size 1", "batch norm needs batches of at least 2 rows"),
        ("gmm-short --learner.betas 1.5 0.9", "betas must lie in"),
        ("gmm-short --generator.latent-dim 0", "latent_dim must be at least 1"),
        ("gmm-short --sampler.temperature nan", "temperature must be finite"),
        ("gmm-short --generator.sigma inf", "sigma must be finite"),
        ("gmm-short --device meta", "device 'meta' cannot be used"),
        ("gmm-short --train.epochs 3", "None for the other"),
        ("gmm-short learner:pcd --learner.n-chains 7", "fewer than a batch has rows"),
    ],
)
def test_a_refused_setting_leaves_no_run_behind(fails, tmp_path, arguments, message):
    preset, *rest = arguments.split()
    for _ in range(2):
        assert message in fails("train", preset, "--out", tmp_path / "x", *rest)
    assert not (tmp_path / "x" / "config.json").exists()


@pytest.mark.parametrize("sampler", ["mala", "hmc"])
def test_an_adjusted_sampler_trains_and_samples_and_tells_its_acceptance(sampler, tmp_path, capsys):
    run = tmp_path / "run"
    given = [f"sampler:{sampler}", "--sampler.step-size", "0.02"]
    assert main(["train", "gmm-short", "--out", str(run), *SHORT, *given]) == 0
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert all(0 < row["acceptance"] <= 1 for row in rows)
    assert main(["sample", str(run), "--n", "50", "--revise", "--out", str(tmp_path / "s.npz")]) == 0
    assert "50 revised samples, acceptance " in capsys.readouterr().out


def test_another_sampler_revises_what_a_run_has_learned(gmm, tmp_path, capsys, fails):
    out, found = tmp_path / "s.npz", {}
    for name, given in {"own": [], "mala": ["sampler:mala"], "cold": ["sampler:mala", "--temperature", "0"]}.items():
        assert main(["sample", str(gmm), "--n", "40", "--revise", "--out", str(out), *given]) == 0
        with np.load(out) as arrays:
            found[name] = arrays["x"]
    assert not np.array_equal(found["own"], found["mala"])
    assert not np.array_equal(found["cold"], found["mala"])
    again = ["--sampler.step-size", "0.001"]
    assert main(["revise", str(gmm), str(out), "--out", str(tmp_path / "t.npz"), "sampler:mala", *again]) == 0
    assert "rows revised, acceptance " in capsys.readouterr().out
    assert "add --revise" in fails("sample", gmm, "--out", out, "sampler:mala")
    assert "set --revision.target conditional" in fails("sample", gmm, "--out", out, "--revise", "sampler:coopnet")


def test_a_bare_preset_says_what_is_missing(fails):
    assert "--out" in fails("train", "gmm-short")


def test_a_run_without_a_generator_cannot_be_sampled(fails, tmp_path):
    assert main(["train", "gmm-short", "--out", str(tmp_path / "cd"), *SHORT, "learner:cd"]) == 0
    for command in (["sample", "--out", "s.npz"], ["interpolate", "--out", "i.png"]):
        assert "CD trained no generator" in fails(command[0], tmp_path / "cd", *command[1:])


def test_samples_that_are_not_finite_are_not_written(gmm, tmp_path, capsys):
    out = tmp_path / "s.npz"
    assert main(["sample", str(gmm), "--revise", "--step-size", "1e38", "--steps", "50", "--out", str(out)]) == 1
    assert "non-finite" in capsys.readouterr().err
    assert not out.exists()


def test_interpolation_does_not_hang_on_its_neighbours(tmp_path):
    from nrf.runs.trained import TrainedModel

    assert main(["train", "gmm-released", "--out", str(tmp_path / "run"), *SHORT]) == 0
    trained = TrainedModel.load(tmp_path / "run")
    few, many = (trained.interpolate(3, steps) for steps in (2, 5))
    np.testing.assert_allclose(few[:, -1], many[:, -1], rtol=1e-4, atol=1e-5)


def test_data_list_survives_a_broken_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("NRF_DATA", str(tmp_path / "nowhere"))
    assert main(["data", "list"]) == 0
    assert "NRF_DATA" in capsys.readouterr().out


def test_wrong_arguments(fails, gmm, tmp_path):
    assert "--nn" in fails("sample", gmm, "--nn", "3", "--out", tmp_path / "s.npz")
    assert "--out" in fails("sample", gmm)
    message = fails("sample", gmm, "--n", "many", "--out", tmp_path / "s.npz")
    assert "many" in message
    assert "`nrf sample --help` says more" in message
    assert "--sampler.frictoin" in fails("train", "gmm-short", "--out", tmp_path / "x", "--sampler.frictoin", "1")
    assert "did you mean --replica?" in fails("score", gmm, tmp_path / "x.npz", "--out", "s.csv", "--repica", "3")


@pytest.mark.parametrize("utf8", [False, True])
def test_missing_arguments_are_named_without_their_help(fails, monkeypatch, utf8):
    monkeypatch.setattr("tyro._fmtlib._FORCE_UTF8_BOXES", utf8, raising=False)  # else blanks and dashes
    assert fails("data").rstrip() == "nrf: `nrf data` needs {list,fetch,verify} (`nrf data --help` says more)"
    message = fails("detect", "score").rstrip()
    assert message == "nrf: `nrf detect score` needs MODEL, DATA, --out PATH (`nrf detect score --help` says more)"
    message = fails("detect", "fit", "train.csv", "--out", "model", "--seed", "x")
    assert "--seed: invalid literal" in message
    assert "helptext" not in message


def test_damaged_run_folder(fails, gmm, tmp_path):
    (tmp_path / "config.json").write_text("{")
    assert "config.json: not valid JSON" in fails("sample", tmp_path, "--out", tmp_path / "s.npz")
    (tmp_path / "config.json").write_text((gmm / "config.json").read_text())
    assert "holds no checkpoint yet" in fails("sample", tmp_path, "--out", tmp_path / "s.npz")


def test_debug_shows_where(gmm, capsys):
    assert main(["--debug", "sample", str(gmm), "--out", "s.txt"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_divergence_is_one_line_and_exit_code_1(tmp_path, capsys):
    arguments = ["train", "gmm-short", "--out", str(tmp_path / "x"), *SHORT, "--learner.potential-lr", "1e30"]
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert "training stopped at step" in error
    assert error.count("\n") == 1


def test_as_a_process(tmp_path):
    done = subprocess.run([sys.executable, "-m", "nrf", "sample", str(tmp_path), "--out", "s.npz"], capture_output=True)
    assert done.returncode == 2
    assert done.stderr.startswith(b"nrf: ")
    assert b"Traceback" not in done.stderr
