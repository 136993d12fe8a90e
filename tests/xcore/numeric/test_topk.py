from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from xcore.numeric.matrices import NO_LABEL
from xcore.numeric.topk import best_first, clear, offer


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), max_size=40), st.integers(1, 12), st.randoms(use_true_random=False))
def test_the_best_offers_are_kept_in_order_and_ties_go_to_the_lower_item(
    offers: list[int], k: int, random: Random
) -> None:
    scores, items = np.empty(k, np.float32), np.empty(k, np.int32)
    clear(scores, items)
    entries = list(enumerate(offers))
    random.shuffle(entries)
    for item, score in entries:
        offer(scores, items, float(score), item)
    best_first(scores, items)
    expected = sorted(entries, key=lambda entry: (-entry[1], entry[0]))[:k]
    padding = k - len(expected)
    assert items.tolist() == [item for item, _ in expected] + [NO_LABEL] * padding
    assert scores.tolist() == [score for _, score in expected] + [-np.inf] * padding
