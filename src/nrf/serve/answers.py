"""The answers of a service: scores and explanations as JSON."""

from __future__ import annotations

import datetime as dt
import json
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.detect.calibration import ThresholdRule, false_discoveries, lowest_rate
from nrf.detect.explain import Explanation
from nrf.serve.limits import Limits, Refused
from nrf.serve.served import Floats, Served, in_utc

CALIBRATION_SCORES = 2000
"""Calibration scores that `/model` shows, at most."""


def as_json(content: Any) -> bytes:
    """Compact JSON; what is not finite must have become null before."""
    return json.dumps(content, separators=(",", ":"), allow_nan=False, default=plain).encode()


def plain(value: Any) -> Any:
    """A value of a table as a value of JSON."""
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, np.generic):
        return finite(value.item())
    return str(value)


def finite(value: Any) -> Any:
    """A number, or None where it is not finite."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def scored(model: Served, scores: Floats, log_density: Floats | None) -> dict[str, Any]:
    """The answer of `/score`."""
    return {
        "model": model.name,
        "n": len(scores),
        "scores": scores.tolist(),
        "p_values": model.p_values(scores).tolist(),
        "log_density": None if log_density is None else [finite(v) for v in log_density.tolist()],
    }


def predicted(model: Served, scores: Floats, fdr: float | None, rate: float | None) -> tuple[dict[str, Any], int]:
    """The answer of `/predict`, and how many rows are flagged.

    Args:
        model: The model.
        scores: Scores of the rows.
        fdr: False discovery rate over these rows, instead of a threshold.
        rate: False-alarm rate, instead of the model's rule.
    """
    p_values = model.p_values(scores)
    if fdr is not None:
        flags = false_discoveries(p_values, fdr)
        rule = _fdr_rule(fdr, len(model.detector.calibration_.scores))
    else:
        found = model.detector.fitted_.calibrated.rule(rate) if rate is not None else model.detector.threshold_rule_
        flags = scores < found.threshold
        rule = shown_rule(found)
    flagged = int(flags.sum())
    answer = {
        "model": model.name,
        "n": len(scores),
        "scores": scores.tolist(),
        "p_values": p_values.tolist(),
        "anomaly": np.asarray(flags, dtype=bool).tolist(),
        "flagged": flagged,
        "rule": rule,
    }
    return answer, flagged


def shown_rule(rule: ThresholdRule) -> dict[str, Any]:
    """Where a threshold comes from."""
    return {"kind": rule.kind, "rate": rule.rate, "score": finite(rule.threshold), "text": str(rule)}


def _fdr_rule(rate: float, n_calibration: int) -> dict[str, Any]:
    text = f"of the rows flagged in this request at most {100 * rate:g} % are expected to be normal"
    if 1 / (n_calibration + 1) > rate:
        text = (
            f"nothing is flagged: {n_calibration} calibration rows cannot keep a false discovery rate of {rate:g}, "
            f"only {lowest_rate(n_calibration):g} or more"
        )
    return {"kind": "false_discovery_rate", "rate": rate, "score": None, "text": text}


def explained_rows(model: Served, explanations: list[Explanation]) -> dict[str, Any]:
    """The answer of `/explain`."""
    return {"model": model.name, "explanations": [_explained(found) for found in explanations]}


def _explained(found: Explanation) -> dict[str, Any]:
    own = found.revised | {change.feature: change.value for change in found.changes}
    reasons = {change.feature: change.reason for change in found.changes}
    contributions = [
        {
            "column": name,
            "value": _cell(own.get(name)),
            "typical": _cell(found.revised.get(name)),
            "contribution": finite(0.0 - value),
            "reason": reasons.get(name),
        }
        for name, value in found.contributions.items()
    ]
    contributions.sort(key=lambda each: -(each["contribution"] or 0.0))
    changes = [{"column": c.feature, "from": _cell(c.value), "to": _cell(c.typical)} for c in found.changes]
    counterfactual = {"reached": found.reached, "score": finite(found.revised_score), "changes": changes}
    near = [{name: _cell(value) for name, value in row.items()} for row in found.neighbours]
    return {
        "score": finite(found.score),
        "p_value": finite(found.p_value),
        "anomaly": found.is_anomaly,
        "contributions": contributions,
        "counterfactual": counterfactual if found.changes else None,
        "nearest": near or None,
    }


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, str | bool | int):
        return value
    return finite(value) if isinstance(value, float) else plain(value)


def described(model: Served, limits: Limits) -> dict[str, Any]:
    """The answer of `/model`."""
    detector, schema = model.detector, model.reader.schema
    calibration = detector.calibration_.scores
    kept = np.linspace(0, len(calibration) - 1, min(len(calibration), CALIBRATION_SCORES)).round().astype(np.int64)
    quantiles: NDArray[np.float64] = np.percentile(calibration, np.arange(101))
    columns = [_column(column.name, *column.summary, needed=column.kept) for column in schema.columns]
    columns += [_column(name, "left out", "no feature", needed=False) for name in model.reader.known.names]
    return {
        "name": model.name,
        "digest": model.digest,
        "loaded_at": in_utc(model.loaded_at),
        "columns": columns,
        "training": {
            "rows": detector.fitted_.provenance.n_rows,
            "calibration_rows": len(calibration),
            "calibrated_on": detector.calibrated_on_,
            "field": model.field_kind,
            "models": detector.members_.count,
            "iterations": detector.n_iter_,
            "created": in_utc(model.created),
            "versions": dict(detector.fitted_.provenance.versions),
        },
        "health": None if detector.health_ is None else {k: finite(v) for k, v in detector.health_.items()},
        "threshold": shown_rule(detector.threshold_rule_),
        "calibration": {
            "n": len(calibration),
            "quantiles": quantiles.tolist(),
            "scores": calibration[kept].tolist(),
        },
        "limits": limits.shown(),
        "card": model.card,
    }


def _column(name: str, kind: str, found: str, *, needed: bool) -> dict[str, Any]:
    return {"name": name, "kind": kind, "found": found, "needed": needed}


def example_row(model: Served) -> dict[str, Any]:
    """A row of typical values, by column: for examples in the description of the service."""
    schema = model.reader.schema
    row = schema.decode_rounded(schema.snap(np.zeros(schema.n_outputs)))
    return {name: _cell(value) for name, value in row.items()}


def number_between_0_and_1(name: str, text: str) -> float:
    """A rate in a query."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < 1:
        raise Refused(422, f"{name} must be a number between 0 and 1, got {text[:40]!r}")
    return value
