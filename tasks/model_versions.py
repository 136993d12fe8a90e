"""Versions of models in MLflow's registry: how they are listed and found, and what they were made of.

A registered model bears the name of the experiment. Each version is tagged with the ids of its artifacts
(``eyrie.model``, ``eyrie.dataset``, ``eyrie.vocabulary``). A version that becomes champion is tagged with the one that
it replaces, so that one can go back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tasks import settings
from tasks.tracking import experiment_id
from tasks.tracking_client import tracking_client
from xcore.artifacts import ArtifactRef
from xcore.errors import ConfigError
from xcore.names import checked_name

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run
    from mlflow.entities.model_registry import ModelVersion

CHAMPION, CHALLENGER = "champion", "challenger"
MODEL_TAG = "eyrie.model"
REPLACED_TAG = "eyrie.replaced_version"
ROLLED_BACK_TAG = "eyrie.rolled_back_to"


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
    aliases = aliases_of(client, name)
    found, token = list[Any](), None
    while True:
        page = client.search_model_versions(f"name = '{checked_name(name)}'", max_results=1000, page_token=token)
        found, token = [*found, *page], page.token
        if not token:
            break
    ours = [version_of(version, aliases) for version in found if MODEL_TAG in version.tags]
    return sorted(ours, key=lambda version: -version.number)


def run_facts(version: Version, metric: str) -> tuple[str, float | None]:
    """Kind of a version's model and a metric of the run that made it; empty if that run is gone."""
    run = _run_of(version)
    return (run.data.params.get("model.kind", ""), run.data.metrics.get(metric)) if run else ("", None)


def run_metrics(version: Version) -> dict[str, float]:
    """All metrics of the run that made a version; none if that run is gone."""
    run = _run_of(version)
    return dict(run.data.metrics) if run else {}


def _run_of(version: Version) -> Run | None:
    from mlflow.exceptions import MlflowException

    try:
        return tracking_client().get_run(version.run_id) if version.run_id else None
    except MlflowException:
        return None


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
        "Give an alias, a version number or model/ID, or register one: `eyrie retrain PRESET` trains, registers and "
        f"promotes, `eyrie models register {name} model/ID` takes a model that there is"
    )


def source_run(name: str, model: ArtifactRef) -> str | None:
    """The first run of the experiment that made or used a model."""
    client = tracking_client()
    wanted, oldest = f"tags.`{MODEL_TAG}` = '{model.id}'", ["attributes.start_time ASC"]
    runs = client.search_runs([experiment_id(client, name)], wanted, order_by=oldest, max_results=1)
    return str(runs[0].info.run_id) if runs else None


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


def aliases_of(client: MlflowClient, name: str) -> dict[str, str] | None:
    """Alias > version of a registered model; None where there is no such model."""
    found = client.search_registered_models(f"name = '{checked_name(name)}'", max_results=1)
    return {alias: str(version) for alias, version in found[0].aliases.items()} if found else None


def version_of(version: ModelVersion, aliases: Mapping[str, str] | None) -> Version:
    """What MLflow knows of a version, with those of the model's aliases that point at it."""
    own = tuple(sorted(alias for alias, number in (aliases or {}).items() if number == str(version.version)))
    registered = datetime.fromtimestamp(version.creation_timestamp / 1000, UTC)
    about = (registered, version.description or "", version.run_id or None)
    return Version(version.name, int(version.version), dict(version.tags), own, *about)
