"""One turn of our imputer: whose scores it looks at, and who gets the label in the end."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from xcore.grouping.groups import Groups
from xcore.grouping.random import RandomGroups
from xcore.imputation.assignment import chosen_candidates
from xcore.imputation.base import Pairs
from xcore.imputation.candidates import Candidates, State
from xcore.imputation.regression import regress
from xcore.imputation.ridge import left_out, ridge_system, sketch_rows, with_intercept
from xcore.imputation.sharpness import FLOOR
from xcore.imputation.turn import Question, reassign_labels
from xcore.numeric.matrices import CSR, csr

N, SIZE, PENALTY = 60, 5, 0.7


def as_csr(dense: object) -> CSR:
    matrix = sp.csr_array(np.asarray(dense, np.float32))
    return csr(matrix.data, matrix.indices, matrix.indptr, matrix.shape[1])


def test_members_are_judged_by_a_regression_that_never_saw_their_group() -> None:
    rng = np.random.default_rng(0)
    X = with_intercept(as_csr(rng.random((N, 9))))
    groups = RandomGroups(size=SIZE).group(X, as_csr(rng.random((N, 2)) < 0.15), rng)
    system = ridge_system(X, np.arange(N), PENALTY, 100)
    sketch, pairs = sketch_rows(system), Pairs.of(groups)
    candidates, labels = Candidates.of(pairs), np.arange(2)
    shares = np.repeat(pairs.carriers / pairs.size, pairs.size).astype(np.float32)
    state = State.of(shares.copy())
    question = Question(candidates, sketch, left_out(system.rest, sketch, groups), True, np.inf, np.ones(1))
    regress(system, candidates, labels, state)
    reassign_labels(system, question, labels, 0, np.zeros((2, sketch.shape[1]), np.float32), state)
    dense, members = X.toarray().astype(np.float64), groups.members.toarray() > 0
    targets = members.T @ (groups.labels.toarray() / SIZE)
    without = np.zeros((N, 2))
    for group in members:
        seen = dense[~group]
        normal = seen.T @ seen + PENALTY * np.eye(dense.shape[1])
        without[group] = dense[group] @ np.linalg.solve(normal, seen.T @ targets[~group])
    scale = (targets * without).sum(axis=0) / targets.sum(axis=0)
    expected = np.log(np.maximum(without, FLOOR * scale))
    label = np.repeat(pairs.label_of_pair(), pairs.size)
    rows = np.concatenate([pairs.members[start : start + SIZE] for start in pairs.first])
    assert 10 < len(rows) < 2 * N, "not all groups have each label"
    np.testing.assert_allclose(state.evidence, expected[rows, label], atol=2e-3)


@pytest.mark.parametrize(("soft", "expected"), [(False, [0, 2, 4]), (True, [0, 2, 3, 4])])
def test_the_likeliest_members_get_the_label_and_softly_all_worth_keeping(soft: bool, expected: list[int]) -> None:
    """Two of four members carry the label in one group, one of three in the other."""
    groups = Groups(as_csr([[1, 1, 1, 1, 0, 0, 0], [0, 0, 0, 0, 1, 1, 1]]), as_csr([[2], [1]]))
    pairs = Pairs.of(groups)
    chance = np.array([0.9, 0.009, 0.8, 0.291, 0.997, 0.003, 0.0], np.float32)
    chosen, pair = chosen_candidates(pairs, pairs.candidates(), chance, True, soft)
    assert np.sort(chosen).tolist() == expected
    assert pair[np.argsort(chosen)].tolist() == [int(place > 3) for place in expected]
