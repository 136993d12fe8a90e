"""A feed-forward network with one output for each label: the plain neural classifier."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from pydantic import Field

from xcore.models.base import Model, ScoreScale, rows_for
from xcore.network.fitted import Network
from xcore.network.options import NetworkOptions
from xcore.numeric.arrays import write_arrays
from xcore.numeric.checks import ArrayFile
from xcore.numeric.matrices import NO_LABEL, Float32, Int32, TopK, row_blocks, topk_of_dense
from xcore.numeric.products import product_of_rows
from xcore.saved import Count, Described, read_json
from xcore.training.context import FitContext
from xcore.training.data import Matrix, RowForm, TrainingData, Wish

BLOCK_SCORES = 2**22


class NeuralNetwork(NetworkOptions, Model):
    """Feed-forward network with layer norm and dropout, for sparse or dense rows, with one output per training label.

    Notes
    -----
    - A step costs O(batch_size (nnz width + L d)) for L seen labels and d units in the last layer; the weights take
      4 (n_features width + L d) bytes, three times that while training. For very many labels the output layer is the
      cost: that is what heads with a code for labels avoid.
    - Only the vectors of features that occur in a batch are updated.
    - A target q in (0, 1] counts as q of a positive and 1 - q of a negative (logistic loss).
    - With a dev split, its precision at 1 chooses the weights and stops the training; without one all epochs are run.
    - Training needs torch; predictions do not. The same bits come out for any number of threads.
    """

    takes: ClassVar[tuple[RowForm, ...]] = ("sparse", "vector")
    wants: ClassVar[frozenset[Wish]] = frozenset({"dev"})

    kind: Literal["network"] = "network"

    def _fit(self, data: TrainingData, context: FitContext) -> FittedNetwork:
        from xcore.network.fitting import fit_network

        found = fit_network(self, data, context)
        output = (found.labels, found.weights, found.biases)
        return FittedNetwork(data.form, data.n_labels, found.network, *output, self.loss == "logistic")

    @property
    def score_scale(self) -> ScoreScale:
        return "share" if self.loss == "logistic" else "log"

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
        Label id of each output, ascending.
    weights : float32 (m, d)
    biases : float32 (m,)
    is_logistic : bool
        Scores are probabilities of each label alone; else they are logarithms of shares, up to a constant per row.
    """

    form: RowForm
    n_labels: int
    network: Network
    labels: Int32
    weights: Float32
    biases: Float32
    is_logistic: bool

    @property
    def n_features(self) -> int:
        return self.network.n_features

    def predict_topk(self, X: Matrix, k: int) -> TopK:
        """The k best labels of each row; ties go to the lower label id. Cost of a row O(nnz width + m d)."""
        rows = rows_for(self, X, k)
        top = TopK(np.empty((rows.shape[0], k), np.int32), np.empty((rows.shape[0], k), np.float32))
        for part in row_blocks(rows.shape[0], max(1, BLOCK_SCORES // len(self.labels))):
            scores = product_of_rows(self.network.transform(rows[part]), self.weights)
            scores += self.biases
            best = topk_of_dense(scores, k)
            is_label = best.labels != NO_LABEL
            top.labels[part] = np.where(is_label, self.labels[np.maximum(best.labels, 0)], NO_LABEL)
            top.scores[part] = np.where(is_label, self._answer(best.scores), -np.inf)
        return top

    def _answer(self, scores: Float32) -> Float32:
        if not self.is_logistic:
            return scores
        odds: Float32 = np.exp(-np.maximum(scores, np.float32(-80)))
        return np.float32(1) / (np.float32(1) + odds)

    def save(self, directory: Path) -> None:
        """Write ``weights.safetensors`` and ``model.json``."""
        output = {"labels": self.labels, "output_weights": self.weights, "output_biases": self.biases}
        write_arrays(directory / "weights.safetensors", output | self.network.arrays())
        sizes = {"n_features": self.n_features, "n_labels": self.n_labels, "sizes": self.network.sizes}
        about = {"kind": "network", "form": self.form, **sizes, "is_logistic": self.is_logistic}
        (directory / "model.json").write_text(json.dumps(about, indent=2) + "\n")

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read what `save` wrote."""
        about = read_json(directory / "model.json", _About)
        with ArrayFile(directory / "weights.safetensors") as file:
            network = Network.take(file, about.n_features, about.sizes)
            labels = file.take("labels", np.int32, (None,)).within(0, about.n_labels).ascending()
            if not len(labels.array):
                labels.refuse("is empty", "at least one label")
            shape = (len(labels.array), network.dimensions)
            weights = file.take("output_weights", np.float32, shape).finite().array
            biases = file.take("output_biases", np.float32, shape[:1]).finite().array
        return cls(about.form, about.n_labels, network, labels.array, weights, biases, about.is_logistic)


class _About(Described):
    """``model.json``."""

    kind: Literal["network"]
    form: Literal["sparse", "vector"]
    n_features: Count
    n_labels: Count
    sizes: Annotated[list[Annotated[int, Field(ge=1, lt=2**24)]], Field(min_length=1)]
    is_logistic: bool
