"""MLflow runs that a killed process left under way: found by a mark of the process, and ended."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.endpoints import is_alive, mark_of
from tasks.tracking_client import one_at_a_time, tracking_client

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

PROCESS_TAG = "eyrie.process"
FLOW_RUN_TAG = "eyrie.flow_run_id"
PAGE = 1000


def own_process() -> str:
    """Host, id and start of this process, as a tag of the runs that it makes."""
    pid, start = mark_of(os.getpid()) or (os.getpid(), 0.0)
    return f"{_host()} {pid} {start:.2f}"


def end_lost_runs(crashed: Collection[str] = ()) -> list[str]:
    """End runs as KILLED if their process is gone from this machine. Returns the ids of their Prefect flow runs.

    What another machine runs, only that machine can tell, or Prefect: `crashed` are ids of flow runs that ended there.
    """
    client = tracking_client()
    ended = []
    for run in _under_way(client, crashed):
        with one_at_a_time():  # it may be reopened at this moment
            current = client.get_run(run.info.run_id)
            if current.info.status == "RUNNING" and _is_over(current, crashed):
                client.set_terminated(current.info.run_id, "KILLED")
                ended.append(current)
    return [run.data.tags[FLOW_RUN_TAG] for run in ended if FLOW_RUN_TAG in run.data.tags]


def _under_way(client: MlflowClient, crashed: Collection[str]) -> list[Run]:
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    found: list[Run] = []
    token: str | None = None
    while experiments:
        page = client.search_runs(experiments, "attributes.status = 'RUNNING'", max_results=PAGE, page_token=token)
        found += [run for run in page if _is_over(run, crashed)]
        token = page.token
        if not token:
            break
    return found


def _is_over(run: Run, crashed: Collection[str]) -> bool:
    mark = run.data.tags.get(PROCESS_TAG, "")
    is_here = mark.partition(" ")[0] == _host()
    return is_lost(mark) or (run.data.tags.get(FLOW_RUN_TAG) in crashed and not is_here)


def is_lost(mark: str) -> bool:
    """Whether a mark is that of a process of this machine which is gone."""
    host, _, process = mark.partition(" ")
    try:
        pid, start = process.split()
        return host == _host() and not is_alive((int(pid), float(start)))
    except ValueError:  # no mark of ours
        return False


def _host() -> str:
    """The machine, and within it the container: process ids mean nothing elsewhere."""
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:  # not Linux
        namespace = ""
    return f"{socket.gethostname()}/{namespace}".replace(" ", "-")
