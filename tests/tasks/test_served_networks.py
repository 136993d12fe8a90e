"""Networks as a served model: heads over words, vectors and images, and bags with the row that explains."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

from flows.operations.model_app import model_application
from flows.params import PipelineParams
from flows.plans import plan_pipeline
from tasks import settings
from tasks.champions import promote
from tasks.model_parts import parts_of
from tasks.model_registry import register
from tasks.score import open_scorer
from tests.small_models import texts, write_texts
from tests.tiny_encoder import write_tiny_encoder
from tests.xcore.data.test_images import pair
from xcore.embedding.pca import Pca
from xcore.errors import ConfigError
from xcore.inference.scorer import Scorer
from xcore.numeric.matrices import binary_csr
from xcore.training.context import FitContext
from xcore.training.data import TrainingData

NAME = "nest"


@pytest.fixture(autouse=True, scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One embedded MLflow for all tests: a served model makes its address the one of the process."""
    import mlflow

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EYRIE_HOME", str(tmp_path_factory.mktemp("served")))
        for name in ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI", "EYRIE_STORE"):
            patch.delenv(name, raising=False)
        patch.setenv("MLFLOW_TRACKING_URI", settings.tracking_uri())
        patch.setenv("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "false")
        patch.setattr(sys, "path", list(sys.path))  # MLflow puts the model's own code there
        yield
        mlflow.set_tracking_uri(None)


def text_params(folder: Path, **options: Any) -> dict[str, Any]:
    data = {"train": [write_texts(folder / "train.jsonl", 150, 0)], "test": [write_texts(folder / "test.jsonl", 30, 1)]}
    return {"data": {"reader": {"kind": "jsonl", "id": "id", "text": "text"}, **data}, **options}


def image_params(folder: Path, model: dict[str, Any]) -> dict[str, Any]:
    """Images of two classes, one bright above and one below, in bags of three."""
    classes = np.arange(120) % 2
    images = np.random.default_rng(0).integers(0, 60, (120, 4, 3)).astype(np.uint8)
    images[classes == 0, :2] += 150
    images[classes == 1, 2:] += 150
    data = {"reader": {"kind": "idx"}, "train": [pair(folder, images, classes)]}
    return {"data": data, "grouping": {"kind": "random", "size": 3}, "model": model}


def trained(params: dict[str, Any]) -> Any:
    """The parts of a model that the pipeline's steps made."""
    params["evaluation"] = {"ks": [1], "n_bootstrap": 0}
    plan = plan_pipeline(PipelineParams.model_validate(params))
    made = {recipe.kind: settings.store().make(recipe).artifact for recipe in plan.evaluation.lineage()}
    return parts_of(made["model"].ref)


def served(params: dict[str, Any]) -> TestClient:
    promote(register(NAME, trained(params), None)[0])
    return TestClient(model_application(NAME, "champion"))


@pytest.mark.parametrize("head", [{"kind": "mhc", "lengths": [3, 2]}, {"kind": "mhp-sets"}], ids=["mhc", "mhp-sets"])
def test_a_head_over_words_is_served(tmp_path: Path, head: dict[str, Any]) -> None:
    model = {"kind": "network", "width": 16, "epochs": 20, "head": head}
    client = served(text_params(tmp_path, model=model))
    answer = client.post("/api/suggest", json={"row": {"text": "bee1 bee2 word3"}, "k": 3}).json()
    assert answer["suggestions"][0]["id"] == "bee"
    assert len(answer["suggestions"]) == 3
    assert not client.get("/api/model").json()["bags"]
    refused = client.post("/api/bag", json={"rows": [{"text": "bee1"}]})
    assert refused.status_code == 400
    assert "this model answers single rows" in refused.json()["detail"]


def test_thresholds_of_labels_are_asked_for_by_the_page(tmp_path: Path) -> None:
    params = text_params(tmp_path, model={"kind": "ova"})
    params["data"] = params["data"] | {"holdout": {"dev": 0.3}}
    client, asked = served(params), {"row": {"text": "bee1 bee2 word3"}, "k": 6}
    assert client.get("/api/model").json()["thresholds"]
    all_labels, kept = (
        client.post("/api/suggest", json=asked | more).json()["suggestions"] for more in ({}, {"per_label": True})
    )
    assert len(all_labels) == 6
    assert kept == all_labels[:1]


def opened(params: dict[str, Any]) -> Scorer:
    parts = trained(params)
    return open_scorer(parts.used, {role: settings.store().open(recipe.ref) for role, recipe in parts.inputs().items()})


@pytest.mark.parametrize("kind", ["mhc", "mhs"])
def test_a_head_learns_from_the_vectors_of_a_transformer(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("transformers")
    text = {"kind": "transformer", "encoder": str(write_tiny_encoder(tmp_path / "encoder", 32)), "max_tokens": 32}
    model = {"kind": "network", "width": 64, "epochs": 40, "dropout": 0, "head": {"kind": kind, "lengths": [3, 2]}}
    scorer = opened(text_params(tmp_path, text=text, model=model))
    assert scorer.fitted.form == "vector"
    held_out = texts(30, 1)
    best = scorer.top(pa.record_batch({"text": [text for text, _ in held_out]}), 1).labels[:, 0]
    right = [
        scorer.label_ids[label].as_py() == truth for label, (_, truth) in zip(best.tolist(), held_out, strict=True)
    ]
    assert np.mean(right) > 0.5  # chance: 1/6; the encoder has random weights


@pytest.mark.parametrize("kind", ["mhc", "mhs"])
def test_a_head_learns_from_principal_components(tmp_path: Path, kind: str) -> None:
    """The components of forty noisy features, where each of six classes has a centre of its own."""
    rng = np.random.default_rng(0)
    classes = np.arange(360) % 6
    X = (rng.normal(size=(6, 40))[classes] + 0.5 * rng.normal(size=(360, 40))).astype(np.float32)
    Y = binary_csr(classes, np.arange(361), 6)
    components = Pca(dimensions=5).fit(TrainingData.of(X[:300], Y[:300]), FitContext()).transform(X)
    lines = [
        json.dumps({"vector": row, "labels": [f"c{c}"]}) for row, c in zip(components.tolist(), classes, strict=True)
    ]
    (tmp_path / "train.jsonl").write_text("\n".join(lines[:300]))
    data = {"reader": {"kind": "jsonl", "vector": "vector"}, "train": [tmp_path / "train.jsonl"]}
    model = {"kind": "network", "width": 32, "epochs": 10, "head": {"kind": kind, "lengths": [3, 2]}}
    scorer = opened({"data": data, "model": model})
    best = scorer.top(pa.record_batch({"vector": components[300:].tolist()}), 1).labels[:, 0]
    right = [scorer.label_ids[label].as_py() == f"c{c}" for label, c in zip(best.tolist(), classes[300:], strict=True)]
    assert np.mean(right) > 0.95


def picture(place: str) -> dict[str, list[int]]:
    return {"image": [200] * 6 + [20] * 6 if place == "above" else [20] * 6 + [200] * 6}


def test_a_convolutional_network_on_images_is_served(tmp_path: Path) -> None:
    model = {"kind": "network", "width": 8, "channels": [4], "epochs": 10, "head": {"kind": "mhc", "loss": "softmax"}}
    client = served(image_params(tmp_path, model) | {"grouping": None})
    for place, wanted in (("above", "0"), ("below", "1")):
        answer = client.post("/api/suggest", json={"row": picture(place), "k": 1}).json()
        assert [one["id"] for one in answer["suggestions"]] == [wanted]
    rows = client.get("/api/rows").json()
    assert len(rows[0]["row"]["image"]) == 12
    for image, problem in (([1] * 11, "an image of 12 pixel values"), ([256] * 12, "whole numbers from 0 to 255")):
        refused = client.post("/api/suggest", json={"row": {"image": image}})
        assert refused.status_code == 400
        assert problem in refused.json()["detail"]


@pytest.mark.parametrize("kind", ["deep-miml", "co-attention"])
def test_a_served_model_of_bags_says_which_row_explains_a_label(tmp_path: Path, kind: str) -> None:
    client = served(image_params(tmp_path, {"kind": kind, "width": 8, "loss": "count", "epochs": 20}))
    assert client.get("/api/model").json()["bags"]
    single = client.post("/api/suggest", json={"row": picture("below"), "k": 1}).json()
    assert single["suggestions"][0]["id"] == "1"
    rows = [picture("above"), picture("below"), picture("above")]
    found = client.post("/api/bag", json={"rows": rows, "k": 2}).json()["suggestions"]
    explained = {one["id"]: one for one in found}
    assert explained["1"]["row"] == 1
    assert explained["0"]["row"] in (0, 2)
    assert explained["1"]["weight"] > 1 / 3  # the part of each row if all were alike
    assert client.post("/api/bag", json={"rows": []}).status_code == 422


def test_a_scorer_takes_images_as_bytes_too(tmp_path: Path) -> None:
    scorer = opened(image_params(tmp_path, {"kind": "deep-miml", "width": 8, "epochs": 2}))
    pixels = picture("above")["image"]
    as_bytes = scorer.top(pa.record_batch({"image": pa.array([bytes(pixels)], pa.binary(12))}), 2)
    as_numbers = scorer.top(pa.record_batch({"image": [pixels]}), 2)
    assert as_bytes.scores.tolist() == as_numbers.scores.tolist()
    with pytest.raises(ConfigError, match="the bag has no rows"):
        scorer.explain_bag(pa.record_batch({"image": pa.array([], pa.list_(pa.int64()))}), 2)
