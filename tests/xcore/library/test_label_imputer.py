"""How groups and their labels may be given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import xcore
from xcore.errors import ArgumentError

X = np.array([[1.0, 0], [0, 1], [1, 0.1], [0.1, 1], [0.5, 0.5]])
IDS = ["p", "p", "q", "q", None]
LABELS = {"p": ["sun", "moon"], "q": ["sun", "moon"]}
COUNTS = [[1, 1], [1, 1]]  # columns: moon, sun


def members() -> Any:
    return sp.csr_array(np.array([[1, 1, 0, 0, 0], [0, 0, 1, 1, 0]]))


@pytest.mark.parametrize(
    ("groups", "labels"),
    [
        (IDS, LABELS),
        (IDS, {"p": {"sun": 1, "moon": 1}, "q": {"moon": 1, "sun": 1}, "empty": ["sun"]}),
        ([1.0, 1.0, 2.0, 2.0, np.nan], {1: ["sun", "moon"], 2: ["sun", "moon"]}),
        (np.array(IDS, object), [["sun", "moon"], ["sun", "moon"]]),
        (members(), [["sun", "moon"], ["sun", "moon"]]),
    ],
)
def test_groups_and_labels_by_name_are_understood_alike(groups: Any, labels: Any) -> None:
    imputer = xcore.LabelImputer("baseline").fit(X, groups, labels)
    assert imputer.classes_.tolist() == ["moon", "sun"]
    assert (imputer.targets_.toarray() > 0).tolist() == [[True, True]] * 4 + [[False, False]]
    assert imputer.n_features_in_ == 2


@pytest.mark.parametrize("labels", [np.array(COUNTS), sp.csr_array(np.array(COUNTS))])
def test_labels_as_a_matrix_take_names_for_their_columns(labels: Any) -> None:
    named = xcore.LabelImputer("baseline").fit(X, IDS, labels, classes=["moon", "sun"])
    assert named.classes_.tolist() == ["moon", "sun"]
    assert xcore.LabelImputer("baseline").fit(X, IDS, labels).classes_.tolist() == [0, 1]


def test_repeated_labels_count_members_and_a_set_forgets_them() -> None:
    given = {"p": ["sun", "sun"], "q": {"moon": 2}}
    counted = xcore.LabelImputer().fit(X, IDS, given)
    assert counted.groups_.labels.toarray().tolist() == [[0, 2], [2, 0]]
    forgotten = xcore.LabelImputer().fit(X, IDS, given, merge="set")
    assert forgotten.groups_.merge == "set"
    assert forgotten.groups_.labels.toarray().tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize(
    ("groups", "labels", "message"),
    [
        (IDS, {"p": ["sun"]}, "group 'q' has members but no labels"),
        (IDS, None, "labels is None"),
        (IDS[:3], LABELS, "5 rows but the groups are over 3"),
        (IDS, [["sun"]], "2 groups but labels of 1"),
        (IDS, ["sun", "moon"], "a list of labels for each group"),
        (IDS, np.array([[0.5, 1], [1, 1]]), "whole numbers"),
    ],
)
def test_what_does_not_fit_is_refused(groups: Any, labels: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        xcore.LabelImputer("baseline").fit(X, groups, labels)


def test_groups_with_labels_of_their_own_take_no_others() -> None:
    made = xcore.LabelImputer("baseline").fit(X, IDS, LABELS).groups_
    with pytest.raises(ArgumentError, match="hold their labels already"):
        xcore.LabelImputer("baseline").fit(X, made, LABELS)
