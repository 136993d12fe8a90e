"""Runs a flow for a person at a terminal, or for a script that reads JSON."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from flows.pipeline import FLOWS, FlowEntry
from flows.presets import load_params
from flows.terminal import LineProgress, LiveProgress, show_summary
from tasks import settings
from tasks.running import listeners
from xcore.components import Component


def run_flow(name: str, preset: Path | None, overrides: list[str], as_json: bool, only_plan: bool) -> int:
    """Run the flow `name`, or show its plan."""
    entry = FLOWS[name]
    params = load_params(entry.params, preset, overrides)
    if only_plan:
        return _show_plan(entry, params, as_json)
    progress_to = Console(stderr=True)
    progress = LiveProgress(progress_to) if progress_to.is_terminal else LineProgress(progress_to)
    listeners.append(progress)
    try:
        summary = entry.flow(params)
    finally:
        listeners.remove(progress)
        progress.close()
    if as_json:
        print(json.dumps(summary))
    else:
        show_summary(Console(), summary)
    return 0


def _show_plan(entry: FlowEntry, params: Component, as_json: bool) -> int:
    store = settings.store()
    steps = [(recipe, store.is_intact(recipe.ref)) for recipe in entry.plan(params).lineage()]
    if as_json:
        print(json.dumps([{"artifact": str(recipe.ref), "made": made} for recipe, made in steps]))
        return 0
    table = Table("step", "artifact", "", title="Plan", title_justify="left")
    for recipe, made in steps:
        table.add_row(recipe.name, str(recipe.ref), "made before" if made else "to be made")
    Console().print(table)
    return 0
