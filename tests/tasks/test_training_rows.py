"""What a model reaches on rows that it was trained on: in the manifest, in MLflow's metrics and in the report."""

from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp

from flows.params import PipelineParams
from flows.plans import plan_pipeline
from tasks import settings
from tasks.fit import MEASURED_ROWS, measure_training_rows
from xcore.artifacts import Artifact, Recipe
from xcore.numeric.matrices import NO_LABEL, TopK, csr
from xcore.report.mistakes import _training_rows
from xcore.report.results import Results
from xcore.report.run import Run
from xcore.training.data import RowsInMemory, TrainingData
from xcore.views.base import view_of

READER = {"kind": "generated", "n_train": 60, "n_test": 40, "n_labels": 6, "noise": 0.9}


class Offers:
    """Offers the same labels to every row, and keeps what it was asked."""

    form = "sparse"

    def __init__(self, labels: list[int]) -> None:
        self.labels, self.asked = labels, 0

    def predict_topk(self, X: sp.csr_array, k: int) -> TopK:
        self.asked = X.shape[0]
        labels = np.full((X.shape[0], k), NO_LABEL, np.int32)
        labels[:, : len(self.labels)] = self.labels
        return TopK(labels, np.zeros(labels.shape, np.float32))


def data(Y: np.ndarray) -> TrainingData:
    sparse = sp.csr_array(Y.astype(np.float32))
    learnt = csr(sparse.data, sparse.indices, sparse.indptr, Y.shape[1])
    return TrainingData(
        RowsInMemory(csr(np.ones(len(Y)), np.zeros(len(Y)), np.arange(len(Y) + 1), 1), "sparse"), learnt
    )


def test_precision_counts_learnt_labels_among_those_offered_and_rows_without_labels_are_left_out() -> None:
    Y = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 0], [0, 0, 1]])
    offers = Offers([0, 1])
    measured = measure_training_rows(offers, data(Y))
    assert offers.asked == 3
    assert measured["train_precision_at_1"] == pytest.approx(2 / 3)
    assert measured["train_precision_at_3"] == pytest.approx(3 / 9)
    assert measure_training_rows(offers, data(np.zeros((4, 3)))) == {}


@pytest.mark.parametrize("n", [999, 1000, 1001, 2500])
def test_at_most_a_thousand_rows_are_measured(n: int) -> None:
    offers = Offers([0])
    assert measure_training_rows(offers, data(np.ones((n, 2))))["train_precision_at_1"] == 1.0
    assert MEASURED_ROWS / 2 < offers.asked <= MEASURED_ROWS


def test_a_model_that_overfits_is_seen_beside_its_test_rows(make: Callable[[Recipe], Artifact]) -> None:
    params = PipelineParams.model_validate({"data": {"reader": READER}, "model": {"kind": "ova", "ridge": 1e-6}})
    recipe = plan_pipeline(params).evaluation
    make(recipe)
    lineage = [settings.store().open(step.ref) for step in recipe.lineage()]
    model = next(artifact for artifact in lineage if artifact.ref.kind == "model")
    known = model.manifest.counts["train_precision_at_1"]
    ((step, points),) = view_of("model").points(model)
    assert (step, points["train_rows/precision_at_1"]) == (0, known)
    results = Results({"precision_at_1": known - 0.25}, {})
    assert f"{100 * known:.2f}" in str(_training_rows(Run(lineage), results))
    assert "25.00" in str(_training_rows(Run(lineage), results))
