"""Many evaluations side by side: what aggregation costs, and which imputer pays least."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pydantic import Field

from xcore.artifacts import BuildContext, Recipe
from xcore.components import Component
from xcore.studies.table import Cell, cells_table, summarise


class StudyOptions(Component):
    """The cells of a study, in the order of its inputs."""

    cells: tuple[Cell, ...] = Field(min_length=1, description="What each evaluation stands for.")


def tabulate_study(context: BuildContext) -> Mapping[str, Any]:
    """One row a cell, and mean and standard deviation over seeds with what was lost against the oracle."""
    options: StudyOptions = context.options
    measured = []
    for position in range(len(options.cells)):
        folder = context.inputs[f"evaluation-{position:04d}"].directory
        values = dict(json.loads((folder / "metrics.json").read_text())["metrics"])
        imputed = context.inputs.get(f"imputed-{position:04d}")
        if imputed:
            quality = json.loads((imputed.directory / "quality.json").read_text())
            values |= {f"imputed/{name}": value for name, value in quality.items()}
        measured.append(values)
    cells = cells_table(options.cells, measured)
    pq.write_table(cells, context.directory / "cells.parquet")
    pq.write_table(summarise(cells), context.directory / "summary.parquet")
    return {"cells": len(options.cells)}


def study_recipe(cells: Sequence[tuple[Cell, Recipe]]) -> Recipe:
    """The table of a study, from its cells and the recipes of their evaluations."""
    inputs: dict[str, Recipe] = {}
    for position, (_, evaluation) in enumerate(cells):
        inputs[f"evaluation-{position:04d}"] = evaluation
        model = evaluation.inputs["predictions"].inputs["model"]
        if "labels" in model.inputs:
            inputs[f"imputed-{position:04d}"] = model.inputs["labels"]
    return Recipe("study", tabulate_study, StudyOptions(cells=tuple(cell for cell, _ in cells)), inputs)


def study_rows(directory: Path) -> list[dict[str, Any]]:
    """The summary of a study that is made, for the command line: precision at the ranks there are."""
    rows: list[dict[str, Any]] = pq.read_table(directory / "summary.parquet").to_pylist()
    return [row for row in rows if row["metric"].startswith("precision_at_")]
