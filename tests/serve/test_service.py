"""Every address of the service, every kind of body, and what is counted."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import threading
import warnings

import httpx
import numpy as np
import pytest
import torch

from nrf.detect import NRFDetector
from nrf.detect.calibration import false_discoveries
from nrf.detect.card import model_card
from nrf.serve.app import detection_app
from nrf.serve.batching import SMALL_ROWS
from nrf.serve.limits import Limits
from nrf.serve.served import Models
from some_services import (
    BODIES,
    JSON,
    arrow_bytes,
    client,
    fitted,
    json_rows,
    message,
    mixed_table,
    number_table,
    pa,
    post,
)

ROUNDING = 1e-6
"""Scores depend on the rows beside them by rounding, here as in ``score_samples``."""
TABLES = {"mixed": mixed_table, "numbers": number_table}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for name in TABLES:
        fitted(name).save(folder / name)
    return folder


@pytest.fixture(scope="module")
def asked(saved):
    with client(Models(folder=saved)) as found:
        yield found


@pytest.mark.parametrize("n", [1, 7, SMALL_ROWS + 40])
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("which", TABLES)
def test_scores_are_those_of_the_detector_for_every_body(asked, which, body, n):
    table, (kind, written) = TABLES[which](n, seed=3), BODIES[body]
    answer = post(asked, f"/score?model={which}", written(table), kind)
    assert answer.status_code == 200, answer.text
    found, detector = answer.json(), fitted(which)
    assert found["scores"] == detector.score_samples(table).tolist()
    assert found["p_values"] == detector.p_values(table).tolist()
    assert (found["model"], found["n"], found["log_density"]) == (which, n, None)


@pytest.mark.parametrize("which", TABLES)
def test_the_log_density_is_there_if_it_is_asked_for(asked, which):
    table = TABLES[which](5, seed=4)
    found = post(asked, f"/score?model={which}&log_density=true", json_rows(table)).json()
    assert found["log_density"] == fitted(which).log_density(table).tolist()


def test_columns_in_any_order_and_constant_ones_left_out(asked):
    table = mixed_table(9, seed=5)
    wanted = fitted("mixed").score_samples(table).tolist()
    names = [name for name in reversed(table.column_names) if name != "site"]
    for kind, written in BODIES.values():
        answer = post(asked, "/score?model=mixed", written(table.select(names)), kind)
        assert answer.json()["scores"] == wanted, kind


def test_decisions_by_the_rule_by_another_rate_and_by_false_discoveries(asked):
    table, detector = mixed_table(120, seed=6), fitted("mixed")
    scores = detector.score_samples(table)
    by_rule = post(asked, "/predict?model=mixed", json_rows(table)).json()
    assert by_rule["anomaly"] == (detector.predict(table) == -1).tolist()
    assert by_rule["rule"] == {
        "kind": "false_alarm_rate",
        "rate": 0.1,
        "score": detector.offset_,
        "text": str(detector.threshold_rule_),
    }
    by_rate = post(asked, "/predict?model=mixed&false_alarm_rate=0.3", json_rows(table)).json()
    assert by_rate["anomaly"] == (scores < detector.calibration_.threshold(0.3)).tolist()
    assert by_rate["flagged"] == sum(by_rate["anomaly"]) > by_rule["flagged"] > 0
    by_fdr = post(asked, "/predict?model=mixed&fdr=0.6", json_rows(table)).json()
    assert by_fdr["anomaly"] == false_discoveries(detector.p_values(table), 0.6).tolist()
    assert (by_fdr["rule"]["kind"], by_fdr["rule"]["score"]) == ("false_discovery_rate", None)


def test_a_rate_that_cannot_be_kept_is_said(asked):
    body = json_rows(mixed_table(3, seed=6))
    by_rate = post(asked, "/predict?model=mixed&false_alarm_rate=0.0001", body).json()
    assert (by_rate["flagged"], by_rate["rule"]["score"]) == (0, None)
    assert by_rate["rule"]["text"].startswith("no threshold: 48 held-out rows cannot keep")
    assert (
        "cannot keep a false discovery rate"
        in post(asked, "/predict?model=mixed&fdr=0.0001", body).json()["rule"]["text"]
    )


@pytest.mark.parametrize("body", BODIES)
def test_explanations_are_those_of_the_detector(asked, body):
    table, (kind, written) = mixed_table(3, seed=7), BODIES[body]
    table = table.set_column(0, "size", pa.array([9.0, 0.1, 0.2]))
    found = post(asked, "/explain?model=mixed", written(table), kind).json()["explanations"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = NRFDetector.explain(fitted("mixed"), table)
    for row, own in zip(found, wanted, strict=True):
        assert row["score"] == pytest.approx(own.score, rel=1e-6)
        assert row["anomaly"] == own.is_anomaly
        amounts = {part["column"]: part["contribution"] for part in row["contributions"]}
        assert set(amounts) == set(own.contributions)
        assert list(amounts.values()) == sorted(amounts.values(), reverse=True)
    first = found[0]
    assert first["anomaly"]
    assert first["contributions"][0]["column"] == "size"
    assert first["contributions"][0]["value"] == 9.0
    assert first["counterfactual"]["changes"][0]["column"] == "size"
    assert first["counterfactual"]["reached"]
    assert first["counterfactual"]["score"] >= fitted("mixed").offset_


def test_what_is_left_out_may_hold_anything(asked):
    """A column that was constant at fit, with values of several types: scored, and explained as new."""
    rows = json.loads(json_rows(mixed_table(3, seed=7)))["rows"]
    for row, value in zip(rows, ("a", 1, True), strict=True):
        row["site"] = value
    body = json.dumps({"rows": rows}).encode()
    assert post(asked, "/score?model=mixed", body).status_code == 200
    found = post(asked, "/explain?model=mixed", body)
    assert found.status_code == 200, found.text
    assert [part["reason"] for part in found.json()["explanations"][0]["contributions"] if part["column"] == "site"]


def test_the_model_says_what_it_is(asked):
    found, detector = asked.get("/model?model=mixed").json(), fitted("mixed")
    columns = {column["name"]: column for column in found["columns"]}
    assert columns["colour"] == {"name": "colour", "kind": "levels", "found": "3, some missing", "needed": True}
    assert columns["site"] == {"name": "site", "kind": "left out", "found": "constant", "needed": False}
    assert columns["when"]["kind"] == "date"
    assert found["training"]["rows"] == 240
    assert found["training"]["calibration_rows"] == found["calibration"]["n"] == 48
    assert found["training"]["field"] == "product"
    assert found["training"]["versions"]["torch"]
    assert found["calibration"]["scores"] == detector.calibration_.scores.tolist()
    assert found["calibration"]["quantiles"][0] == detector.calibration_.scores[0]
    assert len(found["calibration"]["quantiles"]) == 101
    assert found["threshold"]["score"] == detector.offset_
    assert found["limits"]["max_rows"] == 100_000


def test_models_health_and_the_model_that_is_meant(asked, saved):
    assert [model["name"] for model in asked.get("/models").json()["models"]] == ["mixed", "numbers"]
    assert asked.get("/health").json()["status"] == "ok"
    assert asked.get("/health").json()["models"] == 2
    assert asked.get("/model").status_code == 422
    assert "name one: model=mixed or model=numbers" in message(asked.get("/model"))
    with client(saved / "mixed") as single:
        described = single.get("/model").json()
    assert described["name"] == "default"
    assert described["card"] == model_card(fitted("mixed"))


def test_pages_and_headers(asked):
    page = asked.get("/page/style.css")
    assert page.status_code == 200
    assert page.headers["content-security-policy"].startswith("default-src 'self'")
    assert page.headers["content-type"].startswith("text/css")
    assert "access-control-allow-origin" not in page.headers
    for path in ("/", "/models", "/page/style.css", "/nowhere", "/score"):
        headers = asked.get(path).headers
        assert headers["x-content-type-options"] == "nosniff", path
        assert headers["cache-control"] == "no-store", path
        assert headers["content-security-policy"] == "default-src 'self'; frame-ancestors 'none'", path
    answer = asked.get("/")
    assert answer.status_code == 200
    assert "text/html" in answer.headers["content-type"]
    for path in ("/page/..%2Fapp.py", "/page/%2e%2e/app.py", "/page/nothing.js", "/docs", "/redoc"):
        assert asked.get(path).status_code == 404, path


def test_the_description_has_the_columns_and_examples_that_work(saved):
    with client(saved / "mixed") as asked:
        schema = asked.get("/openapi.json").json()
        row = schema["components"]["schemas"]["Row"]
        assert row["properties"]["when"] == {"type": ["string", "null"], "format": "date-time"}
        assert "site" not in row["required"]
        for path in ("/score", "/predict", "/explain"):
            for kind, body in schema["paths"][path]["post"]["requestBody"]["content"].items():
                for example in body.get("examples", {}).values():
                    value = example["value"]
                    content = value if isinstance(value, str) else json.dumps(value)
                    assert post(asked, path, content.encode(), kind).status_code == 200, (path, kind)


def test_metrics_count_requests_rows_errors_flags_and_batches(saved):
    with client(saved / "numbers") as asked:
        table = number_table(12, seed=8)
        post(asked, "/score", json_rows(table))
        flagged = post(asked, "/predict?false_alarm_rate=0.5", json_rows(table)).json()["flagged"]
        post(asked, "/score", b"{")
        for path in ("/drift", "/model", "/", "/openapi.json", "/page/style.css", "/nowhere"):
            asked.get(path)
        text = asked.get("/metrics").text
    for line in (
        'nrf_requests_total{model="default",path="/score",status="200"} 1.0',
        'nrf_requests_total{model="default",path="/score",status="400"} 1.0',
        'nrf_requests_total{model="default",path="/drift",status="404"} 1.0',
        'nrf_requests_total{model="default",path="/model",status="200"} 1.0',
        'nrf_requests_total{model="",path="/",status="200"} 1.0',
        'nrf_requests_total{model="",path="/openapi.json",status="200"} 1.0',
        'nrf_requests_total{model="",path="/page",status="200"} 1.0',
        'nrf_requests_total{model="",path="other",status="404"} 1.0',
        'nrf_errors_total{path="/score",status="400"} 1.0',
        'nrf_rows_total{model="default",path="/predict"} 12.0',
        f'nrf_rows_flagged_total{{model="default"}} {flagged}.0',
        'nrf_batch_rows_sum{model="default"} 24.0',
        'nrf_request_seconds_count{model="default",path="/score"} 2.0',
        'nrf_model_outdated{model="default"} 0.0',
    ):
        assert line in text, line


# ------------------------------------------------------------------------------------------------------- concurrency


async def many(app, requests):
    """The answers to requests that are made at once."""
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as asked:
        sent = [asked.post(path, content=body, headers={"Content-Type": kind}) for path, body, kind in requests]
        return await asyncio.gather(*sent)


def test_requests_at_once_share_batches_and_get_their_own_answers(saved):
    app = detection_app(Models(folder=saved))
    tables = {name: made(150, seed=9) for name, made in TABLES.items()}
    wanted = {name: fitted(name).score_samples(table) for name, table in tables.items()}
    sizes = np.random.default_rng(0).integers(1, 4, 120)
    requests, expected = [], []
    for i, size in enumerate(sizes):
        name = ("mixed", "numbers")[i % 2]
        part = tables[name].slice(i, int(size))
        kind, written = list(BODIES.values())[i % 5]
        requests.append((f"/score?model={name}", written(part), kind))
        expected.append(wanted[name][i : i + int(size)].tolist())
    requests.insert(50, ("/score?model=mixed", b'{"rows": [{"size": "no"}]}', JSON))
    answers = asyncio.run(many(app, requests))
    assert answers.pop(50).status_code == 422
    for answer, scores in zip(answers, expected, strict=True):
        assert answer.json()["scores"] == pytest.approx(scores, abs=ROUNDING)
    text = asyncio.run(many_metrics(app))
    counts = [float(n) for n in re.findall(r"nrf_batch_requests_count\{.*\} ([\d.]+)", text)]
    sums = [float(n) for n in re.findall(r"nrf_batch_requests_sum\{.*\} ([\d.]+)", text)]
    assert sum(sums) == 120
    assert sum(sums) / sum(counts) > 2, "requests that wait are scored together"


async def many_metrics(app):
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1") as asked:
        return (await asked.get("/metrics")).text


def test_only_rows_of_one_model_and_of_the_same_kinds_are_scored_together(tmp_path, monkeypatch):
    """Two models with the same columns, and a column that has no type at all in one of the requests."""
    for name, seed in (("a", 0), ("b", 1)):
        fitted("numbers", seed).save(tmp_path / name)
    models, goes_on = Models(folder=tmp_path), threading.Event()
    score = type(models.find("a")).scores

    def waiting(self, frame):
        goes_on.wait(20)
        return score(self, frame)

    monkeypatch.setattr(type(models.find("a")), "scores", waiting)
    row = number_table(1, seed=12)
    untyped = row.set_column(3, "kind", pa.nulls(1))
    sent = [("a", row), ("b", row), ("a", untyped), ("a", row), ("b", untyped), ("b", row)]

    async def run():
        requests = [(f"/score?model={name}", arrow_bytes(table), BODIES["Arrow"][0]) for name, table in sent]
        asking = asyncio.create_task(many(detection_app(models), requests))
        await asyncio.sleep(0.5)  # the first is being scored, the others wait
        goes_on.set()
        return await asking

    found = [answer.json()["scores"][0] for answer in asyncio.run(run())]
    wanted = [fitted("numbers", "ab".index(name)).score_samples(table)[0] for name, table in sent]
    assert found == pytest.approx(wanted, abs=ROUNDING)
    assert len({round(value, 3) for value in wanted}) == 4, "or the test says nothing"


def test_rows_of_other_kinds_are_scored_by_themselves(saved, monkeypatch):
    """What is a number in one request and text in another, in a column that was constant at fit."""
    models, goes_on = Models(saved / "mixed"), threading.Event()
    score = type(models.find(None)).scores

    def waiting(self, frame):
        goes_on.wait(20)
        return score(self, frame)

    monkeypatch.setattr(type(models.find(None)), "scores", waiting)
    row = json.loads(json_rows(mixed_table(2, seed=12)))["rows"][1]
    bodies = [json.dumps({"rows": [row | {"site": site}]}).encode() for site in ("seven", "seven", 7, 7)]

    async def run():
        asking = asyncio.create_task(many(detection_app(models), [("/score", body, JSON) for body in bodies]))
        await asyncio.sleep(0.5)
        goes_on.set()
        return await asking

    found = [answer.json()["scores"][0] for answer in asyncio.run(run())]
    assert found == pytest.approx([found[0]] * 2 + [found[3]] * 2, abs=ROUNDING)
    assert found[0] < found[3] - 0.1, "it is new"


def test_rows_out_of_any_range_are_refused(saved):
    with client(saved / "numbers") as asked:
        infinite = post(asked, "/score", b'{"rows": [{"a": 1e999, "b": 0, "c": 0, "kind": "x"}]}')
        assert infinite.status_code == 422
        assert "column 'a' has 1 infinite value" in message(infinite)
    models = Models(saved / "numbers")
    object.__setattr__(models.find(None), "_score", lambda rows: torch.full((1, len(rows)), torch.inf))
    with client(models) as asked:
        answer = post(asked, "/score", json_rows(number_table(2)))
        assert answer.status_code == 422
        assert "2 rows have a potential that is not finite" in message(answer)


def test_a_row_that_cannot_be_scored_fails_alone(saved, monkeypatch):
    """The joint call fails; then every request is scored by itself."""
    models = Models(saved / "numbers")
    model = models.find(None)
    score = type(model).scores

    def picky(self, frame):
        if (frame.column(0) == 13.0).any():
            raise ValueError("an internal error")
        return score(self, frame)

    monkeypatch.setattr(type(model), "scores", picky)
    table = number_table(20, seed=10)
    bad = table.slice(0, 1).set_column(0, "a", pa.array([13.0]))
    requests = [("/score", json_rows(table.slice(i, 1)), JSON) for i in range(20)]
    requests[5] = ("/score", json_rows(bad), JSON)
    answers = asyncio.run(many(detection_app(models), requests))
    assert [answer.status_code for answer in answers] == [500 if i == 5 else 200 for i in range(20)]
    assert "internal error" in message(answers[5])
    assert "13" not in answers[5].text
    wanted = fitted("numbers").score_samples(table).tolist()
    found = [answer.json()["scores"][0] for i, answer in enumerate(answers) if i != 5]
    assert found == pytest.approx(wanted[:5] + wanted[6:], abs=ROUNDING)


def test_too_many_at_a_time_are_told_to_come_again(saved, monkeypatch):
    models = Models(saved / "numbers")
    app = detection_app(models, limits=Limits(concurrency=3))
    body, goes_on, score = json_rows(number_table(1)), threading.Event(), type(models.find(None)).scores

    def waiting(self, frame):
        goes_on.wait(20)
        return score(self, frame)

    async def run():
        asking = [asyncio.create_task(many(app, [("/score", body, JSON)])) for _ in range(30)]
        for _ in range(500):
            if sum(task.done() for task in asking) >= 27:
                break
            await asyncio.sleep(0.01)
        goes_on.set()
        return [answer for (answer,) in await asyncio.gather(*asking)]

    monkeypatch.setattr(type(models.find(None)), "scores", waiting)
    answers = asyncio.run(run())
    found = [answer.status_code for answer in answers]
    assert (found.count(200), found.count(429)) == (3, 27)
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert refused.headers["retry-after"] == "1"
    assert "3 requests are under way" in message(refused)
    assert asyncio.run(many(app, [("/score", body, JSON)]))[0].status_code == 200, "and then they are taken again"


def test_an_answer_that_takes_too_long_is_given_up(saved, monkeypatch):
    models = Models(saved / "numbers")
    model, slow = models.find(None), threading.Event()
    score = type(model).scores

    def waiting(self, frame):
        slow.wait(5)
        return score(self, frame)

    monkeypatch.setattr(type(model), "scores", waiting)
    app = detection_app(models, limits=Limits(seconds=0.3))
    small = ("/score", json_rows(number_table(1)), JSON)
    large = ("/score", arrow_bytes(number_table(SMALL_ROWS + 1)), BODIES["Arrow"][0])
    answers = asyncio.run(many(app, [small, large]))
    slow.set()
    for answer in answers:
        assert answer.status_code == 503
        assert "no answer within 0.3 s" in message(answer)
        assert answer.headers["retry-after"] == "5"


async def never():
    await asyncio.sleep(10)


async def left():
    return {"type": "http.disconnect"}


def sent_back(app, receive):
    """What is sent back for a body that is received so."""
    sent = []

    async def send(part):
        sent.append(part)

    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/score", "query_string": b"", "headers": headers}
    asyncio.run(app(scope, receive, send))
    return sent


def test_a_client_that_has_left_is_no_failure(saved, caplog):
    with caplog.at_level(logging.ERROR, "nrf.serve"):
        sent = sent_back(detection_app(Models(saved / "numbers")), left)
    assert (sent[0]["status"], sent[1]["body"], caplog.text) == (499, b"", "")


def test_a_body_that_does_not_arrive_is_given_up(saved):
    sent = sent_back(detection_app(Models(saved / "numbers"), limits=Limits(seconds=0.2)), never)
    assert sent[0]["status"] == 408
    assert (b"connection", b"close") in sent[0]["headers"]
    assert b"did not arrive within 0.2 s" in sent[1]["body"]
