"""Measure predictions against the truth."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import pyarrow.parquet as pq
from pydantic import Field

from tasks.predict import FILE, LOG_PROBABILITY
from tasks.thresholds import open_thresholds
from xcore.artifacts import BuildContext, Recipe
from xcore.components import Component
from xcore.data.dataset import Dataset
from xcore.data.readers.base import Split
from xcore.metrics import evaluate
from xcore.metrics.family import metric_modules
from xcore.models.base import ScoreScale
from xcore.numeric.matrices import TopK

MOST_LABELS_PREDICTED = 10_000  # per row, each with its score


Rank = Annotated[int, Field(ge=1, le=MOST_LABELS_PREDICTED)]


class EvaluationOptions(Component):
    """How predictions are measured."""

    split: Split = Field(
        "test", description="Split on which predictions are measured. Its labels are never used to choose anything."
    )
    ks: tuple[Rank, ...] = Field(
        (1, 3, 5),
        min_length=1,
        title="Ranks",
        description="Ranks k of the metrics: precision at k and so on. The largest k is also the number of "
        "labels predicted per row.",
    )
    propensity_a: float = Field(
        0.55, ge=0, description="Constant A of the propensity model, used by psp and psndcg. The usual value is 0.55."
    )
    propensity_b: float = Field(
        1.5, ge=0, description="Constant B of the propensity model, used by psp and psndcg. The usual value is 1.5."
    )
    n_bootstrap: int = Field(
        1000,
        ge=0,
        le=100_000,
        title="Bootstrap resamples",
        description="Number of bootstrap resamples for the confidence intervals. More resamples give steadier "
        "intervals; 0 gives none.",
    )

    thresholds: bool = Field(
        False,
        title="Thresholds of labels",
        description="Choose a threshold on the score for each label on dev rows, and measure F1 of the labels that "
        "reach theirs. Needs dev rows (data.dev or data.holdout.dev).",
    )

    def used_modules(self) -> Iterable[str]:
        """All metrics are computed, so all of them count: a new metric makes a new evaluation."""
        return metric_modules()


class Measurement(EvaluationOptions):
    """The options, and what the scores of the measured model are."""

    scale: ScoreScale = Field("share", description="What the scores estimate. Log loss needs shares of 1.")


def evaluate_predictions(context: BuildContext) -> Mapping[str, Any]:
    """Metrics with intervals, for all labels and by head, torso and tail, and a table with one row per label."""
    options: Measurement = context.options
    dataset = Dataset(context.inputs["dataset"].directory)
    table = pq.read_table(context.inputs["predictions"].directory / FILE)
    top, thresholds = TopK.from_table(table, max(options.ks)), open_thresholds(context.inputs)
    result = evaluate(
        top,
        dataset.Y(options.split),
        ks=options.ks,
        train_counts=dataset.label_table()["train_count"].to_numpy(),
        n_train=dataset.n_rows("train"),
        a=options.propensity_a,
        b=options.propensity_b,
        n_bootstrap=options.n_bootstrap,
        rng=context.rng,
        shares=options.scale == "share",
        log_probability=table[LOG_PROBABILITY].to_numpy() if LOG_PROBABILITY in table.column_names else None,
        kept=None if thresholds is None else thresholds.kept(top),
    )
    summary = {"split": options.split, "metrics": result.metrics, "intervals": result.intervals}
    (context.directory / "metrics.json").write_text(json.dumps(summary, indent=1, sort_keys=True))
    pq.write_table(result.per_label, context.directory / "per_label.parquet")
    pq.write_table(result.per_decile, context.directory / "per_decile.parquet")
    return {"rows": result.n_rows, "rows_without_labels": result.n_unlabelled}


def evaluation_recipe(
    predictions: Recipe,
    dataset: Recipe,
    options: EvaluationOptions,
    scale: ScoreScale,
    seed: int,
    thresholds: Recipe | None = None,
) -> Recipe:
    """The metrics of predictions, by a model whose scores are on a scale; F1 needs thresholds of labels."""
    inputs = {"predictions": predictions, "dataset": dataset} | ({"thresholds": thresholds} if thresholds else {})
    measured = Measurement(**dict(options), scale=scale)
    return Recipe("evaluation", evaluate_predictions, measured, inputs, seed=seed)
