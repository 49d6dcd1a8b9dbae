"""What mkdocs needs beside docs/*.md: files from outside docs, the reference pages, and the help of the commands.

Pages link to ``../results/…`` and ``../CHANGELOG.md``, which is right in a checkout. Here those files join the
site, and the links are rewritten; so the same page works in both places.
"""

from __future__ import annotations

import ast
import contextlib
import html
import importlib
import io
import os
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))

OUTSIDE = {
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
    "conduct.md": "CODE_OF_CONDUCT.md",
}
"""Pages of the site that lie in the checkout's root."""

IMAGES = (".png", ".svg")

HOME = "Anomaly detection with neural random fields"
"""Title of the first page, whose heading is the name of the site."""

LONGEST = 200
"""Of a page's description, in characters."""

WIDTH = 84
"""Of the help of the commands, in characters: as much as a page shows without scrolling."""

MODULES = {
    "detect": ("nrf.detect", "nrf.detect.directory", "nrf.detect.selection", "nrf.detect.explain", "nrf.detect.pyod"),
    "runs": ("nrf.runs.train", "nrf.runs.trained", "nrf.runs.spec", "nrf.runs.presets", "nrf.runs.products"),
    "fields": ("nrf.fields", "nrf.fields.contributions"),
    "samplers": ("nrf.samplers", "nrf.samplers.base", "nrf.samplers.metropolis"),
    "learners": ("nrf.learners", "nrf.learners.base"),
    "networks": ("nrf.networks", "nrf.networks.base", "nrf.networks.layers"),
    "data": ("nrf.data", "nrf.data.base"),
}
"""Modules on a page of the reference, where that is not the public module of that name alone."""


def public_modules() -> list[str]:
    """Names of the public modules of nrf, without importing them."""
    nrf = importlib.import_module("nrf")
    return [name for name in nrf.__all__ if (ROOT / "src" / "nrf" / name).is_dir() or _is_module(name)]


def _is_module(name: str) -> bool:
    return (ROOT / "src" / "nrf" / f"{name}.py").is_file()


def reference_page(name: str) -> str:
    """Markdown that has mkdocstrings describe a public module, and each of its names once."""
    first, *others = MODULES.get(name, (f"nrf.{name}",))
    own = str(first != f"nrf.{name}").lower()
    parts = [
        f"# nrf.{name}",
        f"::: {first}\n    options:\n      show_root_heading: {own}\n      show_root_toc_entry: {own}",
    ]
    there = getattr(importlib.import_module(first), "__all__", []) if others else []
    for module in others:
        names = _described(module)
        left = [part for part in names if part not in there]
        shown = "" if left == names else f"\n      members: {left}"
        parts.append(f"::: {module}\n    options:\n      show_root_full_path: true{shown}")
    return "\n\n".join(parts) + "\n"


def _described(module: str) -> list[str]:
    """Public names with a docstring that a module defines itself."""
    source = importlib.import_module(module).__file__ or ""
    body = ast.parse(Path(source).read_text()).body
    found = []
    for node, after in zip(body, [*body[1:], ast.Pass()], strict=True):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found += [node.name] if ast.get_docstring(node) else []
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and _is_text(after):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found += [target.id for target in targets if isinstance(target, ast.Name)]
    return [name for name in found if not name.startswith("_")]


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def reference_index() -> str:
    """Markdown of the names that `import nrf` offers itself."""
    nrf = importlib.import_module("nrf")
    names = [f"- [nrf.{name}][{nrf._HOMES[name]}.{name}]" for name in sorted(nrf._HOMES)]
    lines = [f"- [nrf.{name}]({name}.md): {_summary(name)}" for name in public_modules()]
    text = "What `dir(nrf)` shows is public; the [deprecation policy](../deprecation.md) says how such a name changes."
    parts = ["# Reference", text, "## Modules", "\n".join(lines), "## Names of `nrf` itself", "\n".join(names)]
    return "\n\n".join(parts) + "\n"


def _summary(name: str) -> str:
    """First sentence of a module's docstring."""
    path = ROOT / "src" / "nrf" / name
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = ast.get_docstring(ast.parse(source.read_text())) or ""
    return text.partition("\n")[0]


def command_page() -> str:
    """The help of every command, as it is printed."""
    os.environ["COLUMNS"] = str(WIDTH)
    main = importlib.import_module("nrf.cli").main
    parts = ["# Command line", f"```text\n{_printed(main, [])}```"]
    actions = [f"detect {action}" for action in importlib.import_module("nrf.cli.detect").ACTIONS]
    for command in ["train", *importlib.import_module("nrf.cli.main").COMMANDS, *actions]:
        preset = ["gmm-short"] if command == "train" else []
        text = _printed(main, [*command.split(), *preset, "--help"])
        parts.append(f"## nrf {command}\n\n```text\n{text}```")
    return "\n\n".join(parts) + "\n"


def _printed(main: Any, arguments: list[str]) -> str:
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        main(arguments)
    return "".join(f"{_wrapped(line.rstrip())}\n" for line in shown.getvalue().splitlines())


def _wrapped(line: str) -> str:
    """A paragraph of a help in lines; what is indented has been wrapped already."""
    if line.startswith(" "):
        return line
    return textwrap.fill(line, WIDTH, break_long_words=False, break_on_hyphens=False)


def on_files(files: Any, config: Any) -> Any:
    """Add what does not lie in docs/."""
    for name, source in OUTSIDE.items():
        text = (ROOT / source).read_text().replace("](docs/", "](")
        for other, place in OUTSIDE.items():
            text = text.replace(f"]({place}", f"]({other}")
        files.append(File.generated(config, name, content=text))
    for path in sorted((ROOT / "results").rglob("*")):
        if path.suffix in IMAGES or path.name == "bench.json":
            place = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, place, abs_src_path=str(path)))
    files.append(File.generated(config, "reference/index.md", content=reference_index()))
    files.append(File.generated(config, "reference/cli.md", content=command_page()))
    for name in public_modules():
        files.append(File.generated(config, f"reference/{name}.md", content=reference_page(name)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links out of docs/ go to where the files lie in the site."""
    for name, source in OUTSIDE.items():
        markdown = markdown.replace(f"](../{source}", f"]({name}")
    return markdown.replace("](../results/", "](results/")


def on_page_content(content: str, **_: Any) -> str:
    """In a cell, a value and its deviation stay on one line."""
    return re.sub(r"<td.*?</td>", lambda cell: cell[0].replace(" ± ", "\u00a0±\u00a0"), content, flags=re.DOTALL)


def on_page_context(context: Any, page: Any, config: Any, **_: Any) -> Any:
    """The page's own heading as its title, and its first words as its description."""
    title = next((item.title for item in page.toc if item.level == 1), config.site_name)
    page.meta.setdefault("title", HOME if title == config.site_name else title)
    page.meta.setdefault("description", description(page.content or "") or config.site_description)
    return context


def description(content: str) -> str:
    """The first sentences of a page, as an attribute of HTML.

    Example:
        >>> description("<pre>x</pre><p>A <em>field</em> is a density. Of these:</p><p>More.</p>")
        'A field is a density.'
    """
    for paragraph in re.findall(r"<p>(.*?)</p>", content, flags=re.DOTALL):
        text = " ".join(html.unescape(re.sub(r"<[^>]+>", "", paragraph)).split())
        if text:
            sentences = re.split(r"(?<=[.?!]) ", text)
            while len(sentences) > 1 and (sentences[-1].endswith(":") or len(" ".join(sentences)) > LONGEST):
                sentences.pop()
            return html.escape(re.sub(r":$", ".", " ".join(sentences)))
    return ""
