"""What every registered imputer promises."""

from __future__ import annotations

from pathlib import Path

import numba
import numpy as np
import pytest
import scipy.sparse as sp
from pydantic import TypeAdapter

from xcore.errors import ConfigError
from xcore.grouping.groups import Groups
from xcore.grouping.random import RandomGroups
from xcore.imputation.base import Imputer
from xcore.imputation.family import IMPUTER_KINDS, AnyImputer
from xcore.imputation.imputed import Imputed
from xcore.numeric.matrices import CSR, csr

every_imputer = pytest.mark.parametrize("imputer", [make() for make in IMPUTER_KINDS.values()], ids=list(IMPUTER_KINDS))


def as_csr(dense: object) -> CSR:
    matrix = sp.csr_array(np.asarray(dense, np.float32))
    return csr(matrix.data, matrix.indices, matrix.indptr, matrix.shape[1])


def planted(n: int = 240, n_labels: int = 12, d: int = 20, seed: int = 0) -> tuple[CSR, CSR]:
    rng = np.random.default_rng(seed)
    label = rng.integers(n_labels, size=n)
    return as_csr(rng.random((n_labels, d))[label] + 0.3 * rng.random((n, d))), as_csr(np.eye(n_labels)[label])


def odd_groups() -> tuple[CSR, Groups]:
    """Overlap, an empty group, one without labels, one of one, more labels than members, a count above the size,
    a row in no group, an all-zero row, a label in no group, and members that are copies of one another."""
    X = np.random.default_rng(0).random((9, 5))
    X[1] = 0
    X[3] = X[4]
    members = np.zeros((7, 9))
    for group, rows in enumerate([[0, 1, 2], [], [3, 4], [5], [6, 7], [2, 6], [1]]):
        members[group, rows] = 1
    labels = np.zeros((7, 6))
    for group, counts in enumerate([{0: 2, 1: 1}, {0: 1}, {}, {0: 1, 2: 1}, {0: 9, 1: 1, 2: 1, 3: 1}, {1: 1}, {3: 1}]):
        for label, count in counts.items():
            labels[group, label] = count
    return as_csr(X), Groups(as_csr(members), as_csr(labels))


@every_imputer
def test_rows_get_only_labels_of_their_groups_with_a_confidence_up_to_one(imputer: Imputer) -> None:
    X, groups = odd_groups()
    imputed = imputer.impute(X, groups, np.random.default_rng(0))
    allowed = (groups.members.T @ groups.labels).toarray() > 0
    Y = imputed.Y.toarray()
    assert Y.shape == (9, 6)
    assert np.isfinite(imputed.Y.data).all()
    assert (imputed.Y.data > 0).all()
    assert (imputed.Y.data <= 1).all()
    assert not Y[~allowed].any()
    assert not Y[8].any()
    assert not Y[:, 4:].any()


@every_imputer
def test_the_only_member_of_a_group_carries_all_its_labels_for_certain(imputer: Imputer) -> None:
    X, groups = odd_groups()
    Y = imputer.impute(X, groups, np.random.default_rng(0)).Y.toarray()
    assert Y[5].tolist() == [1, 0, 1, 0, 0, 0]
    assert Y[1, 3] == 1


@every_imputer
def test_every_label_of_a_group_with_members_is_given_to_at_least_one(imputer: Imputer) -> None:
    X, groups = odd_groups()
    Y = imputer.impute(X, groups, np.random.default_rng(0)).positives(weighted=False)
    reached = (groups.members @ Y).toarray() > 0
    assert reached[(groups.labels.toarray() > 0) & (groups.sizes[:, None] > 0)].all()


@every_imputer
def test_oddities_are_counted(imputer: Imputer) -> None:
    X, groups = odd_groups()
    counts = imputer.impute(X, groups, np.random.default_rng(0)).details["counts"]
    assert counts["rows_without_features"] == 1
    assert counts["labels_without_rows"] == 2
    assert counts["rows_without_labels"] >= 3


@every_imputer
def test_one_seed_gives_the_same_bits_for_any_number_of_threads(imputer: Imputer) -> None:
    X, Y = planted()
    groups = RandomGroups(size=6).group(X, Y, np.random.default_rng(0))
    made = []
    for n_threads in (1, numba.config.NUMBA_NUM_THREADS, 1):
        numba.set_num_threads(n_threads)
        made.append(imputer.impute(X, groups, np.random.default_rng(5)).Y)
    numba.set_num_threads(numba.config.NUMBA_NUM_THREADS)
    for other in made[1:]:
        np.testing.assert_array_equal(made[0].indices, other.indices)
        np.testing.assert_array_equal(made[0].data, other.data)


@every_imputer
def test_groups_of_one_give_the_truth(imputer: Imputer) -> None:
    X, Y = planted()
    groups = RandomGroups(size=1).group(X, Y, np.random.default_rng(0))
    np.testing.assert_array_equal(imputer.impute(X, groups, np.random.default_rng(0)).Y.toarray(), Y.toarray())


@every_imputer
def test_no_groups_at_all_impute_nothing(imputer: Imputer) -> None:
    groups = Groups(as_csr(np.zeros((0, 4))), as_csr(np.zeros((0, 3))))
    assert imputer.impute(as_csr(np.ones((4, 2))), groups, np.random.default_rng(0)).Y.nnz == 0


@every_imputer
def test_progress_ends_at_its_total_and_the_result_survives_a_save(imputer: Imputer, tmp_path: Path) -> None:
    X, groups = odd_groups()
    steps: list[tuple[int, int]] = []
    imputed = imputer.impute(
        X, groups, np.random.default_rng(0), lambda step, total, metrics=None: steps.append((step, total))
    )
    assert max(steps)[0] <= steps[-1][1]
    imputed.save(tmp_path)
    np.testing.assert_array_equal(Imputed.load(tmp_path).Y.toarray(), imputed.Y.toarray())


@every_imputer
def test_features_of_other_rows_or_without_a_value_are_refused(imputer: Imputer) -> None:
    X, groups = odd_groups()
    with pytest.raises(ConfigError, match="8 rows but the groups are over 9"):
        imputer.impute(as_csr(X.toarray()[:8]), groups, np.random.default_rng(0))
    with pytest.raises(ConfigError, match="NaN"):
        imputer.impute(as_csr(np.full((9, 5), np.nan)), groups, np.random.default_rng(0))


@pytest.mark.parametrize("kind", IMPUTER_KINDS)
def test_every_kind_is_in_the_union_and_described(kind: str) -> None:
    imputer = TypeAdapter(AnyImputer).validate_python({"kind": kind})
    assert isinstance(imputer, IMPUTER_KINDS[kind])
    for name, field in type(imputer).model_fields.items():
        assert name == "kind" or field.description
