"""Propensity-scored precision (Jain et al. 2016)."""

from xcore.metrics.base import RowMetric

PSP = RowMetric(
    name="psp",
    title="PSP",
    description="propensity-scored precision: a hit on a rare label counts more",
    module=__name__,
    headline=True,
    gained=lambda hits: hits.gain.sum(axis=1) / hits.k,
    possible=lambda hits: hits.best.sum(axis=1) / hits.k,
)
