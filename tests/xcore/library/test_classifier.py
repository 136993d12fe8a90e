"""What is special to the classifier: forms of labels, nested options, wrong input, checkpoints, saving."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import xcore
from xcore.errors import ArgumentError, ArtifactMissing, ConfigError
from xcore.training import checkpoints

X = np.array([[1.0, 0, 0], [0.9, 0.1, 0], [0, 1, 0], [0, 0.9, 0.2], [0, 0, 1], [0.1, 0, 1]])


def ova(**options: Any) -> xcore.Classifier:
    return xcore.Classifier("ova", ridge=0.01, **options)


@pytest.mark.parametrize("labels", [["b", "b", "a", "a", "c", "c"], [7, 7, 3, 3, 9, 9], [None, None, 1, 1, "x", "x"]])
def test_one_label_per_row_may_be_any_hashable_value(labels: list[Any]) -> None:
    assert ova().fit(X, labels).predict(X).tolist() == labels
    assert ova().fit(X, pd.Series(labels, dtype=object)).predict(X).tolist() == labels


@pytest.mark.parametrize("collection", [list, tuple, set, np.array])
def test_labels_of_a_row_may_be_any_collection(collection: Any) -> None:
    lists = [["b"], ["b"], ["a"], ["a"], ["c"], ["c"]]
    fitted = ova().fit(X, [collection(row) for row in lists])
    assert fitted.predict(X) == lists
    assert fitted.classes_.tolist() == ["a", "b", "c"]
    assert fitted.predict(X, k=3)[0][0] == "b"


def test_an_array_is_answered_as_an_array_and_a_data_frame_as_well() -> None:
    Y = np.eye(3, dtype=int)[[0, 0, 1, 1, 2, 2]]
    answer = ova().fit(X, Y).predict(X)
    assert (answer.dtype, answer.tolist()) == (Y.dtype, Y.tolist())
    assert ova().fit(pd.DataFrame(X), pd.DataFrame(Y)).predict(pd.DataFrame(X)).tolist() == Y.tolist()


def test_predict_gives_as_many_labels_as_training_rows_have() -> None:
    Y = sp.csr_array(np.array([[1, 1, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 1, 1, 0], [0, 0, 1, 1], [0, 0, 1, 1]]))
    fitted = ova().fit(X, Y)
    assert fitted.k_ == 2
    assert (fitted.predict(X) != Y).nnz == 0
    assert np.diff(fitted.predict(X, k=1).indptr).tolist() == [1] * 6


def test_a_target_below_one_counts_less() -> None:
    Y = np.array([[1, 0.2, 0]] * 2 + [[0, 1, 0]] * 2 + [[0, 0, 1]] * 2)
    scores = ova().fit(X, Y).predict_scores(X, k=3).toarray()
    assert 0.1 < scores[0, 1] < 0.5 < scores[0, 0]


def test_columns_have_the_names_that_are_given() -> None:
    fitted = ova().fit(X, np.eye(3)[[0, 0, 1, 1, 2, 2]], classes=["x", "y", "z"])
    assert fitted.classes_[fitted.predict_topk(X, 1).labels[:, 0]].tolist() == ["x", "x", "y", "y", "z", "z"]


def test_labels_that_were_never_trained_are_misses_and_not_errors() -> None:
    fitted = ova().fit(X, list("aabbcc"))
    assert fitted.score(X, list("aabbzz")) == pytest.approx(4 / 6)


def test_the_score_is_precision_at_k() -> None:
    fitted = ova().fit(X, [["a"], ["a"], ["b"], ["b"], ["c"], ["c"]])
    assert fitted.score(X, [["a"], ["a"], ["b"], ["b"], ["c"], []]) == pytest.approx(5 / 6)
    assert fitted.score(X, [["a", "b", "c"]] * 6, k=3) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([[0, 1, 0]] * 6, "row 0 of y names label 0 more than once"),
        ([[0.5, 0.2]] * 6, "got a float"),
        ([["a"], "a", "a", "a", "a", "a"], "1 rows of y are collections of labels and 5 are not"),
        (np.full((6, 2), 3.0), r"must be in \(0, 1\], got 3.0"),
        (np.array([["a", "b"]] * 6), "matrix of numbers"),
        ([1.5, 2.5, 0.1, 0.2, 0.3, 0.7], "Unknown label type"),
        ([["a"]] * 5, "inconsistent numbers of samples"),
        (None, "the target y is None"),
    ],
)
def test_labels_that_cannot_be_meant_are_refused(y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ova().fit(X, y)


def test_wrong_input_is_both_a_value_error_and_one_of_ours() -> None:
    assert issubclass(ArgumentError, ConfigError)
    with pytest.raises(ArgumentError, match="use predict_topk"):
        ova().fit(X, list("aabbcc")).predict(X, k=2)
    with pytest.raises(ArgumentError, match="classes must be 3 different labels"):
        ova().fit(X, np.eye(3)[[0, 0, 1, 1, 2, 2]], classes=["x", "x", "y"])
    with pytest.raises(ArgumentError, match=r"model must be a Model or one of .*parabel.*, got 'parable'"):
        xcore.Classifier("parable").fit(X, list("aabbcc"))


def test_options_may_be_given_by_name_or_changed_later_even_those_of_options() -> None:
    estimator = xcore.Classifier("negative-sampling", epochs=3)
    changed = estimator.set_params(model__tree__strength=0.5, model__n_negatives=np.int64(4), seed=3)
    assert isinstance(changed.model, xcore.NegativeSampling)
    assert (changed.model.epochs, changed.model.tree.strength, changed.model.n_negatives) == (3, 0.5, 4)
    assert changed.get_params()["model__tree__strength"] == 0.5
    assert changed.set_params(model="ova", model__ridge=0.2).model == xcore.Ova(ridge=0.2)


@pytest.mark.parametrize("wrong", [{"model__nothing": 1}, {"nothing": 1}, {"model__ridge": -1}, {"model__kind": "ova"}])
def test_a_wrong_parameter_is_refused_and_changes_nothing(wrong: dict[str, Any]) -> None:
    estimator = ova()
    before = estimator.get_params()
    with pytest.raises(ValueError):
        estimator.set_params(seed=5, **wrong)
    assert estimator.get_params() == before


def test_the_dev_split_reaches_the_model_and_its_unknown_labels_do_no_harm() -> None:
    metrics: list[Mapping[str, float]] = []

    def report(step: int, total: int, found: Mapping[str, float] | None = None) -> None:
        metrics.append(found or {})

    network = xcore.Classifier("network", width=8, epochs=3)
    network.fit(X, list("aabbcc"), dev=(X, list("aabbcz")), report=report)
    assert any("dev" in name for found in metrics for name in found)


class Killed(Exception):
    """Stands for a signal."""


def test_a_killed_fit_goes_on_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(checkpoints, "CHECKPOINT_SHARE", np.inf)
    estimator = xcore.Classifier("ova", label_block=1, scratch=tmp_path / "scratch")
    Y = np.tile(np.eye(3)[[0, 0, 1, 1, 2, 2]], 8)
    steps: list[int] = []

    def killing(step: int, total: int, metrics: Mapping[str, float] | None = None) -> None:
        if step > total / 2:
            raise Killed

    with pytest.raises(Killed):
        estimator.fit(X, Y, report=killing)
    assert list((tmp_path / "scratch").rglob("*.safetensors"))
    estimator.fit(X, Y, report=lambda step, total, metrics=None: steps.append(step))
    assert list((tmp_path / "scratch").iterdir()) == []
    whole = xcore.Classifier("ova", label_block=1).fit(X, Y)
    assert np.array_equal(estimator.predict_topk(X, 5).scores, whole.predict_topk(X, 5).scores)


def test_a_folder_in_use_and_labels_that_json_cannot_hold_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ArgumentError, match="is not empty"):
        ova().fit(X, list("aabbcc")).save(tmp_path)
    dates = pd.to_datetime(["2020-01-01"] * 3 + ["2021-01-01"] * 3).to_numpy()
    with pytest.raises(ArgumentError, match="only text, numbers and None can be saved"):
        ova().fit(X, dates).save(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    with pytest.raises(ArtifactMissing, match=r"holds no classifier\.json"):
        xcore.Classifier.load(tmp_path)


@pytest.mark.parametrize("labels", [list("aabbcc"), [7, 7, 3, 3, 9, 9], [None, None, 1, 1, "x", "x"]])
def test_labels_keep_their_types_when_saved(labels: list[Any], tmp_path: Path) -> None:
    fitted = ova().fit(X, labels)
    fitted.save(tmp_path / "saved")
    loaded = xcore.Classifier.load(tmp_path / "saved")
    assert loaded.classes_.dtype == fitted.classes_.dtype
    assert loaded.predict(X).tolist() == labels
