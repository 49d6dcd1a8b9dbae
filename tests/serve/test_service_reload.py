"""Models that are replaced while they are asked for, and a service that is told to end."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import httpx
import pytest

from nrf.cli import main
from nrf.serve.app import detection_app
from nrf.serve.limits import Limits
from nrf.serve.served import Models, Served
from some_services import JSON, client, fitted, json_rows, message, number_table, post

TABLE = number_table(6, seed=11)
SCORES = {seed: fitted("numbers", seed).score_samples(TABLE).tolist() for seed in (0, 1)}


def replace(folder, seed: int) -> None:
    """Save another detector there; equal times of two saves must not hide the second."""
    fitted("numbers", seed).save(folder)


def test_a_replaced_folder_is_served(tmp_path):
    replace(tmp_path / "a", 0)
    models = Models(folder=tmp_path)
    with client(models, watch_seconds=60) as asked:
        before = asked.get("/models").json()["models"][0]["digest"]
        assert post(asked, "/score", json_rows(TABLE)).json()["scores"] == SCORES[0]
        replace(tmp_path / "a", 1)
        models.refresh()
        assert post(asked, "/score", json_rows(TABLE)).json()["scores"] == SCORES[1]
        assert asked.get("/models").json()["models"][0]["digest"] != before
        assert 'nrf_model_loads_total{model="a"} 1.0' in asked.get("/metrics").text
        models.refresh()
        assert 'nrf_model_loads_total{model="a"} 1.0' in asked.get("/metrics").text, "what is as it was stays"
        replace(tmp_path / "b", 0)
        replace(tmp_path / ".half-copied", 0)
        models.refresh()
        assert [model["name"] for model in asked.get("/models").json()["models"]] == ["a", "b"]
        assert post(asked, "/score?model=b", json_rows(TABLE)).json()["scores"] == SCORES[0]


@pytest.mark.parametrize("damage", ["cut description", "no weights", "other file", "gone"])
def test_a_broken_replacement_keeps_the_model_and_is_said(tmp_path, damage, caplog):
    folder = tmp_path / "model"
    replace(folder, 0)
    models = Models(folder)
    with client(models, watch_seconds=60) as asked, caplog.at_level(logging.ERROR, "nrf.serve"):
        replace(folder, 1)
        description = folder / "detector.json"
        if damage == "cut description":
            description.write_bytes(description.read_bytes()[:-100])
        elif damage == "other file":
            description.write_text('{"format": "another"}')
        elif damage == "no weights":
            for path in folder.glob("weights-*"):
                path.unlink()
        else:
            shutil.rmtree(folder)
        models.refresh()
        models.refresh()
        assert post(asked, "/score", json_rows(TABLE)).json()["scores"] == SCORES[0]
        health = asked.get("/health").json()
        assert (health["status"], health["outdated"], health["models"]) == ("degraded", ["default"], 1)
        assert str(tmp_path) not in asked.get("/health").text
        assert asked.get("/models").json()["models"][0]["problem"]
        text = asked.get("/metrics").text
        assert 'nrf_model_outdated{model="default"} 1.0' in text
        assert 'nrf_model_load_failures_total{model="default"} 1.0' in text, "once, not at every look"
        assert "model default was not replaced" in caplog.text
        shutil.rmtree(folder, ignore_errors=True)
        replace(folder, 1)
        models.refresh()
        assert post(asked, "/score", json_rows(TABLE)).json()["scores"] == SCORES[1]
        assert asked.get("/health").json()["status"] == "ok"
        assert 'nrf_model_outdated{model="default"} 0.0' in asked.get("/metrics").text


def test_a_folder_that_fails_in_an_unknown_way_is_said_and_keeps_no_other_from_loading(tmp_path, monkeypatch, caplog):
    for name in "ab":
        replace(tmp_path / name, 0)
    models = Models(folder=tmp_path)
    load = Served.load

    def failing(name, folder):
        if name == "a":
            raise RuntimeError("out of everything")
        return load(name, folder)

    monkeypatch.setattr(Served, "load", failing)
    for name in "ab":
        replace(tmp_path / name, 1)
    with caplog.at_level(logging.ERROR, "nrf.serve"):
        models.refresh()
    assert models.problems == {"a": "out of everything"}
    assert "RuntimeError" in caplog.text
    table = models.find("b").reader.read(JSON, json_rows(TABLE), Limits()).frame
    assert models.find("b").scores(table)[0].tolist() == SCORES[1]


def test_reloads_under_load_lose_no_request(tmp_path):
    folder = tmp_path / "model"
    replace(folder, 0)
    models = Models(folder)
    app, stop = detection_app(models, watch_seconds=60), threading.Event()
    body, wanted = json_rows(TABLE.slice(2, 1)), {seed: scores[2] for seed, scores in SCORES.items()}
    seen = []

    def turn() -> None:
        seed = 1
        while not stop.is_set():
            replace(folder, seed)
            models.refresh()
            seed = 1 - seed

    async def ask() -> None:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as asked:
            for _ in range(12):
                sent = [asked.post("/score", content=body, headers={"Content-Type": JSON}) for _ in range(20)]
                seen.extend(await asyncio.gather(*sent))

    turning = threading.Thread(target=turn)
    turning.start()
    asyncio.run(ask())
    stop.set()
    turning.join()
    assert [answer.status_code for answer in seen] == [200] * 240
    found = [answer.json()["scores"][0] for answer in seen]
    nearest = [min(wanted, key=lambda seed: abs(wanted[seed] - score)) for score in found]
    assert all(abs(wanted[seed] - score) < 1e-5 for seed, score in zip(nearest, found, strict=True))
    assert set(nearest) == {0, 1}, "both models have answered"


# ------------------------------------------------------------------------------------------------------ the real thing


def started(*arguments: str) -> tuple[subprocess.Popen, int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "nrf", "serve", *arguments, "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return process, port
        time.sleep(0.05)
    process.kill()
    raise AssertionError(process.communicate())


def test_the_command_answers_reloads_and_ends_in_order(tmp_path):
    folder = tmp_path / "model"
    replace(folder, 0)
    (tmp_path / "token").write_text("0123456789abcdef\n")
    process, port = started(str(folder), "--token-file", str(tmp_path / "token"), "--max-rows", "10")
    try:
        address, token = f"http://127.0.0.1:{port}", {"Authorization": "Bearer 0123456789abcdef"}
        headers = {"Content-Type": JSON, **token}
        with httpx.Client(base_url=address, headers=headers) as asked:
            assert asked.post("/score", content=json_rows(TABLE)).json()["scores"] == SCORES[0]
            assert "server" not in asked.get("/health").headers
            assert message(asked.post("/score", content=json_rows(number_table(11)))).startswith("the body has 11 rows")
            replace(folder, 1)
            end = time.monotonic() + 30
            while time.monotonic() < end:
                if asked.post("/score", content=json_rows(TABLE)).json()["scores"] == SCORES[1]:
                    break
                time.sleep(0.1)
            else:
                raise AssertionError("the new model was not loaded")
        # A request is under way when the signal comes: half of it is sent.
        body = json_rows(TABLE)
        lines = ["POST /score HTTP/1.1", f"Host: 127.0.0.1:{port}", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        with socket.create_connection(("127.0.0.1", port)) as open_request:
            open_request.sendall("\r\n".join([*lines, "", ""]).encode() + body[:20])
            time.sleep(0.5)
            process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            open_request.sendall(body[20:])
            answer = b"".join(iter(lambda: open_request.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 200")
        said, errors = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, errors
    assert f"default at http://127.0.0.1:{port} (with a token" in said
    assert said.endswith("stopped\n")
    assert "model default loaded" in errors
    assert "Traceback" not in errors


def test_a_port_that_is_taken_is_said(tmp_path, capsys):
    folder = tmp_path / "model"
    replace(folder, 0)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert main(["serve", str(folder), "--port", str(taken.getsockname()[1])]) == 2
    assert "choose another --port" in capsys.readouterr().err
