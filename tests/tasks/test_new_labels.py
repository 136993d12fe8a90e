"""Labels that the training never saw are predicted by their names: in scores, and by a registered model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.plans import plan_data
from flows.score import ScoreParams
from tasks import settings
from tasks.champions import promote
from tasks.fit import model_recipe
from tasks.ingest import dataset_recipe
from tasks.model_parts import parts_of
from tasks.model_registry import register
from tasks.score import ModelParts, open_scorer, scores_recipe
from tasks.served_model import served_parts
from tests.small_models import LABELS, write_texts
from xcore.data.source import LabelFile, Source
from xcore.errors import ConfigError
from xcore.inference.batches import Batch
from xcore.inference.scorer import Cut, Scorer
from xcore.models.base import Model
from xcore.models.ensemble import Ensemble, Member
from xcore.models.memory import Memory
from xcore.models.ova import Ova
from xcore.models.siamesexml import SiameseXml
from xcore.siamese.options import SiameseEncoder
from xcore.text.tfidf import HashedTfidf, Tfidf

NEW_TEXT = "word3 word17 word8"
WITH_MEMORY = Ensemble(members=(Member(model=Ova()), Member(model=Memory())))
SIAMESE = SiameseXml(encoder=SiameseEncoder(dimensions=24, epochs=5, learning_rate=0.02))
OF_TEXTS = Ensemble(members=(Member(model=Ova()), Member(model=Memory(), text=HashedTfidf(n_features=4096))))


def made(model: Model, folder: Path) -> ModelParts:
    """A model of texts whose labels have names: words that their texts have."""
    table = "".join(json.dumps({"id": key, "name": f"{key}0 {key}1 {key}2"}) + "\n" for key in LABELS)
    (folder / "labels.jsonl").write_text(table)
    files: dict[str, Any] = {"train": [write_texts(folder / "train.jsonl", 90, 0)], "labels": folder / "labels.jsonl"}
    source = Source.model_validate({"reader": {"kind": "jsonl", "text": "text"}, "holdout": {"test": 0}, **files})
    data = plan_data(dataset_recipe(source, 0), "text", Tfidf())
    recipe = model_recipe(model, data.forms, data.inputs(), 0)
    for step in recipe.lineage():
        settings.store().make(step)
    return parts_of(recipe.ref)


def more_labels(folder: Path) -> LabelFile:
    """A table with a known label and a new one."""
    path = folder / "more.csv"
    path.write_text(f"id,name\nbee,bee0 bee1 bee2\nnew,{NEW_TEXT}\n")
    return LabelFile(path=path)


def opened(parts: ModelParts) -> Scorer:
    return open_scorer(parts.used, {role: settings.store().open(one.ref) for role, one in parts.inputs().items()})


@pytest.mark.parametrize(
    "model", [Memory(), WITH_MEMORY, OF_TEXTS, SIAMESE], ids=["memory", "ensemble", "texts", "siamesexml"]
)
def test_a_score_run_offers_labels_of_another_table(model: Model, registry_home: Path) -> None:
    parts = made(model, registry_home)
    (registry_home / "rows.jsonl").write_text(
        "".join(json.dumps({"text": text}) + "\n" for text in (NEW_TEXT, "bee1 bee2"))
    )
    rows = Batch.model_validate({"reader": {"kind": "jsonl", "text": "text"}, "files": [registry_home / "rows.jsonl"]})
    plain = scores_recipe(parts, rows, Cut(k=6), names=True, block_mb=1)
    more = scores_recipe(parts, rows, Cut(k=6), names=True, block_mb=1, labels=more_labels(registry_home))
    assert plain.id != more.id
    found = {
        recipe.id: pq.read_table(settings.store().make(recipe).artifact.directory / "scores.parquet")
        for recipe in (plain, more)
    }
    assert all("new" not in labels for labels in found[plain.id]["labels"].to_pylist())
    first, second = found[more.id]["labels"].to_pylist()
    assert "new" in first
    assert second[0] == "bee"
    assert NEW_TEXT in found[more.id]["names"].to_pylist()[0]
    if isinstance(model, Memory):
        assert first[0] == "new", "its own name is the nearest key"


def test_a_model_that_knows_labels_by_rows_alone_refuses_more(registry_home: Path) -> None:
    parts = made(Ova(), registry_home)
    with pytest.raises(ConfigError, match="1 labels that the model was not trained on, such as 'new': only a model"):
        opened(parts).with_labels(["bee", "new"], ["bee", "a new one"])
    assert opened(parts).with_labels(["bee"], ["bee"]).label_ids.to_pylist() == list(LABELS), "nothing is new"
    two = made(Ensemble(), registry_home)
    with pytest.raises(ConfigError, match="no member of the ensemble can predict labels"):
        opened(two).with_labels(["new"], ["a new one"])


def test_a_path_alone_names_a_label_table() -> None:
    rows = {"reader": {"kind": "jsonl", "text": "text"}, "files": ["x.jsonl"]}
    params = ScoreParams.model_validate({"rows": rows, "labels": "more.csv"})
    assert params.labels == LabelFile(path=Path("more.csv"))


@pytest.mark.parametrize("model", [Memory(), SIAMESE], ids=["memory", "siamesexml"])
def test_a_registered_model_serves_the_labels_that_it_was_registered_with(model: Model, registry_home: Path) -> None:
    import mlflow
    import pandas as pd

    parts, labels = made(model, registry_home), more_labels(registry_home)
    plain, _ = register("nest", parts, None)
    version, is_new = register("nest", parts, None, labels)
    assert is_new
    assert version.number != plain.number
    assert register("nest", parts, None, labels) == (version, False)
    promote(version)
    asked = pd.DataFrame({"text": [NEW_TEXT, "bee1 bee2"]})
    first, second = mlflow.pyfunc.load_model("models:/nest@champion").predict(asked)["labels"]
    assert "new" in first
    assert second[0] == "bee"
    if isinstance(model, Memory):
        assert first[0] == "new", "its own name is the nearest key"
    assert "new" not in mlflow.pyfunc.load_model(f"models:/nest/{plain.number}").predict(asked)["labels"][0]


def test_extras_are_among_the_requirements_of_a_served_model(registry_home: Path) -> None:
    pytest.importorskip("faiss")
    needed = served_parts(made(WITH_MEMORY, registry_home), None, registry_home)["pip_requirements"]
    assert [line for line in needed if line.startswith("faiss-cpu==")]
    assert not [line for line in needed if line.startswith("transformers")]


def test_a_scorer_takes_a_longer_table_if_the_model_allows_it(registry_home: Path) -> None:
    scorer = opened(made(Memory(), registry_home))
    ids, names = (pa.chunked_array([[*table.to_pylist(), "new"]]) for table in (scorer.label_ids, scorer.label_names))
    longer = Scorer.of_labels(scorer.fitted, "text", ids, names, scorer.text)
    assert longer.fitted.n_labels == len(LABELS) + 1
    with pytest.raises(ConfigError, match="knows 6 labels but the label table has 7"):
        Scorer(scorer.fitted, "text", ids, names, scorer.text)
