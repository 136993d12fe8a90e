"""The sampler of labels: few dimensions of the vectors, and a tree that is fitted to them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from tasks.training_labels import training_labels
from xcore.artifacts import BuildContext, Recipe
from xcore.data.features import Features
from xcore.embedding.pca import FittedPca, Pca
from xcore.models.negative_sampling.parts import LabelSampler


def project_vectors(context: BuildContext) -> Mapping[str, Any]:
    """Fit the map from a dataset's vectors to the few dimensions that a tree sees."""
    start = time.process_time()
    vectors = Features(context.inputs["embedding"].directory)
    fitted = context.options.fit(vectors.blocks("train"), context.rng, context.report)
    fitted.save(context.directory, "projection")
    sizes = {"features": fitted.n_features, "dimensions": fitted.dimensions}
    return sizes | {"cpu_seconds": time.process_time() - start}


def fit_sampler(context: BuildContext) -> Mapping[str, Any]:
    """Fit the tree to the training split."""
    start = time.process_time()
    X = Features(context.inputs["embedding"].directory).dense("train")
    Z = FittedPca.load(context.inputs["projection"].directory, "projection").transform(X)
    tree = context.options.fit(Z, training_labels(context))
    tree.save(context.directory, "tree")
    sizes = {"rows": len(Z), "labels": tree.n_labels, "dimensions": tree.n_features}
    return sizes | {"cpu_seconds": time.process_time() - start}


def projection_recipe(options: Pca, embedding: Recipe, seed: int) -> Recipe:
    """The map to what a sampler sees."""
    return Recipe("projection", project_vectors, options, {"embedding": embedding}, seed=seed)


def tree_recipe(options: LabelSampler, inputs: Mapping[str, Recipe]) -> Recipe:
    """A sampler of the labels of `dataset`, or of imputed `labels`, given its `embedding` and `projection`."""
    return Recipe("tree", fit_sampler, options, inputs)
