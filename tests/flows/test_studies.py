"""A study on the real command line: children of one MLflow run, a table, and nothing to do the second time."""

import json
import sqlite3
from pathlib import Path

from tests.workplace import SMALL, Workplace

PRESET = """
name: small-study
data: {reader: {kind: generated, group_size: 1}}
groupings: [{kind: random, size: 2}, {kind: clusters, depth: 5}]
imputers: [{kind: baseline}, {kind: disaggregate}]
"""


def test_a_study_has_a_child_run_for_each_cell_and_a_table(workplace: Workplace, tmp_path: Path) -> None:
    preset = tmp_path / "study.yaml"
    preset.write_text(PRESET)
    words = ["aggregate-study", str(preset), *[word for setting in SMALL for word in ("--set", setting)]]
    done = workplace.run(*words, "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    cells = {(row["grouping"], row["method"]) for row in summary["study"]}
    groupings = ("random 2", "clusters 5")
    assert cells == {("", "oracle")} | {(name, kind) for name in groupings for kind in ("baseline", "disaggregate")}
    assert {row["metric"] for row in summary["study"]} == {f"precision_at_{k}" for k in (1, 3, 5)}
    with sqlite3.connect(workplace.home / "mlflow.db") as database:
        parents = database.execute("select value from tags where key = 'mlflow.parentRunId'").fetchall()
        (unfinished,) = database.execute("select count(*) from runs where status != 'FINISHED'").fetchone()
    assert parents == [(summary["mlflow_run"],)] * 5
    assert unfinished == 0
    (plot,) = workplace.home.glob(f"mlflow-files/*/{summary['mlflow_run']}/artifacts/plots/study.png")
    assert plot.stat().st_size > 5000

    again = workplace.run(*words)
    assert "Nothing changed" in again.stdout
    assert "disaggregate" in again.stdout
