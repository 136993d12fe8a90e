"""The typed parameters of every flow: one schema for presets, the command line and the Prefect form."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from tasks.evaluate import EvaluationOptions
from xcore.components import Component, note_secret
from xcore.data.source import Source
from xcore.errors import ConfigError
from xcore.grouping.family import AnyGrouper
from xcore.imputation.disaggregate import Disaggregate
from xcore.imputation.family import AnyImputer
from xcore.imputation.imputed import TargetOptions
from xcore.models.family import AnyModel
from xcore.models.parabel import Parabel
from xcore.names import checked_name
from xcore.simulation.family import AnySimulation
from xcore.text.family import AnyText
from xcore.text.tfidf import Tfidf

_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")

AS_WRITTEN = "as written"  # context of a validation that leaves variables where they are

_MADE_BY = {
    "text": "features",
    "grouping": "groups",
    "imputer": "imputed",
    "targets": "imputed",
}  # kind of what a part makes
_RARELY_CHANGED = {"data", "rows", "evaluation", "promotion"}  # parts that seldom differ between runs


def _named(text: str) -> str:
    """A checked name; the form and the presets want a `ValueError`."""
    try:
        return checked_name(text)
    except ConfigError as error:
        raise ValueError(str(error)) from None


Name: TypeAlias = Annotated[str, AfterValidator(_named)]


def expand_variables(value: Any) -> Any:
    """Replace ``${NAME}`` and ``${NAME:-default}`` in all strings of a tree."""
    if isinstance(value, str):
        return _VARIABLE.sub(_variable, value)
    if isinstance(value, dict):
        return {name: expand_variables(item) for name, item in value.items()}
    if isinstance(value, list):
        return [expand_variables(item) for item in value]
    return value


def _variable(match: re.Match[str]) -> str:
    name, default = match.groups()
    value = os.environ.get(name) or default
    if value is None:
        raise ConfigError(f"environment variable {name} is not set, and there is no default for it (${{{name}:-...}})")
    note_secret(name, value)
    return value


class FlowParams(Component):
    """Parameters of every flow."""

    name: Name = Field("eyrie", min_length=1, description="Name of the MLflow experiment that records the run.")
    seed: int = Field(
        0,
        ge=0,
        description="Seed of all random numbers. The same seed, data and options give the same results; "
        "another seed gives another random draw.",
    )

    @model_validator(mode="before")
    @classmethod
    def _read_environment(cls, tree: Any, info: ValidationInfo) -> Any:
        """Replace variables when a run starts, not when it is scheduled: only the worker knows where its files are."""
        return tree if info.context == AS_WRITTEN else expand_variables(tree)

    @property
    def experiment(self) -> str:
        """The MLflow experiment that records the run."""
        return self.name

    @property
    def run_name(self) -> str:
        """What the run is called in the dashboards."""
        return self.name

    def tracked_parameters(self, kinds: Collection[str]) -> dict[str, Any]:
        """What MLflow's run table has columns for, in a run that makes artifacts of these kinds.

        All options of the components that are used. For the data and the evaluation, only options that are not default.
        """
        used = {name: value for name, value in self.options().items() if _MADE_BY.get(name, name) in (name, *kinds)}
        unusual = self.model_dump(mode="json", exclude_defaults=True)
        for name in _RARELY_CHANGED & used.keys():
            used[name] = unusual.get(name, {})
        if "data" in used:
            kind = {"kind": self.options()["data"]["reader"]["kind"]}
            used["data"] = used["data"] | {"reader": used["data"].get("reader", {}) | kind}
        return {name: value for name, value in used.items() if name != "name"}  # it is the experiment's


class IngestParams(FlowParams):
    """Parameters of `ingest`."""

    data: Source = Field(description="The files to read, and how to read them.")


class LearningParams(FlowParams):
    """Parameters of every flow that trains a model."""

    text: AnyText = Field(Tfidf(), description="How text becomes features. Not used if the rows already have features.")
    grouping: AnyGrouper | None = Field(
        None,
        description="Put the train rows into new groups and merge their labels, to study learning from groups. "
        "Empty: use the groups of the data, if it has any.",
    )
    imputer: AnyImputer = Field(
        Disaggregate(),
        description="How rows get labels of their own if only their groups have labels. Not used without groups.",
    )
    targets: TargetOptions = Field(
        TargetOptions(), description="How the model learns from imputed labels. Not used without groups."
    )
    model: AnyModel = Field(Parabel(), description="The model to train. Each kind has options of its own.")
    evaluation: EvaluationOptions = Field(EvaluationOptions(), description="How the predictions are measured.")

    @property
    def run_name(self) -> str:
        return f"{self.name}-{self.model.kind}"


class TrainParams(LearningParams):
    """Parameters of `train`."""

    dataset: str = Field(
        min_length=4, description="Id of a dataset in the store. The first characters are enough (at least 4)."
    )


class PipelineParams(LearningParams, IngestParams):
    """Parameters of `pipeline`."""


class SimulateParams(FlowParams):
    """Parameters of `simulate`."""

    simulation: AnySimulation = Field(description="The simulation to run.")
