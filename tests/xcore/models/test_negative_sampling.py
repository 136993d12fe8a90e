"""Negative sampling: the optima that the paper proves, the steps against brute force, and trainings that are killed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numba
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from xcore.errors import ArtifactDamaged, ConfigError
from xcore.models.negative_sampling import FittedNegativeSampling, NegativeSampling, model
from xcore.models.negative_sampling.linear_scorer import Scorer, evaluate
from xcore.models.negative_sampling.losses import augment_and_reduce, one_vs_each, separable
from xcore.models.negative_sampling.pairs import Pairs, Split
from xcore.models.negative_sampling.sgd import SEPARABLE, _softmax_slopes
from xcore.models.negative_sampling.simple_model import advice, ridge_quality
from xcore.models.negative_sampling.updates import (
    FIRST_SQUARE,
    Batch,
    Parameters,
    Separable,
    group_pairs,
    step_given,
    step_separable,
)
from xcore.numeric.matrices import CSR, NO_LABEL, binary_csr, csr
from xcore.sampling.sampler import FittedUniform, Tree
from xcore.training import checkpoints
from xcore.training.context import FitContext
from xcore.training.data import TrainingData

METHODS = ["adversarial", "uniform", "frequency", "nce", "one-vs-each", "augment-and-reduce", "softmax"]

# An enumerable world: two feature vectors, four labels, noise in tenths so that ten negatives are its exact mean.
DATA = np.array([[0.4, 0.3, 0.2, 0.1], [0.1, 0.1, 0.2, 0.6]])
NOISE = np.array([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]])


def expected_batch(noise: np.ndarray) -> Batch:
    """One row for each x and y, with the weight of y; its negatives are the noise itself."""
    x, y = np.divmod(np.arange(8), 4)
    negatives = np.array([np.repeat(np.arange(4), np.round(10 * noise[i]).astype(int)) for i in x])
    labels = np.hstack([y[:, None], negatives]).astype(np.int32)
    log_noise = np.log(noise[x[:, None], labels]).astype(np.float32)
    return Batch(np.eye(2, dtype=np.float32)[x], labels, log_noise, DATA[x, y].astype(np.float32))


def optimal_scores(method: str, noise: np.ndarray, n_steps: int = 3000) -> np.ndarray:
    """Scores (x, y) of the least expected loss; one weight for each of them, so that all scores are free."""
    parameters, batch = Parameters.random(4, 2, np.uint64(1)), expected_batch(noise)
    for step in range(n_steps):
        step_separable(batch, Separable(*SEPARABLE[method], 0.0), 0.5 * 0.997**step, parameters)
    return (parameters.weights + parameters.biases[:, None]).T


def test_scores_plus_log_noise_are_the_log_of_the_data_distribution() -> None:
    scores = optimal_scores("adversarial", NOISE)
    assert np.allclose(scores, np.log(DATA / NOISE), atol=2e-3)
    corrected = np.exp(scores + np.log(NOISE))
    assert np.allclose(corrected / corrected.sum(axis=1, keepdims=True), DATA, atol=1e-3)


def test_noise_that_is_the_data_distribution_leaves_nothing_to_learn() -> None:
    assert np.allclose(optimal_scores("adversarial", DATA), 0, atol=2e-3)


def test_noise_contrastive_scores_are_log_probabilities_themselves() -> None:
    assert np.allclose(optimal_scores("nce", NOISE), np.log(DATA), atol=2e-3)


def test_hessian_and_gradient_noise_are_those_of_theorem_two() -> None:
    rng, n = np.random.default_rng(0), 200_000
    p, q = DATA[0], NOISE[0]
    xi = np.log(p / q)
    alpha = p * q / (p + q)
    assert np.allclose(alpha, q / (1 + np.exp(-xi)))

    def slope(score: float, is_positive: bool) -> float:
        return separable(score, 0.0, is_positive, 0.0, 0.0, 0.0)[1]

    for y in range(4):
        expected = [p[y] * slope(xi[y] + h, True) + q[y] * slope(xi[y] + h, False) for h in (-1e-5, 0.0, 1e-5)]
        assert expected[1] == pytest.approx(0, abs=1e-12)
        assert (expected[2] - expected[0]) / 2e-5 == pytest.approx(alpha[y], rel=1e-6)
    gradients, rows = np.zeros((n, 4)), np.arange(n)
    np.add.at(gradients, (rows, y := rng.choice(4, n, p=p)), np.array([slope(s, True) for s in xi])[y])
    np.add.at(gradients, (rows, y := rng.choice(4, n, p=q)), np.array([slope(s, False) for s in xi])[y])
    assert np.allclose(gradients.T @ gradients / n, np.diag(alpha) - 2 * np.outer(alpha, alpha), atol=2e-3)
    assert alpha.sum() < 0.5 == pytest.approx((p * p / (p + p)).sum())


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-6, 6, width=32), min_size=2, max_size=6), st.floats(0.1, 50))
def test_bounds_hold_and_augment_and_reduce_is_tight_at_its_optimum(scores: list[float], eta: float) -> None:
    xi = np.array(scores, np.float32)
    slopes, n_others = np.empty_like(xi), len(xi) - 1
    softmax_loss = np.log(np.exp(xi.astype(np.float64) - xi[0]).sum())
    assert one_vs_each(xi, n_others, slopes) >= softmax_loss - 1e-6
    assert augment_and_reduce(xi, n_others, np.array([eta]), 0, 0.0, slopes) >= softmax_loss - 1e-6
    etas = np.array([eta])
    assert augment_and_reduce(xi, n_others, etas, 0, 1.0, slopes) == pytest.approx(softmax_loss, abs=1e-5)
    assert etas[0] == pytest.approx(np.exp(softmax_loss), rel=1e-5)
    chances = np.exp(xi - xi[0]) / np.exp(softmax_loss)
    assert np.allclose(slopes[1:], chances[1:], atol=1e-5)
    assert slopes.sum() == pytest.approx(0, abs=1e-4)


def test_slopes_are_the_derivatives_of_the_losses() -> None:
    rng = np.random.default_rng(3)
    for is_positive in (True, False):
        for shift, centre in SEPARABLE.values():
            options = (-2.5, is_positive, shift, centre, 0.05)
            numeric = separable(0.7 + 1e-5, *options)[0] - separable(0.7 - 1e-5, *options)[0]
            assert separable(0.7, *options)[1] == pytest.approx(numeric / 2e-5, abs=1e-6)
    xi = rng.normal(size=4).astype(np.float32)
    slopes, spare = np.empty(4, np.float32), np.empty(4, np.float32)
    one_vs_each(xi, 7, slopes)
    soft = np.tile(xi, (1, 1))
    _softmax_slopes(soft, np.zeros(1, np.int32), np.ones(1, np.float32))
    for j in range(4):
        up, down = (xi + h * np.eye(4, dtype=np.float32)[j] for h in (0.01, -0.01))
        numeric = one_vs_each(up, 7, spare) - one_vs_each(down, 7, spare)
        assert slopes[j] == pytest.approx(numeric / 0.02, abs=1e-3)
        exact = [np.log(np.exp(side).sum()) - side[0] for side in (up.astype(np.float64), down.astype(np.float64))]
        assert soft[0, j] == pytest.approx((exact[0] - exact[1]) / 0.02, abs=1e-3)


def random_batch(n_classes: int = 6, d: int = 5, n: int = 9, m: int = 3) -> Batch:
    rng = np.random.default_rng(4)
    labels = rng.integers(0, n_classes - 1, (n, 1 + m)).astype(np.int32)
    x, log_noise = rng.normal(size=(n, d)).astype(np.float32), -rng.random((n, 1 + m)).astype(np.float32)
    return Batch(x, labels, log_noise, rng.uniform(0.2, 1, n).astype(np.float32))


@pytest.mark.parametrize("method", SEPARABLE)
def test_a_step_sums_all_gradients_of_the_batch_at_the_same_weights(method: str) -> None:
    batch, parameters = random_batch(), Parameters.random(6, 5, np.uint64(2))
    before = Parameters(*(array.copy() for array in parameters))
    shift, centre = SEPARABLE[method]
    loss = step_separable(batch, Separable(shift, centre, 0.02), 0.1, parameters)
    gradient, expected_loss = np.zeros((6, 6)), 0.0
    for i, row in enumerate(batch.labels):
        for j, label in enumerate(row):
            score = float(before.weights[label] @ batch.x[i] + before.biases[label])
            value, slope = separable(score, batch.log_noise[i, j], j == 0, shift, centre, 0.02)
            factor = batch.weights[i] / (1 if j == 0 else 3)
            expected_loss += factor * value
            gradient[label] += factor * slope * np.append(batch.x[i], 1.0)
    squares = FIRST_SQUARE + gradient**2
    moved = np.hstack([before.weights, before.biases[:, None]]) - 0.1 * gradient / np.sqrt(squares)
    assert loss == pytest.approx(expected_loss, rel=1e-5)
    assert np.allclose(parameters.weights, moved[:, :5], atol=1e-5)
    assert np.allclose(parameters.biases, moved[:, 5], atol=1e-5)
    assert np.allclose(parameters.weight_squares, squares[:, :5], rtol=1e-4)
    assert np.array_equal(parameters.weights[5], before.weights[5]), "a label that was not touched"


def test_a_given_step_adds_the_prior_once_for_each_pair() -> None:
    batch, parameters = random_batch(), Parameters.random(6, 5, np.uint64(2))
    before = Parameters(*(array.copy() for array in parameters))
    slopes = np.random.default_rng(5).normal(size=batch.labels.shape).astype(np.float32)
    step_given(batch, slopes, np.full(6, 0.3, np.float32), 0.1, parameters)
    label = int(batch.labels[0, 0])
    own = batch.labels == label
    gradient = ((slopes * batch.weights[:, None] * own).sum(axis=1)[:, None] * batch.x).sum(axis=0)
    gradient += 0.3 * own.sum() * before.weights[label]
    moved = before.weights[label] - 0.1 * gradient / np.sqrt(FIRST_SQUARE + gradient**2)
    assert np.allclose(parameters.weights[label], moved, atol=1e-4)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 5_000_000), min_size=1, max_size=60))
def test_pairs_are_grouped_by_label_in_their_order(labels: list[int]) -> None:
    flat = np.array(labels, np.int32)
    groups = group_pairs(flat[:, None], 5_000_001)
    assert np.array_equal(groups.order, np.argsort(flat, kind="stable"))
    assert np.array_equal(flat[groups.order[groups.starts[:-1]]], np.unique(flat))
    blocks = groups.blocks()
    assert [g for block in blocks for g in block] == list(range(len(groups.starts) - 1))


def rows_of(n: int = 200, n_labels: int = 9, seed: int = 0) -> TrainingData:
    """Dense clusters, one or two labels per row."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(n_labels, 6))
    labels = [np.sort(rng.choice(n_labels, rng.integers(1, 3) if n_labels > 1 else 1, replace=False)) for _ in range(n)]
    X = np.array([centres[own].sum(axis=0) for own in labels]) + 0.2 * rng.normal(size=(n, 6))
    return TrainingData.of(X.astype(np.float32), label_lists(labels, n_labels))


def label_lists(labels: list[np.ndarray], n_labels: int) -> CSR:
    return binary_csr(np.concatenate(labels), np.cumsum([0] + [len(own) for own in labels]), n_labels)


def options(method: str = "adversarial", **changed: object) -> NegativeSampling:
    return NegativeSampling.model_validate(
        {"method": method, "epochs": 6, "learning_rate": 0.3, "tree_dimensions": 3, "held_out_share": 0.1} | changed
    )


def saved(fitted: FittedNegativeSampling, directory: Path) -> dict[str, str]:
    directory.mkdir()
    fitted.save(directory)
    files = [path for path in sorted(directory.rglob("*")) if path.is_file()]
    return {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_and_gives_the_same_bits_on_one_thread_and_two(method: str, tmp_path: Path) -> None:
    data, held_out, before = rows_of(400), rows_of(100, seed=1), numba.get_num_threads()
    written = []
    try:
        for n_threads in (1, 2):
            numba.set_num_threads(min(n_threads, numba.config.NUMBA_NUM_THREADS))
            fitted = options(method).fit(data, FitContext(rng=np.random.default_rng(0)))
            written.append(saved(fitted, tmp_path / str(n_threads)))
    finally:
        numba.set_num_threads(before)
    assert written[0] == written[1]
    best = fitted.predict_topk(held_out.X, 1).labels[:, 0]
    assert held_out.Y.toarray()[np.arange(100), best].mean() > 0.8


class Killed(Exception):
    """Stands for a signal."""


@pytest.mark.parametrize("method", ["adversarial", "augment-and-reduce"])
@pytest.mark.parametrize("last_step", [33, 60])
def test_a_killed_training_resumes_to_the_same_bits(
    method: str, last_step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(checkpoints, "CHECKPOINT_SHARE", np.inf)
    data, first_steps = rows_of(), []

    def killing(step: int, total: int, metrics: Mapping[str, float] | None = None) -> None:
        if step == last_step:
            raise Killed

    def noting(step: int, total: int, metrics: Mapping[str, float] | None = None) -> None:
        first_steps.append(step)

    folder = tmp_path / "checkpoints"
    folder.mkdir()
    with pytest.raises(Killed):
        options(method).fit(data, FitContext(rng=np.random.default_rng(0), report=killing, scratch=folder))
    resumed = options(method).fit(data, FitContext(rng=np.random.default_rng(0), report=noting, scratch=folder))
    assert first_steps[0] > last_step
    whole = options(method).fit(data, FitContext(rng=np.random.default_rng(0)))
    assert saved(resumed, tmp_path / "resumed") == saved(whole, tmp_path / "whole")
    first_steps.clear()
    again = FitContext(rng=np.random.default_rng(0), report=noting, scratch=folder)
    options(method, learning_rate=0.2).fit(data, again)
    assert first_steps[0] == 1, "another training's checkpoint is not taken up"


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n_labels", [1, 2])
def test_one_and_two_labels_are_enough(method: str, n_labels: int) -> None:
    data = rows_of(60, n_labels)
    top = options(method, epochs=1).fit(data, FitContext(rng=np.random.default_rng(0))).predict_topk(data.X, 3)
    assert np.array_equal(np.sort(top.labels[:, :n_labels]), np.tile(np.arange(n_labels), (60, 1)))
    assert (top.labels[:, n_labels:] == NO_LABEL).all()
    assert np.isfinite(top.scores[:, :n_labels]).all()


def test_the_curve_is_reported_each_epoch_with_what_was_held_out() -> None:
    seen: list[Mapping[str, float]] = []

    def report(step: int, total: int, metrics: Mapping[str, float] | None = None) -> None:
        if metrics:
            seen.append(metrics)

    options().fit(rows_of(), FitContext(rng=np.random.default_rng(0), report=report))
    assert len(seen) == 6
    assert set(seen[0]) == {
        *("loss", "seconds", "cpu_seconds"),
        *("accuracy", "log_likelihood", "accuracy_uncorrected"),
    }
    assert seen[-1]["loss"] < seen[0]["loss"]
    assert seen[-1]["accuracy"] > 0.8
    assert seen[-1]["log_likelihood"] > -np.log(9)
    seen.clear()
    options(held_out_share=0).fit(rows_of(), FitContext(rng=np.random.default_rng(0), report=report))
    assert set(seen[0]) == {"loss", "seconds", "cpu_seconds"}


def test_without_its_correction_the_model_ranks_by_what_the_noise_does_not_know() -> None:
    data = rows_of(400)
    accuracy = {}
    for correct in (True, False):
        fitted = options(correct_bias=correct, tree=Tree(strength=0.1)).fit(data, FitContext())
        best = fitted.predict_topk(data.X, 1).labels[:, 0]
        accuracy[correct] = data.Y.toarray()[np.arange(400), best].mean()
    assert accuracy[True] > accuracy[False] + 0.2


@pytest.mark.parametrize("first_biases", ["zero", "inverse"])
def test_an_untrained_model_ranks_as_its_tree_or_treats_all_labels_alike(first_biases: str) -> None:
    data = rows_of(300)
    fitted = options(first_biases=first_biases, epochs=1, learning_rate=1e-7, held_out_share=0).fit(
        data, FitContext(rng=np.random.default_rng(0))
    )
    scorer, z = fitted.scorer, fitted.projection.transform(data.X)
    log_noise = scorer.noise.log_prob_all(z)
    if first_biases == "zero":
        assert np.allclose(scorer.biases, 0, atol=1e-4)
        return
    of_row = np.repeat(np.arange(300), np.diff(data.Y.indptr))
    for label in range(9):
        own = log_noise[of_row[data.Y.indices == label], label]
        assert scorer.biases[label] == pytest.approx(-own.mean(), abs=1e-3)


def test_untrained_noise_contrastive_scores_are_the_log_frequencies_of_the_labels() -> None:
    """From scores near 0 labels that are seldom drawn would stay above all others for a long time."""
    data = rows_of(300)
    fitted = options("nce", epochs=1, learning_rate=1e-7, held_out_share=0).fit(
        data, FitContext(rng=np.random.default_rng(0))
    )
    counts = np.bincount(data.Y.indices, minlength=9)
    assert np.allclose(fitted.scorer.biases, np.log(counts / counts.sum()), atol=1e-4)


def test_doubted_positives_count_less_in_the_first_biases_and_in_the_noise() -> None:
    """Label 1 has as many positives as label 0, each with a quarter of the weight."""
    Y = np.zeros((80, 2), np.float32)
    Y[:40, 0], Y[40:, 1] = 1.0, 0.25
    X, targets = np.eye(80, 3, dtype=np.float32), sp.csr_array(Y)
    data = TrainingData.of(X, csr(targets.data, targets.indices, targets.indptr, 2))
    untrained = options("nce", epochs=1, learning_rate=1e-7, held_out_share=0).fit(data, FitContext())
    assert np.allclose(untrained.scorer.biases, np.log([0.8, 0.2]), atol=1e-4)
    noise = options("frequency", epochs=1, held_out_share=0).fit(data, FitContext()).scorer.noise
    assert np.allclose(noise.log_prob_all(X[:1]), np.log([[41 / 52, 11 / 52]]), atol=1e-4)
    weak = Tree(strength=0.1)
    tree = options("adversarial", epochs=1, held_out_share=0, tree=weak).fit(data, FitContext()).scorer.noise
    assert np.exp(tree.log_prob_all(np.zeros((1, tree.n_features), np.float32)))[0, 1] < 0.35


def test_moving_the_weights_together_keeps_them() -> None:
    parameters = Parameters.random(7, 3, np.uint64(1))
    weights, biases = parameters.weights.copy(), parameters.biases.copy()
    assert np.abs(weights).max() <= (6 / 10) ** 0.5
    assert (parameters.weight_squares == np.float32(FIRST_SQUARE)).all()
    moved, moved_biases = parameters.without_sums()
    assert moved.flags.c_contiguous
    assert np.array_equal(moved, weights)
    assert np.array_equal(moved_biases, biases)


def test_reduction_keeps_the_smallest_label_or_all_of_them() -> None:
    Y = csr(np.array([1, 0.5, 1, 1]), np.array([4, 2, 0, 3]), np.array([0, 2, 2, 4]), 6)
    first, both = Pairs.of(Y, "first"), Pairs.of(Y, "all")
    assert (first.rows.tolist(), first.classes.tolist(), first.weights.tolist()) == ([0, 2], [2, 0], [0.5, 1.0])
    assert (both.rows.tolist(), both.classes.tolist()) == ([0, 0, 2, 2], [2, 4, 0, 3])


def test_held_out_rows_are_not_trained_on_and_their_own_labels_are_dropped() -> None:
    Y = label_lists([np.array([i]) for i in range(10)] + [np.array([0, 3])] * 10, 12)
    split = Split.of(Y, "all", 8, np.random.default_rng(0))
    assert not set(split.train.rows) & set(split.held_out.rows)
    assert set(split.labels) == {int(Y.indices[i]) for row in split.train.rows for i in range(*Y.indptr[row : row + 2])}
    assert split.held_out.classes.max() < len(split.labels)
    with pytest.raises(ConfigError, match="none of the 3 training rows has a label"):
        Split.of(sp.csr_array((3, 4), dtype=np.float32), "all", 0, np.random.default_rng(0))


def test_a_tie_or_a_nan_counts_as_wrong() -> None:
    weights = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]], np.float32)
    scorer = Scorer(weights, np.zeros(3, np.float32), None)
    X = np.array([[2, 1, 1], [2, 2, 1], [np.nan, 1, 1], [1, 0, 3]], np.float32)
    pairs = Pairs(np.arange(4, dtype=np.int32), np.zeros(4, np.int32), np.ones(4, np.float32))
    assert evaluate(scorer, X, X[:, :0], pairs)["accuracy"] == 0.25
    two = Pairs(np.array([3, 3], np.int32), np.array([0, 2], np.int32), np.array([1.0, 3.0], np.float32))
    norm = np.log(np.exp([1.0, 0, 3]).sum())
    measured = evaluate(scorer, X, X[:, :0], two)
    assert measured["accuracy"] == 1.0
    assert measured["log_likelihood"] == pytest.approx(0.25 * (1 - norm) + 0.75 * (3 - norm), abs=1e-6)


def test_a_shortlist_of_all_labels_ranks_as_the_exact_search() -> None:
    data = rows_of(150, 20)
    exact = options().fit(data, FitContext(rng=np.random.default_rng(0)))
    short = options(shortlist=20).fit(data, FitContext(rng=np.random.default_rng(0)))
    a, b = exact.predict_topk(data.X, 4), short.predict_topk(data.X, 4)
    assert np.array_equal(a.labels, b.labels)
    assert np.allclose(a.scores, b.scores, atol=1e-4)
    assert exact.shortlist_recall(data.X, 4, 20) == 1.0
    narrow = [exact.shortlist_recall(data.X, 4, width) for width in (1, 4, 10)]
    assert 0 < narrow[0] <= 0.25
    assert narrow == sorted(narrow)
    few = options(shortlist=2).fit(data, FitContext(rng=np.random.default_rng(0))).predict_topk(data.X, 4)
    assert (few.labels[:, 2:] == NO_LABEL).all()


def test_options_that_do_not_fit_together_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = rows_of(40)
    with pytest.raises(ConfigError, match="shortlist: 5 needs the tree's scores, but method is uniform"):
        options("uniform", shortlist=5).fit(data, FitContext(rng=np.random.default_rng(0)))
    monkeypatch.setattr(model, "MAX_SOFTMAX_CLASSES", 5)
    with pytest.raises(ConfigError, match="visits all 9 labels"):
        options("softmax").fit(data, FitContext(rng=np.random.default_rng(0)))


def test_a_training_that_diverged_is_not_saved(tmp_path: Path) -> None:
    scorer = Scorer(np.full((2, 3), np.nan, np.float32), np.zeros(2, np.float32), None)
    diverged = FittedNegativeSampling(3, 2, np.arange(2, dtype=np.int32), scorer, None, None)
    with pytest.raises(ConfigError, match=r"has diverged.*Lower learning_rate"):
        diverged.save(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_parts_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    scorer = Scorer(np.zeros((2, 3), np.float32), np.zeros(2, np.float32), FittedUniform(3))
    FittedNegativeSampling(3, 2, np.arange(2, dtype=np.int32), scorer, None, None).save(tmp_path)
    with pytest.raises(ArtifactDamaged, match="do not fit together: the noise knows 3 labels, the weights 2"):
        NegativeSampling.load(tmp_path)


def epochs_of(fit_options: NegativeSampling, data: TrainingData) -> tuple[FittedNegativeSampling, int]:
    seen: list[Mapping[str, float]] = []

    def report(step: int, total: int, metrics: Mapping[str, float] | None = None) -> None:
        if metrics:
            seen.append(metrics)

    return fit_options.fit(data, FitContext(report=report)), len(seen)


def test_training_stops_without_progress_on_held_out_rows_and_keeps_the_best_epoch() -> None:
    data = rows_of(400)
    stopped, n_epochs = epochs_of(options(epochs=100, patience=2), data)
    assert n_epochs < 100
    best, _ = epochs_of(options(epochs=n_epochs - 2, patience=0), data)
    assert np.array_equal(stopped.scorer.weights, best.scorer.weights)
    assert np.array_equal(stopped.scorer.biases, best.scorer.biases)
    last, _ = epochs_of(options(epochs=n_epochs, patience=0), data)
    assert not np.array_equal(stopped.scorer.weights, last.scorer.weights)


def test_the_learning_rate_follows_the_scale_of_the_features() -> None:
    rng = np.random.default_rng(5)
    X, classes = rng.standard_normal((300, 6)).astype(np.float32), rng.integers(0, 4, 300)
    X[np.arange(300), classes] += 2
    Y = binary_csr(classes, np.arange(301), 4)
    found = []
    for scale in (1.0, 0.02):
        fitted = options("uniform", learning_rate=None).fit(TrainingData.of(X * scale, Y), FitContext())
        found.append(fitted.predict_topk(X * scale, 1).labels[:, 0])
    assert (found[0] == classes).mean() > 0.8
    assert (found[1] == classes).mean() > 0.8


@pytest.mark.parametrize(("dimensions", "is_advised"), [(2, True), (40, False)])
def test_a_fit_says_when_a_ridge_regression_ranks_better(dimensions: int, is_advised: bool) -> None:
    """Each of 40 labels has a feature of its own: two components cannot tell them apart, forty can."""
    rng, notes = np.random.default_rng(0), list[str]()
    classes = rng.integers(0, 40, 800)
    X = binary_csr(classes, np.arange(801), 40)
    Y = binary_csr(classes, np.arange(801), 40)
    made = options(embedding={"kind": "pca", "dimensions": dimensions}, epochs=40, learning_rate=None)
    made.fit(TrainingData.of(X, Y), FitContext(note=notes.append))
    assert len(notes) == is_advised
    assert all("ridge regression ranks 80 held-out rows better" in note for note in notes)


@pytest.mark.parametrize(
    ("lead", "spread", "is_advised"), [(0.02, 0.1, True), (0.02, 0.4, False), (0.004, 0.01, False)]
)
def test_a_simple_model_is_advised_where_its_lead_is_above_its_error(
    lead: float, spread: float, is_advised: bool
) -> None:
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 40, 800)
    X = binary_csr(classes, np.arange(801), 40)
    split = Split.of(X, "all", 100, rng)
    own = ridge_quality(X, split) - lead + spread * np.tile([1.0, -1.0], 50)  # 100 rows: the error is spread / 10
    said = advice(X, split, own)
    assert (said is not None) == is_advised
    if said:
        assert f"standard error of the difference {spread / 10:.3f}" in said
