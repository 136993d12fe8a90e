"""Pictures of results, drawn into files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_deciles(per_decile: Path, target: Path) -> None:
    """Recall by how frequent a label is: one group of bars for each tenth of the labels, most frequent first."""
    table = pq.read_table(per_decile).to_pandas()
    names = [name for name in table.columns if name.startswith("recall_at_")]
    figure, axes = _figure("Which labels are found", "labels by training frequency, tenths", "recall")
    width = 0.8 / len(names)
    for i, name in enumerate(names):
        axes.bar(table["decile"] + (i - (len(names) - 1) / 2) * width, table[name], width, label=name.replace("_", " "))
    ranges = [f"{low}-{high}" for low, high in zip(table["min_train_count"], table["max_train_count"], strict=True)]
    axes.set_xticks(table["decile"], [f"{d}\n{r}" for d, r in zip(table["decile"], ranges, strict=True)], fontsize=7)
    _save(figure, axes, target)


def draw_curves(curves: Mapping[str, tuple[Sequence[float], Sequence[float]]], target: Path) -> None:
    """Learning curves: for each name the steps and the values."""
    figure, axes = _figure("Learning curves", "step", "value")
    for name, (steps, values) in curves.items():
        axes.plot(steps, values, label=name, marker="." if len(steps) < 50 else None)
    _save(figure, axes, target)


def _figure(title: str, x: str, y: str) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure  # no pyplot: nothing global, safe in threads

    figure = Figure(figsize=(7, 4), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    axes.set(title=title, xlabel=x, ylabel=y)
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _save(figure: Figure, axes: Axes, target: Path) -> None:
    axes.legend(frameon=False)
    figure.savefig(target)
