"""Files from outside become a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasks import settings
from xcore.artifacts import BuildContext, KeptArtifact, Recipe
from xcore.data.dataset import Dataset
from xcore.data.ingest import ingest
from xcore.data.source import Source


def ingest_dataset(context: BuildContext) -> Mapping[str, Any]:
    """Read, validate and write the rows of a source."""
    return ingest(context.options, context.directory, context.rng, context.report)


def dataset_recipe(source: Source, seed: int) -> Recipe:
    """The dataset that a source holds."""
    holds_out = source.holdout.dev + source.test_share > 0
    # Nothing else is random, so a study of several seeds reads its files once.
    return Recipe("dataset", ingest_dataset, source, sources=tuple(source.files()), seed=seed if holds_out else 0)


def kept_dataset(text: str) -> tuple[Recipe, Dataset]:
    """The dataset whose id starts so, as an input for new steps, and opened."""
    store = settings.store()
    ref = store.find(text if "/" in text else f"dataset/{text}")
    return KeptArtifact.of(ref), Dataset(store.open(ref).directory)
