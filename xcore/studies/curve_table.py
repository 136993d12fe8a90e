"""Learning curves side by side: which accuracy is reached when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from xcore.studies.design import Cell

CLOCKS = ("seconds", "cpu_seconds")
Reached = tuple[Sequence[float], Sequence[float]]  # CPU seconds and accuracies of a curve's points


def seconds_to_reach(seconds: Sequence[float], accuracy: Sequence[float], target: float) -> float | None:
    """When a curve first is at or above a target; None if never."""
    return next((second for second, value in zip(seconds, accuracy, strict=True) if value >= target), None)


def final_values(
    curve: pa.Table, seconds: Mapping[str, Sequence[float]], sampler_seconds: float, reference: Reached | None
) -> dict[str, float]:
    """What a curve came to.

    Returns
    -------
    values
        ``accuracy`` and ``log_likelihood`` at the last point, ``seconds`` and ``cpu_seconds`` in all,
        ``sampler_seconds`` of the latter, and ``own_seconds``: when the curve was first at its final accuracy. With a
        reference, ``reference_seconds`` is when the reference was there (left out if never), and ``times_sooner`` the
        quotient of the two. These are seconds of all threads, which do not depend on what else the machine does.
    """
    accuracy = curve["accuracy"].to_pylist()
    last = {name: curve[name].to_pylist()[-1] for name in ("accuracy", "log_likelihood")}
    values = {name: float(value) for name, value in last.items() if value is not None}
    values |= {clock: float(seconds[clock][-1]) for clock in CLOCKS} | {"sampler_seconds": sampler_seconds}
    own = seconds_to_reach(seconds["cpu_seconds"], accuracy, accuracy[-1])
    if own is not None:
        values["own_seconds"] = own
    there = seconds_to_reach(*reference, accuracy[-1]) if reference else None
    if own and there:
        values |= {"reference_seconds": there, "times_sooner": own / there}
    return values


def points_table(
    factors: Sequence[str],
    cells: Sequence[Cell],
    curves: Sequence[pa.Table],
    seconds: Sequence[Mapping[str, Sequence[float]]],
) -> pa.Table:
    """All points of all curves: ``cell``, the label of each factor's level, ``seed``, both clocks, and the points."""
    tables = []
    for cell, curve, times in zip(cells, curves, seconds, strict=True):
        named = {"cell": cell.name} | dict(zip(factors, cell.labels, strict=True))
        columns: dict[str, Any] = {name: pa.array([label] * curve.num_rows) for name, label in named.items()}
        columns["seed"] = pa.array([cell.seed] * curve.num_rows, pa.int64())
        columns |= {clock: pa.array(times[clock], pa.float64()) for clock in CLOCKS}
        tables.append(pa.table(columns | {name: curve[name] for name in curve.column_names}))
    return pa.concat_tables(tables)
