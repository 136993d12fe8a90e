from __future__ import annotations

from math import log, log2

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st

from xcore.errors import ConfigError
from xcore.metrics import (
    THIRDS,
    Evaluation,
    evaluate,
    log_probabilities,
    paired_bootstrap,
    propensities,
    row_values,
    thirds_of_mass,
)
from xcore.metrics import bootstrap as bootstrap_module
from xcore.metrics import ranking as ranking_module
from xcore.numeric.matrices import NO_LABEL, TopK, binary_csr


def ranking(rows: list[list[int]]) -> TopK:
    labels = np.array(rows, np.int32)
    scores = np.where(labels == NO_LABEL, -np.inf, -np.arange(labels.shape[1], dtype=np.float32)[None, :])
    return TopK(labels, scores.astype(np.float32))


def truth_of(rows: list[list[int]], n_labels: int) -> sp.csr_array:
    indptr = np.cumsum([0] + [len(row) for row in rows])
    return binary_csr(np.array([label for row in rows for label in row], np.int32), indptr, n_labels)


def judge(top: TopK, truth: sp.csr_array, **options: object) -> Evaluation:
    defaults = {
        "ks": (1, 2, 3),
        "train_counts": np.array([50, 20, 10, 10, 5, 0]),
        "n_train": 60,
        "n_bootstrap": 0,
        "rng": np.random.default_rng(0),
    }
    return evaluate(top, truth, **(defaults | options))


# Two rows over six labels; head is {0}, torso {1, 2}, tail {3, 4, 5}.
TOP = ranking([[0, 3, 1], [2, 4, 5]])
TRUTH = truth_of([[1, 0], [4]], 6)


def test_precision_and_recall_of_a_hand_worked_case() -> None:
    metrics = judge(TOP, TRUTH).metrics
    assert metrics["precision_at_1"] == pytest.approx(1 / 2)
    assert metrics["precision_at_2"] == pytest.approx((1 / 2 + 1 / 2) / 2)
    assert metrics["precision_at_3"] == pytest.approx((2 / 3 + 1 / 3) / 2)
    assert metrics["recall_at_1"] == pytest.approx((1 / 2 + 0) / 2)
    assert metrics["recall_at_3"] == pytest.approx(1.0)


def test_ndcg_of_a_hand_worked_case() -> None:
    metrics = judge(TOP, TRUTH).metrics
    first = (1 + 1 / log2(4)) / (1 + 1 / log2(3))
    second = 1 / log2(3)
    assert metrics["ndcg_at_3"] == pytest.approx((first + second) / 2)
    assert metrics["ndcg_at_1"] == pytest.approx(1 / 2)


def test_propensity_scored_metrics_of_a_hand_worked_case() -> None:
    c = (log(60) - 1) * 2.5**0.55
    q = [1 + c * (count + 1.5) ** -0.55 for count in (50, 20, 10, 10, 5, 0)]
    metrics = judge(TOP, TRUTH).metrics
    assert metrics["psp_at_1"] == pytest.approx(q[0] / (q[1] + q[4]))
    assert metrics["psp_at_2"] == pytest.approx((q[0] + q[4]) / (q[1] + q[0] + q[4]))
    assert metrics["psp_at_3"] == pytest.approx(1.0)
    ideal = 1 + 1 / log2(3)
    gained = (q[0] + q[1] / log2(4)) / ideal + q[4] / log2(3)
    possible = (q[1] + q[0] / log2(3)) / ideal + q[4]
    assert metrics["psndcg_at_3"] == pytest.approx(gained / possible)


def test_thirds_of_a_hand_worked_case() -> None:
    metrics = judge(TOP, TRUTH).metrics
    assert metrics["head/precision_at_3"] == pytest.approx(1 / 6)
    assert metrics["torso/precision_at_3"] == pytest.approx(1 / 6)
    assert metrics["tail/precision_at_3"] == pytest.approx(1 / 6)
    assert metrics["torso/recall_at_2"] == 0.0
    assert metrics["tail/recall_at_1"] == 0.0
    assert metrics["tail/recall_at_2"] == 1.0  # only the second row has a tail label
    assert metrics["coverage_at_2"] == pytest.approx(2 / 3)
    assert metrics["head/coverage_at_1"] == 1.0
    assert metrics["torso/coverage_at_2"] == 0.0


def test_thirds_cut_where_the_mass_before_a_label_passes_a_third() -> None:
    assert thirds_of_mass(np.array([1, 4, 1, 2, 1, 0])).tolist() == [2, 0, 2, 1, 2, 2]
    assert thirds_of_mass(np.array([2, 2, 2])).tolist() == [0, 1, 2]
    assert thirds_of_mass(np.array([9])).tolist() == [0]
    assert thirds_of_mass(np.zeros(2, np.int64)).tolist() == [2, 2]


def test_propensity_of_a_hand_worked_label_and_its_published_limits() -> None:
    # N = e^2, N_l = b = 1.5, a = 1: C = 2.5 and p = 1 / (1 + 2.5 / 3).
    assert propensities(np.array([1.5]), round(np.e**2), a=1.0)[0] == pytest.approx(
        1 / (1 + (log(7) - 1) * 2.5 / 3), rel=1e-12
    )
    rising = propensities(np.arange(1000), 10_000)
    assert (np.diff(rising) > 0).all()
    assert 0 < rising[0] < rising[-1] <= 1
    assert propensities(np.array([0, 1]), 2).tolist() == [1.0, 1.0]


def test_rows_without_true_labels_count_as_misses() -> None:
    with_empty = judge(ranking([[0, 3, 1], [2, 4, 5], [0, 1, 2]]), truth_of([[1, 0], [4], []], 6))
    without = judge(TOP, TRUTH)
    assert with_empty.n_unlabelled == 1
    for name in ("precision_at_3", "ndcg_at_3", "recall_at_3"):
        assert with_empty.metrics[name] == pytest.approx(without.metrics[name] * 2 / 3)
    for name in ("psp_at_3", "psndcg_at_2", "coverage_at_2", "head/recall_at_1"):
        assert with_empty.metrics[name] == pytest.approx(without.metrics[name])


def test_places_without_a_label_are_misses_and_never_hit_the_last_label() -> None:
    evaluation = judge(ranking([[5, NO_LABEL, NO_LABEL], [NO_LABEL] * 3]), truth_of([[5], [5, 4]], 6))
    assert evaluation.metrics["precision_at_3"] == pytest.approx(1 / 6)
    assert evaluation.per_label["predicted"].to_pylist() == [0, 0, 0, 0, 0, 1]


def test_a_third_without_true_labels_has_no_recall_and_no_coverage() -> None:
    metrics = judge(TOP, truth_of([[0], [0]], 6)).metrics
    assert np.isnan(metrics["tail/recall_at_1"])
    assert np.isnan(metrics["tail/coverage_at_3"])
    assert metrics["tail/precision_at_1"] == 0.0


def random_case(
    seed: int, n: int = 60, n_labels: int = 30, k: int = 6
) -> tuple[TopK, sp.csr_array, npt.NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    rows = [sorted(rng.choice(n_labels, rng.integers(0, 5), replace=False).tolist()) for _ in range(n)]
    labels = np.array([rng.permutation(n_labels)[:k] for _ in range(n)])
    for i, row in enumerate(rows):  # a ranking that is right now and then
        found = [label for label in row if rng.random() < 0.5 and label not in labels[i]]
        labels[i, : len(found)] = found
    labels[rng.random(n) < 0.1, k - 2 :] = NO_LABEL
    return ranking(labels.tolist()), truth_of(rows, n_labels), rng.integers(0, 100, n_labels)


@pytest.mark.parametrize("seed", range(4))
def test_agrees_with_napkinxc_on_random_matrices(seed: int) -> None:
    theirs = pytest.importorskip("napkinxc.metrics")
    top, truth, counts = random_case(seed)
    n_train = 500
    mine = judge(top, truth, ks=(1, 2, 3, 4, 5, 6), train_counts=counts, n_train=n_train).metrics
    predicted = [[int(label) for label in row if label != NO_LABEL] for row in top.labels]
    true = [truth.indices[truth.indptr[i] : truth.indptr[i + 1]].tolist() for i in range(len(top))]
    row = np.concatenate([np.arange(count) for count in counts])
    entries = (np.ones(len(row)), (row, np.repeat(np.arange(len(counts)), counts)))
    train = sp.csr_matrix(entries, shape=(n_train, len(counts)))  # any matrix with these label counts
    inverse = theirs.Jain_et_al_inverse_propensity(train)
    np.testing.assert_allclose(1 / propensities(counts, n_train), inverse, rtol=1e-12)
    expected = {
        "precision": theirs.precision_at_k(true, predicted, k=6),
        "ndcg": theirs.ndcg_at_k(true, predicted, k=6),
        "recall": theirs.recall_at_k(true, predicted, k=6),
        "coverage": theirs.coverage_at_k(true, predicted, k=6),
        "psp": theirs.psprecision_at_k(true, predicted, inverse, k=6),
        "psndcg": theirs.psndcg_at_k(true, predicted, inverse, k=6),
    }
    for name, values in expected.items():
        np.testing.assert_allclose([mine[f"{name}_at_{k}"] for k in range(1, 7)], values, rtol=1e-9, err_msg=name)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_thirds_and_deciles_add_up_to_the_whole(seed: int) -> None:
    top, truth, counts = random_case(seed, n=25)
    result = judge(top, truth, ks=(1, 5), train_counts=counts, n_train=300)
    for name in ("precision_at_1", "ndcg_at_5", "psp_at_5", "psndcg_at_1"):
        whole = result.metrics[name]
        assert sum(result.metrics[f"{third}/{name}"] for third in THIRDS) == pytest.approx(whole, nan_ok=True)
    deciles = judge(top, truth, ks=(1, 5), train_counts=counts + 1, n_train=300).per_decile
    assert sum(deciles["precision_at_5"].to_pylist()) == pytest.approx(result.metrics["precision_at_5"])


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_best_ranking_scores_one(seed: int) -> None:
    _, truth, counts = random_case(seed, n=20)
    inverse = 1 / propensities(counts, 300)
    rows = [truth.indices[truth.indptr[i] : truth.indptr[i + 1]] for i in range(20)]
    best = [[*row[np.argsort(-inverse[row])], *[NO_LABEL] * 5][:5] for row in rows]
    metrics = judge(ranking(best), truth, ks=(1, 5), train_counts=counts, n_train=300).metrics
    labelled = sum(len(row) > 0 for row in rows) / 20
    for name in ("psp_at_1", "psp_at_5", "psndcg_at_5", "coverage_at_5"):
        assert metrics[name] == pytest.approx(1.0)
    for name in ("precision_at_1", "ndcg_at_5", "recall_at_5"):
        assert metrics[name] == pytest.approx(labelled)


def test_per_label_table_counts_hits_at_the_largest_k() -> None:
    table = judge(TOP, TRUTH).per_label
    assert table["test_count"].to_pylist() == [1, 1, 0, 0, 1, 0]
    assert table["predicted"].to_pylist() == [1, 1, 1, 1, 1, 1]
    assert table["hits"].to_pylist() == [1, 1, 0, 0, 1, 0]
    assert table["precision"].to_pylist() == [1.0, 1.0, 0.0, 0.0, 1.0, 0.0]
    assert table["recall"].to_pylist() == [1.0, 1.0, None, None, 1.0, None]


def test_per_decile_table_goes_from_frequent_to_rare_labels() -> None:
    counts = np.append(np.arange(1, 41)[::-1], 0)
    top, truth = ranking([[0, 39]]), truth_of([[0, 39, 38, 40]], 41)
    table = judge(top, truth, ks=(2,), train_counts=counts).per_decile
    assert table["decile"].to_pylist() == list(range(1, 11))
    assert table["n_labels"].to_pylist() == [4] * 10
    assert table["max_train_count"].to_pylist()[0] == 40
    assert table["min_train_count"].to_pylist()[-1] == 1
    assert table["precision_at_2"].to_pylist() == [0.5, *[0.0] * 8, 0.5]
    assert table["recall_at_2"].to_pylist() == [1.0, *[None] * 8, 0.5]


def test_intervals_hold_the_value_and_have_the_width_of_the_normal_theory() -> None:
    rng = np.random.default_rng(3)
    n = 3000
    right = rng.random(n) < 0.7
    top = ranking([[0] if r else [1] for r in right])
    result = judge(top, truth_of([[0]] * n, 6), ks=(1,), n_bootstrap=800, rng=np.random.default_rng(1))
    low, high = result.intervals["precision_at_1"]
    p = result.metrics["precision_at_1"]
    assert low < p < high
    assert high - low == pytest.approx(2 * 1.96 * np.sqrt(p * (1 - p) / n), rel=0.12)
    assert set(result.intervals) == {key for key in result.metrics if "coverage" not in key}


def test_intervals_follow_the_seed_and_metrics_do_not() -> None:
    top, truth, counts = random_case(5)
    runs = [
        judge(top, truth, ks=(1, 3), train_counts=counts, n_bootstrap=50, rng=np.random.default_rng(seed))
        for seed in (1, 1, 2)
    ]
    assert repr(runs[0].intervals) == repr(runs[1].intervals)
    assert repr(runs[0].intervals) != repr(runs[2].intervals)
    assert repr(runs[0].metrics) == repr(runs[2].metrics)


def test_blocks_of_rows_change_no_metric_and_keep_the_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    top, truth, counts = random_case(6, n=200)
    options = {"ks": (1, 5), "train_counts": counts, "n_bootstrap": 2000}
    whole = judge(top, truth, **options)
    monkeypatch.setattr(ranking_module, "BLOCK_ROWS", 7)
    blocks = judge(top, truth, **options)
    for key, value in whole.metrics.items():
        assert blocks.metrics[key] == pytest.approx(value, nan_ok=True)
    low, high = np.subtract(whole.intervals["precision_at_5"], blocks.intervals["precision_at_5"])
    assert abs(low) < 0.01
    assert abs(high) < 0.01
    assert whole.per_label.equals(blocks.per_label)


def test_paired_bootstrap_sees_a_small_steady_gain_that_unpaired_intervals_hide() -> None:
    rng = np.random.default_rng(0)
    hard = rng.random(2000)
    a, b = hard + 0.01 + 0.001 * rng.standard_normal(2000), hard
    result = paired_bootstrap(a, b, n_bootstrap=300, rng=np.random.default_rng(1))
    assert result.difference == pytest.approx((a - b).mean())
    assert result.interval[0] > 0.009
    assert result.share_better == 1.0
    reverse = paired_bootstrap(b, a, n_bootstrap=300, rng=np.random.default_rng(1))
    assert reverse.share_better == 0.0
    assert paired_bootstrap(a, a, n_bootstrap=10, rng=rng)[::2] == (0.0, 0.0)


def test_row_values_give_the_metric_and_feed_the_paired_bootstrap() -> None:
    top, truth, counts = random_case(8)
    worse = TopK(top.labels[:, ::-1].copy(), top.scores)
    options = {"train_counts": counts, "n_train": 60}
    for metric in ("psp_at_3", "tail/recall_at_5", "ndcg_at_1"):
        values, under = row_values(top, truth, metric, **options)
        expected = judge(top, truth, ks=(1, 3, 5), **options).metrics[metric]
        assert values.sum() / under.sum() == pytest.approx(expected)
    a, under = row_values(top, truth, "psp_at_3", **options)
    b, same = row_values(worse, truth, "psp_at_3", **options)
    assert (under == same).all()
    comparison = paired_bootstrap(a, b, denominators=under, n_bootstrap=200, rng=np.random.default_rng(0))
    assert comparison.difference == pytest.approx((a.sum() - b.sum()) / under.sum())
    assert comparison.share_better > 0.9


def test_row_values_refuse_a_metric_that_is_no_sum_over_rows() -> None:
    for metric in ("coverage_at_1", "precision", "bogus_at_2"):
        with pytest.raises(ConfigError, match="precision_at_"):
            row_values(TOP, TRUTH, metric, train_counts=np.ones(6, np.int64), n_train=9)


def test_row_values_of_accuracy_need_one_label_in_every_row() -> None:
    options = {"train_counts": np.ones(6, np.int64), "n_train": 9}
    values, under = row_values(TOP, truth_of([[0], [4]], 6), "accuracy", **options)
    assert (values.tolist(), under.tolist()) == ([1.0, 0.0], [1.0, 1.0])
    with pytest.raises(ConfigError, match="exactly one true label in every row"):
        row_values(TOP, TRUTH, "accuracy", **options)


def test_single_label_accuracy_and_log_likelihood_of_hand_worked_cases() -> None:
    scores = np.log(np.array([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]])) + np.array([[7.0], [-900.0]])
    labels = np.array([0, 1])
    probability = log_probabilities(scores, labels)
    np.testing.assert_allclose(np.exp(probability), [0.5, 0.1])
    truth, counts = truth_of([[0], [1]], 3), np.array([6, 3, 1])
    options = {"ks": (1,), "train_counts": counts, "log_probability": probability}
    metrics = judge(ranking([[0], [2]]), truth, **options).metrics
    assert metrics["log_likelihood"] == pytest.approx((log(0.5) + log(0.1)) / 2)
    assert metrics["accuracy"] == 0.5


def test_single_label_metrics_by_third_are_means_over_the_rows_of_that_third() -> None:
    counts = np.array([6, 3, 1])
    top, truth = ranking([[0], [1], [0], [2]]), truth_of([[0], [0], [2], [2]], 3)
    known = np.log([0.5, 0.5, 0.25, 1.0])
    result = judge(top, truth, ks=(1,), train_counts=counts, n_bootstrap=100, log_probability=known)
    metrics, intervals = result.metrics, result.intervals
    assert metrics["accuracy"] == 0.5
    assert metrics["head/accuracy"] == 0.5
    assert metrics["tail/log_likelihood"] == pytest.approx(log(0.25) / 2)
    assert np.isnan(metrics["torso/accuracy"])
    assert intervals["accuracy"][0] <= 0.5 <= intervals["accuracy"][1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ks": (1, 9)}, "ks must be 1 to 3"),
        ({"ks": ()}, "ks must be"),
        ({"train_counts": np.ones(5, np.int64)}, "5 labels but the truth has 6"),
        ({"log_probability": np.zeros(3)}, r"one value per row \(2,\), got \(3,\)"),
    ],
)
def test_what_does_not_fit_together_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        judge(TOP, TRUTH, **options)


def test_f1_of_kept_labels_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    labels = np.array([rng.permutation(8)[:3] for _ in range(40)], np.int32)
    truth = sp.csr_array(rng.random((40, 8)) < 0.3).astype(np.float32)
    keeps = (rng.random(labels.shape) < 0.6) & (labels != 5)  # a label that is never kept
    chosen = np.zeros((40, 8), np.bool_)
    chosen[np.nonzero(keeps)[0], labels[keeps]] = True
    top = TopK(labels, np.tile(np.array([0.9, 0.8, 0.7], np.float32), (40, 1)))
    metrics = judge(top, truth, ks=(1, 3), train_counts=np.ones(8, np.int64), kept=keeps).metrics
    true = truth.toarray() > 0
    assert 0 < (chosen & true).sum() < true.sum()
    for name in ("micro", "macro"):
        wanted = sklearn.metrics.f1_score(true, chosen, average=name, zero_division=0)
        assert metrics[f"{name}_f1"] == pytest.approx(wanted)
    without = judge(top, truth, ks=(1, 3), train_counts=np.ones(8, np.int64)).metrics
    assert not {"micro_f1", "macro_f1"} & set(without)


def test_a_ranking_of_other_rows_or_labels_is_refused() -> None:
    with pytest.raises(ConfigError, match="2 rows and the truth 1"):
        judge(TOP, truth_of([[1]], 6))
    with pytest.raises(ConfigError, match="names label 7"):
        judge(ranking([[7, 1, 2], [0, 1, 2]]), TRUTH)
    with pytest.raises(ConfigError, match="at least one resample"):
        paired_bootstrap(np.ones(2), np.ones(2), n_bootstrap=0, rng=np.random.default_rng(0))


def test_resamples_of_one_block_and_of_many_have_the_same_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(2).random(500)
    widths = []
    for block in (1000, 13):
        monkeypatch.setattr(bootstrap_module, "BLOCK_ROWS", block)
        low, high = paired_bootstrap(values, 0 * values, n_bootstrap=3000, rng=np.random.default_rng(0)).interval
        widths.append(high - low)
    assert widths[0] == pytest.approx(widths[1], rel=0.1)


def test_log_loss_is_that_of_scikit_learn_over_the_offered_labels_and_needs_shares() -> None:
    rng = np.random.default_rng(0)
    labels = np.array([rng.permutation(8)[:3] for _ in range(50)], np.int32)
    labels[::6, 2] = NO_LABEL
    scores = -np.sort(-rng.uniform(0.01, 0.99, labels.shape).astype(np.float32), axis=1)
    truth = sp.csr_array(rng.random((50, 8)) < 0.3).astype(np.float32)
    found = judge(TopK(labels, scores), truth, ks=(2, 3), train_counts=np.ones(8, np.int64), shares=True).metrics
    for k in (2, 3):
        offered = labels[:, :k] != NO_LABEL
        hit = truth.toarray()[np.arange(50)[:, None], labels[:, :k]] > 0
        expected = sklearn.metrics.log_loss(hit[offered], scores[:, :k][offered].astype(np.float64))
        assert found[f"log_loss_at_{k}"] == pytest.approx(expected)
    margins = judge(TopK(labels, scores), truth, ks=(2, 3), train_counts=np.ones(8, np.int64)).metrics
    assert not any(key.startswith("log_loss") for key in margins)
