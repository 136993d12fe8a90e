"""Tables of a study: evaluations of the same data under several groupings, methods and seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pydantic import Field

from xcore.components import Component

ORACLE = "oracle"


class Cell(Component):
    """What one evaluation stands for."""

    grouping: str = Field(description="How rows were grouped; empty for the oracle, which needs no groups.")
    family: str = Field("", description="Kind of the grouping.")
    level: float | None = Field(None, description="Where the grouping stands in its family: size, depth, ...")
    method: str = Field(description="How labels were imputed, or `oracle` for the true ones.")
    seed: int = Field(ge=0, description="Seed of the grouping and of all that follows.")


def cells_table(cells: Sequence[Cell], measured: Sequence[Mapping[str, float]]) -> pa.Table:
    """One row a cell: its names, then every metric (null where a cell has none)."""
    metrics = list(dict.fromkeys(name for values in measured for name in values))
    columns: dict[str, Any] = {
        "grouping": [cell.grouping for cell in cells],
        "family": [cell.family for cell in cells],
        "level": pa.array([cell.level for cell in cells], pa.float64()),
        "method": [cell.method for cell in cells],
        "seed": pa.array([cell.seed for cell in cells], pa.int64()),
    }
    for name in metrics:
        columns[name] = pa.array([values.get(name) for values in measured], pa.float64())
    return pa.table(columns)


def summarise(cells: pa.Table, metrics: Sequence[str] | None = None) -> pa.Table:
    """Mean and standard deviation over seeds, and the percentage lost against the oracle of the same seeds.

    Returns
    -------
    table
        ``grouping, family, level, method, metric, n_seeds, mean, std, lost_percent``; the oracle's row has an empty
        grouping. The standard deviation of one seed is null.
    """
    frame = cells.to_pandas()
    named = ["grouping", "family", "level", "method", "seed"]
    names = [name for name in frame.columns if name not in named]
    long = frame.melt(named, list(metrics or names), "metric", "value").dropna(subset=["value"])
    oracle = long[long["method"] == ORACLE].set_index(["seed", "metric"])["value"].rename("oracle")
    joined = long.join(oracle, on=["seed", "metric"])
    joined["lost_percent"] = 100 * (1 - joined["value"] / joined["oracle"].where(joined["oracle"] != 0, np.nan))
    grouped = joined.groupby(["grouping", "family", "level", "method", "metric"], sort=False, dropna=False)
    summary = pd.DataFrame(
        {
            "n_seeds": grouped["value"].size(),
            "mean": grouped["value"].mean(),
            "std": grouped["value"].std(),
            "lost_percent": grouped["lost_percent"].mean(),
        }
    )
    return pa.Table.from_pandas(summary.reset_index(), preserve_index=False).replace_schema_metadata(None)
