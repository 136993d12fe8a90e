"""Sparse features become dense vectors, by a map that saw only the training split."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasks.featurise import open_features
from xcore.artifacts import BuildContext, Recipe
from xcore.data.features import FeatureWriter
from xcore.embedding.pca import Pca


def embed_rows(context: BuildContext) -> Mapping[str, Any]:
    """Fit the principal components of the training split, and apply them to every split, block by block."""
    features = open_features(context.inputs["features"])
    fitted = context.options.fit(features.blocks("train"), context.rng, context.report)
    fitted.save(context.directory, "embedding")
    with FeatureWriter(context.directory, fitted.dimensions) as writer:
        for split in features.splits:
            for block in features.blocks(split):
                writer.write(split, fitted.transform(block))
    return {"features": fitted.n_features, "dimensions": fitted.dimensions, "rows": writer.rows}


def embedding_recipe(options: Pca, features: Recipe, seed: int) -> Recipe:
    """Dense vectors of a dataset's rows."""
    return Recipe("embedding", embed_rows, options, {"features": features}, seed=seed)
