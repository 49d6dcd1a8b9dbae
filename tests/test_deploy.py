"""The examples in deploy/: each is looked at by a tool of its own where there is one, and by what we ask of it."""

from __future__ import annotations

import inspect
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import nrf

PROJECT = Path(nrf.__file__).parents[2]
DEPLOY = PROJECT / "deploy"
PORT = "8765"


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile, instruction by instruction."""
    text = re.sub(r"^\s*#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(line.split()[0], line.split(maxsplit=1)[1].strip()) for line in lines if line.strip()]


def given(name: str) -> list[str]:
    return [rest for word, rest in instructions() if word == name]


OPTIONS = {"--models", "--host", "--port", "--token-file"}


def require_serve_options(arguments: list[str]) -> None:
    """It is `nrf serve` with these options, on the port that all examples have."""
    assert arguments[0] == "serve"
    options = dict(zip(arguments[1::2], arguments[2::2], strict=True))
    assert set(options) == OPTIONS
    assert options["--port"] == PORT


def test_nrf_serve_takes_these_options():
    serve = pytest.importorskip("nrf.cli.serve", reason="nrf serve is not there").serve
    assert {name.removeprefix("--").replace("-", "_") for name in OPTIONS} <= set(inspect.signature(serve).parameters)


def test_the_dockerfile():
    known = {"FROM", "ARG", "ENV", "WORKDIR", "COPY", "RUN", "USER", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
    assert {word for word, _ in instructions()} <= known
    for image in given("FROM"):
        assert re.match(r"[\w./-]+:[\w.-]*\d[\w.-]*", image), f"{image}: no version"
    assert given("USER") == ["10001:10001"]
    assert [word for word, _ in instructions()].index("USER") > max(
        i for i, (word, _) in enumerate(instructions()) if word in ("RUN", "COPY")
    ), "what is installed belongs to root"
    for copied in given("COPY"):
        if not copied.startswith("--from="):
            for source in copied.split()[:-1]:
                assert (PROJECT / source).exists(), source
    assert given("EXPOSE") == [PORT]
    assert f":{PORT}/health" in given("HEALTHCHECK")[0]
    assert json.loads(given("ENTRYPOINT")[0]) == ["nrf"]
    assert re.search(r"^torch==", (PROJECT / "constraints.txt").read_text(), flags=re.MULTILINE)


def test_the_containers_command_is_one_of_nrf():
    require_serve_options(json.loads(given("CMD")[0]))


def test_the_health_check_is_python():
    command = json.loads(given("HEALTHCHECK")[0].split("CMD", 1)[1])
    compile(command[2], "healthcheck", "exec")


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="hadolint is not installed")
def test_hadolint():
    found = subprocess.run(["hadolint", DEPLOY / "Dockerfile"], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout


def unit() -> dict[str, list[str]]:
    lines = (DEPLOY / "nrf.service").read_text().splitlines()
    found: dict[str, list[str]] = {}
    for line in lines:
        if "=" in line and not line.startswith("#"):
            name, value = line.split("=", 1)
            found.setdefault(name, []).append(value)
    return found


def test_the_unit():
    settings = unit()
    (command,) = settings["ExecStart"]
    program, *arguments = shlex.split(command)
    assert program.endswith("/nrf")
    require_serve_options(arguments)
    assert arguments[-1] == "${CREDENTIALS_DIRECTORY}/token"
    assert settings["LoadCredential"] == ["token:/etc/nrf/token"]
    assert settings["User"] == ["nrf"]
    for name in ("NoNewPrivileges", "ProtectHome", "PrivateTmp", "RestrictSUIDSGID"):
        assert settings[name] == ["yes"], name
    assert settings["ProtectSystem"] == ["strict"]
    assert settings["CapabilityBoundingSet"] == [""]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_reads_the_unit(tmp_path):
    text = (DEPLOY / "nrf.service").read_text()
    path = tmp_path / "nrf.service"
    path.write_text(text.replace("/opt/nrf/bin/nrf", sys.executable))  # a program that is there
    found = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True, check=False)
    said = [line for line in found.stderr.splitlines() if path.name in line or str(tmp_path) in line]
    assert not said, "\n".join(said)
    broken = tmp_path / "broken.service"
    broken.write_text(path.read_text().replace("Restart=on-failure", "Restart=sometimes"))
    found = subprocess.run(["systemd-analyze", "verify", broken], capture_output=True, text=True, check=False)
    assert "sometimes" in found.stderr, "it would not notice"


def manifests() -> list[dict]:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    return list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))


def test_the_manifests():
    deployment, service = manifests()
    assert (deployment["kind"], service["kind"]) == ("Deployment", "Service")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == service["spec"]["selector"] == labels
    pod = deployment["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}" == given("USER")[0]
    assert pod["automountServiceAccountToken"] is False
    (container,) = pod["containers"]
    (port,) = container["ports"]
    assert str(port["containerPort"]) == PORT
    assert service["spec"]["ports"][0]["targetPort"] == port["name"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/health", "port": port["name"]}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"requests", "limits"} <= set(container["resources"])
    assert not container["image"].endswith(":latest")
    volumes = {volume["name"] for volume in pod["volumes"]}
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert set(mounts) == volumes
    arguments = container["args"]
    assert arguments[arguments.index("--models") + 1] == mounts["models"]
    assert arguments[arguments.index("--token-file") + 1].startswith(mounts["token"] + "/")
    require_serve_options(arguments)


def test_kubernetes_knows_every_field():
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    for manifest in manifests():
        validate.validate(manifest, validate.latest_version(), strict=True)
