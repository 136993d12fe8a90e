"""What people see of artifacts, by kind; and that nothing beside a kind's own view knows kinds by name."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest

from xcore.artifacts.schemas import KINDS
from xcore.metrics.family import METRICS
from xcore.studies.design import Cell, Level, StudyDesign
from xcore.studies.table import Measured, summarise
from xcore.views.base import View, view_of

ROOT = Path(__file__).parents[3]
GENERIC = (
    *("tasks/execution.py", "tasks/tracking.py", "tasks/tracked_steps.py", "tasks/summary.py"),
    *("tasks/result_page.py", "flows/terminal.py"),
)


def opened(directory: Path, **counts: Any) -> Any:
    return SimpleNamespace(directory=directory, manifest=SimpleNamespace(counts=counts))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_view(kind: str) -> None:
    assert isinstance(view_of(kind), View)


@pytest.mark.parametrize("path", GENERIC)
def test_what_shows_results_lists_no_kinds(path: str) -> None:
    text = (ROOT / path).read_text()
    # `dataset` is named where people may give a dataset's id alone.
    assert [kind for kind in KINDS if f'"{kind}"' in text and kind != "dataset"] == []


def test_an_evaluation_shows_metrics_with_intervals_by_rank_and_tracks_them_by_split(tmp_path: Path) -> None:
    names = [name for name, metric in METRICS.items() if metric.ranked]
    metrics = {f"{name}_at_{k}": 0.5 + k / 100 for name in names for k in (1, 5)}
    metrics |= {f"{third}/{name}_at_{k}": 0.25 for third in ("head", "torso", "tail") for name in names for k in (1, 5)}
    found = {"split": "dev", "metrics": metrics, "intervals": {"precision_at_1": (0.45, 0.55)}}
    (tmp_path / "metrics.json").write_text(json.dumps(found))
    view, artifact = view_of("evaluation"), opened(tmp_path)
    (table,) = view.tables(artifact)
    assert table.columns == ["metric, %", "@1", "@5"]
    assert table.rows[0] == ["precision", "51.00 (45.0-55.0)", "55.00"]
    titles = [name if METRICS[name].unit == "share" else f"{name} (not in %)" for name in names]
    assert [row[0] for row in table.rows] == [*titles, "recall, head", "recall, torso", "recall, tail"]
    assert table.rows[-1] == ["recall, tail", "25.00", "25.00"]
    ((step, tracked),) = view.points(artifact)
    assert step == 0
    assert tracked["dev/precision_at_1"] == 0.51
    assert "dev/tail/recall_at_5" in tracked
    assert "dev/tail/ndcg_at_5" not in tracked
    assert view.facts(artifact)["metrics"] == metrics


def test_metrics_without_ranks_have_a_table_of_their_own_in_their_unit(tmp_path: Path) -> None:
    metrics = {"precision_at_1": 0.5, "accuracy": 0.5, "tail/accuracy": 0.25, "log_likelihood": -2.5}
    intervals = {"accuracy": (0.45, 0.55), "log_likelihood": (-3.0, -2.0)}
    (tmp_path / "metrics.json").write_text(json.dumps({"split": "test", "metrics": metrics, "intervals": intervals}))
    artifact = opened(tmp_path)
    ranked, alone = view_of("evaluation").tables(artifact)
    assert ranked.rows == [["precision", "50.00"]]
    assert alone.rows == [["accuracy, %", "50.00 (45.0-55.0)"], ["log_likelihood", "-2.500 (-3.000 to -2.000)"]]
    assert set(view_of("evaluation").points(artifact)[0][1]) == {
        *("test/precision_at_1", "test/accuracy", "test/log_likelihood")
    }


def test_imputed_labels_are_compared_with_the_truth_where_it_is_known(tmp_path: Path) -> None:
    view = view_of("imputed")
    (tmp_path / "details.json").write_text(json.dumps({"held_out": {"ranking": 0.9}}))
    (tmp_path / "quality.json").write_text(json.dumps({"expected_recall": 0.75}))
    known = opened(tmp_path, truth_expected_recall=0.75, positives=3)
    assert view.sentence(known) == "Imputed labels against the truth: expected recall 0.750"
    assert view.points(known) == [(0, {"imputed/expected_recall": 0.75, "imputed/held_out_ranking": 0.9})]
    assert view.sentence(opened(tmp_path, positives=3)) == ""


def test_without_the_truth_imputed_labels_are_judged_by_held_out_groups(tmp_path: Path) -> None:
    (tmp_path / "details.json").write_text("{}")
    (tmp_path / "quality.json").write_text(json.dumps({"estimated_precision_at_1": 0.625}))
    view, unknown = view_of("imputed"), opened(tmp_path, positives=3)
    assert view.points(unknown) == [(0, {"imputed/held_out_estimated_precision_at_1": 0.625})]
    assert view.sentence(unknown).endswith("estimate that the best label is right in 62.5% of the rows")


def test_a_study_shows_a_row_for_each_cell_with_deviation_interval_and_change(tmp_path: Path) -> None:
    cells = [
        Cell(levels=(Level(label=name),), seed=seed, reference=seed) for name in ("none", "random 2") for seed in (0, 1)
    ]
    values = [0.8, 0.8, 0.4, 0.44]
    measured = [Measured({"precision_at_1": value, "own_seconds": 10 * value, "other": 1.0}) for value in values]
    design = StudyDesign(factors=("grouping",), cells=tuple(cells), metrics=("precision_at_*", "own_seconds"))
    design.save(tmp_path)
    pq.write_table(summarise(design.factors, cells, measured), tmp_path / "summary.parquet")
    (table,) = view_of("study").tables(opened(tmp_path))
    assert table.columns == ["grouping", "precision@1, %", "own seconds"]
    assert table.rows[0][1] == "80.00 ± 0.00 (80.0-80.0) +0.0%"
    assert table.rows[1] == ["random 2", "42.00 ± 2.83 (16.6-67.4) -47.5%", "4.2 ± 0.3 (1.7 to 6.7)"]
    assert {row["metric"] for row in view_of("study").facts(opened(tmp_path))["study"]} == {
        "precision_at_1",
        "own_seconds",
    }


def test_the_lines_of_a_study_are_metrics_too(tmp_path: Path) -> None:
    cells = [
        Cell(levels=(Level(label=str(k), number=k), Level(label=above)), seed=0) for k in (10, 20) for above in "ab"
    ]
    measured = [Measured({"ndcg_at_1": value}) for value in (0.1, 0.2, 0.3, 0.4)]
    for plot in ("lines", "bars"):
        factors = ("model.selection.budget", "model.selection.outlier_above")
        design = StudyDesign(factors=factors, cells=tuple(cells), metrics=("ndcg_at_*",), plot=plot)
        design.save(tmp_path)
        pq.write_table(summarise(design.factors, cells, measured), tmp_path / "summary.parquet")
        expected = [
            (k, {f"study/ndcg_at_1/outlier_above {above}": value})
            for k, above, value in ((10, "a", 0.1), (10, "b", 0.2), (20, "a", 0.3), (20, "b", 0.4))
        ]
        assert view_of("study").points(opened(tmp_path)) == (expected if plot == "lines" else [])
