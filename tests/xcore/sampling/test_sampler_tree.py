"""The sampler tree: a distribution that sums to 1, fitted by steps that only go up."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numba
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from xcore.errors import ArtifactDamaged, ConfigError
from xcore.numeric.draws import keys_of
from xcore.numeric.matrices import NO_LABEL
from xcore.sampling.ascent import _exp_minus, ascent_from, climb, objective
from xcore.sampling.sampler import (
    FittedFrequency,
    FittedSampler,
    FittedTree,
    Frequency,
    Tree,
    Uniform,
    load_sampler,
)
from xcore.sampling.tree_fit import CERTAIN, ENOUGH, MAX_ROUNDS, SAMPLE, _label_sums, _move, _ranked, fit_node

K = 4


def clusters(n: int, n_labels: int, seed: int = 0, noise: float = 0.7) -> tuple[np.ndarray, np.ndarray]:
    """Points around one centre for each label."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, n_labels, n).astype(np.int32)
    centres = rng.normal(size=(n_labels, K))
    return (centres[labels] + noise * rng.normal(size=(n, K))).astype(np.float32), labels


def some_tree(n_labels: int, seed: int = 0) -> FittedTree:
    return Tree().fit(*clusters(6 * n_labels, n_labels, seed), n_labels)


def keys(n: int, seed: int = 5) -> np.ndarray:
    return keys_of(np.uint64(seed), 0, np.arange(n))


@pytest.mark.parametrize("n_labels", [1, 2, 3, 5, 8, 13, 33])
def test_probabilities_sum_to_one_and_padding_has_none(n_labels: int) -> None:
    tree = some_tree(n_labels)
    X = np.random.default_rng(1).normal(size=(20, K)).astype(np.float32) * 10
    log_probs = tree.log_prob_all(X)
    assert log_probs.shape == (20, n_labels)
    assert np.abs(np.exp(log_probs).sum(axis=1) - 1).max() < 1e-12
    nodes = tree.nodes
    assert sorted(nodes.leaves[nodes.leaves != NO_LABEL]) == list(range(n_labels))
    assert np.array_equal(nodes.leaves[nodes.places], np.arange(n_labels))
    for leaf in np.flatnonzero(nodes.leaves == NO_LABEL):
        path = [(2**nodes.depth + leaf) >> up for up in range(nodes.depth + 1)]
        turns = [(parent, child & 1) for child, parent in pairwise(path)]
        assert any(nodes.biases[node] == (-1000 if right else 1000) for node, right in turns)


def test_labels_are_drawn_as_often_as_their_probability_says() -> None:
    n_labels, n = 11, 40_000
    tree = some_tree(n_labels)
    x = np.array([[0.3, -0.2, 0.1, 0.4]], np.float32)
    drawn = tree.sample(np.repeat(x, n // 10, axis=0), 10, keys(n // 10))
    expected = np.exp(tree.log_prob_all(x)[0])
    counts = np.bincount(drawn.labels.ravel(), minlength=n_labels)
    assert scipy.stats.chisquare(counts, n * expected / expected.sum()).pvalue > 1e-3
    assert np.allclose(drawn.log_probs, np.log(expected)[drawn.labels], atol=1e-5)


def test_log_probabilities_of_given_labels_are_those_of_all() -> None:
    tree, X = some_tree(13), clusters(50, 13, seed=2)[0]
    labels = np.random.default_rng(0).integers(0, 13, (50, 3)).astype(np.int32)
    assert np.allclose(tree.log_prob(X, labels), np.take_along_axis(tree.log_prob_all(X), labels, axis=1), atol=1e-5)


def test_extreme_features_give_finite_log_probabilities() -> None:
    tree = some_tree(13)
    X = np.full((1, K), 1e4, np.float32)
    assert np.isfinite(tree.log_prob_all(X)).all()
    assert np.isfinite(tree.log_prob(X, np.arange(13, dtype=np.int32)[None])).all()


def test_a_draw_depends_on_its_key_and_number_only() -> None:
    tree, X = some_tree(13), clusters(40, 13, seed=3)[0]
    many = tree.sample(X, 7, keys(40)).labels
    assert np.array_equal(tree.sample(X, 3, keys(40)).labels, many[:, :3])
    assert np.array_equal(tree.sample(X[9:12], 7, keys(40)[9:12]).labels, many[9:12])
    assert not np.array_equal(tree.sample(X, 7, keys(40, seed=6)).labels, many)


def node_data(n_labels: int, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features of the rows by label, a 1 last; and where each label's rows end."""
    X, labels = clusters(n, n_labels, seed)
    x = np.hstack([X[np.argsort(labels, kind="stable")].astype(np.float64), np.ones((n, 1))])
    return np.ascontiguousarray(x.T), np.cumsum(np.bincount(labels, minlength=n_labels))


def rows_right(right: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """For each row whether its label goes right."""
    return np.repeat(right, np.diff(ends, prepend=0)) > 0


def by_definition(x: np.ndarray, right: np.ndarray, penalty: float, theta: np.ndarray) -> float:
    sign = np.where(right, 1.0, -1.0)
    return float(-np.logaddexp(0, -sign * (theta @ x)).sum() - penalty * theta @ theta)


def value_and_gradient(x: np.ndarray, right: np.ndarray, penalty: float, theta: np.ndarray) -> tuple[float, np.ndarray]:
    ascent = ascent_from(x, theta.copy())
    value, norm = objective(x[:, right].sum(axis=1), penalty, ascent)
    assert norm == pytest.approx(np.linalg.norm(ascent.gradient))
    return value, ascent.gradient


def top(x: np.ndarray, right: np.ndarray, penalty: float) -> tuple[float, np.ndarray]:
    """The objective and parameters where steps gain nothing any more."""
    ascent = ascent_from(x, np.zeros(len(x)))
    return climb(x, x[:, right].sum(axis=1), penalty, ascent, 200, 0.0), ascent.theta


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_moving_a_label_changes_the_objective_by_its_gain(seed: int) -> None:
    x, ends = node_data(5, 40, seed)
    theta, label = np.random.default_rng(seed).normal(size=K + 1), seed % 5
    up, down = np.array([0.0, 0.0, 1.0, 1.0, 1.0]), np.array([0.0, 0.0, 1.0, 1.0, 1.0])
    up[label], down[label] = 1, 0
    values = [by_definition(x, rows_right(right, ends), 0.1, theta) for right in (up, down)]
    assert values[0] - values[1] == pytest.approx(_label_sums(x, ends)[:, label] @ theta, abs=1e-9)


def test_the_objective_and_its_gradient_are_those_of_the_definition() -> None:
    x, ends = node_data(4, 300)
    theta, right = np.random.default_rng(2).normal(size=K + 1), rows_right(np.array([0.0, 0.0, 1.0, 1.0]), ends)
    value, gradient = value_and_gradient(x, right, 0.1, theta)
    assert value == pytest.approx(by_definition(x, right, 0.1, theta), rel=1e-12)
    for f in range(K + 1):
        step = np.eye(K + 1)[f] * 1e-5
        slope = by_definition(x, right, 0.1, theta + step) - by_definition(x, right, 0.1, theta - step)
        assert gradient[f] == pytest.approx(slope / 2e-5, abs=1e-4)


def test_the_exponential_of_plain_arithmetic_is_the_exponential() -> None:
    a = np.linspace(0, 60, 5000)
    found = np.array([_exp_minus(value) for value in a])
    assert np.allclose(found, np.exp(-np.minimum(a, 40)), rtol=1e-13, atol=0)


@pytest.mark.parametrize(("n_labels", "n", "dimensions"), [(2, 40, 4), (9, 200, 4), (30, 5000, 4), (40, 900, 18)])
def test_steps_without_end_reach_the_top_where_the_gradient_vanishes(n_labels: int, n: int, dimensions: int) -> None:
    x, ends = node_data(n_labels, n)
    more = np.random.default_rng(0).normal(size=(dimensions - K, n))
    x, right = np.vstack([more, x]), rows_right(np.arange(n_labels) % 2, ends)
    value, theta = top(x, right, 0.1)
    assert np.linalg.norm(value_and_gradient(x, right, 0.1, theta)[1]) < 1e-6
    assert value == pytest.approx(by_definition(x, right, 0.1, theta), rel=1e-12)


@pytest.mark.parametrize(("n_labels", "n"), [(2, 3), (2, 40), (9, 7), (30, 200), (64, 2000), (50, SAMPLE + 2000)])
def test_a_node_climbs_by_rounds_that_only_go_up_to_within_little_of_the_top(n_labels: int, n: int) -> None:
    x, ends = node_data(n_labels, n)
    history, eigen = np.empty(MAX_ROUNDS + 1), np.empty(MAX_ROUNDS + 1)
    theta, right, n_ascents = fit_node(x, ends, 0.1, True, history)
    value = by_definition(x, rows_right(right, ends), 0.1, theta)
    assert value > top(x, rows_right(right, ends), 0.1)[0] - 0.1 * ENOUGH * n
    assert value == pytest.approx(history[n_ascents - 1], abs=0.2 * ENOUGH * n)
    assert (np.diff(history[:n_ascents]) >= -1e-9 * abs(value)).all()
    assert sorted(right) == [0] * (n_labels // 2) + [1] * (n_labels - n_labels // 2)
    fit_node(x, ends, 0.1, False, eigen)
    assert value >= eigen[0] - 0.1 * ENOUGH * n


def test_a_move_fills_the_halves_by_gain_and_leaves_ties_where_they_are() -> None:
    sums, right = np.array([[3.0, 1.0, 2.0, 2.0, 2.0, 0.0]]), np.array([0.0, 1.0, 1.0, 1.0, 0.0, 0.0])
    assert _move(sums, np.ones(1), right)
    assert right.tolist() == [1, 0, 1, 1, 0, 0]
    assert not _move(sums, np.ones(1), right)
    assert right.tolist() == [1, 0, 1, 1, 0, 0]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.integers(0, 39))
def test_selection_finds_what_sorting_finds(values: list[int], place: int) -> None:
    place %= len(values)
    assert _ranked(np.array(values, np.float64), place) == sorted(values)[place]


def test_few_rows_are_fitted_as_well_as_in_all_dimensions() -> None:
    """Three rows span three dimensions: the optimum found there is the one of plain Newton steps in all of them."""
    x, ends = node_data(2, 3)
    theta, right, _ = fit_node(x, ends, 0.1, True, np.empty(MAX_ROUNDS + 1))
    plain = np.zeros(K + 1)
    for _ in range(50):
        chance = 1 / (1 + np.exp(-plain @ x))
        hessian = (x * (chance * (1 - chance))) @ x.T + 0.2 * np.eye(K + 1)
        plain += np.linalg.solve(hessian, x @ (rows_right(right, ends) - chance) - 0.2 * plain)
    assert np.allclose(theta, plain, atol=1e-2 * np.linalg.norm(plain))


def test_alternation_beats_eigenvector_splits_which_beat_uniform() -> None:
    """Over several problems: every node gains, yet a greedy tree as a whole may lose a little on one of them."""
    found: dict[str, list[float]] = {"alternate": [], "eigen": []}
    for seed in range(8):
        X, labels = clusters(3000, 45, seed)
        for structure, values in found.items():
            values.append(Tree(structure=structure).fit(X, labels, 45).log_prob(X, labels[:, None]).mean())
    assert np.mean(found["alternate"]) > np.mean(found["eigen"])
    assert min(found["eigen"]) > -np.log(45)


def test_a_penalty_per_label_holds_large_nodes_more() -> None:
    X, labels = clusters(600, 16)
    const, per_label = (Tree(penalty=penalty).fit(X, labels, 16).nodes.weights for penalty in ("const", "per_label"))
    assert np.linalg.norm(per_label[1]) < np.linalg.norm(const[1])


@pytest.mark.parametrize("n_labels", [1, 2])
def test_one_and_two_labels_make_a_tree(n_labels: int) -> None:
    X, labels = clusters(30, n_labels)
    tree = Tree().fit(X, labels, n_labels)
    assert tree.nodes.depth == n_labels - 1
    assert tree.sample(X, 4, keys(30)).labels.max() <= n_labels - 1
    assert tree.log_prob(X, labels[:, None]).mean() >= -np.log(n_labels)


def test_labels_without_data_and_repeated_rows_do_not_break_the_fit() -> None:
    X, labels = clusters(40, 3)
    twice = np.concatenate([X, X]), np.concatenate([labels * 2, labels * 2])
    tree = Tree(strength=0.1).fit(*twice, 7)
    probabilities = np.exp(tree.log_prob_all(X))
    assert np.abs(probabilities.sum(axis=1) - 1).max() < 1e-12
    assert probabilities[:, [0, 2, 4]].sum(axis=1).mean() > 0.8
    alike = Tree().fit(np.ones((6, K), np.float32), np.arange(6, dtype=np.int32), 6)
    assert np.allclose(alike.log_prob_all(np.ones((1, K), np.float32)), -np.log(6), atol=0.5)


def test_one_thread_and_two_fit_and_draw_the_same_bits() -> None:
    X, labels = clusters(4000, 300)
    before, found = numba.get_num_threads(), []
    try:
        for n_threads in (1, 2):
            numba.set_num_threads(min(n_threads, numba.config.NUMBA_NUM_THREADS))
            tree = Tree().fit(X, labels, 300)
            drawn = tree.sample(X, 5, keys(4000))
            found.append([*tree.nodes[:4], drawn.labels, drawn.log_probs, tree.log_prob_all(X[:40])])
    finally:
        numba.set_num_threads(before)
    assert all(np.array_equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("n_labels", [1, 6, 21])
def test_a_beam_as_wide_as_the_tree_ranks_all_labels(n_labels: int) -> None:
    tree, X = some_tree(n_labels), clusters(25, n_labels, seed=4)[0]
    found, all_of_them = tree.shortlist(X, n_labels + 3), tree.log_prob_all(X)
    assert (found.labels[:, n_labels:] == NO_LABEL).all()
    assert np.array_equal(np.sort(found.labels[:, :n_labels]), np.tile(np.arange(n_labels), (25, 1)))
    assert np.allclose(found.scores[:, :n_labels], -np.sort(-all_of_them, axis=1), atol=1e-5)


def test_a_narrow_beam_finds_most_of_the_best_labels() -> None:
    tree, X = some_tree(200), clusters(100, 200, seed=4)[0]
    found, best = tree.shortlist(X, 20).labels, np.argsort(-tree.log_prob_all(X), axis=1)[:, :5]
    assert (best[:, :, None] == found[:, None, :]).any(axis=2).mean() > 0.9


def test_frequency_draws_by_count_plus_one() -> None:
    labels = np.repeat(np.arange(3, dtype=np.int32), [5, 0, 13])
    sampler = Frequency().fit(np.zeros((18, 0), np.float32), labels, 3)
    expected = np.array([6, 1, 14]) / 21
    assert np.allclose(np.exp(sampler.log_prob_all(np.zeros((1, 0), np.float32))), expected)
    drawn = sampler.sample(np.zeros((4000, 0), np.float32), 5, keys(4000))
    assert scipy.stats.chisquare(np.bincount(drawn.labels.ravel()), 20_000 * expected).pvalue > 1e-3
    assert np.allclose(drawn.log_probs, np.log(expected)[drawn.labels])
    assert 0.2 < (drawn.labels[:, 0] == drawn.labels[:, 1]).mean() < 0.8  # the draws of a row are independent


def test_uniform_draws_all_labels_alike() -> None:
    sampler = Uniform().fit(np.zeros((0, 0), np.float32), np.zeros(0, np.int32), 7)
    drawn = sampler.sample(np.zeros((4000, 0), np.float32), 5, keys(4000))
    assert scipy.stats.chisquare(np.bincount(drawn.labels.ravel())).pvalue > 1e-3
    assert np.allclose(drawn.log_probs, -np.log(7))


@pytest.mark.parametrize(
    "sampler", [some_tree(9), FittedFrequency(np.arange(1.0, 10.0)), Uniform().fit(*clusters(9, 9), 9)]
)
def test_a_saved_sampler_draws_the_same(sampler: FittedSampler, tmp_path: Path) -> None:
    sampler.save(tmp_path)
    loaded, X = load_sampler(tmp_path), clusters(10, 9)[0]
    assert type(loaded) is type(sampler)
    assert (loaded.n_labels, loaded.n_features) == (sampler.n_labels, sampler.n_features)
    assert np.array_equal(loaded.sample(X, 6, keys(10)).labels, sampler.sample(X, 6, keys(10)).labels)
    assert np.array_equal(loaded.log_prob_all(X), sampler.log_prob_all(X))


def test_a_sampler_without_labels_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one label, got 0"):
        Tree().fit(np.zeros((0, K), np.float32), np.zeros(0, np.int32), 0)


def test_a_file_whose_walks_may_end_at_a_leaf_without_a_label_is_refused(tmp_path: Path) -> None:
    tree = some_tree(5)
    one_sided = 1 + np.flatnonzero(tree.nodes.biases[1:] == CERTAIN)
    for name, value in (("biases", 1.0), ("biases", -CERTAIN), ("weights", 0.1)):
        nodes = tree.nodes._replace(weights=tree.nodes.weights.copy(), biases=tree.nodes.biases.copy())
        getattr(nodes, name)[one_sided[0]] = value
        FittedTree(nodes).save(tmp_path)
        with pytest.raises(ArtifactDamaged, match=f"sampler.safetensors: array '{name}'.*labels are on one side only"):
            load_sampler(tmp_path)
