from __future__ import annotations

import hashlib
import mmap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numba
import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from xcore.errors import ConfigError
from xcore.grouping.label_tree import Shape, embed_labels, order_labels
from xcore.models.parabel import FittedParabel, Parabel
from xcore.models.parabel.calibration import fit_curves
from xcore.numeric.matrices import CSR, NO_LABEL, TopK, binary_csr, csr
from xcore.training.context import FitContext
from xcore.training.data import TrainingData

EXACT = {"prune_below": 0.0, "tolerance": 1e-5, "max_passes": 5000}

Array = npt.NDArray[np.floating]


def sparse(dense: npt.ArrayLike) -> CSR:
    matrix = sp.csr_array(np.asarray(dense, np.float32))
    return csr(matrix.data, matrix.indices, matrix.indptr, matrix.shape[1])


def random_data(n: int = 120, d: int = 20, n_labels: int = 30, seed: int = 0) -> TrainingData:
    """Rows near the mean of the prototypes of their one to three labels."""
    rng = np.random.default_rng(seed)
    prototypes = rng.normal(size=(n_labels, d)) * (rng.random((n_labels, d)) < 0.4)
    Y = np.zeros((n, n_labels))
    for row in range(n):
        Y[row, rng.choice(n_labels, rng.integers(1, 4), replace=False)] = 1
    X = Y @ prototypes + 0.1 * rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.3) + 1e-6
    return TrainingData.of(sparse(X / np.linalg.norm(X, axis=1, keepdims=True)), sparse(Y))


def fit(model: Parabel, data: TrainingData, seed: int = 0) -> FittedParabel:
    return model.fit(data, FitContext(rng=np.random.default_rng(seed)))


def classifiers(fitted: FittedParabel) -> tuple[Array, Array]:
    """All weights (n_classifiers, d) and biases, unpacked one by one."""
    chunks, shape = fitted.chunks, Shape(fitted.orders.shape[1], fitted.arity, fitted.depth)
    first = shape.child_starts()
    weights = np.zeros((len(chunks.biases), fitted.n_features))
    for node in range(len(chunks.node_lines) - 1):
        tree, place = divmod(node, shape.n_nodes)
        lines = range(chunks.node_lines[node], chunks.node_lines[node + 1])
        for line in lines:
            a, b = chunks.line_starts[line + node], chunks.line_starts[line + node + 1]
            for e in range(chunks.node_entries[node] + a, chunks.node_entries[node] + b):
                c = tree * first[-1] + first[place] + chunks.children[e]
                weights[c, chunks.features[line]] = float(chunks.weights[e]) * chunks.scales[c]
    return weights, chunks.biases.astype(np.float64)


def brute_force(fitted: FittedParabel, X: CSR) -> Array:
    """Scores (n, n_labels) of every label by walking from the root to every leaf; -inf where a label is in no tree."""
    weights, biases = classifiers(fitted)
    margins = X.toarray().astype(np.float64) @ weights.T + biases
    shape = Shape(fitted.orders.shape[1], fitted.arity, fitted.depth)
    first, levels = shape.child_starts(), shape.level_starts()
    scores = np.full((X.shape[0], fitted.n_labels), -np.inf)
    scores[:, fitted.orders[0]] = 0
    for tree, order in enumerate(fitted.orders):
        so_far = [np.ones(X.shape[0])]
        for level in range(shape.depth + 1):
            columns = range(first[levels[level]], first[levels[level + 1]])
            parent = np.searchsorted(first, columns, side="right") - 1 - levels[level]
            shares = 1 / (1 + np.exp(-fitted.sharpness[level == shape.depth] * margins))
            so_far = [so_far[p] * shares[:, tree * first[-1] + c] for p, c in zip(parent, columns, strict=True)]
        for label, score in zip(order, so_far, strict=True):
            scores[:, label] += score / len(fitted.orders)
    return scores


def saved_bytes(fitted: FittedParabel, folder: Path) -> list[str]:
    folder.mkdir()
    fitted.save(folder)
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())]


# The tree


def test_embeddings_are_normalised_weighted_sums_of_the_positives() -> None:
    X = np.array([[1.0, 0, 2], [0, 3, -2], [0, 0, 1]])
    positives = np.array([[1.0, 1, 0], [0, 0.5, 1], [0, 0, 0]])
    sums = positives @ X
    expected = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-9)
    np.testing.assert_allclose(embed_labels(sparse(X), sparse(positives)).toarray(), expected, atol=1e-6)


@given(st.integers(1, 400), st.integers(2, 20), st.integers(1, 60), st.none() | st.integers(0, 5))
def test_nodes_of_a_level_differ_by_at_most_one_label(
    n_labels: int, arity: int, leaf_size: int, depth: int | None
) -> None:
    shape = Shape.of(n_labels, arity, leaf_size, depth)
    for level in range(shape.depth + 1):
        sizes = np.diff(shape.bounds(level))
        assert sizes.min() >= 1
        assert sizes.max() - sizes.min() <= 1
        assert sizes.sum() == n_labels
        assert np.isin(shape.bounds(level), shape.bounds(level + 1)).all()
    if depth is None and shape.arity ** (shape.depth + 1) <= n_labels:
        assert np.diff(shape.bounds(shape.depth)).max() <= leaf_size


def test_the_published_shapes_are_settings() -> None:
    assert Shape.of(4108, 2, 100) == Shape(4108, 2, 6)
    assert Shape.of(4108, 64, 100) == Shape(4108, 42, 1)
    assert Shape.of(4108, 16, 100, depth=2) == Shape(4108, 16, 2)
    assert Shape.of(50, 64, 100) == Shape(50, 2, 0)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 90), st.integers(2, 7), st.integers(0, 3), st.integers(0, 99))
def test_every_label_has_one_place_in_the_tree(n_labels: int, arity: int, depth: int, seed: int) -> None:
    vectors = np.random.default_rng(seed).normal(size=(n_labels, 5))
    vectors[::4] = 0
    order = order_labels(sparse(vectors), Shape.of(n_labels, arity, 1, depth), np.random.default_rng(seed))
    assert sorted(order) == list(range(n_labels))


def test_labels_of_one_direction_share_a_branch() -> None:
    directions = np.eye(4, 12)[np.random.default_rng(0).permutation(np.arange(24) % 4)]
    vectors = directions + 0.05 * np.random.default_rng(1).random((24, 12))
    order = order_labels(sparse(vectors), Shape.of(24, 4, 6), np.random.default_rng(2))
    branches = directions[order].argmax(axis=1).reshape(4, 6)
    assert (branches == branches[:, :1]).all()


# The classifiers


def linear_svm(X: CSR, y: npt.NDArray[np.bool_], **options: npt.NDArray[np.floating]) -> Array:
    from sklearn.svm import LinearSVC

    reference = LinearSVC(loss="squared_hinge", dual=True, C=1.0, tol=1e-7, max_iter=100_000, random_state=0)
    reference.fit(X.toarray().astype(np.float64), y, **options)
    return np.append(reference.coef_[0], reference.intercept_)


def test_one_level_equals_one_vs_all_support_vector_machines() -> None:
    data = random_data()
    fitted = fit(Parabel(depth=0, **EXACT), data)
    weights, biases = classifiers(fitted)
    assert len(biases) == data.Y.shape[1]
    for label in (0, 7, 29):
        expected = linear_svm(data.X, data.Y.toarray()[:, label] > 0)
        np.testing.assert_allclose(np.append(weights[label], biases[label]), expected, atol=2e-3)


def test_logistic_classifiers_have_no_gradient_left() -> None:
    data = random_data()
    weights, biases = classifiers(fit(Parabel(depth=0, loss="logistic", cost=2.0, **EXACT), data))
    X = np.hstack([data.X.toarray(), np.ones((data.X.shape[0], 1))])
    parameters, sign = np.hstack([weights, biases[:, None]]), np.where(data.Y.toarray() > 0, 1, -1)
    missing = 1 / (1 + np.exp(sign * (X @ parameters.T)))
    gradient = parameters - 2.0 * (sign * missing).T @ X
    assert np.abs(gradient).max() < 5e-3


def test_a_weight_scales_the_loss_of_its_positive() -> None:
    data, rng = random_data(), np.random.default_rng(5)
    weighted = data.Y.toarray()
    on = np.flatnonzero(weighted[:, 3])
    weighted[on, 3] = rng.uniform(0.05, 1, len(on))
    weights, biases = classifiers(fit(Parabel(depth=0, **EXACT), TrainingData.of(data.X, sparse(weighted))))
    per_row = np.where(weighted[:, 3] > 0, weighted[:, 3], 1.0)
    expected = linear_svm(data.X, weighted[:, 3] > 0, sample_weight=per_row)
    np.testing.assert_allclose(np.append(weights[3], biases[3]), expected, atol=2e-3)


def test_a_positive_of_vanishing_weight_is_as_good_as_absent() -> None:
    data = random_data()
    doubted = data.Y.toarray()
    row = np.flatnonzero(doubted[:, 3])[0]
    doubted[row, 3] = 1e-6
    weights, biases = classifiers(fit(Parabel(depth=0, **EXACT), TrainingData.of(data.X, sparse(doubted))))
    rest = np.arange(len(doubted)) != row
    expected = linear_svm(sparse(data.X.toarray()[rest]), doubted[rest, 3] > 0)
    np.testing.assert_allclose(np.append(weights[3], biases[3]), expected, atol=2e-3)


def test_a_soft_target_is_a_positive_with_q_of_the_loss_and_a_negative_with_the_rest() -> None:
    data, rng = random_data(), np.random.default_rng(5)
    soft = data.Y.toarray() * rng.uniform(0.05, 1, data.Y.shape)
    targets = TrainingData.of(data.X, sparse(soft), reading="target")
    weights, biases = classifiers(fit(Parabel(depth=0, **EXACT), targets))
    q, twice = soft[:, 3], np.repeat([1, 0], len(soft))
    expected = linear_svm(sparse(np.tile(data.X.toarray(), (2, 1))), twice > 0, sample_weight=np.append(q, 1 - q))
    np.testing.assert_allclose(np.append(weights[3], biases[3]), expected, atol=2e-3)


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
@pytest.mark.parametrize("depth", [0, 1])
def test_half_a_label_on_two_equal_rows_is_as_good_as_one_label_on_one_of_them(loss: str, depth: int) -> None:
    data = random_data(80, 12, 6)
    one_each = np.zeros((80, 6))
    one_each[np.arange(80), data.Y.toarray().argmax(axis=1)] = 1
    X, model = sparse(np.tile(data.X.toarray(), (2, 1))), Parabel(loss=loss, depth=depth, arity=2, **EXACT)
    half = TrainingData.of(X, sparse(np.tile(one_each / 2, (2, 1))), reading="target")
    drawn = TrainingData.of(X, sparse(np.vstack([one_each, 0 * one_each])), reading="target")
    np.testing.assert_array_equal(fit(model, half).orders, fit(model, drawn).orders)
    for found, expected in zip(classifiers(fit(model, half)), classifiers(fit(model, drawn)), strict=True):
        np.testing.assert_allclose(found, expected, atol=5e-3)


def test_a_branch_learns_from_the_rows_under_its_node_only() -> None:
    data = random_data()
    fitted = fit(Parabel(arity=3, depth=1, **EXACT), data)
    weights, biases = classifiers(fitted)
    leaf = fitted.orders[0][:10]
    under = data.Y.toarray()[:, leaf].any(axis=1)
    np.testing.assert_allclose(np.append(weights[0], biases[0]), linear_svm(data.X, under), atol=2e-3)
    expected = linear_svm(sparse(data.X.toarray()[under]), data.Y.toarray()[under, leaf[4]] > 0)
    np.testing.assert_allclose(np.append(weights[3 + 4], biases[3 + 4]), expected, atol=2e-3)


def test_pruning_drops_small_weights_and_nothing_else() -> None:
    data = random_data()
    whole, _ = classifiers(fit(Parabel(prune_below=0), data))
    pruned, _ = classifiers(fit(Parabel(prune_below=0.2), data))
    np.testing.assert_allclose(pruned, np.where(np.abs(whole) >= 0.2, whole, 0), atol=1e-3)


# The search


@pytest.mark.parametrize(
    "shape", [{"depth": 0}, {"arity": 2, "depth": 3}, {"arity": 3, "depth": 2, "n_trees": 2}, {"loss": "logistic"}]
)
def test_a_full_beam_ranks_as_scoring_all_leaves(shape: dict[str, object]) -> None:
    data = random_data()
    fitted = fit(Parabel(beam=1000, **shape), data)
    X = random_data(seed=1).X
    expected, top = brute_force(fitted, X), fitted.predict_topk(X, 30)
    for row in range(X.shape[0]):
        np.testing.assert_allclose(expected[row, top.labels[row]], top.scores[row], rtol=1e-4, atol=1e-7)
        assert sorted(top.labels[row]) == list(range(30))


def test_a_narrow_beam_offers_some_labels_with_their_own_scores() -> None:
    fitted = fit(Parabel(arity=3, depth=2, beam=2), random_data())
    X = random_data(seed=1).X
    expected, top = brute_force(fitted, X), fitted.predict_topk(X, 30)
    assert (top.labels != NO_LABEL).sum(axis=1).max() <= 8
    for row, (labels, scores) in enumerate(zip(top.labels, top.scores, strict=True)):
        offered = labels != NO_LABEL
        assert offered.any()
        np.testing.assert_allclose(expected[row, labels[offered]], scores[offered], rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("options", [{}, {"n_trees": 3}, {"calibrate": "platt"}])
def test_one_row_is_found_by_bisection_as_a_batch_is_by_table(options: dict[str, object]) -> None:
    data = random_data(400, 300)
    fitted = fit(Parabel(arity=3, depth=2, prune_below=0.05, **options), data)
    n_lines = np.diff(fitted.chunks.node_lines)
    few = np.random.default_rng(0).random((400, 300)) < 0.01  # features per row: too few for a table, missing ones too
    rows = sparse(np.where(few, data.X.toarray(), 0))
    assert np.diff(rows.indptr).max() * 8 < n_lines.min()
    assert (n_lines < 300).any()
    batch = fitted.predict_topk(rows, 5)
    for row in range(rows.shape[0]):
        alone = fitted.predict_topk(rows[row : row + 1], 5)
        assert np.array_equal(alone.labels[0], batch.labels[row])
        assert np.array_equal(alone.scores[0], batch.scores[row])


def test_equal_scores_go_to_the_lower_label() -> None:
    data = random_data(n_labels=10)
    twins = np.repeat(data.Y.toarray(), 2, axis=1)
    top = fit(Parabel(depth=0), TrainingData.of(data.X, sparse(twins))).predict_topk(data.X, 20)
    assert np.array_equal(top.scores[:, ::2], top.scores[:, 1::2])
    assert np.array_equal(top.labels[:, ::2] + 1, top.labels[:, 1::2])


def test_unsorted_and_repeated_columns_count_as_their_sum() -> None:
    fitted = fit(Parabel(), random_data(d=3))
    plain = sparse([[0.2, 0.0, 0.7]])
    odd = csr(np.array([0.4, 0.2, 0.3]), np.array([2, 0, 2]), np.array([0, 3]), 3)
    assert np.array_equal(fitted.predict_topk(odd, 5).labels, fitted.predict_topk(plain, 5).labels)


# Unusual data


def test_labels_without_rows_are_never_offered() -> None:
    data = random_data()
    Y = data.Y.toarray()
    Y[:, [4, 9]] = 0
    top = fit(Parabel(arity=3, depth=2, beam=100), TrainingData.of(data.X, sparse(Y))).predict_topk(data.X, 30)
    assert not np.isin([4, 9], top.labels).any()
    assert (top.labels[:, 28:] == NO_LABEL).all()
    assert (top.labels[:, :28] != NO_LABEL).all()


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_a_single_label_is_offered_with_a_score(loss: str) -> None:
    fitted = fit(Parabel(loss=loss), TrainingData.of(sparse(np.eye(3)), sparse([[1.0], [1.0], [0.0]])))
    top = fitted.predict_topk(sparse(np.eye(3)), 2)
    assert top.labels.tolist() == [[0, NO_LABEL]] * 3
    assert top.scores[0, 0] > top.scores[2, 0]


def test_duplicate_rows_and_rows_without_features_or_labels_are_learnt_from() -> None:
    X = np.vstack([np.eye(4)] * 3 + [np.zeros((2, 4))])
    Y = np.vstack([np.eye(4)] * 2 + [np.zeros((4, 4)), np.eye(4)[:2]])
    fitted = fit(Parabel(arity=2, leaf_size=1), TrainingData.of(sparse(X), sparse(Y)))
    assert fitted.predict_topk(sparse(np.eye(4)), 1).labels[:, 0].tolist() == [0, 1, 2, 3]


def test_no_positive_at_all_is_refused() -> None:
    with pytest.raises(ConfigError, match="none of the 2 training rows has a label"):
        fit(Parabel(), TrainingData.of(sparse(np.eye(2)), sparse(np.zeros((2, 3)))))


def test_rows_of_another_width_and_k_below_one_are_refused() -> None:
    fitted = fit(Parabel(), random_data())
    with pytest.raises(ConfigError, match="trained on 20 features, got rows with 3"):
        fitted.predict_topk(sparse(np.eye(3)), 1)
    with pytest.raises(ConfigError, match="k must be at least 1, got 0"):
        fitted.predict_topk(sparse(np.eye(20)), 0)


# Bytes


def test_threads_and_repeats_write_the_same_bytes(tmp_path: Path) -> None:
    data, before = random_data(600, 50, 300), numba.get_num_threads()
    model, written = Parabel(arity=3, leaf_size=20, n_trees=2, calibrate="platt"), []
    try:
        for run, n_threads in enumerate((1, min(2, before), min(2, before))):
            numba.set_num_threads(n_threads)
            written.append(saved_bytes(fit(model, data), tmp_path / str(run)))
    finally:
        numba.set_num_threads(before)
    assert written[0] == written[1] == written[2]


def test_another_seed_grows_another_tree() -> None:
    data = random_data()
    first, second = (fit(Parabel(arity=3, depth=2), data, seed).orders for seed in (0, 1))
    assert not np.array_equal(first, second)


def test_a_loaded_model_is_mapped_and_predicts_the_same(tmp_path: Path) -> None:
    data = random_data()
    fitted = fit(Parabel(arity=3, depth=2, n_trees=2, calibrate="platt"), data)
    fitted.save(tmp_path)
    before = (tmp_path / "weights.safetensors").read_bytes()
    loaded = Parabel.load(tmp_path)
    buffer = loaded.chunks.weights
    while isinstance(buffer, np.ndarray):
        buffer = buffer.base
    assert isinstance(buffer.obj if isinstance(buffer, memoryview) else buffer, mmap.mmap)
    assert np.array_equal(loaded.predict_topk(data.X, 5).scores, fitted.predict_topk(data.X, 5).scores)
    loaded.chunks.weights[:] = 0
    assert (tmp_path / "weights.safetensors").read_bytes() == before


# Probabilities


def test_curves_are_recovered_and_labels_without_offers_get_the_common_one() -> None:
    rng, n = np.random.default_rng(0), 20_000
    scores = rng.uniform(0.01, 0.99, (n, 2)).astype(np.float32)
    chance = 1 / (1 + np.exp(-(np.array([2.0, 1.0]) * np.log(scores / (1 - scores)) + np.array([1.0, -0.5]))))
    truth = np.hstack([rng.random((n, 2)) < chance, np.zeros((n, 1))])
    top = TopK(np.tile(np.array([0, 1], np.int32), (n, 1)), scores)
    slopes, offsets = fit_curves(top, sparse(truth))
    np.testing.assert_allclose(slopes[:2], [2, 1], atol=0.15)
    np.testing.assert_allclose(offsets[:2], [1, -0.5], atol=0.1)
    assert slopes[1] < slopes[2] < slopes[0]


def noisy_data(n: int, seed: int) -> TrainingData:
    """Ten labels; label j is true with a probability of 0.05 to 0.95 that grows with the row's feature j."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, 10)) * (rng.random((n, 10)) < 0.5)
    return TrainingData.of(sparse(X), sparse(rng.random((n, 10)) < 1 / (1 + np.exp(3 - 6 * X))))


def worst_bin(fitted: FittedParabel, data: TrainingData) -> float:
    """How far the mean score is from the share of true labels, among scores that are alike."""
    top = fitted.predict_topk(data.X, 10)
    true = np.take_along_axis(data.Y.toarray(), top.labels, axis=1)
    bins = np.digitize(top.scores, [0.1, 0.2, 0.4, 0.6, 0.8])
    filled = [bins == b for b in range(6) if (bins == b).sum() > 200]
    return max(abs(float(top.scores[chosen].mean() - true[chosen].mean())) for chosen in filled)


def test_probabilities_match_frequencies() -> None:
    data, held_out = noisy_data(3000, 0), noisy_data(3000, 1)
    fitted = fit(Parabel(calibrate="platt", calibration_share=0.3, cost=0.1, normalise=False), data)
    plain = replace(fitted, slopes=np.empty(0, np.float32), offsets=np.empty(0, np.float32))
    assert worst_bin(fitted, held_out) < 0.05 < worst_bin(plain, held_out)


def test_calibration_keeps_the_quality_of_the_ranking() -> None:
    data, held_out = random_data(2000, 40), random_data(500, 40, seed=1)
    best = []
    for calibrate in ("none", "platt"):
        top = fit(Parabel(calibrate=calibrate), data).predict_topk(held_out.X, 1)
        best.append(held_out.Y.toarray()[np.arange(500), top.labels[:, 0]].mean())
    assert best[1] > best[0] - 0.02


def test_calibration_learns_the_confidence_of_imputed_labels() -> None:
    """Labels that are true with the chance .4 get probabilities near .4, not near 1."""
    data = random_data(1800, 40)
    X, Y, held_out = data.X[:1500], data.Y[:1500], data.X[1500:]
    doubted = Y.copy()
    doubted.data[:] = 0.4
    sure, unsure = (
        fit(Parabel(calibrate="platt"), TrainingData.of(X, targets)).predict_topk(held_out, 1).scores.mean()
        for targets in (Y, doubted)
    )
    assert sure > 0.8
    assert 0.3 < unsure < 0.55


def test_progress_of_two_trainings_is_one_count() -> None:
    steps: list[tuple[int, int]] = []
    model = Parabel(calibrate="platt", calibration_share=0.5, arity=2, leaf_size=2)
    model.fit(
        random_data(60),
        FitContext(rng=np.random.default_rng(0), report=lambda step, total, metrics=None: steps.append((step, total))),
    )
    assert steps == sorted(steps)
    assert {total for _, total in steps} == {steps[-1][0]}


def test_too_few_rows_to_hold_out_are_refused() -> None:
    data = TrainingData.of(sparse(np.eye(2)), sparse([[1.0], [0.0]]))
    held_out_first = next(seed for seed in range(99) if np.random.default_rng(seed).permutation(2)[0] == 0)
    with pytest.raises(ConfigError, match="no label is left"):
        fit(Parabel(calibrate="platt", calibration_share=0.5), data, held_out_first)


# Real data


def eurlex_part(folder: Path) -> TrainingData:
    """The 6,000 dev rows of EURLEX57K, the start of each text as 5,000-term TF-IDF."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    table = pq.read_table(folder / "dev.parquet", columns=["text", "labels"])
    words = TfidfVectorizer(max_features=5000, sublinear_tf=True, dtype=np.float32)
    X = words.fit_transform(text[:1500] for text in table["text"].to_pylist())
    names = [sorted(set(own)) for own in table["labels"].to_pylist()]
    number = {name: i for i, name in enumerate(sorted(set().union(*names)))}
    indptr = np.cumsum([0] + [len(own) for own in names])
    Y = binary_csr(np.array([number[name] for own in names for name in own]), indptr, len(number))
    return TrainingData.of(csr(X.data, X.indices, X.indptr, X.shape[1]), Y)


def test_a_part_of_eurlex57k_is_learnt(real_data: Callable[[str], Path]) -> None:
    """Ridge regression on the same rows reaches 0.693 and 0.503."""
    data = eurlex_part(real_data("eurlex57k"))
    top = fit(Parabel(), TrainingData.of(data.X[:5000], data.Y[:5000])).predict_topk(data.X[5000:], 5)
    hits = np.take_along_axis(data.Y[5000:].toarray() > 0, top.labels, axis=1)
    assert hits[:, 0].mean() > 0.65
    assert hits.mean() > 0.48


def test_the_length_of_rows_does_not_matter_unless_asked() -> None:
    data = noisy_data(300, 0)
    stretched = TrainingData.of(data.X * np.float32(8), data.Y)
    plain, same = fit(Parabel(), data).predict_topk(data.X, 5), fit(Parabel(), stretched).predict_topk(stretched.X, 5)
    np.testing.assert_array_equal(plain.labels, same.labels)
    other = fit(Parabel(normalise=False), stretched).predict_topk(stretched.X, 5)
    assert (plain.labels != other.labels).any()
