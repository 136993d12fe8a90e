"""A feed-forward network, or a convolutional one for images, with a head for very many labels."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import Field

from xcore.embedding.family import load_embedding
from xcore.embedding.pca import Pca
from xcore.errors import ArtifactDamaged
from xcore.heads.base import Distributing, FittedHead
from xcore.heads.family import AnyHeadAbout
from xcore.models.base import Model, ScoreScale, classes_of, rows_for
from xcore.network.fitted import Network, NetworkAbout
from xcore.network.options import NetworkOptions
from xcore.numeric.arrays import write_arrays
from xcore.numeric.checks import ArrayFile
from xcore.numeric.matrices import NO_LABEL, Float32, Float64, Int32, TopK
from xcore.saved import Count, Described, read_json
from xcore.training.context import FitContext
from xcore.training.data import Matrix, RowForm, RowsInMemory, TrainingData, Wish
from xcore.training.stages import DeclaredStage, RowMap

STAGE = "embedding"


class NeuralNetwork(NetworkOptions, Model):
    """Feed-forward network with layer norm and dropout, for sparse rows, vectors or images, with any head.

    Notes
    -----
    - Below the head, a step costs O(batch_size nnz width). What the head costs is said there: with one output per
      label it is O(batch_size L d), with a code for labels much less.
    - Only the vectors of features that occur in a batch are updated.
    - A target q in (0, 1] counts as q of a positive and 1 - q of a negative (logistic loss).
    - With a dev split, its nDCG at 5 chooses the weights and stops the training; without one all epochs are run.
    - Training needs torch; predictions do not. The same bits come out for any number of threads.
    """

    takes: ClassVar[tuple[RowForm, ...]] = ("sparse", "vector", "image")
    wants: ClassVar[frozenset[Wish]] = frozenset({"dev", "names"})

    kind: Literal["network"] = "network"
    embedding: Pca | None = Field(
        None,
        description="Principal components of sparse rows, which the network takes in their place. Empty: the rows as "
        "they are. Not used if the rows are vectors or images.",
    )

    def stages(self, form: RowForm) -> dict[str, DeclaredStage]:
        """The components of sparse rows, if they are asked for."""
        return {STAGE: DeclaredStage(self.embedding)} if self.embedding and form == "sparse" else {}

    def _fit(self, data: TrainingData, context: FitContext) -> FittedNetwork:
        from xcore.network.fitting import fit_network

        embedding = data.stage(STAGE).fitted if STAGE in data.stages else None
        found = fit_network(self, _embedded(data) if embedding else data, context)
        return FittedNetwork(data.form, data.n_labels, found.network, found.labels, found.head, embedding)

    @property
    def score_scale(self) -> ScoreScale:
        return "log" if self.head.has_logits else "share"

    @property
    def is_distribution(self) -> bool:
        return self.head.is_distribution

    @classmethod
    def load(cls, directory: Path) -> FittedNetwork:
        """Open a model that `FittedNetwork.save` wrote."""
        return FittedNetwork.load(directory)


def _embedded(data: TrainingData) -> TrainingData:
    """The data with the vectors of its training and dev rows in their place."""
    stage, dev = data.stage(STAGE), data.dev
    if dev is not None:
        dev = replace(dev, rows=RowsInMemory(stage.fitted.transform(dev.X), "vector"))
    return replace(data, rows=RowsInMemory(stage.X, "vector"), dev=dev)


@dataclass(frozen=True)
class FittedNetwork:
    """A trained network.

    Attributes
    ----------
    labels : int32 (m,)
        Label id of each class of the head.
    head : FittedHead
        It decides what scores mean: probabilities, or logits where only their order means something.
    embedding : RowMap or None
        What maps rows to the vectors that the network takes.
    """

    form: RowForm
    n_labels: int
    network: Network
    labels: Int32
    head: FittedHead
    embedding: RowMap | None = None

    @property
    def n_features(self) -> int:
        return self.network.n_features if self.embedding is None else self.embedding.n_features

    def predict_topk(self, X: Matrix, k: int) -> TopK:
        """The k best labels of each row; of labels with the same score the head decides which comes first."""
        top = self.head.topk(self._features(X, k), k)
        is_label = top.labels != NO_LABEL
        labels = np.where(is_label, self.labels[np.maximum(top.labels, 0)], NO_LABEL).astype(np.int32)
        return TopK(labels, np.where(is_label, top.scores, -np.inf).astype(np.float32))

    def log_probability(self, X: Matrix, labels: Int32) -> Float64:
        """Under the distribution of the head, which must have one (`Head.is_distribution`)."""
        if not isinstance(self.head, Distributing):
            raise TypeError(f"{type(self.head).__name__} has no distribution over its classes")
        classes, is_known = classes_of(self.labels, labels)
        found: Float64 = self.head.log_probability(self._features(X, 1), classes).astype(np.float64)
        return np.where(is_known, found, np.nan)

    def _features(self, X: Matrix, k: int) -> Float32:
        """What the head takes."""
        rows = rows_for(self, X, k)
        return self.network.transform(rows if self.embedding is None else self.embedding.transform(rows))

    def save(self, directory: Path) -> None:
        """Write ``weights.safetensors``, ``model.json``, and the embedding, if there is one."""
        if self.embedding is not None:
            self.embedding.save(directory, STAGE)
        arrays = {"labels": self.labels} | self.head.arrays() | self.network.arrays()
        write_arrays(directory / "weights.safetensors", arrays)
        parts = {"network": self.network.about(), "head": self.head.about()}
        sizes = {"n_labels": self.n_labels, "n_classes": len(self.labels)}
        about = {"kind": "network", "form": self.form, **sizes, "has_embedding": self.embedding is not None, **parts}
        (directory / "model.json").write_text(json.dumps(about, indent=2) + "\n")

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read what `save` wrote."""
        about = read_json(directory / "model.json", _About)
        if (about.form == "image") != (about.network.images is not None):
            raise ArtifactDamaged(f"{directory}/model.json: form and images do not fit; make the artifact again")
        with ArrayFile(directory / "weights.safetensors") as file:
            network = Network.take(file, about.network)
            labels = file.take("labels", np.int32, (about.n_classes,)).within(0, about.n_labels)
            if not len(labels.array) or len(np.unique(labels.array)) < len(labels.array):
                labels.refuse("is empty or holds a label twice", "at least one label, and none twice")
            head = about.head.take(file, len(labels.array), network.dimensions)
        embedding = load_embedding(directory, STAGE) if about.has_embedding else None
        if embedding is not None and (about.form != "sparse" or embedding.dimensions != network.n_features):
            raise ArtifactDamaged(
                f"{directory}: the embedding makes {embedding.dimensions} features of sparse rows, the network takes "
                f"{network.n_features} of {about.form} rows; make the artifact again"
            )
        return cls(about.form, about.n_labels, network, labels.array, head, embedding)


class _About(Described):
    """``model.json``."""

    kind: Literal["network"]
    form: Literal["sparse", "vector", "image"]
    n_labels: Count
    n_classes: Count | None = None  # models of earlier versions do not say it
    network: NetworkAbout
    head: AnyHeadAbout
    has_embedding: bool = False
