"""The family of metrics, by name, in the order in which pages show them; and which metric a key stands for.

A key is a name, its rank if it has one, and a part of the labels: ``accuracy``, ``ndcg_at_3``, ``tail/recall_at_5``.
Steps that compute all members name their modules as code of theirs (`metric_modules`).
"""

import re
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from xcore.errors import ConfigError
from xcore.metrics.accuracy import ACCURACY
from xcore.metrics.base import AnyOf, LabelMetric, MetricKey, RowMetric
from xcore.metrics.coverage import COVERAGE
from xcore.metrics.frequency import THIRDS
from xcore.metrics.log_likelihood import LOG_LIKELIHOOD
from xcore.metrics.log_loss import LOG_LOSS
from xcore.metrics.macro_f1 import MACRO_F1
from xcore.metrics.micro_f1 import MICRO_F1
from xcore.metrics.ndcg import NDCG
from xcore.metrics.precision import PRECISION
from xcore.metrics.psndcg import PSNDCG
from xcore.metrics.psp import PSP
from xcore.metrics.recall import RECALL

Member: TypeAlias = RowMetric | LabelMetric
MEMBERS: tuple[Member, ...] = (
    PRECISION,
    NDCG,
    PSP,
    PSNDCG,
    RECALL,
    COVERAGE,
    ACCURACY,
    LOG_LIKELIHOOD,
    LOG_LOSS,
    MICRO_F1,
    MACRO_F1,
)
METRICS: dict[str, Member] = {metric.name: metric for metric in MEMBERS}
KEY = re.compile(rf"((?:{'|'.join(THIRDS)})/)?(.+?)(?:_at_([1-9][0-9]{{0,2}}))?")


def paired_metrics() -> list[RowMetric]:
    """The metrics by which any two rankings of the same rows can be compared: those that are sums over rows."""
    by_row = (metric for metric in METRICS.values() if isinstance(metric, RowMetric))
    return [metric for metric in by_row if not (metric.needs_shares or metric.needs_probabilities or metric.needs_kept)]


def headline_metrics() -> list[Member]:
    """The metrics that pages show first."""
    return [metric for metric in METRICS.values() if metric.headline]


def evaluated_keys(ks: Sequence[int]) -> list[str]:
    """All keys that an evaluation at these ranks may have: those of all labels first."""
    metrics = METRICS.values()
    prefixes = dict.fromkeys(prefix for metric in metrics for prefix in metric.prefixes)
    return [
        prefix + key
        for prefix in prefixes
        for metric in metrics
        if prefix in metric.prefixes
        for key in metric.ranks(ks)
    ]


def metric_modules() -> list[str]:
    """The modules that define the members."""
    return sorted({metric.module for metric in METRICS.values()})


def find_metric(key: str, among: Iterable[AnyOf]) -> MetricKey[AnyOf]:
    """What a key stands for.

    Raises
    ------
    ConfigError
        The key is none of the metrics in `among`. The message lists theirs.
    """
    metrics = {metric.name: metric for metric in among}
    matched = KEY.fullmatch(key)
    prefix, name, k = matched.groups(default="") if matched else ("", "", "")
    metric = metrics.get(name)
    if metric is None or bool(k) != metric.ranked or prefix not in metric.prefixes:
        forms = ", ".join(f"{name}_at_K" if metric.ranked else name for name, metric in metrics.items())
        raise ConfigError(
            f"metric {key!r} is not known here: expected one of {forms}, with a rank from 1 to 999 in place of K "
            f"(precision_at_5), and with {'/, '.join(THIRDS)}/ in front for a part of the labels (tail/recall_at_5)"
        )
    return MetricKey(prefix, metric, int(k) if k else None)


def metric_of(key: str) -> Member | None:
    """The member that a key names, if any. Results hold other numbers too, such as seconds."""
    try:
        return find_metric(key, METRICS.values()).metric
    except ConfigError:
        return None
