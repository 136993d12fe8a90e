"""Access to MLflow: a client with a complete database, and a lock for work that only one process may do at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from tasks import settings
from tasks.empty_databases import MLFLOW, copy_kept
from xcore.errors import EyrieError
from xcore.files import replacing

if TYPE_CHECKING:
    from mlflow import MlflowClient

SECONDS_TO_WAIT = 60.0  # for another process that writes to the database
COMPANIONS = ("-journal", "-wal", "-shm")  # files that SQLite keeps beside a database


def tracking_client() -> MlflowClient:
    """A client of where runs and registered models are kept."""
    from mlflow import MlflowClient

    uri = settings.tracking_uri()
    if uri.startswith("sqlite:"):
        ensure_tracking_database(uri)
    return MlflowClient(uri)


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Hold the lock of this work folder's runs: no other process may look for a run and create it meanwhile."""
    with FileLock(settings.make_home() / "mlflow-runs.lock"):
        yield


def ensure_tracking_database(uri: str) -> None:
    """Make MLflow's SQLite database unless there is a complete one.

    MLflow makes its tables in hundreds of statements, and cannot continue if it is killed. So the database is made
    under another name and renamed when it is complete. One without any experiment was never complete, since MLflow
    makes the first experiment last. It holds nothing, and is replaced.
    """
    path = _database_file(uri)
    if path is None or _is_complete(path):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        if not _is_complete(path):
            _make(path)


def _make(path: Path) -> None:
    for leftover in path.parent.glob(f".{path.name}.*"):  # of a process that was killed here
        leftover.unlink()
    with replacing(path) as draft:
        if not copy_kept(MLFLOW, draft):
            MLFLOW.make(draft)
        with closing(sqlite3.connect(draft)) as database:
            files = (settings.home() / "mlflow-files").as_uri()
            database.execute("update experiments set artifact_location = ? || '/' || experiment_id", (files,))
            database.commit()
            database.execute("pragma journal_mode = wal")  # kept in the file: readers and a writer do not wait
        for name in COMPANIONS:  # SQLite would apply an incomplete database's journal to the new one
            path.with_name(path.name + name).unlink(missing_ok=True)


def _is_complete(path: Path) -> bool:
    if not path.exists():
        return False
    try:
        with closing(sqlite3.connect(path, timeout=SECONDS_TO_WAIT)) as database:
            known = {name for (name,) in database.execute("select name from sqlite_master where type = 'table'")}
            kept = known & {"experiments", "registered_models"}
            return any(database.execute(f"select 1 from {table} limit 1").fetchone() for table in kept)
    except sqlite3.Error as error:
        raise EyrieError(
            f"MLflow's database {path} cannot be read: {error}. "
            "Put a copy of it back, or move it away: then a new one is made, without the runs of this one"
        ) from None


def _database_file(uri: str) -> Path | None:
    """The file of a SQLite address; None for a database in memory."""
    from sqlalchemy.engine import make_url

    name = make_url(uri).database
    return Path(name).absolute() if name and name != ":memory:" else None
