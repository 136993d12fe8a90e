"""How well a simple model ranks the held-out rows: a yardstick for the trained one.

Principal components lose what rare features say, and a linear model of the sparse rows themselves may then be better. A
ridge regression is cheap enough to find out: it is solved on at most 100,000 rows and 3,000 features.
"""

from __future__ import annotations

import numpy as np

from xcore.models.negative_sampling.linear_scorer import best_classes
from xcore.models.negative_sampling.pairs import Pairs, Split
from xcore.numeric.matrices import CSR, Float32, Float64, csr, normalise_rows, row_blocks
from xcore.numeric.parallel import single_threaded_blas
from xcore.numeric.ridge import RidgeProblem
from xcore.training.dev_choice import DEPTH, row_ndcg

MOST_ROWS, MOST_FEATURES, MOST_LABELS = 100_000, 3_000, 10_000
RIDGE = 0.1  # the default of `ova`, for rows of length 1
LABEL_BLOCK = 256
WORTH_A_WORD = 0.005


def advice(X: CSR, split: Split, own: Float64) -> str | None:
    """A sentence, if a ridge regression of the sparse rows X ranks the held-out rows better than `own`.

    `own` is the nDCG@5 of each held-out row by the trained model. The lead must be above a standard error and half a
    point: to try another model costs little. Nothing is said about more than 10,000 labels.
    """
    if len(split.labels) > MOST_LABELS or len(own) < 2:
        return None
    simple = ridge_quality(X, split)
    gain = simple - own
    error = float(gain.std(ddof=1)) / len(gain) ** 0.5
    if gain.mean() < max(WORTH_A_WORD, error):
        return None
    return (
        f"A ridge regression ranks {len(own):,} held-out rows better than this model (nDCG@5 {simple.mean():.3f} "
        f"against {own.mean():.3f}, standard error of the difference {error:.3f}): try `model.kind` parabel or ova."
    )


def ridge_quality(X: CSR, split: Split) -> Float64:
    """nDCG@5 of each held-out row, ranked by a ridge regression. Cost O(n s^2 + d^3 / 3 + 2 d^2 C) for s non-zeros."""
    features = _strongest(normalise_rows(X))
    used = np.unique(split.train.rows)
    used = used[:: -(-len(used) // MOST_ROWS)]
    targets = _targets(split.train, X.shape[0], len(split.labels))
    held = np.unique(split.held_out.rows)
    with single_threaded_blas():
        problem = RidgeProblem.of(_rows(features, used), _rows(targets, used), RIDGE)
        scores = _scores(problem, _rows(features, held), len(split.labels))
    truth = _targets(split.held_out, X.shape[0], len(split.labels))
    return row_ndcg(best_classes(scores, DEPTH), _rows(truth, held))


def _scores(problem: RidgeProblem, rows: CSR, n_classes: int) -> Float32:
    scores = np.empty((rows.shape[0], n_classes), np.float32)
    for part in row_blocks(n_classes, LABEL_BLOCK):
        labels = np.arange(part.start, part.stop, dtype=np.int32)
        weights = problem.solved(problem.right_sides(labels))
        scores[:, part] = rows @ weights.T + (problem.y_mean[labels] - weights @ problem.x_mean)
    return scores


def _strongest(X: CSR) -> CSR:
    """The columns with the largest sums of squares."""
    energy = np.bincount(X.indices, X.data.astype(np.float64) ** 2, X.shape[1])
    kept = np.sort(np.argsort(-energy, kind="stable")[:MOST_FEATURES])
    columns = X[:, kept].tocsr()
    return csr(columns.data, columns.indices, columns.indptr, len(kept))


def _targets(pairs: Pairs, n_rows: int, n_classes: int) -> CSR:
    return csr(pairs.weights, pairs.classes, np.searchsorted(pairs.rows, np.arange(n_rows + 1)), n_classes)


def _rows(matrix: CSR, numbers: np.ndarray) -> CSR:
    chosen = matrix[numbers].tocsr()
    return csr(chosen.data, chosen.indices, chosen.indptr, matrix.shape[1])
