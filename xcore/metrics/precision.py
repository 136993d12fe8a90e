"""Precision."""

from xcore.metrics.base import RowMetric

PRECISION = RowMetric(
    name="precision",
    title="Precision",
    description="share of the k offered labels that are true",
    module=__name__,
    headline=True,
    gained=lambda hits: hits.hit.sum(axis=1) / hits.k,
)
