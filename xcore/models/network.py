"""A feed-forward network, or a convolutional one for images, with a head for very many labels."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, Self

import numpy as np

from xcore.errors import ArtifactDamaged
from xcore.heads.base import FittedHead
from xcore.heads.family import AnyHeadAbout
from xcore.models.base import Model, ScoreScale, rows_for
from xcore.network.fitted import Network, NetworkAbout
from xcore.network.options import NetworkOptions
from xcore.numeric.arrays import write_arrays
from xcore.numeric.checks import ArrayFile
from xcore.numeric.matrices import NO_LABEL, Int32, TopK
from xcore.saved import Count, Described, read_json
from xcore.training.context import FitContext
from xcore.training.data import Matrix, RowForm, TrainingData, Wish


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

    def _fit(self, data: TrainingData, context: FitContext) -> FittedNetwork:
        from xcore.network.fitting import fit_network

        found = fit_network(self, data, context)
        return FittedNetwork(data.form, data.n_labels, found.network, found.labels, found.head)

    @property
    def score_scale(self) -> ScoreScale:
        return "log" if self.head.has_logits else "share"

    @classmethod
    def load(cls, directory: Path) -> FittedNetwork:
        """Open a model that `FittedNetwork.save` wrote."""
        return FittedNetwork.load(directory)


@dataclass(frozen=True)
class FittedNetwork:
    """A trained network.

    Attributes
    ----------
    labels : int32 (m,)
        Label id of each class of the head.
    head : FittedHead
        It decides what scores mean: probabilities, or logits where only their order means something.
    """

    form: RowForm
    n_labels: int
    network: Network
    labels: Int32
    head: FittedHead

    @property
    def n_features(self) -> int:
        return self.network.n_features

    def predict_topk(self, X: Matrix, k: int) -> TopK:
        """The k best labels of each row; of labels with the same score the head decides which comes first."""
        top = self.head.topk(self.network.transform(rows_for(self, X, k)), k)
        is_label = top.labels != NO_LABEL
        labels = np.where(is_label, self.labels[np.maximum(top.labels, 0)], NO_LABEL).astype(np.int32)
        return TopK(labels, np.where(is_label, top.scores, -np.inf).astype(np.float32))

    def save(self, directory: Path) -> None:
        """Write ``weights.safetensors`` and ``model.json``."""
        arrays = {"labels": self.labels} | self.head.arrays() | self.network.arrays()
        write_arrays(directory / "weights.safetensors", arrays)
        parts = {"network": self.network.about(), "head": self.head.about()}
        about = {"kind": "network", "form": self.form, "n_labels": self.n_labels, **parts}
        (directory / "model.json").write_text(json.dumps(about, indent=2) + "\n")

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read what `save` wrote."""
        about = read_json(directory / "model.json", _About)
        if (about.form == "image") != (about.network.images is not None):
            raise ArtifactDamaged(f"{directory}/model.json: form and images do not fit; make the artifact again")
        with ArrayFile(directory / "weights.safetensors") as file:
            network = Network.take(file, about.network)
            labels = file.take("labels", np.int32, (None,)).within(0, about.n_labels)
            if not len(labels.array) or len(np.unique(labels.array)) < len(labels.array):
                labels.refuse("is empty or holds a label twice", "at least one label, and none twice")
            head = about.head.take(file, len(labels.array), network.dimensions)
        return cls(about.form, about.n_labels, network, labels.array, head)


class _About(Described):
    """``model.json``."""

    kind: Literal["network"]
    form: Literal["sparse", "vector", "image"]
    n_labels: Count
    network: NetworkAbout
    head: AnyHeadAbout
