"""Plots of studies: bars, lines over a factor with numbers, and learning curves."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow.parquet as pq

from xcore.metrics.family import METRICS
from xcore.report.plots import finish_axes, new_figure
from xcore.studies.design import Level, StudyDesign
from xcore.studies.table import chosen_metrics

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKERS = "osv^Dx+"
LONGEST_LINE = 48  # characters of a name beside a bar
LOG_SCALE_FROM = 20  # quotient of the largest and the smallest number from which an axis is logarithmic


def draw_study(directory: Path, target: Path) -> None:
    """Draw the plot that a study asks for; nothing is written where it asks for none."""
    design = StudyDesign.load(directory)
    draw = {"bars": draw_bars, "lines": draw_lines, "curves": draw_learning_curves}.get(design.plot)
    if draw:
        draw(design, directory).savefig(target)


def draw_bars(design: StudyDesign, directory: Path) -> Figure:
    """A panel for each metric, with a bar and its interval for each combination of levels."""
    table, metrics = _shown(design, directory)
    names = list(dict.fromkeys(table["name"]))
    shown = [fill(name, LONGEST_LINE) for name in names]
    n_lines = sum(name.count("\n") + 1 for name in shown)
    figure = new_figure((4 + 3.2 * len(metrics), 1.5 + 0.16 * (len(names) + n_lines)))
    for column, metric in enumerate(metrics):
        axes = figure.add_subplot(1, len(metrics), column + 1)
        part = table[table["metric"] == metric].set_index("name").reindex(names)
        axes.barh(range(len(names)), part["mean"], xerr=_errors(part), capsize=2, height=0.7)
        axes.set_yticks(range(len(names)), shown)
        axes.invert_yaxis()
        axes.margins(y=0.01)
        axes.tick_params(labelleft=column == 0)
        finish_axes(axes, _title(metric), "", "", legend=False)
        axes.grid(axis="x", alpha=0.3)
    return figure


def draw_lines(design: StudyDesign, directory: Path) -> Figure:
    """A row of panels for each family of the first factor with numbers, a column for each metric.

    The other factors' levels are lines, and the reference is a dotted line. If there is one reference, the axis on the
    right says how many percent are lost against it.
    """
    table, metrics = _shown(design, directory)
    place = x_factor(design)
    levels = {cell.levels[place].label: cell.levels[place] for cell in design.cells}
    numbered = {label: level for label, level in levels.items() if level.number is not None}
    families = list(dict.fromkeys(level.family for level in numbered.values()))
    others = [factor for factor in design.factors if factor != design.factors[place]]
    table["line"] = table[others].agg(", ".join, axis=1) if others else ""
    references = {design.cells[cell.reference].name for cell in design.cells if cell.reference is not None}
    figure = new_figure((4.2 * len(metrics), 3.4 * len(families)))
    for row, family in enumerate(families):
        for column, metric in enumerate(metrics):
            axes = figure.add_subplot(len(families), len(metrics), row * len(metrics) + column + 1)
            own = {label: level for label, level in numbered.items() if level.family == family}
            part = table[table["metric"] == metric]
            _draw_family(axes, part[part[design.factors[place]].isin(list(own))], own, design.factors[place])
            known = part[part["name"].isin(references)]
            for name, mean in known[["name", "mean"]].itertuples(index=False):
                axes.axhline(mean, color="black", linestyle=":", linewidth=1, label=f"reference: {name}")
            if len(known) == 1 and known["mean"].iloc[0] > 0:
                _add_percent_lost(axes, float(known["mean"].iloc[0]))
            axis = next(iter(own.values())).axis or design.factors[place]
            finish_axes(axes, _title(metric), f"{family}: {axis}" if family else axis, "", legend=False)
    _legend_below(figure, axes, 3)
    return figure


def _add_percent_lost(axes: Axes, reference: float) -> None:
    """A second axis, on the right."""
    lost = (lambda value: 100 * (1 - value / reference), lambda percent: reference * (1 - percent / 100))
    axes.secondary_yaxis("right", functions=lost).set_ylabel("lost, %")


def _draw_family(axes: Axes, part: pd.DataFrame, levels: dict[str, Level], factor: str) -> None:
    numbers = sorted({level.number for level in levels.values() if level.number is not None})
    for number, (line, rows) in enumerate(part.groupby("line", sort=False)):
        points = rows.assign(x=rows[factor].map(lambda label: levels[label].number)).sort_values("x")
        style = "--" if number % 2 else "-"  # where two lines agree, both are seen
        axes.errorbar(
            points["x"], points["mean"], points["std"].fillna(0.0), None, style, label=str(line), marker=".", capsize=2
        )
    if numbers[0] > 0 and numbers[-1] / numbers[0] > LOG_SCALE_FROM:
        axes.set_xscale("log")
    axes.set_xticks(numbers, [f"{number:g}" for number in numbers])
    axes.minorticks_off()


def draw_learning_curves(design: StudyDesign, directory: Path) -> Figure:
    """Accuracy and predictive log-likelihood against CPU seconds: a colour for each cell, a line for each seed."""
    table = pq.read_table(directory / "curves.parquet").to_pandas()
    figure = new_figure((11, 4.6))
    for place, column in enumerate(("accuracy", "log_likelihood"), start=1):
        metric = METRICS[column]
        axes = figure.add_subplot(1, 2, place)
        for number, (cell, lines) in enumerate(table.groupby("cell", sort=False)):
            for repeat, (_, line) in enumerate(lines.groupby("seed", sort=False)):
                label = str(cell) if repeat == 0 else f"_{cell}"  # matplotlib leaves out what starts so
                marker = MARKERS[number % len(MARKERS)]
                axes.plot(
                    line["cpu_seconds"], line[column], label=label, color=f"C{number}", marker=marker, markersize=3.5
                )
        axes.set_xscale("log")
        if metric.unit == "number":  # a diverging curve must not squeeze the others
            axes.set_ylim(bottom=max(axes.get_ylim()[0], 1.25 * table.groupby("cell")[column].max().min()))
        finish_axes(axes, metric.title, "CPU seconds, fitting the sampler included", "", legend=False)
    _legend_below(figure, axes, 4)
    return figure


def x_factor(design: StudyDesign) -> int:
    """The place of the first factor that has levels with numbers."""
    for place in range(len(design.factors)):
        if any(cell.levels[place].number is not None for cell in design.cells):
            return place
    raise ValueError(f"no factor has numbers to draw lines over: {', '.join(design.factors)}")


def _shown(design: StudyDesign, directory: Path) -> tuple[pd.DataFrame, list[str]]:
    """The rows of the metrics to show, each with the name of its cell."""
    table = pq.read_table(directory / "summary.parquet").to_pandas()
    metrics = chosen_metrics(list(dict.fromkeys(table["metric"])), design.metrics)
    table = table[table["metric"].isin(metrics)].copy()
    table["name"] = table[list(design.factors)].agg(", ".join, axis=1)
    return table, metrics


def _errors(rows: pd.DataFrame) -> list[list[float]]:
    """Distances of the interval's ends from the mean; 0 where there is no interval."""
    below, above = (rows["mean"] - rows["low"]).fillna(0.0), (rows["high"] - rows["mean"]).fillna(0.0)
    return [below.clip(lower=0).tolist(), above.clip(lower=0).tolist()]


def _title(metric: str) -> str:
    return metric.replace("_at_", "@").replace("_", " ")


def _legend_below(figure: Figure, axes: Axes, n_columns: int) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=n_columns, frameon=False)
