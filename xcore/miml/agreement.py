"""How well labels of single rows explain the counts of bags: a measure that needs no labels of rows."""

from __future__ import annotations

import numpy as np

from xcore.numeric.matrices import NO_LABEL, Int32, binary_csr
from xcore.training.data import LabelledBags, canonical_csr


def count_agreement(best: Int32, bags: LabelledBags) -> float:
    """The share of the counts of bags that the best label of each row reproduces, for rows with one label each.

    Parameters
    ----------
    best : int32 (n,)
        The predicted label of each row.
    bags : LabelledBags
        Over the same n rows. Counts of labels that are predicted too often do not make up for missing ones.
    """
    n_labels = bags.Y.shape[1]
    known = best != NO_LABEL
    indptr = np.concatenate([[0], np.cumsum(known)])
    predicted = canonical_csr(bags.members @ binary_csr(best[known], indptr, n_labels))
    shared = predicted.minimum(bags.Y)
    return float(shared.sum()) / max(float(bags.Y.sum()), 1.0)
