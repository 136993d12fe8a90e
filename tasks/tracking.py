"""One MLflow run for each pipeline result."""

from __future__ import annotations

import getpass
import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from tasks import settings
from tasks.lost_runs import PROCESS_TAG, own_process
from tasks.mlflow_view import experiment_tags
from tasks.tracking_client import one_at_a_time, tracking_client
from xcore.artifacts import Artifact, Manifest
from xcore.artifacts.manifest import git_commit, library_versions
from xcore.components import flatten
from xcore.names import checked_name
from xcore.report.plots import draw_curves
from xcore.views.base import view_of

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

    from xcore.report.beside import Beside

ID_TAG = "eyrie.id"
SECONDS_BETWEEN_BATCHES = 2.0
MOST_FILES = 20
METRICS_IN_A_BATCH = 1000  # as many as MLflow takes


class TrackedRun:
    """An MLflow run that is found again by the id of the result it leads to.

    A result's id names everything that goes into it, so one run stands for it: a killed pipeline reopens its run, and a
    pipeline that changes nothing finds its run finished (`is_finished`) and adds nothing to it.
    """

    def __init__(self, client: MlflowClient, run: Run, is_new: bool) -> None:
        self._client = client
        self.id: str = run.info.run_id
        self.experiment_id: str = run.info.experiment_id
        self.is_finished: bool = run.info.status == "FINISHED"
        self.tags: dict[str, str] = dict(run.data.tags)
        self.is_reopened = not is_new and not self.is_finished
        self._waiting: list[Any] = []
        self._last_batch = time.monotonic()

    @classmethod
    def find(cls, experiment: str, result_id: str) -> TrackedRun | None:
        """The newest run of an experiment that leads to a result."""
        client = tracking_client()
        known = client.get_experiment_by_name(experiment)
        if known is None:
            return None
        run = _newest_run(client, known.experiment_id, {ID_TAG: result_id})
        return cls(client, run, is_new=False) if run else None

    @classmethod
    def open(cls, experiment: str, result_id: str, name: str) -> TrackedRun:
        """The run of a result: found and reopened, or new."""
        client = tracking_client()
        return cls._open(client, experiment_id(client, experiment), result_id, name, {})

    def child(self, result_id: str, name: str) -> TrackedRun:
        """A run below this one, for one of several results."""
        return self._open(self._client, self.experiment_id, result_id, name, {"mlflow.parentRunId": self.id})

    @classmethod
    def _open(
        cls, client: MlflowClient, experiment_id: str, result_id: str, name: str, tags: Mapping[str, str]
    ) -> TrackedRun:
        tags = {ID_TAG: result_id, **tags}
        with one_at_a_time():
            known = _newest_run(client, experiment_id, tags)
            if known is None:
                run, is_new = _create_run(client, experiment_id, name, tags)
                return cls(client, run, is_new)
            found = cls(client, known, is_new=False)
            if found.is_reopened:
                client.set_tag(found.id, PROCESS_TAG, own_process())
                client.update_run(found.id, status="RUNNING")
            return found

    def log_setup(
        self, parameters: Mapping[str, Any], tags: Mapping[str, str], everything: Mapping[str, Any] | None = None
    ) -> None:
        """Parameters to compare by, tags, and as files all parameters and the environment; twice is as good as once."""
        from mlflow.entities import Param, RunTag

        params = [Param(name, str(value)) for name, value in flatten(parameters).items()]
        self._client.log_batch(self.id, params=params, tags=[RunTag(name, value) for name, value in tags.items()])
        self._client.log_dict(self.id, library_versions(), "environment.json")
        if everything is not None:
            self._client.log_dict(self.id, dict(everything), "parameters.json")

    def log_progress(self, step: int, metrics: Mapping[str, float]) -> None:
        """Points of learning curves, sent in batches."""
        self._waiting += _metrics(metrics, step)
        if time.monotonic() - self._last_batch > SECONDS_BETWEEN_BATCHES:
            self.flush()

    def flush(self) -> None:
        """Send the points that still wait."""
        if self._waiting:
            self._client.log_batch(self.id, metrics=self._waiting)
        self._waiting, self._last_batch = [], time.monotonic()

    def describe(self, text: str) -> None:
        """The description that MLflow shows on top of the run, in Markdown."""
        self._client.set_tag(self.id, "mlflow.note.content", text)

    def log_step(self, manifest: Manifest, name: str) -> None:
        """The id and the cost of a step's artifact; the name tells apart the steps of a run."""
        from mlflow.entities import RunTag

        costs = {
            f"usage/seconds/{name}": manifest.seconds,
            f"usage/compile_seconds/{name}": manifest.compile_seconds,
            f"usage/peak_memory_mb/{name}": manifest.peak_memory_bytes / 1e6,
        }
        self._client.log_batch(self.id, metrics=_metrics(costs, 0), tags=[RunTag(f"eyrie.{name}", manifest.id)])
        if manifest.kind == "dataset":
            self._log_dataset(manifest)

    def _log_dataset(self, manifest: Manifest) -> None:
        """The dataset as an input of the run: MLflow's table has a column for it, and can filter by it."""
        from mlflow.entities import Dataset, DatasetInput

        known = {name: value for name, value in manifest.counts.items() if isinstance(value, int | float | dict)}
        source = json.dumps({"artifact": str(manifest.ref), "files": list(manifest.sources)[:MOST_FILES]})
        experiment = self._client.get_experiment(self.experiment_id).name
        used = Dataset(experiment, manifest.id, "eyrie", source, profile=json.dumps(known))
        self._client.log_inputs(self.id, datasets=[DatasetInput(used, tags=[])])

    def log_result(self, artifact: Artifact) -> None:
        """What people look at in an artifact: metrics, files and plots, as its kind's view says."""
        view = view_of(artifact.ref.kind)
        points = [metric for step, values in view.points(artifact) for metric in _metrics(values, step)]
        for start in range(0, len(points), METRICS_IN_A_BATCH):
            self._client.log_batch(self.id, metrics=points[start : start + METRICS_IN_A_BATCH])
        for name in sorted(artifact.manifest.files) if view.logs_files else ():
            self._client.log_artifact(self.id, str(artifact.directory / name), artifact.ref.kind)
        with TemporaryDirectory() as folder:
            view.draw(artifact, Path(folder))
            for plot in sorted(Path(folder).iterdir()):
                self._client.log_artifact(self.id, str(plot), "plots")

    def log_page(self, lineage: Sequence[Artifact], beside: Beside) -> None:
        """A page that tells the whole run, from its first input to its result, and what stands beside it."""
        with TemporaryDirectory() as folder:
            page = Path(folder) / "report.html"
            view_of(lineage[-1].ref.kind).write_page(lineage, page, beside)
            self._client.log_artifact(self.id, str(page))

    def log_curves(self) -> None:
        """Learning curves of the run as one plot, where there are any."""
        self.flush()
        curves = curves_of(self._client, self.id)
        drawable = {name: points for name, points in curves.items() if len(points) > 1}
        if drawable:
            with TemporaryDirectory() as folder:
                plot = Path(folder) / "learning_curves.png"
                draw_curves(drawable, plot)
                self._client.log_artifact(self.id, str(plot), "plots")

    def end(self, status: str) -> None:
        """Close the run as FINISHED, FAILED or KILLED."""
        self.flush()
        self._client.set_terminated(self.id, status)


def curves_of(client: MlflowClient, run_id: str) -> dict[str, list[tuple[float, float]]]:
    """Steps and values of what a run measured while it trained, by name."""
    names = [name for name in client.get_run(run_id).data.metrics if name.startswith("train/")]
    histories = {name: client.get_metric_history(run_id, name) for name in names}
    return {
        name: sorted((float(point.step), float(point.value)) for point in points) for name, points in histories.items()
    }


def kept_ids() -> set[str]:
    """Ids of all artifacts that runs refer to; a run deleted in MLflow refers to nothing."""
    client = tracking_client()
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    kept: set[str] = set()
    token: str | None = None
    while experiments:
        page = client.search_runs(experiments, max_results=1000, page_token=token)
        for run in page:
            kept.update(value for name, value in run.data.tags.items() if name.startswith("eyrie."))
        token = page.token
        if not token:
            break
    return kept


def _create_run(client: MlflowClient, experiment_id: str, name: str, tags: Mapping[str, str]) -> tuple[Run, bool]:
    """A new run, and True; or one that another machine made at the same moment, and False.

    The lock of a work folder does not hold elsewhere. So look again afterwards: the youngest of several runs give way.
    """
    own = client.create_run(experiment_id, tags={**tags, **_origin(), PROCESS_TAG: own_process()}, run_name=name)
    runs = client.search_runs([experiment_id], _with_tags(tags))
    oldest = min([own, *runs], key=lambda run: (run.info.start_time, run.info.run_id))
    if oldest.info.run_id == own.info.run_id:
        return own, True
    client.set_terminated(own.info.run_id, "KILLED")
    client.delete_run(own.info.run_id)
    return oldest, False


def _origin() -> dict[str, str]:
    """Who ran which program, where MLflow's pages look for it."""
    commit = git_commit()
    known = {"mlflow.user": getpass.getuser(), "mlflow.source.name": "eyrie", "mlflow.source.type": "LOCAL"}
    return known | ({"mlflow.source.git.commit": commit} if commit else {})


def _newest_run(client: MlflowClient, experiment_id: str, tags: Mapping[str, str]) -> Run | None:
    runs = client.search_runs([experiment_id], _with_tags(tags), order_by=["attributes.start_time DESC"], max_results=1)
    return runs[0] if runs else None


def _with_tags(tags: Mapping[str, str]) -> str:
    return " and ".join(f"tags.`{name}` = '{value}'" for name, value in tags.items())


def experiment_id(client: MlflowClient, name: str) -> str:
    """The id of an experiment, which is made if there is none of that name."""
    from mlflow.exceptions import MlflowException

    known = client.get_experiment_by_name(name)
    if known is None:
        checked_name(name)  # it becomes a folder
        remote = settings.tracking_uri().startswith("http")
        location = None if remote else (settings.home() / "mlflow-files" / name).as_uri()
        try:
            return str(client.create_experiment(name, artifact_location=location, tags=experiment_tags()))
        except MlflowException:  # another process made it meanwhile
            known = client.get_experiment_by_name(name)
            if known is None:
                raise
    return str(known.experiment_id)


def _metrics(values: Mapping[str, float], step: int) -> list[Any]:
    from mlflow.entities import Metric

    stamp = int(time.time() * 1000)
    return [Metric(name, _readable(value), stamp, step) for name, value in values.items() if math.isfinite(value)]


def _readable(value: float) -> float:
    """Six digits, which is what a column of MLflow's table shows; all of them are in the logged files."""
    return float(value) if float(value).is_integer() else float(f"{value:.6g}")
