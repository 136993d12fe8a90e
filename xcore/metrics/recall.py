"""Recall."""

import numpy as np

from xcore.metrics.base import RowMetric

RECALL = RowMetric(
    name="recall",
    title="Recall",
    description="share of a row's true labels that are among the k offered",
    module=__name__,
    parts="within",
    headline=True,
    gained=lambda hits: hits.hit.sum(axis=1) / np.maximum(hits.n_true, 1),
)
