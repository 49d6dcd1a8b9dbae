"""The service does what its description says, whatever is sent: schemathesis makes requests of the description."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable

from nrf.serve.app import detection_app
from nrf.serve.limits import Limits
from nrf.serve.served import Models
from some_services import fitted

schemathesis = pytest.importorskip("schemathesis")

PATHS = ("/score", "/predict", "/explain", "/model", "/drift", "/models", "/health", "/metrics")


@pytest.fixture(scope="module")
def described(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "numbers"
    fitted("numbers").save(folder)
    app = detection_app(Models(folder), limits=Limits(max_explained=2, seconds=300), drift_level=0.01)
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    return {operation.path: operation for operation in (found.ok() for found in schema.get_all_operations())}


def send_many(operation, n: int) -> list[int]:
    """Send requests, good and bad ones, and hold each answer against the description; their statuses."""
    checks, statuses = schemathesis.checks, []
    held = [
        checks.not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
    ]  # not that whatever breaks the description is refused: levels may come as text or as numbers
    modes = schemathesis.GenerationMode

    for mode in (modes.POSITIVE, modes.NEGATIVE):

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(max_examples=n, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
        def run(case) -> None:
            answer = case.call_and_validate(checks=held, timeout=300)
            statuses.append(answer.status_code)

        try:
            run()
        except Unsatisfiable:  # there is nothing to get wrong where nothing is sent
            assert mode is modes.NEGATIVE
    return statuses


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
def test_the_service_keeps_to_its_description(described, path):
    assert set(described) == set(PATHS)
    statuses = send_many(described[path], 5 if path == "/explain" else 40)
    assert 200 in statuses
    assert 500 not in statuses


def test_a_broken_promise_would_be_noticed(described, monkeypatch):
    monkeypatch.setattr(Models, "describe", lambda self: [{"name": "without the rest"}])
    with pytest.raises(BaseExceptionGroup) as caught:
        send_many(described["/models"], 2)
    assert "is a required property" in str(caught.value.exceptions[0])
