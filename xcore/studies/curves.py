"""Learning curves: how they are recorded, and how the best of several is chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from xcore.components import Report
from xcore.models.negative_sampling import NegativeSampling
from xcore.models.negative_sampling.model import WITH_TREE

CLOCKS = ("seconds", "cpu_seconds")
MEASURED = ("accuracy", "log_likelihood", "accuracy_uncorrected", "loss")


def without_unused_tree(model: NegativeSampling) -> NegativeSampling:
    """The model with the default tree where its method uses none: curves that differ in the tree alone are then one."""
    if model.method in WITH_TREE:
        return model
    used = {name: value for name, value in model.options().items() if name not in ("tree", "tree_dimensions")}
    return NegativeSampling.model_validate(used)


class CurveRecorder:
    """A report that keeps the points of a learning curve, and passes everything on."""

    def __init__(self, report: Report, epochs: int) -> None:
        self._report, self._epochs = report, epochs
        self._points: list[dict[str, float]] = []
        self.seconds: dict[str, list[float]] = {clock: [] for clock in CLOCKS}

    def __call__(self, step: int, total: int, metrics: Mapping[str, float] | None = None) -> None:
        self._report(step, total, metrics)
        if metrics and "accuracy" in metrics:
            named = {name: metrics[name] for name in MEASURED if name in metrics}
            self._points.append({"step": step, "epoch": self._epochs * step / total, **named})
            for clock, times in self.seconds.items():
                times.append(metrics[clock])

    def table(self) -> pa.Table:
        """One row a point: ``step, epoch, accuracy, log_likelihood, accuracy_uncorrected, loss``; null if unknown."""
        columns: dict[str, Any] = {"step": pa.array([int(point["step"]) for point in self._points], pa.int64())}
        for name in ("epoch", *MEASURED):
            columns[name] = pa.array([point.get(name) for point in self._points], pa.float64())
        return pa.table(columns)


def best_of(values: Sequence[float]) -> int:
    """The place of the largest value, the first of several; one that is not a number counts as the smallest."""
    return int(np.argmax(np.nan_to_num(np.asarray(values, np.float64), nan=-np.inf)))
