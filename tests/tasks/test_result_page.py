"""What people see first: the report of a result in Prefect, and the view of an experiment in MLflow."""

import json
from typing import Any

import pytest

from tasks.mlflow_view import COLUMN_WIDTHS, PARALLEL_METRICS, view_link
from tasks.result_page import headline, note_markdown, report_key, result_markdown
from tasks.tracking import TrackedRun, experiment_id
from tasks.tracking_client import tracking_client
from xcore.metrics.family import METRICS, find_metric


def summary(**changes: Any) -> dict[str, Any]:
    step = {
        "step": "fit model",
        "artifact": "model/77",
        "cached": False,
        "seconds": 2.34,
        "compile_seconds": 1.5,
        "peak_memory_mb": 1234.5,
    }
    return {
        "result": "evaluation/88",
        "tables": [{"title": "Metrics", "columns": ["metric, %", "@1"], "rows": [["precision", "51.00 (45.0-55.0)"]]}],
        "sentences": ["Imputed labels against the truth: expected recall 0.750"],
        "stands_for_many": False,
        "steps": [step],
        "mlflow_run": "run-9",
        "mlflow_experiment": "4",
        "nothing_changed": False,
    } | changes


def test_a_report_has_the_metrics_with_their_intervals_and_the_cost_of_each_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    page = result_markdown(summary())
    assert "| metric, % | @1 |\n| --- | --- |\n| precision | 51.00 (45.0-55.0) |" in page
    assert "expected recall 0.750." in page
    assert "| fit model | 2.3 | 1.5 | 1,234 | new | `model/77` |" in page
    assert "(http://127.0.0.1:5000/#/experiments/4/runs/run-9?workflowType=machine_learning)" in page
    assert f"({view_link('http://127.0.0.1:5000', '4')})" in page
    assert "Nothing changed" in result_markdown(summary(nothing_changed=True))


def test_a_report_of_many_runs_has_its_table_and_no_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///runs.db")
    table = {"title": "Study", "columns": ["imputer", "settings"], "rows": [["eagle", "rate 1 | rate 2"]]}
    page = result_markdown(summary(tables=[table], sentences=[], stands_for_many=True))
    assert "| eagle | rate 1 / rate 2 |" in page  # a bar would begin another column
    assert "MLflow run `run-9`" in page
    assert "| step |" not in page


def test_report_keys_are_words_that_prefect_accepts() -> None:
    assert report_key("EURLEX57K (new)") == "eurlex57k-new-result"


def test_a_new_experiment_comes_with_a_view_of_what_is_logged(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("EYRIE_HOME", str(tmp_path_factory.mktemp("home")))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    client = tracking_client()
    tags = client.get_experiment(experiment_id(client, "nest")).tags
    state = json.loads(json.loads(tags["mlflow.sharedViewState.eyrie"])["state"])
    assert state["selectedColumns"] == list(COLUMN_WIDTHS)
    drawn = {chart["metricKey"] for chart in state["compareRunCharts"] if chart["type"] == "BAR"}
    assert drawn | set(PARALLEL_METRICS) >= {"test/precision_at_1", "test/psp_at_5", "usage/seconds/model"}
    shown = [name.partition("`")[2].rstrip("`") for name in COLUMN_WIDTHS if name.startswith("metrics.`test/")]
    assert shown == ["test/precision_at_1", "test/precision_at_5", "test/psp_at_5", "test/tail/recall_at_5"]
    for name in shown:
        find_metric(name.removeprefix("test/"), METRICS.values())
    sections = {section["uuid"] for section in state["compareRunSections"]}
    assert {chart["metricSectionId"] for chart in state["compareRunCharts"]} == sections

    run = TrackedRun.open("nest", "0001", "first")
    run.log_progress(0, {"train/rows": 1234567.0, "train/loss": 1 / 3})
    run.end("FINISHED")
    assert client.get_run(run.id).data.metrics == {"train/rows": 1234567.0, "train/loss": 0.333333}


def test_the_description_of_a_run_starts_with_its_quality_and_links_to_its_report() -> None:
    measured = summary(metrics={"precision_at_1": 0.51234, "rows": 3})
    assert headline(measured) == "precision_at_1 0.5123"
    note = note_markdown(measured)
    assert note.startswith("precision_at_1 0.5123 · [report](#/experiments/4/runs/run-9/artifacts/report.html)")
    assert "| precision | 51.00 (45.0-55.0) |" in note
    assert "report" not in note_markdown(summary(metrics={}))
    assert headline(summary(metrics={}, says=["12 rows scored"])) == "12 rows scored"
