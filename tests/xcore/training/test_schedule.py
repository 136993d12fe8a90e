"""The course of a training: which examples come when, and how far a step goes."""

from __future__ import annotations

import numpy as np
import pytest

from xcore.training.schedule import Schedule


def schedule(seed: int = 1, batch_size: int = 7) -> Schedule:
    return Schedule(n_examples=100, epochs=4, batch_size=batch_size, learning_rate=0.5, weight_decay=0.0, seed=seed)


def test_every_epoch_and_every_seed_has_an_order_of_its_own_with_all_examples() -> None:
    one, next_epoch, other = schedule().order(0), schedule().order(1), schedule(seed=2).order(0)
    assert np.array_equal(one, schedule().order(0))
    assert not np.array_equal(one, next_epoch)
    assert not np.array_equal(one, other)
    batches = [schedule().examples(one, number) for number in range(schedule().steps_per_epoch)]
    assert sorted(np.concatenate(batches)) == list(range(100))
    assert all((np.diff(batch) > 0).all() for batch in batches)


def test_the_learning_rate_rises_over_a_twentieth_of_the_steps_and_falls_to_nearly_zero() -> None:
    whole = schedule(batch_size=1)
    rates = np.array([whole.rate(step) for step in range(whole.total)])
    top = int(rates.argmax())
    assert top + 1 == pytest.approx(whole.total / 20, abs=1)
    assert rates[top] == pytest.approx(0.5, rel=0.01)
    assert (np.diff(rates[:top]) > 0).all()
    assert (np.diff(rates[top:]) < 0).all()
    assert 0 < rates[-1] < 0.01
