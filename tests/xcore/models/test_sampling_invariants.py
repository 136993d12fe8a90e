"""What the losses, the draws and the steps of negative sampling must satisfy, checked term by term."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from xcore.components import silent
from xcore.models.negative_sampling import sgd
from xcore.models.negative_sampling.linear_scorer import Scorer
from xcore.models.negative_sampling.losses import augment_and_reduce, one_vs_each, separable
from xcore.models.negative_sampling.model import NegativeSampling
from xcore.models.negative_sampling.pairs import Pairs
from xcore.models.negative_sampling.sgd import SEPARABLE, Method, Problem, Schedule, State, drawn_batch, train
from xcore.models.negative_sampling.updates import FIRST_SQUARE, Parameters, Separable, step_separable
from xcore.numeric.matrices import Float32, binary_csr
from xcore.sampling.sampler import FittedFrequency, FittedUniform, Frequency, Uniform
from xcore.training.checkpoints import Checkpoints
from xcore.training.context import FitContext
from xcore.training.data import TrainingData

COUPLED = ("one-vs-each", "augment-and-reduce")
N_CLASSES, N_PAIRS, D = 7, 40, 5


def a_problem(method: Method, seed: int = 0, scale: float = 1.0) -> Problem:
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, N_CLASSES, N_PAIRS).astype(np.int32)
    X, none = (scale * rng.normal(size=(N_PAIRS, D))).astype(np.float32), np.zeros((N_PAIRS, 0), np.float32)
    weights = rng.uniform(0.2, 1, N_PAIRS).astype(np.float32)
    pairs = Pairs(np.arange(N_PAIRS, dtype=np.int32), classes, weights)
    noise = None if method == "softmax" else (Frequency() if method == "frequency" else Uniform())
    fitted = noise and noise.fit(none, classes, N_CLASSES)
    log_noise = fitted.log_prob(none, classes[:, None])[:, 0] if fitted else np.zeros(N_PAIRS, np.float32)
    return Problem(X, none, pairs, N_CLASSES, fitted, log_noise)


def weighing(problem: Problem, weights: Float32) -> Problem:
    return replace(problem, pairs=replace(problem.pairs, weights=weights))


def a_schedule(method: Method, **changed: object) -> Schedule:
    return replace(Schedule(method, 3, 10, 4, 0.1, 0.0, 1e30, "zero", 0, np.uint64(3)), **changed)


def after_a_step(problem: Problem, schedule: Schedule, epoch: int = 0) -> tuple[State, Float32]:
    """The state after one step on all pairs, and the squared gradients of the weights, which Adagrad has summed."""
    state = State(Parameters.random(N_CLASSES, D, np.uint64(1)), np.full(N_PAIRS, 2.0))
    sgd._step_of(problem, schedule)(state, np.arange(N_PAIRS), epoch)
    return state, state.parameters.weight_squares - np.float32(FIRST_SQUARE)


@pytest.mark.parametrize("is_positive", [True, False])
def test_the_adversarial_regulariser_is_on_corrected_scores_and_the_others_on_raw_ones(is_positive: bool) -> None:
    score, log_noise, strength = 0.7, -2.5, 0.05
    sign = -1.0 if is_positive else 1.0
    for method, regularised in (("adversarial", score + log_noise), ("uniform", score), ("frequency", score)):
        value, slope = separable(score, log_noise, is_positive, *SEPARABLE[method], strength)
        assert value == pytest.approx(np.log1p(np.exp(sign * score)) + strength * regularised**2)
        assert slope == pytest.approx(sign / (1 + np.exp(-sign * score)) + 2 * strength * regularised)


def gradient_noise(p: np.ndarray, noise: np.ndarray) -> float:
    """Trace of the gradient's covariance times the inverse Hessian at the optimum, by enumeration of draws."""
    xi, n = np.log(p / noise), len(p)
    positive, negative = (np.array([separable(s, 0.0, sign, 0.0, 0.0, 0.0)[1] for s in xi]) for sign in (True, False))
    covariance = np.zeros((n, n))
    for y in range(n):
        for other in range(n):
            gradient = np.eye(n)[y] * positive[y] + np.eye(n)[other] * negative[other]
            covariance += p[y] * noise[other] * np.outer(gradient, gradient)
    return float(np.trace(covariance @ np.diag((p + noise) / (p * noise))))


def test_the_signal_to_noise_ratio_is_that_of_theorem_two_and_largest_for_noise_like_the_data() -> None:
    rng = np.random.default_rng(0)
    for n_classes in (2, 4, 10):
        p = rng.dirichlet(np.full(n_classes, 0.7))
        best = gradient_noise(p, p)
        assert best == pytest.approx(n_classes - 1)
        for _ in range(10):
            noise = rng.dirichlet(np.full(n_classes, 0.7))
            found = gradient_noise(p, noise)
            assert found == pytest.approx(n_classes - 2 * (p * noise / (p + noise)).sum())
            assert found > best


def test_uniform_noise_without_a_regulariser_is_vanilla_negative_sampling() -> None:
    problem = a_problem("uniform")
    batch = drawn_batch(problem, a_schedule("uniform"), np.arange(N_PAIRS), 0)
    moved = []
    for method in ("adversarial", "uniform"):
        parameters = Parameters.random(N_CLASSES, D, np.uint64(1))
        step_separable(batch, Separable(*SEPARABLE[method], 0.0), 0.1, parameters)
        moved.append(parameters)
    assert np.array_equal(moved[0].rows, moved[1].rows)
    plain = Scorer(*moved[0].without_sums(), None)
    corrected = replace(plain, noise=FittedUniform(N_CLASSES))
    tops = [scorer.exact_topk(problem.X, problem.Z, N_CLASSES) for scorer in (plain, corrected)]
    assert np.array_equal(tops[0].labels, tops[1].labels)
    assert np.allclose(tops[0].scores - np.log(N_CLASSES), tops[1].scores, atol=1e-5)


@pytest.mark.parametrize("method", get_args(Method))
def test_half_the_weight_of_all_pairs_halves_the_gradient(method: Method) -> None:
    problem = a_problem(method)
    light = weighing(problem, problem.pairs.weights / 2)
    squares = [after_a_step(one, a_schedule(method))[1] for one in (problem, light)]
    assert np.allclose(squares[1], squares[0] / 4, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("method", get_args(Method))
def test_a_pair_of_almost_no_weight_does_not_count(method: Method) -> None:
    problem, weights = a_problem(method), np.ones(N_PAIRS, np.float32)
    weights[0] = 1e-12
    problem = weighing(problem, weights)
    strange = replace(problem, X=np.concatenate([problem.X[:1] + 3, problem.X[1:]]))
    squares = [after_a_step(one, a_schedule(method))[1] for one in (problem, strange)]
    assert np.allclose(*squares, rtol=1e-4)


@pytest.mark.parametrize("method", [*COUPLED, "softmax"])
def test_an_epoch_holds_the_whole_gaussian_prior(method: Method) -> None:
    """Where all features are 0, the gradient of the weights is that of the prior alone."""
    problem = weighing(a_problem(method, scale=0.0), np.ones(N_PAIRS, np.float32))
    schedule = a_schedule(method, prior_variance=0.5)
    _, squares = after_a_step(problem, schedule)
    weights, share = Parameters.random(N_CLASSES, D, np.uint64(1)).weights, np.ones(N_CLASSES)
    if method in COUPLED:
        seen = np.bincount(drawn_batch(problem, schedule, np.arange(N_PAIRS), 0).labels.ravel(), minlength=N_CLASSES)
        expected = np.bincount(problem.pairs.classes, minlength=N_CLASSES) + N_PAIRS * schedule.n_negatives / N_CLASSES
        share = seen / expected
    assert np.allclose(squares, (share[:, None] * weights / 0.5) ** 2, rtol=1e-3, atol=1e-7)


def test_augment_and_reduce_moves_its_eta_by_a_part_of_the_way_that_shrinks_with_every_epoch() -> None:
    xi, slopes, etas = np.array([0.3, -1.0, 2.0], np.float32), np.empty(3, np.float32), np.array([5.0])
    total = 1 + 4 / 2 * np.exp(xi[1:].astype(np.float64) - xi[0]).sum()
    augment_and_reduce(xi, 4, etas, 0, 0.25, slopes)
    assert etas[0] == pytest.approx(0.75 * 5 + 0.25 * total, rel=1e-5)
    problem, schedule = a_problem("augment-and-reduce"), a_schedule("augment-and-reduce", n_negatives=30)
    first, fourth = (after_a_step(problem, schedule, epoch)[0].etas - 2.0 for epoch in (0, 3))
    assert np.median(fourth / first) == pytest.approx(4**-0.9, rel=0.1)


@pytest.mark.parametrize("method", [method for method in get_args(Method) if method != "softmax"])
def test_negatives_are_drawn_again_in_every_epoch_and_by_every_seed(method: Method) -> None:
    problem, chosen = a_problem(method), np.arange(N_PAIRS)
    drawn = [
        drawn_batch(problem, a_schedule(method, seed=np.uint64(seed)), chosen, epoch).labels
        for seed, epoch in ((3, 0), (3, 0), (3, 1), (4, 0))
    ]
    assert np.array_equal(drawn[0], drawn[1])
    for other in drawn[2:]:
        assert (drawn[0][:, 1:] != other[:, 1:]).mean() > 0.5
    if method in COUPLED:
        assert (drawn[0][:, 1:] != drawn[0][:, :1]).all()
    else:
        assert (drawn[0][:, 1:] == drawn[0][:, :1]).any()


def orders(seed: int, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The pairs of each epoch, in the order of the steps."""
    seen: list[list[int]] = [[], [], []]

    def advance(state: State, chosen: np.ndarray, epoch: int) -> float:
        seen[epoch] += chosen.tolist()
        return 0.0

    monkeypatch.setattr(sgd, "_step_of", lambda problem, schedule: advance)
    schedule = a_schedule("uniform", seed=np.uint64(seed))
    train(a_problem("uniform"), schedule, (0.0, 0.0), lambda parameters: {}, None, silent, Checkpoints(None, ""))
    return seen


def test_every_epoch_and_every_seed_has_an_order_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    one, same, other = (orders(seed, monkeypatch) for seed in (3, 3, 4))
    assert one == same
    for order in one:
        assert sorted(order) == list(range(N_PAIRS))
    assert one[0] != one[1] != one[2]
    assert one[0] != other[0]


@pytest.mark.parametrize("method", ["uniform", "frequency"])
def test_scores_are_corrected_by_the_frequencies_that_the_negatives_were_drawn_by(method: Method) -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), [60, 25, 10, 5])
    X = rng.normal(size=(100, 3)).astype(np.float32)
    data = TrainingData.of(X, binary_csr(labels, np.arange(101), 4))
    model = NegativeSampling(method=method, epochs=1, held_out_share=0)
    fitted = model.fit(data, FitContext(rng=np.random.default_rng(0)))
    raw = fitted.scorer.raw(X)
    correction = np.log(np.array([61, 26, 11, 6]) / 104) if method == "frequency" else np.zeros(4)
    assert isinstance(fitted.scorer.noise, FittedFrequency) == (method == "frequency")
    assert np.allclose(fitted.predict_topk(X, 4).scores, -np.sort(-(raw + correction), axis=1), atol=1e-5)


def test_sampled_others_stand_for_all_of_them_in_one_vs_each() -> None:
    xi, slopes = np.array([0.3, -1.0, 2.0], np.float32), np.empty(3, np.float32)
    t = xi[1:].astype(np.float64) - xi[0]
    assert one_vs_each(xi, 10, slopes) == pytest.approx(10 / 2 * np.log1p(np.exp(t)).sum(), rel=1e-6)
    assert np.allclose(slopes[1:], 10 / 2 / (1 + np.exp(-t)), rtol=1e-5)


@pytest.mark.parametrize("method", ["nce", "one-vs-each", "augment-and-reduce", "softmax"])
def test_methods_whose_scores_are_log_probabilities_are_not_corrected(method: Method) -> None:
    X = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    data = TrainingData.of(X, binary_csr(np.arange(60) % 3, np.arange(61), 3))
    model = NegativeSampling(method=method, epochs=1, held_out_share=0, tree_dimensions=2)
    assert model.fit(data, FitContext(rng=np.random.default_rng(0))).scorer.noise is None
