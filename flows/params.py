"""The typed parameters of every flow: one schema for presets, the command line and the Prefect form."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from tasks.evaluate import EvaluationOptions
from tasks.race import Measuring
from xcore.components import Component
from xcore.data.source import Source
from xcore.grouping import AnyGrouper
from xcore.imputation import AnyImputer
from xcore.imputation.disaggregate import Disaggregate
from xcore.models import AnyModel
from xcore.models.negative_sampling import NegativeSampling
from xcore.models.parabel import Parabel
from xcore.race import Contender
from xcore.simulation import AnySimulation
from xcore.text import AnyText, Tfidf


class FlowParams(Component):
    """What every flow takes."""

    name: str = Field("eyrie", min_length=1, description="MLflow experiment that the run belongs to.")
    seed: int = Field(0, ge=0, description="One seed in, the same bytes out.")

    @property
    def run_name(self) -> str:
        """What the run is called in the dashboards."""
        return self.name


class IngestParams(FlowParams):
    """Parameters of `ingest`."""

    data: Source = Field(description="What to read, and how.")


class LearningParams(FlowParams):
    """What every flow takes that trains a model."""

    text: AnyText = Field(Tfidf(), description="How text becomes features; not used where rows come with features.")
    grouping: AnyGrouper | None = Field(
        None, description="Groups to make, to study aggregation; none: those that the data came with, if any."
    )
    imputer: AnyImputer = Field(Disaggregate(), description="How rows get labels where groups have them.")
    model: AnyModel = Field(Parabel(), description="Model to train, by its kind.")
    evaluation: EvaluationOptions = Field(EvaluationOptions(), description="How predictions are measured.")

    @property
    def run_name(self) -> str:
        return f"{self.name}-{self.model.kind}"


class TrainParams(LearningParams):
    """Parameters of `train`."""

    dataset: str = Field(min_length=4, description="Id of a dataset in the store, or the beginning of one.")


class PipelineParams(LearningParams, IngestParams):
    """Parameters of `pipeline`."""


class AggregateStudyParams(IngestParams):
    """Parameters of `aggregate-study`."""

    text: AnyText = Field(Tfidf(), description="How text becomes features; not used where rows come with features.")
    model: AnyModel = Field(Parabel(), description="Model that is trained on the imputed labels.")
    evaluation: EvaluationOptions = Field(EvaluationOptions(n_bootstrap=0), description="How predictions are measured.")
    groupings: tuple[AnyGrouper, ...] = Field(min_length=1, description="Groups to make of the labelled rows.")
    imputers: tuple[AnyImputer, ...] = Field(min_length=1, description="Imputers to compare.")
    seeds: tuple[int, ...] = Field((0,), min_length=1, description="Everything is repeated with each of these seeds.")


class SamplingStudyParams(IngestParams):
    """Parameters of `sampling-study`."""

    text: AnyText = Field(Tfidf(), description="How text becomes features; not used where rows come with features.")
    model: NegativeSampling = Field(
        NegativeSampling(labels="first", held_out_share=0.0), description="What all methods have in common."
    )
    contenders: tuple[Contender, ...] = Field(
        min_length=1, description="Methods to compare; the first is the one whose lead is measured."
    )
    tuning: Measuring = Field(
        Measuring(epochs=2, split="dev", rows=2000, points="last"),
        description="How the settings of each method are compared.",
    )
    race: Measuring = Field(Measuring(), description="How the learning curves are measured.")

    @model_validator(mode="after")
    def _is_fair(self) -> Self:
        if self.tuning.split in {"test", self.race.split}:
            raise ValueError(
                f"tuning.split is {self.tuning.split} and race.split is {self.race.split}: settings must be chosen on "
                "other rows than those of the race, and never on test. Use dev, with data.holdout.dev if there is none"
            )
        return self


class SimulateParams(FlowParams):
    """Parameters of `simulate`."""

    simulation: AnySimulation = Field(description="What to simulate.")
