"""What a label's training frequency says about it: its propensity, and whether it is head, torso or tail."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from xcore.numeric.matrices import Float64, Int64

THIRDS = ("head", "torso", "tail")


def propensities(label_counts: Int64, n_rows: int, a: float = 0.55, b: float = 1.5) -> Float64:
    """The propensity of each label: the chance that a true label is also recorded (Jain et al. 2016).

    ``p_l = 1 / (1 + C (N_l + b)^-a)`` with ``C = (ln N - 1)(b + 1)^a``.
    Metrics weight a hit by the *inverse*, ``1 / p_l``.

    Parameters
    ----------
    label_counts : int64 (L,)
        Training rows of each label.
    n_rows : int
        Training rows. Below 3 the formula leaves (0, 1], and C is taken as 0.
    a, b : float
        Published choices: 0.5, 0.4 for the Wikipedia datasets, 0.6, 2.6 for the Amazon ones, 0.55, 1.5 otherwise.

    Returns
    -------
    float64 (L,)
        In (0, 1], growing with the count.
    """
    c = max(np.log(max(n_rows, 1)) - 1.0, 0.0) * (b + 1.0) ** a
    propensity: Float64 = 1.0 / (1.0 + c * (np.asarray(label_counts, np.float64) + b) ** -a)
    return propensity


def thirds_of_mass(label_counts: Int64) -> npt.NDArray[np.int8]:
    """0 for head, 1 for torso, 2 for tail labels.

    Labels are sorted by count, largest first (ties: lower id first); a label is in the head while the labels before it
    hold less than 1/3 of all counts, in the torso while they hold less than 2/3. Labels never seen are in the tail.
    """
    order = np.argsort(-label_counts, kind="stable")
    total, before = int(label_counts.sum()), np.cumsum(label_counts[order]) - label_counts[order]
    third = np.empty(len(label_counts), np.int8)
    third[order] = (3 * before >= total).astype(np.int8) + (3 * before >= 2 * total)
    third[label_counts == 0] = 2
    return third
