"""The study of samplers on the real command line: tuned on dev, raced on test, children of one MLflow run."""

import json
import sqlite3
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from flows.params import SamplingStudyParams
from tests.workplace import SMALL, Workplace

PRESET = """
name: small-race
data: {reader: {kind: generated, group_size: 1, noise: 0.4}, holdout: {dev: 0.2}}
model: {kind: negative-sampling, labels: first, held_out_share: 0, dimensions: 32, tree_dimensions: 4}
contenders:
  - {method: adversarial, grid: {learning_rate: [0.0001, 0.1], first_biases: [zero, inverse]}}
  - {method: uniform, grid: {learning_rate: [0.1]}}
  - {method: softmax, grid: {learning_rate: [0.1], prior_variance: [10]}, epochs: 2}
tuning: {epochs: 1, split: dev, rows: 50}
race: {epochs: 3, split: test, rows: 80}
"""


def test_settings_are_tuned_on_dev_and_every_method_has_a_curve_and_a_child_run(
    workplace: Workplace, tmp_path: Path
) -> None:
    preset = tmp_path / "study.yaml"
    preset.write_text(PRESET)
    words = ["sampling-study", str(preset), *[word for setting in SMALL for word in ("--set", setting)]]
    done = workplace.run(*words, "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    rows = {row["method"]: row for row in summary["race"]}
    assert list(rows) == ["adversarial", "uniform", "softmax"]
    assert rows["adversarial"]["settings"].startswith("learning_rate 0.1, first_biases ")
    assert rows["adversarial"]["times_sooner"] == 1
    assert rows["adversarial"]["sampler_seconds"] > 0 == rows["uniform"]["sampler_seconds"]
    kinds = [step["artifact"].split("/")[0] for step in summary["steps"]]
    assert (kinds.count("tree"), kinds.count("embedding"), kinds.count("choice")) == (1, 1, 3)
    assert kinds.count("curve") == 6 + 3

    store = workplace.home / "store"
    curves = pq.read_table(store / summary["result"] / "curves.parquet").to_pandas()
    for method, curve in curves.groupby("method"):
        assert curve["cpu_seconds"].is_monotonic_increasing
        assert curve["cpu_seconds"].iloc[0] > rows[method]["sampler_seconds"]
        whole = [epoch for epoch in curve["epoch"] if epoch >= 1]
        assert whole == ([1, 2] if method == "softmax" else [1, 2, 3])
        assert (curve["epoch"] < 1).sum() == 4  # 20 steps an epoch: after 1, 2, 5 and 10
        assert curve["accuracy"].iloc[-1] == rows[method]["accuracy"] > 0.3
    with sqlite3.connect(workplace.home / "mlflow.db") as database:
        parents = database.execute("select value from tags where key = 'mlflow.parentRunId'").fetchall()
        (unfinished,) = database.execute("select count(*) from runs where status != 'FINISHED'").fetchone()
        (points,) = database.execute("select count(*) from metrics where key = 'curve/accuracy'").fetchone()
    assert parents == [(summary["mlflow_run"],)] * 3
    assert unfinished == 0
    assert points == len(curves)
    (plot,) = workplace.home.glob(f"mlflow-files/*/{summary['mlflow_run']}/artifacts/plots/race.png")
    assert plot.stat().st_size > 5000

    again = workplace.run(*words)
    assert "Nothing changed" in again.stdout
    assert "(1.0x)" in again.stdout
    longer = workplace.run(*words, "--set", "race.epochs=4", "--plan", "--json")
    steps = json.loads(longer.stdout)
    assert [step["artifact"].split("/")[0] for step in steps if not step["made"]] == ["curve", "curve", "race"]


@pytest.mark.parametrize(("tuning", "race"), [("test", "dev"), ("dev", "dev")])
def test_rows_of_the_race_never_choose_the_settings(tuning: str, race: str) -> None:
    with pytest.raises(ValidationError, match="settings must be chosen on other rows"):
        SamplingStudyParams.model_validate(
            {
                "data": {"reader": {"kind": "generated"}},
                "contenders": [{"method": "uniform"}],
                "tuning": {"split": tuning},
                "race": {"split": race},
            }
        )
