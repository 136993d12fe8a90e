"""A model made of stages that this file alone knows: what declares, makes and opens them is generic."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest

from flows.plans import LearningPlan, plan_data, plan_learning
from tasks import settings
from tasks.evaluate import EvaluationOptions
from tasks.ingest import dataset_recipe
from tests.small_models import write_texts
from xcore.artifacts import Artifact, Recipe
from xcore.data.source import Source
from xcore.errors import ConfigError
from xcore.models.base import Model, rows_for
from xcore.numeric.matrices import Float32, TopK, topk_of_dense
from xcore.text.tfidf import Tfidf
from xcore.training.context import FitContext
from xcore.training.data import Matrix, RowForm, TrainingData, Wish
from xcore.training.stages import DeclaredStage, Stage


class Halves(Stage):
    """Maps rows to sums over the even and the odd features, times a factor."""

    artifact: ClassVar[str] = "embedding"
    is_random: ClassVar[bool] = False

    factor: float = 1.0

    def fit(self, data: TrainingData, context: FitContext) -> FittedHalves:
        return FittedHalves(int(next(data.rows.blocks()).shape[1]), self.factor)

    @classmethod
    def load(cls, directory: Path) -> FittedHalves:
        about = json.loads((directory / "embedding.json").read_text())
        return FittedHalves(about["n_features"], about["factor"])


@dataclass(frozen=True)
class FittedHalves:
    n_features: int
    factor: float
    dimensions: int = 2

    def transform(self, block: Matrix) -> Float32:
        dense = np.asarray(block if isinstance(block, np.ndarray) else block.toarray())
        halves = [dense[:, start::2].sum(axis=1) for start in (0, 1)]
        return np.stack(halves, axis=1).astype(np.float32) * np.float32(self.factor)

    def save(self, directory: Path, name: str = "embedding") -> None:
        (directory / f"{name}.json").write_text(json.dumps({"n_features": self.n_features, "factor": self.factor}))
        (directory / f"{name}.safetensors").write_bytes(b"")


class LabelNotes(Stage):
    """Writes down what it was given: the label side, and the stage that it uses."""

    artifact: ClassVar[str] = "sampler"
    learns_labels: ClassVar[bool] = True
    wants: ClassVar[frozenset[Wish]] = frozenset({"labels", "dev"})

    def fit(self, data: TrainingData, context: FitContext) -> Notes:
        assert data.labels is not None
        assert data.dev is not None
        return Notes(
            {
                "texts": list(data.labels.texts),
                "label_rows": list(data.labels.X.shape),
                "label_entries": int(data.labels.X.nnz),
                "rows": list(data.X.shape),
                "targets": list(data.Y.shape),
                "dev": list(data.dev.Y.shape),
                "factor": data.stage("twice").fitted.factor,
            }
        )

    @classmethod
    def load(cls, directory: Path) -> Notes:
        return Notes(json.loads((directory / "sampler.json").read_text()))


@dataclass(frozen=True)
class Notes:
    said: dict[str, Any]

    def save(self, directory: Path) -> None:
        (directory / "sampler.json").write_text(json.dumps(self.said))
        (directory / "sampler.safetensors").write_bytes(b"")


class Echo(LabelNotes):
    """Learns no labels, but uses a stage."""

    learns_labels: ClassVar[bool] = False
    wants: ClassVar[frozenset[Wish]] = frozenset()

    def fit(self, data: TrainingData, context: FitContext) -> Notes:
        return Notes({"factor": data.stage("twice").fitted.factor, "labels": data.n_labels})


class Toy(Model):
    """Ranks labels by their frequency; its stages are what matters."""

    kind: Literal["toy"] = "toy"
    factor: float = 2.0
    power: float = 1.0

    def stages(self, form: RowForm) -> dict[str, DeclaredStage]:
        return {
            "once": DeclaredStage(Halves()),
            "twice": DeclaredStage(Halves(factor=self.factor), rows="once"),
            "notes": DeclaredStage(LabelNotes(), rows="twice", uses=("twice",)),
            "echo": DeclaredStage(Echo(), rows="once", uses=("twice",)),
        }

    def _fit(self, data: TrainingData, context: FitContext) -> FittedToy:
        assert data.dev is None, "this model wants none"
        assert np.allclose(data.stage("twice").X.sum(), self.factor * data.X.sum(), rtol=1e-4)
        assert data.stage("echo").fitted.said == {"factor": self.factor, "labels": 0}
        counts = np.bincount(data.Y.indices, minlength=data.n_labels).astype(np.float32)
        return FittedToy(data.X.shape[1], counts, data.stage("notes").fitted.said)

    @classmethod
    def load(cls, directory: Path) -> FittedToy:
        about = json.loads((directory / "model.json").read_text())
        return FittedToy(about["n_features"], np.array(about["counts"], np.float32), about["said"])


@dataclass(frozen=True)
class FittedToy:
    n_features: int
    counts: Float32
    said: dict[str, Any]
    form: RowForm = "sparse"

    @property
    def n_labels(self) -> int:
        return len(self.counts)

    def predict_topk(self, X: Matrix, k: int) -> TopK:
        rows = rows_for(self, X, k)
        n = rows.shape[0] if hasattr(rows, "shape") else len(rows)
        return topk_of_dense(np.tile(self.counts, (n, 1)), k)

    def save(self, directory: Path) -> None:
        about = {"kind": "toy", "n_features": self.n_features, "counts": self.counts.tolist(), "said": self.said}
        (directory / "model.json").write_text(json.dumps(about))


def learning(model: Model, folder: Path, seed: int = 0) -> LearningPlan:
    files = {"train": [write_texts(folder / "train.jsonl", 90, 0)], "test": [write_texts(folder / "test.jsonl", 30, 1)]}
    source = Source.model_validate({"reader": {"kind": "jsonl", "text": "text"}, "holdout": {"dev": 0.2}, **files})
    data = plan_data(dataset_recipe(source, 0), "text", Tfidf())
    return plan_learning(model, data, EvaluationOptions(n_bootstrap=0), seed)


def test_stages_are_made_by_one_step_each_and_reach_the_model(
    make: Callable[[Recipe], Artifact], tmp_path: Path
) -> None:
    plan = learning(Toy(), tmp_path)
    assert make(plan.evaluation).manifest.counts["rows"] == 30
    said = Toy.load(settings.store().open(plan.model.ref).directory).said
    assert said["texts"] == ["ant", "bee", "cat", "dog", "eel", "fox"]
    assert said["label_rows"][0] == 6, "label texts are rows of the training rows' space"
    assert said["rows"] == [72, 2]
    assert said["targets"] == [72, 6]
    assert said["dev"] == [18, 6]
    assert said["factor"] == 2.0
    kinds = [recipe.kind for recipe in plan.evaluation.lineage()]
    assert kinds.count("embedding") == 2
    titles = [recipe.name for recipe in plan.evaluation.lineage()]
    assert {"fit once", "fit twice", "fit notes"} <= set(titles)


def test_a_change_makes_only_the_stages_that_it_concerns(tmp_path: Path) -> None:
    def ids(model: Model, seed: int = 0) -> dict[str, str]:
        return {role: recipe.id for role, recipe in learning(model, tmp_path, seed).model.inputs.items()}

    first = ids(Toy())
    assert ids(Toy(power=2.0)) == first, "an option of the model alone"
    factor = ids(Toy(factor=3.0))
    assert {role for role in first if factor[role] != first[role]} == {"twice", "notes", "echo"}
    seed = ids(Toy(), seed=1)
    assert {role for role in first if seed[role] != first[role]} == {"notes", "echo"}, "the stages that may draw"


def test_a_model_that_does_not_take_the_rows_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    class OnlyImages(Toy):
        takes: ClassVar[tuple[RowForm, ...]] = ("image",)

    with pytest.raises(ConfigError, match="takes image rows, but the rows are sparse or tokens or text"):
        learning(OnlyImages(), tmp_path)


class WordOrder(Toy):
    """A model of token sequences, or of plain texts: it learns the first word that goes with each label."""

    kind: Literal["words"] = "words"
    takes: ClassVar[tuple[RowForm, ...]] = ("tokens",)

    def stages(self, form: RowForm) -> dict[str, DeclaredStage]:
        return {"seen": DeclaredStage(SeenRows())}

    def _fit(self, data: TrainingData, context: FitContext) -> FittedToy:
        assert data.stage("seen").fitted.said["form"] == data.form
        said = {"form": data.form, "shape": list(data.X.shape) if data.form == "tokens" else [len(data.X)]}
        counts = np.bincount(data.Y.indices, minlength=data.n_labels).astype(np.float32)
        return FittedToy(said["shape"][-1], counts, said, data.form)

    @classmethod
    def load(cls, directory: Path) -> FittedToy:
        found = super().load(directory)
        return FittedToy(found.n_features, found.counts, found.said, found.said["form"])


class PlainText(WordOrder):
    kind: Literal["plain"] = "plain"
    takes: ClassVar[tuple[RowForm, ...]] = ("text",)


class SeenRows(LabelNotes):
    """Notes the form of its rows."""

    wants: ClassVar[frozenset[Wish]] = frozenset()
    learns_labels: ClassVar[bool] = False

    def fit(self, data: TrainingData, context: FitContext) -> Notes:
        return Notes({"form": data.form, "blocks": [len(block) for block in data.rows.blocks()]})


@pytest.mark.parametrize("model", [WordOrder(), PlainText()])
def test_models_of_token_sequences_and_of_plain_text_get_them_without_making_features(
    model: Model, make: Callable[[Recipe], Artifact], tmp_path: Path
) -> None:
    plan = learning(model, tmp_path)
    make(plan.evaluation)
    found = model.load(settings.store().open(plan.model.ref).directory)
    assert found.form == model.takes[0]
    kinds = {recipe.kind for recipe in plan.evaluation.lineage()}
    assert "features" not in kinds
    assert ("vocabulary" in kinds) == (found.form == "tokens")
    assert found.said["shape"][0] == 72
