"""Dense matrix products with reproducible bits: each entry depends on its two vectors only, not on blocks or threads.

BLAS does not promise that: how it adds up a row of the result depends on where the row stands in its block.
"""

from __future__ import annotations

from itertools import product

import numba
import numpy as np

from xcore.numeric.matrices import Float32, Float64, row_blocks
from xcore.numeric.parallel import over_blocks, single_threaded_blas

ROWS, COLUMNS = 64, 128  # of a tile, whose vectors stay in the cache


def product_of_rows(left: Float32, right: Float32, out: Float32 | None = None) -> Float32:
    """``left @ right.T`` for float32 (n, d) and (m, d) in C order. Cost O(n m d); threads share tiles.

    Columns of `right` beyond d are not used.
    """
    result = np.empty((len(left), len(right)), np.float32) if out is None else out

    def fill(tile: tuple[slice, slice]) -> None:
        _multiply(left[tile[0]], right[tile[1]], result[tile])

    over_blocks(fill, product(row_blocks(len(left), ROWS), row_blocks(len(right), COLUMNS)))
    return result


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _multiply(left: Float32, right: Float32, out: Float32) -> None:
    """Four rows by two at a time: eight sums for six reads. At an edge the last row stands in for those beyond it."""
    n, m, d = len(left), len(right), left.shape[1]
    zero = np.float32(0)
    for i in range(0, n, 4):
        i1, i2, i3 = min(i + 1, n - 1), min(i + 2, n - 1), min(i + 3, n - 1)
        for j in range(0, m, 2):
            j1 = min(j + 1, m - 1)
            a0, a1, a2, a3 = zero, zero, zero, zero
            b0, b1, b2, b3 = zero, zero, zero, zero
            for f in range(d):
                a, b = right[j, f], right[j1, f]
                a0 += a * left[i, f]
                a1 += a * left[i1, f]
                a2 += a * left[i2, f]
                a3 += a * left[i3, f]
                b0 += b * left[i, f]
                b1 += b * left[i1, f]
                b2 += b * left[i2, f]
                b3 += b * left[i3, f]
            out[i3, j], out[i2, j], out[i1, j], out[i, j] = a3, a2, a1, a0
            out[i3, j1], out[i2, j1], out[i1, j1], out[i, j1] = b3, b2, b1, b0


def add_gram(rows: Float64, out: Float64) -> None:
    """Add ``rows.T @ rows`` to `out` (d, d), in panels of columns that threads share."""

    def add(panel: slice) -> None:
        out[panel] += rows[:, panel].T @ rows

    with single_threaded_blas():
        over_blocks(add, row_blocks(rows.shape[1], 128))
