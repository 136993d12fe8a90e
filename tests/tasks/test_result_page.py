"""What people see first: the report of a result in Prefect, and the view of an experiment in MLflow."""

import json
from typing import Any

import pytest

from tasks.mlflow_view import COLUMN_WIDTHS, PARALLEL_METRICS, view_link
from tasks.result_page import report_key, result_markdown
from tasks.tracking import TrackedRun, experiment_id
from tasks.tracking_client import tracking_client


def summary(**changes: Any) -> dict[str, Any]:
    metrics = {f"{name}_at_{k}": 0.5 + k / 100 for name in ("precision", "ndcg", "psp", "recall") for k in (1, 5)}
    metrics |= {f"{third}/recall_at_{k}": 0.25 for third in ("head", "torso", "tail") for k in (1, 5)}
    step = {"step": "fit model", "artifact": "model/77", "cached": False, "seconds": 2.34, "peak_memory_mb": 1234.5}
    return {
        "result": "evaluation/88",
        "metrics": metrics,
        "intervals": {"precision_at_1": (0.45, 0.55)},
        "imputation": {"expected_recall": 0.75},
        "study": [],
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
    assert "| metric, % | @1 | @5 |\n| --- | --- | --- |\n| precision | 51.00 (45.0 to 55.0) | 55.00 |" in page
    assert "| recall, tail | 25.00 | 25.00 |" in page
    assert "expected recall 0.750" in page
    assert "| fit model | 2.3 | 1,234 | new | `model/77` |" in page
    assert "(http://127.0.0.1:5000/#/experiments/4/runs/run-9?workflowType=machine_learning)" in page
    assert f"({view_link('http://127.0.0.1:5000', '4')})" in page
    assert "Nothing changed" in result_markdown(summary(nothing_changed=True))


def test_a_report_of_a_study_has_its_cells_and_one_without_metrics_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///runs.db")
    cell = {"grouping": "", "method": "oracle", "metric": "precision_at_1", "mean": 0.915, "lost_percent": 0.0}
    page = result_markdown(summary(study=[cell], metrics={}, imputation={}))
    assert "| (none) | oracle | precision@1 | 91.50 | 0.0 |" in page
    assert "MLflow run `run-9`" in page
    assert "| step |" in result_markdown(summary(metrics={}))


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
    assert drawn | set(PARALLEL_METRICS) >= {"test/precision_at_1", "test/psp_at_5", "seconds/model"}
    sections = {section["uuid"] for section in state["compareRunSections"]}
    assert {chart["metricSectionId"] for chart in state["compareRunCharts"]} == sections

    run = TrackedRun.open("nest", "0001", "first")
    run.log_progress(0, {"train/rows": 1234567.0, "train/loss": 1 / 3})
    run.end("FINISHED")
    assert client.get_run(run.id).data.metrics == {"train/rows": 1234567.0, "train/loss": 0.333333}
