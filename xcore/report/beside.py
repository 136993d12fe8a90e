"""What stands beside a result: the champion's metrics, and how the training went. Neither is in the artifacts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from xcore.metrics.family import headline_metrics, metric_of
from xcore.report.charts import Axis, lines
from xcore.report.html import Child, Html, element, foreign, note, section, table
from xcore.report.results import Results, key_title
from xcore.report.wording import number, percent

CURVE_POINTS = 200
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Champion:
    """The version that was in use when the report was written.

    Attributes
    ----------
    title : such as ``laws version 3``.
    metrics : of the run that made it, named as in the evaluation.
    same_rows : whether they were measured on the same rows of the same dataset.
    is_this : whether it is the model of this report.
    """

    title: str
    metrics: Mapping[str, float]
    same_rows: bool
    is_this: bool = False


@dataclass(frozen=True)
class Beside:
    """What is known beyond the artifacts.

    Attributes
    ----------
    champion : if there is one.
    curves : points of learning curves by name.
    name : of the experiment; empty where there is none.
    """

    champion: Champion | None = None
    curves: Mapping[str, Points] = field(default_factory=dict)
    name: str = ""


def champion_section(results: Results, champion: Champion | None) -> Html | None:
    """The headline metrics beside those of the champion; None where there is no champion."""
    if champion is None:
        return None
    if champion.is_this:
        said: Child = element("p", "This model is the champion: ", foreign(champion.title), ".")
        return section("champion", "Against the champion", said)
    keys = [key for metric in headline_metrics() for key in results.keys(metric.name)]
    rows = [_compared(key, results.metrics[key], champion.metrics[key]) for key in keys if key in champion.metrics]
    where = (
        "Both were measured on the same rows."
        if champion.same_rows
        else "The champion was measured on other rows, so part of a difference may come from them. The flow retrain "
        "compares both on the same rows."
    )
    return section(
        "champion",
        "Against the champion",
        element("p", "The champion is ", foreign(champion.title), f". {where}"),
        table(["Metric", "This model", "Champion", "Difference"], rows) if rows else note("It has no metrics."),
    )


def _compared(key: str, own: float, other: float) -> Sequence[Child]:
    metric = metric_of(key)
    is_share = metric is not None and metric.unit == "share"
    return [
        f"{key_title(key)}{', %' if is_share else ''}",
        *((percent if is_share else number)(value) for value in (own, other, own - other)),
    ]


def curves_section(curves: Mapping[str, Points]) -> Html | None:
    """One chart per measure of the training but its time; None where fewer than two points of each are known."""
    drawn = [
        _chart(name, points) for name, points in curves.items() if len(points) > 1 and not name.endswith("seconds")
    ]
    says = note("What the model measured while it trained, on training rows or on rows that it held out of them.")
    return section("training", "Learning curve", drawn, says) if drawn else None


def _chart(name: str, points: Points) -> Html:
    kept = np.unique(np.linspace(0, len(points) - 1, min(len(points), CURVE_POINTS)).round().astype(int)).tolist()
    shown = [points[i] for i in kept]
    (left, right), (low, high) = (_ends([point[at] for point in shown]) for at in (0, 1))
    return lines(name, {name: shown}, x=Axis("step", left, right), y=Axis(name, low, high))


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """The lowest and the highest value; of equal ones, a little room."""
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)
