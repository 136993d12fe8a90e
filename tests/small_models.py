"""Small models in the store, made as the pipeline makes them but without Prefect, and files of new rows."""

import json
from pathlib import Path

import numpy as np

from flows.plans import plan_data
from tasks import settings
from tasks.fit import model_recipe
from tasks.ingest import dataset_recipe
from xcore.artifacts import Recipe
from xcore.data.readers.base import Form
from xcore.data.source import Source
from xcore.models.base import Model
from xcore.text.tfidf import Tfidf

LABELS = ("ant", "bee", "cat", "dog", "eel", "fox")


def texts(n: int, seed: int) -> list[tuple[str, str]]:
    """Texts with one label each: three words that the label owns, and five that mean nothing."""
    rng = np.random.default_rng(seed)
    rows = []
    for label in rng.choice(LABELS, n).tolist():
        own = [f"{label}{number}" for number in rng.integers(0, 4, 3)]
        noise = [f"word{number}" for number in rng.integers(0, 30, 5)]
        rows.append((" ".join(rng.permutation(own + noise)), label))
    return rows


def write_texts(path: Path, n: int, seed: int, first: int = 0) -> Path:
    """Texts as JSON lines with an id, a text and a list of labels."""
    lines = [
        json.dumps({"id": f"{path.stem}-{first + at}", "text": text, "labels": [label]})
        for at, (text, label) in enumerate(texts(n, seed))
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def write_vectors(path: Path, n: int, seed: int) -> Path:
    """Vectors of six numbers, the largest of which tells the label."""
    rng = np.random.default_rng(seed)
    X, labels = rng.random((n, len(LABELS))), rng.integers(0, len(LABELS), n)
    X[np.arange(n), labels] += 2
    rows = zip(X.round(3).tolist(), labels.tolist(), strict=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"vector": row, "labels": [LABELS[label]]}) + "\n" for row, label in rows))
    return path


def source_of(form: Form, folder: Path) -> Source:
    """A small source of rows of a form."""
    if form == "sparse":
        sizes = {"n_train": 200, "n_test": 20, "n_labels": 6, "n_features": 60, "group_size": 1}
        return Source.model_validate({"reader": {"kind": "generated", **sizes}})
    write = write_texts if form == "text" else write_vectors
    files = {"train": [write(folder / "train.jsonl", 150, 0)], "test": [write(folder / "test.jsonl", 30, 1)]}
    return Source.model_validate({"reader": {"kind": "jsonl", form: form}, **files})


def made_model(model: Model, form: Form, folder: Path, dev: float = 0.0) -> Recipe:
    """A model that is in the store, trained on a small source; a share of its train rows is held out as dev."""
    source = source_of(form, folder)
    source = source.model_copy(update={"holdout": source.holdout.model_copy(update={"dev": dev})})
    data = plan_data(dataset_recipe(source, 0), form, Tfidf())
    recipe = model_recipe(model, data.forms, data.inputs(), 0)
    for step in recipe.lineage():
        settings.store().make(step)
    return recipe
