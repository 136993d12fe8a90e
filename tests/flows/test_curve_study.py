"""A study of learning curves on the real command line: tuned on dev, measured on test, children of one MLflow run."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from pydantic import ValidationError

from flows.studies import plan_study
from flows.study_params import StudyParams
from tests.workplace import SMALL, Workplace
from xcore.errors import ConfigError

PRESET = """
name: small-curves
data: {reader: {kind: generated, group_size: 1, noise: 0.4}, holdout: {dev: 0.2}}
model:
  kind: negative-sampling
  labels: first
  held_out_share: 0
  embedding: {kind: pca, dimensions: 32}
  tree_dimensions: 4
factors: {model.method: [adversarial, uniform, softmax]}
compare_with: {model.method: adversarial}
plot: curves
curve: {epochs: 3, split: test, rows: 80}
tuning:
  epochs: 1
  split: dev
  rows: 50
  grids:
    adversarial: {model.learning_rate: [0.0001, 0.1], model.first_biases: [zero, inverse]}
    uniform: {model.learning_rate: [0.0001, 0.1]}
    softmax: {model.learning_rate: [0.1], model.prior_variance: [10]}
"""


def params(**changes: Any) -> StudyParams:
    return StudyParams.model_validate(yaml.safe_load(PRESET) | changes)


def test_settings_are_tuned_on_dev_and_every_method_has_a_curve_and_a_child_run(
    workplace: Workplace, tmp_path: Path
) -> None:
    preset = tmp_path / "study.yaml"
    preset.write_text(PRESET)
    words = ["study", str(preset), *[word for setting in SMALL for word in ("--set", setting)]]
    done = workplace.run(*words, "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    store = workplace.home / "store"
    rows: dict[str, dict[str, Any]] = {}
    for row in pq.read_table(store / summary["result"] / "summary.parquet").to_pylist():
        rows.setdefault(row["model.method"], {"note": row["note"]})[row["metric"]] = row["mean"]
    assert list(rows) == ["adversarial", "uniform", "softmax"]
    assert rows["adversarial"]["note"].startswith("learning_rate 0.1, first_biases ")
    assert rows["adversarial"]["times_sooner"] == 1
    assert rows["adversarial"]["sampler_seconds"] > 0 == rows["uniform"]["sampler_seconds"]
    kinds = [step["artifact"].split("/")[0] for step in summary["steps"]]
    assert (kinds.count("sampler"), kinds.count("embedding"), kinds.count("choice")) == (1, 2, 2)
    assert kinds.count("curve") == (4 + 2) + 3  # softmax has nothing to choose from

    curves = pq.read_table(store / summary["result"] / "curves.parquet").to_pandas()
    for method, curve in curves.groupby("model.method"):
        assert curve["cpu_seconds"].is_monotonic_increasing
        assert curve["cpu_seconds"].iloc[0] > rows[method]["sampler_seconds"]
        assert [epoch for epoch in curve["epoch"] if epoch >= 1] == [1, 2, 3]
        assert (curve["epoch"] < 1).sum() == 4  # 20 steps an epoch: after 1, 2, 5 and 10
        assert curve["accuracy"].iloc[-1] == rows[method]["accuracy"] > 0.3
    with sqlite3.connect(workplace.home / "mlflow.db") as database:
        parents = database.execute("select value from tags where key = 'mlflow.parentRunId'").fetchall()
        (unfinished,) = database.execute("select count(*) from runs where status != 'FINISHED'").fetchone()
        (points,) = database.execute("select count(*) from metrics where key = 'curve/accuracy'").fetchone()
    assert parents == [(summary["mlflow_run"],)] * 3
    assert unfinished == 0
    assert points == len(curves)
    (plot,) = workplace.home.glob(f"mlflow-files/*/{summary['mlflow_run']}/artifacts/plots/study.png")
    assert plot.stat().st_size > 5000

    again = workplace.run(*words)
    assert "Nothing changed" in again.stdout
    assert "sooner" in again.stdout
    longer = workplace.run(*words, "--set", "curve.epochs=4", "--plan", "--json")
    steps = json.loads(longer.stdout)
    made_anew = [step["artifact"].split("/")[0] for step in steps if not step["made"]]
    assert made_anew == ["curve", "curve", "curve", "study"]


@pytest.mark.parametrize(("tuning", "curve"), [("test", "dev"), ("dev", "dev")])
def test_rows_that_are_measured_never_choose_the_settings(tuning: str, curve: str) -> None:
    with pytest.raises(ValidationError, match="settings must be chosen on other rows"):
        params(tuning={"split": tuning}, curve={"split": curve})


@pytest.mark.parametrize(
    ("grids", "message"),
    [
        ({"adverserial": {}}, r"tuning\.grids\.adverserial: no such level; expected one of adversarial, softmax"),
        ({"softmax": {"imputer.kind": ["eagle"]}}, r"tuning\.grids\.softmax\.imputer\.kind: expected an option of the"),
    ],
)
def test_grids_are_for_levels_of_the_study_and_options_of_the_model(grids: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        params(tuning={"grids": grids})


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({"model.learning_rate": [-1.0]}, r"tuning\.grids\.model\.learning_rate: got -1\.0; .*greater than 0"),
        ({"model.speed": [1.0]}, r"tuning\.grids\.model\.speed: got 1\.0; .*Extra inputs are not permitted"),
        ({"model.tree_dimensions": [4, 8]}, r"model\.tree_dimensions change the embedding or the sampler"),
    ],
)
def test_a_grid_that_cannot_be_tried_is_refused_before_anything_runs(grid: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_study(params(tuning={"grids": {"adversarial": grid}}))


def test_a_split_that_will_not_be_there_is_refused_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match=r"tuning\.split is dev, but the data has no dev split"):
        plan_study(params(data={"reader": {"kind": "generated", "group_size": 1}}))


def test_only_methods_with_a_tree_are_measured_anew_when_the_tree_changes() -> None:
    def ids(dimensions: int) -> list[str]:
        model = {"kind": "negative-sampling", "tree_dimensions": dimensions}
        return [source.id for source in plan_study(params(model=model)).inputs.values()]

    same = [before == after for before, after in zip(ids(4), ids(8), strict=True)]
    assert same == [False, True, True]
