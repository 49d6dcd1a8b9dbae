"""One self-contained page: sections of text, tables and pictures, with how it was made."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from nrf.figures.style import as_data_uri
from nrf.files import write_atomically
from nrf.training.checkpoint import versions

STYLE = """
:root { --ink:#1f2933; --soft:#52606d; --line:#e4e7eb; --accent:#0b7285; --paper:#fff; --ground:#f5f7fa; }
* { box-sizing:border-box } body { margin:0; background:var(--ground); color:var(--ink);
  font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif }
main { max-width:1120px; margin:0 auto; padding:40px 24px 64px }
h1 { font-size:30px; line-height:1.2; margin:0 0 8px; letter-spacing:-.01em } h2 { font-size:20px; margin:0 0 4px }
p { margin:6px 0 12px; color:var(--soft); max-width:78ch } p.lead { font-size:17px }
section { background:var(--paper); border:1px solid var(--line); border-radius:12px; padding:24px; margin:24px 0 }
.cards { display:flex; flex-wrap:wrap; gap:16px; margin:24px 0 0 }
.card { flex:1 1 220px; background:var(--paper); border:1px solid var(--line); border-radius:12px; padding:16px 20px }
.card b { display:block; font-size:28px; color:var(--accent); font-variant-numeric:tabular-nums; line-height:1.25 }
.card span { color:var(--soft); font-size:14px } img { display:block; max-width:100%; height:auto; margin:16px auto 0 }
.scroll { overflow-x:auto } table { border-collapse:collapse; margin:16px 0 4px; font-variant-numeric:tabular-nums }
th,td { padding:6px 16px 6px 0; text-align:right; border-bottom:1px solid var(--line); white-space:nowrap }
th { color:var(--soft); font-weight:600; font-size:14px } th:first-child,td:first-child { text-align:left }
tr.mark td { font-weight:650; color:var(--accent) } figcaption { color:var(--soft); font-size:14px; text-align:center }
figure { margin:0 } code,pre { font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace }
pre { background:var(--ground); border-radius:8px; padding:12px; overflow:auto; max-height:360px }
summary { cursor:pointer; color:var(--soft) }
"""


@dataclass(frozen=True)
class Table:
    """Rows of text; ``marked`` rows stand out."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    marked: frozenset[int] = frozenset()

    def as_html(self) -> str:
        """The table's markup."""
        head = "".join(f"<th>{html.escape(cell)}</th>" for cell in self.header)
        body = "".join(
            f"<tr{' class=mark' if i in self.marked else ''}>"
            + "".join(f"<td>{html.escape(cell)}</td>" for cell in row)
            + "</tr>"
            for i, row in enumerate(self.rows)
        )
        return f"<div class=scroll><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"

    def as_markdown(self) -> str:
        """The same for a page of Markdown."""
        rows = [self.header, ["---"] * len(self.header), *self.rows]
        lines = ["| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in rows]
        lines[1] = "|" + "---|" * len(self.header)
        return "\n".join(lines)

    def as_text(self) -> str:
        """The same for a terminal."""
        cells = [list(self.header), *map(list, self.rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.header))]
        lines = [
            "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
            for row in cells
        ]
        return "\n".join([lines[0], "─" * len(lines[0]), *lines[1:]])


@dataclass
class Report:
    """A page that grows section by section."""

    title: str
    lead: str
    cards: list[tuple[str, str]] = field(default_factory=list)
    _sections: list[str] = field(default_factory=list)

    def add(self, heading: str, text: str, *parts: Table | tuple[Figure, str]) -> None:
        """A section with tables and figures; a figure comes with its caption."""
        inner = [f"<h2>{html.escape(heading)}</h2><p>{html.escape(text)}</p>"]
        for part in parts:
            if isinstance(part, Table):
                inner.append(part.as_html())
            else:
                figure, caption = part
                alt = html.escape(caption, quote=True)
                inner.append(
                    f'<figure><img src="{as_data_uri(figure)}" alt="{alt}"><figcaption>{alt}</figcaption></figure>'
                )
        self._sections.append(f"<section>{''.join(inner)}</section>")

    def add_provenance(self, command: str, settings: dict[str, Any]) -> None:
        """How the page was made: command, versions, settings."""
        made_with = ", ".join(f"{name} {version}" for name, version in versions().items())
        self._sections.append(
            f"<section><h2>How this page was made</h2><p><code>{html.escape(command)}</code></p>"
            f"<p>{html.escape(made_with)}</p><details><summary>All settings</summary>"
            f"<pre>{html.escape(json.dumps(settings, indent=2))}</pre></details></section>"
        )

    def write(self, path: Path) -> None:
        """The whole page in one file."""
        cards = "".join(
            f"<div class=card><b>{html.escape(value)}</b><span>{html.escape(label)}</span></div>"
            for value, label in self.cards
        )
        page = (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(self.title)}</title>'
            f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head><body>'
            f"<main><h1>{html.escape(self.title)}</h1><p class=lead>{html.escape(self.lead)}</p>"
            f"<div class=cards>{cards}</div>{''.join(self._sections)}</main></body></html>\n"
        )
        write_atomically(path, page.encode())
