"""The answers of docs/faq.md, run in their order as they stand."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

import nrf

PAGE = (Path(nrf.__file__).parents[2] / "docs" / "faq.md").read_text()
ANSWERS = re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, flags=re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


def test_every_answer_has_some_lines_that_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    (start,) = BLOCK.findall(PAGE.split("\n## ")[0])
    exec(compile(start, "faq.md", "exec"), names)
    missing = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for question, answer in ANSWERS:
            (block,) = BLOCK.findall(answer)
            try:
                exec(compile(block, f"faq.md: {question}", "exec"), names)
            except ModuleNotFoundError as error:
                missing.append(error.name)
    assert set(missing) <= {"pyarrow"}  # an extra
    printed = capsys.readouterr().out
    assert "threshold " in printed
    assert names["detector"].calibrated_on_ == "given rows"
    assert [change.feature for change in names["explanation"].changes]
    assert len(names["examples"].explain(names["new"][1:2])[0].neighbours) >= 3


@pytest.mark.parametrize(("question", "answer"), ANSWERS, ids=[question for question, _ in ANSWERS])
def test_answers_are_short(question, answer):
    (block,) = BLOCK.findall(answer)
    assert question.endswith(("?", "memory"))
    assert sum(bool(line.strip()) for line in block.splitlines()) <= 6


def test_what_is_asked_is_there():
    asked = " ".join(question.lower() for question, _ in ANSWERS)
    for word in ("threshold", "flagged", "categories", "missing", "memory", "service", "gpu", "update", "drifted"):
        assert word in asked
    assert "time series" in asked
    assert "examples" in asked


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([\w-]+\.md)[^)]*\)", PAGE))))
def test_links_lead_somewhere(link):
    assert (Path(nrf.__file__).parents[2] / "docs" / link).exists()
