"""What people see of a label selection: how many labels have which role, the choice itself, and the convergence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from xcore.artifacts import Artifact
from xcore.saved import read_json, read_table
from xcore.selection.selected import CURVE_COLUMNS, LABEL_COLUMNS, ROLES, SelectionSummary
from xcore.views.base import Point, ShownTable, View

SHOWN = 20  # labels of each role


class SelectionView(View):
    """A selection of labels."""

    logs_files = True

    def facts(self, artifact: Artifact) -> dict[str, Any]:
        return {"selection": _summary(artifact).labels}

    def points(self, artifact: Artifact) -> Sequence[Point]:
        """The convergence by iteration; the counts at step 0."""
        counts: dict[str, float] = {f"selection/{role}": count for role, count in _summary(artifact).labels.items()}
        curves = read_table(artifact.directory / "convergence.parquet", CURVE_COLUMNS).to_pylist()
        return [(0, counts)] + [
            (row["iteration"], {f"{row['solve']}/{name}": row[name] for name in ("objective", "residual")})
            for row in curves
        ]

    def tables(self, artifact: Artifact) -> Sequence[ShownTable]:
        """The chosen labels in the order of their choice, then the most frequent of the other roles."""
        table = read_table(artifact.directory / "labels.parquet", LABEL_COLUMNS)
        shown = [_shown(table, "chosen", "place", ["place", "label", "name", "gain", "rows"])]
        shown += [_shown(table, role, "rows", ["label", "name", "rows", "error"]) for role in ROLES[1:3]]
        return [found for found in shown if found.rows]

    def sentence(self, artifact: Artifact) -> str:
        counts = _summary(artifact).labels
        return (
            f"Labels: {counts['chosen']} chosen, {counts['outlier']} outliers, "
            f"{counts['reconstructed']} reconstructed, {counts['no_rows']} without training rows"
        )

    def draw(self, artifact: Artifact, folder: Path) -> None:
        from xcore.report.plots import draw_convergence

        draw_convergence(artifact.directory / "convergence.parquet", folder / "convergence.png")


def _summary(artifact: Artifact) -> SelectionSummary:
    return read_json(artifact.directory / "selection.json", SelectionSummary)


def _shown(table: Any, role: str, by: str, columns: list[str]) -> ShownTable:
    own = table.filter(pc.equal(table["role"], role))
    order = "ascending" if by == "place" else "descending"
    first = own.sort_by([(by, order), ("label", "ascending")]).slice(0, SHOWN).to_pylist()
    title = f"{role.capitalize()} labels: {min(SHOWN, len(own))} of {len(own):,}"
    return ShownTable(title, columns, [[_text(name, row[name]) for name in columns] for row in first])


def _text(column: str, value: Any) -> str:
    if column == "place":
        return str(value + 1)
    return f"{value:.3f}" if isinstance(value, float) else f"{value:,}" if column == "rows" else str(value)
