from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from xcore.grouping.groups import Groups
from xcore.imputation import regression
from xcore.imputation.base import Pairs
from xcore.imputation.candidates import Candidates, State
from xcore.imputation.regression import regress
from xcore.imputation.ridge import ridge_system
from xcore.numeric.matrices import CSR, csr

N, D, LABELS, PENALTY = 90, 50, 70, 0.7  # more labels than two panels hold, and rows in no group


def as_csr(dense: object) -> CSR:
    matrix = sp.csr_array(np.asarray(dense, np.float32))
    return csr(matrix.data, matrix.indices, matrix.indptr, matrix.shape[1])


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("overlap", [False, True])
def test_candidates_get_the_scores_of_a_ridge_regression_on_their_chances(
    monkeypatch: pytest.MonkeyPatch, together: bool, overlap: bool
) -> None:
    rng = np.random.default_rng(0)
    X = as_csr(rng.standard_normal((N, D)) * (rng.random((N, D)) < 0.4))
    members = np.repeat(np.eye(8), 10, axis=0).T @ np.eye(80, N)
    members[3, 12:15] = overlap
    groups = Groups(as_csr(members), as_csr(rng.random((8, LABELS)) < 0.5))
    candidates = Candidates.of(Pairs.of(groups))
    n_candidates = candidates.start[-1]
    state = State.of((rng.random(n_candidates) * (rng.random(n_candidates) < 0.7)).astype(np.float32))
    targets = np.zeros((N, LABELS))
    rows, labels = _rows_and_labels(candidates)
    np.maximum.at(targets, (rows, labels), state.chance)

    monkeypatch.setattr(regression, "_is_crowded", lambda *_: together)
    chosen = np.flatnonzero(np.diff(candidates.pairs.of_label) > 0)[::-1].copy()
    regress(ridge_system(X, np.arange(80), PENALTY, D), candidates, chosen, state)

    counted = X.toarray()[:80].astype(np.float64)
    weights = np.linalg.solve(counted.T @ counted + PENALTY * np.eye(D), X.T @ targets)
    alive = state.chance > 0
    assert candidates.overlap == overlap
    np.testing.assert_allclose(state.scores[alive], (X @ weights)[rows, labels][alive], atol=1e-4)
    assert not state.scores[~alive].any()


def test_labels_that_share_their_candidates_are_taken_together() -> None:
    X = as_csr(np.ones((N, 3)))
    for n_labels, crowded in ((1, False), (4, True)):
        groups = Groups(as_csr(np.ones((1, N))), as_csr(np.ones((1, n_labels))))
        candidates = Candidates.of(Pairs.of(groups))
        state = State.of(np.full(candidates.start[-1], 0.5, np.float32))
        system = ridge_system(X, np.arange(N), PENALTY, 3)
        assert regression._is_crowded(system.X, candidates, np.arange(n_labels), state) == crowded


def _rows_and_labels(candidates: Candidates) -> tuple[np.ndarray, np.ndarray]:
    pairs = candidates.pairs
    members = [pairs.members[first : first + size] for first, size in zip(pairs.first, pairs.size, strict=True)]
    return np.concatenate(members), np.repeat(pairs.label_of_pair(), pairs.size)
