from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from xcore.grouping.random import RandomGroups
from xcore.imputation.ridge import ridge_system, with_intercept
from xcore.imputation.sums import SumRegression, can_sum
from xcore.numeric.matrices import csr


def test_scores_without_the_own_group_are_those_of_a_regression_that_never_saw_it() -> None:
    rng = np.random.default_rng(0)
    dense = rng.random((60, 7)).astype(np.float32)
    X, Y = sp.csr_matrix(dense), sp.csr_matrix((rng.random((60, 3)) < 0.3).astype(np.float32))
    X, Y = (csr(one.data, one.indices, one.indptr, one.shape[1]) for one in (X, Y))
    groups = RandomGroups(size=5).group(X, Y, rng)
    assert can_sum(groups)
    system = ridge_system(with_intercept(X), np.arange(60), 3.0, 100)
    sums, counts = SumRegression.of(system, groups, 2.0), groups.labels.toarray().astype(np.float64)
    weights, dual = sums.fit(counts)
    rows = np.hstack([dense, np.ones((60, 1), np.float32)]).astype(np.float64)
    left = sums.without_own_group((rows @ weights.T).astype(np.float32), dual, np.arange(60))
    for group in range(groups.n_groups):
        others = groups.members.toarray()[np.arange(groups.n_groups) != group] @ rows / np.sqrt(5)
        seen = counts[np.arange(groups.n_groups) != group] / np.sqrt(5)
        exact = np.linalg.solve(others.T @ others + 2.0 * np.eye(8), others.T @ seen)
        members = np.flatnonzero(groups.members.toarray()[group])
        np.testing.assert_allclose(left[members], rows[members] @ exact, atol=1e-4)
