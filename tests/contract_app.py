"""A small service that keeps the HTTP contract of `nrf serve`, with real detectors behind it, for tests of the page."""

from __future__ import annotations

import math
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

import nrf
from nrf import NRFDetector
from nrf.detect.tables.files import batches
from nrf.errors import InputError
from nrf.serve.runs import PAGE, POLICY


def finite(values: Any) -> list[float | None]:
    return [float(v) if math.isfinite(v) else None for v in values]


class RefusedError(Exception):
    def __init__(self, status: int, message: str, columns: dict[str, str] | None = None) -> None:
        self.status, self.error = status, {"message": message} | ({"columns": columns} if columns else {})


def plain(value: Any) -> Any:
    """A value of an explanation as JSON."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else str(value)


def contract_app(
    models: dict[str, NRFDetector], *, token: str | None = None, max_rows: int = 1000, max_bytes: int = 1 << 20,
    card: str = "", drift: dict[str, Any] | None = None, trouble: list[int] | None = None,
) -> Starlette:  # fmt: skip
    """The application.

    Args:
        models: Detectors by name.
        token: What must be shown, if anything.
        max_rows: Rows of a request.
        max_bytes: Bytes of a request.
        card: Model card of all of them.
        drift: The answer of /drift; 404 if there is none.
        trouble: Statuses to answer the next POSTs with, the first one first; emptied on the way.
    """

    def chosen(request: Request) -> tuple[str, NRFDetector]:
        if token is not None and request.headers.get("authorization") != f"Bearer {token}":
            raise RefusedError(401, "a token is needed")
        name = request.query_params.get("model") or next(iter(models))
        if name not in models:
            raise RefusedError(404, f"there is no model {name!r}")
        return name, models[name]

    async def table(request: Request, detector: NRFDetector) -> Any:
        body = await request.body()
        assert request.headers["content-type"] == "text/csv"
        if trouble:
            status = trouble.pop(0)
            raise RefusedError(status, f"trouble {status} for a test")
        if len(body) > max_bytes:
            raise RefusedError(413, f"the body has more than {max_bytes} bytes")
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            path = Path(folder) / "rows.csv"
            path.write_bytes(body)
            schema = detector.encoder_
            try:
                warnings.simplefilter("ignore", UserWarning)  # that a separator is no comma
                parts = [part.table for part in batches(schema, path, known=detector.file_columns_)]
            except InputError as error:
                message = str(error).replace(str(path), "the rows")
                wrong = {name: message for name in schema.names if f"'{name}'" in message}
                raise RefusedError(422, "the rows do not fit the model" if wrong else message, wrong) from error
        import pyarrow as pa

        rows = pa.concat_tables(parts)
        if len(rows) > max_rows:
            raise RefusedError(413, f"{len(rows)} rows, and {max_rows} are taken at once")
        return rows

    async def listing(request: Request) -> Response:
        chosen(request)
        return JSONResponse(
            {"models": [{"name": n, "loaded_at": "2026-01-05T08:00:00Z", "digest": "0f" * 32} for n in models]}
        )

    async def model(request: Request) -> Response:
        name, detector = chosen(request)
        rule, scores = detector.threshold_rule_, detector.calibration_.scores
        columns = [
            {"name": c.name, "kind": c.summary[0], "found": c.summary[1], "needed": c.kept}
            for c in detector.encoder_.columns
        ]
        return JSONResponse(
            {
                "name": name, "digest": "0f" * 32, "columns": columns, "card": card, "health": None,
                "training": {"rows": 4 * len(scores), "calibration_rows": len(scores), "field": "product",
                             "created": "2026-01-05T08:00:00Z"},
                "threshold": {"kind": rule.kind, "rate": rule.rate, "score": finite([rule.threshold])[0],
                              "text": str(rule)},
                "calibration": {"n": len(scores), "quantiles": finite(np.quantile(scores, np.linspace(0, 1, 101))),
                                "scores": finite(scores[:: max(1, len(scores) // 2000)])},
                "limits": {"max_rows": max_rows, "max_bytes": max_bytes, "max_explained": 20, "seconds": 60,
                           "concurrency": 2},
            }
        )  # fmt: skip

    async def predict(request: Request) -> Response:
        name, detector = chosen(request)
        rows = await table(request, detector)
        scores = detector.score_samples(rows)
        anomaly = (detector.predict(rows) < 0).tolist()
        rule = detector.threshold_rule_
        return JSONResponse(
            {
                "model": name, "n": len(scores), "scores": finite(scores), "p_values": finite(detector.p_values(rows)),
                "anomaly": anomaly, "flagged": sum(anomaly),
                "rule": {"kind": rule.kind, "rate": rule.rate, "score": finite([rule.threshold])[0], "text": str(rule)},
            }
        )  # fmt: skip

    async def explain(request: Request) -> Response:
        name, detector = chosen(request)
        found = []
        rows = await table(request, detector)
        for row, why in zip(rows.to_pylist(), detector.explain(rows), strict=True):
            parts = sorted(why.contributions.items(), key=lambda part: part[1])
            found.append(
                {
                    "score": why.score, "p_value": why.p_value, "anomaly": why.is_anomaly,
                    "contributions": [
                        {"column": c, "value": plain(row.get(c)), "typical": plain(why.revised.get(c)),
                         "contribution": -part}
                        for c, part in parts
                    ],
                    "counterfactual": {
                        "reached": why.reached, "score": why.revised_score,
                        "changes": [
                            {"column": c.feature, "from": plain(c.value), "to": plain(c.typical)} for c in why.changes
                        ],
                    },
                    "nearest": [{c: plain(v) for c, v in near.items()} for near in why.neighbours[:3]] or None,
                }
            )  # fmt: skip
        return JSONResponse({"model": name, "explanations": found})

    async def monitor(request: Request) -> Response:
        chosen(request)
        if drift is None:
            raise RefusedError(404, "there is no monitor")
        return JSONResponse(drift)

    async def page(request: Request) -> Response:
        return FileResponse(PAGE / "detect.html", headers=POLICY)

    async def health(request: Request) -> Response:
        return JSONResponse({"status": "ok", "models": len(models), "version": nrf.__version__})

    def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, RefusedError)
        headers = {"Retry-After": "1"} if error.status == 429 else None
        return JSONResponse({"error": error.error}, error.status, headers=headers)

    routes = [
        Route("/", page), Route("/health", health), Route("/models", listing), Route("/model", model),
        Route("/drift", monitor), Route("/predict", predict, methods=["POST"]),
        Route("/explain", explain, methods=["POST"]), Mount("/page", StaticFiles(directory=PAGE)),
    ]  # fmt: skip
    return Starlette(routes=routes, exception_handlers={RefusedError: refused})


def real_app(
    models: dict[str, NRFDetector], folder: Path, *, token: str | None = None, max_rows: int = 1000,
    max_bytes: int = 1 << 20,
) -> Any:  # fmt: skip
    """The service itself, of detectors that are saved in a folder first."""
    from nrf.serve.app import detection_app
    from nrf.serve.limits import Limits
    from nrf.serve.served import Models

    limits = Limits(max_rows=max_rows, max_bytes=max_bytes, seconds=300)  # a busy machine takes its time
    for name, detector in models.items():
        detector.save(folder / name)
    return detection_app(Models(folder=folder), limits=limits, token=token)
