"""The dev rows that choose the weights of a network."""

from __future__ import annotations

import numpy as np

from xcore.numeric.matrices import CSR, Float32, Int32
from xcore.training.data import LabelledRows, Matrix

DEV_ROWS = 5000  # at most, at even distances: enough to choose by, and cheap
DEV_METRIC = "dev_precision_at_1"


def dev_sample(dev: LabelledRows | None, labels: Int32) -> tuple[Matrix, CSR] | None:
    """Rows to measure on, and their labels among those that a network knows; None where there are no dev rows."""
    if dev is None:
        return None
    rows = np.arange(0, dev.Y.shape[0], max(1, -(-dev.Y.shape[0] // DEV_ROWS)))
    return dev.X[rows], dev.Y[rows][:, labels].tocsr()


def dev_metrics(scores: Float32, Y: CSR) -> dict[str, float]:
    """Precision at 1 of scores (n, m)."""
    best = scores.argmax(axis=1)
    hits = np.asarray(Y[np.arange(Y.shape[0]), best]).ravel() > 0
    return {DEV_METRIC: float(hits.mean())}
