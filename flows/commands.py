"""Runs a flow for a person at a terminal, or for a script that reads JSON."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from flows.catalogue import FLOWS, FlowEntry
from flows.params import FlowParams
from flows.presets import load_params
from flows.terminal import LineProgress, LiveProgress, show_summary, wide_console
from tasks import settings


def run_flow(name: str, preset: Path | None, overrides: list[str], as_json: bool, only_plan: bool) -> int:
    """Run the flow `name`, or show its plan."""
    entry = FLOWS[name]
    params = load_params(entry.params, preset, overrides, entry.preset_of)
    if only_plan:
        return _show_plan(entry, params, as_json)
    from tasks.summary import finished_result  # loads MLflow, which a plan does without

    finished = None if entry.has_effects else finished_result(entry.plan(params), params.experiment)
    summary = finished or _run_with_progress(entry, params)
    if as_json:
        print(json.dumps(summary))
    else:
        show_summary(wide_console(), summary)
    return 0


def _run_with_progress(entry: FlowEntry, params: FlowParams) -> dict[str, Any]:
    from flows.operations.embedded import start_embedded_api
    from flows.operations.lost_runs import mark_lost_runs, recorded_runs
    from tasks.execution import listeners
    from xcore.numeric.stopwatch import tell_first_compilation

    progress_to = Console(stderr=True)
    embedded = not os.environ.get("PREFECT_API_URL")
    if embedded:
        progress_to.print("starting the embedded Prefect API (PREFECT_API_URL names a server instead) ...", style="dim")
    start_embedded_api()
    mark_lost_runs()
    progress = LiveProgress(progress_to) if progress_to.is_terminal else LineProgress(progress_to)
    listeners.append(progress)
    tell_first_compilation(
        lambda: progress_to.print("compiling kernels, once per machine; it is not part of a step's seconds ...")
    )
    try:
        with recorded_runs(entry.flow) as flow:
            summary: dict[str, Any] = flow(params)
            return summary | ({"flow_run": None} if embedded else {})  # nobody can look at it there
    finally:
        tell_first_compilation(None)
        listeners.remove(progress)
        progress.close()


def _show_plan(entry: FlowEntry, params: FlowParams, as_json: bool) -> int:
    store = settings.store()
    steps = [(recipe, store.is_intact(recipe.ref)) for recipe in entry.plan(params).lineage()]
    if as_json:
        print(json.dumps([{"artifact": str(recipe.ref), "made": made} for recipe, made in steps]))
        return 0
    table = Table("step", "artifact", "", title="Plan", title_justify="left")
    for recipe, made in steps:
        table.add_row(recipe.name, str(recipe.ref), "made before" if made else "to be made")
    wide_console().print(table)
    return 0
