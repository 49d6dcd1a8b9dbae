"""Rows chosen by their labels, and scores compared with labels, for `nrf detect`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nrf.errors import InputError


def normal_rows(path: Path, table: Any, label: str, normal: str) -> Any:
    """The rows with that label, without the label."""
    from nrf.detect.tables.texts import label_is

    chosen = label_is(table[label], normal)
    if not chosen.any():
        known = sorted({str(v) for v in table[label].unique().to_pylist()})
        raise InputError(f"{path}: no row has {label} = {normal}; there are {', '.join(map(repr, known[:8]))}")
    return table.filter(chosen).drop_columns([label])


def measures(scores: Any, truth: Any, flagged: Any) -> list[tuple[str, str]]:
    """How well scores and flags agree with what is true."""
    from sklearn.metrics import average_precision_score

    from nrf.metrics import auroc

    hits, alarms = int((flagged & truth).sum()), int(flagged.sum())
    precision = hits / alarms if alarms else None
    recall = hits / int(truth.sum())
    found = {
        "AUROC": auroc(scores, truth.astype(int)),
        "average precision": float(average_precision_score(truth, -scores)),
        "precision": precision,
        "recall": recall,
        "F1": 2 * hits / (alarms + int(truth.sum())),
        "false-alarm rate": int((flagged & ~truth).sum()) / int((~truth).sum()),
    }
    return [(name, "none flagged" if value is None else f"{value:.4f}") for name, value in found.items()]
