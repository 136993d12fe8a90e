"""Tracking on all that MLflow can keep runs in: SQLite, PostgreSQL, and a server."""

from pathlib import Path

import pytest

from tasks.tracking import TrackedRun, flatten, kept_ids
from xcore.errors import ConfigError

BACKENDS = ("sqlite", "postgres", "server")


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("EYRIE_HOME", str(tmp_path))
    if request.param == "sqlite":
        monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    elif request.param == "postgres":
        monkeypatch.setenv(
            "MLFLOW_TRACKING_URI", f"postgresql+psycopg2://{request.getfixturevalue('postgres')}/postgres"
        )
    else:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", request.getfixturevalue("mlflow_server"))
    return str(request.param)


@pytest.mark.xdist_group("servers")
def test_a_run_is_found_again_by_its_result_and_reopened(backend: str) -> None:
    run = TrackedRun.open("nest", f"{backend}-0001", "first")
    run.log_setup({"model": {"kind": "ova", "ridge": 0.1}, "seed": 0}, {"eyrie.flow": "pipeline"})
    for step in range(5):
        run.log_progress(step, {"train/loss": 1.0 / (step + 1)})
    run.flush()

    reopened = TrackedRun.open("nest", f"{backend}-0001", "first")
    assert reopened.id == run.id
    assert reopened.is_reopened
    reopened.log_setup({"model": {"kind": "ova", "ridge": 0.1}, "seed": 0}, {"eyrie.flow": "pipeline"})
    reopened.log_curves()
    reopened.end("FINISHED")

    finished = TrackedRun.open("nest", f"{backend}-0001", "first")
    assert finished.id == run.id
    assert finished.is_finished
    assert TrackedRun.open("nest", f"{backend}-0002", "second").id != run.id

    logged = finished._client.get_run(run.id)
    assert logged.data.params == {"model.kind": "ova", "model.ridge": "0.1", "seed": "0"}
    assert logged.data.metrics["train/loss"] == pytest.approx(0.2)
    assert [point.step for point in finished._client.get_metric_history(run.id, "train/loss")] == [0, 1, 2, 3, 4]
    assert [file.path for file in finished._client.list_artifacts(run.id, "plots")] == ["plots/learning_curves.png"]
    assert f"{backend}-0001" in kept_ids()


def test_an_experiment_cannot_lie_outside_the_work_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EYRIE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(ConfigError, match="cannot be a name"):
        TrackedRun.open("../../x", "0123456789abcdef", "first")
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_parameters_are_flattened_and_empty_ones_left_out() -> None:
    assert flatten({"a": {"b": 1, "c": None, "d": []}, "e": [1, 2]}) == {"a.b": 1, "e": [1, 2]}
