"""What the files declare: deployments in `prefect.yaml`; pool, queues and automations in `server.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from flows.catalogue import FLOWS, FlowEntry
from flows.presets import params_as_written, preset_as_written, read_preset
from flows.reference import did_you_mean
from flows.strict_yaml import read_yaml
from xcore.components import Component
from xcore.errors import ConfigError

DEPLOYMENTS = Path("prefect.yaml")
OWN_SERVER, USUAL_SERVER = Path("deployments/server.yaml"), Path(__file__).with_name("server.yaml")
# The worker's usual command would import a user's own `flows` where there is one in the run's folder.
COMMAND = "python -P -m flows.operations.pinned prefect.engine"


class WorkPool(Component):
    """Where the runs of a deployment go."""

    name: str = Field(description="Name of the work pool.")
    work_queue_name: str = Field(description="Name of one of its queues.")
    job_variables: dict[str, Any] = Field({}, description="Settings of the pool that differ for this deployment.")


class Deployment(Component):
    """A block of `prefect.yaml`. The parameters are those of a preset, or stand in the block."""

    name: str = Field(description="Name of the deployment.")
    description: str = Field(description="What the deployment does.")
    entrypoint: str = Field(description="The flow, as module.flow.")
    tags: tuple[str, ...] = Field(description="Tags. The first is `eyrie`.")
    work_pool: WorkPool = Field(description="Where the runs go.")
    schedules: tuple[dict[str, Any], ...] = Field(
        (), description="Schedules, each with cron, interval or rrule, and with active and slug."
    )
    concurrency_limit: int | dict[str, Any] | None = Field(None, description="Maximum number of runs at the same time.")
    preset: Path | None = Field(None, description="File with the parameters, relative to prefect.yaml.")
    parameters: dict[str, Any] | None = Field(None, description="The parameters, if there is no preset.")

    @property
    def flow(self) -> Any:
        """The flow, imported."""
        module, _, name = self.entrypoint.rpartition(".")
        return getattr(import_module(module), name)

    @property
    def run_parameters(self) -> dict[str, Any]:
        """Parameters of a run, with variables as they are written: they are read where the run is."""
        if (self.preset is None) == (self.parameters is None):
            raise ConfigError(f"{DEPLOYMENTS}: deployment {self.name} needs either a preset or parameters")
        entry: FlowEntry = FLOWS[self.flow.name]
        if self.preset:
            return {"params": preset_as_written(entry.params, self.preset, entry.preset_of)}
        tree = dict(self.parameters or {}).get("params", {})
        return {"params": params_as_written(entry.params, tree, f"deployment {self.name} in {DEPLOYMENTS}")}


@dataclass(frozen=True)
class Declared:
    """All that a server is to hold; `source` says where the deployments were declared."""

    deployments: tuple[Deployment, ...]
    server: Mapping[str, Any]
    source: Path


def read_declarations() -> Declared:
    """Read `prefect.yaml` of the current folder, and the server's declarations."""
    try:
        deployments = tuple(Deployment.model_validate(block) for block in _read(DEPLOYMENTS)["deployments"])
    except ValidationError as error:
        problems = "\n  ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        raise ConfigError(f"{DEPLOYMENTS} cannot be used: in a deployment\n  {problems}") from None
    return Declared(deployments, read_server(), DEPLOYMENTS.absolute())


def deployment_of(preset: Path, flow: str | None = None) -> Deployment:
    """A deployment of a preset, which need not be declared anywhere; its content tells which flow it is for."""
    flow = flow or flow_of_preset(read_preset(preset))
    if flow not in FLOWS:
        likely = did_you_mean(flow, FLOWS) or "."
        raise ConfigError(f"there is no flow {flow!r}{likely} Expected one of {', '.join(FLOWS)}")
    pool = read_server()["work_pool"]["name"]
    queue = "scoring" if flow == "score" else "training"
    return Deployment(
        name=preset.stem if preset.stem.startswith(f"{flow}-") else f"{flow}-{preset.stem}",
        description=f"The flow {flow} with the preset {preset.name}.",
        entrypoint=FLOWS[flow].flow_name.replace(":", "."),
        tags=("eyrie-preset",),
        work_pool=WorkPool(name=pool, work_queue_name=queue),
        preset=preset,
    )


def flow_of_preset(tree: Mapping[str, Any]) -> str:
    """The flow that a preset is for: only a study has factors, and so on; other presets are for the pipeline."""
    tell = {"factors": "study", "simulation": "simulate", "rows": "score", "dataset": "train", "promotion": "retrain"}
    return next((flow for name, flow in tell.items() if name in tree), "pipeline")


def read_server() -> Mapping[str, Any]:
    """Pool, queues and automations: of a file in the current folder, or the usual ones."""
    return _read(OWN_SERVER if OWN_SERVER.exists() else USUAL_SERVER)


def _read(path: Path) -> dict[str, Any]:
    try:
        tree: dict[str, Any] = read_yaml(path.read_text(encoding="utf8"))
    except FileNotFoundError:
        raise ConfigError(
            f"{path} was not found in {Path.cwd()}: run this in the folder that holds it. "
            "It declares deployments; docs/operations.md shows how to write one"
        ) from None
    except (ConfigError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    return tree
