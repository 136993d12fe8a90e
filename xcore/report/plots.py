"""Pictures of results, drawn into files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from xcore.numeric.matrices import Float32

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MOST_PICTURES = 100


def draw_deciles(per_decile: Path, target: Path) -> None:
    """Precision and recall by how frequent a label is: a group of bars for each tenth of the labels."""
    table = pq.read_table(per_decile).to_pandas()
    figure = new_figure((9, 7))
    titles = {"precision": "What each tenth of the labels adds to precision", "recall": "Which labels are found"}
    for place, (metric, title) in enumerate(titles.items(), start=1):
        axes = figure.add_subplot(2, 1, place)
        names = [name for name in table.columns if name.startswith(f"{metric}_at_")]
        width = 0.8 / len(names)
        for i, name in enumerate(names):
            offset = (i - (len(names) - 1) / 2) * width
            axes.bar(table["decile"] + offset, table[name], width, label=f"@{name.rsplit('_', 1)[1]}")
        counts = zip(table["decile"], table["min_train_count"], table["max_train_count"], strict=True)
        axes.set_xticks(table["decile"], [f"{decile}\n{low}-{high}" for decile, low, high in counts], fontsize=8)
        finish_axes(axes, title, "tenths of the labels, most frequent first; training rows of a label", metric)
    figure.savefig(target)


def draw_simulation(table: Path, target: Path) -> None:
    """Mean error of each estimator by the setting that is varied: as it is, and as a multiple of the oracle's."""
    frame = pq.read_table(table).to_pandas()
    values, setting = list(dict.fromkeys(frame["value"])), str(frame["setting"].iloc[0])
    figure = new_figure((11, 4))
    panels = {"error_mean": "Mean error", "ratio_to_oracle": "Error as a multiple of the oracle's"}
    for place, (column, title) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(1, 2, place)
        for estimator, line in frame.groupby("estimator", sort=False):
            axes.plot(range(len(line)), line[column], label=str(estimator), marker="o")
        axes.set_xticks(range(len(values)), [f"{value:g}" for value in values])
        finish_axes(axes, title, setting, "")
    figure.savefig(target)


def draw_convergence(table: Path, target: Path) -> None:
    """Objective and residual of each solve by iteration, the residual on a logarithmic scale."""
    frame = pq.read_table(table).to_pandas()
    figure = new_figure((11, 4))
    for place, (column, title) in enumerate(
        {"objective": "Objective", "residual": "Largest residual"}.items(), start=1
    ):
        axes = figure.add_subplot(1, 2, place)
        for solve, line in frame.groupby("solve", sort=False):
            axes.plot(line["iteration"], line[column], label=str(solve))
        if column == "residual" and (frame[column] > 0).any():
            axes.set_yscale("log")
        finish_axes(axes, title, "iteration", "")
    figure.savefig(target)


def draw_curves(curves: Mapping[str, Sequence[tuple[float, float]]], target: Path) -> None:
    """Learning curves: for each name the points (step, value), one panel each."""
    figure = new_figure((9, 2.6 * len(curves)))
    for place, (name, points) in enumerate(curves.items(), start=1):
        steps, values = zip(*points, strict=True)
        axes = figure.add_subplot(len(curves), 1, place)
        axes.plot(steps, values, label=name, marker="." if len(steps) < 50 else None)
        finish_axes(axes, name, "step", "")
    figure.savefig(target)


def draw_embeddings(vectors: Float32, shape: tuple[int, int, int], target: Path) -> None:
    """Embeddings (L, d) of labels in a space of images: one picture per label, blue below 0 and red above."""
    shown = vectors[:MOST_PICTURES].reshape(-1, *shape).mean(axis=3)
    columns = min(len(shown), 10)
    rows = -(-len(shown) // columns)
    figure = new_figure((1.2 * columns, 1.4 * rows))
    for label, picture in enumerate(shown):
        axes = figure.add_subplot(rows, columns, label + 1)
        limit = max(float(abs(picture).max()), 1e-12)
        axes.imshow(picture, cmap="seismic", vmin=-limit, vmax=limit)
        axes.set_title(str(label), fontsize=8)
        axes.set_axis_off()
    figure.savefig(target)


def new_figure(size: tuple[float, float]) -> Figure:
    """An empty figure; drawing into one is safe in threads."""
    from matplotlib.figure import Figure  # no pyplot: nothing global, safe in threads

    return Figure(figsize=size, dpi=120, layout="constrained")


def finish_axes(axes: Axes, title: str, x: str, y: str, legend: bool = True) -> None:
    """What all panels share: titles, a light grid, no frame, and a legend if there is none for the whole figure."""
    axes.set(title=title, xlabel=x, ylabel=y)
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if legend:
        axes.legend(frameon=False)
