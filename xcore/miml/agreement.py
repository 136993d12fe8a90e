"""How well labels of single rows explain the counts of bags: a measure that needs no labels of rows."""

from __future__ import annotations

import numpy as np

from xcore.numeric.matrices import NO_LABEL, Int32, binary_csr
from xcore.training.data import LabelledBags


def count_correlation(best: Int32, bags: LabelledBags) -> float:
    """Correlation of the label counts of bags with those that the best label of each row gives, over bags and labels.

    The mean count of each label is subtracted first: large bags have similar counts, so that even random labels
    reproduce most of them. Random labels have correlation 0, right ones 1. Memory O(bags x L).

    Parameters
    ----------
    best : int32 (n,)
        The predicted label of each row.
    bags : LabelledBags
        Over the same n rows.
    """
    known = best != NO_LABEL
    indptr = np.concatenate([[0], np.cumsum(known)])
    predicted = (bags.members @ binary_csr(best[known], indptr, bags.Y.shape[1])).toarray().astype(np.float64)
    true = bags.Y.toarray().astype(np.float64)
    predicted -= predicted.mean(axis=0)
    true -= true.mean(axis=0)
    scale = float(np.sqrt(np.square(predicted).sum() * np.square(true).sum()))
    return float((predicted * true).sum()) / scale if scale > 0 else 0.0
