"""Makes a Prefect server hold what the files declare: work pool, queues, deployments, automations; and no more."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from xcore.errors import ConfigError, EyrieError

DEPLOYMENTS, SERVER = Path("prefect.yaml"), Path("deployments/server.yaml")
OURS = "eyrie"  # tag of every deployment and first word of every automation that these files declare
PAGE = 200


def deploy(no_worker_runs: bool = False) -> int:
    """Apply the files to the server of ``PREFECT_API_URL``; what they declared before and no longer do is removed.

    With `no_worker_runs`, runs that are said to be under way in the pool are known to be lost, and are marked Crashed.
    """
    if no_worker_runs:
        crash_lost_runs()
    from prefect.client.orchestration import get_client

    declared, server = _read(DEPLOYMENTS), _read(SERVER)
    with get_client(sync_client=True) as client:
        _apply_pool(client, server["work_pool"])
        _apply_queues(client, server["work_pool"]["name"], server["work_queues"])
        _apply_deployments()
        for name in _remove_deployments(client, declared["deployments"]):
            print(f"removed {name}: it is no longer in {DEPLOYMENTS}")
        for name in _apply_automations(client, server["automations"]):
            print(f"removed the automation {name}: it is no longer in {SERVER}")
    print(f"{len(declared['deployments'])} deployments, {len(server['automations'])} automations")
    return 0


def crash_lost_runs() -> None:
    """Mark runs as Crashed that no worker works on any more, so that they can be retried."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas import filters
    from prefect.client.schemas.objects import StateType
    from prefect.states import Crashed

    pool = filters.WorkPoolFilterName(any_=[_read(SERVER)["work_pool"]["name"]])
    under_way = filters.FlowRunFilterStateType(any_=[StateType.PENDING, StateType.RUNNING, StateType.CANCELLING])
    lost = "The services were stopped while this was under way. A retry goes on after the last finished step."
    with get_client(sync_client=True) as client:
        for run in client.read_flow_runs(
            flow_run_filter=filters.FlowRunFilter(state=filters.FlowRunFilterState(type=under_way)),
            work_pool_filter=filters.WorkPoolFilter(name=pool),
        ):
            client.set_flow_run_state(run.id, Crashed(message=lost), force=True)
            print(f"run {run.name} was lost: marked Crashed")


def _read(path: Path) -> dict[str, Any]:
    try:
        tree: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf8"))
    except FileNotFoundError:
        raise ConfigError(f"{path} was not found in {Path.cwd()}: run this in the folder that holds it") from None
    return tree


def _apply_pool(client: Any, pool: Mapping[str, Any]) -> None:
    """Create the pool if it is missing; an existing one keeps what was set in the UI, such as a pause."""
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectNotFound
    from prefect.workers.process import ProcessWorker

    try:
        client.read_work_pool(pool["name"])
    except ObjectNotFound:
        template = ProcessWorker.get_default_base_job_template()
        client.create_work_pool(WorkPoolCreate(**pool, base_job_template=template))


def _apply_queues(client: Any, pool: str, queues: Iterable[Mapping[str, Any]]) -> None:
    known = {queue.name: queue for queue in client.read_work_queues(work_pool_name=pool)}
    for queue in queues:
        if queue["name"] not in known:
            client.create_work_queue(work_pool_name=pool, **queue)
        else:
            changes = {name: value for name, value in queue.items() if name != "name"}
            client.update_work_queue(known[queue["name"]].id, **changes)


def _apply_deployments() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"],
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode:
        raise EyrieError(f"`prefect deploy --all` failed with exit code {done.returncode}:\n{done.stdout}")


def _remove_deployments(client: Any, declared: Iterable[Mapping[str, Any]]) -> list[str]:
    """Delete deployments that carry our tag and are not declared; others on the same server are not ours to touch."""
    from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterTags

    kept = {(deployment["entrypoint"], deployment["name"]) for deployment in declared}
    ours = DeploymentFilter(tags=DeploymentFilterTags(all_=[OURS]))
    known: list[Any] = []
    while page := client.read_deployments(deployment_filter=ours, limit=PAGE, offset=len(known)):
        known += page
    gone = [deployment for deployment in known if (deployment.entrypoint, deployment.name) not in kept]
    for deployment in gone:
        client.delete_deployment(deployment.id)
    return [deployment.name for deployment in gone]


def _apply_automations(client: Any, automations: Iterable[Mapping[str, Any]]) -> list[str]:
    """Create or update by name; returns the names of those that were removed."""
    from prefect.events.schemas.automations import AutomationCore

    wanted = {automation["name"]: AutomationCore.model_validate(automation) for automation in automations}
    known = {automation.name: automation for automation in client.read_automations()}
    for name, automation in wanted.items():
        if name in known:
            client.update_automation(known[name].id, automation)
        else:
            client.create_automation(automation)
    gone = [name for name in known if name.startswith(f"{OURS}-") and name not in wanted]
    for name in gone:
        client.delete_automation(known[name].id)
    return gone
