"""What a person sees in a terminal: progress while a flow runs, a table when it is done."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from xcore.artifacts import Recipe

SECONDS_BETWEEN_LINES = 5.0
METRICS = ("precision", "ndcg", "psp", "psndcg", "recall", "coverage")


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
        self._console, self._start, self._last = console, 0.0, 0.0

    def started(self, recipe: Recipe) -> None:
        self._start = self._last = time.monotonic()
        self._say(f"{recipe.name} {recipe.id} ...")

    def progressed(self, recipe: Recipe, step: int, total: int, metrics: Mapping[str, float]) -> None:
        if time.monotonic() - self._last > SECONDS_BETWEEN_LINES:
            self._last = time.monotonic()
            self._say(f"{recipe.name} {100 * step // max(total, 1)}% {_words(metrics)}".rstrip())

    def finished(self, recipe: Recipe, cached: bool) -> None:
        how = "made before" if cached else f"done in {time.monotonic() - self._start:.1f} s"
        self._say(f"{recipe.name} {how}")

    def close(self) -> None:
        """Nothing is left open."""

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)


def wide_console() -> Console:
    """Standard output; in a file or a pipe, wide enough that no id is cut."""
    console = Console()
    return console if console.is_terminal else Console(width=110)


def show_summary(console: Console, summary: Mapping[str, Any]) -> None:
    """Metrics, then what each step cost."""
    if summary["metrics"]:
        console.print(_metrics_table(summary["metrics"], summary["intervals"]))
    if summary["imputation"]:
        known = ", ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in summary["imputation"].items())
        console.print(f"Imputed labels against the truth: {known}", highlight=False)
    if summary["study"] or summary["race"]:
        console.print(_study_table(summary["study"]) if summary["study"] else _race_table(summary["race"]))
        made = sum(not step["cached"] for step in summary["steps"])
        console.print(f"{len(summary['steps'])} steps, {made} of them new; result {summary['result']}", highlight=False)
    else:
        console.print(_steps_table(summary["steps"]))
    for line in (*summary.get("notes", ()), *summary.get("says", ())):
        console.print(line, highlight=False)
    if summary["nothing_changed"]:
        console.print("Nothing changed: every step had been made before, and nothing was run.")
    console.print(f"MLflow run {summary['mlflow_run']}. Open the dashboards with: eyrie serve", highlight=False)


def _steps_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    steps = Table("step", "seconds", "peak memory", "", title="Steps", title_justify="left")
    steps.add_column("artifact", no_wrap=True, overflow="fold")
    for step in rows:
        note = "made before" if step["cached"] else "new"
        memory = f"{step['peak_memory_mb']:,.0f} MB"
        steps.add_row(step["step"], f"{step['seconds']:.1f}", memory, note, step["artifact"])
    return steps


def _study_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """One row a grouping and method; mean, deviation over seeds, and what was lost against the oracle."""
    metrics = list(dict.fromkeys(row["metric"] for row in rows))
    table = Table(
        "grouping", "method", *[name.replace("_at_", "@") for name in metrics], title="Study", title_justify="left"
    )
    cells = {(row["grouping"], row["method"], row["metric"]): row for row in rows}
    for grouping, method in dict.fromkeys((row["grouping"], row["method"]) for row in rows):
        found = [cells[grouping, method, metric] for metric in metrics]
        table.add_row(grouping or "(none)", method, *[_study_cell(row) for row in found])
    return table


def _race_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """One row a method: where it ended, and when it and the first method got there."""
    leader = rows[0]["method"]
    table = Table(
        "method", "settings", "accuracy, %", "log-likelihood", "s", "CPU s", title="Race", title_justify="left"
    )
    table.add_column("at its final accuracy after, CPU s")
    table.add_column(f"{leader} there after, CPU s (times sooner)")
    for row in rows:
        sooner = (
            "never" if row["leader_seconds"] is None else f"{row['leader_seconds']:.1f} ({row['times_sooner']:.1f}x)"
        )
        numbers = (
            f"{100 * row['accuracy']:.2f}",
            f"{row['log_likelihood']:.3f}",
            f"{row['seconds']:.1f}",
            f"{row['cpu_seconds']:.1f}",
        )
        table.add_row(row["method"], row["settings"], *numbers, f"{row['own_seconds']:.1f}", sooner)
    return table


def _study_cell(row: Mapping[str, Any]) -> str:
    spread = f" ± {100 * row['std']:.2f}" if row["std"] is not None and row["std"] == row["std"] else ""
    return f"{100 * row['mean']:.2f}{spread} [dim]({0.0 - row['lost_percent']:+.1f}%)[/]"


def _metrics_table(metrics: Mapping[str, float], intervals: Mapping[str, tuple[float, float]]) -> Table:
    """One row a metric, one column a rank, with intervals; then recall by how frequent labels are."""
    ranks = sorted({int(name.rsplit("_", 1)[1]) for name in metrics})
    table = Table("metric, %", *[f"@{k}" for k in ranks], title="Metrics", title_justify="left")
    for name in METRICS:
        table.add_row(name, *[_percent(metrics, intervals, f"{name}_at_{k}") for k in ranks])
    for third in ("head", "torso", "tail"):
        table.add_row(f"recall, {third}", *[_percent(metrics, {}, f"{third}/recall_at_{k}") for k in ranks])
    return table


def _percent(metrics: Mapping[str, float], intervals: Mapping[str, tuple[float, float]], name: str) -> str:
    value = f"{100 * metrics[name]:.2f}"
    if name not in intervals:
        return value
    low, high = intervals[name]
    return f"{value} [dim]({100 * low:.1f}-{100 * high:.1f})[/]"


def _words(metrics: Mapping[str, float]) -> str:
    return " ".join(f"{name}={value:.4g}" for name, value in metrics.items())
