"""What models measure on dev rows to choose their settings."""

from __future__ import annotations

import numpy as np

from xcore.numeric.matrices import CSR, NO_LABEL, Float64, Int32, TopK
from xcore.training.data import LabelledRows, Matrix, rows_at

DEPTH = 5  # settings are chosen by nDCG at this rank
DEV_METRIC = "dev_ndcg_at_5"
DEV_ROWS = 5000  # at most, for weights that are judged after each epoch: enough to choose by, and cheap


def hits_of(labels: Int32, truth: CSR) -> Float64:
    """1 where an offered label (n, k) is among the row's true labels, else 0."""
    rows = np.arange(len(labels))[:, None]
    keys = rows * truth.shape[1] + labels
    true_rows = np.repeat(np.arange(truth.shape[0]), np.diff(truth.indptr))
    found = np.isin(keys, true_rows * truth.shape[1] + truth.indices) & (labels != NO_LABEL)
    return np.asarray(found, np.float64)


def ideal_gains(truth: CSR) -> Float64:
    """The largest possible gain of each row (n,); infinite for a row without labels."""
    gains = np.cumsum(1 / np.log2(np.arange(DEPTH) + 2))
    n_true = np.minimum(np.diff(truth.indptr), DEPTH)
    return np.where(n_true > 0, gains[np.maximum(n_true - 1, 0)], np.inf)


def ndcg(hits: Float64, ideal: Float64) -> float:
    """Mean nDCG@5 of rankings: `hits` (n, k), best first, and the `ideal_gains` of the rows."""
    return float(_ndcg_of_rows(hits, ideal).mean())


def row_ndcg(top: TopK, truth: CSR) -> Float64:
    """nDCG@5 of each row's ranking (n,)."""
    return _ndcg_of_rows(hits_of(top.labels, truth), ideal_gains(truth))


def _ndcg_of_rows(hits: Float64, ideal: Float64) -> Float64:
    first = hits[:, :DEPTH]
    gains: Float64 = (first / np.log2(np.arange(first.shape[1]) + 2)).sum(axis=1) / ideal
    return gains


def dev_metrics(top: TopK, truth: CSR) -> dict[str, float]:
    """Precision at 1 and nDCG at 5 of rankings of at least 5 labels."""
    hits = hits_of(top.labels, truth)
    return {"dev_precision_at_1": float(hits[:, 0].mean()), DEV_METRIC: ndcg(hits, ideal_gains(truth))}


def dev_sample(dev: LabelledRows | None, most: int) -> tuple[Matrix, CSR] | None:
    """At most so many dev rows, at even distances; None where none of them has a label."""
    if dev is None or not dev.Y.nnz:
        return None
    numbers = np.arange(0, dev.Y.shape[0], max(1, -(-dev.Y.shape[0] // most)))
    return rows_at(dev.X, numbers), dev.Y[numbers].tocsr()
