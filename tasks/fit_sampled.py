"""Train a model against sampled labels, on vectors and with a tree that other models may share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasks.embed import embedding_recipe
from tasks.sample import projection_recipe, tree_recipe
from tasks.training_labels import training_labels
from xcore.artifacts import Artifact, BuildContext, Recipe
from xcore.data.features import Features
from xcore.embedding.pca import FittedPca
from xcore.models.base import TrainingData
from xcore.models.negative_sampling import NegativeSampling, Parts
from xcore.sampling.sampler import load_tree


def fit_sampled_model(context: BuildContext) -> Mapping[str, Any]:
    """Train on the training split; a training that was killed goes on from its last checkpoint."""
    X = Features(context.inputs["embedding"].directory).dense("train")
    data = TrainingData(X, training_labels(context))
    parts = open_parts(context.inputs)
    fitted = context.options.fit(data, context.rng, context.report, context.scratch, parts)
    fitted.save(context.directory)
    return {"rows": len(X), "features": fitted.n_features, "labels": fitted.n_labels, "positives": data.Y.nnz}


def open_parts(inputs: Mapping[str, Artifact]) -> Parts:
    """What a training starts from, with the time that the sampler took."""
    embedding = FittedPca.load(inputs["embedding"].directory, "embedding")
    if "tree" not in inputs:
        return Parts(embedding)
    projection = FittedPca.load(inputs["projection"].directory, "projection")
    manifests = [inputs[role].manifest for role in ("projection", "tree")]
    seconds = sum(manifest.seconds for manifest in manifests)
    cpu_seconds = sum(float(manifest.counts["cpu_seconds"]) for manifest in manifests)
    return Parts(embedding, projection, load_tree(inputs["tree"].directory, "tree"), seconds, cpu_seconds)


def sampling_inputs(
    model: NegativeSampling, dataset: Recipe, features: Recipe, labels: Recipe | None, seed: int
) -> dict[str, Recipe]:
    """The parts of a model, and the labels that it learns from; models of the same options share them."""
    embedding = embedding_recipe(model.embedding, features, seed)
    inputs = {"dataset": dataset, "embedding": embedding} | ({"labels": labels} if labels else {})
    if model.projection and model.sampler:
        inputs["projection"] = projection_recipe(model.projection, embedding, seed)
        inputs["tree"] = tree_recipe(model.sampler, dict(inputs))
    return inputs


def sampled_model_recipe(
    model: NegativeSampling, dataset: Recipe, features: Recipe, labels: Recipe | None, seed: int
) -> Recipe:
    """A model trained on a dataset, with imputed labels where they are given."""
    inputs = sampling_inputs(model, dataset, features, labels, seed) | {"features": features}
    return Recipe("model", fit_sampled_model, model, inputs, seed=seed)
