"""Retrain, promote, roll back and score on the real command line, with a real Prefect server and a real registry."""

import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.small_models import write_texts
from tests.workplace import Workplace

KILLED = ("-m", "tests.flows.killed")
POOR, GOOD = "text.max_features=4", "text.max_features=200"


@pytest.fixture
def preset(tmp_path: Path) -> Path:
    """Texts with one label each: a model that knows few words is much worse than one that knows all."""
    data = tmp_path / "data"
    files = {split: str(write_texts(data / f"{split}.jsonl", n, seed)) for split, n, seed in
             (("train", 1000, 0), ("test", 100, 1))}  # fmt: skip
    tree = {
        "name": "zoo",
        "data": {
            "reader": {"kind": "jsonl", "text": "text", "id": "id"},
            "train": [files["train"]],
            "test": [files["test"]],
        },
        "text": {"kind": "tfidf"},
        "model": {"kind": "ova"},
        "promotion": {"metric": "precision_at_1"},
        "evaluation": {"n_bootstrap": 100},
    }
    path = tmp_path / "zoo.yaml"
    path.write_text(json.dumps(tree))
    return path


def words(preset: Path, *overrides: str) -> tuple[str, ...]:
    return ("retrain", str(preset), "--json", *(word for setting in overrides for word in ("--set", setting)))


def done(workplace: Workplace, *words: str) -> Any:
    finished = workplace.run(*words)
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout.splitlines()[-1])


def query(workplace: Workplace, text: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(workplace.home / "mlflow.db") as database:
        return list(database.execute(text))


def aliases(workplace: Workplace) -> dict[str, int]:
    return dict(query(workplace, "select alias, version from registered_model_aliases"))


def test_the_better_model_becomes_champion_and_one_command_goes_back(workplace: Workplace, preset: Path) -> None:
    first = done(workplace, *words(preset, POOR))
    assert first["promotion"]["reason"] == "there was no champion to compare with"
    assert aliases(workplace) == {"champion": 1, "challenger": 1}
    assert "a tenth of the train rows was held out as dev" in first["says"][1]

    assert workplace.run("compare_models", "half", *words(preset, GOOD), script=KILLED).returncode == -9
    assert aliases(workplace) == {"champion": 1, "challenger": 1}
    better = done(workplace, *words(preset, GOOD))
    assert all(step["cached"] for step in better["steps"])  # only the comparison was left to make
    assert better["promotion"]["promoted"]
    assert better["promotion"]["difference"] > 0.1
    assert better["promotion"]["rows"] == 100
    assert aliases(workplace) == {"champion": 2, "challenger": 2}
    logged = dict(query(workplace, f"select key, value from metrics where run_uuid = '{better['mlflow_run']}'"))
    assert logged["promotion/share_above_margin"] == better["promotion"]["share_above_margin"] >= 0.95

    again = done(workplace, *words(preset, GOOD))
    assert again["nothing_changed"]
    assert len(query(workplace, "select version from model_versions")) == 2

    worse = done(workplace, *words(preset, "text.max_features=3"))
    assert not worse["promotion"]["promoted"]
    assert worse["promotion"]["difference"] < 0
    assert aliases(workplace) == {"champion": 2, "challenger": 3}
    report = workplace.home / "store" / worse["comparison"]
    assert json.loads((report / "comparison.json").read_text())["decision"] == "keep"
    assert pq.read_table(report / "metrics.parquet")["metric"][0].as_py() == "precision_at_1"

    (page,) = workplace.home.glob(f"mlflow-files/*/{worse['mlflow_run']}/artifacts/report.html")
    assert "<h1>zoo · " in page.read_text()
    assert "The champion is <bdi>zoo version 2</bdi>. Both were measured on the same rows." in page.read_text()

    assert done(workplace, "models", "rollback", "zoo", "--json") == {"champion": 1, "rolled_back": 2}
    refused = done(workplace, *words(preset, GOOD))
    assert "rolled back to version 1 by hand" in refused["promotion"]["reason"]
    assert aliases(workplace) == {"champion": 1, "challenger": 2}


def test_new_data_is_ingested_and_the_champion_scores_files_by_its_alias(
    workplace: Workplace, preset: Path, tmp_path: Path
) -> None:
    done(workplace, *words(preset, POOR))
    train = tmp_path / "data" / "train.jsonl"
    more = write_texts(tmp_path / "more.jsonl", 50, seed=9, first=1000)
    train.write_text(train.read_text() + more.read_text())
    grown = done(workplace, *words(preset, GOOD))
    assert [step["cached"] for step in grown["steps"]] == [False] * len(grown["steps"])
    assert grown["promotion"]["promoted"]
    assert grown["promotion"]["split"] == "dev"
    assert grown["promotion"]["rows"] > 90  # of 105: nearly all dev rows of the champion are dev rows still

    rows = write_texts(tmp_path / "new.jsonl", 30, seed=5)
    output = tmp_path / "scores.parquet"
    reader = {"kind": "jsonl", "text": "text", "id": "id"}
    order = tmp_path / "score.yaml"
    order.write_text(json.dumps({"name": "zoo", "rows": {"reader": reader, "files": [str(rows)]}, "cut": {"k": 2}}))
    scored = done(workplace, "score", str(order), "--json", "--set", f"output={output}")
    assert scored["scored"]["rows"] == 30
    assert scored["scored"]["rows_per_second"] > 0
    table = pq.read_table(output)
    assert table["id"].to_pylist() == [f"new-{number}" for number in range(30)]
    wanted = [json.loads(line)["labels"] for line in rows.read_text().splitlines()]
    assert sum(got[:1] == label for got, label in zip(table["labels"].to_pylist(), wanted, strict=True)) > 24
    output.unlink()
    again = done(workplace, "score", str(order), "--json", "--set", f"output={output}")
    assert again["nothing_changed"]
    assert output.is_file()

    shown = workplace.run("models", "ls", "zoo").stdout
    assert "nDCG@5" in shown
    assert re.search(r"│ \w[\w-]+ +│ \d+\.\d\d +│ 20\d\d-", shown), "kind, metric and date of a version"
    listed = done(workplace, "models", "ls", "zoo", "--json")
    assert [version["aliases"] for version in listed] == [["challenger", "champion"], []]
    missing = workplace.run("score", str(order), "--set", "model=7")
    assert missing.returncode == 2
    assert "no version '7' of the registered model 'zoo'; there are: 2 challenger champion, 1" in missing.stderr
    assert "Traceback" not in missing.stderr
