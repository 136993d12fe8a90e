from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xcore.imputation.posterior import given_count, given_mean, mean_given_some

log_odds = st.lists(st.floats(-12, 12), min_size=1, max_size=7)


def enumerated(coins: list[float], allowed: set[int]) -> np.ndarray:
    """P(heads | the number of heads is allowed), by going through all outcomes."""
    heads, total = np.zeros(len(coins)), 0.0
    for outcome in product([0, 1], repeat=len(coins)):
        if sum(outcome) in allowed:
            weight = np.exp(np.dot(outcome, coins))
            heads += weight * np.array(outcome)
            total += weight
    return heads / total


@settings(max_examples=60, deadline=None)
@given(log_odds, st.data())
def test_chances_given_a_count_are_those_of_all_outcomes_with_that_sum(coins: list[float], data: st.DataObject) -> None:
    count = data.draw(st.integers(1, len(coins)))
    posterior = np.empty(len(coins))
    given_count(np.array(coins), count, posterior)
    np.testing.assert_allclose(posterior, enumerated(coins, {count}), atol=1e-7)


@settings(max_examples=40, deadline=None)
@given(log_odds, st.data())
def test_chances_given_a_mean_are_those_of_the_two_counts_next_to_it(coins: list[float], data: st.DataObject) -> None:
    mean = data.draw(st.floats(1, len(coins)))
    posterior = np.empty(len(coins))
    given_mean(np.array(coins), mean, posterior)
    below, above = enumerated(coins, {int(mean)}), enumerated(coins, {min(int(mean) + 1, len(coins))})
    np.testing.assert_allclose(posterior, below + (mean - int(mean)) * (above - below), atol=1e-7)
    assert posterior.sum() == pytest.approx(mean)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(2**-10, 0.5, width=32), min_size=1, max_size=7), st.floats(0.1, 2))
def test_the_mean_of_some_is_that_of_all_outcomes_but_none(chances: list[float], times: float) -> None:
    p = times * np.array(chances)
    coins = list(np.log(p / np.maximum(1 - p, 1e-9)))
    exact = enumerated(coins, set(range(1, len(coins) + 1))).sum()
    assert mean_given_some(np.array(chances, np.float32), times) == pytest.approx(exact, rel=1e-3)


def test_of_members_without_a_score_one_is_expected() -> None:
    assert mean_given_some(np.array([0.0, -0.3, 0.0], np.float32), 2.0) == 1
    assert mean_given_some(np.array([1.5, 3.0], np.float32), 1.0) == 2


@pytest.mark.parametrize(("count", "spread"), [(20, 1), (33, 1), (90, 1), (50, 40), (1, 400), (7, 400)])
def test_chances_add_up_to_the_count_and_keep_the_order_of_the_odds(count: int, spread: float) -> None:
    coins = spread * np.random.default_rng(0).standard_normal(100)
    posterior = np.empty(100)
    given_count(coins, count, posterior)
    assert posterior.sum() == pytest.approx(count, rel=1e-6)
    assert posterior.min() >= 0
    assert posterior.max() <= 1
    assert (np.diff(posterior[np.argsort(coins)]) >= -1e-9).all()


def test_a_count_of_all_members_leaves_no_doubt() -> None:
    posterior = np.empty(3)
    given_count(np.array([-50.0, 0.0, 50.0]), 5, posterior)
    assert posterior.tolist() == [1, 1, 1]
