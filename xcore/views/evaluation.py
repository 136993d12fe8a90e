"""What people see of an evaluation: metrics with intervals, precision by frequency, and a page about the run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xcore.artifacts import Artifact
from xcore.views.base import Point, ShownTable, View

METRICS = ("precision", "ndcg", "psp", "psndcg", "recall", "coverage")
THIRDS = ("head", "torso", "tail")


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
        """One row per metric, one column per rank; then recall by how frequent labels are."""
        measured = _measured(artifact)
        metrics, intervals = measured["metrics"], measured["intervals"]
        ranks = sorted({int(name.rsplit("_", 1)[1]) for name in metrics})
        shown = {name: name for name in METRICS} | {f"recall, {third}": f"{third}/recall" for third in THIRDS}
        rows = [
            [title, *(_percent(metrics, intervals, f"{name}_at_{k}") for k in ranks)] for title, name in shown.items()
        ]
        return [ShownTable("Metrics", ["metric, %", *(f"@{k}" for k in ranks)], rows)]

    def draw(self, artifact: Artifact, folder: Path) -> None:
        from xcore.report.plots import draw_deciles

        draw_deciles(artifact.directory / "per_decile.parquet", folder / "precision_by_label_frequency.png")

    def write_page(self, lineage: Sequence[Artifact], target: Path) -> None:
        from xcore.report import render_report

        render_report(lineage, target)


def _measured(artifact: Artifact) -> dict[str, Any]:
    measured: dict[str, Any] = json.loads((artifact.directory / "metrics.json").read_text())
    return measured


def _is_tracked(metric: str) -> bool:
    """Of head, torso and tail only the recall: a chart for each metric of each third would bury the rest."""
    return "/" not in metric or "/recall" in metric


def _percent(metrics: Mapping[str, float], intervals: Mapping[str, Sequence[float]], name: str) -> str:
    interval = "-".join(f"{100 * bound:.1f}" for bound in intervals.get(name, ()) if "/" not in name)
    return f"{100 * metrics[name]:.2f}" + (f" ({interval})" if interval else "")
