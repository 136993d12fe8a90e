"""A label selection as an artifact of its own: who shares it, and what people see of it."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from flows.plans import LearningPlan, plan_data, plan_learning
from tasks import settings
from tasks.evaluate import EvaluationOptions
from tasks.ingest import dataset_recipe
from xcore.artifacts import Artifact, Recipe
from xcore.data.source import Source
from xcore.models.base import Model
from xcore.models.label_subset.model import LabelSubset
from xcore.models.ova import Ova
from xcore.models.parabel import Parabel
from xcore.selection.options import LabelSelection
from xcore.text.tfidf import Tfidf
from xcore.views.base import view_of

PARENTS = ("bird", "fish", "tree", "rock")


def write_rows(path: Path, n: int, seed: int) -> Path:
    """Texts about one or two of four things; each thing has a second label in most of its texts."""
    rng = np.random.default_rng(seed)
    lines = []
    for number in range(n):
        things = rng.choice(PARENTS, rng.integers(1, 3), replace=False).tolist()
        words = [f"{thing}{rng.integers(3)}" for thing in things for _ in range(3)] + [f"word{rng.integers(20)}"]
        labels = things + [f"small {thing}" for thing in things if rng.random() < 0.9]
        lines.append(json.dumps({"id": f"{path.stem}{number}", "text": " ".join(words), "labels": labels}))
    path.write_text("\n".join(lines) + "\n")
    return path


def learning(model: Model, folder: Path, seed: int = 0) -> LearningPlan:
    files = {"train": [write_rows(folder / "train.jsonl", 200, 0)], "test": [write_rows(folder / "test.jsonl", 40, 1)]}
    source = Source.model_validate({"reader": {"kind": "jsonl", "text": "text"}, **files})
    data = plan_data(dataset_recipe(source, 0), "text", Tfidf())
    return plan_learning(model, data, EvaluationOptions(n_bootstrap=0), seed)


def subset(inner: Model, budget: int = 4) -> LabelSubset:
    return LabelSubset(selection=LabelSelection(budget=budget, outlier_above=0.9), model=inner)


def test_models_with_the_same_selection_share_it_for_every_seed(tmp_path: Path) -> None:
    def selection(model: Model, seed: int = 0) -> str:
        return learning(model, tmp_path, seed).model.inputs["selection"].id

    first = selection(subset(Ova()))
    assert selection(subset(Parabel())) == first
    assert selection(subset(Ova()), seed=1) == first
    assert selection(subset(Ova(), budget=3)) != first


def test_a_selection_is_an_artifact_with_names_that_people_can_read(
    make: Callable[[Recipe], Artifact], tmp_path: Path
) -> None:
    plan = learning(subset(Ova()), tmp_path)
    evaluated = make(plan.evaluation)
    measured = json.loads((evaluated.directory / "metrics.json").read_text())["metrics"]
    assert measured["precision_at_1"] > 0.9
    artifact = settings.store().open(plan.model.inputs["selection"].ref)
    rows = {row["name"]: row for row in pq.read_table(artifact.directory / "labels.parquet").to_pylist()}
    chosen = [name for name, row in rows.items() if row["role"] == "chosen"]
    assert {name.removeprefix("small ") for name in chosen} == set(PARENTS)
    assert {row["role"] for name, row in rows.items() if name not in chosen} == {"reconstructed"}

    view = view_of("selection")
    assert view.sentence(artifact) == "Labels: 4 chosen, 0 outliers, 4 reconstructed, 0 without training rows"
    assert view.facts(artifact) == {"selection": {"chosen": 4, "outlier": 0, "reconstructed": 4, "no_rows": 0}}
    best, others = view.tables(artifact)
    assert best.title == "Chosen labels: 4 of 4"
    assert [row[0] for row in best.rows] == ["1", "2", "3", "4"]
    assert {row[2] for row in best.rows} == set(chosen)
    assert others.title == "Reconstructed labels: 4 of 4"
    points = view.points(artifact)
    assert points[0] == (
        0,
        {"selection/chosen": 4, "selection/outlier": 0, "selection/reconstructed": 4, "selection/no_rows": 0},
    )
    assert points[1][0] == 1
    assert points[1][1].keys() == {"affinity/objective", "affinity/residual"}
    assert points[-1][1].keys() == {"map/objective", "map/residual"}
    view.draw(artifact, tmp_path)
    assert (tmp_path / "convergence.png").stat().st_size > 5000
