"""A work folder as one file, and back: also under another name, and with a database that is in use."""

import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from tests.workplace import Workplace
from xcore.errors import ConfigError, EyrieError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A work folder with an artifact, a logged file and MLflow's database, which another process holds open."""
    home = tmp_path / "home"
    for name in ("store/model/77/manifest.json", "mlflow-files/demo/report.html", "logs/worker.log", "runs.lock"):
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


def test_both_commands_work_on_the_command_line(home: Path, tmp_path: Path) -> None:
    kept = str(tmp_path / "kept.tar")
    assert Workplace(home).run("backup", kept).returncode == 0
    done = Workplace(tmp_path / "back").run("restore", kept)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "back" / "mlflow-files" / "demo" / "report.html").read_text() == "mlflow-files/demo/report.html"
