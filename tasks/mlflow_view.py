"""What MLflow's pages show first of an experiment: a saved view with few columns and charts that answer questions.

MLflow keeps views as tags of the experiment. Without one, its table shows no metric at all, and its charts begin with
the memory of every step, in the order of the alphabet.
"""

from __future__ import annotations

import json
from typing import Any

VIEW_KEY = "eyrie"
VIEW_NAME = "Quality and cost"
COLUMN_WIDTHS = {
    "params.`model.kind`": 120,
    "params.`imputer.kind`": 120,
    "metrics.`test/precision_at_1`": 150,
    "metrics.`test/precision_at_5`": 150,
    "metrics.`test/psp_at_5`": 120,
    "metrics.`test/tail/recall_at_5`": 160,
    "metrics.`seconds/imputed`": 140,
    "metrics.`seconds/model`": 130,
}
BAR_CHARTS = {
    "Quality": ("test/precision_at_1", "test/precision_at_5", "test/psp_at_5", "test/tail/recall_at_5"),
    "Cost": ("seconds/imputed", "seconds/model"),
}
PARALLEL = "Side by side"
PARALLEL_PARAMS = ("model.kind", "imputer.kind")
PARALLEL_METRICS = ("test/precision_at_1", "test/precision_at_5", "test/psp_at_5", "seconds/model")


def experiment_tags() -> dict[str, str]:
    """Tags of a new experiment: that it is about training models, and the view."""
    view = {"name": VIEW_NAME, "createdAt": 0, "updatedAt": 0, "state": json.dumps(_state())}
    return {
        "mlflow.experimentKind": "custom_model_development",
        "mlflow.experiment.primaryMetric.name": "test/precision_at_1",
        f"mlflow.sharedViewState.{VIEW_KEY}": json.dumps(view),
    }


def view_link(server: str, experiment_id: str) -> str:
    """The address of the runs of an experiment, shown in the view."""
    return f"{server}/#/experiments/{experiment_id}/runs?viewStateShareKey={VIEW_KEY}&workflowType=machine_learning"


def run_link(server: str, experiment_id: str, run_id: str) -> str:
    """The address of a run."""
    return f"{server}/#/experiments/{experiment_id}/runs/{run_id}?workflowType=machine_learning"


def _state() -> dict[str, Any]:
    """What MLflow's page of runs keeps in the browser, in its own words."""
    bars = [
        _chart("BAR", section, metric) | {"metricKey": metric}
        for section, metrics in BAR_CHARTS.items()
        for metric in metrics
    ]
    chosen = {"selectedParams": PARALLEL_PARAMS, "selectedMetrics": PARALLEL_METRICS, "showAllRuns": False}
    return {
        "searchFilter": "",
        "orderByKey": "attributes.start_time",
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": list(COLUMN_WIDTHS),
        "columnOrder": list(COLUMN_WIDTHS),
        "columnWidths": COLUMN_WIDTHS,
        "compareRunSections": [_section(name, 2) for name in BAR_CHARTS] + [_section(PARALLEL, 1)],
        "compareRunCharts": [*bars, _chart("PARALLEL", PARALLEL, "parallel") | chosen],
        "isAccordionReordered": True,  # keeps the sections in this order, and not in the alphabet's
    }


def _section(name: str, n_columns: int) -> dict[str, Any]:
    shown = {"display": True, "isReordered": True, "deleted": False, "isGenerated": False}
    return {"uuid": name, "name": name, "columns": n_columns, **shown}


def _chart(kind: str, section: str, uuid: str) -> dict[str, Any]:
    shown = {"runsCountToCompare": 20, "deleted": False, "isGenerated": False}
    return {"type": kind, "uuid": uuid, "metricSectionId": section, **shown}
