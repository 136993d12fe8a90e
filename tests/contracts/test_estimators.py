"""What the estimators promise for every model and every imputer. A new member is picked up by itself."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import xcore
from xcore.imputation.family import IMPUTER_KINDS
from xcore.models.family import MODEL_KINDS
from xcore.numeric.matrices import NO_LABEL

SMALL: dict[str, dict[str, Any]] = {"network": {"width": 32, "epochs": 10}}
# scikit-learn fits each model hundreds of times and hardly asks what it learnt, so those that train for long do little.
_BAGS = {"width": 16, "concepts": 1, "epochs": 3, "learning_rate": 0.05}
LITTLE = {
    "network": {"width": 32, "epochs": 4, "learning_rate": 0.02},
    "deep-miml": _BAGS,
    "co-attention": _BAGS,
}
NOT_OURS = {
    "check_do_not_raise_errors_in_init_or_set_params": "it gives nested options to the constructor",
    "check_classifiers_multilabel_representation_invariance": "lists in a list are label lists, not rows of a matrix",
    "check_supervised_y_2d": "a matrix of one column is a matrix of targets, not one label per row",
}
NOT_OF_KIND = {"negative-sampling": {"check_fit2d_1sample": "one row is refused in other words"}}


def classifier(kind: str) -> xcore.Classifier:
    if kind == "omikuji":
        pytest.importorskip("omikuji")
    return xcore.Classifier(kind, **SMALL.get(kind, {}))


def failing(estimator: xcore.Classifier) -> dict[str, str]:
    model = estimator.model
    kind = model if isinstance(model, str) else model.options()["kind"]
    return NOT_OURS | NOT_OF_KIND.get(kind, {})


def planted(n: int = 200, seed: int = 0) -> tuple[Any, Any]:
    """Each of ten labels owns three features; a row has one or two labels."""
    rng = np.random.default_rng(seed)
    Y = np.zeros((n, 10))
    for row in Y:
        row[rng.choice(10, rng.integers(1, 3), replace=False)] = 1
    X = np.repeat(Y, 3, axis=1) * rng.uniform(0.5, 1.5, (n, 30)) + 0.1 * rng.random((n, 30))
    return sp.csr_array(X), sp.csr_array(Y)


every_model = pytest.mark.parametrize("kind", sorted(MODEL_KINDS))
every_imputer = pytest.mark.parametrize("kind", sorted(IMPUTER_KINDS))
# omikuji is optional, its forest cannot be pickled, and it trains in a new process for each of many small fits
checked = [kind for kind in sorted(MODEL_KINDS) if kind != "omikuji"]


@parametrize_with_checks(
    [xcore.Classifier(kind, **LITTLE.get(kind, {})) for kind in checked], expected_failed_checks=failing
)
def test_scikit_learn_finds_its_habits(estimator: Any, check: Any) -> None:
    check(estimator)


def test_every_member_of_the_families_is_a_public_name() -> None:
    members = [*MODEL_KINDS.values(), *IMPUTER_KINDS.values()]
    assert [member.__name__ for member in members if getattr(xcore, member.__name__, None) is not member] == []


@every_model
def test_sparse_targets_are_learnt_and_answered_as_csr(kind: str) -> None:
    X, Y = planted()
    held_X, held_Y = planted(60, seed=1)
    fitted = classifier(kind).fit(X.tocsc(), Y.tocoo())
    assert fitted.score(held_X, held_Y) >= 0.9
    answer = fitted.predict(held_X)
    assert answer.format == "csr"
    assert answer.shape == held_Y.shape
    assert set(answer.data) == {1.0}
    scores = fitted.predict_scores(held_X, k=3)
    assert np.diff(scores.indptr).max() <= 3
    top = fitted.predict_topk(held_X, k=3)
    assert (top.labels[:, 0] != NO_LABEL).all(), "every row gets a label"
    assert np.allclose(scores.max(axis=1).toarray().ravel()[top.scores[:, 0] > 0], top.scores[top.scores[:, 0] > 0, 0])


@every_model
def test_one_label_per_row_gives_the_label_itself_and_accuracy(kind: str) -> None:
    X, Y = planted()
    y = np.array([f"label {number}" for number in Y.toarray().argmax(axis=1)])
    fitted = classifier(kind).fit(X, y)
    answer = fitted.predict(X)
    assert answer.shape == y.shape
    assert fitted.score(X, y) == pytest.approx((answer == y).mean())


@every_model
def test_label_lists_are_answered_as_lists(kind: str) -> None:
    X, Y = planted()
    lists = [[f"label {number}" for number in Y[[row]].indices] for row in range(Y.shape[0])]
    fitted = classifier(kind).fit(X, lists)
    assert fitted.score(X, lists) == fitted.score(X, fitted.label_space_.encode(lists))
    assert all(len(row) == fitted.k_ for row in fitted.predict(X))


@every_model
def test_clone_search_pipeline_and_cross_validation_work(kind: str) -> None:
    X, Y = planted(90)
    base = classifier(kind)
    assert clone(base).get_params() == base.get_params()
    option = next(name for name in base.get_params() if name.startswith("model__"))
    grid = GridSearchCV(base, {option: [base.get_params()[option]]}, cv=2).fit(X, Y)
    assert grid.best_score_ > 0.3
    assert len(cross_val_score(make_pipeline(MaxAbsScaler(), base), X, Y.tolil().rows, cv=KFold(2))) == 2


@every_model
def test_a_saved_classifier_predicts_the_same(kind: str, tmp_path: Path) -> None:
    X, Y = planted()
    lists = [[f"label {number}" for number in Y[[row]].indices] for row in range(Y.shape[0])]
    fitted = classifier(kind).fit(X, lists)
    fitted.save(tmp_path / "saved")
    loaded = xcore.Classifier.load(tmp_path / "saved")
    assert loaded.predict(X) == fitted.predict(X)
    assert (loaded.n_features_in_, loaded.k_) == (fitted.n_features_in_, fitted.k_)
    assert loaded._component() == fitted._component()
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.read_bytes()[:1] == b"\x80"]


@every_model
def test_read_only_arrays_are_enough(kind: str) -> None:
    X, Y = planted()
    given = X.toarray().astype(np.float32)
    given.flags.writeable = False
    sparse = sp.csr_array(X, dtype=np.float32)
    for array in (sparse.data, sparse.indices, sparse.indptr):
        array.flags.writeable = False
    for rows in (given, sparse):
        assert classifier(kind).fit(rows, Y).score(rows, Y) > 0.8


@every_model
def test_before_a_fit_scikit_learn_s_error_is_raised(kind: str) -> None:
    with pytest.raises(NotFittedError):
        classifier(kind).predict(np.ones((1, 2)))


@every_imputer
def test_targets_of_groups_train_a_classifier(kind: str) -> None:
    X, Y = planted(240)
    groups = np.arange(240) // 4
    labels = {group: Y[4 * group : 4 * group + 4].indices.tolist() for group in range(60)}
    imputer = xcore.LabelImputer(kind)
    targets = imputer.fit_transform(X, groups, labels)
    assert targets.shape == Y.shape
    assert ((targets.data > 0) & (targets.data <= 1)).all()
    fitted = xcore.Classifier("ova").fit(X, targets, classes=imputer.classes_)
    held_X, held_Y = planted(60, seed=1)
    assert fitted.score(held_X, held_Y) >= 0.8
    same = xcore.LabelImputer(MODELS_OF[kind]).fit_transform(X, imputer.groups_)
    assert (same != targets).nnz == 0


MODELS_OF = {kind: member() for kind, member in IMPUTER_KINDS.items()}


@every_imputer
def test_options_of_imputers_are_parameters_that_survive_a_clone(kind: str) -> None:
    imputer = xcore.LabelImputer(kind)
    assert clone(imputer).get_params() == imputer.get_params()
    nested = {name for name in imputer.get_params() if name.startswith("imputer__")}
    assert nested == {f"imputer__{name}" for name in IMPUTER_KINDS[kind].model_fields if name != "kind"}
    assert copy.deepcopy(imputer).get_params() == imputer.get_params()
