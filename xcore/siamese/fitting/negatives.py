"""Hard negatives of Module I: the nearest rows of a batch, and of an index, that do not carry the label."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from xcore.numeric.matrices import CSR, NO_LABEL, Float32, Int32, Int64, row_blocks
from xcore.numeric.parallel import over_blocks, single_threaded_blas
from xcore.search.keys import Keys

BLOCK_LABELS = 128
OFFLINE_NEIGHBOURS = 64  # nearest rows that are looked at for one that does not carry the label


def hardest_in_batch(labels: Float32, rows: Float32, is_positive: CSR, n: int) -> Int64:
    """For each label the places (B, n) of the n nearest rows of the batch that are not its own; -1 where there are
    fewer.

    Parameters
    ----------
    labels, rows : float32 (B, D)
        Embeddings of length 1.
    is_positive : CSR (B, B)
        Stored entries are pairs of label and row that belong together, by chance or not.
    n : int

    Notes
    -----
    Cost O(B^2 D).
    """
    n = min(n, len(rows))
    found = np.empty((len(labels), n), np.int64)
    if not n:
        return found
    indptr, indices = is_positive.indptr, is_positive.indices

    def fill(part: slice) -> None:
        cosines = labels[part] @ rows.T
        first, end = indptr[part.start], indptr[part.stop]
        own = np.repeat(np.arange(part.stop - part.start), np.diff(indptr[part.start : part.stop + 1]))
        cosines[own, indices[first:end]] = -np.inf
        places = np.argpartition(-cosines, n - 1, axis=1)[:, :n]
        values = np.take_along_axis(cosines, places, axis=1)
        order = np.argsort(-values, axis=1, kind="stable")
        places = np.take_along_axis(places, order, axis=1)
        found[part] = np.where(np.isneginf(np.take_along_axis(values, order, axis=1)), NO_LABEL, places)

    with single_threaded_blas():
        over_blocks(fill, row_blocks(len(labels), BLOCK_LABELS))
    return found


def pairs_of_batch(Y: CSR, rows: Int64, labels: Int64) -> CSR:
    """Which labels (B,) and rows (B,) of a batch belong together, CSR (B, B); labels and rows may repeat."""
    used, places = np.unique(labels, return_inverse=True)
    of_labels = csr_array((np.ones(len(labels)), (np.arange(len(labels)), places)), shape=(len(labels), len(used)))
    return (of_labels @ Y[rows][:, used].T.tocsr()).tocsr()


def nearest_wrong_rows(labels: Float32, rows: Float32, numbers: Int64, Y: CSR, label_ids: Int64) -> Int32:
    """For each of some labels the nearest of some rows that does not carry it (m,); -1 where none was found.

    Parameters
    ----------
    labels : float32 (m, D)
    rows : float32 (r, D)
    numbers : int64 (r,)
        Number of each of these rows among all.
    Y : CSR (n, L)
    label_ids : int64 (m,)
    """
    near = Keys(rows).nearest(labels, min(OFFLINE_NEIGHBOURS, len(rows)), 0).ids
    n_labels = Y.shape[1]
    own = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr)) * n_labels + Y.indices
    chosen = numbers[near]
    is_wrong = ~np.isin(chosen * n_labels + label_ids[:, None], own)
    first = is_wrong.argmax(axis=1)
    found = np.where(is_wrong.any(axis=1), chosen[np.arange(len(chosen)), first], NO_LABEL)
    return np.asarray(found, np.int32)
