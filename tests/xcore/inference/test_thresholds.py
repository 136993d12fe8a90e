"""Thresholds of labels are those of the highest F1 on the rows they are chosen on, found by trying all of them."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given
from hypothesis import strategies as st

from xcore.errors import ConfigError
from xcore.inference.thresholds import LabelThresholds, choose_thresholds
from xcore.numeric.matrices import CSR, NO_LABEL, Float64, TopK, binary_csr

N_LABELS = 5


def truth_of(rows: list[list[int]], n_labels: int = N_LABELS) -> CSR:
    flat = np.array([label for row in rows for label in row], np.int32)
    return binary_csr(flat, np.cumsum([0, *map(len, rows)]), n_labels)


def random_case(seed: int, n: int = 60, k: int = 3) -> tuple[TopK, CSR]:
    """Rankings with scores that often tie, and places without a label."""
    rng = np.random.default_rng(seed)
    labels = np.array([rng.permutation(N_LABELS)[:k] for _ in range(n)], np.int32)
    scores = -np.sort(-rng.integers(0, 12, (n, k)) / 16).astype(np.float32)
    labels[::5, k - 1], scores[::5, k - 1] = NO_LABEL, -np.inf
    rows = [
        sorted({label for label, score in zip(*pair, strict=True) if label >= 0 and rng.random() < score + 0.1})
        for pair in zip(labels.tolist(), scores.tolist(), strict=True)
    ]
    return TopK(labels, scores), truth_of(rows)


def f1(scores: Float64, hit: Float64, n_true: int, threshold: float) -> float:
    kept = scores >= threshold
    return float(2 * hit[kept].sum() / max(kept.sum() + n_true, 1))


def offers(top: TopK, truth: CSR, label: int | None) -> tuple[Float64, Float64, int]:
    """Scores of the offers of a label (None: of all), which are true, and how often it is true."""
    dense, chosen = truth.toarray() > 0, top.labels != NO_LABEL if label is None else top.labels == label
    rows = np.nonzero(chosen)[0]
    n_true = int(dense.sum() if label is None else dense[:, label].sum())
    return top.scores[chosen].astype(np.float64), dense[rows, top.labels[chosen]].astype(np.float64), n_true


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("prior", [1e-9, 5.0])
def test_no_other_threshold_has_a_higher_f1_with_all_labels_added(seed: int, prior: float) -> None:
    top, truth = random_case(seed)
    found = choose_thresholds(top, truth, prior)
    every, weight = offers(top, truth, None), prior / truth.nnz

    def shrunk(own: tuple[Float64, Float64, int], threshold: float) -> float:
        counts = [2 * own[1][own[0] >= threshold].sum(), (own[0] >= threshold).sum() + own[2]]
        counts[0] += weight * 2 * every[1][every[0] >= threshold].sum()
        counts[1] += weight * ((every[0] >= threshold).sum() + every[2])
        return float(counts[0] / counts[1])

    def halfway(scores: Float64) -> list[float]:
        down = np.unique(scores)[::-1]
        return ((down + np.append(down[1:], down[-1])) / 2).tolist()

    assert f1(*every, found.common) == max(f1(*every, one) for one in halfway(every[0]))
    for label, threshold in enumerate(found.values.tolist()):
        own = offers(top, truth, label)
        values = [shrunk(own, one) for one in [found.common, *halfway(own[0])]]
        assert shrunk(own, threshold) == pytest.approx(max(values))
        assert threshold in [found.common, *halfway(own[0])]


def test_a_threshold_lies_halfway_between_the_scores_that_it_parts() -> None:
    top = TopK(np.array([[0], [0], [0]], np.int32), np.array([[0.75], [0.5], [0.25]], np.float32))
    found = choose_thresholds(top, truth_of([[0], [0], []], 1), 1)
    assert found.values.tolist() == [0.375]
    only_true = choose_thresholds(top, truth_of([[0], [0], [0]], 1), 1)
    assert only_true.values.tolist() == [0.25]  # nothing lies below


def test_all_labels_have_the_common_threshold_where_their_own_rows_do_not_count() -> None:
    top, truth = random_case(3)
    own, shared = (choose_thresholds(top, truth, prior) for prior in (1.0, 1e12))
    assert (shared.values == np.float32(shared.common)).all()
    assert own.common == shared.common
    assert len(set(own.values.tolist())) > 1
    assert own.n_positives.tolist() == np.bincount(truth.indices, minlength=N_LABELS).tolist()


def test_a_label_without_offers_has_the_common_threshold() -> None:
    top = TopK(np.array([[0], [0], [1]], np.int32), np.array([[0.75], [0.25], [0.5]], np.float32))
    found = choose_thresholds(top, truth_of([[0], [], [2]], 4), 1)
    assert found.values[2:].tolist() == [np.float32(found.common)] * 2


def test_each_label_is_kept_by_its_own_threshold() -> None:
    thresholds = LabelThresholds(np.array([0.5, 0.25], np.float32), 0.125, np.array([3, 4]))
    top = TopK(np.array([[0, 1], [1, NO_LABEL]], np.int32), np.array([[0.5, 0.2], [0.25, -np.inf]], np.float32))
    assert thresholds.kept(top).tolist() == [[True, False], [True, False]]
    more = thresholds.extended(4)
    assert more.values.tolist() == [0.5, 0.25, 0.125, 0.125]
    assert more.n_positives.tolist() == [3, 4, 0, 0]


@given(st.lists(st.floats(-9, 9, width=32), min_size=1, max_size=9))
def test_thresholds_are_the_same_after_a_file(tmp_path_factory: pytest.TempPathFactory, values: list[float]) -> None:
    folder = tmp_path_factory.mktemp("thresholds")
    before = LabelThresholds(np.array(values, np.float32), 0.5, np.arange(len(values)))
    before.save(folder)
    after = LabelThresholds.load(folder)
    np.testing.assert_array_equal(after.values, before.values)
    assert (after.common, after.n_positives.tolist()) == (0.5, before.n_positives.tolist())


def test_thresholds_need_a_label() -> None:
    with pytest.raises(ConfigError, match="none of the rows has a label"):
        choose_thresholds(TopK(np.zeros((2, 1), np.int32), np.ones((2, 1), np.float32)), truth_of([[], []]), 1)


def test_own_thresholds_beat_a_common_one_where_labels_score_on_different_levels() -> None:
    rng = np.random.default_rng(0)
    dense = rng.random((400, 4)) < 0.3
    level = np.array([0.1, 0.3, 0.5, 0.7])
    scores = (level + np.where(dense, 0.15, 0.0) + 0.05 * rng.normal(size=dense.shape)).astype(np.float32)
    order = np.argsort(-scores, axis=1)
    top = TopK(order.astype(np.int32), np.take_along_axis(scores, order, axis=1))
    half = slice(0, 200)
    truth = truth_of([np.flatnonzero(row).tolist() for row in dense], 4)
    chosen = choose_thresholds(TopK(top.labels[half], top.scores[half]), truth[half].tocsr(), 5)

    def macro(values: Float64) -> float:
        return float(sklearn.metrics.f1_score(dense[200:], scores[200:] >= values, average="macro"))

    assert macro(chosen.values) > macro(np.full(4, chosen.common)) + 0.2
