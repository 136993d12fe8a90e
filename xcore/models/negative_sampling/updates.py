"""One step on the rows of weights that a batch touches: minibatch gradients, summed by label, then Adagrad.

Pairs of a row and a label are sorted by label. A label's group owns its weights alone, so groups run in any order and
on any thread with the same bits. Where each score has a loss of its own, a group needs nothing but its own weights:
they are read, scored, and updated in one visit, and all gradients are still taken before any of them moves.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numba
import numpy as np

from xcore.memory import need_array
from xcore.models.negative_sampling.losses import separable
from xcore.numeric.draws import hashed, unit
from xcore.numeric.matrices import Float32, Float64, Int32, Int64, row_blocks
from xcore.numeric.parallel import over_blocks
from xcore.numeric.simd import prefetch

FIRST_SQUARE = 1e-8  # Adagrad's accumulators begin here, and need no other epsilon
GROUP_PAIRS = 512  # of a block that a thread takes at a time
RADIX_BITS = 11
LINE = 16  # float32 numbers of a cache line
AHEAD, FETCHED = 2, 4  # groups, and cache lines of each, that are asked for; the processor finds the rest of a row
_ONE = np.ones(1, np.float32)
FAST = {"reassoc", "contract", "nsz"}
FASTER = FAST | {"arcp", "afn"}  # a reciprocal root instead of a root and a division; the last bit may differ


class Parameters(NamedTuple):
    """Weights and Adagrad's sums of squared gradients: side by side, for a step reads and writes both.

    Attributes
    ----------
    rows : float32 (C, 2 d)
        Of each class the weights, then their sums.
    offsets : float32 (C, 2)
        The bias and its sum.
    """

    rows: Float32
    offsets: Float32

    @classmethod
    def random(cls, n_classes: int, d: int, seed: np.uint64) -> Parameters:
        """Xavier's uniform weights and biases, by counter."""
        instead = "Set the projection's dimensions lower, or use fewer labels."
        need_array((n_classes, d), "the weights of all labels in training", instead, entry_bytes=4 * 4)
        parameters = cls(np.empty((n_classes, 2 * d), np.float32), np.empty((n_classes, 2), np.float32))
        over_blocks(
            lambda part: _fill(seed, part.start, (6 / (n_classes + d)) ** 0.5, parameters.rows[part]),
            row_blocks(n_classes, 4096),
        )
        _fill(~seed, 0, (3 / n_classes) ** 0.5, parameters.offsets)
        return parameters

    @property
    def weights(self) -> Float32:
        return self.rows[:, : self.rows.shape[1] // 2]

    @property
    def weight_squares(self) -> Float32:
        return self.rows[:, self.rows.shape[1] // 2 :]

    @property
    def biases(self) -> Float32:
        return self.offsets[:, 0]

    @property
    def bias_squares(self) -> Float32:
        return self.offsets[:, 1]

    def without_sums(self) -> tuple[Float32, Float32]:
        """Weights (C, d) and biases (C,), moved together in place: these parameters cannot be used any more."""
        n_classes, d = self.weights.shape
        flat = self.rows.reshape(-1)
        _move_together(flat, n_classes, d)
        return flat[: n_classes * d].reshape(n_classes, d), self.biases.copy()


class Batch(NamedTuple):
    """Rows with their labels.

    Attributes
    ----------
    x : float32 (B, d)
    labels : int32 (B, 1 + m)
        The positive, then the negatives.
    log_noise : float32 (B, 1 + m)
        ``log p_n(label | x)``.
    weights : float32 (B,)
        Of each row in the loss.
    """

    x: Float32
    labels: Int32
    log_noise: Float32
    weights: Float32


class PairsByLabel(NamedTuple):
    """Pairs of a batch by label: pairs ``order[starts[g] : starts[g + 1]]`` have one label."""

    order: Int32  # (B (1 + m),)
    starts: Int64  # (n_groups + 1,)

    def blocks(self) -> list[range]:
        """Ranges of groups with about `GROUP_PAIRS` pairs each."""
        n_blocks = -(-len(self.order) // GROUP_PAIRS)
        edges = np.searchsorted(self.starts, np.arange(n_blocks + 1) * len(self.order) / n_blocks)
        return [range(a, b) for a, b in pairwise(edges) if b > a]


class Separable(NamedTuple):
    """Options of the loss of `losses.separable`."""

    shift: float
    centre: float
    strength: float


def step_separable(batch: Batch, loss: Separable, rate: float, parameters: Parameters) -> float:
    """One step of a separable loss, in place; the batch's loss. Cost O(B (1 + m) d), whatever the number of classes."""
    groups = group_pairs(batch.labels, len(parameters.offsets))
    losses = np.empty(batch.labels.size)
    over_blocks(
        lambda part: _update_separable(
            part.start, part.stop, batch, groups, loss, np.float32(rate), parameters, losses
        ),
        groups.blocks(),
    )
    return float(losses.sum())


def step_given(batch: Batch, slopes: Float32, decay: Float32, rate: float, parameters: Parameters) -> None:
    """One step along given derivatives (B, 1 + m) of the scores; ``decay[y]`` pulls a weight to 0 with every pair."""
    groups = group_pairs(batch.labels, len(parameters.offsets))
    over_blocks(
        lambda part: _update_given(part.start, part.stop, batch, groups, slopes, decay, np.float32(rate), parameters),
        groups.blocks(),
    )


def score_pairs(batch: Batch, parameters: Parameters) -> Float32:
    """Scores of all pairs of a batch, float32 (B, 1 + m)."""
    scores = np.empty(batch.labels.shape, np.float32)
    over_blocks(lambda part: _score(part.start, part.stop, batch, parameters, scores), row_blocks(len(scores), 64))
    return scores


@numba.njit(cache=True, nogil=True)
def _fill(seed: np.uint64, first: int, limit: float, out: Float32) -> None:
    """Random numbers up to `limit` in the first half of each row, the first of Adagrad's sums in the other."""
    d = out.shape[1] // 2
    for row in range(len(out)):
        key = hashed(seed, first + row)
        for f in range(d):
            out[row, f] = (2.0 * unit(key, f) - 1.0) * limit
            out[row, d + f] = FIRST_SQUARE


@numba.njit(cache=True, nogil=True)
def _move_together(flat: Float32, n_rows: int, d: int) -> None:
    """Row i moves from ``2 i d`` to ``i d``; going up, nothing is overwritten before it has moved."""
    for row in range(1, n_rows):
        for f in range(d):
            flat[row * d + f] = flat[2 * row * d + f]


@numba.njit(cache=True, nogil=True)
def _sorted(labels: Int32, n_classes: int) -> Int32:
    """Stable order of the pairs by label: radix sort, as many rounds as the labels have digits."""
    n, n_digits = len(labels), 1 << RADIX_BITS
    order, other = np.arange(n).astype(np.int32), np.empty(n, np.int32)
    shift = 0
    while shift == 0 or (n_classes - 1) >> shift:
        ends = np.zeros(n_digits + 1, np.int64)
        for i in range(n):
            ends[((labels[i] >> shift) & (n_digits - 1)) + 1] += 1
        for digit in range(n_digits):
            ends[digit + 1] += ends[digit]
        for i in range(n):
            digit = (labels[order[i]] >> shift) & (n_digits - 1)
            other[ends[digit]] = order[i]
            ends[digit] += 1
        order, other = other, order
        shift += RADIX_BITS
    return order


@numba.njit(cache=True, nogil=True)
def _starts(labels: Int32, order: Int32) -> Int64:
    starts, n_groups = np.empty(len(order) + 1, np.int64), 0
    for i in range(len(order)):
        if i == 0 or labels[order[i]] != labels[order[i - 1]]:
            starts[n_groups] = i
            n_groups += 1
    starts[n_groups] = len(order)
    return starts[: n_groups + 1].copy()


def group_pairs(labels: Int32, n_classes: int) -> PairsByLabel:
    """Sort the pairs of a batch, labels int32 (B, 1 + m), by label; pairs of one label keep their order."""
    flat = labels.reshape(-1)
    order = _sorted(flat, n_classes)
    return PairsByLabel(order, _starts(flat, order))


@numba.njit(cache=True, nogil=True, fastmath=FAST)
def _dot(a: Float32, b: Float32) -> np.float32:
    total = np.float32(0)
    for f in range(len(a)):
        total += a[f] * b[f]
    return total


@numba.njit(cache=True, nogil=True, fastmath=FAST)
def _add(scale: np.float32, x: Float32, total: Float32) -> None:
    for f in range(len(x)):
        total[f] += scale * x[f]


@numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTER)
def _descend(scale: np.float32, x: Float32, rate: np.float32, weights: Float32, squares: Float32) -> None:
    """Adagrad along the gradient ``g = scale x``: ``G += g^2``, ``w -= rate g / sqrt(G)``."""
    for f in range(len(x)):
        gradient = scale * x[f]
        square = squares[f] + gradient * gradient
        squares[f] = square
        weights[f] -= rate * gradient / np.sqrt(square)


@numba.njit(cache=True, nogil=True)
def _fetch(rows: Float32, offsets: Float32, label: int, d: int) -> None:
    """Ask for the first lines of a class's weights and sums; the arrays are flat."""
    for f in range(2 * label * d, 2 * label * d + min(d, FETCHED * LINE), LINE):
        prefetch(rows, f)
        prefetch(rows, f + d)
    prefetch(offsets, 2 * label)


@numba.njit(cache=True, nogil=True)
def _move(
    label: int, scale: np.float32, x: Float32, slope: np.float32, rate: np.float32, parameters: Parameters
) -> None:
    """Adagrad for one class along the gradients ``scale x`` of the weights and `slope` of the bias."""
    row, offset, d = parameters.rows[label], parameters.offsets[label], len(x)
    _descend(scale, x, rate, row[:d], row[d:])
    _descend(slope, _ONE, rate, offset[:1], offset[1:])


@numba.njit(cache=True, nogil=True)
def _update_separable(
    first: int,
    last: int,
    batch: Batch,
    groups: PairsByLabel,
    loss: Separable,
    rate: np.float32,
    parameters: Parameters,
    losses: Float64,
) -> None:
    """Score, differentiate and update the labels of groups `first` to `last`."""
    width, d = batch.labels.shape[1], batch.x.shape[1]
    rows, offsets = parameters.rows.reshape(-1), parameters.offsets.reshape(-1)
    labels, log_noise = batch.labels.reshape(-1), batch.log_noise.reshape(-1)
    gradient = np.empty(d, np.float32)
    for g in range(first, last):
        if g + AHEAD < last:
            _fetch(rows, offsets, labels[groups.order[groups.starts[g + AHEAD]]], d)
        label = labels[groups.order[groups.starts[g]]]
        weights, bias = parameters.rows[label, :d], parameters.offsets[label, 0]
        begin, end = groups.starts[g], groups.starts[g + 1]
        bias_slope = np.float32(0)
        if end - begin > 1:
            gradient[:] = 0
        for place in range(begin, end):
            pair = groups.order[place]
            x, is_positive = batch.x[pair // width], pair % width == 0
            value, slope = separable(
                float(_dot(weights, x) + bias), log_noise[pair], is_positive, loss.shift, loss.centre, loss.strength
            )
            factor = batch.weights[pair // width] / (1 if is_positive else width - 1)
            losses[pair] = value * factor
            scale = np.float32(slope * factor)
            bias_slope += scale
            if end - begin > 1:
                _add(scale, x, gradient)
        if end - begin > 1:
            _move(label, np.float32(1), gradient, bias_slope, rate, parameters)
        else:  # the usual case among many classes: the row itself is the gradient's direction
            _move(label, bias_slope, batch.x[groups.order[begin] // width], bias_slope, rate, parameters)


@numba.njit(cache=True, nogil=True)
def _update_given(
    first: int,
    last: int,
    batch: Batch,
    groups: PairsByLabel,
    slopes: Float32,
    decay: Float32,
    rate: np.float32,
    parameters: Parameters,
) -> None:
    width, labels, flat = batch.labels.shape[1], batch.labels.reshape(-1), slopes.reshape(-1)
    gradient = np.empty(batch.x.shape[1], np.float32)
    for g in range(first, last):
        label = labels[groups.order[groups.starts[g]]]
        pull = np.float32(decay[label] * (groups.starts[g + 1] - groups.starts[g]))
        bias_slope = pull * parameters.offsets[label, 0]
        gradient[:] = 0
        _add(pull, parameters.rows[label, : len(gradient)], gradient)
        for place in range(groups.starts[g], groups.starts[g + 1]):
            pair = groups.order[place]
            scale = flat[pair] * batch.weights[pair // width]
            _add(scale, batch.x[pair // width], gradient)
            bias_slope += scale
        _move(label, np.float32(1), gradient, bias_slope, rate, parameters)


@numba.njit(cache=True, nogil=True)
def _score(first: int, last: int, batch: Batch, parameters: Parameters, scores: Float32) -> None:
    for row in range(first, last):
        for j in range(batch.labels.shape[1]):
            label = batch.labels[row, j]
            x = batch.x[row]
            scores[row, j] = _dot(parameters.rows[label, : len(x)], x) + parameters.offsets[label, 0]


@numba.njit(cache=True, nogil=True)
def descend_rows(gradients: Float32, bias_slopes: Float32, decay: float, rate: float, parameters: Parameters) -> None:
    """Adagrad on all classes along dense gradients (C, d) and (C,), which are overwritten."""
    d = gradients.shape[1]
    for label in range(len(gradients)):
        _add(np.float32(decay), parameters.rows[label, :d], gradients[label])
        slope = bias_slopes[label] + np.float32(decay) * parameters.offsets[label, 0]
        _move(label, np.float32(1), gradients[label], slope, np.float32(rate), parameters)
