"""Thresholds, slices, confusions and the popular baseline, counted by hand."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from xcore.report.label_tables import LabelScores
from xcore.report.mistakes import _named_slices, popular_precision
from xcore.report.offers import Offers
from xcore.report.thresholds import Curve

# Row 0 is right; row 1 has label 1, and 2 came first instead; row 2 likewise, and misses 3 too; row 3 has no label.
OFFERED = {"labels": [[0, 2], [2], [2, 0], [1]], "scores": [[0.9, 0.1], [0.8], [0.8, 0.3], [0.2]]}
TRUE = {"labels": [[0], [1], [1, 3], []], "text": ["one", "two", "a longer text", "x"]}


class FakeRun(SimpleNamespace):
    """As much of a run as is asked for."""

    def __getitem__(self, kind: str) -> Any:
        return {"predictions": SimpleNamespace(directory=self.folder)}[kind]


@pytest.fixture
def offers(tmp_path: Path) -> Offers:
    kinds = {"labels": pa.list_(pa.int32()), "scores": pa.list_(pa.float32()), "text": pa.string()}
    for name, table in (("predictions", OFFERED), ("test", TRUE)):
        columns = {column: pa.array(values, kinds[column]) for column, values in table.items()}
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet", row_group_size=3)
    dataset = SimpleNamespace(directory=tmp_path, form="text")
    run: Any = FakeRun(folder=tmp_path, dataset=dataset, split="test")
    return Offers.of(run)


def test_offers_are_judged_row_by_row(offers: Offers) -> None:
    assert offers.row.tolist() == [0, 0, 1, 2, 2, 3]
    assert offers.hit.tolist() == [True, False, False, False, False, False]
    assert offers.is_first.tolist() == [True, False, True, True, False, True]
    assert offers.n_true.tolist() == [1, 1, 2, 0]
    assert offers.length is not None
    assert offers.length.tolist() == [3, 3, 13, 1]


def test_confused_pairs_are_counted_most_frequent_first(offers: Offers) -> None:
    assert offers.confused.tolist() == [[1, 2, 2], [3, 2, 1]]


def test_a_threshold_keeps_all_labels_of_one_score_together(offers: Offers) -> None:
    curve = Curve.of(offers)
    assert curve.threshold.tolist() == pytest.approx([0.9, 0.8, 0.3, 0.2, 0.1])
    assert curve.precision.tolist() == pytest.approx([1, 1 / 3, 1 / 4, 1 / 5, 1 / 6])
    assert curve.recall.tolist() == pytest.approx([1 / 4] * 5)
    assert curve.kept.tolist() == pytest.approx([1 / 4, 3 / 4, 1, 5 / 4, 6 / 4])
    assert curve.f1[0] == pytest.approx(0.4)


def test_slices_by_length_hold_every_row_once(offers: Offers) -> None:
    by_length = [inside for name, inside in _named_slices(offers) if "length" in name]
    assert np.sum(by_length, axis=0).tolist() == [1, 1, 1, 1]
    assert dict(_named_slices(offers))["with 2 to 3 true labels"].tolist() == [False, False, True, False]


def test_the_popular_baseline_offers_the_labels_with_most_training_rows() -> None:
    counts = (np.array(values) for values in ([5, 9, 7], [1, 4, 0], [0, 0, 0], [0, 0, 0]))
    scores = LabelScores(*counts)
    assert popular_precision(scores, 10, 1) == pytest.approx(0.4)
    assert popular_precision(scores, 10, 2) == pytest.approx(0.2)
