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
