"""Makes a Prefect server hold what the files declare: work pool, queues, deployments, automations; and no more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from flows.operations.declarations import (
    COMMAND,
    DEPLOYMENTS,
    Declared,
    Deployment,
    deployment_of,
    read_declarations,
    read_server,
)
from flows.operations.form import form_schema
from flows.operations.lost_runs import crash_pool_runs, mark_lost_runs
from flows.operations.notifications import notifications

OURS = "eyrie"  # tag of every deployment and first word of every automation that these files declare
PAGE = 200


def deploy() -> int:
    """Apply the files to the server of ``PREFECT_API_URL``; what they declared before and no longer do is removed."""
    declared = read_declarations()
    _apply_server(declared.server)
    _apply_deployments(declared)
    return 0


def deploy_presets(presets: Sequence[Path], flow: str | None = None) -> int:
    """Make a deployment of each preset, beside those of `prefect.yaml`; an existing one is updated.

    They have the tag `eyrie-preset` and not `eyrie`, so that `deploy` does not remove them.
    """
    from prefect.client.orchestration import get_client

    deployments = [deployment_of(preset, flow) for preset in presets]
    parameters = [deployment.run_parameters for deployment in deployments]  # all are checked before one is applied
    _apply_server(read_server())
    with get_client(sync_client=True) as client:
        for deployment, run in zip(deployments, parameters, strict=True):
            _apply_deployment(client, client.create_flow(deployment.flow), deployment, Path.cwd())
            name = f"{deployment.flow.name}/{deployment.name}"
            print(f"{name} holds {deployment.preset}, experiment {run['params']['name']}")
    return 0


def prepare_server() -> int:
    """What `serve` does before its worker starts: lost runs are marked, and the files are applied.

    Runs that are said to be under way in the pool are known to be lost. Without a `prefect.yaml` there are no
    deployments to apply, and those that the server holds stay.
    """
    server = read_server()
    crash_pool_runs(server["work_pool"]["name"])
    mark_lost_runs()
    if DEPLOYMENTS.exists():
        return deploy()
    _apply_server(server)
    print(f"no {DEPLOYMENTS} in {Path.cwd()}: no deployments were applied")
    return 0


def _apply_server(server: Mapping[str, Any]) -> None:
    from prefect.client.orchestration import get_client

    automations = [*server["automations"], *notifications()]
    with get_client(sync_client=True) as client:
        _apply_pool(client, server["work_pool"])
        _apply_queues(client, server["work_pool"]["name"], server["work_queues"])
        for name in _apply_automations(client, automations):
            print(f"removed the automation {name}: it is no longer declared")
    print(f"{len(automations)} automations")


def _apply_deployments(declared: Declared) -> None:
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        flows = {deployment.flow.name: deployment.flow for deployment in declared.deployments}
        ids = {name: client.create_flow(flow) for name, flow in flows.items()}
        known = {(one.entrypoint, one.name): one for one in _known_deployments(client)}
        changed = sum(
            _apply_deployment(
                client,
                ids[deployment.flow.name],
                deployment,
                declared.source.parent,
                known.pop((deployment.entrypoint, deployment.name), None),
            )
            for deployment in declared.deployments
        )
        for one in known.values():
            client.delete_deployment(one.id)
            print(f"removed {one.name}: it is no longer in {declared.source.name}")
    print(f"{len(declared.deployments)} deployments ({changed} new or changed)")


def _apply_deployment(client: Any, flow_id: UUID, deployment: Deployment, folder: Path, known: Any = None) -> bool:
    """Create a deployment, or update the known one where it differs; whether anything was to do.

    Its runs work in `folder`, so that relative paths mean the same there as here.
    """
    from prefect.client.schemas.actions import DeploymentScheduleCreate

    limit, options = _concurrency(deployment.concurrency_limit)
    schedules = [DeploymentScheduleCreate.model_validate(_schedule(one)) for one in deployment.schedules]
    others = {
        "description": deployment.description,
        "tags": list(deployment.tags),
        "parameters": deployment.run_parameters,
        "parameter_openapi_schema": form_schema(deployment.flow),
        "enforce_parameter_schema": True,
        "work_pool_name": deployment.work_pool.name,
        "work_queue_name": deployment.work_pool.work_queue_name,
        "job_variables": {"command": COMMAND, **deployment.work_pool.job_variables},
        "concurrency_options": options,
        "pull_steps": [{"prefect.deployments.steps.set_working_directory": {"directory": str(folder)}}],
    }
    if known and all(getattr(known, name) == value for name, value in others.items()):
        limit_of_known = known.global_concurrency_limit and known.global_concurrency_limit.limit
        if limit_of_known == limit and _declared(known.schedules) == _declared(schedules):
            return False  # an update takes about a second: its form is checked, here and by the server
    client.create_deployment(
        flow_id=flow_id,
        name=deployment.name,
        entrypoint=deployment.entrypoint,
        schedules=schedules,
        concurrency_limit=limit,
        **others,
    )
    return True


def _declared(schedules: Iterable[Any]) -> list[dict[str, Any]]:
    """Schedules without what the server adds to them."""
    declared = {"schedule", "active", "slug", "parameters", "max_scheduled_runs"}
    return [schedule.model_dump(include=declared) for schedule in schedules]


def _schedule(declared: Mapping[str, Any]) -> dict[str, Any]:
    """Prefect's own form: when it fires, apart from what concerns the deployment."""
    outside = {"active", "slug", "parameters", "max_scheduled_runs"}
    when = {name: value for name, value in declared.items() if name not in outside}
    return {name: value for name, value in declared.items() if name in outside} | {"schedule": when}


def _concurrency(limit: int | Mapping[str, Any] | None) -> tuple[int | None, Any]:
    from prefect.client.schemas.objects import ConcurrencyOptions

    if not isinstance(limit, Mapping):
        return limit, None
    return limit["limit"], ConcurrencyOptions(**{name: value for name, value in limit.items() if name != "limit"})


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


def _known_deployments(client: Any) -> list[Any]:
    """The deployments that carry our tag; others on the same server are not ours to touch."""
    from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterTags

    ours = DeploymentFilter(tags=DeploymentFilterTags(all_=[OURS]))
    known: list[Any] = []
    while page := client.read_deployments(deployment_filter=ours, limit=PAGE, offset=len(known)):
        known += page
    return known


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
