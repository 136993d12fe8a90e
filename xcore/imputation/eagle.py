"""EAGLE: a label goes to the member of the group that lies nearest to the label's embedding."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numba
import numpy as np
from pydantic import Field

from xcore.components import Report
from xcore.grouping.groups import Groups
from xcore.imputation.base import Imputer, Pairs, column_means, rows_and_labels, rows_by_group
from xcore.imputation.grlr import candidates_of, embed_labels, select_members
from xcore.imputation.imputed import Imputed
from xcore.numeric.matrices import CSR, Float32, Float64, Int32, Int64, normalise_rows
from xcore.numeric.parallel import SparseRows, even_blocks, over_blocks

_BLOCKS = 64
_ZERO = 1e-12


class Eagle(Imputer):
    """Shen et al., "Extreme Multi-label Classification from Aggregated Labels" (ICML 2020), Algorithms 1 and 2.

    The embedding e of a label climbs ``F(e) = sum_j c_j max_{i in N_j} <x_i, e>`` over the unit sphere, from the
    direction of the sum of all candidates: ``e <- Proj(e + step Proj(sum_j c_j x_argmax(j)))``. Groups count as often
    as their multiplicity c_j. In an update all members tied at a group's maximum count; the assignment goes to the
    first. Where the sum of the candidates vanishes, e starts at one of them, drawn at random. Labels that occur in
    exactly the same groups get the same embedding: the method cannot tell them apart.

    To impute, neither e nor the l x d matrix of embeddings is formed. With s the sum of the selected rows, the inner
    products of candidates with e follow from those with s, which change only when the selection does. Once e and s
    select the same members, so does every later iterate, and with ``assign: one`` the label is done. Later iterates may
    still reorder the members below the best, so ``top_m`` takes all T steps. `label_embeddings` forms e.

    Cost O(T nnz of the candidates), summed over labels: O(n g nnz(row) T labels(row)); memory O(nnz(X) + nnz(Y2) + d)
    per thread.
    """

    kind: Literal["eagle"] = "eagle"
    iterations: int = Field(
        20, ge=0, le=10_000, description="Maximum number of gradient steps per label (T). 0 is EAGLE-0."
    )
    step: float = Field(0.1, gt=0, le=1e6, description="Step size (lambda).")
    assign: Literal["one", "top_m"] = Field(
        "one",
        description="Which members get a label of their group. one: the best member; top_m: as many members as "
        "the group's count.",
    )
    centre: bool = Field(
        False,
        description="Subtract the mean row first, so that the embeddings do not follow what all rows have in common.",
    )

    def _impute(self, X: CSR, groups: Groups, rng: np.random.Generator, report: Report) -> Imputed:
        X, groups, original = rows_by_group(X, groups)
        pairs, rows = Pairs.of(groups), normalise_rows(X)
        mean = column_means(rows) if self.centre else np.zeros(X.shape[1])
        centre = _Centre(mean, rows @ mean, float(mean @ mean))
        starts = rng.random(groups.n_labels)
        n_assigned = pairs.carriers if self.assign == "top_m" else np.ones_like(pairs.carriers)
        slots = np.concatenate([[0], np.cumsum(n_assigned)])
        chosen = np.empty(slots[-1], np.int32)
        work = np.diff(pairs.candidates()[pairs.of_label])
        blocks = even_blocks(work, _BLOCKS)
        done = 0

        def assign(block: range) -> int:
            nonlocal done
            options = (self.iterations, self.step, self.assign == "top_m")
            steps = _assign_labels(
                SparseRows.of(rows), pairs, centre, starts, (block.start, block.stop), options, slots, chosen
            )
            done += 1
            report(done, len(blocks))
            return int(steps)

        steps = sum(over_blocks(assign, blocks))
        labels = np.repeat(pairs.label_of_pair(), n_assigned)
        Y = rows_and_labels(original[chosen], labels, np.ones(len(chosen)), (groups.n_rows, groups.n_labels))
        n_used = int((np.diff(pairs.of_label) > 0).sum())
        return Imputed(Y, {"mean_iterations": steps / max(n_used, 1)})

    def _label_embeddings(self, X: CSR, groups: Groups, rng: np.random.Generator, report: Report) -> Float32:
        X, groups, _ = rows_by_group(X, groups)
        pairs, rows = Pairs.of(groups), normalise_rows(X)
        mean = column_means(rows) if self.centre else np.zeros(X.shape[1])
        starts, vectors = rng.random(groups.n_labels), np.zeros((groups.n_labels, X.shape[1]), np.float32)
        blocks = even_blocks(np.diff(pairs.candidates()[pairs.of_label]), _BLOCKS)
        done = 0

        def embed(block: range) -> None:
            nonlocal done
            options = (self.iterations, self.step)
            embed_labels(SparseRows.of(rows), pairs, mean, starts, (block.start, block.stop), options, vectors)
            done += 1
            report(done, len(blocks))

        over_blocks(embed, blocks)
        return vectors


class _Centre(NamedTuple):
    """The mean row, its inner product with every row, and with itself; all zero where nothing is subtracted."""

    mean: Float64
    with_row: Float64
    with_itself: float


@numba.njit(cache=True, nogil=True)
def _assign_labels(
    X: SparseRows,
    pairs: Pairs,
    centre: _Centre,
    starts: Float64,
    labels: tuple[int, int],
    options: tuple[int, float, bool],
    slots: Int64,
    chosen: Int32,
) -> int:
    """Write the rows assigned to the pairs of ``labels[0] <= k < labels[1]``; returns the steps taken.

    Pair p fills ``chosen[slots[p] : slots[p + 1]]``, best member first.
    """
    scratch = np.zeros(len(centre.mean))
    steps = 0
    for label in range(labels[0], labels[1]):
        first_pair, end_pair = pairs.of_label[label], pairs.of_label[label + 1]
        if first_pair == end_pair:
            continue
        size, count = pairs.size[first_pair:end_pair], pairs.carriers[first_pair:end_pair]
        candidates, weights = candidates_of(pairs, first_pair, end_pair)
        e, e_mean, _ = _along(X, centre, candidates, weights, scratch)
        if len(e) == 0:
            # The sum of all candidates vanishes: any one of them breaks the symmetry.
            only = np.zeros(len(candidates))
            only[int(starts[label] * len(candidates))] = 1.0
            e, e_mean, _ = _along(X, centre, candidates, only, scratch)
        if len(e) == 0:
            e = np.zeros(len(candidates))
        steps += _climb(X, centre, candidates, (size, count), (e, e_mean), options, scratch)
        start = 0
        for position in range(end_pair - first_pair):
            stop = start + size[position]
            slot, n_slots = (
                slots[first_pair + position],
                slots[first_pair + position + 1] - slots[first_pair + position],
            )
            if n_slots == 1:
                chosen[slot] = candidates[start + np.argmax(e[start:stop])]
            else:
                best = np.argsort(-e[start:stop], kind="mergesort")[:n_slots]
                chosen[slot : slot + n_slots] = candidates[start + best]
            start = stop
    return steps


@numba.njit(cache=True, nogil=True)
def _climb(
    X: SparseRows,
    centre: _Centre,
    candidates: Int32,
    groups: tuple[Int64, Int64],
    embedding: tuple[Float64, float],
    options: tuple[int, float, bool],
    scratch: Float64,
) -> int:
    """Move the inner products of the candidates (in place) and of the mean with the embedding; returns the steps taken.

    `groups` are the sizes and multiplicities of the label's groups, `options` the number and the length of the steps,
    and whether the order of all members counts, not only which is the best.
    """
    (size, count), (e, e_mean), (iterations, step, ranked) = groups, embedding, options
    selected, previous = np.zeros(len(e)), np.zeros(len(e))
    s, s_mean, norm = np.zeros(0), 0.0, 0.0
    for iteration in range(iterations):
        select_members(e, size, count, selected)
        if iteration == 0 or np.any(selected != previous):
            s, s_mean, norm = _along(X, centre, candidates, selected, scratch)
            if len(s) == 0:
                return iteration
            previous[:] = selected
            select_members(s, size, count, selected)
            if not ranked and np.all(selected == previous):
                # Then a e + b s selects the same members for all a, b >= 0. Their order below the best may change.
                return iteration
        along = (np.sum(previous * e) - np.sum(previous) * e_mean) / norm
        length = np.sqrt(1.0 + 2.0 * step * along + step * step)
        if length < 1e-9:
            return iteration
        for position in range(len(e)):
            e[position] = (e[position] + step * s[position]) / length
        e_mean = (e_mean + step * s_mean) / length
    return iterations


@numba.njit(cache=True, nogil=True)
def _along(
    X: SparseRows, centre: _Centre, rows: Int32, weights: Float64, scratch: Float64
) -> tuple[Float64, float, float]:
    """Inner products of `rows` and of the mean row with the unit vector s along the weighted sum of centred rows.

    Returns also the length of the sum; no inner products where it is 0. `scratch` (d,) is zero before and after.
    """
    weight, with_mean = 0.0, 0.0
    for position in range(len(rows)):
        if weights[position] != 0.0:
            row = rows[position]
            weight += weights[position]
            with_mean += weights[position] * centre.with_row[row]
            for entry in range(X.indptr[row], X.indptr[row + 1]):
                scratch[X.indices[entry]] += weights[position] * X.data[entry]
    products = np.empty(len(rows))
    square = 0.0
    for position in range(len(rows)):
        row, dot = rows[position], 0.0
        for entry in range(X.indptr[row], X.indptr[row + 1]):
            dot += X.data[entry] * scratch[X.indices[entry]]
        products[position] = dot - weight * centre.with_row[row]
        square += weights[position] * dot
    square += weight * (weight * centre.with_itself - 2.0 * with_mean)
    for position in range(len(rows)):
        if weights[position] != 0.0:
            row = rows[position]
            for entry in range(X.indptr[row], X.indptr[row + 1]):
                scratch[X.indices[entry]] = 0.0
    norm = np.sqrt(max(square, 0.0))
    if norm < _ZERO:
        return products[:0], 0.0, 0.0
    return products / norm, (with_mean - weight * centre.with_itself) / norm, norm
