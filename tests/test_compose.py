"""The files of a real installation: no container engine is needed to see that what they name exists."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import mlflow.environment_variables
import pytest
import yaml
from mlflow.cli import server as mlflow_server
from prefect.settings import Settings
from prefect.settings.legacy import _get_settings_fields

from flows.operations.trusted import trusted_names
from tasks.endpoints import SETTINGS

ROOT = Path(__file__).parents[1]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "deployments" / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (ROOT / "deployments" / "Dockerfile").read_text()
VARIABLE = re.compile(r"\$\{(\w+)")


def environments() -> dict[str, dict[str, str]]:
    return {name: service.get("environment", {}) for name, service in SERVICES.items()}


def test_every_variable_is_one_that_prefect_or_mlflow_reads() -> None:
    known = {
        *_get_settings_fields(Settings),
        *vars(mlflow.environment_variables),
        *(option.envvar for option in mlflow_server.params if option.envvar),
    }
    for service, variables in environments().items():
        given = {name for name in variables if name.startswith(("PREFECT_", "MLFLOW_"))}
        assert given <= known, service


def test_every_service_of_ours_has_the_settings_of_the_command_line() -> None:
    for name in ("prefect", "mlflow", "deploy", "worker"):
        assert SERVICES[name]["environment"].items() >= SETTINGS.items(), name


def test_every_command_takes_its_options() -> None:
    options = {option for parameter in mlflow_server.params for option in parameter.opts}
    given = {word for word in SERVICES["mlflow"]["command"] if word.startswith("--")}
    assert SERVICES["mlflow"]["command"][:4] == ["python", "-m", "flows.operations.mlflow_app", "server"]
    assert given <= options
    for name in ("prefect", "worker", "deploy"):
        program, *words = SERVICES[name]["command"]
        module = "flows" if program == "eyrie" else program
        start = [sys.executable] if program == "python" else [sys.executable, "-m", module]
        modules = ("flows", "flows.operations.prefect_app", "flows.operations.worker")
        known = ("-P", "-m", *modules, "deploy")
        verbs = [word for word in words if word in known]
        shown = subprocess.run([*start, *verbs, "--help"], capture_output=True, text=True, check=True, cwd=ROOT).stdout
        for option in (word for word in words if word.startswith("--")):
            assert option in shown, (name, option)


def test_the_prefect_server_answers_to_the_names_that_containers_and_browsers_call_it_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prefect = SERVICES["prefect"]
    assert prefect["command"][:3] == ["python", "-m", "flows.operations.prefect_app"]
    monkeypatch.setenv("EYRIE_TRUSTED_HOSTS", prefect["environment"]["EYRIE_TRUSTED_HOSTS"])
    called = {urlsplit(SERVICES["worker"]["environment"]["PREFECT_API_URL"]).netloc}
    origins = prefect["environment"]["PREFECT_SERVER_API_CORS_ALLOWED_ORIGINS"].split(",")
    assert called | {urlsplit(origin).netloc for origin in origins} <= set(trusted_names("0.0.0.0", 4200))


def test_the_mlflow_server_answers_to_the_names_that_containers_and_browsers_call_it_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mlflow = SERVICES["mlflow"]["environment"]
    monkeypatch.setenv("EYRIE_TRUSTED_HOSTS", mlflow["EYRIE_TRUSTED_HOSTS"])
    called = {urlsplit(SERVICES["worker"]["environment"]["MLFLOW_TRACKING_URI"]).netloc}
    allowed = set(mlflow["MLFLOW_SERVER_ALLOWED_HOSTS"].split(","))
    assert called | allowed <= set(trusted_names("0.0.0.0", 5000))


def test_nothing_is_published_beyond_loopback() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_both_servers_ask_for_a_password_and_no_password_is_written_down() -> None:
    assert "EYRIE_PASSWORD:?" in SERVICES["prefect"]["environment"]["PREFECT_SERVER_API_AUTH_STRING"]
    assert "EYRIE_PASSWORD:?" in SERVICES["mlflow"]["environment"]["MLFLOW_AUTH_ADMIN_PASSWORD"]
    assert "basic-auth" in SERVICES["mlflow"]["command"]
    for variables in environments().values():
        for name, value in variables.items():
            assert not re.search("PASSWORD|SECRET|AUTH_STRING", name) or "${" in value, name


def test_every_secret_has_its_line_in_the_example() -> None:
    lines = (ROOT / "deployments" / "example.env").read_text().splitlines()
    offered = {line.split("=")[0] for line in lines if line and not line.startswith("#")}
    assert set(VARIABLE.findall((ROOT / "deployments" / "compose.yaml").read_text())) - {"XC_DATA"} == offered


def test_services_wait_for_services_that_exist_and_can_tell() -> None:
    for name, service in SERVICES.items():
        for other, how in service.get("depends_on", {}).items():
            assert "healthcheck" in SERVICES[other] or how["condition"] == "service_completed_successfully", (
                name,
                other,
            )


@pytest.mark.parametrize("path", re.findall(r"^COPY (.+) \S+$", DOCKERFILE, re.M))
def test_the_image_copies_what_is_there(path: str) -> None:
    assert all((ROOT / name).exists() for name in path.split())


def test_the_image_installs_by_the_same_pins() -> None:
    installs = re.findall(r"^RUN pip install (.+)$", DOCKERFILE, re.M)
    assert installs
    assert all(install.startswith("-c constraints.txt ") for install in installs)
    torch = re.search(r"torch==\S+", DOCKERFILE)
    assert torch
    assert torch.group() in (ROOT / "pyproject.toml").read_text()
    assert "python:3.11" in DOCKERFILE
