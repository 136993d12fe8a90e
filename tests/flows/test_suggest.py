"""`eyrie suggest` names rows that a person can label, and labels of rows are used."""

import json
from pathlib import Path

import pytest

from flows.__main__ import main
from flows.params import PipelineParams
from flows.plans import plan_pipeline
from tasks import settings
from tests.small_models import made_model, write_texts
from xcore.models.ova import Ova


def test_the_rows_to_label_come_with_text_and_likely_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EYRIE_HOME", str(tmp_path / "home"))
    files = {"train": [str(write_texts(tmp_path / "train.jsonl", 60, 0))]}
    files["test"] = [str(write_texts(tmp_path / "test.jsonl", 5, 1))]
    tree = {"data": {"reader": {"kind": "jsonl", "id": "id", "text": "text"}, **files}, "model": {"kind": "ova"}}
    tree |= {"grouping": {"kind": "random", "size": 6}, "imputer": {"kind": "baseline"}}
    plan = plan_pipeline(PipelineParams.model_validate(tree))
    for step in plan.model.lineage():
        settings.store().make(step)
    assert main(["suggest", plan.model.id, "--rows", "10", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 10
    assert all(row["row"].startswith("train-") and row["text"] and row["labels"] for row in rows)
    assert len({row["row"] for row in rows}) == 10
    for confidences in (list(row["labels"].values()) for row in rows):
        assert confidences == sorted(confidences, reverse=True)
        assert all(0 < confidence <= 1 for confidence in confidences)
    assert main(["suggest", plan.model.id]) == 0
    assert "train-" in capsys.readouterr().out


def test_a_model_of_labelled_rows_has_nothing_to_suggest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EYRIE_HOME", str(tmp_path / "home"))
    model = made_model(Ova(), "sparse", tmp_path)
    assert main(["suggest", model.id]) == 2
    assert "was not made from imputed labels" in capsys.readouterr().err
