"""Register models in MLflow, as versions that serve themselves.

The model's id names a version, so registering a model again finds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tasks import settings
from tasks.mlflow_view import QUALITY
from tasks.model_versions import MODEL_TAG, Version, aliases_of, version_of, versions
from tasks.score import ModelParts
from tasks.served_model import served_parts
from tasks.tracking import experiment_id
from tasks.tracking_client import tracking_client
from xcore.artifacts.identity import ID_LENGTH, file_sha256
from xcore.data.dataset import Dataset
from xcore.data.source import LabelFile
from xcore.errors import ConfigError

if TYPE_CHECKING:
    from mlflow import MlflowClient

LABELS_TAG = "eyrie.labels"


def register(name: str, parts: ModelParts, run_id: str | None, labels: LabelFile | None = None) -> tuple[Version, bool]:
    """The version that serves a model, and whether it is new: found by the model's id, or logged and registered now.

    `labels` is a table with labels that the model was not trained on; a version with other labels is another version.

    It holds a copy of the model's files, the label table, the vocabulary and the code, so that it serves what was
    trained, whatever happens to the store or to the code.
    """
    tags = {f"eyrie.{kind}": key for kind, key in parts.ids().items()} | _label_tag(labels)
    same = {tag: tags.get(tag, "") for tag in (MODEL_TAG, LABELS_TAG)}
    known = next((one for one in versions(name) if {tag: one.tags.get(tag, "") for tag in same} == same), None)
    if known:
        return known, False
    client = tracking_client()
    if aliases_of(client, name) is None:
        _create(client, name)
    logged = _logged_model(client, name, parts, run_id, tags, labels)
    quality = _quality(client, run_id)
    version = client.create_model_version(
        name,
        f"models:/{logged}",
        run_id=run_id,
        tags=tags | {key: f"{value:g}" for key, value in quality.items()},
        model_id=logged,
        description=_description(parts, quality),
    )
    return version_of(version, {}), True


def _logged_model(
    client: MlflowClient,
    name: str,
    parts: ModelParts,
    run_id: str | None,
    tags: Mapping[str, str],
    labels: LabelFile | None,
) -> str:
    """The id of the logged model that holds a model's files; one that an interrupted call left whole is used."""
    from mlflow.entities import LoggedModelOutput
    from mlflow.models import Model as ServedModel
    from mlflow.pyfunc import save_model

    experiment = experiment_id(client, name)
    for known in client.search_logged_models([experiment], f"tags.`{MODEL_TAG}` = '{tags[MODEL_TAG]}'"):
        # MLflow does not find it by its status
        if known.status == "READY" and known.tags.get(LABELS_TAG, "") == tags.get(LABELS_TAG, ""):
            return str(known.model_id)
    model = client.create_logged_model(
        experiment, name, run_id, dict(tags), model_type=parts.used.family.options()["kind"]
    )
    if run_id:
        client.log_outputs(run_id, [LoggedModelOutput(model.model_id, step=0)])
    with TemporaryDirectory() as folder:
        target = Path(folder) / "model"
        save_model(
            target,
            mlflow_model=ServedModel(
                model.artifact_location, run_id, model_uuid=model.model_id, model_id=model.model_id
            ),
            **served_parts(parts, labels, Path(folder)),
        )
        client.log_model_artifacts(model.model_id, str(target))
    client.finalize_logged_model(model.model_id, "READY")
    return str(model.model_id)


def _label_tag(labels: LabelFile | None) -> dict[str, str]:
    """What tells versions with other labels apart: the content of the table."""
    return {} if labels is None else {LABELS_TAG: file_sha256(labels.path)[:ID_LENGTH]}


def _quality(client: MlflowClient, run_id: str | None) -> dict[str, float]:
    """The headline metrics of the run that made a model."""
    metrics = client.get_run(run_id).data.metrics if run_id else {}
    return {key: metrics[key] for key in QUALITY if key in metrics}


def _description(parts: ModelParts, quality: Mapping[str, float]) -> str:
    kind = parts.used.family.options()["kind"]
    n_labels = Dataset(settings.store().open(parts.dataset.ref).directory).n_labels
    measured = "".join(f", {key} {value:.4f}" for key, value in quality.items())
    ids = ", ".join(f"{name} `{key}`" for name, key in parts.ids().items())
    return f"{kind} on {parts.used.form} rows, {n_labels:,} labels{measured}\n\nMade of {ids}."


def _create(client: MlflowClient, name: str) -> None:
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if aliases_of(client, name) is None:  # not because another process made it meanwhile
            raise ConfigError(f"{name!r} cannot be the name of a registered model: {error}") from None
