"""What MLflow's pages show first of an experiment: a saved view with few columns and charts that answer questions.

MLflow keeps views as tags of the experiment. Without one, its table shows no metric at all, and its charts begin with
the memory of every step, in the order of the alphabet.
"""

from __future__ import annotations

import json
from typing import Any

from xcore.metrics.family import headline_metrics

VIEW_KEY = "eyrie"
VIEW_NAME = "Quality and cost"
FIRST_RANK, LAST_RANK = 1, 5  # the usual ranks of an evaluation
METRIC_WIDTH = 150


def _headline_keys() -> tuple[str, ...]:
    """The first headline metric at both ranks, the others at the last; of those with rates by part, the tail's."""
    first, *others = [metric for metric in headline_metrics() if metric.ranked]
    keys = list(first.ranks((FIRST_RANK, LAST_RANK)))
    for metric in others:
        keys += [f"{'tail/' if metric.shows_parts else ''}{key}" for key in metric.ranks((LAST_RANK,))]
    return tuple(f"test/{key}" for key in keys)


QUALITY = _headline_keys()
COST = ("usage/seconds/imputed", "usage/seconds/model")
COLUMN_WIDTHS = {
    "params.`model.kind`": 120,
    "params.`imputer.kind`": 120,
    **{f"metrics.`{key}`": METRIC_WIDTH for key in (*QUALITY, *COST)},
}
BAR_CHARTS = {"Quality": QUALITY, "Cost": COST}
PARALLEL = "Side by side"
PARALLEL_PARAMS = ("model.kind", "imputer.kind")
PARALLEL_METRICS = (*(key for key in QUALITY if "/tail/" not in key), "usage/seconds/model")


def experiment_tags() -> dict[str, str]:
    """Tags of a new experiment: that it is about training models, and the view."""
    view = {"name": VIEW_NAME, "createdAt": 0, "updatedAt": 0, "state": json.dumps(_state())}
    return {
        "mlflow.experimentKind": "custom_model_development",
        "mlflow.experiment.primaryMetric.name": QUALITY[0],
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
