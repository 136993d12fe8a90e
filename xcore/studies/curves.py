"""Learning curves of several methods side by side: who reaches which accuracy when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, Self

import numpy as np
import pyarrow as pa
from pydantic import Field, ValidationError, model_validator

from xcore.components import Component, Report
from xcore.models.negative_sampling import NegativeSampling
from xcore.models.negative_sampling.model import WITH_TREE
from xcore.models.negative_sampling.sgd import Method

CLOCKS = ("seconds", "cpu_seconds")
MEASURED = ("accuracy", "log_likelihood", "accuracy_uncorrected", "loss")


class Contender(Component):
    """A method, and the settings among which the validation rows choose."""

    method: Method = Field(description="Method that is trained.")
    grid: dict[str, tuple[float | str, ...]] = Field(
        {}, description="Options of the model to try, each with its values; all combinations are tried."
    )
    epochs: int | None = Field(None, ge=1, description="Epochs of its race; none: those of all others.")

    @model_validator(mode="after")
    def _can_be_built(self) -> Self:
        try:
            found = self.candidates(NegativeSampling())
        except ValidationError as error:
            problem = error.errors()[0]
            raise ValueError(f"grid.{'.'.join(map(str, problem['loc']))}: {problem['msg']}") from None
        if any(_before_training(model) != _before_training(found[0]) for model in found):
            raise ValueError(
                f"grid: {', '.join(self.grid)} change the embedding or the sampler, which all candidates share: "
                "set such an option in the study's model"
            )
        return self

    def candidates(self, base: NegativeSampling) -> tuple[NegativeSampling, ...]:
        """The model with every combination of the grid's values."""
        points = [dict(zip(self.grid, values, strict=True)) for values in product(*self.grid.values())]
        fixed = base.options() | {"method": self.method}
        if self.method not in WITH_TREE:  # their curves are not made again where only the tree differs
            fixed = {name: value for name, value in fixed.items() if name not in ("tree", "tree_dimensions")}
        return tuple(NegativeSampling.model_validate(fixed | point) for point in points)

    def settings_of(self, model: NegativeSampling) -> str:
        """The values of a candidate, in words."""
        return ", ".join(f"{name} {getattr(model, name)}" for name in self.grid)


def _before_training(model: NegativeSampling) -> tuple[Any, ...]:
    return tuple(model.stages("sparse").items())


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


def seconds_to_reach(seconds: Sequence[float], accuracy: Sequence[float], target: float) -> float | None:
    """When a curve first is at or above a target; None if never."""
    return next((second for second, value in zip(seconds, accuracy, strict=True) if value >= target), None)


def best_of(values: Sequence[float]) -> int:
    """The place of the largest value, the first of several; one that is not a number counts as the smallest."""
    return int(np.argmax(np.nan_to_num(np.asarray(values, np.float64), nan=-np.inf)))


def curves_table(
    methods: Sequence[str], curves: Sequence[pa.Table], seconds: Sequence[Mapping[str, Sequence[float]]]
) -> pa.Table:
    """All points of all curves: ``method, seconds, cpu_seconds``, and the columns of each."""
    parts = []
    for method, curve, times in zip(methods, curves, seconds, strict=True):
        named = {"method": pa.array([method] * curve.num_rows)}
        clocks = {clock: pa.array(times[clock], pa.float64()) for clock in CLOCKS}
        parts.append(pa.table(named | clocks | {name: curve[name] for name in curve.column_names}))
    return pa.concat_tables(parts)


def race_table(curves: pa.Table, settings: Mapping[str, str], sampler_seconds: Mapping[str, float]) -> pa.Table:
    """One row a method, against the first one, the leader.

    Returns
    -------
    table
        ``method, settings, accuracy, log_likelihood`` at the end, ``seconds`` and ``cpu_seconds`` in all,
        ``sampler_seconds`` of the latter, ``own_seconds``: when the method was first at its final accuracy,
        ``leader_seconds``: when the leader was (null if never), and ``times_sooner``: the quotient of the two. Unlike
        the clock, the seconds of all threads, in which these are, do not depend on what else the machine does.
    """
    frame = curves.to_pandas()
    by_method = {method: frame[frame["method"] == method] for method in settings}
    leader = by_method[next(iter(settings))]
    rows = []
    for method, curve in by_method.items():
        last = curve.iloc[-1]
        target = float(last["accuracy"])
        own = seconds_to_reach(list(curve["cpu_seconds"]), list(curve["accuracy"]), target)
        first = seconds_to_reach(list(leader["cpu_seconds"]), list(leader["accuracy"]), target)
        rows.append(
            {
                "method": method,
                "settings": settings[method],
                "accuracy": target,
                "log_likelihood": float(last["log_likelihood"]),
                "seconds": float(last["seconds"]),
                "cpu_seconds": float(last["cpu_seconds"]),
                "sampler_seconds": sampler_seconds[method],
                "own_seconds": own,
                "leader_seconds": first,
                "times_sooner": own / first if own and first else None,
            }
        )
    texts = [("method", pa.string()), ("settings", pa.string())]
    numbers = [(name, pa.float64()) for name in rows[0] if name not in ("method", "settings")]
    return pa.Table.from_pylist(rows, schema=pa.schema(texts + numbers))
