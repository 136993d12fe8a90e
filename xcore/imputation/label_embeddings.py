"""Label embeddings as a stage: one unit vector per label in the space of the rows, made by an imputer from bags."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Self

import numpy as np
from pydantic import Field

from xcore.errors import ConfigError
from xcore.grouping.groups import Groups
from xcore.imputation.base import Imputer
from xcore.imputation.eagle import Eagle
from xcore.imputation.family import AnyImputer
from xcore.numeric.arrays import write_arrays
from xcore.numeric.checks import ArrayFile
from xcore.numeric.matrices import CSR, Float32, csr, sparse_of_dense, sparse_of_images
from xcore.saved import Count, Described, read_json
from xcore.training.context import FitContext
from xcore.training.data import LabelledBags, Matrix, RowForm, TrainingData, Wish, without_zeros
from xcore.training.stages import Stage

MOST_FLOATS = 2**28  # of the matrix of embeddings: 1 GB
NAME = "label_embeddings"


class LabelEmbeddings(Stage):
    """Embeddings of the labels, learnt from the labels of bags."""

    artifact: ClassVar[str] = "label-embeddings"
    learns_labels: ClassVar[bool] = True
    wants: ClassVar[frozenset[Wish]] = frozenset({"bags"})

    imputer: AnyImputer = Field(
        Eagle(centre=True), description="The imputer that makes the embeddings. eagle with iterations 0 is EAGLE-0."
    )

    def fit(self, data: TrainingData, context: FitContext) -> FittedLabelEmbeddings:
        """Make the embeddings from the training bags; cost and result are those of `Imputer.label_embeddings`."""
        X, shape = _sparse(data.X, data.form)
        if X.shape[1] * data.n_labels > MOST_FLOATS:
            raise ConfigError(
                f"embeddings of {data.n_labels} labels in {X.shape[1]} features would take "
                f"{4 * X.shape[1] * data.n_labels / 2**30:.1f} GB, at most 1 GB is allowed: use fewer features "
                "(text.max_features), or a model without label embeddings"
            )
        imputer: Imputer = self.imputer
        vectors = imputer.label_embeddings(X, groups_of(data.known_bags()), context.rng, context.report)
        return FittedLabelEmbeddings(vectors, shape)

    @classmethod
    def load(cls, directory: Path) -> FittedLabelEmbeddings:
        """Open what `FittedLabelEmbeddings.save` wrote."""
        return FittedLabelEmbeddings.load(directory)


@dataclass(frozen=True)
class FittedLabelEmbeddings:
    """One vector per label.

    Attributes
    ----------
    vectors : float32 (L, d)
        Unit length; 0 for a label that no bag has.
    image_shape : (height, width, channels) or None
        Of the rows, if they are images.
    """

    vectors: Float32
    image_shape: tuple[int, int, int] | None = None

    def save(self, directory: Path) -> None:
        """Write ``label_embeddings.safetensors`` and ``label_embeddings.json``."""
        write_arrays(directory / f"{NAME}.safetensors", {"vectors": self.vectors})
        about = {"n_labels": len(self.vectors), "n_features": self.vectors.shape[1], "image_shape": self.image_shape}
        (directory / f"{NAME}.json").write_text(json.dumps(about, indent=2) + "\n")

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read what `save` wrote."""
        about = read_json(directory / f"{NAME}.json", _About)
        shape = None
        if about.image_shape is not None:
            height, width, channels = about.image_shape
            shape = (height, width, channels)
        with ArrayFile(directory / f"{NAME}.safetensors") as file:
            vectors = file.take("vectors", np.float32, (about.n_labels, about.n_features)).finite()
        if shape is not None and int(np.prod(shape, dtype=np.int64)) != about.n_features:
            vectors.refuse(f"has {about.n_features} columns", f"one for each pixel of images of the shape {shape}")
        return cls(vectors.array, shape)


class _About(Described):
    """``label_embeddings.json``."""

    n_labels: Count
    n_features: Count
    image_shape: Annotated[list[Count], Field(min_length=3, max_length=3)] | None


def groups_of(bags: LabelledBags) -> Groups:
    """Bags as the groups that imputers take: expected counts are rounded up to whole numbers."""
    Y = without_zeros(bags.Y)
    counts = np.ceil(Y.data) if bags.counted else np.ones_like(Y.data)
    return Groups(bags.members, csr(counts, Y.indices, Y.indptr, Y.shape[1]), "list" if bags.counted else "set")


def _sparse(X: Matrix, form: RowForm) -> tuple[CSR, tuple[int, int, int] | None]:
    """Rows of any form as CSR, and the shape of images."""
    if form == "image":
        height, width, *channels = X.shape[1:]
        return sparse_of_images(X), (height, width, channels[0] if channels else 1)
    return (X if form == "sparse" else sparse_of_dense(X)), None
