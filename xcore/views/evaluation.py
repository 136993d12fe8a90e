"""What people see of an evaluation: metrics with intervals, precision by frequency, and a page about the run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xcore.artifacts import Artifact
from xcore.metrics.base import Metric
from xcore.metrics.family import METRICS, metric_of
from xcore.metrics.frequency import THIRDS
from xcore.views.base import Point, ShownTable, View

if TYPE_CHECKING:
    from xcore.report.beside import Beside


class EvaluationView(View):
    """Metrics of predictions."""

    logs_files = True
    has_page = True

    def facts(self, artifact: Artifact) -> dict[str, Any]:
        measured = _measured(artifact)
        return {"metrics": measured["metrics"], "intervals": measured["intervals"]}

    def points(self, artifact: Artifact) -> Sequence[Point]:
        measured = _measured(artifact)
        shown = {name: value for name, value in measured["metrics"].items() if _is_tracked(name)}
        return [(0, {f"{measured['split']}/{name}": value for name, value in shown.items()})]

    def tables(self, artifact: Artifact) -> Sequence[ShownTable]:
        """One row per metric, one column per rank; then rates by how frequent labels are, and metrics without ranks."""
        measured = _measured(artifact)
        ranks = sorted({int(key.rpartition("_at_")[2]) for key in measured["metrics"] if "_at_" in key})
        rows = [
            [title, *(_shown(measured, metric, f"{name}_at_{k}") for k in ranks)]
            for title, name, metric in _ranked_rows()
            if any(f"{name}_at_{k}" in measured["metrics"] for k in ranks)
        ]
        tables = [ShownTable("Metrics", ["metric, %", *(f"@{k}" for k in ranks)], rows)]
        alone = [
            [f"{name}, %" if metric.unit == "share" else name, _shown(measured, metric, name)]
            for name, metric in METRICS.items()
            if name in measured["metrics"]
        ]
        return [*tables, ShownTable("Metrics without ranks", ["metric", "value"], alone)] if alone else tables

    def draw(self, artifact: Artifact, folder: Path) -> None:
        from xcore.report.plots import draw_deciles

        draw_deciles(artifact.directory / "per_decile.parquet", folder / "precision_by_label_frequency.png")

    def write_page(self, lineage: Sequence[Artifact], target: Path, beside: Beside | None = None) -> None:
        from xcore.report import render_report

        render_report(lineage, target, beside)


def _measured(artifact: Artifact) -> dict[str, Any]:
    measured: dict[str, Any] = json.loads((artifact.directory / "metrics.json").read_text())
    return measured


def _is_tracked(key: str) -> bool:
    """A chart for each metric of each third would bury the rest."""
    metric = metric_of(key)
    return "/" not in key or (metric is not None and metric.shows_parts)


def _ranked_rows() -> list[tuple[str, str, Metric]]:
    """Title, start of the keys, and metric of each row of the table: metrics with ranks, then rates by third."""
    ranked = [metric for metric in METRICS.values() if metric.ranked]
    rows: list[tuple[str, str, Metric]] = [
        (metric.name if metric.unit == "share" else f"{metric.name} (not in %)", metric.name, metric)
        for metric in ranked
    ]
    for metric in ranked:
        if metric.shows_parts:
            rows += [(f"{metric.name}, {third}", f"{third}/{metric.name}", metric) for third in THIRDS]
    return rows


def _shown(measured: Mapping[str, Any], metric: Metric, key: str) -> str:
    """The value with its interval; parts come without theirs, to keep the table narrow."""
    if key not in measured["metrics"]:
        return "–"
    factor, digits = (100, 1) if metric.unit == "share" else (1, 3)
    ends = () if "/" in key else measured["intervals"].get(key, ())
    # A dash between the ends would read as a minus where a number is below 0.
    interval = ("-" if metric.unit == "share" else " to ").join(f"{factor * end:.{digits}f}" for end in ends)
    value = f"{factor * measured['metrics'][key]:.{max(digits, 2)}f}"
    return f"{value} ({interval})" if interval else value
