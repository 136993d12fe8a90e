"""What the rehearsal of our imputer says about groups that it has not seen."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from xcore.grouping.groups import Groups
from xcore.imputation.pooling import pool
from xcore.imputation.rehearsal import _Stage
from xcore.imputation.ridge import left_out, ridge_system, sketch_rows
from xcore.numeric.matrices import csr


def test_predictions_of_held_out_groups_approach_those_of_a_regression_without_them() -> None:
    """Three held-out groups of equal rows, in a plane at 120 degrees: scores without the own group would swing."""
    angles = np.array([0.0, 120.0, 240.0, 30.0, 200.0]) * np.pi / 180
    sizes, held_out = np.array([12, 12, 12, 3, 3]), np.array([True, True, True, False, False])
    indptr = np.append(0, np.cumsum(sizes))
    dense = np.repeat(np.stack([np.cos(angles), np.sin(angles)], axis=1), sizes, axis=0).astype(np.float32)
    n, matrix = len(dense), sp.csr_array(dense)
    X = csr(matrix.data, matrix.indices, matrix.indptr, 2)
    members = csr(np.ones(n), np.arange(n), indptr, n)
    groups = Groups(members, csr(np.array([1, 5, 2, 1, 3]), np.zeros(5, int), np.arange(6), 1))
    system = ridge_system(X, np.arange(n), 1.0, 2)
    folds = left_out(system.rest, sketch_rows(system), groups)
    stage = _Stage.of(pool(groups, np.zeros(0, np.int64)))._replace(held=held_out)
    targets = stage.shares()
    for _ in range(200):
        stage.evidence(system, folds, targets)
    held = np.repeat(held_out, sizes)
    heard = dense[~held].astype(np.float64)
    weights = np.linalg.solve(heard.T @ heard + np.eye(2), heard.T @ targets[~held, 0])
    np.testing.assert_allclose(targets[held, 0], dense[held] @ weights, atol=0.01)
