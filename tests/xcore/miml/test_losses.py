"""Losses of bags against brute force and finite differences."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from xcore.miml.agreement import count_correlation
from xcore.miml.counts import count_loss
from xcore.miml.losses import bag_loss
from xcore.miml.options import BagLoss
from xcore.miml.pooling import BagRows
from xcore.numeric.matrices import binary_csr, csr
from xcore.training.data import LabelledBags

BAGS = BagRows(np.arange(6), np.array([0, 2, 3, 6]))
COUNTS = np.array([[1, 0], [1, 1], [2, 3]], np.float32)
LOSSES: tuple[BagLoss, ...] = ("logistic", "softmax", "proportion", "count")


def logits() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((6, 2)).astype(np.float32)


def chance_of(odds: np.ndarray, counts: set[int]) -> float:
    """The probability that the number of heads is one of `counts`, summed over all outcomes."""
    p = 1 / (1 + np.exp(-odds.astype(np.float64)))
    outcomes = [coins for coins in product((0, 1), repeat=len(p)) if sum(coins) in counts]
    return float(sum(np.prod(np.where(coins, p, 1 - p)) for coins in outcomes))


@pytest.mark.parametrize("counted", [True, False])
def test_the_count_loss_is_the_exact_likelihood(counted: bool) -> None:
    counts = COUNTS if counted else (COUNTS > 0).astype(np.float32)
    total, _ = count_loss(logits(), BAGS.offsets, counts.astype(np.float64), counted)
    expected = 0.0
    for bag, label in product(range(3), range(2)):
        own, n = logits()[BAGS.offsets[bag] : BAGS.offsets[bag + 1], label], int(counts[bag, label])
        expected -= np.log(chance_of(own, {n} if counted or n == 0 else set(range(1, len(own) + 1))))
    assert total == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("kind", LOSSES)
def test_gradients_are_those_of_finite_differences(kind: BagLoss, counted: bool) -> None:
    mask = torch.rand((6, 2), generator=torch.Generator().manual_seed(1)) + 0.5
    bias = torch.tensor([0.3, -0.2])

    def value(x: np.ndarray) -> torch.Tensor:
        leaf = torch.tensor(x, dtype=torch.float32, requires_grad=True)
        counts = COUNTS if counted else (COUNTS > 0).astype(np.float32)
        return bag_loss(kind, leaf, bias, BAGS, mask, counts, counted), leaf

    loss, leaf = value(logits())
    gradient = torch.autograd.grad(loss, leaf)[0].numpy()
    step = 1e-2
    for row, label in product(range(6), range(2)):
        moved = np.zeros((6, 2), np.float32)
        moved[row, label] = step
        numeric = float((value(logits() + moved)[0] - value(logits() - moved)[0]).detach()) / (2 * step)
        assert gradient[row, label] == pytest.approx(numeric, abs=2e-2)


def test_extreme_logits_give_finite_losses() -> None:
    far = np.array([[90, -90]] * 6, np.float32)
    for counted in (True, False):
        value, gradient = count_loss(far, BAGS.offsets, COUNTS.astype(np.float64), counted)
        assert np.isfinite(value)
        assert np.isfinite(gradient).all()


def test_a_count_between_two_numbers_is_their_mixture() -> None:
    halves = [count_loss(logits(), BAGS.offsets, np.full((3, 2), float(n)), True) for n in (0, 1)]
    value, gradient = count_loss(logits(), BAGS.offsets, np.full((3, 2), 0.25), True)
    assert value == pytest.approx(0.75 * halves[0][0] + 0.25 * halves[1][0])
    np.testing.assert_allclose(gradient, 0.75 * halves[0][1] + 0.25 * halves[1][1], atol=1e-6)


def test_count_correlation_is_1_for_right_labels_and_0_for_equal_counts() -> None:
    members = binary_csr(np.arange(6), np.array([0, 3, 6]), 6)
    Y = csr(np.array([2, 1, 3]), np.array([0, 1, 1]), np.array([0, 2, 3]), 3)
    bags = LabelledBags(members, Y, counted=True)
    assert count_correlation(np.array([0, 0, 1, 1, 1, 1], np.int32), bags) == pytest.approx(1)
    assert count_correlation(np.array([0, 1, 0, 0, 1, 0], np.int32), bags) == 0
    assert count_correlation(np.array([1, 1, 1, 0, 0, -1], np.int32), bags) < 0


def test_a_count_above_the_size_of_its_bag_means_all_rows() -> None:
    values, bias = torch.tensor(logits()), torch.zeros(2)
    above = COUNTS.copy()
    above[0, 0] = 9  # of a bag of two rows
    whole = COUNTS.copy()
    whole[0, 0] = 2
    losses = [float(bag_loss("count", values, bias, BAGS, None, counts, True)) for counts in (above, whole)]
    assert losses[0] == pytest.approx(losses[1])


def test_the_logistic_target_of_a_counted_bag_is_the_share_of_its_rows() -> None:
    values, bias = torch.tensor(logits()), torch.zeros(2)
    largest = np.maximum.reduceat(logits(), BAGS.offsets[:-1], axis=0).astype(np.float64)
    for counted, targets in ((True, COUNTS / np.array([[2], [1], [3]])), (False, (COUNTS > 0) * 1.0)):
        counts = COUNTS if counted else targets.astype(np.float32)
        expected = (np.logaddexp(0, largest) - targets * largest).sum()
        found = float(bag_loss("logistic", values, bias, BAGS, None, counts, counted))
        assert found == pytest.approx(expected, rel=1e-5)
