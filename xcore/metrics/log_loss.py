"""Log loss of the offered labels, for models whose scores are probabilities."""

from __future__ import annotations

import numpy as np

from xcore.metrics.base import Hits, RowMetric
from xcore.numeric.matrices import Float64

SURE = 1e-6  # a score of 0 or 1 claims no more than this, else one wrong label would make the mean infinite


def _lost(hits: Hits) -> Float64:
    """What each row's offered labels cost, ``-log p`` for a true one and ``-log(1 - p)`` for another."""
    assert hits.share is not None, "evaluate leaves the metric out where it is not known"
    p = np.clip(hits.share, SURE, 1 - SURE)
    lost = -np.log(np.where(hits.hit, p, 1 - p))
    total: Float64 = np.where(hits.offered, lost, 0.0).sum(axis=1)
    return total


LOG_LOSS = RowMetric(
    name="log_loss",
    title="Log loss",
    description="mean over the k offered labels of -log of the probability that the score gives to what is true; "
    "only for scores from 0 to 1",
    module=__name__,
    unit="number",
    more_is_better=False,
    parts="none",
    needs_shares=True,
    gained=_lost,
    possible=lambda hits: hits.offered.sum(axis=1).astype(np.float64),
)
