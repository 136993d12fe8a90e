"""``eyrie backup`` and ``eyrie restore``: a whole work folder as one tar file, and back, also while services run.

Databases are copied first, each as it was at one moment. Artifacts and logged files are copied after them: these never
change once they are written, so everything that a copied database refers to is in the backup.
"""

from __future__ import annotations

import io
import json
import sqlite3
import tarfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from shutil import disk_usage
from tempfile import TemporaryDirectory
from typing import Annotated

from pydantic import Field

from tasks import settings
from tasks.endpoints import running_services
from tasks.tracking_client import COMPANIONS
from xcore.errors import ArtifactDamaged, ConfigError, EyrieError
from xcore.files import replacing
from xcore.saved import Described, read_json

RECORD = "backup.json"
SQLITE = b"SQLite format 3\x00"
# Made again when they are needed, or true only while services run.
LEFT_OUT = frozenset({"logs", "cache", "ui", ".staging", "services.json", "mlflow-users.db", "mlflow-users.ini"})


def back_up(target: Path) -> int:
    """Write the work folder into a new tar file, whole or not at all."""
    home = settings.home()
    if target.exists():
        raise ConfigError(f"{target} is there already: name a new file, or move the old one away")
    if target.absolute().is_relative_to(home):
        raise ConfigError(f"{target} lies in the work folder {home}: name a file outside of it")
    if (home / "postgres").is_dir() and running_services():
        raise ConfigError(
            "the services keep their records in PostgreSQL, which cannot be copied while it runs: stop them"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as draft, tarfile.open(draft, "w") as archive:
        record = json.dumps({"home": str(home), "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}).encode()
        about = tarfile.TarInfo(RECORD)
        about.size = len(record)
        archive.addfile(about, io.BytesIO(record))
        files = list(_files(home))
        databases = [path for path in files if _is_database(path)]
        for path in databases:
            _add_database(archive, path, path.relative_to(home))
        for path in files:
            if path not in databases:
                archive.add(path, path.relative_to(home), recursive=False)
    print(f"{target}: {target.stat().st_size / 1e6:,.1f} MB, {len(databases)} databases, {len(files)} files of {home}")
    return 0


def restore(source: Path) -> int:
    """Fill a work folder that is missing or empty from a backup, whole or not at all."""
    home = settings.home()
    if home.is_dir() and any(path.name not in LEFT_OUT for path in home.iterdir()):
        raise ConfigError(f"the work folder {home} is not empty: move it away, or set EYRIE_HOME to another folder")
    home.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=home.parent, prefix=".restore-") as folder:
        draft = Path(folder) / "home"
        try:
            with tarfile.open(source, "r:") as archive:  # not packed: a small file cannot become a huge one
                _check_members(archive.getmembers(), home.parent)
                archive.extractall(draft, filter="data")
            record = read_json(draft / RECORD, _Record)
            (draft / RECORD).unlink()
            _move_addresses(draft / "mlflow.db", Path(record.home), home)
        except (OSError, tarfile.TarError, ValueError, ArtifactDamaged, sqlite3.Error) as error:
            raise EyrieError(f"{source} is no whole backup of `eyrie backup`: {error}") from None
        draft.chmod(0o700)
        if home.is_dir():
            for left in sorted(home.rglob("*"), reverse=True):
                left.rmdir() if left.is_dir() and not left.is_symlink() else left.unlink()
            home.rmdir()
        draft.rename(home)
    print(f"{home} is as it was at {record.created}")
    return 0


class _Record(Described):
    """``backup.json``: where the work folder was, and when."""

    home: str
    created: Annotated[str, Field(pattern=r"^[0-9TZ:-]+$")]


def _check_members(members: Sequence[tarfile.TarInfo], place: Path) -> None:
    """Refuse what `back_up` does not write: anything but plain files, and names that it leaves out."""
    for member in members:
        if not member.isreg() or LEFT_OUT & set(Path(member.name).parts):
            raise ValueError(f"it holds {member.name!r}, which no backup holds")
    n_bytes, free = sum(member.size for member in members), disk_usage(place).free
    if n_bytes > free:
        raise ValueError(f"its files have {n_bytes / 1e9:,.1f} GB, and {place} has room for {free / 1e9:,.1f} GB")


def _files(home: Path) -> Iterator[Path]:
    """All files to keep, in order; a lock or a SQLite companion belongs to a moment."""
    for path in sorted(home.rglob("*")):
        parts = path.relative_to(home).parts
        kept = path.is_file() and not path.is_symlink() and not LEFT_OUT & set(parts)
        if kept and path.suffix != ".lock" and not path.name.endswith(COMPANIONS):
            yield path


def _is_database(path: Path) -> bool:
    with path.open("rb") as file:
        return path.suffix == ".db" and file.read(len(SQLITE)) == SQLITE


def _add_database(archive: tarfile.TarFile, path: Path, name: Path) -> None:
    """A copy of the database as it is at one moment, although others may write to it."""
    with TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
        archive.add(copy, name)


def _move_addresses(database: Path, old: Path, new: Path) -> None:
    """MLflow keeps whole addresses of its files: let them point into the folder that they are restored to."""
    if old == new or not database.is_file():
        return
    before, after = (home / "mlflow-files" for home in (old, new))
    with closing(sqlite3.connect(database)) as connection, connection:
        tables = [name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")]
        for table in map(_quoted, tables):
            for column in connection.execute(f"pragma table_info({table})").fetchall():
                name = _quoted(column[1])
                query = f"update {table} set {name} = replace({name}, ?, ?) where instr({name}, ?) > 0"
                connection.execute(query, (str(before), str(after), str(before)))


def _quoted(name: str) -> str:
    """A name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'
