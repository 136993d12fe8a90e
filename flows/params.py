"""The typed parameters of every flow: one schema for presets, the command line and the Prefect form."""

from __future__ import annotations

from pydantic import Field

from tasks.evaluate import EvaluationOptions
from xcore.components import Component
from xcore.data.source import Source
from xcore.models import AnyModel
from xcore.models.ova import Ova
from xcore.text import AnyText, Tfidf


class IngestParams(Component):
    """Parameters of `ingest`."""

    name: str = Field("eyrie", min_length=1, description="MLflow experiment that the run belongs to.")
    data: Source = Field(description="What to read, and how.")
    seed: int = Field(0, ge=0, description="One seed in, the same bytes out.")


class _Learning(Component):
    text: AnyText = Field(Tfidf(), description="How text becomes features; not used where rows come with features.")
    model: AnyModel = Field(Ova(), description="Model to train, by its kind.")
    evaluation: EvaluationOptions = Field(EvaluationOptions(), description="How predictions are measured.")


class TrainParams(_Learning):
    """Parameters of `train`."""

    name: str = Field("eyrie", min_length=1, description="MLflow experiment that the run belongs to.")
    dataset: str = Field(min_length=4, description="Id of a dataset in the store, or the beginning of one.")
    seed: int = Field(0, ge=0, description="One seed in, the same bytes out.")


class PipelineParams(IngestParams, _Learning):
    """Parameters of `pipeline`."""
