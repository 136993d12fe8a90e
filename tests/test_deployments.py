"""prefect.yaml, the presets and the server's declarations: everything that is declared can be run."""

import json
import re
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from prefect import Flow
from prefect.events.schemas.automations import AutomationCore
from prefect.utilities.schema_tools import validate

from flows.catalogue import FLOWS
from flows.operations.declarations import USUAL_SERVER, Deployment, read_declarations
from flows.operations.form import form_schema, title_of_kind
from flows.presets import load_params
from tests.workplace import Workplace
from xcore.errors import ConfigError

ROOT = Path(__file__).parents[1]
PRESETS = {path.stem: path for path in sorted((ROOT / "deployments" / "presets").glob("*.yaml"))}
BLOCKS: list[dict[str, Any]] = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
DEPLOYMENTS = [Deployment.model_validate(block) for block in BLOCKS]
SERVER: dict[str, Any] = yaml.safe_load(USUAL_SERVER.read_text())
each_deployment = pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda deployment: deployment.name)


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def flow_of_preset(stem: str) -> str:
    """A preset with factors is a study; those of `simulate` and `score` are named after them; others are pipelines."""
    if "factors" in yaml.safe_load(PRESETS[stem].read_text()):
        return "study"
    first = stem.split("-", maxsplit=1)[0]
    return first if first in ("simulate", "score") else "pipeline"


def flow_of(deployment: Deployment) -> Flow[..., Any]:
    found = deployment.flow
    assert isinstance(found, Flow)
    return found


@pytest.mark.parametrize("stem", PRESETS)
def test_every_preset_fits_its_flow(stem: str) -> None:
    flow = flow_of_preset(stem)
    params = load_params(FLOWS[flow].params, PRESETS[stem])
    assert stem in (params.name, f"{flow}-{params.name}")


@each_deployment
def test_a_deployment_has_the_parameters_of_its_preset(deployment: Deployment) -> None:
    """It is named after its preset, preceded by its flow where a preset serves several."""
    flow = flow_of(deployment)
    preset = PRESETS.get(deployment.name) or PRESETS[deployment.name.removeprefix(f"{flow.name}-")]
    assert deployment.preset == preset.relative_to(ROOT)
    schema = FLOWS[flow.name].params
    expected = load_params(schema, preset, written_for=FLOWS[flow.name].preset_of)
    assert schema.model_validate(deployment.run_parameters["params"]) == expected


@each_deployment
def test_the_server_accepts_a_deployments_parameters_and_refuses_others(deployment: Deployment) -> None:
    """The Prefect server knows only the schema, not our validators."""
    schema = form_schema(flow_of(deployment))
    good = deployment.run_parameters
    assert validate(good, schema, raise_on_error=False, ignore_required=False) == []
    for wrong in ({"sead": 1}, {"seed": -1}):
        assert validate({"params": good["params"] | wrong}, schema, raise_on_error=False, ignore_required=False)


@each_deployment
def test_a_deployment_is_tagged_described_and_queued(deployment: Deployment) -> None:
    assert "eyrie" in deployment.tags, "without the tag, `deploy` does not remove it when it leaves the file"
    assert deployment.description.endswith(".")
    assert deployment.work_pool.name == SERVER["work_pool"]["name"]
    assert deployment.work_pool.work_queue_name in {queue["name"] for queue in SERVER["work_queues"]}


@each_deployment
def test_studies_are_scheduled_but_off(deployment: Deployment) -> None:
    if "study" in deployment.tags:
        assert [schedule["active"] for schedule in deployment.schedules] == [False]


def test_every_field_of_the_run_form_has_a_title_and_a_description() -> None:
    for name, entry in FLOWS.items():
        definitions = form_schema(entry.flow)["definitions"]
        for component, described in definitions.items():
            for field, own in described["properties"].items():
                shown = definitions[own["$ref"].split("/")[-1]] | own if "$ref" in own else own
                assert shown.get("title"), (name, component, field)
                assert "_" not in shown["title"], (name, component, field)
                assert field == "kind" or shown.get("description"), (name, component, field)


def unions(node: Any) -> Iterator[list[Any]]:
    """All alternatives in a schema."""
    if isinstance(node, dict):
        if "anyOf" in node:
            yield node["anyOf"]
        node = list(node.values())
    if isinstance(node, list):
        for item in node:
            yield from unions(item)


@pytest.mark.parametrize("flow", FLOWS)
def test_the_form_shows_alternatives_as_tabs_and_never_as_json(flow: str) -> None:
    schema = form_schema(FLOWS[flow].flow)
    assert not {"oneOf", "discriminator"} & set(re.findall(r'"(\w+)":', json.dumps(schema)))
    for alternatives in unions(schema):
        assert not any("anyOf" in one for one in alternatives), "a union within a union is a tab without a name"


@pytest.mark.parametrize("flow", FLOWS)
def test_the_form_opens_the_tab_of_the_kind_that_a_value_has(flow: str) -> None:
    """It opens the first tab that has most of the value's fields."""
    schema = form_schema(FLOWS[flow].flow)
    definitions = schema["definitions"]
    for alternatives in unions(schema):
        tabs = [definitions[one["$ref"].split("/")[-1]] for one in alternatives if "$ref" in one]
        for tab in tabs:
            shared = [len(tab["properties"].keys() & other["properties"].keys()) for other in tabs]
            assert tabs[shared.index(max(shared))] is tab


def test_readers_with_the_same_fields_share_a_tab_with_a_dropdown() -> None:
    definitions = form_schema(FLOWS["pipeline"].flow)["definitions"]
    tabs = [definitions[one["$ref"].split("/")[-1]] for one in definitions["Source"]["properties"]["reader"]["anyOf"]]
    (tables,) = (tab for tab in tabs if tab["title"] == "Parquet or Jsonl")
    assert tables["properties"]["kind"]["enum"] == ["parquet", "jsonl"]
    assert title_of_kind("negative-sampling") == "Negative sampling"


@each_deployment
def test_a_deployment_states_every_parameter(deployment: Deployment) -> None:
    """The form finds the tab of a component by its fields."""
    stated = deployment.run_parameters["params"]
    assert stated.keys() == FLOWS[flow_of(deployment).name].params.model_fields.keys()


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
    (bibtex,) = (deployment for deployment in DEPLOYMENTS if deployment.name == "ingest-bibtex")
    monkeypatch.setenv("XC_DATA", "far/away")
    params = FLOWS["ingest"].params.model_validate(bibtex.run_parameters["params"])
    assert params.options()["data"]["train"] == ["far/away/bibtex/train.txt"]


def test_a_block_needs_a_preset_or_parameters_but_not_both() -> None:
    block = DEPLOYMENTS[0].model_dump(exclude={"preset"})
    with pytest.raises(ConfigError, match="needs either a preset or parameters"):
        _ = Deployment.model_validate(block).run_parameters
    tree = {"params": {"name": "own", "data": {"reader": {"kind": "generated"}}}}
    found = Deployment.model_validate(block | {"parameters": tree}).run_parameters["params"]
    assert (found["name"], found["data"]["reader"]["kind"]) == ("own", "generated")


def test_a_file_with_a_wrong_word_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prefect.yaml").write_text(yaml.safe_dump({"deployments": [BLOCKS[0] | {"presets": "a.yaml"}]}))
    with pytest.raises(ConfigError, match="presets: Extra inputs are not permitted"):
        read_declarations()


def test_a_preset_that_does_not_fit_is_refused_before_it_is_deployed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefect_server: str
) -> None:
    (tmp_path / "bad.yaml").write_text(yaml.safe_dump({"name": "bad", "simulation": {"kind": "regression"}, "sead": 1}))
    simulate = next(block for block in BLOCKS if block["name"] == "simulate-regression")
    (tmp_path / "prefect.yaml").write_text(yaml.safe_dump({"deployments": [simulate | {"preset": "bad.yaml"}]}))
    done = Workplace(tmp_path / "home", PREFECT_API_URL=prefect_server, PYTHONPATH=str(ROOT)).run(
        "deploy", folder=tmp_path
    )
    assert done.returncode == 2
    assert "bad.yaml cannot be used" in done.stderr
    assert "sead: Extra inputs are not permitted" in done.stderr


@pytest.mark.slow
def test_a_server_holds_what_the_file_declares_and_twice_is_as_good_as_once(
    tmp_path: Path, prefect_server: str
) -> None:
    workplace = Workplace(tmp_path / "home", PREFECT_API_URL=prefect_server)

    def deploy(changed: int) -> dict[str, dict[str, Any]]:
        done = workplace.run("deploy")
        assert done.returncode == 0, done.stderr
        assert f"{len(DEPLOYMENTS)} deployments ({changed} new or changed)" in done.stdout
        return {one["name"]: one for one in ask(f"{prefect_server}/deployments/filter")}

    first = deploy(changed=len(DEPLOYMENTS))
    for name, edit in {"pipeline-demo": {"description": "edited"}, "retrain-demo": {"concurrency_limit": 7}}.items():
        ask(f"{prefect_server}/deployments/{first[name]['id']}", edit, "PATCH")
    (nightly,) = first["retrain-eurlex57k"]["schedules"]
    of = f"{prefect_server}/deployments/{first['retrain-eurlex57k']['id']}/schedules"
    ask(f"{of}/{nightly['id']}", {"active": not nightly["active"]}, "PATCH")
    second = deploy(changed=3)
    deploy(changed=0)
    assert second["pipeline-demo"]["description"] == first["pipeline-demo"]["description"]
    assert second["retrain-eurlex57k"]["schedules"][0]["active"] == nightly["active"]
    assert second["retrain-demo"]["global_concurrency_limit"]["limit"] == 1
    assert {name: one["id"] for name, one in first.items()} == {name: one["id"] for name, one in second.items()}
    assert set(second) == {deployment.name for deployment in DEPLOYMENTS}
    for deployment in DEPLOYMENTS:
        one = second[deployment.name]
        assert one["parameters"] == deployment.run_parameters
        assert [schedule["slug"] for schedule in one["schedules"]] == [one["slug"] for one in deployment.schedules]
        assert one["work_queue_name"] == deployment.work_pool.work_queue_name
    assert second["retrain-demo"]["concurrency_options"]["collision_strategy"] == "CANCEL_NEW"

    words = ("--no-prompt", "deploy", "--name", "pipeline-demo")
    done = workplace.run(*words, script=("-m", "prefect"))
    assert done.returncode != 0, "it knows no presets: what it would make has no parameters"
    assert "eyrie deploy" in done.stdout + done.stderr
    (demo,) = (one for one in ask(f"{prefect_server}/deployments/filter") if one["name"] == "pipeline-demo")
    assert demo["parameters"] == second["pipeline-demo"]["parameters"]


def ask(url: str, content: dict[str, Any] | None = None, method: str = "POST") -> Any:
    data = json.dumps(content or {}).encode()
    request = urllib.request.Request(url, data=data, method=method, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read() or b"null")


def test_pins_agree_with_the_constraints() -> None:
    lines = (ROOT / "constraints.txt").read_text().split()
    pinned = {name.lower(): version for name, version in (line.split("==") for line in lines)}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    for line in [*project["dependencies"], *extras]:
        requirement = Requirement(line)
        assert requirement.name.lower() in pinned, line
        assert requirement.specifier.contains(pinned[requirement.name.lower()]), line
