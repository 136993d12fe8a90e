from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from xcore.grouping.random import RandomGroups
from xcore.imputation.penalty import _errors, _kernel, penalty_of
from xcore.numeric.matrices import CSR, csr


def as_csr(dense: object) -> CSR:
    matrix = sp.csr_array(np.asarray(dense, np.float32))
    return csr(matrix.data, matrix.indices, matrix.indptr, matrix.shape[1])


def test_errors_are_those_of_regressions_without_each_group() -> None:
    rng = np.random.default_rng(0)
    sums, sizes, counts = rng.random((12, 4)), rng.integers(2, 6, 12).astype(np.float64), rng.random((12, 2)) * 3
    root = np.sqrt(sizes)
    mean, rate = sums.sum(axis=0) / sizes.sum(), counts.sum(axis=0) / sizes.sum()
    rows, targets = (sums - np.outer(sizes, mean)) / root[:, None], (counts - np.outer(sizes, rate)) / root[:, None]
    errors = _errors(_kernel(as_csr(sums), sizes), sizes, targets)
    design = np.column_stack([rows, root])
    for place, penalty in ((0, 0.1), (4, 10.0)):
        expected = []
        for group in range(12):
            others = np.arange(12) != group
            normal = design[others].T @ design[others] + np.diag([penalty] * 4 + [0.0])
            weights = np.linalg.solve(normal, design[others].T @ targets[others])
            expected.append(targets[group] - design[group] @ weights)
        assert errors[place] == pytest.approx(np.mean(np.square(expected)), rel=1e-4)


@pytest.mark.parametrize("size", [1, 300])
def test_without_groups_to_compare_the_penalty_is_the_least(size: int) -> None:
    X, Y = as_csr(np.random.default_rng(0).random((300, 5))), as_csr(np.ones((300, 2)))
    groups = RandomGroups(size=size).group(X, Y, np.random.default_rng(0))
    assert penalty_of(X, groups) == 3.0
