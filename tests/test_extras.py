"""What works with the core dependencies alone, and what names the extra it needs.

A process of its own cannot import the packages of the extras; `make test-core` runs it where they are not installed.
"""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nrf.errors import InputError, MissingPackageError, needs

PROJECT = Path(__file__).parent.parent
EXTRAS = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
MODULES = {
    "pillow": "PIL",
    "pytest-xdist": "xdist",
    "pre-commit": "pre_commit",
    "prometheus-client": "prometheus_client",
}
TOOLS = {
    "httpx",
    "playwright",
    "schemathesis",
    "mkdocs-material",
    "mkdocstrings",
    "codespell",
    "pytest",
    "hypothesis",
    "xdist",
    "ruff",
    "mypy",
    "pre_commit",
}
"""Of the developers, not of the code."""

HIDE = """
import contextlib, io, json, sys
from importlib.machinery import PathFinder
hidden, real = set(json.loads(sys.argv[1])), PathFinder.find_spec
PathFinder.find_spec = lambda name, *place: None if name.split(".")[0] in hidden else real(name, *place)
"""

COMMANDS = (
    HIDE
    + """
from nrf.cli import main
results = []
for command in json.loads(sys.argv[2]):
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main(command)
    results.append((code, said.getvalue()))
print(json.dumps(results))
"""
)

DETECTOR = (
    HIDE
    + """
import numpy as np
from nrf import NRFDetector
rng = np.random.default_rng(0)
rows = rng.normal(size=(200, 2))
if sys.argv[2] != "numpy":
    library = __import__(sys.argv[2])
    rows = library.DataFrame({"a": rows[:, 0], "b": ["xy"[i % 2] for i in range(200)]})
detector = NRFDetector(iterations=5, random_state=0).fit(rows)
detector.save("d")
again = NRFDetector.load("d")
assert (again.score_samples(rows) == detector.score_samples(rows)).all()
assert len(again.explain(rows[:2])) == 2
print(json.dumps("fine"))
"""
)


def packages(extra: str) -> set[str]:
    """Modules that come with an extra and not with the core; joblib comes with scikit-learn."""
    found = set()
    for line in EXTRAS[extra]:
        name, inner = re.match(r"([\w-]+)(?:\[([\w,]+)\])?", line).groups()
        found |= set().union(*map(packages, inner.split(","))) if name == "nrf" else {MODULES.get(name, name)}
    return found - TOOLS - {"joblib"}


def run(hidden: set[str], folder: Path, *commands: str) -> list[tuple[int, str]]:
    """Exit code and output of each command, in one process that cannot import what is hidden."""
    results = process(COMMANDS, hidden, folder, json.dumps([command.split() for command in commands]))
    return [(code, " ".join(said.split())) for code, said in results]


def process(program: str, hidden: set[str], folder: Path, *arguments: str) -> Any:
    command = [sys.executable, "-W", "ignore::RuntimeWarning", "-c", program, json.dumps(sorted(hidden)), *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_packages_of_the_extras():
    assert {"matplotlib", "PIL", "pyarrow", "onnx", "pyod", "torchmetrics", "pandas", "polars"} <= packages("dev")
    assert not packages("dev") & {"torch", "numpy", "sklearn", "narwhals", "pooch", "tyro", "rich"}


def test_the_error_names_the_extra_and_is_an_input_error():
    with pytest.raises(MissingPackageError, match=r"a dream needs .*'no_such'") as caught, needs("figures", "a dream"):
        importlib.import_module("no_such")
    assert 'pip install "nrf[figures]"' in str(caught.value)
    assert isinstance(caught.value, InputError)
    assert isinstance(caught.value, ImportError)
    assert caught.value.name == "no_such"


def test_every_extra_an_error_names_exists():
    named = {
        found for path in (PROJECT / "src").rglob("*.py") for found in re.findall(r'needs\("(\w+)"', path.read_text())
    }
    assert named == set(EXTRAS) - {"bench", "dev", "docs"}


def test_training_and_sampling_need_the_core_alone(tmp_path):
    few = "--train.iterations 4 --train.checkpoint-every 4 --quiet"
    trained, resumed, sampled, scored, drawn, walked, watched = run(
        packages("dev"),
        tmp_path,
        f"train gmm-short --out g {few}",
        f"train gmm-short --out g --resume {few}",
        "sample g --n 10 --revise --out s.npz",
        "score g s.npz --out u.csv",
        "sample g --n 10 --out s.png",
        "interpolate g --out i.png",
        f"train gmm-short --out w {few} --train.sample-every 2",
    )
    for code, said in (trained, resumed, sampled, scored):
        assert code == 0, said
    assert np.load(tmp_path / "s.npz")["x"].shape == (10, 2)
    for code, said in (drawn, walked, watched):
        assert code == 2
        assert "No module named 'matplotlib'" in said
        assert 'pip install "nrf[figures]"' in said
    assert "or train without pictures: --train.sample-every None" in watched[1]
    assert not list((tmp_path / "w").rglob("*.json")), "it is said before anything is written"


@pytest.mark.parametrize("library", ["numpy", "pandas", "polars"])
def test_the_detector_needs_the_core_and_what_the_table_is_of(library, tmp_path):
    pytest.importorskip(library)
    assert process(DETECTOR, packages("dev") - {library}, tmp_path, library) == "fine"


def test_other_commands_name_their_extra(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    for extra, said in zip(
        ("tables", "reproduce", "reproduce", "reproduce"),
        run(packages("dev"), tmp_path, "detect fit x.csv --out d", "demo", "reproduce --list", "bench --quick machine"),
        strict=True,
    ):
        assert said[0] == 2
        assert f'pip install "nrf[{extra}]"' in said[1], said[1]


def test_detecting_in_files_needs_no_pictures(tmp_path):
    pytest.importorskip("pyarrow")
    rows = np.random.default_rng(0).normal(size=(120, 2))
    np.savetxt(tmp_path / "x.csv", rows, delimiter=",", header="a,b", comments="")
    fitted, scored, explained = run(
        packages("dev") - packages("tables"),
        tmp_path,
        "detect fit x.csv --out d --iterations 5",
        "detect score d x.csv --out s.csv",
        "detect explain d x.csv --row 1 --out e.png",
    )
    assert fitted[0] == 0, fitted[1]
    assert scored[0] == 0, scored[1]
    assert len((tmp_path / "s.csv").read_text().splitlines()) == 121
    assert explained[0] == 2
    assert 'pip install "nrf[figures]"' in explained[1]
