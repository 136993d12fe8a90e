"""F1 of all kept labels of all rows together."""

import numpy as np

from xcore.metrics.base import Hits, RowMetric
from xcore.numeric.matrices import Float64


def _gained(hits: Hits) -> Float64:
    assert hits.kept is not None, "evaluate leaves the metric out where it is not known"
    return np.asarray(2 * (hits.hit & hits.kept).sum(axis=1), np.float64)


def _possible(hits: Hits) -> Float64:
    assert hits.kept is not None
    return np.asarray(hits.kept.sum(axis=1) + hits.n_true, np.float64)


MICRO_F1 = RowMetric(
    name="micro_f1",
    title="Micro F1",
    description="twice the true labels that are kept, over kept and true labels, of all rows together; only with "
    "thresholds of labels",
    module=__name__,
    ranked=False,
    parts="none",
    needs_kept=True,
    gained=_gained,
    possible=_possible,
)
