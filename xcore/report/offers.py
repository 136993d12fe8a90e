"""All offered labels of the measured split beside the truth, to count thresholds, slices and confusions from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from xcore.numeric.matrices import Float32, Int64
from xcore.report.rows import batches, in_step, lists, named_in
from xcore.report.run import Run

LENGTH_COLUMNS = {"text": "text", "sparse": "indices"}


@dataclass(frozen=True)
class Offers:
    """One entry per offered label, and counts per row.

    Attributes
    ----------
    row, label : int64 (m,)
    is_first : bool (m,)
        Whether it is the best label of its row.
    score : float32 (m,)
    hit : bool (m,)
        Whether it is a true label of its row.
    n_true : int64 (n,)
        True labels of each row.
    length : int64 (n,) or None
        Characters of a text, or features of a sparse row; None for other rows.
    confused : int64 (p, 3)
        True label that was not offered, wrong label that came first instead, and in how many rows.
    """

    row: Int64
    label: Int64
    is_first: npt.NDArray[np.bool_]
    score: Float32
    hit: npt.NDArray[np.bool_]
    n_true: Int64
    length: Int64 | None
    confused: Int64

    @classmethod
    def of(cls, run: Run) -> Offers:
        """Read side by side, batch by batch. Cost and memory: O(rows x labels offered)."""
        wanted = LENGTH_COLUMNS.get(run.dataset.form)
        columns = ["labels", *([wanted] if wanted else [])]
        offered = batches(run["predictions"].directory / "predictions.parquet", ["labels", "scores"])
        true = batches(run.dataset.directory / f"{run.split}.parquet", columns)
        parts, start = [], 0
        for both in in_step(offered, true):
            parts.append(_read(both[0], both[1], start, wanted))
            start += both[0].num_rows
        row, label, first, score, hit, n_true, length, pairs = (
            np.concatenate(column) for column in zip(*parts, strict=True)
        )
        return cls(row, label, first, score, hit, n_true, length if wanted else None, _counted(pairs))


def _read(offered: pa.RecordBatch, true: pa.RecordBatch, start: int, length: str | None) -> tuple[Any, ...]:
    rows, labels = lists(offered, "labels")
    _, scores = lists(offered, "scores")
    true_rows, true_labels = lists(true, "labels")
    hit = named_in(rows, labels, true_rows, true_labels)
    first = np.append(True, np.diff(rows) > 0)[: len(rows)]
    n_true = np.bincount(true_rows, minlength=true.num_rows)
    sizes = _lengths(true.column(length)) if length else np.zeros(true.num_rows, np.int64)
    wrong = np.full(true.num_rows, -1, np.int64)
    wrong[rows[first & ~hit]] = labels[first & ~hit]
    missed = ~named_in(true_rows, true_labels, rows, labels) & (wrong[true_rows] >= 0)
    pairs = np.stack([true_labels[missed].astype(np.int64), wrong[true_rows[missed]]], axis=1)
    return rows + start, labels.astype(np.int64), first, scores, hit, n_true, sizes, pairs


def _lengths(column: pa.Array) -> Int64:
    measured = pc.list_value_length(column) if pa.types.is_list(column.type) else pc.utf8_length(column)
    lengths: Int64 = pc.fill_null(measured, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def _counted(pairs: Int64) -> Int64:
    """Pairs with how often each occurs, the most frequent first; of equals the lower labels first."""
    if not len(pairs):
        return np.zeros((0, 3), np.int64)
    unique, counts = np.unique(pairs, axis=0, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    counted: Int64 = np.column_stack([unique, counts])[order]
    return counted
