"""Tables of a study: results of the same kind under all combinations of some factors, repeated over seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.special import stdtrit

from xcore.studies.design import Cell

Interval = tuple[float, float]
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Measured:
    """What was measured in one cell: metrics, the intervals of some of them, and a remark."""

    metrics: Mapping[str, float]
    intervals: Mapping[str, Interval] = field(default_factory=dict)
    note: str = ""


def cells_table(factors: Sequence[str], cells: Sequence[Cell], measured: Sequence[Measured]) -> pa.Table:
    """One row per cell: the label of each factor's level, ``seed``, ``note``, and every metric (null where unknown)."""
    columns: dict[str, Any] = {
        factor: pa.array([cell.levels[place].label for cell in cells], pa.string())
        for place, factor in enumerate(factors)
    }
    columns["seed"] = pa.array([cell.seed for cell in cells], pa.int64())
    columns["note"] = pa.array([each.note for each in measured], pa.string())
    for name in dict.fromkeys(name for each in measured for name in each.metrics):
        columns[name] = pa.array([each.metrics.get(name) for each in measured], pa.float64())
    return pa.table(columns)


def summarise(factors: Sequence[str], cells: Sequence[Cell], measured: Sequence[Measured]) -> pa.Table:
    """Each metric of each combination of levels: over seeds, and against the reference.

    Returns
    -------
    table
        The label of each factor's level, ``note``, ``metric``, ``n_seeds``, ``mean``, ``std``, ``low``, ``high`` and
        ``lost_percent``. The interval is Student's 95% interval of the mean over seeds. Of one seed, the deviation is
        null and the interval is the cell's own (by bootstrap), if it has one. ``lost_percent`` is the mean over seeds
        of how much less a cell has than its reference of the same seed, null without a reference or where the
        reference is not above 0.
    """
    rows = []
    for labels in dict.fromkeys(cell.labels for cell in cells):
        places = [place for place, cell in enumerate(cells) if cell.labels == labels]
        named = dict(zip(factors, labels, strict=True))
        named["note"] = " | ".join(dict.fromkeys(measured[place].note for place in places if measured[place].note))
        for metric in dict.fromkeys(name for place in places for name in measured[place].metrics):
            known = [place for place in places if math.isfinite(measured[place].metrics.get(metric, math.nan))]
            if known:
                rows.append({**named, "metric": metric, **_over_seeds(metric, known, cells, measured)})
    texts = [(name, pa.string()) for name in (*factors, "note", "metric")]
    numbers = [(name, pa.float64()) for name in ("mean", "std", "low", "high", "lost_percent")]
    return pa.Table.from_pylist(rows, schema=pa.schema([*texts, ("n_seeds", pa.int64()), *numbers]))


def _over_seeds(
    metric: str, places: Sequence[int], cells: Sequence[Cell], measured: Sequence[Measured]
) -> dict[str, float | None]:
    values = np.array([measured[place].metrics[metric] for place in places])
    low, high = _interval(values, measured[places[0]].intervals.get(metric))
    lost = [_lost_percent(metric, place, cells, measured) for place in places]
    known = [value for value in lost if value is not None]
    return {
        "n_seeds": len(values),
        "mean": float(values.mean()),
        "std": float(values.std(ddof=1)) if len(values) > 1 else None,
        "low": low,
        "high": high,
        "lost_percent": float(np.mean(known)) if known else None,
    }


def _interval(values: np.ndarray[Any, np.dtype[np.float64]], own: Interval | None) -> tuple[float | None, float | None]:
    if len(values) == 1:
        return (own[0], own[1]) if own else (None, None)
    half = stdtrit(len(values) - 1, 0.5 + CONFIDENCE / 2) * values.std(ddof=1) / math.sqrt(len(values))
    return float(values.mean() - half), float(values.mean() + half)


def _lost_percent(metric: str, place: int, cells: Sequence[Cell], measured: Sequence[Measured]) -> float | None:
    reference = cells[place].reference
    if reference is None:
        return None
    base = measured[reference].metrics.get(metric, math.nan)
    return 100 * (1 - measured[place].metrics[metric] / base) if base > 0 else None


def chosen_metrics(known: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """The metrics that the patterns in `wanted` name (``precision_at_*``), in the order of the patterns."""
    found = [name for pattern in wanted for name in known if fnmatch(name, pattern)]
    return list(dict.fromkeys(found))
