"""Models in MLflow's registry: versions that serve themselves, and which of them is the champion.

A registered model bears the name of the experiment. Each version is tagged with the ids of its artifacts
(``eyrie.model``, ``eyrie.dataset``, ``eyrie.vocabulary``); the model's id is what names it, so registering it again
finds it. A version that becomes champion is tagged with the one that it replaces, so that one can go back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from tasks import settings
from tasks.mlflow_view import QUALITY
from tasks.score import ModelParts, UsedModel
from tasks.served_model import served_parts
from tasks.tracking import experiment_id
from tasks.tracking_client import tracking_client
from xcore.artifacts import ArtifactRef, KeptArtifact
from xcore.artifacts.identity import ID_LENGTH, file_sha256
from xcore.components import Component
from xcore.data.dataset import Dataset
from xcore.data.source import LabelFile
from xcore.errors import ArtifactError, ConfigError
from xcore.models.base import Model
from xcore.models.family import AnyModel
from xcore.names import checked_name
from xcore.text.family import AnyText

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

CHAMPION, CHALLENGER = "champion", "challenger"
MODEL_TAG = "eyrie.model"
REPLACED_TAG = "eyrie.replaced_version"
ROLLED_BACK_TAG = "eyrie.rolled_back_to"
LABELS_TAG = "eyrie.labels"


@dataclass(frozen=True)
class Version:
    """One version of a registered model."""

    name: str
    number: int
    tags: Mapping[str, str]
    aliases: tuple[str, ...]
    registered: datetime
    description: str
    run_id: str | None = None

    @property
    def model(self) -> ArtifactRef:
        """The model artifact that it was made of."""
        ref = ArtifactRef.of("model", self.tags.get(MODEL_TAG, ""))
        if ref is None:
            raise ConfigError(
                f"the tag {MODEL_TAG} of {self} is {self.tags.get(MODEL_TAG, '')!r}, expected 16 hexadecimal digits: "
                "correct the tag, or delete the version"
            )
        return ref

    @property
    def note(self) -> str:
        """What became of it, in a few words."""
        replaced, back = self.tags.get(REPLACED_TAG), self.tags.get(ROLLED_BACK_TAG)
        return f"rolled back to version {back}" if back else f"replaced version {replaced}" if replaced else ""

    def __str__(self) -> str:
        return f"{self.name} version {self.number}"


def versions(name: str) -> list[Version]:
    """All versions of a registered model that Eyrie made, newest first; none where there is no such model."""
    client = tracking_client()
    aliases = _aliases(client, name)
    found, token = list[Any](), None
    while True:
        page = client.search_model_versions(f"name = '{checked_name(name)}'", max_results=1000, page_token=token)
        found, token = [*found, *page], page.token
        if not token:
            break
    ours = [_version(version, aliases) for version in found if MODEL_TAG in version.tags]
    return sorted(ours, key=lambda version: -version.number)


def run_facts(version: Version, metric: str) -> tuple[str, float | None]:
    """Kind of a version's model and a metric of the run that made it; empty if that run is gone."""
    from mlflow.exceptions import MlflowException

    if version.run_id is None:
        return "", None
    try:
        data = tracking_client().get_run(version.run_id).data
    except MlflowException:
        return "", None
    return data.params.get("model.kind", ""), data.metrics.get(metric)


def champion(name: str) -> Version | None:
    """The version in use, if there is one."""
    return next((version for version in versions(name) if CHAMPION in version.aliases), None)


def find_model(name: str, which: str) -> ArtifactRef:
    """The model artifact meant by an alias, a version number, or ``model/ID`` (which needs no registry)."""
    if "/" in which:
        ref = settings.store().find(which)
        if ref.kind != "model":
            raise ConfigError(f"{which!r} is a {ref.kind}, expected a model: name it as model/ID")
        return ref
    return find_version(name, which).model


def find_version(name: str, which: str) -> Version:
    """The version meant by an alias or a number."""
    known = versions(name)
    for version in known:
        if which in (str(version.number), *version.aliases):
            return version
    there = [f"{version.number} {' '.join(version.aliases)}".strip() for version in known]
    raise ConfigError(
        f"no version {which!r} of the registered model {name!r}; there are: {', '.join(there) or 'none'}. "
        "Give an alias, a version number or model/ID, or register one with the flow retrain"
    )


def parts_of(model: ArtifactRef) -> ModelParts:
    """A model with all it needs, found by its manifest; an error says which part is gone or not understood."""
    store = settings.store()
    made = store.manifest(model)
    dataset = Dataset(store.open(made.inputs["dataset"]).directory)
    vocabulary = made.inputs.get("vocabulary")
    if vocabulary is None and "features" in made.inputs:
        vocabulary = store.manifest(made.inputs["features"]).inputs.get("vocabulary")
    text: Component | None = None
    try:
        family: Model = TypeAdapter[Model](AnyModel).validate_python(dict(made.options))
        if vocabulary:
            text = TypeAdapter[Component](AnyText).validate_python(dict(store.manifest(vocabulary).options))
    except ValidationError as error:
        problem = error.errors()[0]
        raise ConfigError(
            f"{model} was trained by code whose options differ: {'.'.join(map(str, problem['loc']))}: "
            f"{problem['msg']}. Train it again, or use the code it was trained with"
        ) from None
    return ModelParts(
        UsedModel(family=family, text=text, form=dataset.form),
        KeptArtifact.of(model),
        KeptArtifact.of(made.inputs["dataset"]),
        KeptArtifact.of(vocabulary) if vocabulary else None,
    )


def champion_parts(name: str) -> tuple[ModelParts | None, str]:
    """The champion, or None with the reason where there is one but it cannot be opened here."""
    current = champion(name)
    if current is None:
        return None, ""
    try:
        return parts_of(current.model), ""
    except (ArtifactError, ConfigError) as error:
        return None, f"the champion, {current}, cannot be opened: {error}"


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
    if _aliases(client, name) is None:
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
    return _version(version, {}), True


def source_run(name: str, model: ArtifactRef) -> str | None:
    """The first run of the experiment that made or used a model."""
    client = tracking_client()
    wanted, oldest = f"tags.`{MODEL_TAG}` = '{model.id}'", ["attributes.start_time ASC"]
    runs = client.search_runs([experiment_id(client, name)], wanted, order_by=oldest, max_results=1)
    return str(runs[0].info.run_id) if runs else None


def mark_challenger(version: Version) -> None:
    """Point the alias `challenger` at a version."""
    if CHALLENGER not in version.aliases:
        tracking_client().set_registered_model_alias(version.name, CHALLENGER, str(version.number))


def promote(version: Version) -> bool:
    """Make a version the champion, and remember which one it replaces; False if it is the champion already."""
    client, current = tracking_client(), champion(version.name)
    if current and current.number == version.number:
        return False
    if current:
        client.set_model_version_tag(version.name, str(version.number), REPLACED_TAG, str(current.number))
    if ROLLED_BACK_TAG in version.tags:
        client.delete_model_version_tag(version.name, str(version.number), ROLLED_BACK_TAG)
    client.set_registered_model_alias(version.name, CHAMPION, str(version.number))
    return True


def apply_decision(version: Version, decision: str, reason: str) -> dict[str, Any]:
    """Carry out a decision (`promote` or `keep`) about a version; returns what was done and why, for a report."""
    current = champion(version.name)
    if current and current.number == version.number:
        done, reason = False, "it is the champion already"
    elif ROLLED_BACK_TAG in version.tags:
        back = version.tags[ROLLED_BACK_TAG]
        done, reason = False, f"it was rolled back to version {back} by hand, and is not promoted again by itself"
    else:
        done = decision == "promote" and promote(version)
    now = champion(version.name)
    return {
        "name": version.name,
        "version": version.number,
        "promoted": done,
        "champion": now.number if now else None,
        "reason": reason,
    }


def rollback(name: str) -> tuple[Version, Version]:
    """Give the alias `champion` back to the version that the champion replaced; returns both, the old one last.

    The version that lost it is tagged, and `retrain` does not promote it again.
    """
    client, known = tracking_client(), {version.number: version for version in versions(name)}
    current = next((version for version in known.values() if CHAMPION in version.aliases), None)
    if current is None:
        raise ConfigError(f"the registered model {name!r} has no champion to go back from")
    before = known.get(int(current.tags.get(REPLACED_TAG, 0)))
    if before is None:
        raise ConfigError(f"{current} replaced no other version, so there is none to go back to")
    client.set_model_version_tag(name, str(current.number), ROLLED_BACK_TAG, str(before.number))
    client.set_registered_model_alias(name, CHAMPION, str(before.number))
    return current, before


def registered_ids() -> set[str]:
    """Ids of all artifacts that registered versions are made of."""
    client, kept, token = tracking_client(), set[str](), None
    while True:
        page = client.search_model_versions(max_results=1000, page_token=token)
        for version in page:
            kept.update(value for tag, value in version.tags.items() if tag.startswith("eyrie."))
        token = page.token
        if not token:
            return kept


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
        if _aliases(client, name) is None:  # not because another process made it meanwhile
            raise ConfigError(f"{name!r} cannot be the name of a registered model: {error}") from None


def _aliases(client: MlflowClient, name: str) -> dict[str, str] | None:
    """Alias > version of a registered model; None where there is no such model."""
    found = client.search_registered_models(f"name = '{checked_name(name)}'", max_results=1)
    return {alias: str(version) for alias, version in found[0].aliases.items()} if found else None


def _version(version: ModelVersion, aliases: Mapping[str, str] | None) -> Version:
    own = tuple(sorted(alias for alias, number in (aliases or {}).items() if number == str(version.version)))
    registered = datetime.fromtimestamp(version.creation_timestamp / 1000, UTC)
    about = (registered, version.description or "", version.run_id or None)
    return Version(version.name, int(version.version), dict(version.tags), own, *about)
