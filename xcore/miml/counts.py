"""The exact likelihood of label counts of bags, and its gradient."""

from __future__ import annotations

import numba
import numpy as np

from xcore.imputation.posterior import likelihood_of_count, likelihood_of_some
from xcore.numeric.matrices import Float32, Float64, Int64


@numba.njit(cache=True, nogil=True)
def count_loss(logits: Float32, offsets: Int64, counts: Float64, counted: bool) -> tuple[float, Float32]:
    """Minus the log-likelihood of all (bag, label) pairs, summed, and its gradient (n, m) with respect to the logits.

    A row carries a label with probability sigmoid(logit), independently. The count of a label in a bag then has a
    Poisson binomial distribution. The gradient of a logit is the row's probability minus its posterior given the count.

    Parameters
    ----------
    logits : float32 (n, m)
        Of all rows, one bag after the other.
    offsets : int64 (b + 1,)
        Where the rows of each bag begin.
    counts : float64 (b, m)
    counted : bool
        If not, a count above 0 means at least one.
    """
    total, gradient = 0.0, np.empty(logits.shape, np.float32)
    for bag in range(len(offsets) - 1):
        first, end = offsets[bag], offsets[bag + 1]
        odds, posterior = np.empty(end - first), np.empty(end - first)
        for label in range(logits.shape[1]):
            for i in range(end - first):
                odds[i] = logits[first + i, label]
            if counted or counts[bag, label] == 0:
                total -= likelihood_of_count(odds, counts[bag, label], posterior)
            else:
                total -= likelihood_of_some(odds, posterior)
            for i in range(end - first):
                gradient[first + i, label] = 1.0 / (1.0 + np.exp(-odds[i])) - posterior[i]
    return total, gradient
