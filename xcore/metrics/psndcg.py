"""Propensity-scored nDCG (Jain et al. 2016)."""

from xcore.metrics.base import RowMetric

PSNDCG = RowMetric(
    name="psndcg",
    title="PSnDCG",
    description="propensity-scored nDCG",
    module=__name__,
    gained=lambda hits: (hits.gain * hits.discount).sum(axis=1) / hits.ideal,
    possible=lambda hits: (hits.best * hits.discount).sum(axis=1) / hits.ideal,
)
