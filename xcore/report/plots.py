"""Pictures of results, drawn into files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

LEVELS = {"random": "rows in a group", "clusters": "depth (2^depth groups)", "mixed": "heterogeneity"}
MARKERS = "osv^Dx+"

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_deciles(per_decile: Path, target: Path) -> None:
    """Precision and recall by how frequent a label is: a group of bars for each tenth of the labels."""
    table = pq.read_table(per_decile).to_pandas()
    figure = _figure((9, 7))
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
        _finish(axes, title, "tenths of the labels, most frequent first; training rows of a label", metric)
    figure.savefig(target)


def draw_study(summary: Path, target: Path) -> None:
    """Precision by how rows were grouped: a row of panels for each family of groupings, a column for each rank."""
    table = pq.read_table(summary).to_pandas()
    table = table[table["metric"].str.startswith("precision_at_")]
    metrics, families = list(dict.fromkeys(table["metric"])), [name for name in dict.fromkeys(table["family"]) if name]
    oracle = table[table["family"] == ""].set_index("metric")["mean"]
    figure = _figure((4.2 * len(metrics), 3.4 * len(families)))
    for row, family in enumerate(families):
        for column, metric in enumerate(metrics):
            axes = figure.add_subplot(len(families), len(metrics), row * len(metrics) + column + 1)
            part = table[(table["family"] == family) & (table["metric"] == metric)]
            for number, (method, line) in enumerate(part.groupby("method", sort=False)):
                points = line.sort_values("level")
                error = points["std"].fillna(0.0)
                style = "--" if number % 2 else "-"  # where two methods agree, both are seen
                axes.errorbar(
                    points["level"], points["mean"], error, None, style, label=str(method), marker=".", capsize=2
                )
            if metric in oracle:
                axes.axhline(oracle[metric], color="black", linestyle=":", linewidth=1, label="oracle")
            if family == "random":
                axes.set_xscale("log")
            levels = sorted(part["level"].unique())
            axes.set_xticks(levels, [f"{level:g}" for level in levels])
            axes.minorticks_off()
            _finish(axes, metric.replace("_at_", "@"), f"{family}: {LEVELS.get(family, 'level')}", "", legend=False)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(target)


def draw_race(curves: Path, target: Path) -> None:
    """Accuracy and predictive log-likelihood against seconds, one line a method, as in Bamler and Mandt's Figure 1."""
    table = pq.read_table(curves).to_pandas()
    figure = _figure((11, 4.6))
    panels = {"accuracy": "Accuracy", "log_likelihood": "Predictive log-likelihood of a row"}
    for place, (column, title) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(1, 2, place)
        for number, (method, line) in enumerate(table.groupby("method", sort=False)):
            axes.plot(
                line["cpu_seconds"],
                line[column],
                label=str(method),
                marker=MARKERS[number % len(MARKERS)],
                markersize=3.5,
            )
        axes.set_xscale("log")
        if column == "log_likelihood":  # a diverging curve must not squeeze the others
            axes.set_ylim(bottom=max(axes.get_ylim()[0], 1.25 * table.groupby("method")[column].max().min()))
        _finish(axes, title, "CPU seconds, fitting the sampler included", "", legend=False)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(target)


def draw_simulation(table: Path, target: Path) -> None:
    """Mean error of each estimator by the setting that is varied: as it is, and as a multiple of the oracle's."""
    frame = pq.read_table(table).to_pandas()
    values, setting = list(dict.fromkeys(frame["value"])), str(frame["setting"].iloc[0])
    figure = _figure((11, 4))
    panels = {"error_mean": "Mean error", "ratio_to_oracle": "Error as a multiple of the oracle's"}
    for place, (column, title) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(1, 2, place)
        for estimator, line in frame.groupby("estimator", sort=False):
            axes.plot(range(len(line)), line[column], label=str(estimator), marker="o")
        axes.set_xticks(range(len(values)), [f"{value:g}" for value in values])
        _finish(axes, title, setting, "")
    figure.savefig(target)


def draw_curves(curves: Mapping[str, tuple[Sequence[float], Sequence[float]]], target: Path) -> None:
    """Learning curves: for each name the steps and the values, one panel each."""
    figure = _figure((9, 2.6 * len(curves)))
    for place, (name, (steps, values)) in enumerate(curves.items(), start=1):
        axes = figure.add_subplot(len(curves), 1, place)
        axes.plot(steps, values, label=name, marker="." if len(steps) < 50 else None)
        _finish(axes, name, "step", "")
    figure.savefig(target)


def _figure(size: tuple[float, float]) -> Figure:
    from matplotlib.figure import Figure  # no pyplot: nothing global, safe in threads

    return Figure(figsize=size, dpi=120, layout="constrained")


def _finish(axes: Axes, title: str, x: str, y: str, legend: bool = True) -> None:
    axes.set(title=title, xlabel=x, ylabel=y)
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if legend:
        axes.legend(frameon=False)
