"""A study on the real command line: children of one MLflow run, a table, and nothing to do the second time."""

import json
import sqlite3
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from flows.params import PipelineParams
from flows.pipeline import plan_pipeline
from flows.presets import load_params
from flows.studies import _plan, plan_study
from flows.study_params import StudyParams
from tests.workplace import SMALL, Workplace

PRESET = """
name: small-study
data: {reader: {kind: generated, group_size: 1}}
evaluation: {n_bootstrap: 50}
factors:
  grouping: [null, {kind: random, size: 2}, {kind: clusters, depth: 5}]
  imputer: [{kind: baseline}, {kind: disaggregate}]
compare_with: {grouping: null}
plot: lines
"""
BASE: dict[str, Any] = {"data": {"reader": {"kind": "generated", "group_size": 1}}}


def words_of(preset: Path, text: str, *overrides: str) -> list[str]:
    preset.write_text(text)
    return ["study", str(preset), *[word for setting in (*SMALL, *overrides) for word in ("--set", setting)]]


def sha256_of_all_files(workplace: Workplace) -> dict[str, dict[str, str]]:
    manifests = [json.loads(path.read_text()) for path in workplace.home.glob("store/*/*/manifest.json")]
    return {
        f"{found['kind']}/{found['id']}": {name: file["sha256"] for name, file in found["files"].items()}
        for found in manifests
    }


def test_a_study_has_a_child_run_for_each_cell_and_a_table(workplace: Workplace, tmp_path: Path) -> None:
    words = words_of(tmp_path / "study.yaml", PRESET)
    done = workplace.run(*words, "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    cells = {(row["grouping"], row["imputer"]) for row in summary["study"]}
    groupings = ("random 2", "clusters 5")
    assert cells == {("none", "any")} | {(name, kind) for name in groupings for kind in ("baseline", "disaggregate")}
    assert {row["metric"] for row in summary["study"]} == {f"precision_at_{k}" for k in (1, 3, 5)}
    for row in summary["study"]:
        assert row["low"] <= row["mean"] <= row["high"]  # of one seed: the cell's own bootstrap
        assert (row["lost_percent"] == 0) if row["grouping"] == "none" else (row["lost_percent"] > 0)
    with sqlite3.connect(workplace.home / "mlflow.db") as database:
        parents = database.execute("select value from tags where key = 'mlflow.parentRunId'").fetchall()
        (unfinished,) = database.execute("select count(*) from runs where status != 'FINISHED'").fetchone()
        tracked = set(database.execute("select value from params where key = 'grouping'").fetchall())
        (measured,) = database.execute("select count(*) from metrics where key = 'test/precision_at_1'").fetchone()
        cost = database.execute("select count(*) from metrics where key = 'usage/seconds/imputed'").fetchone()
    assert parents == [(summary["mlflow_run"],)] * 5
    assert unfinished == 0
    assert tracked == {("none",), ("random 2",), ("clusters 5",)}
    assert (measured, cost) == (5, (4,))
    (plot,) = workplace.home.glob(f"mlflow-files/*/{summary['mlflow_run']}/artifacts/plots/study.png")
    assert plot.stat().st_size > 5000

    again = workplace.run(*words)
    assert "Nothing changed" in again.stdout
    assert "disaggregate" in again.stdout


def test_a_cell_is_what_the_pipeline_makes_and_is_not_made_again() -> None:
    study = plan_study(
        StudyParams.model_validate(BASE | {"factors": {"model": [{"kind": "ova"}, {"kind": "parabel"}]}, "seeds": [3]})
    )
    alone = plan_pipeline(PipelineParams.model_validate(BASE | {"model": {"kind": "parabel"}, "seed": 3}))
    assert study.inputs["cell-0001"].id == alone.evaluation.id


def test_seeds_share_the_dataset_unless_rows_are_held_out_at_random() -> None:
    def datasets(**data: Any) -> int:
        tree = {"data": BASE["data"] | data, "factors": {"model.kind": ["ova"]}, "seeds": [0, 1]}
        return sum(step.kind == "dataset" for step in plan_study(StudyParams.model_validate(tree)).lineage())

    assert datasets() == 1
    assert datasets(holdout={"dev": 0.1}) == 2


def test_a_factor_may_depend_on_an_earlier_one_and_equal_cells_are_one() -> None:
    tree = BASE | {
        "factors": {
            "model.kind": ["ova"],
            "model.loss": ["squared", "squared_hinge"],
            "imputer.kind": ["eagle", "auto"],
        },
        "seeds": [0, 1],
        "compare_with": {"model.loss": "squared"},
    }
    recipe, children = _plan(StudyParams.model_validate(tree))
    cells = recipe.options.cells
    assert [cell.labels for cell in cells[::2]] == [("ova", "squared", "any"), ("ova", "squared_hinge", "any")]
    assert [(cell.seed, cell.reference) for cell in cells] == [(0, 0), (1, 1), (0, 0), (1, 1)]
    assert children.keys() == {source.id for role, source in recipe.inputs.items() if "." not in role}
    assert children[recipe.inputs["cell-0003"].id].parameters == {
        "seed": 1,
        "model.kind": "ova",
        "model.loss": "squared_hinge",
        "imputer.kind": "any",
    }


def test_a_factor_with_a_dotted_path_can_be_set_on_the_command_line(tmp_path: Path) -> None:
    preset = tmp_path / "study.yaml"
    preset.write_text("data: {reader: {kind: generated}}\nfactors: {model.kind: [ova, parabel]}\n")
    overrides = ["factors.model.kind=[ova]", "factors.evaluation.ks=[[1], [1, 2]]"]
    params = load_params(StudyParams, preset, overrides)
    assert params.factors == {"model.kind": ("ova",), "evaluation.ks": ([1], [1, 2])}
    assert params.levels()["evaluation.ks"][1].label == "1, 2"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"factors": {"modell": [1]}}, r"factors\.modell: .*Extra inputs are not permitted"),
        ({"factors": {"model.kost": [1]}}, r"factors\.model\.kost: .*Extra inputs are not permitted"),
        ({"factors": {"imputer.kind": ["eagle"], "text.max_features": [-1]}}, r"factors\.text\.max_features: got -1"),
        ({"factors": {"grouping.size": [2]}}, r"factors\.grouping\.size: got 2; grouping: Unable to extract tag"),
        (
            {"factors": {"data.train.3": ["x"]}},
            r"factors\.data\.train\.3: .*is not an item of the list",
        ),
        ({"factors": {"seed": [1]}}, r"factors\.seed: it cannot be a factor; list the seeds"),
        ({"factors": {"model.kind": []}}, r"factors\.model\.kind: got no values"),
        ({"factors": {"model.kind": ["ova", "ova"]}}, r"factors\.model\.kind: 'ova' is given twice"),
        ({"compare_with": {"model": "ova"}}, r"compare_with\.model: no such factor; expected one of model\.kind"),
        ({"compare_with": {"model.kind": "omikuji"}}, r"compare_with\.model\.kind: got omikuji, expected one of"),
        ({"metrics": ["accuracy_at_1"]}, "metrics: got accuracy_at_1, expected some of precision_at_1, .*, accuracy, "),
        ({"metrics": ["likelihood"]}, "metrics: got likelihood, expected some of precision_at_1"),
        ({"plot": "lines"}, "plot: lines need a factor with numbers"),
        ({"plot": "curves"}, "plot curves and tuning are for learning curves"),
        ({"curve": {}}, "curve: model ova cannot be measured while it trains"),
    ],
)
def test_a_study_that_cannot_be_run_is_refused_by_the_name_of_what_is_wrong(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        StudyParams.model_validate(BASE | {"factors": {"model.kind": ["ova", "parabel"]}} | changes)


def test_cells_that_run_at_once_make_the_same_bytes(workplace: Workplace, tmp_path: Path) -> None:
    server = workplace.environment["PREFECT_API_URL"]
    homes = [Workplace(tmp_path / name, PREFECT_API_URL=server) for name in ("one", "two")]
    for home, parallel in zip(homes, (1, 2), strict=True):
        done = home.run(*words_of(tmp_path / "study.yaml", PRESET, f"parallel={parallel}"), "--json")
        assert done.returncode == 0, done.stderr
    one, two = map(sha256_of_all_files, homes)
    assert len(one) > 15
    assert one == two
    with sqlite3.connect(homes[1].home / "mlflow.db") as database:
        statuses = database.execute("select status, count(*) from runs group by status").fetchall()
    assert statuses == [("FINISHED", 6)]


def test_a_failing_cell_ends_a_study_that_runs_several_and_keeps_what_was_made(
    workplace: Workplace, tmp_path: Path
) -> None:
    text = PRESET.replace("[null, ", "[null, {kind: given}, ")  # the data has no groups, which only the step finds out
    done = workplace.run(*words_of(tmp_path / "study.yaml", text, "parallel=2"))
    assert done.returncode == 2, done.stderr
    assert "grouper 'given' needs groups in the dataset" in done.stderr
    assert "Traceback" not in done.stderr
    with sqlite3.connect(workplace.home / "mlflow.db") as database:
        statuses = dict(database.execute("select status, count(*) from runs group by status").fetchall())
    assert statuses.pop("FAILED") == 1
    assert set(statuses) <= {"FINISHED"}
    assert list(workplace.home.glob("store/dataset/*/manifest.json"))
    assert not list(workplace.home.glob("store/.staging/*"))


def test_an_interrupt_ends_a_study_that_runs_several_and_it_goes_on_later(workplace: Workplace, tmp_path: Path) -> None:
    text = """
name: long-study
data: {reader: {kind: generated, group_size: 1}}
model: {kind: negative-sampling, epochs: 100000, patience: 0, tree_dimensions: 4}
factors: {model.method: [uniform, frequency]}
parallel: 2
"""
    words = words_of(tmp_path / "study.yaml", text)
    process = workplace.start(*words)
    deadline = time.monotonic() + 200
    while len(list(workplace.home.glob("store/.staging/*"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)  # until both trainings have begun
    time.sleep(1)
    process.terminate()  # ends as Ctrl-C does, also where a shell has told its background jobs to ignore that
    _, told = process.communicate(timeout=120)
    assert process.returncode == 130, told
    assert "finished steps are kept" in told
    with sqlite3.connect(workplace.home / "mlflow.db") as database:
        assert database.execute("select status from runs").fetchall() == [("KILLED",)]
    shorter = words_of(tmp_path / "study.yaml", text.replace("100000", "2"))
    assert workplace.run(*shorter).returncode == 0


def test_a_study_of_several_seeds_has_deviations_and_intervals(workplace: Workplace, tmp_path: Path) -> None:
    text = """
name: seeds
data: {reader: {kind: generated, group_size: 4}}
model: {kind: ova}
evaluation: {n_bootstrap: 0}
factors: {imputer.kind: [baseline, eagle]}
seeds: [0, 1, 2]
metrics: [psp_at_1, imputed/recall]
"""
    done = workplace.run(*words_of(tmp_path / "study.yaml", text), "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert [row["metric"] for row in summary["study"]] == ["psp_at_1", "psp_at_1", "imputed/recall", "imputed/recall"]
    assert {row["n_seeds"] for row in summary["study"]} == {3}
    assert summary["tables"][0]["columns"] == ["imputer.kind", "psp@1, %", "imputed/recall, %"]
    cells = pq.read_table(workplace.home / "store" / summary["result"] / "cells.parquet")
    assert cells.select(["imputer.kind", "seed"]).to_pylist()[:2] == [
        {"imputer.kind": "baseline", "seed": 0},
        {"imputer.kind": "baseline", "seed": 1},
    ]
