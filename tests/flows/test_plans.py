"""What cannot work is refused before anything is run, and what was decided by default is said."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flows.params import PipelineParams, TrainParams
from flows.plans import plan_pipeline, plan_train
from flows.retrain import RetrainParams, plan_retrain
from flows.studies import plan_study
from flows.study_params import StudyParams
from tasks import settings
from tasks.ingest import dataset_recipe
from tasks.training_data import open_training_data
from tests.small_models import write_texts
from tests.workplace import Workplace
from tests.xcore.data.test_images import pair, pictures
from xcore.data.dataset import Dataset
from xcore.data.source import Source
from xcore.errors import ConfigError
from xcore.training.data import TrainingData

READER = {"kind": "jsonl", "text": "text", "id": "id"}


@pytest.fixture
def train(tmp_path: Path) -> Path:
    return write_texts(tmp_path / "train.jsonl", 40, 0)


def data_of(train: Path, **more: Any) -> dict[str, Any]:
    return {"reader": READER, "train": [train], **more}


@pytest.mark.parametrize(
    ("data", "evaluation", "message"),
    [
        ({"holdout": {"test": 0}}, {}, r"evaluation\.split is test, but the data has no test split"),
        ({}, {"split": "dev"}, r"evaluation\.split is dev, but the data has no dev split: name dev files"),
        ({"row_labels": "group", "reader": READER | {"group": "id"}}, {}, r"set data\.row_labels to own"),
    ],
)
def test_a_pipeline_without_rows_to_measure_on_is_refused(
    data: dict[str, Any], evaluation: dict[str, Any], message: str, train: Path
) -> None:
    params = {"data": data_of(train, **data), "evaluation": evaluation}
    with pytest.raises(ConfigError, match=message):
        plan_pipeline(PipelineParams.model_validate(params))
    with pytest.raises(ConfigError, match=message):
        plan_retrain(RetrainParams.model_validate(params | {"promotion": {"split": "test"}}))
    with pytest.raises(ConfigError, match=message):
        plan_study(StudyParams.model_validate(params | {"factors": {"model": [{"kind": "ova"}]}}))


def test_rows_are_held_out_where_no_test_files_are_given(train: Path) -> None:
    assert plan_pipeline(PipelineParams.model_validate({"data": data_of(train)})).evaluation.kind == "evaluation"


def test_a_promotion_holds_dev_rows_out_where_there_are_none_and_never_takes_test_unasked(train: Path) -> None:
    params = RetrainParams.model_validate({"data": data_of(train)})
    assert params.promotion.split == "dev"
    comparison = plan_retrain(params)
    assert comparison.inputs["predictions"].options.split == "dev"
    assert comparison.inputs["dataset"].options.holdout.dev == 0.1
    asked = plan_retrain(RetrainParams.model_validate({"data": data_of(train), "promotion": {"split": "test"}}))
    assert asked.inputs["predictions"].options.split == "test"
    assert asked.inputs["dataset"].options.holdout.dev == 0
    given = plan_retrain(RetrainParams.model_validate({"data": data_of(train, dev=[train])}))
    assert given.inputs["dataset"].options.holdout.dev == 0


def test_a_promotion_without_rows_to_compare_on_is_refused(train: Path) -> None:
    groups_only = data_of(train, row_labels="group", test=[train]) | {"reader": READER | {"group": "id"}}
    with pytest.raises(ConfigError, match=r"promotion\.split is dev, but the data has no dev split"):
        plan_retrain(RetrainParams.model_validate({"data": groups_only}))


def test_training_on_a_kept_dataset_needs_the_split_too(
    train: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EYRIE_HOME", str(tmp_path / "home"))
    dataset = dataset_recipe(Source.model_validate(data_of(train, holdout={"test": 0})), 0)
    settings.store().make(dataset)
    with pytest.raises(
        ConfigError, match=r"evaluation\.split is test, but the dataset \w+ has no test split, only train"
    ):
        plan_train(TrainParams(dataset=dataset.id))


@pytest.mark.parametrize(("model", "kinds"), [("ova", {"groups", "imputed"}), ("co-attention", {"groups"})])
def test_groups_of_images_are_imputed_unless_the_model_learns_from_bags(
    model: str, kinds: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EYRIE_HOME", str(tmp_path / "home"))
    part = pair(tmp_path, pictures(20, 2, 2), [0, 1] * 10)
    tree = {"data": {"reader": {"kind": "idx"}, "train": [part]}, "grouping": {"kind": "random"}}
    tree["model"] = {"kind": model} | ({"epochs": 1, "width": 4} if model == "co-attention" else {})
    plan = plan_pipeline(PipelineParams.model_validate(tree))
    made = {recipe.kind for recipe in plan.model.lineage()}
    assert made & {"groups", "imputed"} == kinds
    assert ("label-embeddings" in made) == (model == "co-attention")
    counts = {recipe.kind: settings.store().make(recipe).artifact.manifest.counts for recipe in plan.model.lineage()}
    assert counts["model"]["features"] == 4
    assert counts["model"].get("bags") == (5 if model == "co-attention" else None)


def test_confidences_reach_the_model_as_the_targets_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EYRIE_HOME", str(tmp_path / "home"))
    part = pair(tmp_path, pictures(20, 2, 2), [0, 1] * 10)
    tree = {"data": {"reader": {"kind": "idx"}, "train": [part]}, "grouping": {"kind": "random", "size": 4}}
    tree["imputer"] = {"kind": "baseline"}

    def training(targets: dict[str, object]) -> TrainingData:
        params = PipelineParams.model_validate(tree | {"model": {"kind": "ova"}, "targets": targets})
        inputs = plan_pipeline(params).model.inputs
        made = {role: settings.store().make(step).artifact for role, step in inputs.items()
                if all(settings.store().make(before) for before in step.lineage())}  # fmt: skip
        return open_training_data(made, "sparse")

    plain, soft = training({}), training({"confidence": "target", "min_confidence": 0.5})
    assert (plain.reading, soft.reading) == ("weight", "target")
    assert plain.Y.data.min() < 0.5
    assert soft.Y.nnz == (plain.Y.data >= 0.5).sum()
    assert training({"confidence": "ignore"}).Y.data.tolist() == [1] * plain.Y.nnz


def test_a_model_of_bags_sees_no_labels_of_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EYRIE_HOME", str(tmp_path / "home"))
    part = pair(tmp_path, pictures(20, 2, 2), [0, 1] * 10)
    tree = {"data": {"reader": {"kind": "idx"}, "train": [part]}, "grouping": {"kind": "random", "size": 3}}
    plan = plan_pipeline(PipelineParams.model_validate(tree | {"model": {"kind": "deep-miml"}}))
    inputs = {role: settings.store().make(recipe).artifact for role, recipe in plan.model.inputs.items()}
    data = open_training_data(inputs, "image", {"bags"})
    assert data.Y.nnz == 0
    assert data.bags is not None
    assert data.bags.Y is not None
    assert data.bags.counted
    assert data.bags.Y.sum() == data.X.shape[0]


def test_a_model_gets_images_and_bags_as_they_are_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EYRIE_HOME", str(tmp_path / "home"))
    images = pictures(20, 3, 2)
    source = Source.model_validate({"reader": {"kind": "idx"}, "train": [pair(tmp_path, images, [0, 1] * 10)]})
    made = settings.store().make(dataset_recipe(source, 0)).artifact
    data = open_training_data({"dataset": made, "features": made}, "image")
    kept = np.array(Dataset(made.directory).row_ids("train").to_pylist(), int)
    np.testing.assert_array_equal(data.X[..., 0], images[kept])
    np.testing.assert_array_equal(np.concatenate(list(data.rows.blocks())), data.X)

    rows = [{"vector": [i, 1], "labels": ["a"] if i % 3 else ["b"], "page": i // 3} for i in range(6)]
    file = tmp_path / "bags.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    reader = {"kind": "jsonl", "vector": "vector", "group": "page"}
    grouped = Source.model_validate({"reader": reader, "train": [file], "dev": [file], "holdout": {"test": 0}})
    made = settings.store().make(dataset_recipe(grouped, 0)).artifact
    data = open_training_data({"dataset": made, "features": made}, "vector", {"bags", "dev"})
    bags = data.bags
    assert bags is not None
    assert bags.members.toarray().tolist() == [[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]]
    assert bags.Y is not None
    assert bags.Y.toarray().tolist() == [[2, 1], [2, 1]]
    assert bags.counted
    assert data.dev is not None
    assert data.dev.bags is not None
    assert data.dev.bags.members.toarray().tolist() == bags.members.toarray().tolist()
    assert data.dev.bags.Y is not None
    assert data.dev.bags.Y.toarray().tolist() == [[2, 1], [2, 1]]


def test_a_run_says_how_it_read_the_labels_and_which_rows_it_held_out(workplace: Workplace, train: Path) -> None:
    rows = [json.loads(line) for line in train.read_text().splitlines()]
    train.write_text("".join(json.dumps(row | {"page": at // 4}) + "\n" for at, row in enumerate(rows)))
    tree = {
        "name": "zoo",
        "data": data_of(train, reader=READER | {"group": "page"}),
        "model": {"kind": "ova"},
        "imputer": {"kind": "baseline"},
        "evaluation": {"n_bootstrap": 0},
    }
    preset = train.with_name("zoo.yaml")
    preset.write_text(json.dumps(tree, default=str))
    done = workplace.run("pipeline", str(preset))
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "Labels were read as the rows' own; group counts are counted from them." in said
    assert "No test files were given: 4 rows of train (10%) were held out as test." in said
    (page,) = workplace.home.glob("mlflow-files/*/*/artifacts/report.html")
    assert "group counts are counted from them" in page.read_text()
    (groups,) = workplace.home.glob("store/groups/*/manifest.json")
    assert json.loads(groups.read_text())["counts"]["groups"] == 9
