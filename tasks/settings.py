"""Where things are kept. Everything has an embedded default below one work folder."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from xcore.artifacts import Store


def home() -> Path:
    """The work folder: ``EYRIE_HOME``, or ``work`` below the current folder."""
    return Path(os.environ.get("EYRIE_HOME", "work")).absolute()


def store() -> Store:
    """The artifact store: ``EYRIE_STORE`` (a folder or any `pyarrow.fs` URI), or ``store`` in the work folder."""
    return _store(os.environ.get("EYRIE_STORE") or str(home() / "store"), home() / "cache")


@cache
def _store(root: str, local_copies: Path) -> Store:
    """One for each root, since a store remembers which files it has found intact."""
    return Store(root, cache=local_copies)


def tracking_uri() -> str:
    """Where MLflow keeps runs: ``MLFLOW_TRACKING_URI``, or a SQLite file in the work folder."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{home() / 'mlflow.db'}"


def use_embedded_services() -> None:
    """Point Prefect and MLflow at the work folder, where the environment is silent. Call before importing them."""
    home().mkdir(parents=True, exist_ok=True)
    for name, value in {
        "PREFECT_HOME": str(home() / "prefect"),
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",  # 20 are too few on a busy machine
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_UI_V2_ENABLED": "false",  # the newer UI asks an outside host
        "PREFECT_RESULTS_DEFAULT_SERIALIZER": "json",
        "PREFECT_LOGGING_EXTRA_LOGGERS": "xcore,tasks",
        "MLFLOW_TRACKING_URI": tracking_uri(),
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
        "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    }.items():
        os.environ.setdefault(name, value)
