"""The scripts in examples/: each runs and draws its picture, and pages and notebooks are made of all of them."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import nrf

pytest.importorskip("matplotlib")

PROJECT = Path(__file__).parents[1]
EXAMPLES, DOCS = PROJECT / "examples", PROJECT / "docs"
spec = importlib.util.spec_from_file_location("gallery_hook", DOCS / "gallery_hook.py")
assert spec is not None
assert spec.loader is not None
gallery = importlib.util.module_from_spec(spec)
sys.modules["gallery_hook"] = gallery  # dataclasses look their module up
spec.loader.exec_module(gallery)

SCRIPTS = gallery.scripts(EXAMPLES)
SLOW = ("04", "06", "07", "08")
"""Those that take more than ten seconds of one core."""
NEEDS = {"02": ("nrf.detect", "Windows"), "05": ("nrf.detect", "DriftMonitor")}
CPU_SECONDS = 60


RUN = [pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if path.stem[:2] in SLOW else []) for path in SCRIPTS]


@pytest.mark.parametrize("path", RUN)
def test_a_script_runs_and_draws(path, tmp_path):
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("pandas")
    module, name = NEEDS.get(path.stem[:2], ("nrf", "NRFDetector"))
    if not hasattr(importlib.import_module(module), name):
        pytest.skip(f"{module}.{name} is not there")
    source = str(Path(nrf.__file__).parents[1])
    environment = {**os.environ, "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1", "PYTHONPATH": source}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", str(path), "--out", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert found.returncode == 0, found.stderr
    assert 2 <= len(found.stdout.splitlines()) <= 16, found.stdout
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < CPU_SECONDS
    assert [file.name for file in tmp_path.iterdir()] == [f"{path.stem}.png"]
    with image.open(tmp_path / f"{path.stem}.png") as picture:
        assert 900 <= picture.width <= 1100
        assert 350 <= picture.height <= 950
        lightest = picture.convert("L").getextrema()
        assert lightest[1] - lightest[0] > 100, "nothing is drawn"


def test_there_are_eight_in_order_and_the_readme_lists_them():
    assert [path.stem[:2] for path in SCRIPTS] == [f"{i:02}" for i in range(1, 9)]
    readme = (EXAMPLES / "README.md").read_text()
    for path in SCRIPTS:
        line = next(line for line in readme.splitlines() if f"[{path.name}]({path.name})" in line)
        assert f"**{gallery.read_example(path).title}**" in line


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_notebook_holds_the_code_of_its_script(path):
    notebook = json.loads(json.dumps(gallery.as_notebook(gallery.read_example(path))))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert set(notebook) == {"cells", "metadata", "nbformat", "nbformat_minor"}
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)
    for cell in notebook["cells"]:
        assert all(isinstance(line, str) for line in cell["source"])
        code = {"execution_count", "outputs"} if cell["cell_type"] == "code" else set()
        assert set(cell) == {"cell_type", "id", "metadata", "source"} | code
    kinds = [cell["cell_type"] for cell in notebook["cells"]]
    assert kinds[0] == "markdown"
    assert kinds[-1] == "code"
    assert set(kinds) == {"markdown", "code"}
    joined = "\n".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code")
    script = ast.parse(path.read_text())
    script.body = script.body[1:]  # the docstring is prose
    assert ast.dump(ast.parse(joined)) == ast.dump(script)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_is_written_for_the_gallery(path):
    example = gallery.read_example(path)
    assert 2 <= len(re.findall(r"[.!?](?:\s|$)", example.about)) <= 6
    prose = [cell for cell in example.cells if cell.kind == "markdown"]
    assert len(prose) >= 4
    assert all(cell.text.startswith("## ") for cell in prose)
    picture, small = (DOCS / "gallery" / f"{path.stem}{ending}" for ending in (".png", "-small.png"))
    assert 5_000 < picture.stat().st_size < 80_000
    assert small.stat().st_size < 30_000


def test_pages_are_built_and_link_to_what_is_there(tmp_path):
    _copy_pictures(tmp_path)
    written = gallery.build_gallery(EXAMPLES, tmp_path)
    assert len(written) == 1 + 3 * len(SCRIPTS)
    index = (tmp_path / "index.md").read_text()
    for path in SCRIPTS:
        assert f"({path.stem}.md)" in index
        page = (tmp_path / f"{path.stem}.md").read_text()
        assert page.startswith("# ")
        assert "## What it prints" in page
        assert all(cell.text in page for cell in gallery.read_example(path).cells), (
            "every cell is on the page, prose and code"
        )
        assert (tmp_path / path.name).read_text() == path.read_text()
    for page in tmp_path.glob("*.md"):
        for link in re.findall(r"\]\(([^)]+)\)", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)):
            assert (tmp_path / link).is_file(), f"{page.name}: {link}"


def test_what_is_the_same_is_not_written_again(tmp_path):
    _copy_pictures(tmp_path)
    written = gallery.build_gallery(EXAMPLES, tmp_path)
    for path in written:
        os.utime(path, (1, 1))
    written[1].write_text("another text")
    gallery.build_gallery(EXAMPLES, tmp_path)
    assert [path for path in written if path.stat().st_mtime != 1] == [written[1]]
    assert written[1].read_text() != "another text"


def test_mkdocs_calls_it(tmp_path):
    (tmp_path / "gallery").mkdir()
    _copy_pictures(tmp_path / "gallery")
    gallery.on_pre_build({"docs_dir": str(tmp_path)})
    assert (tmp_path / "gallery" / "index.md").is_file()


def test_a_missing_picture_is_named(tmp_path):
    _copy_pictures(tmp_path)
    (tmp_path / f"{SCRIPTS[3].stem}.png").unlink()
    with pytest.raises(FileNotFoundError, match=r"04_counterfactual\.png is missing; python docs/gallery_hook.py 04"):
        gallery.build_gallery(EXAMPLES, tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "begin it with a docstring"),
        ('"""Only a title."""\n', "begin it with a docstring"),
        ('"""# A title\n\nAbout it."""\n\nx = 1\n', "put a line '# %%'"),
    ],
)
def test_a_script_of_another_shape_is_refused(text, message, tmp_path):
    path = tmp_path / "09_odd.py"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        gallery.read_example(path)


def _copy_pictures(folder):
    for file in (DOCS / "gallery").glob("*"):
        if file.suffix in (".png", ".txt"):
            (folder / file.name).write_bytes(file.read_bytes())
