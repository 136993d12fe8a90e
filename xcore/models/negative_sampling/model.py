"""Options of the family, and what trains it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from xcore.embedding.family import AnyEmbedding
from xcore.embedding.pca import Pca
from xcore.errors import ConfigError
from xcore.models.base import Model, ScoreScale
from xcore.models.negative_sampling.fitted import FittedNegativeSampling, Maps
from xcore.models.negative_sampling.label_sampler import LabelSampler
from xcore.models.negative_sampling.linear_scorer import Scorer, evaluate, ranking_quality
from xcore.models.negative_sampling.pairs import Positives, Split
from xcore.models.negative_sampling.sgd import FirstBiases, Method, Problem, Schedule, train
from xcore.models.negative_sampling.simple_model import advice
from xcore.models.negative_sampling.updates import Parameters
from xcore.numeric.matrices import Float32, row_blocks
from xcore.sampling.sampler import FittedSampler, FittedTree, Frequency, Tree, Uniform
from xcore.training.checkpoints import Checkpoints
from xcore.training.context import FitContext
from xcore.training.data import RowForm, TrainingData
from xcore.training.stages import DeclaredStage

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
        maps = Maps.of(data)
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

        problem = self._problem(X, Z, split, noise)
        schedule = self._schedule(problem, seed)
        sampler = [data.stages[role] for role in ("projection", "tree") if role in data.stages]
        spent = (sum(stage.seconds for stage in sampler), sum(stage.cpu_seconds for stage in sampler))
        checkpoints = Checkpoints.of(context.scratch, self._training_options(), seed, (X, data.Y))
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

    @property
    def is_distribution(self) -> bool:
        return True

    @classmethod
    def load(cls, directory: Path) -> FittedNegativeSampling:
        """Open a model that `FittedNegativeSampling.save` wrote."""
        return FittedNegativeSampling.load(directory)


def mean_size(X: Float32) -> float:
    """The mean over rows of ``|x|_1``."""
    return sum(float(np.abs(X[part]).sum(dtype=np.float64)) for part in row_blocks(len(X), 4096)) / max(len(X), 1)
