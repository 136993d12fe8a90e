"""A fine-tuned transformer in the pipeline: a stage of its own, resumed after a kill, in scores and served."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from flows.params import PipelineParams
from flows.plans import LearningPlan, plan_pipeline
from tasks import settings
from tasks.champions import promote
from tasks.model_parts import parts_of
from tasks.model_registry import register
from tasks.score import scores_recipe
from tasks.served_model import served_parts
from tests.small_models import LABELS, write_texts
from tests.tiny_encoder import write_tiny_encoder
from xcore.artifacts import Recipe
from xcore.data.source import LabelFile
from xcore.inference.batches import Batch
from xcore.inference.scorer import Cut
from xcore.text.transformer import FittedTransformer
from xcore.training import checkpoints

pytest.importorskip("transformers", reason="the extra eyrie[transformer] is not installed")
NEW_TEXT = "word3 word17 word8"


def planned(folder: Path, **changes: Any) -> LearningPlan:
    """A pipeline from files to an evaluation; label names are words that the texts of the label have."""
    table = "".join(json.dumps({"id": key, "name": f"{key}0 {key}1 {key}2"}) + "\n" for key in LABELS)
    (folder / "labels.jsonl").write_text(table)
    train, test = write_texts(folder / "train.jsonl", 300, 0), write_texts(folder / "test.jsonl", 30, 1)
    transformer = {"encoder": str(folder / "encoder"), "max_tokens": 32, "batch_size": 8}
    fine_tuning = {"transformer": transformer, "layers": 1, "epochs": 3, "batch_size": 32, "learning_rate": 0.005}
    model = {
        "kind": "siamesexml",
        "fine_tuning": fine_tuning | {"temperature": 0.2},
        "encoder": {"epochs": 2},
        "classifiers": {"epochs": 4, "learning_rate": 0.01},
    }
    files = {"train": [train], "test": [test], "labels": folder / "labels.jsonl"}
    data = {"reader": {"kind": "jsonl", "text": "text"}, "holdout": {"dev": 0.1}}
    tree = {"data": data | files, "model": model | changes, "evaluation": {"ks": [1, 5], "n_bootstrap": 0}}
    return plan_pipeline(PipelineParams.model_validate(tree))


def made(plan: LearningPlan) -> Any:
    return [settings.store().make(step).artifact for step in plan.evaluation.lineage()][-1]


def stage_of(plan: LearningPlan) -> Recipe:
    return plan.model.inputs["transformer"]


def test_it_is_an_artifact_of_its_own_that_knows_the_files_of_its_encoder(registry_home: Path) -> None:
    write_tiny_encoder(registry_home / "encoder", dimensions=32, layers=2)
    first, other_head, joint = (
        planned(registry_home),
        planned(registry_home, n_candidates=3),
        planned(registry_home, joint_epochs=1),
    )
    assert {stage_of(plan).id for plan in (other_head, joint)} == {stage_of(first).id}
    assert len({plan.model.id for plan in (first, other_head, joint)}) == 3
    assert {step.kind for step in first.evaluation.lineage()}.isdisjoint({"vocabulary", "features"})
    write_tiny_encoder(registry_home / "encoder", dimensions=16, layers=2)
    assert stage_of(planned(registry_home)).id != stage_of(first).id
    evaluation = made(joint)
    assert evaluation.manifest.counts["rows"] == 30
    stage = settings.store().open(stage_of(joint).ref)
    assert stage.manifest.counts["dimensions"] == 16
    assert stage.manifest.counts["rows"] == {"train": 270, "dev": 30, "test": 30}


class Killed(Exception):
    """Stands for a signal."""


def test_a_killed_stage_goes_on_to_the_same_bits(registry_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tiny_encoder(registry_home / "encoder", dimensions=32, layers=2)
    monkeypatch.setattr(checkpoints, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(checkpoints, "CHECKPOINT_SHARE", 1e9)

    def files(name: str, stop_at: int | None = None, stop_in_block: int | None = None) -> Mapping[str, Any]:
        monkeypatch.setenv("EYRIE_HOME", str(registry_home / name))
        encode = FittedTransformer.transform

        def report(step: int, total: int, metrics: Mapping[str, float] | None = None) -> None:
            steps.append(step)
            if stop_at is not None and step >= stop_at:
                raise Killed

        def counted(self: FittedTransformer, texts: list[str]) -> Any:
            blocks.append(len(texts))
            if len(blocks) == stop_in_block:
                raise Killed
            return encode(self, texts)

        steps.clear()
        blocks.clear()
        with monkeypatch.context() as patch:
            patch.setattr(FittedTransformer, "transform", counted)
            return made_files(report)

    def made_files(report: Any) -> Mapping[str, Any]:
        for step in stage_of(planned(registry_home)).lineage():
            artifact = settings.store().make(step, report=report).artifact
        return artifact.manifest.files

    steps: list[int] = []
    blocks: list[int] = []
    whole = files("whole")
    assert blocks == [270, 30, 30], "the rows of each split"
    with pytest.raises(Killed):
        files("killed", stop_at=20)
    with pytest.raises(Killed):
        files("killed", stop_in_block=2)
    assert min(step for step in steps if step) > 15, "the training does not start again"
    assert files("killed") == whole
    assert blocks == [30, 30], "the vectors of the first block are kept"


def test_it_is_scored_and_served_with_labels_that_it_was_not_trained_on(registry_home: Path) -> None:
    import mlflow
    import pandas as pd

    write_tiny_encoder(registry_home / "encoder", dimensions=32, layers=2)
    plan = planned(registry_home)
    made(plan)
    parts = parts_of(plan.model.ref)
    needed = served_parts(parts, None, registry_home)["pip_requirements"]
    assert {line.split("==")[0] for line in needed} >= {"torch", "transformers", "tokenizers"}
    (registry_home / "more.csv").write_text(f"id,name\nbee,bee0 bee1 bee2\nnew,{NEW_TEXT}\n")
    more = LabelFile(path=registry_home / "more.csv")
    (registry_home / "rows.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in (NEW_TEXT, "")))
    rows = Batch.model_validate({"reader": {"kind": "jsonl", "text": "text"}, "files": [registry_home / "rows.jsonl"]})
    scored = settings.store().make(scores_recipe(parts, rows, Cut(k=7), names=True, block_mb=1, labels=more)).artifact
    table = pq.read_table(scored.directory / "scores.parquet")
    assert "new" in table["labels"].to_pylist()[0]
    assert table["known"].to_pylist() == [True, False]
    promote(register("nest", parts, None, more)[0])
    answer = mlflow.pyfunc.load_model("models:/nest@champion").predict(pd.DataFrame({"text": [NEW_TEXT]}))
    assert answer["labels"][0] == table["labels"].to_pylist()[0][:5]
