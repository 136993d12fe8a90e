from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from xcore.numeric.matrices import (
    NO_LABEL,
    TopK,
    binary_csr,
    csr,
    list_parts,
    lists_of_csr,
    normalise_rows,
    row_blocks,
    topk_of_dense,
)

rows_of_ints = st.lists(st.lists(st.integers(0, 99), max_size=4), max_size=12)


def ranking(rows: list[list[int]], width: int) -> TopK:
    labels = np.array([row + [NO_LABEL] * (width - len(row)) for row in rows], np.int32).reshape(len(rows), width)
    place = np.arange(width, dtype=np.float32)[None, :]
    return TopK(labels, np.where(labels == NO_LABEL, -np.inf, 1 - place).astype(np.float32))


@given(rows=rows_of_ints)
def test_rankings_survive_their_table(rows: list[list[int]]) -> None:
    top = ranking(rows, 4)
    table = top.to_table()
    assert table["labels"].to_pylist() == rows
    back = TopK.from_table(table, k=4)
    np.testing.assert_array_equal(back.labels, top.labels)
    np.testing.assert_array_equal(back.scores, top.scores)
    assert back.labels.dtype == np.int32
    assert back.scores.dtype == np.float32


def test_a_table_is_read_at_its_longest_list_or_cut_to_k() -> None:
    table = ranking([[5, 3, 1], [2]], 4).to_table()
    assert TopK.from_table(table).labels.tolist() == [[5, 3, 1], [2, NO_LABEL, NO_LABEL]]
    assert TopK.from_table(table, k=2).labels.tolist() == [[5, 3], [2, NO_LABEL]]
    assert TopK.from_table(table, k=2).scores.tolist() == [[1.0, 0.0], [1.0, -np.inf]]


def test_a_ranking_of_two_shapes_is_refused() -> None:
    with pytest.raises(ValueError, match="one \\(n, k\\) shape"):
        TopK(np.zeros((2, 3), np.int32), np.zeros((2, 2), np.float32))
    with pytest.raises(ValueError, match="one \\(n, k\\) shape"):
        TopK(np.zeros(3, np.int32), np.zeros(3, np.float32))


@given(
    rows=rows_of_ints, cuts=st.lists(st.integers(0, 12), max_size=3), start=st.integers(0, 4), stop=st.integers(0, 12)
)
def test_list_parts_join_chunks_and_slices(rows: list[list[int]], cuts: list[int], start: int, stop: int) -> None:
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    chunks = [pa.array(rows[a:b], pa.list_(pa.int32())) for a, b in pairwise(edges)]
    column = pa.chunked_array(chunks, pa.list_(pa.int32())).slice(start, max(stop - start, 0))
    expected = rows[start : max(stop, start)]
    offsets, values = list_parts(column)
    assert offsets.dtype == np.int64
    assert values.dtype == np.int32
    assert [values[a:b].tolist() for a, b in pairwise(offsets)] == expected
    assert len(values) == offsets[-1]


def test_one_chunk_is_not_copied() -> None:
    chunk = pa.array([[1, 2], [3]], pa.list_(pa.int32()))
    _, values = list_parts(pa.chunked_array([chunk]))
    assert np.shares_memory(values, chunk.values.to_numpy())


@settings(deadline=None)
@given(
    scores=hnp.arrays(
        np.float32, st.tuples(st.integers(0, 6), st.integers(1, 9)), elements=st.sampled_from([-1.0, 0.0, 0.5, 2.0])
    ),
    k=st.integers(1, 11),
)
def test_the_best_of_a_dense_block_are_those_of_a_stable_sort(scores: np.ndarray, k: int) -> None:
    top = topk_of_dense(scores, k)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    width = order.shape[1]
    np.testing.assert_array_equal(top.labels[:, :width], order)
    np.testing.assert_array_equal(top.scores[:, :width], np.take_along_axis(scores, order, axis=1))
    assert (top.labels[:, width:] == NO_LABEL).all()
    assert np.isneginf(top.scores[:, width:]).all()
    assert top.labels.shape == (len(scores), k)


@given(
    dense=hnp.arrays(
        np.float32,
        st.tuples(st.integers(0, 7), st.integers(1, 5)),
        elements=st.sampled_from([0.0, 0.0, 1.0, -3.0, 4.0]),
    )
)
def test_normalised_rows_have_length_one_or_stay_zero(dense: np.ndarray) -> None:
    matrix = sp.csr_array(dense)
    original = matrix.data.copy()
    result = normalise_rows(matrix)
    lengths = np.linalg.norm(dense.astype(float), axis=1, keepdims=True)
    np.testing.assert_allclose(result.toarray(), dense / np.where(lengths > 0, lengths, 1), atol=1e-6)
    np.testing.assert_array_equal(matrix.data, original)
    assert result.dtype == np.float32


def test_stored_zeros_do_not_divide_by_zero() -> None:
    matrix = csr(np.array([0.0, 3.0]), np.array([1, 0]), np.array([0, 1, 1, 2]), 2)
    assert normalise_rows(matrix).toarray().tolist() == [[0, 0], [0, 0], [1, 0]]


def test_csr_keeps_arrays_that_already_fit() -> None:
    data, indices, indptr = np.ones(2, np.float32), np.array([1, 0], np.int32), np.array([0, 1, 2], np.int64)
    matrix = csr(data, indices, indptr, 3)
    assert matrix.data is data
    assert matrix.indices is indices
    assert matrix.indptr is indptr
    assert matrix.shape == (2, 3)
    assert binary_csr([1, 0], [0, 1, 2], 3).toarray().tolist() == [[0, 1, 0], [1, 0, 0]]


@given(rows=rows_of_ints)
def test_csr_survives_its_list_columns(rows: list[list[int]]) -> None:
    distinct = [sorted(set(row)) for row in rows]
    indptr = np.cumsum([0] + [len(row) for row in distinct])
    matrix = binary_csr(np.array([i for row in distinct for i in row], np.int32), indptr, 100)
    indices, values = lists_of_csr(matrix)
    assert indices.to_pylist() == distinct
    assert values.type == pa.list_(pa.float32())
    offsets, flat = list_parts(pa.chunked_array([values]))
    np.testing.assert_array_equal(offsets, matrix.indptr)
    np.testing.assert_array_equal(flat, matrix.data)


@given(n=st.integers(0, 40), block=st.integers(1, 15))
def test_row_blocks_cover_every_row_once_in_order(n: int, block: int) -> None:
    covered = [row for part in row_blocks(n, block) for row in range(n)[part]]
    assert covered == list(range(n))
    assert all(0 < part.stop - part.start <= block for part in row_blocks(n, block))
