"""A model on a subset of the labels: what it trains, how it reconstructs the rest, and any model inside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
import scipy.sparse as sp
from pydantic import TypeAdapter, ValidationError

from tests.contracts.test_models import planted
from xcore.models.base import Model
from xcore.models.family import AnyModel, load_model
from xcore.models.label_subset.fitted import as_shares
from xcore.models.label_subset.model import LabelSubset
from xcore.models.negative_sampling.model import NegativeSampling
from xcore.models.network import NeuralNetwork
from xcore.models.ova import FittedOva, Ova
from xcore.models.parabel import Parabel
from xcore.numeric.matrices import CSR, Float64, TopK, csr
from xcore.numeric.ridge import RidgeProblem
from xcore.selection.options import LabelSelection
from xcore.training.context import FitContext
from xcore.training.data import LabelSide, RowForm, TrainingData, Wish

EXACT_OVA = Ova(ridge=0.5, prune=0.0)
N_PARENTS, N_LABELS = 11, 33


def families(n: int = 240, seed: int = 0) -> TrainingData:
    """The planted labels, and two children of each that occur in most of its rows."""
    data, rng = planted(n, seed), np.random.default_rng(seed + 100)
    parents = data.Y.toarray()[:, :N_PARENTS]
    children = [parents * (rng.random(parents.shape) < 0.9) for _ in range(2)]
    return TrainingData.of(data.X, np.column_stack([parents, *children]))


def subset(model: Model = EXACT_OVA, **selection: Any) -> LabelSubset:
    options = {"budget": N_PARENTS, "score_weight": 0.0, "outlier_above": 0.9} | selection
    return LabelSubset(selection=LabelSelection.model_validate(options), model=model)


def scores_of(top: TopK, n_labels: int) -> Float64:
    dense = np.full((len(top), n_labels), -np.inf)
    rows, places = np.nonzero(top.labels >= 0)
    dense[rows, top.labels[rows, places]] = top.scores[rows, places]
    return dense


def rows_of(n: int = 50, seed: int = 5) -> CSR:
    return families(n, seed).X


def test_chosen_labels_are_trained_and_their_children_are_reconstructed() -> None:
    data = families()
    fitted = subset().fit(data)
    assert len(fitted.trained) == N_PARENTS
    assert {label % N_PARENTS for label in fitted.trained.tolist()} == set(range(N_PARENTS)), "one of each family"
    held_out = families(100, 1)
    top = fitted.predict_topk(held_out.X, 3)
    assert (held_out.Y.toarray()[np.arange(100)[:, None], top.labels] > 0).mean() > 0.85


def test_scores_of_the_rest_are_the_map_of_the_scores_of_the_chosen() -> None:
    data = families()
    model = subset()
    fitted = model.fit(data)
    selection = model.selection.fit(data, FitContext())
    whole = scores_of(EXACT_OVA.fit(data).predict_topk(rows_of(), N_LABELS), N_LABELS)
    expected = whole[:, selection.chosen] @ selection.coefficients.toarray().T
    expected[:, selection.trained] = whole[:, selection.trained]
    found = scores_of(fitted.predict_topk(rows_of(), N_LABELS), N_LABELS)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_own_predictors_of_outliers_are_reconstruction_plus_a_regression_of_residuals() -> None:
    """H(Y_S Z_S) + H E = H Y for a linear smoother H."""
    data = families()
    selection = LabelSelection(budget=5, outlier_above=0.0).fit(data, FitContext())
    Y = data.Y.astype(np.float64)
    mapped = sp.csr_array(Y[:, selection.chosen] @ selection.coefficients.T)

    def weights(targets: CSR) -> Float64:
        problem = RidgeProblem.of(data.X, targets, 0.5)
        return problem.solved(problem.right_sides(np.arange(N_LABELS, dtype=np.int32)))

    together = weights(mapped) + weights(sp.csr_array(Y - mapped))
    assert len(selection.outliers) > 10
    assert np.abs(together - weights(Y))[selection.outliers].max() < 1e-12


def test_with_all_others_as_outliers_it_is_one_vs_all() -> None:
    data = families()
    model = subset(budget=5, outlier_above=0.0)
    fitted = model.fit(data)
    selection = model.selection.fit(data, FitContext())
    exact = np.flatnonzero(selection.errors == 0)
    assert sorted({*selection.outliers.tolist(), *exact.tolist()}) == list(range(N_LABELS))
    trained = fitted.trained
    found = scores_of(fitted.predict_topk(rows_of(), N_LABELS), N_LABELS)[:, trained]
    whole = scores_of(EXACT_OVA.fit(data).predict_topk(rows_of(), N_LABELS), N_LABELS)[:, trained]
    np.testing.assert_allclose(found, whole, atol=1e-5)


@pytest.mark.parametrize(
    "inner",
    [
        Parabel(),
        NegativeSampling(epochs=60, learning_rate=0.3, tree_dimensions=4),
        NeuralNetwork(epochs=30, width=32, hidden=()),
        Ova(loss="squared_hinge"),
    ],
    ids=lambda inner: inner.options()["kind"] + inner.options().get("loss", ""),
)
def test_any_model_can_be_inside(inner: Model, tmp_path: Path) -> None:
    fitted = subset(inner).fit(families())
    held_out = families(100, 1)
    top = fitted.predict_topk(held_out.X, 3)
    assert (held_out.Y.toarray()[np.arange(100), top.labels[:, 0]] > 0).mean() > 0.85
    reconstructed = ~np.isin(top.labels, fitted.trained)
    assert reconstructed.mean() > 0.3, "labels that were not trained are found too"
    fitted.save(tmp_path)
    again = load_model(tmp_path).predict_topk(held_out.X, 3)
    assert np.array_equal(again.labels, top.labels)


def test_margins_and_logarithms_become_shares() -> None:
    top = TopK(
        np.array([[2, 0, -1], [1, -1, -1]], np.int32),
        np.array([[1.0, 0.0, -np.inf], [-3.0, -np.inf, -np.inf]], np.float32),
    )
    assert as_shares(top, "share").tolist() == [[1.0, 0.0, 0.0], [-3.0, 0.0, 0.0]]
    assert as_shares(top, "margin").tolist() == [[1.0, 0.5, 0.0], [-1.0, 0.0, 0.0]]
    first = 1 / (1 + np.exp(-1))
    np.testing.assert_allclose(as_shares(top, "log"), [[first, 1 - first, 0.0], [1.0, 0.0, 0.0]], rtol=1e-6)


class Curious(Ova):
    """Notes what it is given."""

    wants: ClassVar[frozenset[Wish]] = frozenset({"dev", "labels"})
    takes: ClassVar[tuple[RowForm, ...]] = ("sparse",)
    seen: ClassVar[list[TrainingData]] = []

    kind: Literal["ova"] = "ova"

    def _fit(self, data: TrainingData, context: FitContext) -> FittedOva:
        self.seen.append(data)
        return super()._fit(data, context)


def test_the_inner_model_sees_the_trained_labels_alone_and_no_more_than_it_wants() -> None:
    data, dev = families(), families(30, 2)
    texts = [f"label {label}" for label in range(N_LABELS)]
    side = LabelSide(texts, sp.csr_array(np.eye(N_LABELS, dtype=np.float32)))
    given = TrainingData.of(data.X, data.Y, dev=(dev.X, dev.Y), labels=side)
    model = subset().model_copy(update={"model": Curious(ridge=0.5, prune=0.0)})
    fitted = model.fit(given)
    seen = Curious.seen.pop()
    assert seen.n_labels == len(fitted.trained)
    assert seen.dev is not None
    assert np.array_equal(seen.dev.Y.toarray(), dev.Y.toarray()[:, fitted.trained])
    assert seen.labels is not None
    assert list(seen.labels.texts) == [texts[label] for label in fitted.trained]
    assert np.array_equal(seen.labels.X.indices, fitted.trained)
    plain = subset()._reduced(given, fitted.trained)
    assert plain.dev is None
    assert plain.labels is None


def test_stages_of_the_inner_model_that_see_no_label_are_shared() -> None:
    model = subset(NegativeSampling())
    assert list(model.stages("sparse")) == ["selection", "embedding", "projection"]
    assert list(subset(NegativeSampling(embedding={"kind": "network"})).stages("sparse")) == ["selection"]


def test_options_of_any_plain_model_nest_and_others_are_refused() -> None:
    adapter: TypeAdapter[Model] = TypeAdapter(AnyModel)
    found = adapter.validate_python({"kind": "label-subset", "model": {"kind": "parabel", "n_trees": 3}})
    assert isinstance(found, LabelSubset)
    assert found.model == Parabel(n_trees=3)
    assert found.options()["model"]["n_trees"] == 3
    with pytest.raises(ValidationError, match="label-subset"):
        adapter.validate_python({"kind": "label-subset", "model": {"kind": "label-subset"}})
    with pytest.raises(ValidationError, match="deep-miml learns from the labels of bags"):
        adapter.validate_python({"kind": "label-subset", "model": {"kind": "deep-miml"}})
    schema = adapter.json_schema()
    kinds = schema["$defs"]["LabelSubset"]["properties"]["model"]["discriminator"]["mapping"]
    assert {"ova", "parabel", "network", "negative-sampling"} <= kinds.keys()
    assert "label-subset" not in kinds


def test_labels_of_weights_are_learnt_from() -> None:
    data = families()
    soft = csr(data.Y.data * 0.5, data.Y.indices, data.Y.indptr, N_LABELS)
    fitted = subset(error_weight=1.0).fit(TrainingData.of(data.X, soft))
    top = fitted.predict_topk(data.X, 1)
    assert (data.Y.toarray()[np.arange(240), top.labels[:, 0]] > 0).mean() > 0.9
