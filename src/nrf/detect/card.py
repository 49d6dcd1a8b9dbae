"""The model card of a detector: one page of Markdown on what it was fitted to, what it promises and what it stores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nrf.detect.fitted import Fitted, fitted_of
from nrf.detect.storage import CARD, CARD_MARK
from nrf.detect.windows import Windows
from nrf.errors import printable
from nrf.fields import DetectionField
from nrf.files import write_atomically

if TYPE_CHECKING:
    from nrf.detect.detector import NRFDetector

__all__ = ["CARD", "model_card", "write_card"]

MOST_COLUMNS = 100
"""Maximum number of columns that get a line each."""


def write_card(detector: NRFDetector, folder: str | Path) -> Path:
    """Write the card to the folder of a saved detector; saving another detector there removes it."""
    path = Path(folder) / CARD
    write_atomically(path, model_card(detector).encode())
    return path


def model_card(detector: NRFDetector | Fitted) -> str:
    """The model card of a fitted detector, as Markdown.

    All of it is read from the record of the fit, so the card of a detector that was saved and loaded is the same. It
    names columns and their ranges: read it before you hand it on.
    """
    fitted = fitted_of(detector)
    keeps = isinstance(detector, Fitted) or bool(detector.keep_examples)
    sections = {
        "What it is": _what(fitted),
        "Data": _data(fitted),
        "Columns": _columns(fitted),
        "Threshold and promise": _promise(fitted),
        "Health": _health(fitted),
        "What it stores and reveals": _stores(fitted, keeps),
        "Limits": _limits(fitted),
        "Made with": _provenance(fitted),
    }
    parts = [CARD_MARK, "# Model card: an anomaly detector", *_sections(sections)]
    return "\n\n".join(parts) + "\n"


def _sections(sections: dict[str, list[str]]) -> Iterator[str]:
    for heading, lines in sections.items():
        yield f"## {heading}"
        yield "\n".join(lines)


def _field(fitted: Fitted) -> DetectionField | None:
    potential = fitted.replicas.module("potential")
    return potential if isinstance(potential, DetectionField) else None


def _what(fitted: Fitted) -> list[str]:
    field, count = _field(fitted), fitted.replicas.count
    if field is None:
        kind = "a network learned by maximum likelihood from revised samples (an inclusive neural random field)"
    elif field.neighbours is None:
        kind = "a density: a mixture of Gaussians"
    else:
        kind = "a product of two fields: distances to the nearest training rows, and a mixture of Gaussians"
    if field is not None and fitted.n_iter:
        kind += f", with a network around the mixture ({fitted.n_iter} iterations)"
    lines = [f"It gives each row a score; high = normal. The score is the potential of {kind}."]
    if count > 1:
        lines.append(f"It is the mean of {count} models.")
    windows = fitted.reader.features
    if isinstance(windows, Windows):
        order = f"ordered by {_name(windows.time)}" if windows.time is not None else "in the order given"
        groups = f", for each {_name(windows.group)} apart" if windows.group is not None else ""
        which = "mean" if windows.how == "mean" else "lowest"
        lines.append(
            f"It sees windows of {windows.size} rows {order}{groups}. A row's score is the {which} of the windows that "
            "hold it."
        )
    elif fitted.reader.features is not None:
        lines.append(f"Rows go through a feature step first: {type(fitted.reader.features).__name__}.")
    return [" ".join(lines)]


def _data(fitted: Fitted) -> list[str]:
    reader, file, n_rows = fitted.reader, fitted.provenance.file, fitted.provenance.n_rows
    lines = [f"- Rows: {'not recorded' if n_rows is None else n_rows}, trusted to be normal, or nearly all"]
    if reader.pixels is not None:
        lines.append(f"- Images of the shape {' × '.join(map(str, reader.pixels.shape))}")
    else:
        lines.append(f"- Columns: {fitted.n_features_in}")
    if file.label is not None:
        lines.append(f"- Rows were chosen by the label {_name(file.label)}, which is no feature")
    for what, names in (("Names of rows, copied to the scores", file.ids), ("Left out by request", file.dropped)):
        if names:
            lines.append(f"- {what}: {', '.join(map(_name, names))}")
    return lines


def _columns(fitted: Fitted) -> list[str]:
    encoder = fitted.reader.encoder
    if encoder is None:
        return ["It works on pixels, and has no columns."]
    found = [(column.name, *column.summary) for column in encoder.columns]
    kinds = Counter(kind for _, kind, _ in found)
    lines = [", ".join(f"{count} × {kind}" for kind, count in kinds.items()) + f"; {encoder.n_outputs} encoded.", ""]
    lines += ["| column | kind | found |", "|---|---|---|"]
    for name, kind, detail in found[:MOST_COLUMNS]:
        lines.append(f"| {_in_table(_name(name))} | {kind} | {_in_table(_text(detail))} |")
    if len(found) > MOST_COLUMNS:
        lines += ["", f"and {len(found) - MOST_COLUMNS} more."]
    return lines


def _promise(fitted: Fitted) -> list[str]:
    rule = fitted.rule
    percent = f"{100 * rule.rate:g} %"
    lines = [f"`{rule}`", ""]
    if rule.kind == "contamination":
        lines.append(f"The threshold flags {percent} of the rows that set it. It says nothing about false alarms.")
    elif rule.flags_nothing:
        lines.append("There are too few calibration rows for this rate, so nothing is flagged.")
    elif rule.calibrated_on.startswith("training rows"):
        lines.append(
            "No row could be held out: the threshold comes from training rows, and new normal rows are flagged more "
            "often than that. There is no promise."
        )
    elif rule.in_sequence:
        lines.append(
            f"About {percent} of the rows of a later normal stretch are flagged if it is like the held-out ones. Rows "
            "of a series depend on each other, so this is an aim and no guarantee: alarms come in runs, and a slow "
            "change of level makes them more."
        )
    else:
        lines.append(
            f"A new normal row is flagged with a probability of at most {percent}, on average over calibration sets of "
            f"{rule.n_calibration} rows. This needs no good model, but new normal rows must be drawn like the "
            "calibration rows: it ends where the data drifts."
        )
    lines.append("How many anomalies are found is not promised by anything.")
    return lines


def _health(fitted: Fitted) -> list[str]:
    if not fitted.health:
        return ["Nothing was measured: there were too few held-out rows."]
    words = {
        "synthetic_auroc": "AUROC of held-out normal rows against synthetic anomalies made of them",
        "untrained_synthetic_auroc": "the same before training",
        "strength": "share of the network that counts",
        "held_out_gain": "nats per row that the network adds",
        "held_out_gain_error": "standard error of that",
    }
    lines = [f"- {words.get(name, name)}: {value:.4g}" for name, value in fitted.health.items()]
    return [*lines, "", "Synthetic anomalies are not those of the world: a help to compare by, no forecast."]


def _stores(fitted: Fitted, keeps: bool) -> list[str]:
    field, lines = _field(fitted), []
    if field is not None and field.neighbours is not None:
        count = int(field.neighbours.anchors.shape[-2])
        what = "windows of training rows" if isinstance(fitted.reader.features, Windows) else "training rows"
        lines.append(
            f"- **{count} {what}**, encoded, are part of the field (its anchors). Whoever has the files can decode "
            'them; `field="density"` keeps none.'
        )
    else:
        lines.append("- No training row is part of the field.")
    if keeps and fitted.calibrated.rows is not None:
        lines.append(f"- The {len(fitted.calibrated.rows)} calibration rows, where it is saved with `keep_examples`.")
    lines.append(f"- The scores of {len(fitted.calibrated.scores.scores)} calibration rows.")
    if fitted.reader.encoder is not None:
        lines.append(
            "- Of each column its name, range and scale, of heavy-tailed ones up to 256 values, of categories the "
            "levels (hashed ones as digests). This card names columns and ranges."
        )
    lines.append("- A file that holds rows can be read by its owner only. Nothing is encrypted.")
    return lines


def _limits(fitted: Fitted) -> list[str]:
    lines = [
        "- It finds what its columns show, and what is rare is not always wrong. Have flagged rows looked at.",
        "- What was abnormal and frequent in the training rows counts as normal.",
        "- Scores of two detectors cannot be compared; p-values can.",
    ]
    if fitted.provenance.n_rows is not None and fitted.provenance.n_rows < 500:
        lines.append(f"- {fitted.provenance.n_rows} rows are few: another sample may give another detector.")
    if fitted.warnings:
        lines += [f"- The fit warned: {_text(text)}" for text in fitted.warnings]
    return lines


def _provenance(fitted: Fitted) -> list[str]:
    made = fitted.provenance
    lines = [f"- {name} {version}" for name, version in made.versions.items()]
    return [*lines, f"- seed of the split into training and calibration rows: {made.split_seed}"]


def _name(value: Any) -> str:
    """A name as inline code, so that nothing in it is markup."""
    return f"`{_in_line(value).replace('`', 'ʼ')}`"


def _text(value: Any) -> str:
    """Text that is no markup."""
    return _in_line(value).replace("<", "&lt;")


def _in_line(value: Any) -> str:
    return " ".join(printable(str(value)).split())


def _in_table(text: str) -> str:
    return text.replace("|", "\\|")
