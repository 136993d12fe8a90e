"""The sampler of labels: few dimensions of the vectors, and a tree that is fitted to them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from tasks.labels import training_labels
from xcore.artifacts import Recipe, Workshop
from xcore.data.features import Features
from xcore.models.negative_sampling.parts import LabelSampler
from xcore.sampling.pca import FittedPca, Pca


def project_vectors(workshop: Workshop) -> Mapping[str, Any]:
    """Fit the map from a dataset's vectors to the few dimensions that a tree sees."""
    start = time.process_time()
    vectors = Features(workshop.inputs["embedding"].directory)
    fitted = workshop.options.fit(vectors.blocks("train"), workshop.rng, workshop.report)
    fitted.save(workshop.directory, "projection")
    sizes = {"features": fitted.n_features, "dimensions": fitted.dimensions}
    return sizes | {"cpu_seconds": time.process_time() - start}


def fit_sampler(workshop: Workshop) -> Mapping[str, Any]:
    """Fit the tree to the training split."""
    start = time.process_time()
    X = Features(workshop.inputs["embedding"].directory).vectors("train")
    Z = FittedPca.load(workshop.inputs["projection"].directory, "projection").transform(X)
    tree = workshop.options.fit(Z, training_labels(workshop))
    tree.save(workshop.directory, "tree")
    sizes = {"rows": len(Z), "labels": tree.n_labels, "dimensions": tree.n_features}
    return sizes | {"cpu_seconds": time.process_time() - start}


def projection_recipe(options: Pca, embedding: Recipe, seed: int) -> Recipe:
    """The map to what a sampler sees."""
    return Recipe("projection", project_vectors, options, {"embedding": embedding}, seed=seed)


def tree_recipe(options: LabelSampler, inputs: Mapping[str, Recipe]) -> Recipe:
    """A sampler of the labels of `dataset`, or of imputed `labels`, given its `embedding` and `projection`."""
    return Recipe("tree", fit_sampler, options, inputs)
