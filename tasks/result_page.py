"""A run's result as the page that people see on it in the Prefect UI."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tasks import settings
from tasks.mlflow_view import run_link, view_link

METRICS = ("precision", "ndcg", "psp", "recall")


def report_key(name: str) -> str:
    """The key of an experiment's results; Prefect shows all reports of one key as a history."""
    return re.sub(r"[^a-z0-9]+", "-", f"{name}-result".lower()).strip("-")


def result_markdown(summary: Mapping[str, Any]) -> str:
    """Metrics with their intervals, what each step cost, and where to read on."""
    made = "Nothing changed: all of this had been made before." if summary["nothing_changed"] else ""
    parts = [f"`{summary['result']}` · {_where_to_read_on(summary)}", made, *summary.get("notes", ())]
    if summary["metrics"]:
        parts.append(_table(*_metric_rows(summary["metrics"], summary["intervals"])))
    if summary["imputation"]:
        known = ", ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in summary["imputation"].items())
        parts.append(f"Imputed labels against the truth: {known}.")
    if summary["study"]:
        parts.append(_table(("grouping", "method", "metric", "mean, %", "lost, %"), _study_rows(summary["study"])))
    else:
        parts.append(_table(("step", "seconds", "peak memory, MB", "", "artifact"), _step_rows(summary["steps"])))
    return "\n\n".join(filter(None, parts))


def _metric_rows(
    metrics: Mapping[str, float], intervals: Mapping[str, tuple[float, float]]
) -> tuple[list[str], list[list[str]]]:
    ranks = sorted({int(name.rsplit("_", 1)[1]) for name in metrics})
    shown = {name: name for name in METRICS}
    shown |= {f"recall, {third}": f"{third}/recall" for third in ("head", "torso", "tail")}
    rows = [[title, *(_percent(metrics, intervals, f"{name}_at_{k}") for k in ranks)] for title, name in shown.items()]
    return ["metric, %", *(f"@{k}" for k in ranks)], rows


def _percent(metrics: Mapping[str, float], intervals: Mapping[str, tuple[float, float]], name: str) -> str:
    low_high = [f"{100 * bound:.1f}" for bound in intervals.get(name, ())]
    return f"{100 * metrics[name]:.2f}" + (f" ({' to '.join(low_high)})" if low_high else "")


def _study_rows(rows: Sequence[Mapping[str, Any]]) -> Iterable[list[str]]:
    for row in rows:
        found = [f"{100 * row['mean']:.2f}", f"{row['lost_percent']:.1f}"]
        yield [row["grouping"] or "(none)", row["method"], row["metric"].replace("_at_", "@"), *found]


def _step_rows(steps: Sequence[Mapping[str, Any]]) -> Iterable[list[str]]:
    for step in steps:
        note = "made before" if step["cached"] else "new"
        cost = [f"{step['seconds']:.1f}", f"{step['peak_memory_mb']:,.0f}"]
        yield [step["step"], *cost, note, f"`{step['artifact']}`"]


def _where_to_read_on(summary: Mapping[str, Any]) -> str:
    experiment, run, server = summary["mlflow_experiment"], summary["mlflow_run"], settings.tracking_uri()
    if not server.startswith("http"):
        return f"MLflow run `{run}`"
    links = {
        "this run in MLflow": run_link(server, experiment, run),
        "all runs compared": view_link(server, experiment),
    }
    return " · ".join(f"[{text}]({address})" for text, address in links.items())


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
