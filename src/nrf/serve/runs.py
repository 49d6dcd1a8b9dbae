"""A read-only view of run folders for the browser: `nrf runs DIR`.

Names in a request are looked up in a listing of the folder; no path is ever made from them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nrf.errors import CheckpointError, InputError, needs
from nrf.files import LOCK, is_abandoned
from nrf.training import RunFolder

with needs("serve", "a page of runs"):
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.requests import Request
    from starlette.responses import FileResponse, JSONResponse, Response
    from starlette.routing import Mount, Route
    from starlette.staticfiles import StaticFiles

PAGE = Path(__file__).parent / "page"
LOOPBACK = ("127.0.0.1", "localhost")
POINTS = 1000
"""Maximum number of points of a curve that are sent; the last one is always among them."""
POLICY = {"Content-Security-Policy": "default-src 'self'", "X-Content-Type-Options": "nosniff"}
FRESH = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def run_folders(root: Path) -> dict[str, RunFolder]:
    """The run folders directly in a folder, by name; or the folder itself, if it is a run folder."""
    if RunFolder(root).exists():
        return {root.resolve().name or "run": RunFolder(root)}
    with os.scandir(root) as entries:
        names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    return {name: RunFolder(root / name) for name in names if RunFolder(root / name).exists()}


def summary(name: str, run: RunFolder, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The entry of one run in a list of runs: preset, iterations, and whether it trains, is done, or was stopped."""
    step = int(rows[-1]["step"]) if rows else 0
    found: dict[str, Any] = {"name": name, "preset": None, "iterations": None, "step": step, "error": None}
    try:
        description = run.describe()
    except (CheckpointError, OSError) as error:
        return found | {"state": "damaged", "error": str(error)}
    config = description.get("config")
    train = config.get("train") if isinstance(config, dict) else None
    iterations = train.get("iterations") if isinstance(train, dict) else None
    if _is_training(run):
        state = "training"
    elif not isinstance(iterations, int):  # the length is given in epochs
        state = "ended"
    else:
        state = "done" if step >= iterations else "stopped"
    return found | {"preset": description.get("preset"), "iterations": iterations, "state": state}


def curves(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[list[float | None]]]:
    """Pairs of step and value for each metric; what is not finite is None, so that a chart shows a gap."""
    every = max(1, math.ceil(len(rows) / POINTS))
    kept = [row for i, row in enumerate(rows) if (len(rows) - 1 - i) % every == 0]
    found: dict[str, list[list[float | None]]] = {}
    for row in kept:
        for name, value in row.items():
            if name != "step" and isinstance(value, int | float) and not isinstance(value, bool):
                point = [row["step"], float(value) if math.isfinite(value) else None]
                found.setdefault(name, []).append(point)
    return found


def settings(run: RunFolder) -> dict[str, Any]:
    """The settings of a run, by dotted names, so that runs can be compared; empty if they cannot be read."""
    try:
        description = run.describe()
    except (CheckpointError, OSError):
        return {}
    return _flat({name: description[name] for name in ("config", "versions") if name in description})


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {name.removeprefix("config."): value}
    found: dict[str, Any] = {}
    for key, part in value.items():
        found |= _flat(part, f"{name}.{key}" if name else str(key))
    return found


def sample_pictures(run: RunFolder) -> dict[str, Path]:
    """Pictures of samples by file name, the oldest first."""
    folder = run.path / "samples"
    if folder.is_symlink() or not folder.is_dir():
        return {}
    with os.scandir(folder) as entries:
        names = sorted(e.name for e in entries if e.is_file(follow_symlinks=False) and e.name.endswith(".png"))
    return {name: folder / name for name in names}


def runs_app(root: Path | str, *, hosts: Sequence[str] = LOOPBACK) -> Starlette:
    """The ASGI application of the view of runs.

    Args:
        root: A folder of run folders, or one run folder.
        hosts: Host names that a request may use; another ``Host`` header is refused, so that no page of another site
            can read the runs. ``["*"]`` allows all.

    Raises:
        InputError: There is no such folder.
    """
    root = Path(root)
    if not root.is_dir():
        raise InputError(
            f"{root} is not a folder; give a folder of runs, such as the --out of `nrf train` or its parent"
        )

    def chosen(request: Request) -> tuple[str, RunFolder]:
        name = request.path_params["name"]
        folders = run_folders(root)
        if name not in folders:
            raise HTTPException(404, "there is no run of that name; /runs.json lists those there are")
        return name, folders[name]

    def listing(request: Request) -> Response:
        found = [summary(name, run, run.metrics()) for name, run in run_folders(root).items()]
        return JSONResponse({"runs": found}, headers=FRESH)

    def one(request: Request) -> Response:
        name, run = chosen(request)
        rows = run.metrics()
        found = summary(name, run, rows) | {"metrics": curves(rows), "samples": list(sample_pictures(run))}
        found["settings"] = settings(run)
        return JSONResponse(found, headers=FRESH)

    def picture(request: Request) -> Response:
        path = sample_pictures(chosen(request)[1]).get(request.path_params["file"])
        if path is None:
            raise HTTPException(404, "there is no picture of that name")
        return FileResponse(path, media_type="image/png", headers=FRESH)

    def page(request: Request) -> Response:
        return FileResponse(PAGE / "runs.html", headers=POLICY)

    routes = [
        Route("/", page),
        Route("/runs.json", listing),
        Route("/runs/{name}.json", one),
        Route("/runs/{name}/samples/{file}", picture),
        Mount("/page", StaticFiles(directory=PAGE)),
    ]
    middleware = [Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))]
    return Starlette(routes=routes, middleware=middleware, exception_handlers={HTTPException: _refused})


def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": {"message": error.detail}}, error.status_code, headers=FRESH)


def _is_training(run: RunFolder) -> bool:
    """Whether a living process holds the folder's lock."""
    try:
        return not is_abandoned(run.path / LOCK)
    except OSError:
        return False
