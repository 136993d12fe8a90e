"""The training loop: batches by counter, one step per batch, a checkpoint now and then, a report per epoch.

The order of an epoch, the labels drawn for a pair and the first weights all follow from the seed and a counter, so a
training that was killed continues from its last checkpoint to the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numba
import numpy as np

from xcore.components import Report
from xcore.models.negative_sampling.losses import augment_and_reduce, one_vs_each
from xcore.models.negative_sampling.pairs import Pairs
from xcore.models.negative_sampling.updates import (
    Batch,
    Parameters,
    Separable,
    descend_rows,
    score_pairs,
    step_given,
    step_separable,
)
from xcore.numeric.draws import keys_of
from xcore.numeric.matrices import Float32, Float64, Int64, row_blocks
from xcore.numeric.parallel import over_blocks, single_threaded_blas
from xcore.numeric.stopwatch import Stopwatch
from xcore.sampling.sampler import FittedSampler, FittedUniform
from xcore.training.checkpoints import Checkpoints
from xcore.training.context import CurvePoints

Method = Literal["adversarial", "uniform", "frequency", "nce", "one-vs-each", "augment-and-reduce", "softmax"]
FirstBiases = Literal["zero", "inverse"]
# How log p_n enters the logit of the loss, and the regularised score: see `losses`.
SEPARABLE = {"adversarial": (0.0, 1.0), "uniform": (0.0, 0.0), "frequency": (0.0, 0.0), "nce": (-1.0, 0.0)}

REPORTS_AN_EPOCH = 20
SMALLEST_MASS = 1e-3  # positives that a label counts for at least in its first bias
SOFTMAX_CLASSES = 1024  # of a tile that a thread takes at a time
FIRST_POINTS = 8  # of a finely measured curve within the first epoch
ETA_DECAY = 0.9  # the n-th visit moves a row's eta by n^-0.9 of the way, as Ruiz et al. (2018) do


@dataclass(frozen=True)
class Problem:
    """What is trained on.

    Attributes
    ----------
    X : float32 (n, d)
    Z : float32 (n, k)
        Features of the noise.
    pairs : Pairs
    n_classes : int
    noise : FittedSampler or None
        None for the full softmax.
    log_noise : float32 (n_pairs,)
        ``log p_n(y | x)`` of each pair.
    """

    X: Float32
    Z: Float32
    pairs: Pairs
    n_classes: int
    noise: FittedSampler | None
    log_noise: Float32


@dataclass(frozen=True)
class Schedule:
    """How it is trained; see the fields of `NegativeSampling`."""

    method: Method
    epochs: int
    batch_size: int
    n_negatives: int
    learning_rate: float
    regulariser: float
    prior_variance: float
    first_biases: FirstBiases
    patience: int
    seed: np.uint64


@dataclass
class State:
    """All that changes in training; this is what a checkpoint holds.

    Attributes
    ----------
    etas : float64 (n_pairs,), or empty
        Of augment-and-reduce.
    step : int
        Steps done.
    loss : float
        Sum of the losses of this epoch's steps.
    seconds, cpu_seconds : float
        Time spent on the sampler and on steps: by the clock, and by all threads of this process.
    best_score : float
        The highest score of an epoch so far.
    idle : int
        Epochs since then.
    best : tuple of float32 (C, d) and (C,), or None
        Weights and biases of the best epoch; None where no epoch has been judged.
    """

    parameters: Parameters
    etas: Float64
    step: int = 0
    loss: float = 0.0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    best_score: float = -np.inf
    idle: int = 0
    best: tuple[Float32, Float32] | None = None

    def arrays(self) -> dict[str, Any]:
        """All of it, for a checkpoint."""
        numbers = (self.step, self.idle, self.loss, self.seconds, self.cpu_seconds, self.best_score)
        kept = {"best_weights": self.best[0], "best_biases": self.best[1]} if self.best else {}
        return self.parameters._asdict() | {"etas": self.etas, "numbers": np.array(numbers)} | kept

    @classmethod
    def of(cls, arrays: Mapping[str, Any]) -> State:
        """What `arrays` gave."""
        step, idle, loss, seconds, cpu_seconds, best_score = arrays["numbers"].tolist()
        parameters = Parameters(*(arrays[name] for name in Parameters._fields))
        best = (arrays["best_weights"], arrays["best_biases"]) if "best_weights" in arrays else None
        times = (loss, seconds, cpu_seconds)
        return cls(parameters, arrays["etas"], int(step), *times, best_score, int(idle), best)

    def judge(self, score: float) -> None:
        """Close an epoch, and keep its weights if none before had a higher score."""
        self.idle += 1
        if score > self.best_score:
            self.best_score, self.idle = score, 0
            self.best = (self.parameters.weights.copy(), self.parameters.biases.copy())

    def finish(self) -> tuple[Float32, Float32]:
        """Weights and biases that training ends with: those of the best epoch, or the last ones."""
        return self.best or self.parameters.without_sums()

    def spent(self) -> dict[str, float]:
        """The time spent so far, as metrics."""
        return {"seconds": self.seconds, "cpu_seconds": self.cpu_seconds}


def train(
    problem: Problem,
    schedule: Schedule,
    seconds_before: tuple[float, float],
    evaluate: Callable[[Parameters], dict[str, float]],
    judge: Callable[[Parameters], float] | None,
    report: Report,
    checkpoints: Checkpoints,
    points: CurvePoints = "epochs",
) -> tuple[Float32, Float32]:
    """Run all epochs, or what a checkpoint left of them, and give weights and biases.

    Training stops after `patience` epochs without a higher score of `judge`, and the weights of the best epoch are
    kept. Without a judge or without patience every epoch is run. `points` says where the learning curve is measured.
    """
    kept = checkpoints.read()
    state = State.of(kept) if kept else _first_state(problem, schedule, *seconds_before)
    n_pairs = len(problem.pairs)
    n_batches = -(-n_pairs // schedule.batch_size)
    total, advance = schedule.epochs * n_batches, _step_of(problem, schedule)
    pause = max(1, n_batches // REPORTS_AN_EPOCH)
    early = {n_batches >> halvings for halvings in range(1, FIRST_POINTS)} if points == "early" else set[int]()
    judge = judge if schedule.patience else None
    while state.step < total and (judge is None or state.idle < schedule.patience):
        epoch, first = divmod(state.step, n_batches)
        order = np.random.default_rng([int(schedule.seed), epoch]).permutation(n_pairs)
        for number in range(first, n_batches):
            with Stopwatch() as watch:
                chosen = np.sort(order[number * schedule.batch_size : (number + 1) * schedule.batch_size])
                state.loss += advance(state, chosen, epoch)
            state.step += 1
            state.seconds += watch.seconds
            state.cpu_seconds += watch.cpu_seconds
            if number + 1 < n_batches:
                if checkpoints.is_due():
                    checkpoints.write(state.arrays())
                if state.step in early:
                    report(state.step, total, state.spent() | evaluate(state.parameters))
                elif (number + 1) % pause == 0:
                    report(state.step, total)
        metrics = {"loss": state.loss / n_pairs} | state.spent()
        if points != "last" or epoch + 1 == schedule.epochs:
            metrics |= evaluate(state.parameters)
        state.loss = 0.0
        if judge is not None:
            state.judge(judge(state.parameters))
        if checkpoints.is_due() or epoch + 1 == schedule.epochs:
            checkpoints.write(state.arrays())
        report(state.step, total, metrics)
    report(total, total)
    return state.finish()


def _first_state(problem: Problem, schedule: Schedule, seconds: float, cpu_seconds: float) -> State:
    parameters = Parameters.random(problem.n_classes, problem.X.shape[1], schedule.seed)
    if schedule.method == "nce":
        # Its scores must be log-probabilities. From 0 they would have to fall by log C, a visit at a time, and labels
        # that are seldom drawn would stay above all others.
        # A positive of weight q counts q times; a label of hardly any weight keeps a finite bias.
        masses = np.bincount(problem.pairs.classes, problem.pairs.weights, problem.n_classes)
        masses = np.maximum(masses, SMALLEST_MASS)
        parameters.biases[:] = np.log(masses / masses.sum())
    elif schedule.method == "adversarial" and schedule.first_biases == "zero":
        parameters.biases[:] = 0
    elif schedule.method == "adversarial":
        # Corrected scores begin near 0: each bias is minus the mean log p_n of its class.
        weights = problem.pairs.weights
        sums = np.bincount(problem.pairs.classes, weights=problem.log_noise * weights, minlength=problem.n_classes)
        masses = np.bincount(problem.pairs.classes, weights, problem.n_classes)
        parameters.biases[:] = -sums / np.maximum(masses, SMALLEST_MASS)
    n_etas = len(problem.pairs) if schedule.method == "augment-and-reduce" else 0
    return State(parameters, np.full(n_etas, float(problem.n_classes)), seconds=seconds, cpu_seconds=cpu_seconds)


Step = Callable[[State, Int64, int], float]


def _step_of(problem: Problem, schedule: Schedule) -> Step:
    """A function that takes one step on some pairs and gives the sum of their losses."""
    if schedule.method == "softmax":
        return _softmax_step(problem, schedule)
    if schedule.method in SEPARABLE:
        loss = Separable(*SEPARABLE[schedule.method], schedule.regulariser)

        def separable(state: State, chosen: Int64, epoch: int) -> float:
            batch = drawn_batch(problem, schedule, chosen, epoch)
            return step_separable(batch, loss, schedule.learning_rate, state.parameters)

        return separable
    return _coupled_step(problem, schedule)


def drawn_batch(problem: Problem, schedule: Schedule, chosen: Int64, epoch: int) -> Batch:
    """The chosen pairs with labels drawn from the noise; one-vs-each and augment-and-reduce draw other labels only."""
    rows, classes = problem.pairs.rows[chosen], problem.pairs.classes[chosen]
    labels = np.empty((len(chosen), 1 + schedule.n_negatives), np.int32)
    log_noise = np.zeros(labels.shape, np.float32)
    labels[:, 0], log_noise[:, 0] = classes, problem.log_noise[chosen]
    keys = keys_of(schedule.seed, epoch, chosen)
    if schedule.method in SEPARABLE and problem.noise is not None:
        labels[:, 1:], log_noise[:, 1:] = problem.noise.sample(problem.Z[rows], schedule.n_negatives, keys)
    else:
        others = FittedUniform(max(problem.n_classes - 1, 1))
        drawn = others.sample(problem.Z[rows], schedule.n_negatives, keys).labels
        labels[:, 1:] = np.minimum(drawn + (drawn >= classes[:, None]), problem.n_classes - 1)
    return Batch(problem.X[rows], labels, log_noise, problem.pairs.weights[chosen])


def _coupled_step(problem: Problem, schedule: Schedule) -> Step:
    n_others = problem.n_classes - 1
    # Every visit of a class carries its part of the prior: in an epoch they make up the whole.
    positives = np.bincount(problem.pairs.classes, minlength=problem.n_classes)
    visits = positives + len(problem.pairs) * schedule.n_negatives / problem.n_classes
    decay = (1 / (schedule.prior_variance * visits)).astype(np.float32)

    def step(state: State, chosen: Int64, epoch: int) -> float:
        batch = drawn_batch(problem, schedule, chosen, epoch)
        scores, losses = score_pairs(batch, state.parameters), np.empty(len(chosen))
        slopes = np.empty_like(scores)
        if schedule.method == "one-vs-each":
            _one_vs_each_rows(scores, n_others, slopes, losses)
        else:
            _augmented_rows(scores, n_others, state.etas, chosen, (1.0 + epoch) ** -ETA_DECAY, slopes, losses)
        step_given(batch, slopes, decay, schedule.learning_rate, state.parameters)
        return float(losses @ batch.weights)

    return step


@numba.njit(cache=True, nogil=True)
def _one_vs_each_rows(scores: Float32, n_others: int, slopes: Float32, losses: Float64) -> None:
    for row in range(len(scores)):
        losses[row] = one_vs_each(scores[row], n_others, slopes[row])


@numba.njit(cache=True, nogil=True)
def _augmented_rows(
    scores: Float32, n_others: int, etas: Float64, places: Int64, rate: float, slopes: Float32, losses: Float64
) -> None:
    for row in range(len(scores)):
        losses[row] = augment_and_reduce(scores[row], n_others, etas, places[row], rate, slopes[row])


def _softmax_step(problem: Problem, schedule: Schedule) -> Step:
    """Cost O(B C d). All classes move with every step, so the prior's part of a step is B / n."""
    decay = 1 / (schedule.prior_variance * len(problem.pairs))

    def step(state: State, chosen: Int64, epoch: int) -> float:
        x, weights = problem.X[problem.pairs.rows[chosen]], problem.pairs.weights[chosen]
        classes, parameters = problem.pairs.classes[chosen], state.parameters
        scores = np.empty((len(chosen), problem.n_classes), np.float32)

        def score(part: slice) -> None:
            scores[:, part] = x @ parameters.weights[part].T + parameters.biases[part]

        def descend(part: slice) -> None:
            slopes = np.ascontiguousarray(chances[:, part].T)
            tile = Parameters(*(array[part] for array in parameters))
            descend_rows(slopes @ x, slopes.sum(axis=1), decay * len(chosen), schedule.learning_rate, tile)

        with single_threaded_blas():
            over_blocks(score, row_blocks(problem.n_classes, SOFTMAX_CLASSES))
            chances = scores
            loss: float = _softmax_slopes(scores, classes, weights)
            over_blocks(descend, row_blocks(problem.n_classes, SOFTMAX_CLASSES))
        return loss

    return step


@numba.njit(cache=True, nogil=True)
def _softmax_slopes(scores: Float32, classes: Any, weights: Float32) -> float:
    """Turn scores into derivatives of ``-weight log softmax``, in place; the sum of the losses."""
    total = 0.0
    for row in range(len(scores)):
        largest = np.max(scores[row])
        own, norm = float(scores[row, classes[row]] - largest), 0.0
        for label in range(scores.shape[1]):
            scores[row, label] = np.exp(scores[row, label] - largest)
            norm += scores[row, label]
        total += weights[row] * (np.log(norm) - own)
        for label in range(scores.shape[1]):
            scores[row, label] *= weights[row] / norm
        scores[row, classes[row]] -= weights[row]
    return float(total)
