"""How programs find Prefect and MLflow: the services that run in the work folder, or its embedded databases."""

from __future__ import annotations

import json
import os
import secrets
import site
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from tasks import settings
from xcore.files import replacing

ProcessMark = tuple[int, float]  # an id may be given to another process later; with the time of its start it is unique

# The system tells a process's start by its clock, which may be set meanwhile.
SECONDS_OF_CLOCK_DRIFT = 5.0

SETTINGS = {
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "600",  # ten are usual; a server that ends is noticed at once
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_V2_ENABLED": "false",  # the newer UI asks an outside host
    "PREFECT_RESULTS_DEFAULT_SERIALIZER": "json",
    "PREFECT_LOGGING_EXTRA_LOGGERS": "xcore,tasks",
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",  # the automation for lost runs counts on it
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # a summary as JSON is the only output then
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
}


def keep_imports_ours() -> None:
    """Let every Python process that this one starts import the same `flows`, `tasks` and `xcore` as this one.

    ``python -m`` looks into the current folder first, where a user may keep a package `flows` of their own. A source
    folder goes on the path instead; an installed package is found without that.
    """
    os.environ["PYTHONSAFEPATH"] = "1"
    source = Path(__file__).resolve().parents[1]
    if source not in {Path(path).resolve() for path in (*site.getsitepackages(), site.getusersitepackages())}:
        others = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != str(source)]
        os.environ["PYTHONPATH"] = os.pathsep.join([str(source), *others])


def use_services() -> None:
    """Point Prefect and MLflow at the running services or at embedded databases. Call before importing them.

    What the environment says goes first.
    """
    settings.make_home()
    places = {"PREFECT_HOME": str(settings.home() / "prefect")}
    for name, value in (running_services() | places | SETTINGS).items():
        os.environ.setdefault(name, value)
    os.environ.setdefault("MLFLOW_TRACKING_URI", settings.tracking_uri())


def lock_embedded_server() -> None:
    """Give Prefect's embedded server a password that only this command knows. Call before importing Prefect.

    That server checks neither Host nor Origin: without a password, any web page could write into its database.
    """
    if not os.environ.get("PREFECT_API_URL"):
        password = f"eyrie:{secrets.token_urlsafe(24)}"
        os.environ |= {"PREFECT_SERVER_API_AUTH_STRING": password, "PREFECT_API_AUTH_STRING": password}


def running_services() -> dict[str, str]:
    """Variables by which programs reach the services of this work folder; none if no services run."""
    record = _read()
    reachable: dict[str, str] = record.get("environment", {})
    return reachable if is_alive(record.get("supervisor")) else {}


def leftovers() -> list[int]:
    """Processes that still run although the supervisor that started them was killed, and what these started."""
    record = _read()
    if is_alive(record.get("supervisor")):
        return []
    return session_members(mark for mark in record.get("processes", ()) if mark)


def announce(processes: Sequence[int], environment: Mapping[str, str]) -> None:
    """Say which processes belong to the services that this process supervises, and how to reach them."""
    marks = [mark_of(pid) for pid in processes]
    record = {"supervisor": mark_of(os.getpid()), "processes": marks, "environment": dict(environment)}
    with replacing(_file()) as draft:
        draft.touch(mode=0o600)  # it may hold a password
        draft.write_text(json.dumps(record))


def retract() -> None:
    """Say that there are no services any more."""
    _file().unlink(missing_ok=True)


def mark_of(pid: int) -> ProcessMark | None:
    """What tells a process from all others; None if it is gone, or has ended and waits for its parent to notice."""
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else (pid, process.create_time())
    except psutil.NoSuchProcess:
        return None


def is_alive(mark: Sequence[float] | None) -> bool:
    """Whether the process with this mark still runs."""
    known = mark_of(int(mark[0])) if mark else None
    return mark is not None and known is not None and abs(known[1] - mark[1]) < SECONDS_OF_CLOCK_DRIFT


def session_members(leaders: Iterable[Sequence[float]]) -> list[int]:
    """Processes in the sessions that some processes began, by their marks; they may themselves have ended."""
    starts = {int(mark[0]): mark[1] for mark in leaders}
    found = []
    for process in psutil.process_iter():
        try:
            start = starts.get(os.getsid(process.pid))
            if start is not None and process.create_time() > start - SECONDS_OF_CLOCK_DRIFT:
                found.append(process.pid)
        except (psutil.Error, OSError):  # it has ended meanwhile
            continue
    return found


def _file() -> Path:
    return settings.home() / "services.json"


def _read() -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads(_file().read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return record
