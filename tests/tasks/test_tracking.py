"""Tracking on all that MLflow can keep runs in: SQLite, PostgreSQL, and a server."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tasks.tracking import TrackedRun, kept_ids
from tasks.tracking_client import tracking_client
from xcore.artifacts import Artifact, ArtifactRef, Manifest
from xcore.artifacts.manifest import FileRecord, now
from xcore.artifacts.naming import step_names
from xcore.artifacts.schemas import KINDS, Kind
from xcore.components import flatten
from xcore.errors import ConfigError
from xcore.views.base import Point, View

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


def toy_manifest(kind: str, number: int, inputs: dict[str, ArtifactRef]) -> Manifest:
    """A manifest of a step that took `number` seconds."""
    told = {"component": "make stage", "options": {}, "seed": 0, "code": {}, "files": {}, "counts": {}, "versions": {}}
    return Manifest(
        kind=kind,
        id=f"{number:016d}",
        schema_version=1,
        inputs=inputs,
        sources={},
        seconds=number,
        peak_memory_bytes=0,
        created=now(),
        git_commit=None,
        **told,
    )


def test_two_stages_of_one_kind_keep_their_own_costs_and_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EYRIE_HOME", str(tmp_path))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    rows = toy_manifest("embedding", 1, {})
    labels = toy_manifest("embedding", 2, {"embedding": rows.ref})
    model = toy_manifest("model", 3, {"embedding": rows.ref, "projection": labels.ref})
    lineage = [rows, labels, model]
    run = TrackedRun.open("nest", model.id, "first")
    for manifest in lineage:
        run.log_step(manifest, step_names(lineage)[manifest.id])
    logged = run._client.get_run(run.id).data
    seconds = {name: value for name, value in logged.metrics.items() if name.startswith("usage/seconds/")}
    assert seconds == {"usage/seconds/embedding": 1.0, "usage/seconds/projection": 2.0, "usage/seconds/model": 3.0}
    assert min(logged.metrics) > "test/~", "MLflow lists metrics by the alphabet: quality comes before costs"
    assert kept_ids() >= {manifest.id for manifest in lineage}


def test_learning_curves_have_the_points_that_were_not_sent_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EYRIE_HOME", str(tmp_path))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run = TrackedRun.open("nest", "0001", "first")
    for step in range(3):
        run.log_progress(step, {"train/loss": 1.0 / (step + 1)})
    run.log_curves()
    assert [file.path for file in run._client.list_artifacts(run.id, "plots")] == ["plots/learning_curves.png"]


class NestView(View):
    logs_files = True

    def points(self, artifact: Artifact) -> Sequence[Point]:
        return [(step, {"nest/eggs": 2.0 * step}) for step in (1, 2)]

    def draw(self, artifact: Artifact, folder: Path) -> None:
        (folder / "nest.txt").write_text("drawn")


def test_a_new_kind_is_tracked_by_what_its_view_says_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EYRIE_HOME", str(tmp_path))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setitem(KINDS, "nest", Kind(1, "a nest", view=f"{__name__}:NestView"))
    (tmp_path / "eggs.json").write_text("{}")
    record = {"eggs.json": FileRecord(sha256="0" * 64, n_bytes=2)}
    manifest = toy_manifest("nest", 1, {}).model_copy(update={"files": record})
    run = TrackedRun.open("nest", "0001", "first")
    run.log_result(Artifact(manifest, tmp_path))
    history = run._client.get_metric_history(run.id, "nest/eggs")
    assert [(point.step, point.value) for point in history] == [(1, 2.0), (2, 4.0)]
    logged = {file.path for folder in ("nest", "plots") for file in run._client.list_artifacts(run.id, folder)}
    assert logged == {"nest/eggs.json", "plots/nest.txt"}


def test_an_experiment_cannot_lie_outside_the_work_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EYRIE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(ConfigError, match="cannot be a name"):
        TrackedRun.open("../../x", "0123456789abcdef", "first")
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_parameters_are_flattened_and_empty_ones_left_out() -> None:
    assert flatten({"a": {"b": 1, "c": None, "d": []}, "e": [1, 2], "f": ()}) == {"a.b": 1, "e": [1, 2]}


def test_a_run_names_its_user_its_source_and_its_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EYRIE_HOME", str(tmp_path))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    run = TrackedRun.open("nest", "0123456789abcdef", "nest")
    manifest = toy_manifest("dataset", 1, {})
    run.log_step(manifest, "dataset")
    run.describe("precision_at_1 0.5")
    known = tracking_client().get_run(run.id)
    assert known.data.tags["mlflow.user"]
    assert known.data.tags["mlflow.source.name"] == "eyrie"
    assert known.data.tags["mlflow.note.content"] == "precision_at_1 0.5"
    (used,) = known.inputs.dataset_inputs
    assert (used.dataset.name, used.dataset.digest) == ("nest", manifest.id)
