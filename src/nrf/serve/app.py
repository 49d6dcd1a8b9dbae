"""The detection service: `nrf serve`. Scores, decisions and explanations of saved detectors over HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

from nrf._version import __version__
from nrf.errors import InputError, needs
from nrf.serve.answers import as_json, described, explained_rows, number_between_0_and_1, predicted, scored
from nrf.serve.asked import JSON, Asked, Handler, Reply, replied
from nrf.serve.batching import Batcher, Kind
from nrf.serve.bodies import KINDS
from nrf.serve.description import about, completed, described_as
from nrf.serve.guard import Guard
from nrf.serve.limits import Limits, Refused
from nrf.serve.metrics import Metrics
from nrf.serve.requested import Given
from nrf.serve.runs import PAGE
from nrf.serve.served import Floats, Models, Served
from nrf.serve.watches import Watches

with needs("serve", "nrf serve"):
    from fastapi import FastAPI
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import Response

Result = TypeVar("Result")

LARGE_BYTES = 1 << 16
"""Bodies with more bytes are read in another thread, so that small requests do not wait for them."""
WATCH_SECONDS = 1.0
"""Seconds between two checks of the folders of the models."""
DRIFT_SECONDS = 0.1
"""Seconds between two drift checks of the scored rows: short, since a check of many rows would delay answers."""
MEDIA = {".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
log = logging.getLogger("nrf.serve")


class Service:
    """The parts of a running service.

    Args:
        models: The models that are served.
        limits: Limits of requests.
        watch_seconds: Seconds between two checks of the folders.
        drift_level: Level of the drift monitors; None for no monitors.
    """

    def __init__(
        self,
        models: Models,
        limits: Limits,
        watch_seconds: float = WATCH_SECONDS,
        drift_level: float | None = None,
    ) -> None:
        self.models, self.limits, self.metrics = models, limits, Metrics()
        self.watches: Watches | None = None
        if drift_level is not None:
            self.watches = Watches(drift_level, self.metrics.drift, self.metrics.drift_passed_over)
        self._watch_seconds = watch_seconds
        models.on_load = self.metrics.loaded
        for model in models.served.values():
            self.metrics.started(model)
        take = None if self.watches is None else self.watches.take
        self.batcher = Batcher(self.metrics.batch, limits.seconds, take)

    @asynccontextmanager
    async def running(self, app: FastAPI) -> AsyncIterator[None]:
        """Watch the folders, and what is scored, as long as the service runs."""
        tasks = [self._every(self._watch_seconds, self.models.refresh, "the folders of models could not be looked at")]
        if self.watches is not None:
            look = partial(self.watches.work, lambda: self.batcher.busy)
            tasks.append(self._every(DRIFT_SECONDS, look, "the rows could not be looked at for drift"))
        running = [asyncio.create_task(task) for task in tasks]
        try:
            yield
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            self.batcher.close()

    @staticmethod
    async def _every(seconds: float, work: Callable[[], object], problem: str) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await asyncio.to_thread(work)
            except Exception:
                log.exception(problem)

    # ------------------------------------------------------------------------------------------------------- requests

    def model(self, asked: Asked, query: dict[str, str]) -> Served:
        """The model of a request, which keeps it until it is answered."""
        found = self.models.find(query.get("model"))
        asked.model = found.name
        return found

    async def rows(self, asked: Asked, model: Served) -> Given:
        """The rows of a request."""
        kind = _kind(asked)
        body = await self.limits.read(asked.header(b"content-length"), asked.parts())
        if len(body) <= LARGE_BYTES:
            return model.reader.read(kind, body, self.limits)
        return await self.apart(lambda: model.reader.read(kind, body, self.limits))

    async def scores(self, model: Served, given: Given) -> Floats:
        """Scores of the rows, within the time limit."""
        try:
            return await self.batcher.scores(model, given.frame)
        except InputError as error:
            raise Refused(422, str(error)) from error
        except TimeoutError:
            raise self._late() from None

    async def apart(self, work: Callable[[], Result], kind: Kind = "large") -> Result:
        """The result of large or slow work, within the time limit."""
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await self.batcher.apart(work, kind)
        except InputError as error:
            raise Refused(422, str(error)) from error
        except TimeoutError:
            raise self._late() from None

    def _late(self) -> Refused:
        late = f"there was no answer within {self.limits.seconds:g} s; send fewer rows, or try again later"
        return Refused(503, late, headers={"Retry-After": "5"})

    # -------------------------------------------------------------------------------------------------------- answers

    async def score(self, asked: Asked) -> Reply:
        """Score rows: high = normal."""
        query = asked.query("model", "log_density")
        dense = _flag("log_density", query.get("log_density", "false"))
        model = self.model(asked, query)
        given = await self.rows(asked, model)
        scores = await self.scores(model, given)
        density = await self.apart(lambda: model.log_density(given.frame)) if dense else None
        self.metrics.rows("/score", model.name, len(given))
        return Reply(as_json(scored(model, scores, density)))

    async def predict(self, asked: Asked) -> Reply:
        """Flag rows: by the model's rule, another false-alarm rate, or a false discovery rate over the request."""
        query = asked.query("model", "fdr", "false_alarm_rate")
        rates = {name: number_between_0_and_1(name, text) for name, text in query.items() if name != "model"}
        if len(rates) > 1:
            raise Refused(422, "give either fdr or false_alarm_rate, not both")
        model = self.model(asked, query)
        given = await self.rows(asked, model)
        scores = await self.scores(model, given)
        answer, flagged = predicted(model, scores, rates.get("fdr"), rates.get("false_alarm_rate"))
        self.metrics.rows("/predict", model.name, len(given))
        self.metrics.flagged(model.name, flagged)
        return Reply(as_json(answer))

    async def explain(self, asked: Asked) -> Reply:
        """Say why rows score as they do, and what would have to change for them to pass as normal."""
        model = self.model(asked, asked.query("model"))
        given = await self.rows(asked, model)
        most = self.limits.max_explained
        if len(given) > most:
            raise Refused(413, f"{len(given)} rows are too many to explain, at most {most} are taken")
        found = await self.apart(lambda: model.explain(given.table()), "slow")
        self.metrics.rows("/explain", model.name, len(given))
        return Reply(as_json(explained_rows(model, found)))

    async def describe(self, asked: Asked) -> Reply:
        """The model: columns, training, threshold, calibration, limits."""
        return Reply(as_json(described(self.model(asked, asked.query("model")), self.limits)))

    async def drift(self, asked: Asked) -> Reply:
        """Whether what was scored is still like the calibration rows, and which columns have moved."""
        model = self.model(asked, asked.query("model"))
        if self.watches is None:
            raise Refused(404, "drift is not watched here; start the service with --drift 0.01, say")
        return Reply(as_json(await asyncio.to_thread(self.watches.report, model)))

    async def list_models(self, asked: Asked) -> Reply:
        """All models by name."""
        asked.query()
        return Reply(as_json({"models": self.models.describe()}))

    async def health(self, asked: Asked) -> Reply:
        """Whether the service works; `degraded` while a model could not be replaced."""
        asked.query()
        problems = self.models.problems
        answer: dict[str, Any] = {"status": "degraded" if problems else "ok", "models": len(self.models.served)}
        # The reasons name folders: without a token only the names of the models are shown.
        return Reply(as_json(answer | {"version": __version__} | ({"outdated": sorted(problems)} if problems else {})))

    async def show_metrics(self, asked: Asked) -> Reply:
        """Counters for Prometheus."""
        asked.query()
        return Reply(self.metrics.text(), media="text/plain; version=0.0.4; charset=utf-8")

    @property
    def handlers(self) -> dict[tuple[str, str], Handler]:
        """The handlers by method and path."""
        return {
            ("POST", "/score"): self.score,
            ("POST", "/predict"): self.predict,
            ("POST", "/explain"): self.explain,
            ("GET", "/model"): self.describe,
            ("GET", "/drift"): self.drift,
            ("GET", "/models"): self.list_models,
            ("GET", "/health"): self.health,
            ("GET", "/metrics"): self.show_metrics,
        }


def detection_app(
    models: Models,
    *,
    limits: Limits | None = None,
    hosts: Sequence[str] = (),
    token: str | None = None,
    watch_seconds: float = WATCH_SECONDS,
    drift_level: float | None = None,
) -> Guard:
    """The ASGI application of the detection service.

    Args:
        models: The models that are served.
        limits: Limits of requests.
        hosts: Host names that a request may use; any if empty.
        token: Token that ``Authorization: Bearer`` must hold, if any.
        watch_seconds: Seconds between two checks of the folders of the models.
        drift_level: Level of the drift monitors; None for no monitors.
    """
    service = Service(models, limits or Limits(), watch_seconds, drift_level)
    secured = token is not None
    app = FastAPI(
        title="nrf serve",
        version=__version__,
        description=about(secured),
        docs_url=None,  # these pages would load scripts from other addresses
        redoc_url=None,
        openapi_url="/openapi.json",
        lifespan=service.running,
        redirect_slashes=False,
    )
    # The guard answers these itself; here they are described, and requests by other methods are refused.
    for (method, path), handler in service.handlers.items():
        app.api_route(path, methods=[method], **described_as(path, secured))(_routed(handler))
    _add_pages(app)
    plain = app.openapi
    app.openapi = lambda: completed(plain(), models, secured)  # type: ignore[method-assign]
    app.add_exception_handler(HTTPException, _http_error)
    return Guard(app, service.handlers, service.limits, service.metrics, hosts, token)


def _add_pages(app: FastAPI) -> None:
    """The page and its files; names are looked up in a listing, no path is made from them."""
    files = {path.name: path for path in sorted(PAGE.iterdir()) if path.suffix in MEDIA}

    async def page(asked: Asked) -> Reply:
        return Reply(files["detect.html"].read_bytes(), media=MEDIA[".html"])

    async def file(asked: Asked) -> Reply:
        path = files.get(asked.scope["path_params"]["name"])
        if path is None:
            raise Refused(404, "there is no file of that name")
        return Reply(path.read_bytes(), media=MEDIA[path.suffix])

    app.get("/", include_in_schema=False)(_routed(page))
    app.get("/page/{name}", include_in_schema=False)(_routed(file))


def _routed(handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    """A handler as FastAPI calls it."""

    async def endpoint(request: Request) -> Response:
        reply = await replied(handler, Asked(request.scope, request.receive))
        return Response(reply.body, reply.status, dict(reply.headers), reply.media)

    endpoint.__doc__ = handler.__doc__
    endpoint.__name__ = getattr(handler, "__name__", "endpoint")  # becomes the name of the operation
    return endpoint


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = {404: "there is nothing at this address; /openapi.json says what there is", 405: "use another method here"}
    refused = Refused(error.status_code, words.get(error.status_code, str(error.detail)), headers=error.headers)
    reply = Reply.refusal(refused)
    return Response(reply.body, reply.status, dict(reply.headers), reply.media)


def _kind(asked: Asked) -> str:
    """The kind of the body, by its header; nothing is guessed."""
    if (asked.header(b"content-encoding") or "identity").lower() != "identity":
        raise Refused(415, "compressed bodies are not taken; leave out Content-Encoding")
    given = asked.header(b"content-type") or ""
    if given == JSON:
        return given
    kind, _, rest = given.partition(";")
    kind, charset = kind.strip().lower(), rest.strip().lower().replace('"', "")
    if kind not in KINDS:
        raise Refused(415, f"Content-Type is {kind[:60]!r}; it must be one of {', '.join(KINDS)}")
    if charset.startswith("charset=") and charset not in ("charset=utf-8", "charset=us-ascii", "charset=utf8"):
        raise Refused(415, f"{charset[:40]} is not read; send UTF-8")
    return kind


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise Refused(422, f"{name} must be true or false, got {text[:40]!r}")
    return text.lower() == "true"
