"""Every command and snippet of the README, run as it stands, but with short training."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

import nrf
from nrf.cli import main

PROJECT = Path(nrf.__file__).parent.parent.parent
README = (PROJECT / "README.md").read_text()


def _blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def test_shell_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commands = [line for block in _blocks("sh") for line in block.splitlines() if line.startswith("nrf ")]
    assert len(commands) >= 5
    for line in commands:
        arguments = shlex.split(line, comments=True)[1:]
        if arguments[0] == "train":
            arguments += ["--train.iterations", "20", "--quiet"]
        assert main(arguments) == 0, line


def test_python_snippets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    short = nrf.find_preset("digits")
    short = replace(short, train=replace(short.train, iterations=60))
    monkeypatch.setitem(nrf.PRESETS, "digits", short)
    snippets = [snippet.replace("NRFDetector(", "NRFDetector(max_iter=100, ") for snippet in _blocks("python")]
    assert sum("max_iter=100" in snippet for snippet in snippets) == 1
    for snippet in snippets:
        exec(compile(snippet, "README.md", "exec"), {})


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


def test_the_detector_takes_ten_lines():
    (snippet,) = [block for block in _blocks("python") if "NRFDetector" in block]
    assert len([line for line in snippet.splitlines() if line.strip()]) <= 10


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#]+)\)", README))))
def test_links_lead_somewhere(link):
    assert (Path(nrf.__file__).parent.parent.parent / link).exists()


def test_unknown_public_name():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = nrf.nonsense
