"""F1 of each label, averaged over labels."""

from xcore.metrics.base import LabelMetric

MACRO_F1 = LabelMetric(
    name="macro_f1",
    title="Macro F1",
    description="mean F1 over the labels that are kept or true somewhere; only with thresholds of labels",
    module=__name__,
    ranked=False,
    parts="within",
    needs_kept=True,
    gained=lambda counts: 2 * counts.kept_hits / (counts.kept + counts.true).clip(min=1),
    possible=lambda counts: counts.kept + counts.true > 0,
)
