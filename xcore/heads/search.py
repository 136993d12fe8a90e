"""The best codes of independent digits, without looking at all codes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xcore.numeric.matrices import NO_LABEL, Float32, Int64, topk_of_dense


def best_codes(digits: Sequence[Float32], k: int, last: Sequence[int] | None = None) -> tuple[Int64, Float32]:
    """The k codes with the largest sums of their digits' scores, best first.

    Parameters
    ----------
    digits : H arrays float32 (n, a_h)
        Score of each value of each digit.
    k : int
    last : H digits, optional
        The last code that is not padding; None: there is no padding.

    Returns
    -------
    codes : int64 (n, k, H)
        `NO_LABEL` where there are fewer than k codes.
    scores : float32 (n, k)
        ``-inf`` there.

    Notes
    -----
    Exact. A prefix can be completed by any digits, unless it is the prefix of `last`. Of two free prefixes the better
    one is better with the same completion too, so k free prefixes are enough; the prefix of `last` is kept beside them.
    Cost of a row O(k (a_1 + ... + a_H)).
    """
    n = len(digits[0])
    codes = np.zeros((n, 1, 0), np.int64)
    scores = np.zeros((n, 1), np.float32)
    at_edge = np.full((n, 1), last is not None)
    for number, own in enumerate(digits):
        codes, scores, at_edge = _extended(codes, scores, at_edge, own, k, None if last is None else last[number])
    top = topk_of_dense(scores, k)
    places = np.maximum(top.labels, 0).astype(np.int64)
    found = np.take_along_axis(codes, places[:, :, None], axis=1)
    found[~np.isfinite(top.scores)] = NO_LABEL
    return found, top.scores


def _extended(
    codes: Int64, scores: Float32, at_edge: np.ndarray, own: Float32, k: int, last: int | None
) -> tuple[Int64, Float32, np.ndarray]:
    """Prefixes with one more digit: the k best free ones, and the one at the edge."""
    n, width = scores.shape
    length = own.shape[1]
    sums = scores[:, :, None] + own[:, None, :]
    if last is None:
        free, edge = sums, None
    else:
        beyond = at_edge[:, :, None] & (np.arange(length) >= last)
        free = np.where(beyond, -np.inf, sums).astype(np.float32)
        edge = np.where(at_edge, sums[:, :, last], -np.inf).max(axis=1)
    top = topk_of_dense(free.reshape(n, width * length), k)
    before, digit = np.divmod(np.maximum(top.labels, 0).astype(np.int64), length)
    longer = np.concatenate([np.take_along_axis(codes, before[:, :, None], axis=1), digit[:, :, None]], axis=2)
    if edge is None:
        return longer, top.scores, np.zeros((n, top.k), np.bool_)
    own_edge = at_edge.argmax(axis=1)
    edge_code = np.take_along_axis(codes, own_edge[:, None, None], axis=1)
    edge_code = np.concatenate([edge_code, np.full((n, 1, 1), last, np.int64)], axis=2)
    is_edge = np.concatenate([np.zeros((n, top.k), np.bool_), np.ones((n, 1), np.bool_)], axis=1)
    merged = np.concatenate([top.scores, edge[:, None].astype(np.float32)], axis=1)
    return np.concatenate([longer, edge_code], axis=1), merged, is_edge
