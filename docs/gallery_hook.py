"""The gallery: pages and notebooks made of the scripts in examples/, at every build of the site.

A script begins with a docstring (a title and some sentences, Markdown) and is cut into cells by lines ``# %%``. The
comment at the head of a cell is prose, the rest is code. Pictures and printed lines are not made at the build: they are
committed in docs/gallery/. To make them again, run

    python docs/gallery_hook.py              # all of them, or name some: 04 07
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).resolve().parent.parent
MARK = "# %%"
THUMBNAIL = 320
"""Width of the pictures of the index, in pixels."""
COLOURS = 128
"""Of the palette of a picture."""


@dataclass(frozen=True)
class Cell:
    """A part of a script: prose in Markdown, or code."""

    kind: Literal["markdown", "code"]
    text: str


@dataclass(frozen=True)
class Example:
    """A script of the gallery."""

    path: Path
    title: str
    about: str
    cells: tuple[Cell, ...]
    """All but the docstring."""

    @property
    def name(self) -> str:
        """The name of the script, its page, its notebook and its picture."""
        return self.path.stem

    @property
    def sentence(self) -> str:
        """The first sentence of what it is about."""
        return self.about.replace("\n", " ").split(". ")[0].rstrip(".") + "."


def read_example(path: Path) -> Example:
    """A script, taken apart.

    Raises:
        ValueError: It has no docstring that begins with ``# title``, or text between that and the first cell.
    """
    source = path.read_text()
    head = ast.parse(source).body[0]
    text = head.value.value if isinstance(head, ast.Expr) and isinstance(head.value, ast.Constant) else None
    title, _, about = text.strip().partition("\n") if isinstance(text, str) else ("", "", "")
    if not title.startswith("# ") or not about.strip():
        raise ValueError(f"{path}: begin it with a docstring: '# title', an empty line, two or three sentences")
    lines = source.splitlines()[head.end_lineno or 0 :]
    before, *parts = _split(lines)
    if any(line.strip() for line in before):
        raise ValueError(f"{path}: put a line '{MARK}' before the first line of code")
    cells = [cell for part in parts for cell in _cells(part)]
    return Example(path, title.removeprefix("# "), about.strip(), tuple(cells))


def _split(lines: list[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for line in lines:
        if line.startswith(MARK):
            parts.append([])
        else:
            parts[-1].append(line)
    return parts


def _cells(lines: list[str]) -> list[Cell]:
    """The comment at the head, and the code below it."""
    n = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
    prose = "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines[:n]).strip()
    code = "\n".join(lines[n:]).strip("\n")
    both = [Cell("markdown", prose), Cell("code", code)]
    return [cell for cell in both if cell.text]


def as_notebook(example: Example) -> dict[str, Any]:
    """The script as a notebook, nbformat 4.5, without outputs."""
    cells = []
    for i, cell in enumerate([Cell("markdown", f"# {example.title}\n\n{example.about}"), *example.cells]):
        described: dict[str, Any] = {
            "cell_type": cell.kind,
            "id": f"cell-{i}",
            "metadata": {},
            "source": cell.text.splitlines(keepends=True),
        }
        if cell.kind == "code":
            described |= {"execution_count": None, "outputs": []}
        cells.append(described)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def as_page(example: Example, printed: str) -> str:
    """The script as a page in Markdown."""
    name = example.name
    parts = [
        f"# {example.title}",
        example.about,
        f"![{example.title}]({name}.png)",
        f"Download the [script]({name}.py) or the [notebook]({name}.ipynb), or run `python examples/{name}.py`.",
    ]
    parts += [cell.text if cell.kind == "markdown" else f"```python\n{cell.text}\n```" for cell in example.cells]
    if printed.strip():
        parts += ["## What it prints", f"```text\n{printed.rstrip()}\n```"]
    return "\n\n".join(parts) + "\n"


def as_index(examples: list[Example]) -> str:
    """The page that lists them all."""
    lines = [
        "# Gallery",
        "",
        "Scripts that run in less than a minute on one core, each with a picture at its end. They need no download, "
        "and tests run them.",
        "",
        "| picture | what it shows |",
        "|---|---|",
    ]
    for example in examples:
        name = example.name
        picture = f"[![{example.title}]({name}-small.png)]({name}.md)"
        lines.append(f"| {picture} | **[{example.title}]({name}.md)**<br>{example.sentence} |")
    return "\n".join(lines) + "\n"


def scripts(examples: Path) -> list[Path]:
    """The scripts of a folder, in the order of their numbers."""
    return sorted(examples.glob("[0-9][0-9]_*.py"))


def build_gallery(examples: Path, out: Path) -> list[Path]:
    """Write the pages, notebooks and copies of the scripts, and the index, beside the pictures.

    A file that would be the same is left alone, so that a server which watches the folder does not build for ever.

    Args:
        examples: Folder of the scripts.
        out: Folder of the pictures.

    Returns:
        All files that belong to the gallery, pictures apart.

    Raises:
        FileNotFoundError: A picture, or what a script printed, is missing.
    """
    found = [read_example(path) for path in scripts(examples)]
    files: dict[str, str] = {"index.md": as_index(found)}
    for example in found:
        for ending in (".png", "-small.png", ".txt"):
            if not (out / (example.name + ending)).is_file():
                number = example.name.split("_")[0]
                raise FileNotFoundError(
                    f"{out / example.name}{ending} is missing; python docs/gallery_hook.py {number} makes it"
                )
        printed = (out / f"{example.name}.txt").read_text()
        files[f"{example.name}.md"] = as_page(example, printed)
        files[f"{example.name}.ipynb"] = json.dumps(as_notebook(example), indent=1, ensure_ascii=False) + "\n"
        files[f"{example.name}.py"] = example.path.read_text()
    for name, text in files.items():
        path = out / name
        if not path.is_file() or path.read_text() != text:
            path.write_text(text)
    return [out / name for name in files]


def on_pre_build(config: Mapping[str, Any], **_: Any) -> None:
    """Called by mkdocs before it looks for pages."""
    build_gallery(ROOT / "examples", Path(config["docs_dir"]) / "gallery")


def draw(script: Path, out: Path) -> None:
    """Run a script, and keep what it prints and its picture: with a palette, and small for the index."""
    from PIL import Image

    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(script), "--out", folder]
        environment = {**os.environ, "MPLBACKEND": "Agg"}
        found = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if found.returncode:
            raise RuntimeError(f"{script}:\n{found.stderr}")
        with Image.open(Path(folder) / f"{script.stem}.png") as image:
            picture = image.convert("RGB")
    out.mkdir(exist_ok=True)
    (out / f"{script.stem}.txt").write_text(found.stdout)
    small = picture.resize((THUMBNAIL, round(THUMBNAIL * picture.height / picture.width)), Image.Resampling.LANCZOS)
    for each, ending in ((picture, ".png"), (small, "-small.png")):
        each.quantize(COLOURS, dither=Image.Dither.NONE).save(out / f"{script.stem}{ending}", optimize=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make pictures of the gallery again.")
    parser.add_argument("numbers", nargs="*", help="which ones, 01 and so on; all if none is named")
    numbers = parser.parse_args().numbers
    for script in scripts(ROOT / "examples"):
        if not numbers or script.stem.split("_")[0] in numbers:
            draw(script, ROOT / "docs" / "gallery")
