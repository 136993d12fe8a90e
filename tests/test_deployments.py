"""prefect.yaml and the presets: everything that is declared can be run."""

import importlib
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from flows.presets import load_params
from flows.registry import FLOWS

ROOT = Path(__file__).parents[1]
PRESETS = sorted((ROOT / "deployments" / "presets").glob("*.yaml"))
DEPLOYMENTS: list[dict[str, Any]] = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]


def flow_of(preset: Path) -> str:
    """Presets of a study are named after it; all others are of the pipeline."""
    return {"aggregate": "aggregate-study", "sampling": "sampling-study", "simulate": "simulate"}.get(
        preset.stem.split("-")[0], "pipeline"
    )


@pytest.mark.parametrize("preset", PRESETS, ids=lambda path: path.stem)
def test_every_preset_fits_its_flow(preset: Path) -> None:
    params = load_params(FLOWS[flow_of(preset)].params, preset)
    assert params.name == preset.stem


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda deployment: deployment["name"])
def test_every_deployment_can_be_imported_and_has_the_parameters_of_its_preset(deployment: dict[str, Any]) -> None:
    module, name = deployment["entrypoint"].rsplit(".", 1)
    flow = getattr(importlib.import_module(module), name)
    preset = ROOT / "deployments" / "presets" / f"{deployment['name'].removeprefix(flow.name + '-')}.yaml"
    assert deployment["name"].startswith(flow.name)
    expected = load_params(FLOWS[flow.name].params, preset)
    assert FLOWS[flow.name].params.model_validate(deployment["parameters"]["params"]) == expected


def test_pins_agree_with_the_constraints() -> None:
    lines = (ROOT / "constraints.txt").read_text().split()
    pinned = {name.lower(): version for name, version in (line.split("==") for line in lines)}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    for line in [*project["dependencies"], *extras]:
        requirement = Requirement(line)
        assert requirement.name.lower() in pinned, line
        assert requirement.specifier.contains(pinned[requirement.name.lower()]), line
