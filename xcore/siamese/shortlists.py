"""Module II: the two indexes of labels, and labels that training rows are easily confused with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numba
import numpy as np

from xcore.errors import ConfigError
from xcore.numeric.draws import keys_of, unit
from xcore.numeric.matrices import CSR, NO_LABEL, Float32, Int32, Int64, row_blocks
from xcore.search.keys import unit_rows
from xcore.siamese.encoder import Encoder
from xcore.siamese.index import LabelIndex
from xcore.siamese.modules import FittedEncoder, FittedShortlists
from xcore.training.context import FitContext
from xcore.training.data import Rows, TrainingData, canonical_csr

if TYPE_CHECKING:
    from xcore.siamese.options import Shortlists

BLOCK_ROWS = 4096


def make_shortlists(options: Shortlists, data: TrainingData, context: FitContext) -> FittedShortlists:
    """Build the indexes and search them for every training row; see `Shortlists`."""
    first: FittedEncoder = data.stage("encoder").fitted
    seed = np.uint64(context.rng.integers(2**63))
    names, centroids = build_indexes(first, data.rows, data.Y, options.exact_below)
    n_rows, n_labels = data.Y.shape
    is_trained = np.zeros(n_labels, np.bool_)
    is_trained[centroids.labels] = True
    negatives = np.full((n_rows, 2 * options.near + options.random), NO_LABEL, np.int32)
    start = 0
    for block in data.rows.blocks():
        vectors = first.encoder.intermediate(block)
        for part in row_blocks(len(vectors), BLOCK_ROWS):
            rows = slice(start + part.start, start + part.stop)
            searched = (names, centroids) if options.near else ()
            found = [index.nearest(vectors[part], options.near, options.width) for index in searched]
            drawn = _random_labels(seed, rows, centroids.labels, options.random)
            offered = np.concatenate([*found, drawn], axis=1)
            _keep_negatives(offered, data.Y.indices, data.Y.indptr[rows.start :], is_trained, negatives[rows])
            context.report(rows.stop, n_rows)
        start += len(vectors)
    return FittedShortlists(names, centroids, negatives)


def build_indexes(first: FittedEncoder, rows: Rows, Y: CSR, exact_below: int) -> tuple[LabelIndex, LabelIndex]:
    """The index of label embeddings, and that of label centroids."""
    known = np.flatnonzero(first.is_known).astype(np.int32)
    trained = np.unique(Y.indices).astype(np.int32)
    if not len(trained):
        raise ConfigError(f"none of the {Y.shape[0]} training rows has a label: siamesexml needs at least one")
    means = centroids_of(first.encoder, rows, Y)
    return LabelIndex.build(first.labels, known, exact_below), LabelIndex.build(means, trained, exact_below)


def centroids_of(encoder: Encoder, rows: Rows, Y: CSR) -> Float32:
    """The mean f(x) of the rows of each label, of length 1 (L, D); a target q counts q times. Cost O(nnz(Y) D)."""
    sums = np.zeros((Y.shape[1], encoder.dimensions), np.float32)
    start = 0
    for block in rows.blocks():
        vectors = encoder.intermediate(block)
        own = canonical_csr(Y[start : start + len(vectors)].T)
        sums += own @ vectors
        start += len(vectors)
    return unit_rows(sums)


def _random_labels(seed: np.uint64, rows: slice, labels: Int32, n: int) -> Int32:
    """Labels (rows, n) at random, by the number of the row."""
    keys = keys_of(seed, 0, np.arange(rows.start, rows.stop))
    drawn: Int32 = labels[_places(keys, n, len(labels))].astype(np.int32)
    return drawn


@numba.njit(cache=True, nogil=True)
def _places(keys: np.ndarray, n: int, end: int) -> Int64:
    found = np.empty((len(keys), n), np.int64)
    for row in range(len(keys)):
        for at in range(n):
            found[row, at] = min(int(unit(keys[row], at) * end), end - 1)
    return found


@numba.njit(cache=True, nogil=True)
def _keep_negatives(offered: Int32, own: Int32, indptr: Int64, is_trained: np.ndarray, kept: Int32) -> None:
    """Keep the trained labels among the offered ones that are not the row's own, each once."""
    for row in range(len(offered)):
        filled = 0
        for label in offered[row]:
            if label == NO_LABEL or not is_trained[label]:
                continue
            is_new = True
            for at in range(indptr[row], indptr[row + 1]):
                is_new = is_new and own[at] != label
            for at in range(filled):
                is_new = is_new and kept[row, at] != label
            if is_new:
                kept[row, filled] = label
                filled += 1
