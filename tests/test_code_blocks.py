"""Every code block of README and docs: Python runs, and `nrf` commands are read as they stand.

Commands that take minutes are parsed and not run. What README, FAQ, guides and a few other pages show is run whole by
tests of their own (test_readme.py, test_faq.py, test_guides.py, test_docs.py).
"""

from __future__ import annotations

import functools
import importlib
import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import nrf
from nrf.cli import parsing
from nrf.data import Splits
from nrf.errors import InputError

command_line, training = (importlib.import_module(f"nrf.{name}") for name in ("cli.main", "runs.train"))
PROJECT = Path(nrf.__file__).parents[2]
PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]
GUIDES = [page for page in PAGES if page.name.startswith("adding-a-")]
"""Their commands name what the guide adds; test_guides.py runs them."""
RUN_ELSEWHERE = {"README", "export", "faq", "fields", "index", "method", *(page.stem for page in GUIDES)}
"""Pages whose Python other tests run."""
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(page: Path, language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(page.read_text()) if kind == language]


def commands() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        if page in GUIDES:
            continue
        for block in blocks(page, "sh"):
            block = re.sub(r"<<'END'\n.*?^END\n", "\n", block, flags=re.DOTALL | re.MULTILINE)
            for line in block.replace("\\\n", " ").splitlines():
                found += [(page.name, part.strip()) for part in line.split("|") if re.match(r"\s*nrf\s", part)]
                if re.match(r"torchrun .* -m nrf ", line):
                    found.append((page.name, "nrf " + line.partition(" -m nrf ")[2]))
    return found


class WorkBegins(Exception):  # noqa: N818
    """The arguments were read, and the work would begin."""


def read(monkeypatch, line: str) -> None:
    def begins(*args, **kwargs):
        raise WorkBegins

    def deferred(function):
        collect = whole(function)

        @functools.wraps(collect)
        def wrapped(*args, **kwargs):
            collect(*args, **kwargs)
            return begins

        return wrapped

    whole = parsing._deferred
    with monkeypatch.context() as patch:
        patch.setattr(parsing, "_deferred", deferred)
        patch.setattr(training, "train", begins)
        with pytest.raises(WorkBegins):
            command_line._dispatch(shlex.split(line, comments=True)[1:])


@pytest.mark.parametrize(("page", "line"), commands())
def test_commands_are_read_as_they_stand(page, line, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    read(monkeypatch, line)


@pytest.mark.parametrize(
    "line", ["nrf train gmm-levels --out runs/a --sampler.steps 3", "nrf detect score model", "nrf samples runs/a"]
)
def test_a_command_that_does_not_exist_is_noticed(line, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError):
        read(monkeypatch, line)


# ------------------------------------------------------------------------------------------------------------- Python


def rows(n: int, seed: int = 0):
    """What pages call `train` and `rows`: a few columns that are correlated."""
    import pandas as pd

    rng = np.random.default_rng(seed)
    size = rng.normal(size=n)
    return pd.DataFrame({"size": size, "weight": size + 0.1 * rng.normal(size=n), "price": rng.normal(size=n)})


def before_detection(names: dict) -> None:
    from sklearn.model_selection import GridSearchCV

    from nrf.detect.selection import synthetic_auroc

    search = functools.partial(GridSearchCV, cv=2, refit=False)  # each fit trains networks
    names |= {"train": rows(80), "rows": rows(5, 1), "GridSearchCV": search, "synthetic_auroc": synthetic_auroc}


def before_drift(names: dict) -> None:
    nrf.NRFDetector(random_state=0).fit(rows(80)).save("model")
    names["stream"] = [rows(3, 1), rows(2, 2)]


def before_time(names: dict) -> None:
    def machines(n: int, seed: int):
        table = rows(2 * n, seed)
        return table.assign(hour=list(range(n)) * 2, machine=["a"] * n + ["b"] * n)

    names |= {"train": machines(200, 0), "rows": machines(60, 1)}


def before_generation(names: dict) -> None:
    preset = nrf.find_preset("cifar10-tiny")
    short = replace(preset, train=replace(preset.train, iterations=1, batch_size=4, sample_every=None))
    images = np.random.default_rng(0).uniform(-1, 1, size=(8, 3, 32, 32)).astype(np.float32)
    nrf.train("tiny", short, "runs/tiny", splits=Splits("tiny", images))


def before_architecture(names: dict) -> None:
    preset = nrf.find_preset("gmm-short")
    nrf.train("gmm-short", replace(preset, train=replace(preset.train, iterations=2)), "runs/gmm")


BEFORE = {
    "detection": before_detection,
    "drift": before_drift,
    "time": before_time,
    "generation": before_generation,
    "architecture": before_architecture,
    "data": lambda names: None,
}


def test_every_page_with_python_is_run_by_some_test():
    assert {page.stem for page in PAGES if blocks(page, "python")} == {*BEFORE, *RUN_ELSEWHERE}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name == "detection" else []) for name in BEFORE]
)
def test_python_runs(name, monkeypatch, tmp_path):
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    found = blocks(PROJECT / "docs" / f"{name}.md", "python")
    if name == "time":  # the last block reads what the commands before it write: test_docs.py runs both
        found = found[:1]
    if name == "architecture":  # the first is a sketch of signatures
        compile(found.pop(0), "architecture.md", "exec")
    names: dict = {}
    BEFORE[name](names)
    for i, block in enumerate(found, 1):
        exec(compile(block, f"{name}.md, block {i}", "exec"), names)
