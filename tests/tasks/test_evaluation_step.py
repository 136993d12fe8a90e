"""Predictions and their evaluation are of the split that was asked for, with the options that were given."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import sklearn.metrics

from flows.params import PipelineParams
from flows.plans import LearningPlan, plan_pipeline
from tasks import settings
from tasks.model_parts import parts_of
from tasks.thresholds import thresholds_recipe
from tests.small_models import write_texts
from xcore.artifacts import Artifact, Recipe
from xcore.data.dataset import Dataset
from xcore.data.readers.base import Split
from xcore.errors import ConfigError
from xcore.inference.thresholds import LabelThresholds, ThresholdOptions, choose_thresholds
from xcore.metrics import evaluate
from xcore.models.base import classes_of
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


@pytest.mark.parametrize(
    "model",
    [
        {"kind": "negative-sampling", "epochs": 2},
        {"kind": "negative-sampling", "method": "softmax", "epochs": 2},
        {"kind": "network", "width": 8, "epochs": 2, "head": {"kind": "one-hot", "loss": "softmax"}},
        {"kind": "network", "width": 8, "epochs": 2, "head": {"kind": "mhs"}, "embedding": {"dimensions": 6}},
    ],
    ids=lambda model: model["kind"] + model.get("method", "") + ("-embedding" if "embedding" in model else ""),
)
def test_models_of_one_distribution_report_its_log_likelihood(
    model: dict[str, Any], tmp_path: Path, make: Callable[[Recipe], Artifact]
) -> None:
    """It is that of the softmax over the scores of all labels, which a full ranking holds."""
    learning = plan(tmp_path, model=model)
    metrics = json.loads((make(learning.evaluation).directory / "metrics.json").read_text())["metrics"]
    dataset = Dataset(make(learning.data.dataset).directory)
    full = learning.predictions_of("test", dataset.n_labels)
    top = TopK.from_table(pq.read_table(make(full).directory / "predictions.parquet"), dataset.n_labels)
    scores = np.exp(top.scores.astype(np.float64) - top.scores.max(axis=1, keepdims=True))
    shares = (scores / scores.sum(axis=1, keepdims=True))[top.labels == dataset.Y("test").indices[:, None]]
    assert metrics["log_likelihood"] == pytest.approx(np.log(shares).mean(), rel=1e-4)
    assert len(shares) == dataset.n_rows("test")


def test_a_label_without_training_rows_has_no_log_probability() -> None:
    labels = np.array([7, 2, 5], np.int32)
    classes, is_known = classes_of(labels, np.array([5, 2, 9, 0, 7], np.int32))
    assert is_known.tolist() == [True, True, False, False, True]
    assert classes.tolist() == [2, 1, 0, 0, 0]


def test_thresholds_of_labels_are_chosen_on_dev_rows_and_measured_by_f1(
    tmp_path: Path, make: Callable[[Recipe], Artifact]
) -> None:
    learning = plan(tmp_path, evaluation={"ks": [1, 3], "n_bootstrap": 20, "thresholds": True})
    evaluation = make(learning.evaluation)
    metrics = json.loads((evaluation.directory / "metrics.json").read_text())
    made = settings.store().open(evaluation.manifest.inputs["thresholds"])
    dataset, thresholds = Dataset(make(learning.data.dataset).directory), LabelThresholds.load(made.directory)

    def ranking(split: Split) -> TopK:
        table = pq.read_table(make(learning.predictions_of(split, 3)).directory / "predictions.parquet")
        return TopK.from_table(table, 3)

    full = pq.read_table(make(learning.predictions_of("dev", dataset.n_labels)).directory / "predictions.parquet")
    expected = choose_thresholds(TopK.from_table(full), dataset.Y("dev"), ThresholdOptions().prior)
    np.testing.assert_array_equal(thresholds.values, expected.values)
    top, truth = ranking("test"), dataset.Y("test").toarray() > 0
    kept = np.zeros(truth.shape, np.bool_)
    rows = np.nonzero(top.labels >= 0)[0]
    labels = top.labels[top.labels >= 0]
    kept[rows, labels] = top.scores[top.labels >= 0] >= thresholds.values[labels]
    seen = kept.any(axis=0) | truth.any(axis=0)
    for name, average, chosen in (("micro_f1", "micro", slice(None)), ("macro_f1", "macro", seen)):
        wanted = sklearn.metrics.f1_score(truth[:, chosen], kept[:, chosen], average=average, zero_division=0)
        assert metrics["metrics"][name] == pytest.approx(wanted)
    assert metrics["intervals"]["micro_f1"][0] <= metrics["metrics"]["micro_f1"]
    kept_model = parts_of(make(learning.model).ref)
    assert thresholds_recipe(kept_model).id == made.ref.id  # planned or in the store: the same thresholds


def test_thresholds_without_dev_rows_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"evaluation\.thresholds is dev"):
        plan(
            tmp_path,
            evaluation={"thresholds": True},
            data={
                "reader": {"kind": "jsonl", "text": "text", "id": "id"},
                "train": [write_texts(tmp_path / "t.jsonl", 50, 0)],
            },
        )
