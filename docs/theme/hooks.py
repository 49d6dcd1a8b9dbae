"""What mkdocs needs beside docs/*.md: files from outside docs, the reference pages, and the help of the commands.

Pages link to ``../results/…`` and ``../CHANGELOG.md``, which is right in a checkout. Here those files join the
site, and the links are rewritten; so the same page works in both places.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import io
import os
import re
import sys
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
    """Markdown that has mkdocstrings describe a public module."""
    first, *others = MODULES.get(name, (f"nrf.{name}",))
    parts = [
        f"# nrf.{name}",
        f"::: {first}\n    options:\n      show_root_heading: {str(first != f'nrf.{name}').lower()}",
    ]
    parts += [f"::: {module}\n    options:\n      show_root_full_path: true" for module in others]
    return "\n\n".join(parts) + "\n"


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
    os.environ["COLUMNS"] = "100"
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
    return re.sub(r"[ \t]+\n", "\n", shown.getvalue())


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
