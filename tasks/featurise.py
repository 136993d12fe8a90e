"""Text becomes sparse features, by a vocabulary that saw only the training split."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from xcore.artifacts import Artifact, BuildContext, Recipe
from xcore.data.dataset import Dataset
from xcore.data.features import Features, FeatureWriter
from xcore.text.family import AnyText, load_text
from xcore.training.checkpoints import Checkpoints

FAST_BLOCK, SLOW_BLOCK = 8192, 1024  # rows


def fit_vocabulary(context: BuildContext) -> Mapping[str, Any]:
    """Fit the text featuriser on the training split."""
    dataset = Dataset(context.inputs["dataset"].directory)
    texts = (block.to_pylist() for block in dataset.text_blocks("train"))
    fitted = context.options.fit(texts, context.report)
    fitted.save(context.directory)
    return {"features": fitted.n_features}


def featurise_text(context: BuildContext) -> Mapping[str, Any]:
    """Apply the vocabulary to every split; after a kill, a slow one does not make finished blocks again."""
    dataset = Dataset(context.inputs["dataset"].directory)
    fitted = load_text(context.inputs["vocabulary"].directory)
    is_slow = context.options.is_slow
    total = sum(dataset.n_rows(split) for split in dataset.splits)
    with FeatureWriter(context.directory, fitted.n_features) as writer:
        for split in dataset.splits:
            for texts in dataset.text_blocks(split, SLOW_BLOCK if is_slow else FAST_BLOCK):
                make = partial(fitted.transform, texts.to_pylist())
                writer.write(split, kept_block(context, writer.total_rows, make) if is_slow else make())
                context.report(writer.total_rows, total)
    return {"features": fitted.n_features, "rows": writer.rows, "non_zeros": writer.non_zeros}


def kept_block(context: BuildContext, first_row: int, make: Callable[[], Any]) -> Any:
    """The features of a block of rows; those that were made before the step was killed are not made again."""
    blocks, name = Checkpoints(context.scratch, "features"), f"rows-{first_row}"  # the folder is this artifact's alone
    kept = blocks.read(name)
    rows = kept["rows"] if kept else make()
    if not kept:
        blocks.write({"rows": rows}, name)
    return rows


def vocabulary_recipe(dataset: Recipe, text: AnyText) -> Recipe:
    """What makes features of a dataset's texts."""
    return Recipe("vocabulary", fit_vocabulary, text, {"dataset": dataset}, sources=text.source_files())


def features_recipe(dataset: Recipe, vocabulary: Recipe, text: AnyText) -> Recipe:
    """Features of a dataset's texts."""
    return Recipe("features", featurise_text, text, {"dataset": dataset, "vocabulary": vocabulary})


def open_features(artifact: Artifact) -> Features | Dataset:
    """What holds the features: a features artifact, or a dataset that came with its own."""
    return Dataset(artifact.directory) if artifact.ref.kind == "dataset" else Features(artifact.directory)
