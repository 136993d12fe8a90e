"""Predictive log-likelihood of rows that have exactly one label."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from xcore.metrics.base import Hits, RowMetric
from xcore.numeric.matrices import Float64


def log_probabilities(scores: npt.NDArray[np.floating[Any]], labels: npt.NDArray[np.integer[Any]]) -> Float64:
    """Log softmax of a dense block of scores (n, L), at each row's label (n,); cost O(n L)."""
    block = np.asarray(scores, np.float64)
    block = block - block.max(axis=1, keepdims=True)
    result: Float64 = block[np.arange(len(labels)), labels] - np.log(np.exp(block).sum(axis=1))
    return result


def _within(hits: Hits) -> Float64:
    assert hits.log_probability is not None
    return np.where(_counts(hits) > 0, hits.log_probability, 0.0)


def _counts(hits: Hits) -> Float64:
    """1 for a row of the part with a label that the model knows."""
    assert hits.log_probability is not None, "evaluate leaves the metric out where it is not known"
    known = (hits.n_true > 0) & ~np.isnan(hits.log_probability)
    return np.asarray(known, np.float64)


LOG_LIKELIHOOD = RowMetric(
    name="log_likelihood",
    title="Predictive log-likelihood",
    description="mean log probability of the true label, over the rows whose label had training rows; only for models "
    "of one distribution over all labels",
    module=__name__,
    unit="number",
    ranked=False,
    parts="within",
    one_label=True,
    needs_probabilities=True,
    gained=_within,
    possible=_counts,
)
