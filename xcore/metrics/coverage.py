"""Coverage."""

from xcore.metrics.base import LabelMetric

COVERAGE = LabelMetric(
    name="coverage",
    title="Coverage",
    description="share of the labels true somewhere that are also hit somewhere",
    module=__name__,
    parts="within",
    gained=lambda counts: counts.hits > 0,
    possible=lambda counts: counts.true > 0,
)
