"""Options of the family, and the fitted model that predicts and saves itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field

from xcore.embedding.family import AnyEmbedding, load_embedding
from xcore.embedding.pca import FittedPca, Pca
from xcore.errors import ArtifactDamaged, ConfigError
from xcore.models.base import Model, ScoreScale, rows_for
from xcore.models.negative_sampling.label_sampler import LabelSampler
from xcore.models.negative_sampling.linear_scorer import Scorer, evaluate, ranking_quality
from xcore.models.negative_sampling.pairs import Positives, Split
from xcore.models.negative_sampling.sgd import FirstBiases, Method, Problem, Schedule, train
from xcore.models.negative_sampling.simple_model import advice
from xcore.models.negative_sampling.updates import Parameters
from xcore.numeric.arrays import write_arrays
from xcore.numeric.checks import ArrayFile, is_finite
from xcore.numeric.matrices import NO_LABEL, Float32, Int32, TopK, row_blocks
from xcore.sampling.sampler import FittedSampler, FittedTree, Frequency, Tree, Uniform, load_sampler
from xcore.saved import Count, Described, read_json
from xcore.training.checkpoints import Checkpoints, training_name
from xcore.training.context import FitContext
from xcore.training.data import Matrix, RowForm, TrainingData
from xcore.training.stages import DeclaredStage, RowMap

FEWEST_STEPS = 20  # an epoch; small data take smaller batches
MAX_SOFTMAX_CLASSES = 100_000
WITH_TREE = {"adversarial", "nce"}
FIRST_STEP = 2.0  # how far a first step moves the score of a row, if no learning rate is given
SMALLEST_SIZE = 1e-6


class NegativeSampling(Positives, Model):
    """Linear classifiers on dense features, trained to distinguish true labels from sampled negatives.

    ``adversarial`` draws the negatives from a tree that mimics the data (Bamler and Mandt, 2020), so they are hard to
    distinguish from true labels. The log-probabilities of the tree are added to the scores. The other methods are
    baselines.

    Notes
    -----
    - A step costs O(batch_size n_negatives (d + k log C)), whatever the number C of labels; the full softmax costs
      O(batch_size d C). Memory is that of the weights and of Adagrad's sums, 8 C d bytes, and the dense features.
    - Sparse features become principal components first; dense ones are taken as they are. These, their projection and
      the tree are stages: they are made once for all models that share them. The components limit what can be learnt:
      where a ridge regression of the rows themselves ranks held-out rows better, the fit says so.
    - The components are not whitened. Whitened, those of little variance are mostly noise, and Adagrad, whose steps
      have the same size in every direction, learns them by heart.
    - Without a given learning rate, it is 2 divided by the mean of ``|x|_1`` over the training rows: a first step then
      moves the score of a row by about 2, whatever the scale and the number of the features.
    - After each epoch, nDCG@5 is measured on the held-out rows. `patience` and the kept weights follow from it.
    - Labels without a training row are not trained, and never offered.
    - With ``labels: all`` every label of a row is a positive of its own (ours; the paper keeps the smallest id), so
      that scores estimate how a row's label is distributed. A target q multiplies its positive's part of the loss, with
      its negatives: this is the expected loss if the label is the row's with the chance q. No part of it counts as a
      negative of that label, because a row without a label adds no positive to be met with negatives.
    - The initial biases of the released code cancel the tree's mean scores (``first_biases: inverse``), so training has
      to learn the tree's ranking again. Biases of 0 start with the tree's ranking. The default was chosen on rows
      held out from 20,000 training rows of EURLEX57K, one label per row, 256 dimensions, learning rate 0.03:
      accuracy 53.7 % against 27.5 % after 20 epochs, 48.6 % against 16.4 % after one.
    - The biases of nce start at the log-frequencies of the labels, because its scores are log-probabilities. The
      released code starts at random: it reached 0.3 % on those rows in 20 epochs. This start reached 46 % in two.
    - uniform and frequency regularise the raw scores, as the paper's code does; one-vs-each, augment-and-reduce and
      softmax have a Gaussian prior on the weights instead.
    """

    takes: ClassVar[tuple[RowForm, ...]] = ("sparse", "vector")

    kind: Literal["negative-sampling"] = "negative-sampling"
    method: Method = Field(
        "adversarial",
        description="How negative labels are drawn, and which loss is used. softmax uses all labels instead of "
        "a sample.",
    )
    embedding: AnyEmbedding = Field(
        Pca(), description="How sparse rows become vectors. Rows that are vectors already are used as they are."
    )
    epochs: int = Field(20, ge=1, description="Number of passes over the positives. Training time grows in proportion.")
    batch_size: int = Field(
        1000,
        ge=1,
        description="Number of positives per step. It is reduced if an epoch would have fewer than 20 steps.",
    )
    n_negatives: int = Field(
        10,
        ge=1,
        title="Negatives",
        description="Number of negative labels drawn per positive. Training time grows with it.",
    )
    patience: int = Field(
        3,
        ge=0,
        description="Stop after this many epochs without a better nDCG@5 on the held-out rows, and keep the weights "
        "of the best epoch. 0: run all epochs and keep the last weights.",
    )
    learning_rate: float | None = Field(
        None, gt=0, description="Learning rate of Adagrad. None: it follows from the size of the features."
    )
    regulariser: float = Field(
        1e-3,
        ge=0,
        description="Weight of the penalty on the squared corrected scores (Eq. 6). A larger weight keeps the "
        "scores smaller.",
    )
    prior_variance: float = Field(
        10.0,
        gt=0,
        description="Variance of the Gaussian prior on the weights. A smaller variance regularises more. Only "
        "for one-vs-each, augment-and-reduce and softmax.",
    )
    first_biases: FirstBiases = Field(
        "zero",
        description="Initial biases of method adversarial. zero: training starts with the ranking of the tree. "
        "inverse: training starts with equal mean scores for all labels, as in the released code.",
    )
    tree: Tree = Field(Tree(), description="The tree from which adversarial and nce draw negative labels.")
    tree_dimensions: int = Field(
        16,
        ge=1,
        description="Number of principal components that the tree uses. More components make it more accurate "
        "and slower.",
    )
    correct_bias: bool = Field(
        True, description="Add log p_n to the scores (Eq. 5). Switch it off only to see its effect."
    )
    shortlist: int = Field(
        0,
        ge=0,
        description="Score only this many labels per row, found by beam search in the tree. Fewer are faster "
        "and may miss labels. 0: score all labels.",
    )

    def stages(self, form: RowForm) -> dict[str, DeclaredStage]:
        """The vectors of sparse rows; and where a tree draws, what it sees of them and the tree itself."""
        declared: dict[str, DeclaredStage] = {}
        if form == "sparse":
            declared["embedding"] = DeclaredStage(self.embedding)
        if self.method in WITH_TREE:
            seen = "embedding" if declared else None
            declared["projection"] = DeclaredStage(Pca(dimensions=self.tree_dimensions, whiten=True), rows=seen)
            declared["tree"] = DeclaredStage(self.sampler, rows="projection")
        return declared

    @property
    def sampler(self) -> LabelSampler:
        """The tree, fitted to the positives that this model trains on."""
        return LabelSampler(
            tree=self.tree,
            labels=self.labels,
            held_out_share=self.held_out_share,
            max_held_out=self.max_held_out,
        )

    def _fit(self, data: TrainingData, context: FitContext) -> FittedNegativeSampling:
        """Train on the vectors that the stages made; the learning curve is measured on dev rows, if there are any."""
        seed = int(context.rng.integers(2**63))
        maps = _Maps.of(data)
        X = data.stage("embedding").X if maps.embedding else np.ascontiguousarray(data.X, np.float32)
        Z = data.stage("projection").X if maps.projection else np.zeros((len(X), 0), np.float32)
        split = self.split(data.Y)
        self._check(len(split.labels))
        noise = self._noise(data, Z, split)
        used = noise if self._corrects() else None
        held_out = measured = (X, Z, split.held_out)
        if data.dev is not None:
            measured = (*maps.apply(data.dev.X), split.of_others(data.dev.Y, self.labels))

        def scorer_of(parameters: Parameters) -> Scorer:
            return Scorer(parameters.rows, parameters.biases.copy(), used)

        def measure(parameters: Parameters) -> dict[str, float]:
            return evaluate(scorer_of(parameters), *measured) if len(measured[2]) else {}

        def judge(parameters: Parameters) -> float:
            return float(ranking_quality(scorer_of(parameters), *held_out).mean())

        name = training_name(self._training_options(), seed, (X, data.Y)) if context.scratch else ""
        problem = self._problem(X, Z, split, noise)
        schedule = self._schedule(problem, seed)
        sampler = [data.stages[role] for role in ("projection", "tree") if role in data.stages]
        spent = (sum(stage.seconds for stage in sampler), sum(stage.cpu_seconds for stage in sampler))
        checkpoints = Checkpoints(context.scratch, name)
        judging = judge if len(split.held_out) else None
        weights = train(problem, schedule, spent, measure, judging, context.report, checkpoints, context.curve)
        scorer = Scorer(*weights, used)
        if maps.embedding and len(split.held_out):
            said = advice(data.X, split, ranking_quality(scorer, *held_out))
            if said:
                context.note(said)
        n_features = maps.embedding.n_features if maps.embedding else X.shape[1]
        return FittedNegativeSampling(
            n_features, data.n_labels, split.labels, scorer, maps.embedding, maps.projection, self.shortlist
        )

    def _training_options(self) -> dict[str, Any]:
        """The options that training depends on; those of prediction do not matter."""
        return {name: value for name, value in self.options().items() if name != "shortlist"}

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

    def _noise(self, data: TrainingData, Z: Float32, split: Split) -> FittedSampler | None:
        if self.method == "softmax":
            return None
        if self.method not in WITH_TREE:
            options = Frequency() if self.method == "frequency" else Uniform()
            pairs = split.train
            return options.fit(Z[pairs.rows], pairs.classes, len(split.labels), pairs.weights)
        tree: FittedTree = data.stage("tree").fitted
        if tree.n_labels != len(split.labels):
            raise ConfigError(
                f"method: {self.method} needs a tree of the {len(split.labels)} labels that it trains on, got one of "
                f"{tree.n_labels} labels: fit the tree on the same rows, with the same labels and held_out_share"
            )
        return tree

    def _problem(self, X: Float32, Z: Float32, split: Split, noise: FittedSampler | None) -> Problem:
        pairs, log_noise = split.train, np.zeros(len(split.train), np.float32)
        if noise is not None:
            log_noise = noise.log_prob(Z[pairs.rows], pairs.classes[:, None])[:, 0]
        return Problem(X, Z, pairs, len(split.labels), noise, log_noise)

    def _schedule(self, problem: Problem, seed: int) -> Schedule:
        rate = self.learning_rate or FIRST_STEP / max(mean_size(problem.X), SMALLEST_SIZE)
        return Schedule(
            method=self.method,
            epochs=self.epochs,
            batch_size=min(self.batch_size, -(-len(problem.pairs) // FEWEST_STEPS)),
            n_negatives=self.n_negatives,
            learning_rate=rate,
            regulariser=self.regulariser,
            prior_variance=self.prior_variance,
            first_biases=self.first_biases,
            patience=self.patience,
            seed=np.uint64(seed),
        )

    @property
    def score_scale(self) -> ScoreScale:
        return "log"

    @classmethod
    def load(cls, directory: Path) -> FittedNegativeSampling:
        """Open a model that `FittedNegativeSampling.save` wrote."""
        return FittedNegativeSampling.load(directory)


@dataclass(frozen=True)
class _Maps:
    """From the rows that the model takes to its vectors, and on to what the tree sees."""

    embedding: RowMap | None
    projection: FittedPca | None

    @classmethod
    def of(cls, data: TrainingData) -> _Maps:
        found = [data.stages[role].fitted if role in data.stages else None for role in ("embedding", "projection")]
        return cls(*found)

    def apply(self, X: Matrix) -> tuple[Float32, Float32]:
        x = np.ascontiguousarray(X, np.float32) if self.embedding is None else self.embedding.transform(X)
        return x, np.zeros((len(x), 0), np.float32) if self.projection is None else self.projection.transform(x)


@dataclass(frozen=True)
class FittedNegativeSampling:
    """A trained model.

    Attributes
    ----------
    labels : int32 (C,)
        Label ids of the classes, ascending.
    scorer : Scorer
        The linear model, with the noise if it is added to the scores.
    embedding : RowMap or None
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
    embedding: RowMap | None
    projection: FittedPca | None
    shortlist: int = 0

    @property
    def form(self) -> RowForm:
        return "vector" if self.embedding is None else "sparse"

    def predict_topk(self, X: Matrix, k: int) -> TopK:
        """The k best labels of each row, with scores ``xi + log p_n``; ties go to the lower label id.

        Cost of a row O(C (d + tree_dimensions)), or O(shortlist (d + tree_dimensions log C)).
        """
        x, z = self._features(rows_for(self, X, k))
        if self.shortlist:
            return self._named(self.scorer.shortlist_topk(x, z, k, self.shortlist))
        return self._named(self.scorer.exact_topk(x, z, k))

    def shortlist_recall(self, X: Matrix, k: int, width: int | None = None) -> float | None:
        """The share of the exact k best labels of the rows of X that a shortlist contains, by default the model's."""
        width = self.shortlist if width is None else width
        if not width:
            return None
        x, z = self._features(rows_for(self, X, k))
        exact, short = self.scorer.exact_topk(x, z, k), self.scorer.shortlist_topk(x, z, width, width)
        found = (exact.labels[:, :, None] == short.labels[:, None, :]).any(axis=2) & (exact.labels != NO_LABEL)
        return float(found.sum() / max((exact.labels != NO_LABEL).sum(), 1))

    def _features(self, X: Matrix) -> tuple[Float32, Float32]:
        is_used = isinstance(self.scorer.noise, FittedTree)
        return _Maps(self.embedding, self.projection if is_used else None).apply(X)

    def _named(self, top: TopK) -> TopK:
        named = np.where(top.labels == NO_LABEL, NO_LABEL, self.labels[np.maximum(top.labels, 0)])
        return TopK(named.astype(np.int32), top.scores)

    def save(self, directory: Path) -> None:
        """Write ``weights.safetensors``, ``model.json``, and two files for each part that there is."""
        if not (is_finite(self.scorer.weights) and is_finite(self.scorer.biases)):
            raise ConfigError("the training has diverged: weights are NaN or infinite. Lower learning_rate")
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
        about = read_json(directory / "model.json", _About)
        parts = _load_parts(directory, about.parts)
        embedding: RowMap | None = parts.get("embedding")
        with ArrayFile(directory / "weights.safetensors") as file:
            named = file.take("labels", np.int32, (None,)).within(0, about.n_labels).ascending()
            labels = named.array
            if not len(labels):
                named.refuse("is empty", "at least one label")
            d = embedding.dimensions if embedding else about.n_features
            weights = file.take("weights", np.float32, (len(labels), d)).finite().array
            biases = file.take("biases", np.float32, labels.shape).finite().array
        scorer, sizes = Scorer(weights, biases, parts.get("noise")), (about.n_features, about.n_labels)
        model = cls(*sizes, labels, scorer, embedding, parts.get("projection"), about.shortlist)
        problem = model._misfit()
        if problem:
            raise ArtifactDamaged(f"the files in {directory} do not fit together: {problem}; make the model again")
        return model

    def _misfit(self) -> str | None:
        """What does not fit between the parts, which are already checked one by one; None if all fits."""
        noise, d = self.scorer.noise, self.scorer.weights.shape[1]
        if self.shortlist and not isinstance(noise, FittedTree):
            return f"shortlist is {self.shortlist}, but there is no tree to find it in"
        if noise is not None and noise.n_labels != len(self.labels):
            return f"the noise knows {noise.n_labels} labels, the weights {len(self.labels)}"
        if self.embedding is not None and self.embedding.n_features != self.n_features:
            return f"the embedding takes {self.embedding.n_features} features, the model {self.n_features}"
        if self.projection is not None and self.projection.n_features != d:
            return f"the projection takes {self.projection.n_features} features, the weights {d}"
        seen = self.projection.dimensions if self.projection else 0
        if isinstance(noise, FittedTree) and noise.n_features != seen:
            return f"the tree takes {noise.n_features} features, the projection makes {seen}"
        return None


def mean_size(X: Float32) -> float:
    """The mean over rows of ``|x|_1``."""
    return sum(float(np.abs(X[part]).sum(dtype=np.float64)) for part in row_blocks(len(X), 4096)) / max(len(X), 1)


def _load_parts(directory: Path, wanted: Sequence[str]) -> dict[str, Any]:
    """The parts that ``model.json`` names, which are those that have files."""
    openers = {"embedding": load_embedding, "noise": load_sampler, "projection": FittedPca.load}
    present = {name for name in openers if (directory / f"{name}.json").exists()}
    if present != set(wanted):
        raise ArtifactDamaged(
            f"{directory} holds the parts {sorted(present)}, expected {sorted(wanted)}, as in model.json; "
            "make the artifact again"
        )
    return {name: openers[name](directory, name) for name in sorted(present)}


class _About(Described):
    """``model.json``."""

    kind: Literal["negative-sampling"]
    n_features: Count
    n_labels: Count
    shortlist: Count
    parts: list[Literal["embedding", "projection", "noise"]]
