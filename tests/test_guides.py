"""The guides docs/adding-*.md and the skeletons, followed to the letter in a copy of the project.

A block after "`PATH`, complete:" becomes that file. A `text` block is an excerpt of the file named last before it: its
imports and entries are added there. Other `python` blocks are scripts, `sh` blocks commands; both are run.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import nrf

PROJECT = Path(nrf.__file__).parents[2]
GUIDES = sorted((PROJECT / "docs").glob("adding-*.md"))
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
NAMED = re.compile(r"`((?:src|tests)/[\w/.-]+\.py)`")

# A skeleton's place, and the lines by which somebody who copied it would register it.
SKELETONS = {
    "sampler.py": (
        "src/nrf/samplers/mine.py",
        "src/nrf/samplers/__init__.py",
        'from nrf.samplers.mine import MySampler\n\nSAMPLERS: x = {\n    "my-sampler": MySampler,\n}',
    ),
    "learner.py": (
        "src/nrf/learners/mine.py",
        "src/nrf/learners/__init__.py",
        'from nrf.learners.mine import MyLearnerConfig\n\nLEARNERS: x = {\n    "my-learner": MyLearnerConfig,\n}',
    ),
}


@dataclass
class Followed:
    """A copy of the project in which every guide was followed."""

    root: Path
    files: list[Path] = field(default_factory=list)
    scripts: list[Path] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)

    def run(self, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """A process that finds the copy and nothing else under the name nrf."""
        found = subprocess.run(
            [sys.executable, *arguments],
            cwd=cwd or self.root,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(self.root / "src"), "NRF_DATA": str(self.root / "data")},
        )
        assert found.returncode == 0, found.stdout + found.stderr
        return found

    def add(self, place: str, text: str) -> None:
        """A new file, in a folder that is there."""
        path = self.root / place
        assert path.parent.is_dir(), f"{place} would need a new folder"
        assert not path.exists(), f"{place} is there already"
        path.write_text(text)
        self.files.append(path)


def register(path: Path, excerpt: str) -> None:
    """Add the imports and entries of an excerpt to a file; all that it shows beside them must be there already."""
    lines, opened = path.read_text().splitlines(), None
    for line in excerpt.splitlines():
        if line.startswith(("from ", "import ")):
            lines.insert(next(i for i, old in enumerate(lines) if old.startswith("from nrf")), line)
        elif line.endswith(("= {", "= [")):
            opened = next(
                i for i, old in enumerate(lines) if old.startswith(line.split()[0]) and old.endswith(line[-1])
            )
        elif opened is not None and line.startswith("    ") and line.strip() != "..." and line not in lines:
            lines.insert(opened + 1, line)
        elif re.match(r"[A-Z]+: .* = .*[^{\[]$", line):
            place = next(i for i, old in enumerate(lines) if old.startswith(line.split()[0]))
            lines[place] = line
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def followed(tmp_path_factory) -> Followed:
    root = tmp_path_factory.mktemp("project")
    shutil.copytree(PROJECT / "src", root / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copytree(PROJECT / "tests", root / "tests", ignore=shutil.ignore_patterns("__pycache__", "fixtures"))
    shutil.copy(PROJECT / "pyproject.toml", root)
    (root / "data").mkdir()
    (root / "data" / "pairs.csv").write_text("a,b\n1,2\n3,4\n5,6\n")
    copy = Followed(root)
    for guide in GUIDES:
        text = guide.read_text()
        for found in BLOCK.finditer(text):
            kind, block, before = found[1], found[2], text[: found.start()]
            if kind == "python" and before.rstrip().endswith(", complete:"):
                copy.add(NAMED.findall(before)[-1], block)
            elif kind == "python":
                script = root / f"{guide.stem.replace('-', '_')}_{len(copy.scripts)}.py"
                script.write_text(block)
                copy.scripts.append(script)
            elif kind == "text":
                register(root / NAMED.findall(before)[-1], block)
            elif kind == "sh":
                copy.commands += [line for line in block.splitlines() if line.startswith("nrf ")]
    for name, (place, registry, excerpt) in SKELETONS.items():
        copy.add(place, (PROJECT / "docs" / "skeletons" / name).read_text())
        register(root / registry, excerpt)
    return copy


def test_there_is_something_to_follow(followed):
    assert len(GUIDES) >= 5
    assert len(followed.files) >= 7
    assert len(followed.scripts) >= 2
    assert len(followed.commands) >= 4
    assert {path.stem for path in (PROJECT / "docs" / "skeletons").glob("*.py")} == {"sampler", "learner"}


def test_their_code_is_linted(followed):
    pytest.importorskip("ruff")
    places = [str(path.relative_to(followed.root)) for path in (*followed.files, *followed.scripts)]
    followed.run("-m", "ruff", "check", *places)
    followed.run("-m", "ruff", "format", "--check", *places)


@pytest.mark.slow
def test_their_code_is_typed(followed):
    pytest.importorskip("mypy")
    sources = [path for path in followed.files if path.is_relative_to(followed.root / "src")]
    cache = PROJECT / ".mypy_cache" / "guides"
    followed.run("-m", "mypy", "--cache-dir", str(cache), *map(str, [*sources, *followed.scripts]))


@pytest.mark.slow
def test_what_they_add_keeps_the_contracts_and_passes_the_tests_they_show(followed):
    names = ["averaged", "hybrid", "small-cnn", "bars", "pairs", "my-sampler", "my-learner"]
    tests = [str(path) for path in followed.files if path.is_relative_to(followed.root / "tests")]
    contracts = ["tests/contracts", "tests/data/test_datasets.py", "-k", " or ".join(names)]
    found = followed.run("-m", "pytest", "-vv", "-p", "no:cacheprovider", *contracts)
    for name in names:
        assert len(re.findall(rf"\[.*{name}.* PASSED", found.stdout)) >= 1, f"{name} was not enrolled"
    followed.run("-m", "pytest", "-p", "no:cacheprovider", *tests)


@pytest.mark.slow
def test_their_commands_and_scripts_run(followed, tmp_path):
    for script in followed.scripts:
        followed.run(str(script), cwd=tmp_path)
    commands = [shlex.split(line, comments=True)[1:] for line in followed.commands]
    short = ["--train.iterations", "3", "--quiet"]
    commands = [command + short if command[0] == "train" else command for command in commands]
    commands.append(["data", "verify", "pairs"])
    followed.run("-c", f"from nrf.cli import main\nfor c in {commands!r}:\n    assert main(c) == 0, c", cwd=tmp_path)


def test_a_wrong_block_would_be_noticed(tmp_path):
    """The rules above can fail: an excerpt of what is not there, a file in no folder."""
    (tmp_path / "registry.py").write_text("from nrf.errors import InputError\n\nTHINGS: dict = {\n}\n")
    register(tmp_path / "registry.py", 'from nrf.new import New\n\nTHINGS: dict = {\n    ...\n    "new": New,\n}')
    text = (tmp_path / "registry.py").read_text()
    assert 'THINGS: dict = {\n    "new": New,\n}' in text
    assert text.startswith("from nrf.new import New\n")
    with pytest.raises(StopIteration):
        register(tmp_path / "registry.py", 'OTHERS: dict = {\n    "new": New,\n}')
    with pytest.raises(AssertionError, match="new folder"):
        Followed(tmp_path).add("src/nrf/samplers/new.py", "")
