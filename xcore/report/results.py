"""How good the predictions are: metrics with intervals, as a whole and by how frequent labels are."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow.parquet as pq

from xcore.metrics.base import PREFIXES, Metric
from xcore.metrics.family import METRICS, headline_metrics, metric_of
from xcore.metrics.frequency import THIRDS
from xcore.report.charts import Interval, bars
from xcore.report.html import Child, Html, element, folded, markup, note, section, table
from xcore.report.run import Run
from xcore.report.wording import Quantity, count, number, percent, words

T = TypeVar("T")
MOST_RANKS = 8
CHART_RANKS = 3


@dataclass(frozen=True)
class Results:
    """The metrics of an evaluation, found by name, rank and part of the labels."""

    metrics: Mapping[str, float]
    intervals: Mapping[str, Interval]

    @classmethod
    def load(cls, directory: Path) -> Results:
        summary = json.loads((directory / "metrics.json").read_text())
        return cls(summary["metrics"], summary["intervals"])

    @cached_property
    def ranks(self) -> list[int]:
        """The k of the metrics; where there are very many, some of them, with the first and the last."""
        found = {int(key.rpartition("_at_")[2]) for key in self.metrics if key.rpartition("_at_")[2].isdecimal()}
        return _spread(sorted(found), MOST_RANKS)

    @cached_property
    def names(self) -> list[str]:
        """Metrics in the order of the family, then numbers that are none of it."""
        found = {key.rpartition("/")[2].partition("_at_")[0] for key in self.metrics}
        return [name for name in METRICS if name in found] + sorted(found - set(METRICS))

    @property
    def members(self) -> list[Metric]:
        """The metrics of the family."""
        return [METRICS[name] for name in self.names if name in METRICS]

    def keys(self, name: str) -> list[str]:
        """The metric at each rank that is shown, or alone where it has no rank."""
        if name in self.metrics:
            return [name]
        return [f"{name}_at_{k}" for k in self.ranks if f"{name}_at_{k}" in self.metrics]

    def value(self, key: str) -> Quantity:
        value = self.metrics.get(key, math.nan)
        return percent(value) if _is_share(key) else number(value)

    def interval(self, key: str) -> str:
        """The 95% interval in words; empty where there is none."""
        ends = self.intervals.get(key)
        if ends is None or not all(math.isfinite(end) for end in ends):
            return ""
        low, high = (percent(end) if _is_share(key) else number(end) for end in ends)
        return f"{low} – {high}"


def tiles(results: Results) -> Html:
    """The few numbers that people ask for first."""
    first, *others = (metric.name for metric in headline_metrics())
    keys = _spread(results.keys(first), CHART_RANKS) + [key for name in others for key in results.keys(name)[-1:]]
    shown = keys or [key for name in results.names[:4] for key in results.keys(name)[:1]]
    items = [
        element(
            "li",
            element("span", key_title(key), class_="soft"),
            element("strong", results.value(key), "%" if _is_share(key) and results.value(key).is_known else None),
            element("small", results.interval(key) or "no interval"),
        )
        for key in shown
    ]
    return element("ul", items, class_="tiles")


def metrics_section(run: Run, results: Results) -> Html:
    """All metrics, for all labels and by head, torso and tail."""
    rows: list[Sequence[Child]] = [
        [element("span", key_title(key)), *(_with_interval(results, prefix + key) for prefix in PREFIXES)]
        for name in results.names
        for key in results.keys(name)
    ]
    says = [f"{metric.title}: {metric.description}. " for metric in results.members]
    n_resamples = run.options("evaluation").get("n_bootstrap")
    return section(
        "metrics",
        "Metrics",
        element("p", _judged(run), " Shares are in percent, with 95% intervals."),
        table(["Metric", "All labels", *(third.capitalize() for third in THIRDS)], rows),
        note(says),
        note(
            _about_parts(results),
            f"Intervals come from {count(n_resamples)} resamples of the rows. –: nothing to count.",
        ),
        [_parts_chart(results, metric) for metric in results.members if metric.shows_parts],
    )


def deciles_section(run: Run) -> Html | None:
    """Precision and recall by how frequent a label is; None for an evaluation without that table."""
    path = run["evaluation"].directory / "per_decile.parquet"
    if not path.exists():
        return None
    columns: dict[str, list[Any]] = pq.read_table(path).to_pydict()
    if not columns["decile"]:
        return None
    found = sorted(int(name.rpartition("_at_")[2]) for name in columns if name.startswith("recall_at_"))
    ranks = _spread(found, CHART_RANKS)
    ends = list(zip(columns["min_train_count"], columns["max_train_count"], strict=True))
    names = [
        f"{decile}\n{low:,}" if low == high else f"{decile}\n{low:,}–{high:,}"
        for decile, (low, high) in zip(columns["decile"], ends, strict=True)
    ]
    x = "tenths of the labels, most frequent first; below, the training rows of such a label"
    charts = [
        bars(
            title,
            names,
            {f"@{k}": [math.nan if value is None else value for value in columns[f"{name}_at_{k}"]] for k in ranks},
            x=x,
            y=name,
        )
        for name, title in (
            ("recall", "Which labels are found: recall in each tenth of the labels"),
            ("precision", "Where precision comes from: what each tenth adds to it"),
        )
    ]
    return section("deciles", "By label frequency", charts, _decile_table(columns, ranks))


def _decile_table(columns: Mapping[str, list[Any]], ranks: Sequence[int]) -> Html:
    keys = [f"{name}_at_{k}" for name in ("precision", "recall") for k in ranks]
    rows: list[Sequence[Child]] = [
        [
            count(columns["decile"][i]),
            count(columns["n_labels"][i]),
            count(columns["min_train_count"][i]),
            count(columns["max_train_count"][i]),
            *(percent(columns[key][i]) for key in keys),
        ]
        for i in range(len(columns["decile"]))
    ]
    head = ["Tenth", "Labels", "Fewest training rows", "Most", *(f"{key_title(key)}, %" for key in keys)]
    return folded("The numbers", table(head, rows))


def _about_parts(results: Results) -> str:
    titles = {how: [metric.title for metric in results.members if metric.parts == how] for how in ("sum", "within")}
    sums, rates = (", ".join(titles[how]) for how in ("sum", "within"))
    said = f"The values of head, torso and tail add up to that of all labels: {sums}. " if sums else ""
    return said + (f"They are rates within each part: {rates}. " if rates else "")


def _parts_chart(results: Results, metric: Metric) -> Html:
    """A metric for all labels and for each part, at some ranks."""
    keys = _spread(results.keys(metric.name), CHART_RANKS)
    rows = {_rank(key): [prefix + key for prefix in PREFIXES] for key in keys}
    values = {name: [results.metrics.get(key, math.nan) for key in row] for name, row in rows.items()}
    ends = {name: [results.intervals.get(key) for key in row] for name, row in rows.items()}
    title, names = f"{metric.title}, with 95% intervals", ["all labels", *THIRDS]
    return bars(title, names, values, x="part of the labels", y=metric.title.lower(), intervals=ends)


def _with_interval(results: Results, key: str) -> Html:
    interval = results.interval(key)
    return markup(element("div", results.value(key)), element("small", interval) if interval else None)


def _judged(run: Run) -> str:
    counts = run.counts("evaluation")
    without = counts.get("rows_without_labels", 0)
    unlabelled = f", {count(without)} of them without any true label, which score 0" if without else ""
    return f"Measured on {count(counts.get('rows'))} {run.split} rows{unlabelled}."


def _is_share(key: str) -> bool:
    metric = metric_of(key)
    return metric is not None and metric.unit == "share"


def _rank(key: str) -> str:
    _, at, rank = key.rpartition("_at_")
    return f"@{rank}" if at else key


def key_title(key: str) -> str:
    """A metric's key in words, such as ``Precision @ 5``."""
    name, at, rank = key.partition("_at_")
    return (METRICS[name].title if name in METRICS else words(name)) + (f" @ {rank}" if at else "")


def _spread(values: Sequence[T], most: int) -> list[T]:
    """At most this many of the values, evenly spaced, with the first and the last."""
    if len(values) <= most:
        return list(values)
    return [values[i] for i in np.linspace(0, len(values) - 1, most).round().astype(int).tolist()]
