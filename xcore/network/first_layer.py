"""The first layer of a network: rows of any form times a table with one vector per feature."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
from torch.nn.functional import embedding_bag

from xcore.numeric.matrices import Int64, vectors_of_images
from xcore.training.data import Matrix

TABLE = "features"

Vectors: TypeAlias = Callable[[str, Int64], torch.Tensor]  # a table and rows of it, ascending > these rows


def sums_of_features(rows: Matrix, lookup: Vectors, device: torch.device) -> torch.Tensor:
    """Sums of the vectors of each row's features; of sparse rows only those that occur are looked up."""
    if not sp.issparse(rows):
        dense = vectors_of_images(rows) if rows.dtype == np.uint8 else rows
        table = lookup(TABLE, np.arange(dense.shape[1]))
        return torch.from_numpy(dense).to(device) @ table
    used, places = np.unique(rows.indices, return_inverse=True)
    table = lookup(TABLE, used.astype(np.int64))
    return embedding_bag(
        torch.from_numpy(places.astype(np.int64)).to(device),
        table,
        torch.from_numpy(rows.indptr[:-1].astype(np.int64)).to(device),
        mode="sum",
        per_sample_weights=torch.from_numpy(rows.data).to(device),
    )
