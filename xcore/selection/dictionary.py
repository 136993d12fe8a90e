"""What the self-representation needs to know of labels and dictionary: their inner products.

Every iterate of the linearised ADMM is a combination of the label and of the dictionary's columns. So the iteration
runs on inner products, and the number of rows of the data does not matter after they are computed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from xcore.numeric.matrices import CSR, Float64, Int32, Int64


class SparseProducts(NamedTuple):
    """The arrays of a CSR matrix of float64, with ascending columns."""

    data: Float64
    indices: Int32
    indptr: Int64

    @classmethod
    def of(cls, matrix: Any) -> SparseProducts:
        rows = matrix.tocsr()
        rows.sort_indices()
        return cls(
            np.ascontiguousarray(rows.data, np.float64),
            np.ascontiguousarray(rows.indices, np.int32),
            np.ascontiguousarray(rows.indptr, np.int64),
        )


class Problem(NamedTuple):
    """Labels to represent by the atoms (columns) of a dictionary.

    Attributes
    ----------
    atoms : SparseProducts (m, m)
        Inner products of the atoms, none negative.
    cross : SparseProducts (L, m)
        Inner products of each label with the atoms.
    atom_squares : float64 (m,)
        Squared lengths of the atoms.
    squares : float64 (L,)
        Squared lengths of the labels.
    own : int32 (L,)
        The atom that is the label itself, which may not represent it; -1 where there is none.
    """

    atoms: SparseProducts
    cross: SparseProducts
    atom_squares: Float64
    squares: Float64
    own: Int32

    @property
    def n_labels(self) -> int:
        return len(self.squares)

    @property
    def n_atoms(self) -> int:
        return len(self.atom_squares)


def label_products(Y: CSR) -> CSR:
    """Y'Y in float64: how often labels occur together. Cost O(n s^2) for s labels per row."""
    targets = Y.astype(np.float64)
    return (targets.T.tocsr() @ targets).tocsr()


def self_representation(products: CSR) -> Problem:
    """Each label by all others; `products` is Y'Y."""
    every, squares = SparseProducts.of(products), np.asarray(products.diagonal(), np.float64)
    return Problem(every, every, squares, squares, np.arange(len(squares), dtype=np.int32))


def representation_by(products: CSR, chosen: Int32) -> Problem:
    """Each label by the chosen ones alone; atom i is label ``chosen[i]``."""
    squares = np.asarray(products.diagonal(), np.float64)
    cross = products[:, chosen]
    atoms = SparseProducts.of(cross[chosen])
    own = np.full(len(squares), -1, np.int32)
    return Problem(atoms, SparseProducts.of(cross), squares[chosen], squares, own)
