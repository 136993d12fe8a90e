"""Rows of known labels, and which rows to label next."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
import scipy.sparse as sp

from xcore.grouping.groups import Groups
from xcore.imputation.baseline import Baseline
from xcore.imputation.imputed import Imputed
from xcore.imputation.suggestion import rows_to_label, uncertainty
from xcore.numeric.matrices import CSR, csr


def as_csr(dense: object) -> CSR:
    matrix = sp.csr_array(np.asarray(dense, np.float32))
    return csr(matrix.data, matrix.indices, matrix.indptr, matrix.shape[1])


@pytest.mark.parametrize(("merge", "rest"), [("list", [[1, 0], [0, 0]]), ("set", [[0, 0], [0, 0]])])
def test_known_rows_leave_their_groups_with_their_labels(merge: Literal["list", "set"], rest: object) -> None:
    counts = [[2, 1], [0, 1]] if merge == "list" else [[1, 1], [0, 1]]
    groups = Groups(as_csr([[1, 1, 1, 0], [0, 0, 1, 1]]), as_csr(counts), merge)
    known = groups.with_own_labels(np.array([2]), as_csr([[1, 1]])).without_known_rows()
    assert known.members.toarray().tolist() == [[1, 1, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]
    assert known.labels.toarray()[:2].tolist() == rest
    assert known.labels.toarray()[2].tolist() == [1, 1]


def test_groups_without_known_rows_stay_as_they_are() -> None:
    groups = Groups(as_csr([[1, 1, 0], [0, 0, 1]]), as_csr([[1], [1]]))
    assert groups.without_known_rows() is groups
    unlabelled = Groups(as_csr([[1, 1, 0], [1, 0, 0]]), as_csr([[1], [0]]))
    assert unlabelled.without_known_rows() is unlabelled


def test_a_known_row_settles_the_labels_of_its_group() -> None:
    """Two of three members carry the label: once one is known not to, both others do."""
    groups = Groups(as_csr([[1, 1, 1]]), as_csr([[2, 1]]))
    known = groups.with_own_labels(np.array([0]), as_csr([[0, 1]]))
    Y = Baseline().impute(as_csr(np.eye(3)), known, np.random.default_rng(0)).Y
    assert Y.toarray().tolist() == [[0, 1], [1, 0], [1, 0]]


def test_uncertainty_is_the_entropy_of_the_confidences() -> None:
    assert uncertainty(Imputed(as_csr([[0.5, 0.5], [1, 0], [0, 0]]))).tolist() == pytest.approx([2, 0, 0], abs=1e-9)


def test_each_group_offers_its_most_uncertain_row_first() -> None:
    groups = Groups(as_csr([[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 0], [0, 0, 0, 0, 0, 1]]), as_csr([[1], [1], [1]]))
    imputed = Imputed(as_csr([[0.5], [0.4], [1], [0.1], [0.2], [0.5]]))
    assert rows_to_label(imputed, groups, 9).tolist() == [0, 4, 1, 3]
    assert rows_to_label(imputed, groups, 1).tolist() == [0]
