"""What the modules of SiameseXML draw and compare in training, and where Module IV begins."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from tests.xcore.siamese.test_siamese import SMALL, bags, encoder, toy
from xcore.numeric.matrices import CSR
from xcore.siamese.dev_rows import DevRows
from xcore.siamese.encoder import Activation, Encoder
from xcore.siamese.fitting.encoder import EncoderProblem, first_encoder
from xcore.siamese.fitting.towers import Towers
from xcore.siamese.label_rows import label_rows
from xcore.siamese.modules import label_vectors
from xcore.siamese.options import SiameseEncoder
from xcore.training.context import FitContext
from xcore.training.data import LabelSide
from xcore.training.shards import Lookup
from xcore.training.stages import prepare

CPU = torch.device("cpu")


@pytest.mark.parametrize("activation", ["relu", "gelu", "none"])
def test_torch_and_plain_arrays_encode_alike(activation: Activation) -> None:
    own, rows = encoder(activation), bags(60)
    towers = Towers(own, CPU, trains_residual=True)
    middle = towers.intermediate(rows, towers.frozen)
    np.testing.assert_allclose(middle, own.intermediate(rows), atol=1e-5)
    np.testing.assert_allclose(towers.final(middle).detach(), own.encode(rows), atol=1e-5)


def test_labels_without_a_name_are_encoded_by_their_rows() -> None:
    X = sp.csr_array(np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]], np.float32))
    Y = sp.csr_array(np.array([[1, 1, 0, 0], [0, 1, 0, 0], [1, 0, 0, 0]], np.float32))
    names = sp.csr_array(np.array([[0, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]], np.float32))
    found = label_rows(X, Y, LabelSide(["a", "", "", "d"], names), "auto")
    mean = [0.5**0.5, 0.5**0.5, 0, 0]
    np.testing.assert_allclose(found.X.toarray(), [[0, 0, 0, 1], mean, [0, 0, 0, 0], [0, 0, 0, 1]], rtol=1e-6)
    assert found.is_known.tolist() == [True, True, False, True]
    assert found.is_trained.tolist() == [True, True, False, False]


def problem_of(X: CSR, Y: CSR, **options: object) -> EncoderProblem:
    chosen = SiameseEncoder.model_validate({"dimensions": 8} | options)
    start = first_encoder(chosen, "sparse", X.shape[1], 0)
    return EncoderProblem(chosen, X, Y, label_rows(X, Y, None, "auto"), start, None, 0, CPU)


def test_the_release_draws_frequent_labels_more_often_but_less_than_in_proportion() -> None:
    Y = np.zeros((82, 2), np.float32)
    Y[0, 0], Y[1:, 1] = 1, 1
    problem = problem_of(bags(82), sp.csr_array(Y), profile="release")
    problem.prepare(np.arange(20_000), 0)
    assert np.mean(problem.batch.labels == 0) == pytest.approx(1 / (1 + 81**0.45), abs=0.01)


def test_a_row_of_a_label_is_drawn_as_often_as_its_target_says() -> None:
    problem = problem_of(bags(3), sp.csr_array(np.array([[0.2], [0.0], [0.8]], np.float32)))
    problem.prepare(np.arange(20_000), 0)
    assert np.bincount(problem.batch.rows, minlength=3) / 20_000 == pytest.approx([0.2, 0, 0.8], abs=0.01)


def test_the_softmax_of_module_1_lets_labels_choose_rows_and_rows_labels() -> None:
    X, temperature = bags(30), 0.2
    Y = sp.random_array((30, 9), density=0.3, format="csr", dtype=np.float32, rng=np.random.default_rng(3))
    Y.data[:] = 1
    problem = problem_of(X, Y, temperature=temperature)
    problem.prepare(np.arange(14), 0)
    drawn = problem.batch
    cosines = problem.start.encode(problem.labels.X[drawn.labels]) @ problem.start.encode(X[drawn.rows]).T
    is_wrong = Y.toarray()[drawn.rows][:, drawn.labels].T == 0
    expected = 0.0
    for choices, wrong in ((cosines, is_wrong), (cosines.T, is_wrong.T)):
        for place, row in enumerate(choices):
            expected += np.log1p(np.exp((row[wrong[place]] - row[place]) / temperature).sum()) / 2
    found = problem.loss(np.arange(14), Lookup(problem.tables), torch.Generator())
    assert float(found.detach()) == pytest.approx(expected, rel=1e-4)


def test_dev_rows_are_judged_by_the_ids_of_the_labels() -> None:
    same = Encoder(np.eye(4, dtype=np.float32), np.zeros((4, 4), np.float32), "none")
    labels, Y = np.array([5, 1, 3]), np.zeros((3, 6), np.float32)
    Y[np.arange(3), labels] = 1
    rows = DevRows(np.eye(4, dtype=np.float32)[:3], sp.csr_array(Y))
    found = rows.metrics(same.encode(rows.X), same.table[:3], labels)
    assert found == {"dev_precision_at_1": 1.0, "dev_ndcg_at_5": 1.0}


def test_module_4_goes_on_from_module_3() -> None:
    data = toy()
    assert data.labels is not None
    still = SMALL.model_copy(update={"joint_epochs": 1, "joint_learning_rate": 1e-12})
    staged = prepare(still, data, FitContext(rng=np.random.default_rng(0)))
    first, before = staged.stage("encoder").fitted, staged.stage("classifiers").fitted
    fitted = still.fit(data, FitContext(rng=np.random.default_rng(0)))
    assert np.abs(before.residual - first.encoder.residual).max() > 1e-4, "Module III has changed it"
    np.testing.assert_allclose(fitted.encoder.residual, before.residual, atol=1e-6)
    expected = label_vectors(fitted.encoder, fitted.encoder.intermediate(data.labels.X), before.eta)
    np.testing.assert_allclose(fitted.weights, expected, atol=1e-5)
