"""Every command and snippet of the README, run as it stands, but with short training."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import nrf
from nrf.cli import main

PROJECT = Path(nrf.__file__).parent.parent.parent
README = (PROJECT / "README.md").read_text()


def _blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def _write_tables(folder: Path) -> None:
    """What the README takes as given: a file of normal rows, and one of new rows."""
    rows = np.random.default_rng(0).normal(size=(200, 3))
    for name, part in (("normal", rows), ("new", rows[:10] + 3.0)):
        np.savetxt(folder / f"{name}.csv", part, delimiter=",", header="a,b,c", comments="")


def test_shell_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _write_tables(tmp_path)
    commands = [line for block in _blocks("sh") for line in block.splitlines() if line.startswith("nrf ")]
    assert len(commands) == 5
    for line in commands:
        arguments = shlex.split(line, comments=True)[1:]
        if arguments[0] == "train":
            arguments += ["--train.iterations", "20", "--quiet"]
        assert main(arguments) == 0, line
    assert len((tmp_path / "scores.csv").read_text().splitlines()) == 11


def test_python_snippets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    short = nrf.find_preset("gmm-levels")
    short = replace(short, train=replace(short.train, iterations=60))
    monkeypatch.setitem(nrf.PRESETS, "gmm-levels", short)
    for snippet in _blocks("python"):
        exec(compile(snippet, "README.md", "exec"), {})
    assert (tmp_path / "runs" / "levels").is_dir()


def test_the_page_on_export(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    (snippet,) = _blocks("python", (PROJECT / "docs" / "export.md").read_text())
    names: dict = {}
    exec(compile(snippet, "export.md", "exec"), names)
    kinds = {i.name: i.type for i in names["session"].get_inputs()}
    assert kinds == {
        "size": "tensor(float)",
        "total": "tensor(double)",
        "grade": "tensor(string)",
        "paid": "tensor(float)",
        "when": "tensor(double)",
    }


def test_the_detector_takes_eight_lines_and_a_field_ten():
    (detector, field) = _blocks("python")
    for snippet, name, most in ((detector, "NRFDetector", 8), (field, "log_density", 10)):
        assert name in snippet
        assert len([line for line in snippet.splitlines() if line.strip()]) <= most


def test_unknown_public_name():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = nrf.nonsense
