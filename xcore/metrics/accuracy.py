"""Accuracy of rows that have exactly one label: the same as precision at 1."""

from xcore.metrics.base import RowMetric

ACCURACY = RowMetric(
    name="accuracy",
    title="Accuracy",
    description="share of the rows where the first label is correct; every row has exactly one true label",
    module=__name__,
    ranked=False,
    parts="within",
    one_label=True,
    gained=lambda hits: hits.hit[:, 0],
)
