"""Predictions and their evaluation are of the split that was asked for, with the options that were given."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from flows.params import PipelineParams
from flows.plans import LearningPlan, plan_pipeline
from tests.small_models import write_texts
from xcore.artifacts import Artifact, Recipe
from xcore.data.dataset import Dataset
from xcore.metrics import evaluate
from xcore.numeric.matrices import TopK


def plan(folder: Path, **parts: Any) -> LearningPlan:
    train = write_texts(folder / "train.jsonl", 200, 0)
    params = {
        "data": {"reader": {"kind": "jsonl", "text": "text", "id": "id"}, "train": [train], "holdout": {"dev": 0.2}},
        "model": {"kind": "ova"},
        "evaluation": {"ks": [1, 3], "n_bootstrap": 0},
    }
    return plan_pipeline(PipelineParams.model_validate(params | parts))


@pytest.mark.parametrize("split", ["dev", "test"])
def test_the_metrics_are_those_of_the_predictions_of_the_split(
    split: str, tmp_path: Path, make: Callable[[Recipe], Artifact]
) -> None:
    options = {"split": split, "ks": [1, 3], "n_bootstrap": 0, "propensity_a": 0.6, "propensity_b": 2.6}
    learning = plan(tmp_path, evaluation=options)
    written = json.loads((make(learning.evaluation).directory / "metrics.json").read_text())
    dataset, predictions = Dataset(make(learning.data.dataset).directory), make(learning.predictions).directory
    top = TopK.from_table(pq.read_table(predictions / "predictions.parquet"), 3)
    assert len(top) == dataset.n_rows(split) == {"dev": 40, "test": 20}[split]
    counts = dataset.label_table()["train_count"].to_numpy()
    expected = evaluate(
        top,
        dataset.Y(split),
        ks=(1, 3),
        train_counts=counts,
        n_train=dataset.n_rows("train"),
        a=0.6,
        b=2.6,
        n_bootstrap=0,
        rng=np.random.default_rng(0),
        shares=True,  # a ridge regression estimates shares
    )
    assert "log_loss_at_3" in expected.metrics
    assert written["split"] == split
    assert written["metrics"] == pytest.approx(expected.metrics, nan_ok=True)
    assert written["metrics"]["accuracy"] > 0.8  # rows have one label each


def test_every_seed_holds_out_other_rows(tmp_path: Path, make: Callable[[Recipe], Artifact]) -> None:
    held_out = [
        pq.read_table(make(plan(tmp_path, seed=seed).data.dataset).directory / "test_rows.parquet")["id"].to_pylist()
        for seed in (0, 1)
    ]
    assert set(held_out[0]) != set(held_out[1])
