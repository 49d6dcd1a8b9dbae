"""Who may know whom, who may print, how long a file may be: docs/architecture.md, held by the syntax tree."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import nrf

ROOT = Path(nrf.__file__).parent
PROJECT = ROOT.parent.parent
FILES = sorted(ROOT.rglob("*.py"))

# A room may import rooms of a lower floor, and itself; rooms on one floor do not know each other.
FLOORS = [
    {"_version", "errors", "deprecation"},
    {"seeds", "files", "processes"},
    {"config", "models", "ranks"},
    {"samplers", "networks", "data", "metrics"},
    {"targets", "losses", "gaussian", "fields"},
    {"learners"},
    {"training", "figures"},
    {"runs"},
    {"detect", "experiments"},
    {"reproduce", "serve"},
    {"cli"},
    {"__main__", ""},
]
FLOOR = {room: i for i, rooms in enumerate(FLOORS) for room in rooms}
PRINTERS = "cli/"


def _room(path: Path) -> str:
    first = path.relative_to(ROOT).parts[0].removesuffix(".py")
    return "" if first == "__init__" else first


def _imports(tree: ast.AST):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            yield node.module
            if node.module == "nrf":
                yield from (f"nrf.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_file_keeps_to_its_room(path):
    tree = ast.parse(path.read_text())
    room = _room(path)
    assert room in FLOOR, f"{room} has no floor: add it to docs/architecture.md and to this test"
    for module in _imports(tree):
        assert module.split(".")[0] not in {"pickle", "dill", "cloudpickle", "torchvision"}, module
        assert module.split(".")[0] != "tyro" or room == "cli", "only the command line reads arguments"
        if not module.startswith("nrf.") or module == "nrf.__version__":
            continue
        other = module.split(".")[1]
        if other in FLOOR and other != room:
            assert FLOOR[other] < FLOOR[room], f"{room} must not import {other}"
    name = path.relative_to(ROOT).as_posix()
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
    assert name.startswith(PRINTERS) or not any(c.func.id == "print" for c in calls), "only the command line prints"
    assert len(path.read_text().splitlines()) <= 450


def test_the_rule_would_notice():
    """The walk above sees an import inside a function, too."""
    tree = ast.parse("def f():\n    from nrf.cli import main\n")
    assert list(_imports(tree)) == ["nrf.cli"]
    assert FLOOR["cli"] > FLOOR["samplers"]


def test_no_unpickling_anywhere():
    for path in FILES:
        text = path.read_text()
        assert "allow_pickle=True" not in text, path
        for call in (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call)):
            if ast.unparse(call.func) == "torch.load":  # with this argument it builds tensors and nothing else
                assert any(k.arg == "weights_only" and ast.unparse(k.value) == "True" for k in call.keywords), path


SAME_MEANING = {
    "__init__": "a package",
    "base": "what all of its room have in common",
    "cells": "pieces of work of an experiment",
    "experiment": "what an experiment is, or one",
    "ablation": "one change at a time",
    "registry": "what there is, by name",
    "levels": "noise levels: the potentials, the learner and the presets",
    "density": "log-densities: what is measured of them, the experiment",
    "detection": "telling anomalies: what is measured of it, the field that does it",
    "coopnet": "cooperative training, its sampler and its learner",
    "gmm": "the 32-mode mixture",
    "digits": "scikit-learn's digits",
    "kddcup": "KDDCUP",
    "mnist": "MNIST",
    "cifar10": "CIFAR-10",
    "train": "training of a preset, and its command",
    "trained": "trained models, and their commands",
}
"""Base names that several modules may have."""


def test_a_name_has_one_meaning():
    """Two modules of one base name are a trap for whoever searches by it."""
    files = [path for path in FILES if path.stem == "__init__" or "= former_names(" not in path.read_text()]
    names = [path.stem for path in files] + [path.parent.name for path in files if path.stem == "__init__"]
    twice = {name for name in names if names.count(name) > 1}
    rooms = {path.name for path in ROOT.iterdir() if path.is_dir()}  # reproduce/samplers is about samplers, say
    commands = {path.stem for path in (ROOT / "cli").glob("*.py")}
    assert twice - set(SAME_MEANING) - rooms - commands <= {"files"}  # those of the package, and those of tables


def test_every_room_is_in_the_architecture_page():
    page = (PROJECT / "docs" / "architecture.md").read_text()
    rooms = {_room(p) for p in FILES} - {"", "__main__", "_version"}
    assert {room for room in rooms if room not in page} == set()
