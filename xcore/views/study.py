"""What people see of a study: one row per combination of levels, and the plot that the study asks for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from xcore.artifacts import Artifact
from xcore.metrics.family import metric_of
from xcore.studies.design import StudyDesign
from xcore.studies.table import chosen_metrics
from xcore.views.base import Point, ShownTable, View

NUMBER_DIGITS = 3
# What a study measures beside metrics and is no share of 1, with the digits that are shown.
PLAIN = {"seconds": 1, "times_sooner": 1, "loss": 3}


class StudyView(View):
    """Many results side by side."""

    logs_files = True
    stands_for_many = True

    def facts(self, artifact: Artifact) -> dict[str, Any]:
        return {"study": _shown_rows(artifact)}

    def points(self, artifact: Artifact) -> Sequence[Point]:
        """Where lines are asked for, the same lines as metrics: the step is the number of the level."""
        design = StudyDesign.load(artifact.directory)
        if design.plot != "lines":
            return []
        from xcore.report.study_plots import x_factor

        place = x_factor(design)
        levels = {cell.levels[place].label: cell.levels[place] for cell in design.cells}
        found = []
        for row in _shown_rows(artifact):
            level = levels[row[design.factors[place]]]
            others = [
                f"{name.rpartition('.')[2]} {row[name]}" for name in design.factors if name != design.factors[place]
            ]
            if level.number is not None and level.number == int(level.number):
                name = "/".join(filter(None, ["study", row["metric"], level.family, *others]))
                found.append((int(level.number), {re.sub(r"[^\w\-./ ]", "_", name): row["mean"]}))
        return found

    def tables(self, artifact: Artifact) -> Sequence[ShownTable]:
        """Mean, deviation over seeds, 95% interval, and the change against the reference."""
        design, rows = StudyDesign.load(artifact.directory), _shown_rows(artifact)
        metrics = list(dict.fromkeys(row["metric"] for row in rows))
        by_cell: dict[tuple[str, ...], dict[str, Mapping[str, Any]]] = {}
        for row in rows:
            by_cell.setdefault(tuple(row[factor] for factor in design.factors), {})[row["metric"]] = row
        notes = {labels: next(iter(found.values()))["note"] for labels, found in by_cell.items()}
        extra = ["settings"] if any(notes.values()) else []
        shown = [
            [*labels, *([notes[labels]] if extra else []), *(_cell(found.get(metric)) for metric in metrics)]
            for labels, found in by_cell.items()
        ]
        return [ShownTable("Study", [*design.factors, *extra, *map(_title, metrics)], shown)]

    def draw(self, artifact: Artifact, folder: Path) -> None:
        from xcore.report.study_plots import draw_study

        draw_study(artifact.directory, folder / "study.png")


def _shown_rows(artifact: Artifact) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(artifact.directory / "summary.parquet").to_pylist()
    wanted = StudyDesign.load(artifact.directory).metrics
    shown = chosen_metrics(list(dict.fromkeys(row["metric"] for row in rows)), wanted)
    return sorted((row for row in rows if row["metric"] in shown), key=lambda row: shown.index(row["metric"]))


def _digits(metric: str) -> int | None:
    """The digits of what is shown as it is; None for a share of 1, which is shown in percent."""
    known = metric_of(metric)
    if known is not None:
        return None if known.unit == "share" else NUMBER_DIGITS
    return next((digits for ending, digits in PLAIN.items() if metric.endswith(ending)), None)


def _title(metric: str) -> str:
    words = metric.replace("_at_", "@").replace("_", " ")
    return words if _digits(metric) is not None else f"{words}, %"


def _cell(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "–"
    digits = _digits(row["metric"])
    if digits is None:
        return _percent(row)
    spread = "" if row["std"] is None else f" ± {row['std']:.{digits}f}"
    interval = "" if row["low"] is None else f" ({row['low']:.{digits}f} to {row['high']:.{digits}f})"
    return f"{row['mean']:.{digits}f}{spread}{interval}"


def _percent(row: Mapping[str, Any]) -> str:
    spread = "" if row["std"] is None else f" ± {100 * row['std']:.2f}"
    interval = "" if row["low"] is None else f" ({100 * row['low']:.1f}-{100 * row['high']:.1f})"
    change = "" if row["lost_percent"] is None else f" {0.0 - row['lost_percent']:+.1f}%"
    return f"{100 * row['mean']:.2f}{spread}{interval}{change}"
