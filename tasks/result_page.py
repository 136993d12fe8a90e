"""A run's result as the page that people see on it in the Prefect UI."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tasks import settings
from tasks.mlflow_view import QUALITY, run_link, view_link

COST_COLUMNS = ("step", "seconds", "compiling, s", "peak memory, MB", "", "artifact")


def report_key(name: str) -> str:
    """The key of an experiment's results; Prefect shows all reports of one key as a history."""
    return report_slug(f"{name}-result")


def report_slug(text: str) -> str:
    """A text in the letters that Prefect takes in a key."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def result_markdown(summary: Mapping[str, Any]) -> str:
    """The result's tables, what each step cost, and where to read on."""
    made = "Nothing changed: all of this had been made before." if summary["nothing_changed"] else ""
    parts = [f"`{summary['result']}` · {_where_to_read_on(summary)}", made, *summary.get("notes", ())]
    parts += [_table(table["columns"], table["rows"]) for table in summary["tables"]]
    parts += [f"{sentence}." for sentence in summary["sentences"]]
    if not summary["stands_for_many"]:
        parts.append(_table(COST_COLUMNS, _step_rows(summary["steps"])))
    return "\n\n".join(filter(None, parts))


def headline(summary: Mapping[str, Any]) -> str:
    """The result in a few words, such as ``precision_at_1 0.8123, ndcg_at_5 0.7011``."""
    metrics = summary["metrics"]
    keys = [key for key in (name.removeprefix("test/") for name in QUALITY) if key in metrics]
    said = ", ".join(f"{key} {metrics[key]:.4f}" for key in keys)
    return said or "; ".join(summary.get("says", ())) or f"made {summary['result']}"


def note_markdown(summary: Mapping[str, Any]) -> str:
    """The description of the run in MLflow: its tables, what is worth knowing, and where its report is."""
    parts = [_table(table["columns"], table["rows"]) for table in summary["tables"]]
    parts += [*(f"{sentence}." for sentence in summary["sentences"]), *summary.get("notes", ())]
    if summary["metrics"]:
        path = f"#/experiments/{summary['mlflow_experiment']}/runs/{summary['mlflow_run']}/artifacts/report.html"
        parts.insert(0, f"{headline(summary)} · [report]({path})")
    return "\n\n".join(parts) or f"`{summary['result']}`"


def _step_rows(steps: Sequence[Mapping[str, Any]]) -> Iterable[list[str]]:
    for step in steps:
        note = "made before" if step["cached"] else "new"
        cost = [f"{step['seconds']:.1f}", f"{step['compile_seconds']:.1f}", f"{step['peak_memory_mb']:,.0f}"]
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
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)
