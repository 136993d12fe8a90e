"""What a batch of scored rows looks like as a whole, to compare with other batches and with the training data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from xcore.numeric.matrices import Float64

BATCH_ROWS = 65_536


def batch_facts(scores: Path, label_ids: pa.ChunkedArray, train_counts: Float64) -> dict[str, float]:
    """Volume and drift of a file of scores. Cost: one pass over labels and scores, O(L) memory.

    Parameters
    ----------
    scores : Path
        ``labels`` (ids) and ``scores`` of each row, best first, and ``known``.
    label_ids : string (L,)
        Labels of the training.
    train_counts : (L,)
        Training rows of each label.

    Returns
    -------
    dict
        ``labels_per_row``, ``rows_without_labels``, ``rows_without_known_features``, ``mean_best_score`` and
        ``label_distance``: the Jensen-Shannon distance (0 to 1) of the first labels of the batch from the labels of
        the training rows. It is above 0 without any drift too, since a model offers frequent labels first: what
        counts is a change between batches.
    """
    n_rows = n_labels = n_empty = n_unknown = 0
    total, first = 0.0, np.zeros(len(label_ids))
    with pq.ParquetFile(scores) as file:
        for rows in file.iter_batches(BATCH_ROWS, columns=["labels", "scores", "known"]):
            sizes = pc.list_value_length(rows.column("labels"))
            given = rows.filter(pc.greater(sizes, 0))
            n_rows, n_empty = n_rows + rows.num_rows, n_empty + rows.num_rows - given.num_rows
            n_unknown += rows.num_rows - rows.column("known").true_count
            n_labels += pc.sum(sizes).as_py() or 0
            if given.num_rows:
                total += float(pc.sum(pc.cast(pc.list_element(given.column("scores"), 0), pa.float64())).as_py())
                numbers = pc.index_in(pc.list_element(given.column("labels"), 0), label_ids.combine_chunks())
                known = numbers.drop_null().to_numpy()  # a label that was added after the training has no number
                first += np.bincount(known, minlength=len(first))
    return {
        "labels_per_row": n_labels / max(n_rows, 1),
        "rows_without_labels": n_empty,
        "rows_without_known_features": n_unknown,
        "mean_best_score": total / max(n_rows - n_empty, 1),
        "label_distance": _distance(first, train_counts.astype(np.float64)),
    }


def _distance(one: Float64, other: Float64) -> float:
    """Jensen-Shannon distance of two sets of counts, to base 2; 0 where one of them is empty."""
    if not one.sum() or not other.sum():
        return 0.0
    p, q = one / one.sum(), other / other.sum()
    middle = (p + q) / 2
    divergence = sum(float((x[x > 0] * np.log2(x[x > 0] / middle[x > 0])).sum()) for x in (p, q)) / 2
    return float(np.sqrt(max(divergence, 0.0)))
