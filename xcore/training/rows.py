"""Some rows of large tables, changed in place: what torch does by copies, which cost more than the arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np

from xcore.numeric.matrices import Float32, Int64, row_blocks
from xcore.numeric.parallel import over_blocks

BETAS = (0.9, 0.999)  # of AdamW
EPSILON = 1e-8
BLOCK_ROWS = 1024


def add_rows(total: Float32, places: Int64, values: Float32) -> None:
    """``total[places] += values`` for unrepeated places; threads share them."""
    values = np.ascontiguousarray(values)
    over_blocks(lambda part: _add_rows(total, places[part], values[part]), row_blocks(len(places), BLOCK_ROWS))


def step_rows(arrays: Sequence[Any], rate: float, decay: float, number: int) -> None:
    """One step of AdamW on some rows.

    Parameters
    ----------
    arrays : value, mean, square, rows, gradient
        The table (N, d), Adam's two means of it, the rows (m,) to change, unrepeated, and their gradients (m, d).
    rate, decay : float
    number : int
        Steps, counted from 1.
    """
    value, mean, square, rows, gradient = arrays
    gradient = np.ascontiguousarray(gradient)
    kept, grown = np.float32(1 - rate * decay), np.float32(rate / (1 - BETAS[0] ** number))
    shrunk = np.float32(1 / (1 - BETAS[1] ** number))

    def step(part: slice) -> None:
        _step_rows(value, mean, square, rows[part], gradient[part], kept, grown, shrunk)

    over_blocks(step, row_blocks(len(rows), BLOCK_ROWS))


@numba.njit(cache=True, nogil=True)
def _add_rows(total: Float32, places: Int64, values: Float32) -> None:
    for i in range(len(places)):
        for f in range(values.shape[1]):
            total[places[i], f] += values[i, f]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _step_rows(
    value: Float32, mean: Float32, square: Float32, rows: Int64, gradient: Float32, kept: Any, grown: Any, shrunk: Any
) -> None:
    first, second, one = np.float32(BETAS[0]), np.float32(BETAS[1]), np.float32(1)
    epsilon = np.float32(EPSILON)
    for i in range(len(rows)):
        row = rows[i]
        for f in range(gradient.shape[1]):
            slope = gradient[i, f]
            mean[row, f] = first * mean[row, f] + (one - first) * slope
            square[row, f] = second * square[row, f] + (one - second) * slope * slope
            value[row, f] = kept * value[row, f] - grown * mean[row, f] / (np.sqrt(shrunk * square[row, f]) + epsilon)
