"""Rows of train that a seeded draw sets aside; rows of one bag stay together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from xcore.numeric.matrices import CSR, Int64


def held_out(
    n_rows: int, shares: Sequence[float], rng: np.random.Generator, members: CSR | None = None
) -> npt.NDArray[np.int8]:
    """The part to which each row goes: 0 stays, i is the part of ``shares[i - 1]``.

    Parameters
    ----------
    n_rows : int
    shares : floats
        Of all rows. A part of a share above 0 gets the rounded number of rows, and at least one.
    members : CSR (bags, n_rows), optional
        Bags of which all rows go to one part; bags that share a row are one. The numbers of rows are then at most
        the rounded ones, or those of the smallest bag where no bag is as small.

    Notes
    -----
    Cost O(n_rows log n_rows + members). Each row, or bag, draws a number, and the smallest numbers are held out. Rows
    that are added at the end leave the numbers of the others as they are, so nearly all held-out rows stay held out.
    A champion and a challenger that was trained later can then be compared on rows that neither has seen.
    """
    parts = np.zeros(n_rows, np.int8)
    if not any(shares):
        return parts
    unit_of_row = np.arange(n_rows) if members is None else _units(members)
    sizes = np.bincount(unit_of_row)
    part_of_unit = _draw(sizes, [(i + 1, _wanted(share, n_rows)) for i, share in enumerate(shares) if share > 0], rng)
    parts[:] = part_of_unit[unit_of_row]
    return parts


def _wanted(share: float, n_rows: int) -> int:
    return max(1, round(share * n_rows))


def _draw(sizes: Int64, wanted: Sequence[tuple[int, int]], rng: np.random.Generator) -> npt.NDArray[np.int8]:
    """Fill the parts (number, rows) one after the other, with units in random order."""
    parts, waiting = np.zeros(len(sizes), np.int8), np.argsort(rng.random(len(sizes)), kind="stable")
    for part, rows in wanted:
        if not len(waiting):
            break
        taken = _fitting(sizes[waiting], rows)
        parts[waiting[taken]] = part
        waiting = np.delete(waiting, taken)
    return parts


def _fitting(sizes: Int64, rows: int) -> Int64:
    """Positions of the first units that fit into this many rows; the smallest unit if none fits."""
    if sizes.max() == 1:
        return np.arange(min(rows, len(sizes)))
    taken, total = list[int](), 0
    for place, size in enumerate(sizes.tolist()):
        if total + size <= rows:
            taken.append(place)
            total += size
            if total == rows:
                break
    return np.array(taken or [int(np.argmin(sizes))])


def _units(members: CSR) -> Int64:
    """The number of the unit of each row: rows that are linked by bags are one unit, a row without a bag is its own."""
    n_bags, n_rows = members.shape
    rows = members.indices.astype(np.int64) + n_bags
    bags = np.repeat(np.arange(n_bags), np.diff(members.indptr))
    graph = sp.coo_array((np.ones(len(rows), np.int8), (bags, rows)), shape=(n_bags + n_rows,) * 2)
    _, unit = connected_components(graph.tocsr(), directed=False)
    units: Int64 = np.unique(unit[n_bags:], return_inverse=True)[1].astype(np.int64)
    return units
