"""Empty databases that a machine keeps: new work folders get copies, and do without them where there is none."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from mlflow import MlflowClient

from tasks.empty_databases import MLFLOW, PREFECT, EmptyDatabase, copy_kept, fill, keep
from tasks.tracking_client import tracking_client
from tests.workplace import Workplace


def make_small(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("pragma journal_mode = wal")
        database.execute("create table alembic_version (version_num text)")
        database.execute("insert into alembic_version values ('first')")
        database.commit()


SMALL = EmptyDatabase("numpy", make_small)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def tables(path: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute("select type, sql from sqlite_master order by type, name").fetchall()


def test_without_a_kept_database_a_program_makes_its_own(tmp_path: Path) -> None:
    assert not copy_kept(SMALL, tmp_path / "new.db")
    fill(tmp_path / "new.db", SMALL)
    assert not (tmp_path / "new.db").exists()


def test_a_copy_has_all_tables_in_one_file(tmp_path: Path) -> None:
    keep(SMALL)
    fill(tmp_path / "folder" / "new.db", SMALL)
    assert tables(tmp_path / "folder" / "new.db") == tables(SMALL.kept)
    assert sorted(path.name for path in SMALL.kept.parent.iterdir()) == [SMALL.kept.name, SMALL.kept.stem + ".lock"]


def test_a_database_with_records_is_never_overwritten(tmp_path: Path) -> None:
    keep(SMALL)
    (tmp_path / "old.db").write_text("records")
    fill(tmp_path / "old.db", SMALL)
    assert (tmp_path / "old.db").read_text() == "records"


@pytest.mark.parametrize("size", [0, 100, 5000])
def test_a_kept_database_that_is_not_whole_counts_as_none(tmp_path: Path, size: int) -> None:
    keep(SMALL)
    whole = SMALL.kept.read_bytes()
    SMALL.kept.write_bytes(whole[:size])
    assert not copy_kept(SMALL, tmp_path / "new.db")
    assert not (tmp_path / "new.db").exists()


def test_a_set_up_that_fails_keeps_nothing() -> None:
    def fail(path: Path) -> None:
        make_small(path)
        raise OSError("full")

    broken = EmptyDatabase("numpy", fail)
    with pytest.raises(OSError, match="full"):
        keep(broken)
    assert not broken.kept.exists()


def test_mlflows_copy_is_what_mlflow_makes_and_its_files_are_in_the_work_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    keep(MLFLOW)
    monkeypatch.setattr("mlflow.store.db.utils._upgrade_db", None)  # a copy needs no migration
    monkeypatch.setenv("EYRIE_HOME", str(tmp_path / "home"))
    experiment = tracking_client().get_experiment("0")
    assert experiment.artifact_location == f"file://{tmp_path}/home/mlflow-files/0"
    assert tables(tmp_path / "home" / "mlflow.db") == tables(MLFLOW.kept)
    client: MlflowClient = tracking_client()
    assert client.get_run(client.create_run("0").info.run_id).info.status == "RUNNING"


@pytest.mark.slow
def test_the_embedded_prefect_api_uses_the_copy_and_makes_no_table(tmp_path: Path) -> None:
    keep(PREFECT)
    workplace = Workplace(tmp_path / "home", PREFECT_SERVER_DATABASE_MIGRATE_ON_START="false")
    done = workplace.run("simulate", "deployments/presets/simulate-regression.yaml", "--json")
    assert done.returncode == 0, done.stderr
    with closing(sqlite3.connect(tmp_path / "home" / "prefect" / "prefect.db")) as records:
        assert records.execute("select state_type from flow_run").fetchall() == [("COMPLETED",)]
