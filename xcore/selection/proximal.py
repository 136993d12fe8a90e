"""The two proximal operators of the self-representation."""

from __future__ import annotations

import numpy as np

from xcore.numeric.matrices import Float64


def soft(values: Float64, threshold: float) -> Float64:
    """argmin over Z of ``threshold |Z|_1 + 1/2 |Z - values|^2``: every entry moves towards 0 by the threshold."""
    shrunk: Float64 = np.sign(values) * np.maximum(np.abs(values) - threshold, 0.0)
    return shrunk


def shrink_columns(values: Float64, threshold: float) -> Float64:
    """argmin over E of ``threshold |E|_{2,1} + 1/2 |E - values|^2``: every column gets shorter by the threshold."""
    lengths = np.linalg.norm(values, axis=0)
    scale = np.maximum(1.0 - threshold / np.maximum(lengths, np.finfo(np.float64).tiny), 0.0)
    shrunk: Float64 = values * scale
    return shrunk
