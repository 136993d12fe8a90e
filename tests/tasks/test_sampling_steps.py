"""Embedding, projection and tree as artifacts of their own, and the models that are trained with them."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from flows.plans import LearningPlan, plan_data, plan_learning
from tasks import settings
from tasks.evaluate import EvaluationOptions
from tasks.ingest import dataset_recipe
from xcore.artifacts import Artifact, Recipe
from xcore.data.dataset import Dataset
from xcore.data.features import Features, FeatureWriter
from xcore.data.readers.generated import GeneratedReader
from xcore.data.source import Source
from xcore.embedding.network_features import NetworkFeatures
from xcore.embedding.pca import Pca
from xcore.errors import ConfigError
from xcore.models.negative_sampling import LabelSampler, NegativeSampling
from xcore.models.negative_sampling.pairs import Positives
from xcore.numeric.matrices import csr
from xcore.sampling.sampler import Tree
from xcore.text.tfidf import Tfidf
from xcore.training.context import FitContext
from xcore.training.data import TrainingData
from xcore.training.stages import prepare

READER = GeneratedReader(n_train=400, n_test=100, n_labels=40, n_features=300, noise=0.3, group_size=1)
MODEL = NegativeSampling(
    embedding=Pca(dimensions=32, whiten=True),
    tree=Tree(strength=0.1),
    tree_dimensions=4,
    epochs=5,
    learning_rate=0.1,
    held_out_share=0.1,
)


def dataset() -> Recipe:
    return dataset_recipe(Source(reader=READER), 0)


def planned(**changed: object) -> Recipe:
    return learning(MODEL.model_copy(update=changed)).model


def learning(model: NegativeSampling) -> LearningPlan:
    data = plan_data(dataset(), "sparse", Tfidf())
    return plan_learning(model, data, EvaluationOptions(n_bootstrap=0), 0)


def test_dense_rows_are_written_and_read_whole_or_in_blocks(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(20000, 3)).astype(np.float32)
    with FeatureWriter(tmp_path, 3) as writer:
        for start in range(0, len(rows), 777):
            writer.write("train", rows[start : start + 777])
    features = Features(tmp_path)
    assert features.splits == ["train"]
    assert np.array_equal(features.dense("train"), rows)
    blocks = features.blocks("train")
    for _ in range(2):
        assert np.array_equal(np.concatenate(list(blocks)), rows)


def test_sparse_rows_come_in_the_blocks_that_make_up_the_whole(tmp_path: Path) -> None:
    matrix = sp.random_array((40000, 7), density=0.3, rng=np.random.default_rng(0), format="csr")
    with FeatureWriter(tmp_path, 7) as writer:
        writer.write("train", csr(matrix.data, matrix.indices, matrix.indptr, 7))
    blocks = list(Features(tmp_path).blocks("train"))
    assert len(blocks) == 2
    assert np.array_equal(sp.vstack(blocks).toarray(), Features(tmp_path).sparse("train").toarray())


def test_models_that_differ_in_training_share_what_comes_before_it() -> None:
    first = planned()
    for changed in ({"method": "nce"}, {"learning_rate": 0.3}, {"epochs": 2}, {"n_negatives": 2}):
        other = planned(**changed)
        assert other.id != first.id
        assert {role: recipe.id for role, recipe in other.inputs.items()} == {
            role: recipe.id for role, recipe in first.inputs.items()
        }
    assert set(planned(method="uniform").inputs) == {"dataset", "features", "embedding"}
    for changed in ({"labels": "first"}, {"held_out_share": 0.0}, {"tree_dimensions": 5}):
        other = planned(**changed)
        assert other.inputs["embedding"].id == first.inputs["embedding"].id
        assert other.inputs["tree"].id != first.inputs["tree"].id


def test_the_steps_make_what_a_fit_in_memory_makes(make: Callable[[Recipe], Artifact]) -> None:
    recipe = planned()
    model = NegativeSampling.load(make(recipe).directory)
    data = Dataset(settings.store().open(dataset().ref).directory)
    embedding = Features(settings.store().open(recipe.inputs["embedding"].ref).directory)
    X = data.sparse("train")
    assert np.array_equal(model.embedding.transform(X), embedding.dense("train"))
    assert np.array_equal(model.embedding.transform(data.sparse("test")), embedding.dense("test"))
    covariance = np.cov(embedding.dense("train").T)
    assert np.allclose(covariance, np.eye(32), atol=1e-3)
    alone = Pca(dimensions=32, whiten=True).fit_blocks([X], np.random.default_rng(1))
    assert np.allclose(np.abs(alone.transform(X)), np.abs(embedding.dense("train")), atol=1e-2)
    tree = LabelSampler.load(settings.store().open(recipe.inputs["tree"].ref).directory)
    Z = model.projection.transform(embedding.dense("train"))
    assert np.array_equal(Z, Features(settings.store().open(recipe.inputs["projection"].ref).directory).dense("train"))
    again = MODEL.sampler.fit(TrainingData.of(Z, data.Y("train")), FitContext())
    assert np.array_equal(tree.log_prob_all(Z[:50]), again.log_prob_all(Z[:50]))


def test_planted_labels_are_found_and_the_recall_of_a_shortlist_is_in_the_manifest(
    make: Callable[[Recipe], Artifact],
) -> None:
    recalls = {}
    for width in (0, 5, 40):
        model = MODEL.model_copy(update={"shortlist": width})
        plan = learning(model)
        metrics = json.loads((make(plan.evaluation).directory / "metrics.json").read_text())["metrics"]
        predictions = settings.store().manifest(plan.predictions.ref)
        recalls[width] = predictions.counts.get("shortlist_recall")
        if width != 5:
            assert metrics["precision_at_1"] > 0.9
    assert recalls[0] is None
    assert recalls[40] == 1.0
    assert 0.3 < recalls[5] < 1.0


def test_features_of_a_trained_network_can_be_the_embedding(make: Callable[[Recipe], Artifact]) -> None:
    plan = learning(MODEL.model_copy(update={"embedding": NetworkFeatures(width=64, epochs=15)}))
    metrics = json.loads((make(plan.evaluation).directory / "metrics.json").read_text())["metrics"]
    assert metrics["precision_at_1"] > 0.8
    learnt = plan.model.inputs["embedding"]
    assert set(learnt.inputs) == {"features", "dataset"}, "it learns from the labels"
    assert set(planned().inputs["embedding"].inputs) == {"features"}
    fitted = NegativeSampling.load(settings.store().open(plan.model.ref).directory)
    rows = Dataset(settings.store().open(dataset().ref).directory).sparse("test")
    stored = Features(settings.store().open(learnt.ref).directory).dense("test")
    assert np.array_equal(fitted.embedding.transform(rows), stored)


def test_a_tree_of_other_labels_is_refused() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 4)).astype(np.float32)
    Y = csr(np.ones(30), rng.integers(0, 5, 30), np.arange(31), 5)
    few = prepare(MODEL, TrainingData.of(X[:3], Y[:3]), FitContext()).stage("tree")
    with pytest.raises(ConfigError, match=r"needs a tree of the 5 labels that it trains on, got one of \d labels"):
        MODEL.fit(TrainingData.of(X, Y).with_stage("tree", few))


def test_held_out_rows_are_the_same_for_a_sampler_and_its_models() -> None:
    Y = csr(np.ones(200), np.random.default_rng(0).integers(0, 9, 200), np.arange(201), 9)
    options = {"labels": "first", "held_out_share": 0.2}
    one, other = (kind(**options).split(Y) for kind in (Positives, NegativeSampling))
    assert len(one.held_out.rows) == 40
    assert np.array_equal(one.train.rows, other.train.rows)
    assert np.array_equal(one.labels, other.labels)
