"""Products of sparse rows with dense columns, 32 at a time: one vector instruction serves an entry and 16 columns."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from xcore.numeric.matrices import CSR, Float32, Int64
from xcore.numeric.parallel import SparseRows
from xcore.numeric.simd import LANES, load, multiply_add, splat, store

PANEL = 2 * LANES  # a panel of a few thousand features stays in the second cache, the 32 sums of a row in registers


class JointRows(NamedTuple):
    """Rows in the joint features, ascending: as `SparseRows`, with indices of 16 bits, which kernels read faster."""

    data: Float32
    indices: npt.NDArray[np.uint16]
    indptr: Int64

    @classmethod
    def of(cls, matrix: CSR) -> JointRows:
        rows = SparseRows.of(matrix.sorted_indices())
        return cls(rows.data, rows.indices.astype(np.uint16), rows.indptr)


def in_panels(directions: Float32) -> Float32:
    """Directions (r, h) in the order in which `project` reads them: (panels, h, 32), 0 where there are none."""
    r, h = directions.shape
    panels = np.zeros((-(-r // PANEL), h, PANEL), np.float32)
    for panel in range(len(panels)):
        part = directions[panel * PANEL : (panel + 1) * PANEL]
        panels[panel, :, : len(part)] = part.T
    return panels


@numba.njit(cache=True, nogil=True)
def project(X: JointRows, panels: Float32, first: int, products: Float32) -> None:
    """Inner products of the rows from `first` on with directions `in_panels`, as many rows as `products` has."""
    for panel in range(len(panels)):
        columns = panels[panel].reshape(-1)
        for i in range(len(products)):
            lower, upper = splat(np.float32(0)), splat(np.float32(0))
            for entry in range(X.indptr[first + i], X.indptr[first + i + 1]):
                line, value = 2 * np.int64(X.indices[entry]), X.data[entry]
                lower = multiply_add(load(columns, line), value, lower)
                upper = multiply_add(load(columns, line + 1), value, upper)
            own = products[i]
            store(own, 2 * panel, lower)
            store(own, 2 * panel + 1, upper)


@numba.njit(cache=True, nogil=True)
def add_weighted(X: JointRows, counted: npt.NDArray[np.bool_], weights: Float32, sums: Float32) -> None:
    """Add ``x_i weights_i'`` of the counted rows to `sums` (h, 32); the 32 weights of a row stand side by side."""
    panel = sums.reshape(-1)
    for row in np.flatnonzero(counted):
        lower, upper = load(weights[row], 0), load(weights[row], 1)
        for entry in range(X.indptr[row], X.indptr[row + 1]):
            line, value = 2 * np.int64(X.indices[entry]), X.data[entry]
            store(panel, line, multiply_add(lower, value, load(panel, line)))
            store(panel, line + 1, multiply_add(upper, value, load(panel, line + 1)))
