"""How well each label can be predicted from the features: the score part of the set function."""

from __future__ import annotations

from typing import Literal

import numpy as np

from xcore.numeric.matrices import CSR, Float64, Int32, normalise_rows, row_blocks
from xcore.numeric.parallel import over_blocks, single_threaded_blas
from xcore.numeric.ridge import RidgeProblem

LABEL_BLOCK = 256


def prediction_scores(X: CSR, Y: CSR, ridge: float, max_features: int, measure: Literal["fit", "residual"]) -> Float64:
    """How well a ridge regression with an intercept fits each label on its own training rows, float64 (L,).

    fit: ``1 - |y - Hy|^2 / |y - mean|^2``, from 0 to 1. residual: ``-|y - Hy|^2``, shifted so that the worst label has
    0. Labels without rows have 0. Cost O(n s^2 + h^3/3 + 2 h^2 L) for the h features with the largest energy.
    """
    rows = _strongest_features(normalise_rows(X), max_features)
    counts = np.bincount(Y.indices, minlength=Y.shape[1])
    labels = np.flatnonzero(counts).astype(np.int32)
    squares = np.bincount(Y.indices, Y.data.astype(np.float64) ** 2, Y.shape[1])
    with single_threaded_blas():
        problem = RidgeProblem.of(rows, Y, ridge)
        spread = np.maximum(squares - Y.shape[0] * problem.y_mean**2, 0.0)

        def explained(block: Int32) -> Float64:
            sides = problem.right_sides(block)
            weights = problem.solved(sides.copy())
            # |y - Hy|^2 = |y - mean|^2 - b'w - ridge w'w, for right-hand sides b and weights w
            gained: Float64 = np.sum(sides * weights, axis=1) + ridge * np.sum(weights**2, axis=1)
            return gained

        blocks = [labels[part] for part in row_blocks(len(labels), LABEL_BLOCK)]
        gained = np.concatenate([np.zeros(0), *over_blocks(explained, blocks)])
    scores = np.zeros(Y.shape[1])
    if measure == "fit":
        scores[labels] = np.clip(gained / np.maximum(spread[labels], 1e-12), 0.0, 1.0)
    elif len(labels):
        residual = np.maximum(spread[labels] - gained, 0.0)
        scores[labels] = residual.max() - residual
    return scores


def _strongest_features(X: CSR, n_features: int) -> CSR:
    if X.shape[1] <= n_features:
        return X
    energy = np.bincount(X.indices, X.data.astype(np.float64) ** 2, X.shape[1])
    kept = np.sort(np.argsort(-energy, kind="stable")[:n_features])
    part: CSR = X[:, kept]
    return part
