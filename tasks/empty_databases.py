"""Empty databases of Prefect and MLflow, made once per machine and copied into new work folders.

Both programs make their tables in hundreds of migrations, which takes seconds of a new work folder's first command.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from filelock import FileLock


@dataclass(frozen=True)
class EmptyDatabase:
    """A program's database without any record.

    Attributes
    ----------
    program : the distribution that the tables belong to; each version has its own.
    make : writes the database to a path where nothing is.
    """

    program: str
    make: Callable[[Path], None]

    @property
    def kept(self) -> Path:
        """Where this machine keeps it."""
        return _folder() / f"{self.program}-{version(self.program)}.db"


def keep(database: EmptyDatabase) -> None:
    """Make the empty database for this machine, unless there is one."""
    kept = database.kept
    kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with FileLock(kept.with_suffix(".lock")):
        if not kept.exists():
            with TemporaryDirectory(dir=kept.parent, prefix=".") as folder:
                draft = Path(folder) / kept.name
                database.make(draft)
                _in_one_file(draft)
                draft.replace(kept)


def copy_kept(database: EmptyDatabase, target: Path) -> bool:
    """Copy the machine's empty database to `target`, if there is one; one that is not whole counts as none."""
    kept = database.kept
    if not kept.is_file():
        return False
    shutil.copyfile(kept, target)
    try:
        with closing(sqlite3.connect(target)) as connection:
            versions = connection.execute("select version_num from alembic_version").fetchall()
            whole = len(versions) == 1 and connection.execute("pragma quick_check").fetchone() == ("ok",)
    except sqlite3.Error:
        whole = False
    if not whole:
        target.unlink()
    return bool(whole)


def fill(path: Path, database: EmptyDatabase) -> None:
    """Put a copy at `path`, if this machine keeps one and nothing is there; else the program makes its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        if not path.exists():
            with TemporaryDirectory(dir=path.parent, prefix=".") as folder:
                draft = Path(folder) / path.name
                if copy_kept(database, draft):
                    draft.replace(path)


def _folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "eyrie"


def _in_one_file(path: Path) -> None:
    """Take in what SQLite keeps in files beside a database."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma wal_checkpoint(truncate)")


def _make_prefect(path: Path) -> None:
    words = (sys.executable, "-m", "prefect", "--no-prompt", "server", "database", "upgrade", "--yes")
    places = {
        "PREFECT_HOME": str(path.parent / "prefect"),
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{path}",
    }
    subprocess.run(words, env=os.environ | places, check=True, capture_output=True)


def _make_mlflow(path: Path) -> None:
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    store = SqlAlchemyStore(f"sqlite:///{path}", (path.parent / "files").as_uri())
    store.engine.dispose()


PREFECT = EmptyDatabase("prefect", _make_prefect)
MLFLOW = EmptyDatabase("mlflow", _make_mlflow)
