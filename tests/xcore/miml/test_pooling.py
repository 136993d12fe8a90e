"""The attention mask and the pooling of bags: invariants that need no training."""

from __future__ import annotations

import numpy as np
import pytest

from xcore.miml.pooling import BagRows
from xcore.numeric.matrices import binary_csr

SIZES = [3, 1, 5, 2]


@pytest.fixture
def bags() -> BagRows:
    offsets = np.concatenate([[0], np.cumsum(SIZES)])
    return BagRows(np.arange(offsets[-1]), offsets)


def scores(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((sum(SIZES), 4)).astype(np.float32)


def test_the_columns_of_the_mask_sum_to_the_size_of_the_bag(bags: BagRows) -> None:
    sums = bags.sums(bags.mask(5 * scores()))
    np.testing.assert_allclose(sums, np.repeat(np.array(SIZES)[:, None], 4, axis=1), rtol=1e-5)


def test_tau_zero_gives_a_mask_of_ones_exactly(bags: BagRows) -> None:
    assert (bags.mask(0 * scores()) == 1).all()


def test_a_large_tau_gives_the_whole_mask_to_the_nearest_row(bags: BagRows) -> None:
    found, close = bags.mask(1e4 * scores()), scores()
    for bag, (first, end) in enumerate(zip(bags.offsets[:-1], bags.offsets[1:], strict=True)):
        expected = SIZES[bag] * np.eye(end - first)[close[first:end].argmax(axis=0)].T
        np.testing.assert_allclose(found[first:end], expected, atol=1e-5)


def test_the_mask_of_a_single_row_is_one_for_any_scores() -> None:
    alone = BagRows(np.arange(6), np.arange(7))
    assert (alone.mask(100 * np.random.default_rng(1).standard_normal((6, 3)).astype(np.float32)) == 1).all()


def test_a_constant_added_to_a_column_changes_no_mask(bags: BagRows) -> None:
    shifted = scores() + np.array([1, -2, 3, 0.5], np.float32)
    np.testing.assert_allclose(bags.mask(shifted), bags.mask(scores()), rtol=1e-5)


def test_bags_are_read_as_they_are_without_padding() -> None:
    members = binary_csr(np.array([4, 0, 2, 1, 4]), np.array([0, 1, 1, 4, 5]), 6)
    found = BagRows.of(members, np.array([2, 3, 0]))
    assert found.rows.tolist() == [0, 2, 1, 4, 4]
    assert found.offsets.tolist() == [0, 3, 4, 5]
    assert found.bag.tolist() == [0, 0, 0, 1, 2]


def test_pooling_agrees_with_numpy_bag_by_bag(bags: BagRows) -> None:
    values = scores(2)
    parts = np.split(values, bags.offsets[1:-1])
    np.testing.assert_array_equal(bags.largest(values), [part.max(axis=0) for part in parts])
    np.testing.assert_allclose(bags.means(values), [part.mean(axis=0) for part in parts], rtol=1e-5, atol=1e-6)
