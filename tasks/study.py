"""Many results side by side: every combination of some parameters' values, repeated over seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from xcore.artifacts import BuildContext, Recipe
from xcore.artifacts.recipe import Build
from xcore.studies.curve_table import final_values, points_table
from xcore.studies.design import Cell, StudyDesign
from xcore.studies.table import Measured, cells_table, summarise

QUALITY = ".quality"  # of the labels that a cell's model was trained on


def tabulate_study(context: BuildContext) -> Mapping[str, Any]:
    """One row per cell; mean, deviation and interval over seeds, and what was lost against the reference."""
    design: StudyDesign = context.options
    measured = []
    for role in cell_roles(design.cells):
        found = json.loads((context.inputs[role].directory / "metrics.json").read_text())
        metrics, imputed = dict(found["metrics"]), context.inputs.get(role + QUALITY)
        if imputed:
            quality = json.loads((imputed.directory / "quality.json").read_text())
            metrics |= {f"imputed/{name}": value for name, value in quality.items()}
        measured.append(Measured(metrics, found["intervals"]))
    return write_tables(design, measured, context.directory)


def tabulate_curves(context: BuildContext) -> Mapping[str, Any]:
    """The study of learning curves: all points with their seconds, where each curve ended, and when it got there."""
    design: StudyDesign = context.options
    curves = [context.inputs[role] for role in cell_roles(design.cells)]
    tables = [pq.read_table(curve.directory / "curve.parquet") for curve in curves]
    seconds = [curve.manifest.counts["seconds"] for curve in curves]
    measured = []
    for cell, curve, table, times in zip(design.cells, curves, tables, seconds, strict=True):
        there = cell.reference
        reference = None if there is None else (seconds[there]["cpu_seconds"], tables[there]["accuracy"].to_pylist())
        values = final_values(table, times, curve.manifest.counts["sampler_seconds"], reference)
        measured.append(Measured(values, note=_chosen_settings(cell, curve.directory)))
    points = points_table(design.factors, design.cells, tables, seconds)
    pq.write_table(points, context.directory / "curves.parquet")
    return write_tables(design, measured, context.directory) | {"points": points.num_rows}


def _chosen_settings(cell: Cell, directory: Path) -> str:
    model = json.loads((directory / "model.json").read_text())
    return ", ".join(f"{name} {model[name]}" for name in cell.tuned)


def write_tables(design: StudyDesign, measured: Sequence[Measured], directory: Path) -> dict[str, Any]:
    """The design of a study and its tables, as files."""
    design.save(directory)
    pq.write_table(cells_table(design.factors, design.cells, measured), directory / "cells.parquet")
    pq.write_table(summarise(design.factors, design.cells, measured), directory / "summary.parquet")
    return {"cells": len(design.cells)}


def cell_roles(cells: Sequence[Cell]) -> list[str]:
    """The roles of a study's inputs, in the order of its cells."""
    return [f"cell-{position:04d}" for position in range(len(cells))]


def study_recipe(design: StudyDesign, results: Sequence[Recipe], build: Build = tabulate_study) -> Recipe:
    """The table of a study, from its cells' results; `build` reads what the results hold."""
    inputs: dict[str, Recipe] = {}
    for role, result in zip(cell_roles(design.cells), results, strict=True):
        inputs[role] = result
        imputed = next((step for step in result.lineage() if step.kind == "imputed"), None)
        if imputed and build is tabulate_study:
            inputs[role + QUALITY] = imputed
    return Recipe("study", build, design, inputs)
