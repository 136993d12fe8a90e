"""Products of rows with the groups that each of them looks into."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import torch

from xcore.heads.fitting.base import on
from xcore.numeric.matrices import Int64


def grouped_products(own: torch.Tensor, tables: torch.Tensor, rows: Int64, groups: Int64) -> torch.Tensor:
    """``tables[groups[i]] @ own[rows[i]]`` for each pair i, (m, a).

    Parameters
    ----------
    own : tensor (n, d)
    tables : tensor (u, a, d)
    rows, groups : int64 (m,)
        Each group occurs.

    Notes
    -----
    One product of matrices per group, of all rows that look into it. No table is copied for each pair.
    """
    order = np.argsort(groups, kind="stable")
    bounds = np.searchsorted(groups[order], np.arange(len(tables) + 1)).tolist()
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    products: Any = _GroupedProducts.apply
    found: torch.Tensor = products(own[on(own, rows[order])], tables, bounds)
    return found[on(own, back)]


class _GroupedProducts(torch.autograd.Function):
    """Rows that are sorted by group; group g has the rows from ``bounds[g]`` to ``bounds[g + 1]``."""

    @staticmethod
    def forward(ctx: Any, own: torch.Tensor, tables: torch.Tensor, bounds: list[int]) -> torch.Tensor:
        out = own.new_empty((len(own), tables.shape[1]))
        for group, (start, end) in enumerate(pairwise(bounds)):
            torch.mm(own[start:end], tables[group].T, out=out[start:end])
        ctx.save_for_backward(own, tables)
        ctx.bounds = bounds
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        (gradient,), (own, tables) = gradients, ctx.saved_tensors
        of_own, of_tables = torch.empty_like(own), torch.empty_like(tables)
        for group, (start, end) in enumerate(pairwise(ctx.bounds)):
            torch.mm(gradient[start:end], tables[group], out=of_own[start:end])
            torch.mm(gradient[start:end].T, own[start:end], out=of_tables[group])
        return of_own, of_tables, None
