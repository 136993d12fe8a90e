"""Options of the family, and the fitted model that predicts and saves itself."""

from __future__ import annotations

import hashlib
import json
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import scipy.sparse as sp
from pydantic import Field

from xcore.components import Report
from xcore.errors import ConfigError
from xcore.matrices import NO_LABEL, Float32, Int32, TopK, open_arrays, write_arrays
from xcore.models.base import Model, TrainingData
from xcore.models.negative_sampling.pairs import Split
from xcore.models.negative_sampling.scoring import Scorer, evaluate
from xcore.models.negative_sampling.training import Checkpoints, FirstBiases, Method, Problem, Schedule, train
from xcore.models.negative_sampling.updates import Parameters
from xcore.sampling.pca import FittedPca, Pca, RowBlocks
from xcore.sampling.sampler import FittedSampler, FittedTree, Frequency, Tree, Uniform, load_sampler

FEWEST_STEPS = 20  # an epoch; small data take smaller batches
MAX_SOFTMAX_CLASSES = 100_000
WITH_TREE = {"adversarial", "nce"}


class NegativeSampling(Model):
    """Linear classifiers of dense features, trained to tell true labels from sampled ones.

    ``adversarial`` draws the false labels from a tree that mimics the data (Bamler and Mandt, 2020): they are hard to
    tell from true ones, and what the tree knows is added back to the scores. The other methods are its baselines.

    Notes
    -----
    - A step costs O(batch_size n_negatives (d + k log C)), whatever the number C of labels; the full softmax costs
      O(batch_size d C). Memory is that of the weights and of Adagrad's sums, 8 C d bytes, and the dense features.
    - Sparse features become whitened principal components first; dense ones are taken as they are.
    - Labels without a training row are not trained, and never offered.
    - With ``labels: all`` every label of a row is a positive of its own (ours; the paper keeps the smallest id), so
      that scores estimate how a row's label is distributed. A positive's weight multiplies its part of the loss.
    - The released code begins with biases that take back the tree's mean scores (``first_biases: inverse``), and then
      has to learn the tree's ranking anew; to begin with 0 is to begin with the tree's ranking.
    - uniform and frequency regularise the raw scores, as the paper's code does; one-vs-each, augment-and-reduce and
      softmax have a Gaussian prior on the weights instead.
    """

    kind: Literal["negative-sampling"] = "negative-sampling"
    method: Method = Field("adversarial", description="Where false labels come from, and what loss is made of them.")
    labels: Literal["all", "first"] = Field(
        "all", description="all: each label of a row is a positive; first: only the one with the smallest id."
    )
    dimensions: int = Field(512, ge=1, description="Principal components that sparse features become, at most.")
    whiten: bool = Field(True, description="Scale these components to variance 1.")
    epochs: int = Field(20, ge=1, description="Passes over the positives.")
    batch_size: int = Field(1000, ge=1, description="Positives of a step; fewer if an epoch has less than 20 steps.")
    n_negatives: int = Field(10, ge=1, title="Negatives", description="Labels drawn for each positive.")
    learning_rate: float = Field(0.03, gt=0, description="Adagrad's rate.")
    regulariser: float = Field(1e-3, ge=0, description="Weight of the squared corrected scores (Eq. 6).")
    prior_variance: float = Field(
        10.0, gt=0, description="Of the weights, in one-vs-each, augment-and-reduce and softmax."
    )
    first_biases: FirstBiases = Field(
        "zero",
        description="adversarial begins with the tree's own ranking (zero), or with all labels alike (inverse), "
        "as the released code does.",
    )
    tree: Tree = Field(Tree(), description="The tree that adversarial and nce draw from.")
    tree_dimensions: int = Field(16, ge=1, description="Principal components that the tree sees.")
    correct_bias: bool = Field(True, description="Add log p_n to the scores (Eq. 5); false shows what that does.")
    shortlist: int = Field(
        0, ge=0, description="Score only this many labels, found in the tree by beam search; 0 scores all of them."
    )
    held_out_share: float = Field(
        0.01, ge=0, le=0.5, description="Rows not trained on, on which the learning curve is measured."
    )
    max_held_out: int = Field(1000, ge=0, description="Most rows held out.")

    def fit(
        self, data: TrainingData, rng: np.random.Generator, report: Report, checkpoints: Path | None = None
    ) -> FittedNegativeSampling:
        """Project the features, fit the noise, and train.

        With a folder for `checkpoints`, a training that was killed goes on where it was, to the same bits, when it is
        started again with the same data, options and generator.
        """
        seed = int(rng.integers(2**63))
        n_held_out = min(self.max_held_out, int(self.held_out_share * data.X.shape[0]))
        split = Split.of(data.Y, self.labels, n_held_out, np.random.default_rng([seed, 1]))
        self._check(len(split.labels))
        embedding, X = self._embedded(data.X, np.random.default_rng([seed, 2]))
        start = time.perf_counter()
        projection, Z = self._projected(X, np.random.default_rng([seed, 3]))
        noise = self._noise(Z, split)
        seconds = time.perf_counter() - start
        used = noise if self._corrects() else None

        def measure(parameters: Parameters) -> dict[str, float]:
            scorer = Scorer(parameters.rows, parameters.biases.copy(), used)
            return evaluate(scorer, X, Z, split.held_out) if len(split.held_out) else {}

        kept = Checkpoints(checkpoints, self._name(data, seed))
        parameters = train(
            self._problem(X, Z, split, noise), self._schedule(split, seed), seconds, measure, report, kept
        )
        scorer = Scorer(*parameters.without_sums(), used)
        return FittedNegativeSampling(
            data.X.shape[1], data.Y.shape[1], split.labels, scorer, embedding, projection, self.shortlist
        )

    def _check(self, n_classes: int) -> None:
        if self.method == "softmax" and n_classes > MAX_SOFTMAX_CLASSES:
            raise ConfigError(
                f"method: softmax visits all {n_classes:,} labels in every step, and is made for at most "
                f"{MAX_SOFTMAX_CLASSES:,}. Use method: adversarial"
            )
        if self.shortlist and not (self.method == "adversarial" and self.correct_bias):
            raise ConfigError(
                f"shortlist: {self.shortlist} needs the tree's scores, but method is {self.method} with correct_bias: "
                f"{str(self.correct_bias).lower()}. Use method: adversarial with correct_bias: true, or shortlist: 0"
            )

    def _corrects(self) -> bool:
        return self.correct_bias and self.method in ("adversarial", "frequency")

    def _embedded(self, X: Any, rng: np.random.Generator) -> tuple[FittedPca | None, Float32]:
        if not sp.issparse(X):
            return None, np.ascontiguousarray(X, np.float32)
        embedding = Pca(dimensions=self.dimensions, whiten=self.whiten).fit(RowBlocks(X), rng)
        return embedding, embedding.transform(X)

    def _projected(self, X: Float32, rng: np.random.Generator) -> tuple[FittedPca | None, Float32]:
        if self.method not in WITH_TREE:
            return None, np.zeros((len(X), 0), np.float32)
        projection = Pca(dimensions=self.tree_dimensions, exact_features=X.shape[1]).fit(RowBlocks(X), rng)
        return projection, projection.transform(X)

    def _noise(self, Z: Float32, split: Split) -> FittedSampler | None:
        if self.method == "softmax":
            return None
        options = self.tree if self.method in WITH_TREE else Frequency() if self.method == "frequency" else Uniform()
        return options.fit(Z[split.train.rows], split.train.classes, len(split.labels))

    def _problem(self, X: Float32, Z: Float32, split: Split, noise: FittedSampler | None) -> Problem:
        pairs, log_noise = split.train, np.zeros(len(split.train), np.float32)
        if noise is not None:
            log_noise = noise.log_prob(Z[pairs.rows], pairs.classes[:, None])[:, 0]
        return Problem(X, Z, pairs, len(split.labels), noise, log_noise)

    def _schedule(self, split: Split, seed: int) -> Schedule:
        return Schedule(
            method=self.method,
            epochs=self.epochs,
            batch_size=min(self.batch_size, -(-len(split.train) // FEWEST_STEPS)),
            n_negatives=self.n_negatives,
            learning_rate=self.learning_rate,
            regulariser=self.regulariser,
            prior_variance=self.prior_variance,
            first_biases=self.first_biases,
            seed=np.uint64(seed),
        )

    def _name(self, data: TrainingData, seed: int) -> str:
        """Names a training by its options, seed and data; prediction's options do not matter."""
        options = self.options()
        del options["shortlist"]
        arrays = [data.Y.indices, data.Y.indptr, data.Y.data]
        arrays += [data.X.data, data.X.indices, data.X.indptr] if sp.issparse(data.X) else [data.X]
        sums = [zlib.crc32(np.ascontiguousarray(array).view(np.uint8).data) for array in arrays]
        return hashlib.sha256(json.dumps([options, seed, sums], sort_keys=True).encode()).hexdigest()

    @classmethod
    def load(cls, directory: Path) -> FittedNegativeSampling:
        """Open a model that `FittedNegativeSampling.save` wrote."""
        return FittedNegativeSampling.load(directory)


@dataclass(frozen=True)
class FittedNegativeSampling:
    """A trained model.

    Attributes
    ----------
    labels : int32 (C,)
        Label ids of the classes, ascending.
    scorer : Scorer
        The linear model, with the noise if it is added to the scores.
    embedding : FittedPca or None
        From sparse features to those of the linear model.
    projection : FittedPca or None
        From the features of the linear model to those of the tree.
    shortlist : int
        Labels that the tree proposes for a row; 0 if all are scored.
    """

    n_features: int
    n_labels: int
    labels: Int32
    scorer: Scorer
    embedding: FittedPca | None
    projection: FittedPca | None
    shortlist: int = 0

    def predict_topk(self, X: Any, k: int) -> TopK:
        """The k best labels of each row, with scores ``xi + log p_n``; ties go to the lower label id.

        Cost of a row O(C (d + tree_dimensions)), or O(shortlist (d + tree_dimensions log C)).
        """
        if X.shape[1] != self.n_features:
            raise ConfigError(f"this model was trained on {self.n_features} features, got rows with {X.shape[1]}")
        if k < 1:
            raise ConfigError(f"k must be at least 1, got {k}")
        x, z = self._features(X)
        if self.shortlist:
            return self._named(self.scorer.shortlist_topk(x, z, k, self.shortlist))
        return self._named(self.scorer.exact_topk(x, z, k))

    def shortlist_recall(self, X: Any, k: int, width: int) -> float:
        """The share of the exact k best labels of the rows of X that a shortlist of `width` labels contains."""
        x, z = self._features(X)
        exact, short = self.scorer.exact_topk(x, z, k), self.scorer.shortlist_topk(x, z, width, width)
        found = (exact.labels[:, :, None] == short.labels[:, None, :]).any(axis=2) & (exact.labels != NO_LABEL)
        return float(found.sum() / max((exact.labels != NO_LABEL).sum(), 1))

    def _features(self, X: Any) -> tuple[Float32, Float32]:
        x = np.ascontiguousarray(X, np.float32) if self.embedding is None else self.embedding.transform(X)
        is_used = self.projection is not None and isinstance(self.scorer.noise, FittedTree)
        return x, self.projection.transform(x) if self.projection and is_used else np.zeros((len(x), 0), np.float32)

    def _named(self, top: TopK) -> TopK:
        named = np.where(top.labels == NO_LABEL, NO_LABEL, self.labels[np.maximum(top.labels, 0)])
        return TopK(named.astype(np.int32), top.scores)

    def save(self, directory: Path) -> None:
        """Write ``weights.safetensors``, ``model.json``, and two files for each part that there is."""
        weights = {"weights": self.scorer.weights, "biases": self.scorer.biases, "labels": self.labels}
        write_arrays(directory / "weights.safetensors", weights)
        parts = {"embedding": self.embedding, "projection": self.projection, "noise": self.scorer.noise}
        kept = {name: part for name, part in parts.items() if part is not None}
        for name, part in kept.items():
            part.save(directory, name)
        about = {"n_features": self.n_features, "n_labels": self.n_labels, "shortlist": self.shortlist}
        about_all = {"kind": "negative-sampling", **about, "parts": sorted(kept)}
        (directory / "model.json").write_text(json.dumps(about_all, indent=2) + "\n")

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Map what `save` wrote into memory."""
        about, arrays = (
            json.loads((directory / "model.json").read_text()),
            open_arrays(directory / "weights.safetensors"),
        )
        parts = about["parts"]
        noise = load_sampler(directory, "noise") if "noise" in parts else None
        embedding, projection = (
            FittedPca.load(directory, name) if name in parts else None for name in ("embedding", "projection")
        )
        scorer = Scorer(arrays["weights"], arrays["biases"], noise)
        sizes = (about["n_features"], about["n_labels"])
        return cls(*sizes, arrays["labels"], scorer, embedding, projection, about["shortlist"])
