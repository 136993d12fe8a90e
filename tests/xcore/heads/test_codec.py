"""The label codec, the rules for head lengths, and the orders of labels."""

import math
from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xcore.errors import ConfigError
from xcore.heads.codec import LabelCodec, confusion_degree
from xcore.heads.lengths import cascade_lengths, equal_lengths, fewest_heads, group_lengths
from xcore.heads.order import ordered_labels
from xcore.numeric.matrices import binary_csr
from xcore.training.data import LabelSide, TrainingData

LENGTHS = st.lists(st.integers(1, 7), min_size=1, max_size=5).map(tuple)


@given(LENGTHS)
def test_digits_are_those_of_numpy_and_compose_back(lengths: tuple[int, ...]) -> None:
    codec = LabelCodec(math.prod(lengths), lengths)
    classes = np.arange(codec.size)
    digits = codec.digits(classes)
    assert np.array_equal(digits, np.stack(np.unravel_index(classes, lengths), axis=1))
    assert np.array_equal(codec.compose(digits), classes)


@given(LENGTHS, st.data())
def test_the_kronecker_product_of_the_digits_is_the_class(lengths: tuple[int, ...], data: st.DataObject) -> None:
    codec = LabelCodec(math.prod(lengths), lengths)
    label = data.draw(st.integers(0, codec.size - 1))
    digits = codec.digits(np.array([label]))[0]
    one_hots = [np.eye(length)[digit] for length, digit in zip(lengths, digits, strict=True)]
    assert np.array_equal(reduce(np.kron, one_hots), np.eye(codec.size)[label])


def test_the_worked_example_of_the_paper_is_divided_not_taken_modulo() -> None:
    assert LabelCodec(100, (10, 10)).digits(np.array([57])).tolist() == [[5, 7]]


def test_composing_the_best_digits_is_the_best_of_the_product_only_if_nothing_is_negative() -> None:
    rng = np.random.default_rng(0)
    lengths, n = (4, 5, 5), 2000
    codec, wrong = LabelCodec(100, lengths), 0
    for _ in range(n):
        logits = [rng.normal(size=length) for length in lengths]
        composed = codec.compose(np.array([[own.argmax() for own in logits]]))[0]
        assert reduce(np.kron, [np.exp(own) for own in logits]).argmax() == composed
        wrong += reduce(np.kron, logits).argmax() != composed
    assert 0.70 < wrong / n < 0.80, "the spec measured 74.7% on Gaussian logits"
    pair = np.array([-3.0, 1.0])
    assert np.kron(pair, pair).argmax() == 0


def test_prefixes_count_without_groups_of_padding_alone() -> None:
    codec = LabelCodec(22, (4, 3, 3))
    assert codec.prefixes(np.array([0, 8, 9, 21]), 1).tolist() == [0, 0, 1, 2]
    assert codec.prefixes(np.array([0, 8, 9, 21]), 2).tolist() == [0, 2, 3, 7]
    assert [codec.n_prefixes(n) for n in (1, 2, 3)] == [3, 8, 22]


def test_lengths_that_cannot_hold_the_classes_are_refused() -> None:
    with pytest.raises(ConfigError, match="1,679,616 codes for 1,728,000 classes"):
        LabelCodec(1_728_000, (36, 36, 36, 36))
    with pytest.raises(ConfigError, match="at least 1"):
        LabelCodec(3, (3, 0))
    with pytest.raises(ConfigError, match="make a head shorter"):
        LabelCodec(3, (2**31,) * 3)


@given(st.integers(1, 10**7), st.integers(1, 6))
def test_equal_lengths_hold_all_classes_and_no_shorter_ones_do(n_classes: int, n_heads: int) -> None:
    lengths = equal_lengths(n_classes, n_heads)
    assert len(lengths) == n_heads
    assert max(lengths) - min(lengths) <= 1
    assert math.prod(lengths) >= n_classes
    shorter = [*sorted(lengths)[:-1], max(lengths) - 1]
    assert max(lengths) == 1 or math.prod(shorter) < n_classes


def test_equal_lengths_reach_the_counts_of_the_paper() -> None:
    assert sum(equal_lengths(1_728_000, 3)) == 360
    assert sum(equal_lengths(1_728_000, 4)) == 146


@pytest.mark.parametrize(
    ("n_classes", "n_groups", "expected"),
    [
        (670_091, 8400, (8377, 80)),
        (3956, 172, (172, 23)),
        (3956, 86, (86, 46)),
        (13_330, 310, (310, 43)),
        (13_330, 155, (155, 86)),
        (30_938, 499, (499, 62)),
        (501_070, 5630, (5630, 89)),
        (2_812_281, 8761, (8761, 321)),
        (85_742, 1994, (1994, 43)),
        (93_431, 7187, (7187, 13)),
        (10_572, 881, (881, 12)),
    ],
)
def test_groups_are_those_of_the_authors_code(n_classes: int, n_groups: int, expected: tuple[int, int]) -> None:
    assert group_lengths(n_classes, n_groups) == expected


@given(st.integers(1, 10**6), st.integers(1, 4), st.integers(1, 100))
def test_a_cascade_holds_all_classes(n_classes: int, n_heads: int, n_kept: int) -> None:
    lengths = cascade_lengths(n_classes, n_heads, n_kept)
    assert len(lengths) == n_heads
    assert math.prod(lengths) >= n_classes


def test_a_cascade_has_its_longest_head_first_and_the_smallest_cost_of_a_row() -> None:
    lengths = cascade_lengths(100_000, 2, 10)
    assert lengths[0] > lengths[1]

    def cost(first: int) -> int:
        return first + 10 * -(-100_000 // first)

    assert cost(lengths[0]) <= 1.01 * min(cost(first) for first in range(10, 100_000, 7))


def test_the_memory_decides_the_number_of_heads() -> None:
    def needed(n_heads: int) -> float:
        return sum(equal_lengths(10**6, n_heads)) * 512 * 16 / 2**20

    assert fewest_heads(10**6, 512, needed(1), equal_lengths) == 1
    assert fewest_heads(10**6, 512, needed(1) - 1, equal_lengths) == 2
    assert fewest_heads(10**6, 512, needed(3), equal_lengths) == 3
    with pytest.raises(ConfigError, match="memory_mb"):
        fewest_heads(10**6, 512, 0.01, equal_lengths)


def test_a_long_head_first_confuses_less() -> None:
    assert confusion_degree((20, 5)) == 5 / 20
    assert confusion_degree((10, 5, 2)) == (10 / 10) * (2 / 5)
    assert confusion_degree((20, 5)) < confusion_degree((10, 10)) < confusion_degree((5, 20))


def labelled(n_labels: int) -> TrainingData:
    """Even labels have much in common, and odd labels too."""
    features = np.eye(2, n_labels + 2, dtype=np.float32)[np.arange(n_labels) % 2]
    features[np.arange(n_labels), np.arange(n_labels) + 2] = 0.3
    names = [f"name {(7 * label) % n_labels:02d}" for label in range(n_labels)]
    Y = binary_csr(np.arange(n_labels), np.arange(n_labels + 1), n_labels)
    return TrainingData.of(features, Y, labels=LabelSide(names))


def test_orders_of_labels() -> None:
    data, labels, rng = labelled(16), np.arange(16, dtype=np.int32), np.random.default_rng(0)
    assert ordered_labels("given", labels, data, rng).tolist() == list(range(16))
    by_name = ordered_labels("sorted", labels, data, rng)
    assert [(7 * label) % 16 for label in by_name.tolist()] == list(range(16))
    shuffled = ordered_labels("random", labels, data, rng)
    assert sorted(shuffled.tolist()) == list(range(16))
    assert shuffled.tolist() != list(range(16))
    clustered = ordered_labels("clustered", labels, data, rng)
    assert sorted(clustered.tolist()) == list(range(16))
    assert len(set((clustered[:8] % 2).tolist())) == 1, "labels of similar rows stand together"


def test_sorted_labels_need_names() -> None:
    data = labelled(4)
    with pytest.raises(ConfigError, match="order: sorted needs the names"):
        ordered_labels(
            "sorted", np.arange(4, dtype=np.int32), TrainingData.of(data.X, data.Y), np.random.default_rng(0)
        )
