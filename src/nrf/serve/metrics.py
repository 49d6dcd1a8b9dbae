"""Metrics of a service, for Prometheus."""

from __future__ import annotations

from nrf.detect.drift import DriftState
from nrf.errors import needs
from nrf.serve.served import Served

with needs("serve", "nrf serve"):
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096, 16384, 65536)


class Metrics:
    """Counters of one service."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own, of_model, of_request = self.registry, ["model"], ["path", "model"]
        self._requests = Counter("nrf_requests", "Requests by answer", ["path", "model", "status"], registry=own)
        self._errors = Counter("nrf_errors", "Requests that were refused or failed", ["path", "status"], registry=own)
        self._seconds = Histogram("nrf_request_seconds", "Time to answer", of_request, buckets=SECONDS, registry=own)
        self._rows = Counter("nrf_rows", "Rows that were answered", of_request, registry=own)
        self._flagged = Counter("nrf_rows_flagged", "Rows that were flagged as anomalies", of_model, registry=own)
        self._batch_rows = Histogram("nrf_batch_rows", "Rows scored in one go", of_model, buckets=ROWS, registry=own)
        self._batch = Histogram("nrf_batch_requests", "Requests scored in one go", of_model, buckets=ROWS, registry=own)
        self._loads = Counter("nrf_model_loads", "Models loaded after the start", of_model, registry=own)
        self._failures = Counter(
            "nrf_model_load_failures", "New models that could not be loaded", of_model, registry=own
        )
        self._broken = Gauge(
            "nrf_model_outdated",
            "1 while the folder cannot be read and the model before it serves",
            of_model,
            registry=own,
        )
        self._loaded_at = Gauge(
            "nrf_model_loaded_timestamp_seconds", "When the model was loaded", of_model, registry=own
        )
        self._drift = Gauge(
            "nrf_drift_log10_evidence",
            "Evidence that the score, or a column, has moved; 1/level raises an alarm",
            ["model", "series"],
            registry=own,
        )
        self._drift_alarm = Gauge("nrf_drift_alarm", "1 since drift was found", of_model, registry=own)
        self._drift_rows = Gauge("nrf_drift_rows", "Rows that were looked at for drift", of_model, registry=own)
        self._drift_passed = Counter("nrf_drift_rows_passed_over", "Rows that were not watched for drift", registry=own)
        self.in_flight = Gauge("nrf_requests_in_flight", "Requests with rows under way", registry=own)
        self._children: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        ProcessCollector(registry=self.registry)

    def answered(self, path: str, model: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        key = path, model, status
        found = self._children.get(key)
        if found is None:  # looked up once: there are few, and each search takes time
            found = self._requests.labels(path, model, str(status)), self._seconds.labels(path, model)
            self._children[key] = found
        found[0].inc()
        found[1].observe(seconds)
        if status >= 400:
            self._errors.labels(path, str(status)).inc()

    def rows(self, path: str, model: str, n_rows: int) -> None:
        """Count answered rows."""
        self._rows.labels(path, model).inc(n_rows)

    def flagged(self, model: str, n_rows: int) -> None:
        """Count flagged rows."""
        self._flagged.labels(model).inc(n_rows)

    def batch(self, model: Served, n_requests: int, n_rows: int) -> None:
        """Count requests that were scored together."""
        self._batch.labels(model.name).observe(n_requests)
        self._batch_rows.labels(model.name).observe(n_rows)

    def drift_passed_over(self, n_rows: int) -> None:
        """Count rows that were not looked at for drift."""
        self._drift_passed.inc(n_rows)

    def drift(self, model: str, state: DriftState) -> None:
        """Show what a monitor has found."""
        for series in state.series:
            self._drift.labels(model, series.name).set(series.log10_e)
        self._drift_alarm.labels(model).set(state.alarm)
        self._drift_rows.labels(model).set(state.n)

    def started(self, model: Served) -> None:
        """Count a model that is served from the start."""
        self._loaded_at.labels(model.name).set(model.loaded_at.timestamp())
        self._broken.labels(model.name).set(0)

    def loaded(self, name: str, problem: str | None) -> None:
        """Count a change of a folder: its model was loaded, or could not be."""
        (self._loads if problem is None else self._failures).labels(name).inc()
        self._broken.labels(name).set(0 if problem is None else 1)
        if problem is None:
            self._loaded_at.labels(name).set_to_current_time()

    def text(self) -> bytes:
        """All metrics as Prometheus reads them."""
        found: bytes = generate_latest(self.registry)
        return found
