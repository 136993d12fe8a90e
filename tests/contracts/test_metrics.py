"""What every registered metric promises, and that a new one is seen everywhere without another list."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from xcore.errors import ConfigError
from xcore.inference.promotion import Promotion, compare
from xcore.metrics import evaluate
from xcore.metrics.base import Metric, RowMetric
from xcore.metrics.family import METRICS, evaluated_keys, find_metric, metric_modules, paired_metrics
from xcore.metrics.frequency import THIRDS, propensities
from xcore.numeric.matrices import CSR, NO_LABEL, TopK, binary_csr
from xcore.report.results import Results, tiles
from xcore.views.base import view_of

DOCS = Path(__file__).parents[2] / "docs" / "method.md"
N_LABELS, N_TRAIN, K = 20, 200, 4
COUNTS = np.random.default_rng(9).integers(1, 60, N_LABELS)
every_metric = pytest.mark.parametrize("metric", METRICS.values(), ids=list(METRICS))


class Case:
    """A ranking with its truth; each row has its one label's probability if it has one label."""

    def __init__(self, labels: npt.NDArray[Any], rows: list[list[int]]) -> None:
        self.labels, self.rows = np.asarray(labels, np.int32), rows

    @property
    def top(self) -> TopK:
        return TopK(self.labels, np.tile(0.9 - 0.1 * np.arange(K, dtype=np.float32), (len(self.rows), 1)))

    @property
    def truth(self) -> CSR:
        flat = np.array([label for row in self.rows for label in row], np.int32)
        return binary_csr(flat, np.cumsum([0, *map(len, self.rows)]), N_LABELS)

    def values(self, metric: Metric, probability: npt.NDArray[Any] | None = None) -> dict[str, float]:
        """The metric's value under each of its keys."""
        given = np.log(np.full(len(self.rows), 0.5) if probability is None else probability)
        options: dict[str, Any] = {"train_counts": COUNTS, "n_train": N_TRAIN, "n_bootstrap": 0, "ks": (1, 2, K)}
        one_label = all(len(row) == 1 for row in self.rows)
        top = self.top if probability is None else TopK(self.labels, np.tile(probability[:, None], (1, K)))
        known = given if one_label else None
        rng = np.random.default_rng(0)
        known_of_model = {"log_probability": known, "shares": True, "kept": self.labels != NO_LABEL}
        found = evaluate(top, self.truth, rng=rng, **known_of_model, **options).metrics
        return {prefix + key: found[prefix + key] for key in metric.ranks((1, 2, K)) for prefix in metric.prefixes}


def random_case(metric: Metric, seed: int, n: int = 40) -> Case:
    """Rows with some hits and some places left empty; with one label each if the metric asks for it."""
    rng = np.random.default_rng(seed)
    rows = [
        rng.choice(N_LABELS, 1 if metric.one_label else rng.integers(0, 6), replace=False).tolist() for _ in range(n)
    ]
    labels = np.array([rng.permutation(N_LABELS)[:K] for _ in rows])
    for row, places in zip(rows, labels, strict=True):
        missing = [label for label in row if label not in places and rng.random() < 0.5][:K]
        places[: len(missing)] = missing
    labels[::7, 2:] = NO_LABEL
    return Case(labels, rows)


def best_case(n: int, n_true: int) -> Case:
    """The ranking that no other beats: a row's rarest labels first."""
    rng = np.random.default_rng(1)
    rows = [rng.choice(N_LABELS, n_true, replace=False).tolist() for _ in range(n)]
    weight = 1 / propensities(COUNTS, N_TRAIN)
    best = [sorted(row, key=lambda label: -weight[label]) for row in rows]
    return Case(np.array([[*row, *[NO_LABEL] * K][:K] for row in best]), rows)


@every_metric
@pytest.mark.parametrize("seed", range(3))
def test_values_lie_within_the_bounds_of_the_unit(metric: Metric, seed: int) -> None:
    values = random_case(metric, seed).values(metric)
    assert values
    for key, value in values.items():
        assert np.isnan(value) or metric.unit == "number" or 0 <= value <= 1, key
    assert all(np.isfinite(values[key]) for key in metric.ranks((1, 2, K)))


@every_metric
def test_the_perfect_ranking_has_the_best_value(metric: Metric) -> None:
    """A share is 1 (0 where less is better), and log p = 0. All true labels fit into the places."""
    n_true = 1 if metric.one_label else K
    values = best_case(60, n_true).values(metric, np.ones(60))
    best = 1.0 if metric.unit == "share" and metric.more_is_better else 0.0
    (key,) = metric.ranks((1 if metric.ranked and metric.one_label else K,))
    assert values[key] == pytest.approx(best, abs=2e-6)  # log loss takes no score for more than 1 - 1e-6


@every_metric
def test_an_empty_ranking_has_the_worst_value(metric: Metric) -> None:
    case = random_case(metric, 0)
    case.labels[:] = NO_LABEL
    if metric.needs_probabilities:  # of the ranking it knows nothing: a label without probability is the worst
        with np.errstate(divide="ignore"):
            values = case.values(metric, np.zeros(len(case.rows)))
        assert values[metric.name] == -np.inf
        return
    worst = 0.0 if metric.more_is_better else 1.0
    assert all(value == worst or np.isnan(value) for value in case.values(metric).values())


@every_metric
def test_the_order_of_rows_does_not_matter(metric: Metric) -> None:
    case = random_case(metric, 4)
    probability = np.random.default_rng(0).uniform(0.1, 1, len(case.rows))
    order = np.random.default_rng(2).permutation(len(case.rows))
    moved = Case(case.labels[order], [case.rows[i] for i in order])
    assert moved.values(metric, probability[order]) == pytest.approx(case.values(metric, probability), nan_ok=True)


@every_metric
@pytest.mark.parametrize("seed", range(3))
def test_parts_agree_with_the_whole(metric: Metric, seed: int) -> None:
    values = random_case(metric, seed).values(metric)
    for key in metric.ranks((1, 2, K)):
        if metric.parts == "sum":
            assert sum(values[f"{third}/{key}"] for third in THIRDS) == pytest.approx(values[key])
        elif metric.parts == "within" and metric.one_label:  # each row is in one part: the whole is a mean of them
            parts = [values[f"{third}/{key}"] for third in THIRDS]
            assert np.nanmin(parts) - 1e-12 <= values[key] <= np.nanmax(parts) + 1e-12


@every_metric
def test_one_more_hit_makes_nothing_worse(metric: Metric) -> None:
    case, better = random_case(metric, 5), random_case(metric, 5)
    row = next(i for i, row in enumerate(case.rows) if set(row) - set(case.labels[i]) and row)
    place = next(at for at, label in enumerate(case.labels[row]) if label not in case.rows[row])
    better.labels[row, place] = next(label for label in case.rows[row] if label not in case.labels[row])
    before, after = case.values(metric), better.values(metric)
    sign = 1 if metric.more_is_better else -1
    assert all(sign * (after[key] - before[key]) >= -1e-12 for key in metric.ranks((1, 2, K)))


@every_metric
def test_a_metric_says_what_it_is_in_code_and_in_the_docs(metric: Metric) -> None:
    assert METRICS[metric.name] is metric
    assert metric.title
    assert metric.description
    assert not metric.description.endswith(".")
    assert "_at_" not in metric.name
    assert "/" not in metric.name
    assert metric.module == f"xcore.metrics.{metric.name}"
    shown = f"{metric.title}@k" if metric.ranked else metric.title
    assert f"| {shown.lower()} |" in DOCS.read_text().lower()


def test_accuracy_is_precision_at_1_of_rows_with_one_label_and_left_out_elsewhere() -> None:
    accuracy, precision = METRICS["accuracy"], METRICS["precision"]
    case = random_case(accuracy, 0)
    assert case.values(accuracy)["accuracy"] == case.values(precision)["precision_at_1"]
    case.rows[0] = [0, 1]
    with pytest.raises(KeyError, match="accuracy"):
        case.values(accuracy)


@pytest.mark.parametrize(
    "key", ["precision", "precision_at_0", "precision_at_1000", "middle/recall_at_1", "accuracy_at_1", "bogus_at_2", ""]
)
def test_an_unknown_key_is_refused_with_the_known_ones(key: str) -> None:
    with pytest.raises(ConfigError, match=r"expected one of precision_at_K, ndcg_at_K, .*, accuracy"):
        find_metric(key, METRICS.values())


def test_keys_are_read_as_they_are_written() -> None:
    for key in evaluated_keys((1, 10)):
        prefix, metric, k = find_metric(key, METRICS.values())
        assert key in {prefix + found for found in metric.ranks((k or 1,))}


# A new metric

MISSES = RowMetric(
    name="misses",
    title="Misses",
    description="share of the k offered places without a true label",
    module=__name__,
    more_is_better=False,
    parts="none",
    gained=lambda hits: (~hits.hit).sum(axis=1) / hits.k,
)


@pytest.fixture
def misses(monkeypatch: pytest.MonkeyPatch) -> RowMetric:
    monkeypatch.setitem(METRICS, "misses", MISSES)
    return MISSES


def test_a_new_metric_is_evaluated_and_shown_without_another_list(misses: RowMetric, tmp_path: Path) -> None:
    case = random_case(misses, 0)
    found = evaluate(
        case.top, case.truth, ks=(1, 2), train_counts=COUNTS, n_train=N_TRAIN, rng=np.random.default_rng(0)
    )
    value = found.metrics["misses_at_2"]
    assert value == pytest.approx(1 - found.metrics["precision_at_2"])
    assert found.intervals["misses_at_2"][0] < value < found.intervals["misses_at_2"][1]
    assert "tail/misses_at_2" not in found.metrics
    assert misses.module in metric_modules()

    summary = {"split": "test", "metrics": found.metrics, "intervals": found.intervals}
    (tmp_path / "metrics.json").write_text(json.dumps(summary))
    view, artifact = view_of("evaluation"), SimpleNamespace(directory=tmp_path)
    (table,) = view.tables(artifact)  # what the terminal and the Prefect page show
    (row,) = [row for row in table.rows if row[0] == "misses"]
    assert row[2].startswith(f"{100 * value:.2f} (")
    assert view.points(artifact)[0][1]["test/misses_at_2"] == value  # what MLflow tracks
    results = Results.load(tmp_path)  # what the HTML report shows
    assert results.names[-1] == "misses"
    assert results.value("misses_at_2") == f"{100 * value:.2f}"
    assert "Misses" not in str(tiles(results))
    assert "misses_at_2" in evaluated_keys((1, 2))  # what a study may ask for


def test_where_less_is_better_the_challenger_with_less_wins(misses: RowMetric) -> None:
    right, wrong = best_case(50, K), best_case(50, K)
    wrong.labels[::2] = NO_LABEL
    verdicts = [
        compare(
            challenger.top,
            champion.top,
            right.truth,
            Promotion(metric="misses_at_1", n_bootstrap=100, margin=0.1),
            train_counts=COUNTS,
            n_train=N_TRAIN,
            rng=np.random.default_rng(0),
        )
        for challenger, champion in ((right, wrong), (wrong, right))
    ]
    assert [verdict.better for verdict in verdicts] == [True, False]
    first = verdicts[0].table.to_pylist()[0]
    assert (first["metric"], first["champion"], first["challenger"]) == ("misses_at_1", 0.5, 0.0)
    assert first["low"] < first["difference"] == -0.5 < first["high"] < 0
    assert first["share_better"] == 1.0


def test_two_rankings_are_compared_by_all_metrics_that_are_sums_over_rows() -> None:
    case = best_case(30, 1)
    promotion, rng = Promotion(n_bootstrap=100, metric="accuracy"), np.random.default_rng(0)
    verdict = compare(case.top, case.top, case.truth, promotion, train_counts=COUNTS, n_train=N_TRAIN, rng=rng)
    expected = {key for metric in paired_metrics() for key in metric.ranks((1, 3))}
    assert set(verdict.table["metric"].to_pylist()) == expected
    assert "accuracy" in expected
