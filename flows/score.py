"""Labels for new rows in bulk, by a registered model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import flow
from pydantic import Field, field_validator

from flows.params import FlowParams, Name
from tasks import settings
from tasks.execution import completed, make_result
from tasks.model_parts import parts_of
from tasks.model_versions import find_model
from tasks.score import deliver, scores_recipe
from tasks.thresholds import thresholds_recipe
from xcore.artifacts import Recipe
from xcore.data.source import LabelFile
from xcore.inference.batches import Batch
from xcore.inference.scorer import Cut


class ScoreParams(FlowParams):
    """Parameters of `score`."""

    name: Name = Field(
        "eyrie",
        min_length=1,
        description="Name of the registered model. The run is recorded in the MLflow experiment NAME-scores.",
    )
    model: str = Field(
        "champion",
        min_length=1,
        description="Version of the registered model: an alias, a version number, or model/ID from the store.",
    )
    rows: Batch = Field(description="The rows to score.")
    cut: Cut = Field(Cut(), description="How many labels each row gets.")
    names: bool = Field(True, description="Write the names of the labels next to their ids.")
    labels: LabelFile | None = Field(
        None,
        description="Table with labels that the model was not trained on. The model finds them by their names. Only "
        "for models that can, such as memory. Empty: the labels of the training.",
    )
    block_mb: int = Field(
        16,
        ge=1,
        le=1024,
        title="Block, MB",
        description="Size of an input block, in megabytes. Larger blocks need more memory. A killed run "
        "repeats at most the block that it was working on.",
    )
    output: Path | None = Field(
        None, description="Parquet file for a copy of the scores. Empty: the scores are only in the store."
    )

    @field_validator("labels", mode="before")
    @classmethod
    def _path_alone(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, str | Path) else value

    @field_validator("model", mode="before")
    @classmethod
    def _number_alone(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @property
    def experiment(self) -> str:
        return f"{self.name}-scores"

    @property
    def run_name(self) -> str:
        return f"{self.name}-score"


def plan_score(params: ScoreParams) -> Recipe:
    """Scores of files by a model."""
    parts = parts_of(find_model(params.name, params.model))
    thresholds = thresholds_recipe(parts) if params.cut.per_label else None
    return scores_recipe(parts, params.rows, params.cut, params.names, params.block_mb, params.labels, thresholds)


@flow(name="score", flow_run_name="{params.run_name}")
def score(params: ScoreParams) -> Any:
    """Score the rows of files. A run that was killed continues after its last finished block."""
    recipe = plan_score(params)
    summary = make_result(recipe, "score", params)
    scores = settings.store().open(recipe.ref)
    replaced = params.output is not None and deliver(scores, params.output)
    counts = scores.manifest.counts
    speed = f"{counts['rows_per_second']:,.0f} rows per second"
    says = f"{counts['rows']:,} rows scored by {recipe.inputs['model'].ref}, {speed}"
    where = params.output or scores.directory / "scores.parquet"
    place = f"Scores are in {where}{'; the file that was there was replaced' if replaced else ''}"
    told = {"scored": dict(counts), "output": str(where), "says": [says, place]}
    return completed(summary | told)
