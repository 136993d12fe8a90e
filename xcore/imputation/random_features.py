"""Random features: with them, a linear model of rows can learn what is not linear in their own features."""

from __future__ import annotations

import numpy as np

from xcore.numeric.matrices import CSR, Float32, normalise_rows, row_blocks, sparse_of_dense

_PAIRS = 2000  # of rows, whose distances say how far the kernel should reach
_BLOCK = 4096  # rows


def random_features(X: CSR, count: int, rng: np.random.Generator) -> CSR:
    """Cosine features of a Gaussian kernel (Rahimi and Recht, 2007): CSR float32 (n, count), all values stored.

    ``cos(w'x + b)`` of the rows, scaled to length 1, for `count` random w and b. The inner product of two rows'
    features is about ``exp(-|x - y|^2 / (2 s^2))``, with half the median distance of random pairs of rows as s.
    Cost O(count nnz(X)); memory O(n count).
    """
    rows = normalise_rows(X)
    pairs = rng.integers(0, max(rows.shape[0], 1), (2, _PAIRS)) if rows.shape[0] else np.zeros((2, 0), np.int64)
    apart = rows[pairs[0]] - rows[pairs[1]]
    distances = np.sqrt(np.asarray(apart.multiply(apart).sum(axis=1)).ravel())
    reach = 0.5 * float(np.median(distances)) if len(distances) else 1.0
    directions = rng.standard_normal((rows.shape[1], count), np.float32) / np.float32(max(reach, 1e-6))
    shifts = rng.uniform(0, 2 * np.pi, count).astype(np.float32)
    found: Float32 = np.empty((rows.shape[0], count), np.float32)
    for part in row_blocks(rows.shape[0], _BLOCK):
        np.cos(np.asarray(rows[part] @ directions) + shifts, out=found[part])
    found *= np.float32(np.sqrt(2 / count))
    return sparse_of_dense(found)
