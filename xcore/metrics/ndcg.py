"""Normalised discounted cumulative gain."""

from xcore.metrics.base import RowMetric

NDCG = RowMetric(
    name="ndcg",
    title="nDCG",
    description="as precision, but places count less the further down they are",
    module=__name__,
    gained=lambda hits: (hits.hit * hits.discount).sum(axis=1) / hits.ideal,
)
