"""What a person sees in a terminal: progress while a flow runs, a table when it is done."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from tasks import settings
from tasks.mlflow_view import run_link
from xcore.artifacts import Recipe

SECONDS_BETWEEN_LINES = 5.0


class LiveProgress:
    """A bar for each step, for a terminal."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            SpinnerColumn(finished_text="[green]✓[/]"),
            TextColumn("{task.description:24}"),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[note]}"),
            console=console,
        )
        self._bars: dict[str, TaskID] = {}
        self._progress.start()

    def started(self, recipe: Recipe) -> None:
        self._bars[recipe.id] = self._progress.add_task(recipe.name, total=None, note=recipe.id)

    def progressed(self, recipe: Recipe, step: int, total: int, metrics: Mapping[str, float]) -> None:
        self._progress.update(self._bars[recipe.id], completed=step, total=total, note=_words(metrics) or recipe.id)

    def finished(self, recipe: Recipe, cached: bool) -> None:
        note = f"{recipe.id}{' (made before)' if cached else ''}"
        self._progress.update(self._bars[recipe.id], completed=1, total=1, note=note)

    def close(self) -> None:
        self._progress.stop()


class LineProgress:
    """A line when a step starts and ends, and every five seconds between, for a log."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._starts: dict[str, float] = {}
        self._last = 0.0

    def started(self, recipe: Recipe) -> None:
        self._starts[recipe.id] = self._last = time.monotonic()
        self._say(f"{recipe.name} {recipe.id} ...")

    def progressed(self, recipe: Recipe, step: int, total: int, metrics: Mapping[str, float]) -> None:
        if time.monotonic() - self._last > SECONDS_BETWEEN_LINES:
            self._last = time.monotonic()
            self._say(f"{recipe.name} {100 * step // max(total, 1)}% {_words(metrics)}".rstrip())

    def finished(self, recipe: Recipe, cached: bool) -> None:
        how = "made before" if cached else f"done in {time.monotonic() - self._starts[recipe.id]:.1f} s"
        self._say(f"{recipe.name} {how}")

    def close(self) -> None:
        """Nothing is left open."""

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)


def wide_console() -> Console:
    """Standard output; in a file or a pipe, wide enough that no id is cut."""
    console = Console()
    return console if console.is_terminal else Console(width=140)


def show_summary(console: Console, summary: Mapping[str, Any]) -> None:
    """The result's tables, then what each step cost."""
    for table in summary["tables"]:
        console.print(_table(table["title"], table["columns"], table["rows"]))
    for line in summary["sentences"]:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if summary["stands_for_many"]:
        made = sum(not step["cached"] for step in summary["steps"])
        console.print(f"{len(summary['steps'])} steps, {made} of them new; result {summary['result']}", highlight=False)
    else:
        console.print(_steps_table(summary["steps"]))
    for line in (*summary.get("notes", ()), *summary.get("says", ())):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if summary["nothing_changed"]:
        console.print("Nothing changed: every step had been made before, and nothing was run.")
    for line in _where_to_look(summary):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _where_to_look(summary: Mapping[str, Any]) -> list[str]:
    """Links to the run in the dashboards that are up; an embedded server has none."""
    tracking = settings.tracking_uri()
    if not tracking.startswith("http"):
        return [f"MLflow run {summary['mlflow_run']}. Open the dashboards with: eyrie serve"]
    links = [f"MLflow   {run_link(tracking, summary['mlflow_experiment'], summary['mlflow_run'])}"]
    prefect = os.environ.get("PREFECT_API_URL", "").removesuffix("/api")
    if prefect and summary.get("flow_run"):
        links.append(f"Prefect  {prefect}/runs/flow-run/{summary['flow_run']}")
    return links


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    return table


def _steps_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    steps = Table("step", "seconds", "compiling", "peak memory", "", title="Steps", title_justify="left")
    steps.add_column("artifact", no_wrap=True, overflow="fold")
    for step in rows:
        note = "made before" if step["cached"] else "new"
        memory = f"{step['peak_memory_mb']:,.0f} MB"
        compiling = f"{step['compile_seconds']:.1f}"
        steps.add_row(step["step"], f"{step['seconds']:.1f}", compiling, memory, note, step["artifact"])
    return steps


def _words(metrics: Mapping[str, float]) -> str:
    return " ".join(f"{name}={value:.4g}" for name, value in metrics.items())
