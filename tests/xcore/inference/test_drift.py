"""Volume and drift of a batch of scores, counted by hand."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.spatial.distance import jensenshannon

from xcore.inference.drift import batch_facts

KNOWN = pa.chunked_array([["a", "b"], ["c"]])


def facts(folder: Path, labels: list[list[str]], scores: list[list[float]], *counts: int) -> dict[str, float]:
    columns = {"labels": pa.array(labels, pa.list_(pa.string())), "scores": pa.array(scores, pa.list_(pa.float32()))}
    columns["known"] = pa.array([bool(own) for own in labels], pa.bool_())
    pq.write_table(pa.table(columns), folder / "scores.parquet")
    return batch_facts(folder / "scores.parquet", KNOWN, np.array(counts))


def test_volume_counts_rows_without_labels_apart(tmp_path: Path) -> None:
    found = facts(tmp_path, [["a", "b"], [], ["b"]], [[0.5, 0.25], [], [0.25]], 1, 1, 0)
    assert found["labels_per_row"] == 1
    assert found["rows_without_labels"] == 1
    assert found["rows_without_known_features"] == 1
    assert found["mean_best_score"] == pytest.approx(0.375)


def test_the_distance_is_0_for_the_same_shares_and_1_for_other_labels(tmp_path: Path) -> None:
    labels, scores = [["a", "c"], ["b"], ["new"]], [[0.5, 0.1], [0.5], [0.5]]
    assert facts(tmp_path, labels, scores, 7, 7, 0)["label_distance"] == 0  # `new` was not part of the training
    assert facts(tmp_path, labels, scores, 0, 0, 3)["label_distance"] == 1
    found = facts(tmp_path, labels, scores, 7, 1, 0)["label_distance"]
    assert found == pytest.approx(jensenshannon([0.5, 0.5, 0], [7 / 8, 1 / 8, 0], base=2))


def test_an_empty_batch_has_no_drift(tmp_path: Path) -> None:
    assert set(facts(tmp_path, [], [], 1, 2, 3).values()) == {0}
