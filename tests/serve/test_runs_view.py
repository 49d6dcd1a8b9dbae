"""The view of run folders, without a browser."""

from __future__ import annotations

import json
import warnings

import pytest

pytest.importorskip("starlette")
pytest.importorskip("httpx")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # starlette would have another client than httpx
    from starlette.testclient import TestClient

from nrf.cli import main
from nrf.errors import InputError
from nrf.files import locked
from nrf.serve.runs import POINTS, curves, runs_app


def make_run(folder, *, steps=(1, 2), iterations=2, **metrics):
    folder.mkdir(parents=True)
    description = {"preset": "gmm-short", "config": {"train": {"iterations": iterations}}}
    (folder / "config.json").write_text(json.dumps(description))
    rows = [{"step": step, "u_data": 0.5 * step, **metrics} for step in steps]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def client(root):
    return TestClient(runs_app(root), base_url="http://127.0.0.1")


def test_the_list_says_preset_iterations_and_state(tmp_path):
    make_run(tmp_path / "a")
    make_run(tmp_path / "b", iterations=9)
    make_run(tmp_path / "e", iterations=None)
    (make_run(tmp_path / "x") / "config.json").write_text("{")
    (tmp_path / "other").mkdir()
    with locked(make_run(tmp_path / "c", iterations=9)):
        found = client(tmp_path).get("/runs.json").json()["runs"]
    assert [run["name"] for run in found] == ["a", "b", "c", "e", "x"]
    assert [run["state"] for run in found] == ["done", "stopped", "training", "ended", "damaged"]
    assert found[0]["preset"] == "gmm-short"
    assert (found[1]["step"], found[1]["iterations"]) == (2, 9)
    assert "not valid JSON" in found[4]["error"]


def test_a_run_has_its_curves_and_a_gap_where_a_value_is_not_finite(tmp_path):
    make_run(tmp_path / "a", loss=float("nan"))
    found = client(tmp_path).get("/runs/a.json").json()
    assert found["metrics"] == {"u_data": [[1, 0.5], [2, 1.0]], "loss": [[1, None], [2, None]]}


def test_settings_have_dotted_names_and_those_of_a_damaged_run_are_none(tmp_path):
    make_run(tmp_path / "a")
    asked = client(tmp_path)
    assert asked.get("/runs/a.json").json()["settings"] == {"train.iterations": 2}
    (tmp_path / "a" / "config.json").write_text(
        '{"config": {"sampler": {"box": [0, 1]}}, "versions": {"nrf": "0.2.0"}}'
    )
    assert asked.get("/runs/a.json").json()["settings"] == {"sampler.box": [0, 1], "versions.nrf": "0.2.0"}
    (tmp_path / "a" / "config.json").write_text("{")
    assert asked.get("/runs/a.json").json()["settings"] == {}


def test_long_curves_are_thinned_and_keep_their_end():
    found = curves([{"step": i, "u": float(i)} for i in range(10 * POINTS + 1)])["u"]
    assert len(found) <= POINTS
    assert found[-1] == [10 * POINTS, 10.0 * POINTS]


def test_one_run_folder_is_shown_by_itself(tmp_path):
    assert [r["name"] for r in client(make_run(tmp_path / "a")).get("/runs.json").json()["runs"]] == ["a"]


def test_pictures_come_from_the_listing_alone(tmp_path):
    samples = make_run(tmp_path / "a") / "samples"
    samples.mkdir()
    (samples / "step-000000002.png").write_bytes(b"picture")
    (tmp_path / "secret.png").write_bytes(b"secret")
    (samples / "link.png").symlink_to(tmp_path / "secret.png")
    (tmp_path / "linked").symlink_to(make_run(tmp_path.parent / f"{tmp_path.name}-outside"))
    asked = client(tmp_path)
    assert asked.get("/runs/a.json").json()["samples"] == ["step-000000002.png"]
    assert asked.get("/runs/a/samples/step-000000002.png").content == b"picture"
    for path in ("/runs/a/samples/link.png", "/runs/a/samples/..%2F..%2Fsecret.png", "/runs/linked.json",
                 "/runs/..%2Fa.json", "/runs/%2e%2e.json", "/page/..%2Fruns.py", "/runs/a/samples/%2e%2e"):  # fmt: skip
        answer = asked.get(path)
        assert answer.status_code == 404, path
        assert b"secret" not in answer.content


def test_only_reading_and_only_by_its_own_name(tmp_path):
    make_run(tmp_path / "a")
    assert client(tmp_path).post("/runs.json").status_code == 405
    assert client(tmp_path).get("/runs.json", headers={"Host": "elsewhere.example"}).status_code == 400
    page = client(tmp_path).get("/")
    assert page.headers["content-security-policy"] == "default-src 'self'"
    assert client(tmp_path).get("/page/runs.js").status_code == 200


def test_what_is_no_folder_is_said(tmp_path, capsys):
    with pytest.raises(InputError, match="is not a folder; give a folder of runs"):
        runs_app(tmp_path / "none")
    assert main(["runs", str(tmp_path / "none")]) == 2
    assert "is not a folder" in capsys.readouterr().err
    assert main(["runs", str(tmp_path), "--port", "0"]) == 2
    assert "port must lie between" in capsys.readouterr().err
