"""The service described for programs: `/openapi.json`, with the columns of the model and examples that work."""

from __future__ import annotations

import copy
import csv
import io
from typing import Any

from nrf.errors import needs
from nrf.serve.answers import example_row
from nrf.serve.bodies import ARROW, CSV, JSON, PARQUET
from nrf.serve.limits import Refused
from nrf.serve.served import Models, Served

with needs("serve", "nrf serve"):
    from pydantic import BaseModel

VALUE: dict[str, Any] = {"type": ["number", "string", "boolean", "null"]}


class _Problem(BaseModel):
    message: str
    columns: dict[str, str] | None = None


class ErrorAnswer(BaseModel):
    """What is wrong, and what to do."""

    error: _Problem


class _Rule(BaseModel):
    kind: str
    rate: float
    score: float | None
    text: str


class ScoreAnswer(BaseModel):
    """Scores of rows: high = normal."""

    model: str
    n: int
    scores: list[float]
    p_values: list[float]
    log_density: list[float | None] | None


class _Series(BaseModel):
    name: str
    e_value: float
    peak: float
    alarm: bool
    alarm_row: int | None
    alarm_time: str | None


class DriftAnswer(BaseModel):
    """Evidence that what was scored is no longer like the calibration rows; 1/level raises the alarm."""

    model: str
    n: int
    e_value: float
    peak: float
    alarm: bool
    level: float
    waiting: int
    score: _Series
    columns: list[_Series]
    history: list[tuple[int, float]]


class PredictAnswer(BaseModel):
    """Rows that are flagged, and by which rule."""

    model: str
    n: int
    scores: list[float]
    p_values: list[float]
    anomaly: list[bool]
    flagged: int
    rule: _Rule


Cell = float | str | bool | None


class _Contribution(BaseModel):
    column: str
    value: Cell
    typical: Cell
    contribution: float | None
    reason: str | None


class _Counterfactual(BaseModel):
    reached: bool
    score: float | None
    changes: list[dict[str, Cell]]


class _Explained(BaseModel):
    score: float | None
    p_value: float | None
    anomaly: bool
    contributions: list[_Contribution]
    counterfactual: _Counterfactual | None
    nearest: list[dict[str, Cell]] | None


class ExplainAnswer(BaseModel):
    """Why rows score as they do."""

    model: str
    explanations: list[_Explained]


class _Column(BaseModel):
    name: str
    kind: str
    found: str
    needed: bool


class _Calibration(BaseModel):
    n: int
    quantiles: list[float]
    scores: list[float]


class ModelAnswer(BaseModel):
    """One model."""

    name: str
    digest: str
    loaded_at: str
    columns: list[_Column]
    training: dict[str, Any]
    health: dict[str, float | None] | None
    threshold: _Rule
    calibration: _Calibration
    limits: dict[str, float]
    card: str | None


class _Listed(BaseModel):
    name: str
    loaded_at: str
    digest: str
    problem: str | None = None


class ModelsAnswer(BaseModel):
    """All models."""

    models: list[_Listed]


class HealthAnswer(BaseModel):
    """Whether the service works."""

    status: str
    models: int
    version: str
    outdated: list[str] | None = None


ANSWERS: dict[str, tuple[type[BaseModel] | None, str]] = {
    "/score": (ScoreAnswer, "Score rows: high = normal"),
    "/predict": (PredictAnswer, "Flag rows"),
    "/explain": (ExplainAnswer, "Explain rows"),
    "/model": (ModelAnswer, "Describe a model"),
    "/drift": (DriftAnswer, "Say whether what was scored has changed"),
    "/models": (ModelsAnswer, "List the models"),
    "/health": (HealthAnswer, "Say whether the service works"),
    "/metrics": (None, "Counters for Prometheus"),
}
RATE = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
PARAMETERS: dict[str, tuple[dict[str, Any], str]] = {
    "model": ({"type": "string"}, "Name of the model; needed if there are several and none is called default"),
    "log_density": ({"type": "boolean"}, "Whether to give the log-density in nats, which takes longer"),
    "fdr": (RATE, "False discovery rate over the rows of this request, in place of a threshold"),
    "false_alarm_rate": (RATE, "Share of normal rows that may be flagged, in place of the model's rule"),
}
OF_PATH = {
    "/score": ("model", "log_density"),
    "/predict": ("model", "fdr", "false_alarm_rate"),
    "/explain": ("model",),
    "/model": ("model",),
    "/drift": ("model",),
}
ERRORS = {
    400: "The body cannot be read",
    404: "There is no such model",
    408: "The body did not arrive in time",
    413: "Too many rows or bytes",
    415: "Another kind of body",
    422: "The rows or parameters do not fit",
    429: "Too many requests at a time",
    503: "No answer in time",
}


def about(secured: bool) -> str:
    """The text at the head of the description."""
    token = " Send `Authorization: Bearer TOKEN`." if secured else ""
    return f"Scores, decisions and explanations of saved detectors. High scores are normal rows.{token}"


def described_as(path: str, secured: bool) -> dict[str, Any]:
    """The arguments by which FastAPI describes an address."""
    answer, summary = ANSWERS[path]
    takes_rows = path in ("/score", "/predict", "/explain")
    responses: dict[int | str, dict[str, Any]] = {
        200: {"model": answer, "description": "The answer"}
        if answer is not None
        else {"description": "The counters", "content": {"text/plain": {"schema": {"type": "string"}}}}
    }
    wrong = ERRORS if takes_rows else {k: v for k, v in ERRORS.items() if k in (400, 404, 422)}
    if secured:
        wrong = wrong | {401: "The token is missing or wrong"}
    responses |= {status: {"model": ErrorAnswer, "description": text} for status, text in sorted(wrong.items())}
    extra: dict[str, Any] = {
        "parameters": [
            {"name": name, "in": "query", "required": False, "schema": schema, "description": text}
            for name in OF_PATH.get(path, ())
            for schema, text in [PARAMETERS[name]]
        ]
    }
    if takes_rows:
        extra["requestBody"] = {"required": True, "content": {}}
    if secured and path != "/health":
        extra["security"] = [{"token": []}]
    return {"summary": summary, "response_model": None, "responses": responses, "openapi_extra": extra}


def completed(schema: dict[str, Any], models: Models, secured: bool) -> dict[str, Any]:
    """The description with the columns of the model that answers if a request names none.

    Args:
        schema: The description that FastAPI makes.
        models: The models that are served now.
        secured: Whether a token is needed.
    """
    found = copy.deepcopy(schema)
    parts = found.setdefault("components", {})
    if secured:
        parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    try:
        model: Served | None = models.find(None)
    except Refused:
        model = None
    example = {} if model is None else {k: v for k, v in example_row(model).items()}
    parts["schemas"]["Row"] = _row_schema(model)
    parts["schemas"]["Rows"] = {"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/Row"}}
    for path in ("/score", "/predict", "/explain"):
        found["paths"][path]["post"]["requestBody"]["content"] = _bodies(example)
    return found


def _row_schema(model: Served | None) -> dict[str, Any]:
    if model is None:
        return {"type": "object", "minProperties": 1, "additionalProperties": VALUE}
    properties = {}
    for column in model.reader.schema.columns:
        kinds = {"numeric": "number", "boolean": "boolean", "categorical": "string", "datetime": "string"}
        kind = kinds.get(column.table_kind)
        properties[column.name] = VALUE if kind is None else {"type": [kind, "null"]}
        if column.table_kind == "datetime":
            properties[column.name] |= {"format": "date-time"}
    return {
        "type": "object",
        "properties": properties,
        "required": [column.name for column in model.reader.schema.kept_columns],
        "additionalProperties": False,
    }


def _bodies(example: dict[str, Any]) -> dict[str, Any]:
    by_name = {
        "type": "object",
        "properties": {"rows": {"$ref": "#/components/schemas/Rows"}},
        "required": ["rows"],
        "additionalProperties": False,
    }
    by_place = {
        "type": "object",
        "properties": {
            "columns": {"type": "array", "items": {"type": "string"}, "minItems": 1, "uniqueItems": True},
            "rows": {"type": "array", "minItems": 1, "items": {"type": "array", "items": VALUE}},
        },
        "required": ["columns", "rows"],
        "additionalProperties": False,
    }
    content: dict[str, Any] = {
        JSON: {"schema": {"anyOf": [by_name, by_place]}},
        CSV: {"schema": {"type": "string"}},
        PARQUET: {"schema": {"type": "string", "format": "binary"}},
        ARROW: {"schema": {"type": "string", "format": "binary"}},
    }
    if example:
        content[JSON]["examples"] = {
            "rows": {"summary": "Rows by name", "value": {"rows": [example]}},
            "columns": {
                "summary": "Names once, then values",
                "value": {"columns": list(example), "rows": [list(example.values())]},
            },
        }
        content[CSV]["examples"] = {"rows": {"summary": "A header and rows", "value": _csv_text(example)}}
    return content


def _csv_text(example: dict[str, Any]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(example)
    writer.writerow(["" if value is None else value for value in example.values()])
    return out.getvalue()
