"""A work folder as one file, and back: also under another name, and with a database that is in use."""

import io
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Literal

import pytest

from tests.workplace import Workplace
from xcore.errors import ConfigError, EyrieError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A work folder with an artifact, a logged file and MLflow's database, which another process holds open."""
    home = tmp_path / "home"
    for name in ("store/model/77/manifest.json", "mlflow-files/demo/report.html", "logs/worker.log", "runs.lock",
                 "mlflow-users.ini", "services.json"):  # fmt: skip
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(name)
    with closing(sqlite3.connect(home / "mlflow.db")) as database, database:
        database.execute("pragma journal_mode=wal")
        database.execute("create table runs (artifact_uri text, name text)")
        address = (home / "mlflow-files" / "demo").as_uri()
        database.execute("insert into runs values (?, 'one')", (address,))
    monkeypatch.setenv("EYRIE_HOME", str(home))
    return home


def restored(backup: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of all files of a work folder that is restored."""
    from flows.operations.backup import restore

    monkeypatch.setenv("EYRIE_HOME", str(home))
    assert restore(backup) == 0
    return {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()}


def test_a_backup_holds_what_cannot_be_made_again_and_moves_to_another_folder(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows.operations.backup import back_up

    with closing(sqlite3.connect(home / "mlflow.db")) as writer:
        writer.execute("insert into runs values ('', 'under way')")  # not committed, so not in the backup
        assert back_up(tmp_path / "kept.tar") == 0
    found = restored(tmp_path / "kept.tar", tmp_path / "elsewhere", monkeypatch)
    assert found == {"store/model/77/manifest.json", "mlflow-files/demo/report.html", "mlflow.db"}
    with closing(sqlite3.connect(tmp_path / "elsewhere" / "mlflow.db")) as database:
        rows = database.execute("select artifact_uri, name from runs").fetchall()
    assert rows == [((tmp_path / "elsewhere" / "mlflow-files" / "demo").as_uri(), "one")]


def test_nothing_is_overwritten(home: Path, tmp_path: Path) -> None:
    from flows.operations.backup import back_up, restore

    back_up(tmp_path / "kept.tar")
    with pytest.raises(ConfigError, match="is there already"):
        back_up(tmp_path / "kept.tar")
    with pytest.raises(ConfigError, match="lies in the work folder"):
        back_up(home / "kept.tar")
    with pytest.raises(ConfigError, match="is not empty"):
        restore(tmp_path / "kept.tar")


def test_a_file_that_is_no_backup_leaves_no_work_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "note.txt").write_text("hello")
    with tarfile.open(tmp_path / "other.tar", "w") as archive:
        archive.add(tmp_path / "note.txt", "note.txt")
    for name in ("note.txt", "other.tar", "missing.tar"):
        with pytest.raises(EyrieError, match="is no whole backup"):
            restored(tmp_path / name, tmp_path / "new", monkeypatch)
    assert not (tmp_path / "new").exists()
    assert list(tmp_path.glob(".restore-*")) == []


RECORD = b'{"home": "/old", "created": "2026-01-01T00:00:00Z"}'


def link(kind: bytes, target: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo("store/link")
    member.type, member.linkname = kind, target
    return member


def archive_of(path: Path, *members: tuple[str, bytes] | tarfile.TarInfo, mode: Literal["w", "w:gz"] = "w") -> Path:
    with tarfile.open(path, mode) as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
            else:
                about = tarfile.TarInfo(member[0])
                about.size = len(member[1])
                archive.addfile(about, io.BytesIO(member[1]))
    return path


@pytest.mark.parametrize(
    "members",
    [
        [("../outside", b"x")],
        [link(tarfile.SYMTYPE, "/etc")],
        [link(tarfile.SYMTYPE, "backup.json")],
        [link(tarfile.LNKTYPE, "/etc/passwd")],
        [link(tarfile.FIFOTYPE, "")],
        [link(tarfile.CHRTYPE, "")],
        [("services.json", b"{}")],
        [("logs/worker.log", b"x")],
        [("a" * 300, b"x")],
        [("mlflow.db", b"no database at all " * 100)],
        [("store", b"x"), ("store/x", b"x")],
    ],
)
def test_what_no_backup_holds_is_refused(
    members: list[tuple[str, bytes] | tarfile.TarInfo], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = archive_of(tmp_path / "hostile.tar", ("backup.json", RECORD), *members)
    with pytest.raises(EyrieError, match="is no whole backup"):
        restored(source, tmp_path / "new", monkeypatch)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hostile.tar"]


@pytest.mark.parametrize(
    "record",
    [b"[1]", b"7", b"{}", b'{"home": 7, "created": "x"}', b"[" * 200_000, RECORD.replace(b"2026", b"\\u001b[31m"), b""],
)
def test_a_record_that_is_none_is_refused(record: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EyrieError, match="is no whole backup"):
        restored(archive_of(tmp_path / "odd.tar", ("backup.json", record)), tmp_path / "new", monkeypatch)


def test_a_packed_file_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = archive_of(tmp_path / "bomb.tar", ("backup.json", RECORD), ("big", bytes(10**8)), mode="w:gz")
    assert bomb.stat().st_size < 10**6
    with pytest.raises(EyrieError, match="is no whole backup"):
        restored(bomb, tmp_path / "new", monkeypatch)


def test_a_backup_that_does_not_fit_is_refused(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from flows.operations import backup

    backup.back_up(tmp_path / "kept.tar")
    full = type("Usage", (), {"free": 10})
    monkeypatch.setattr(backup, "disk_usage", lambda place: full)
    with pytest.raises(EyrieError, match="has room for"):
        restored(tmp_path / "kept.tar", tmp_path / "new", monkeypatch)


def test_names_of_tables_are_no_sql(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from flows.operations.backup import back_up

    address = str(home / "mlflow-files" / "x")
    with closing(sqlite3.connect(home / "mlflow.db")) as database, database:
        database.execute("""create table "odd ' "" ; name" ("col' "" umn" text)""")
        database.execute("""insert into "odd ' "" ; name" values (?)""", (address,))
    back_up(tmp_path / "kept.tar")
    restored(tmp_path / "kept.tar", tmp_path / "new", monkeypatch)
    with closing(sqlite3.connect(tmp_path / "new" / "mlflow.db")) as database:
        (found,) = database.execute("""select * from "odd ' "" ; name\"""").fetchone()
    assert found == str(tmp_path / "new" / "mlflow-files" / "x")


def test_both_commands_work_on_the_command_line(home: Path, tmp_path: Path) -> None:
    kept = str(tmp_path / "kept.tar")
    assert Workplace(home).run("backup", kept).returncode == 0
    done = Workplace(tmp_path / "back").run("restore", kept)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "back" / "mlflow-files" / "demo" / "report.html").read_text() == "mlflow-files/demo/report.html"
