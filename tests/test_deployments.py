"""prefect.yaml, the presets and the server's declarations: everything that is declared can be run."""

import importlib
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from prefect import Flow
from prefect.events.schemas.automations import AutomationCore
from prefect.utilities.callables import parameter_schema
from prefect.utilities.schema_tools import validate

from flows.catalogue import FLOWS
from flows.presets import load_params

ROOT = Path(__file__).parents[1]
PRESETS = {path.stem: path for path in sorted((ROOT / "deployments" / "presets").glob("*.yaml"))}
DEPLOYMENTS: list[dict[str, Any]] = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
SERVER: dict[str, Any] = yaml.safe_load((ROOT / "deployments" / "server.yaml").read_text())
each_deployment = pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda deployment: deployment["name"])


def flow_of_preset(stem: str) -> str:
    """Presets of one flow only are named after it; all others are of the pipeline, and of its relatives."""
    return {"aggregate": "study", "sampling": "study", "simulate": "simulate", "score": "score"}.get(
        stem.split("-", maxsplit=1)[0], "pipeline"
    )


def flow_of(deployment: dict[str, Any]) -> Flow[..., Any]:
    module, name = deployment["entrypoint"].rsplit(".", 1)
    found = getattr(importlib.import_module(module), name)
    assert isinstance(found, Flow)
    return found


@pytest.mark.parametrize("stem", PRESETS)
def test_every_preset_fits_its_flow(stem: str) -> None:
    flow = flow_of_preset(stem)
    params = load_params(FLOWS[flow].params, PRESETS[stem])
    assert stem in (params.name, f"{flow}-{params.name}")


@each_deployment
def test_a_deployment_has_the_parameters_of_its_preset(deployment: dict[str, Any]) -> None:
    """It is named after its preset, preceded by its flow where a preset serves several."""
    flow = flow_of(deployment)
    preset = PRESETS.get(deployment["name"]) or PRESETS[deployment["name"].removeprefix(f"{flow.name}-")]
    schema = FLOWS[flow.name].params
    expected = load_params(schema, preset, written_for=FLOWS[flow.name].preset_of)
    assert schema.model_validate(deployment["parameters"]["params"]) == expected


@each_deployment
def test_the_server_accepts_a_deployments_parameters_and_refuses_others(deployment: dict[str, Any]) -> None:
    """The Prefect server knows only the schema, not our validators."""
    schema = parameter_schema(flow_of(deployment)).model_dump_for_openapi()
    good = deployment["parameters"]
    assert validate(good, schema, raise_on_error=False, ignore_required=False) == []
    for wrong in ({"sead": 1}, {"seed": -1}):
        assert validate({"params": good["params"] | wrong}, schema, raise_on_error=False, ignore_required=False)


@each_deployment
def test_a_deployment_is_tagged_described_and_queued(deployment: dict[str, Any]) -> None:
    assert "eyrie" in deployment["tags"], "without the tag, `deploy` does not remove it when it leaves the file"
    assert deployment["description"].endswith(".")
    assert deployment["work_pool"]["name"] == SERVER["work_pool"]["name"]
    assert deployment["work_pool"]["work_queue_name"] in {queue["name"] for queue in SERVER["work_queues"]}


@each_deployment
def test_studies_are_scheduled_but_off(deployment: dict[str, Any]) -> None:
    if "study" in deployment["tags"]:
        assert [schedule["active"] for schedule in deployment["schedules"]] == [False]


def test_every_field_of_the_run_form_has_a_title_and_a_description() -> None:
    for name, entry in FLOWS.items():
        definitions = parameter_schema(entry.flow).model_dump_for_openapi()["definitions"]
        for component, described in definitions.items():
            for field, own in described["properties"].items():
                shown = definitions[own["$ref"].split("/")[-1]] | own if "$ref" in own else own
                assert shown.get("title"), (name, component, field)
                assert "_" not in shown["title"], (name, component, field)
                assert field == "kind" or shown.get("description"), (name, component, field)


def test_there_is_a_deployment_for_every_flow_that_starts_from_files() -> None:
    assert {flow_of(deployment).name for deployment in DEPLOYMENTS} == set(FLOWS) - {"train"}


@pytest.mark.parametrize("automation", SERVER["automations"], ids=lambda automation: automation["name"])
def test_an_automation_is_what_prefect_knows(automation: dict[str, Any]) -> None:
    core = AutomationCore.model_validate(automation)
    assert core.name.startswith("eyrie-"), "without it, `deploy` does not remove it when it leaves the file"
    assert core.description


def test_time_limits_name_flows_that_exist() -> None:
    named = {
        name
        for automation in SERVER["automations"]
        for name in automation["trigger"].get("match_related", {}).get("prefect.resource.name", ())
    }
    assert named
    assert named <= set(FLOWS)


def test_variables_in_parameters_are_read_where_the_run_is(monkeypatch: pytest.MonkeyPatch) -> None:
    (bibtex,) = (deployment for deployment in DEPLOYMENTS if deployment["name"] == "ingest-bibtex")
    monkeypatch.setenv("XC_DATA", "far/away")
    params = FLOWS["ingest"].params.model_validate(bibtex["parameters"]["params"])
    assert params.options()["data"]["train"] == ["far/away/bibtex/train.txt"]


def test_pins_agree_with_the_constraints() -> None:
    lines = (ROOT / "constraints.txt").read_text().split()
    pinned = {name.lower(): version for name, version in (line.split("==") for line in lines)}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    for line in [*project["dependencies"], *extras]:
        requirement = Requirement(line)
        assert requirement.name.lower() in pinned, line
        assert requirement.specifier.contains(pinned[requirement.name.lower()]), line
