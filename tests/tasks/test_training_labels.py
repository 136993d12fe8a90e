"""What training sees of groups: draws of the run's seed, and the confidence of every imputed label."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from flows.params import PipelineParams
from flows.plans import LearningPlan, plan_pipeline
from tasks.training_data import open_training_data, training_labels
from xcore.artifacts import Artifact, Recipe
from xcore.data.dataset import Dataset
from xcore.grouping.groups import Groups
from xcore.imputation.imputed import Imputed
from xcore.models.ova import Ova
from xcore.training.data import TrainingData

SIZES = {"n_train": 120, "n_test": 20, "n_labels": 6, "n_features": 60, "group_size": 1}


def plan(seed: int = 0, **parts: Any) -> LearningPlan:
    params = {
        "seed": seed,
        "data": {"reader": {"kind": "generated", **SIZES}},
        "grouping": {"kind": "random", "size": 4},
        "imputer": {"kind": "baseline"},
        "model": {"kind": "ova"},
    }
    return plan_pipeline(PipelineParams.model_validate(params | parts))


def test_every_seed_of_a_run_makes_other_groups(make: Callable[[Recipe], Artifact]) -> None:
    made = [plan(seed).data.labels.inputs["groups"] for seed in (0, 1)]
    assert made[0].id != made[1].id
    one, other = (Groups.load(make(recipe).directory).members.indices for recipe in made)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("kind", ["baseline", "eagle", "disaggregate", "auto"])
def test_every_imputation_says_what_held_out_groups_tell(kind: str, make: Callable[[Recipe], Artifact]) -> None:
    labels = plan(imputer={"kind": kind}).data.labels
    assert labels is not None
    quality = json.loads((make(labels).directory / "quality.json").read_text())
    assert {"group_agreement", "group_precision", "estimated_precision_at_1"} <= set(quality)
    assert kind == "auto" or quality["estimated_precision_at_1_error"] > 0


@pytest.mark.parametrize(
    ("imputer", "model", "judge"),
    [("auto", "parabel", "parabel"), ("auto", "memory", None), ("eagle", "parabel", None)],
)
def test_auto_is_judged_by_the_model_of_the_run_if_features_alone_can_train_it(
    imputer: str, model: str, judge: str | None
) -> None:
    labels = plan(imputer={"kind": imputer}, model={"kind": model}).data.labels
    assert labels is not None
    options = labels.options.options()
    assert options["kind"] == imputer
    assert options.get("model", {}).get("kind") == judge


def test_models_train_on_the_confidence_of_every_imputed_label(
    make: Callable[[Recipe], Artifact], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = plan().model
    inputs = {role: make(recipe) for role, recipe in model.inputs.items()}
    imputed = Imputed.load(inputs["labels"].directory).Y
    assert 0 < imputed.data.min() < 1
    np.testing.assert_array_equal(training_labels(inputs)[0].data, imputed.data)
    seen: list[TrainingData] = []
    fit = Ova._fit

    def noting(self: Ova, data: TrainingData, context: Any) -> Any:
        seen.append(data)
        return fit(self, data, context)

    monkeypatch.setattr(Ova, "_fit", noting)
    make(model)
    np.testing.assert_array_equal(seen[0].Y.toarray(), imputed.toarray())


@pytest.mark.parametrize("merge", ["list", "set"])
def test_rows_in_groups_have_no_labels_of_their_own_and_bags_say_whether_they_count(
    merge: str, make: Callable[[Recipe], Artifact]
) -> None:
    planned = plan(grouping={"kind": "random", "size": 4, "merge": merge}).data.labels.inputs
    inputs = {role: make(planned[role]) for role in ("dataset", "features", "groups")}
    data = open_training_data(inputs, "sparse", wants={"bags"})
    assert data.Y.shape == (120, 6)
    assert data.Y.nnz == 0
    assert data.known_bags().counted == (merge == "list")


def test_dev_rows_are_those_of_the_dev_split(make: Callable[[Recipe], Artifact]) -> None:
    source = {"reader": {"kind": "generated", **SIZES}, "holdout": {"dev": 0.1}}
    made = make(plan(data=source).data.dataset)
    dev = open_training_data({"dataset": made, "features": made}, "sparse", wants={"dev"}).dev
    assert dev is not None
    dataset = Dataset(made.directory)
    np.testing.assert_array_equal(dev.Y.toarray(), dataset.Y("dev").toarray())
    np.testing.assert_array_equal(dev.X.toarray(), dataset.sparse("dev").toarray())
    assert dev.Y.shape[0] == 12
