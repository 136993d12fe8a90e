"""Nearest keys: as a full sort finds them, with ties."""

from __future__ import annotations

import numpy as np
import pytest

from xcore.search.keys import Keys, unit_rows


@pytest.mark.parametrize("n", [1, 7, 300, 400])
def test_an_exact_search_is_a_full_sort_and_the_lower_id_wins_ties(n: int) -> None:
    rng = np.random.default_rng(0)
    own = unit_rows(rng.standard_normal((150, 8)).astype(np.float32))
    keys, queries = Keys(np.concatenate([own, own])), unit_rows(rng.standard_normal((600, 8)).astype(np.float32))
    near = keys.nearest(queries, n, 0)
    cosines = np.tile(queries.astype(np.float64) @ own.T.astype(np.float64), 2)
    best = -np.sort(-cosines, axis=1)[:, : min(n, 300)]
    np.testing.assert_allclose(near.cosines, best, atol=1e-6)
    np.testing.assert_allclose(np.take_along_axis(cosines, near.ids.astype(np.int64), axis=1), best, atol=1e-6)
    assert all(len(set(row.tolist())) == len(row) for row in near.ids)
    order = np.lexsort((near.ids, -near.cosines), axis=1)
    assert np.array_equal(order, np.tile(np.arange(best.shape[1]), (len(queries), 1))), (
        "of equal ones the lower id first"
    )
    assert n == 1 or (np.diff(near.cosines, axis=1) == 0).any(), "there are ties"
