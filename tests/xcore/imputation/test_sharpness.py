from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from xcore.grouping.groups import Groups
from xcore.imputation.pooling import Halves, only_group, pool
from xcore.imputation.posterior import given_count
from xcore.imputation.sharpness import CEILING, Judged, best_sharpness, likeliest, log_odds_of, ranking


def drawn(sharpness: float, known: bool, n_groups: int = 2000, size: int = 6) -> Judged:
    """Groups whose members carry three labels with odds of ``exp(sharpness * evidence)``, times 0.2."""
    rng = np.random.default_rng(0)
    evidence = rng.normal(size=(n_groups * size, 3))
    carries = rng.random(evidence.shape) < 1 / (1 + np.exp(-(np.log(0.2) + sharpness * evidence)))
    counts = carries.reshape(n_groups, size, 3).sum(axis=1).astype(np.float64)
    first = np.arange(0, n_groups * size + 1, size)
    return Judged(first, evidence.astype(np.float32), counts if known else np.minimum(counts, 1), known, np.ones(3))


def least_error(judged: Judged | Halves) -> float:
    return best_sharpness(lambda sharpness: -judged.squared_error(sharpness))


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("sharpness", [0.5, 1.0, 2.0])
def test_the_exponent_that_made_the_counts_is_found(sharpness: float, known: bool) -> None:
    judged = drawn(sharpness, known)
    assert likeliest(judged) == pytest.approx(sharpness, rel=0.2)
    assert least_error(judged) == pytest.approx(sharpness, rel=0.2)


def test_a_label_expects_as_many_members_as_carry_it() -> None:
    judged = drawn(1.0, known=True)
    np.testing.assert_allclose(judged.chances(0.7).sum(axis=0), judged.counts.sum(axis=0), rtol=2e-3)


def test_evidence_of_the_groups_ranks_them_and_noise_does_not() -> None:
    judged = drawn(2.0, known=True)
    right, error = ranking(judged, 2.0)
    assert right > 0.7
    assert error < 0.1
    noise = judged._replace(evidence=np.random.default_rng(1).normal(size=judged.evidence.shape).astype(np.float32))
    assert ranking(noise, 2.0)[0] == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("sharpness", [0.5, 1.0, 2.0])
def test_halves_of_pooled_groups_tell_the_exponent(sharpness: float, known: bool) -> None:
    apart = drawn(sharpness, known)
    pooled = apart.counts[::2] + apart.counts[1::2]
    together = apart._replace(first=apart.first[::2], counts=pooled if known else np.minimum(pooled, 1))
    assert least_error(Halves(apart, together)) == pytest.approx(sharpness, rel=0.2)


@pytest.mark.parametrize("sharpness", [0.5, 1.0, 2.0])
def test_the_error_of_halves_is_a_known_share_of_that_of_members_for_any_odds(sharpness: float) -> None:
    """Also where the evidence has the wrong shape: here low evidence excludes more than it should."""
    rng = np.random.default_rng(0)
    n_groups, size = 6000, 4
    evidence = rng.normal(size=(n_groups * size, 1))
    carries = rng.random(evidence.shape) < 1 / (1 + np.exp(-(np.log(0.2) + np.maximum(evidence, 0))))
    counts = carries.reshape(n_groups, size).sum(axis=1)[:, None].astype(np.float64)
    first = np.arange(0, n_groups * size + 1, size)
    apart = Judged(first, evidence.astype(np.float32), counts, True, np.ones(1))
    together = apart._replace(first=first[::2], counts=counts[::2] + counts[1::2])
    log_odds = apart.prior(sharpness)[0] + sharpness * evidence[:, 0]
    chances = np.empty(len(log_odds))
    for pair in range(len(together.counts)):
        own = slice(2 * size * pair, 2 * size * (pair + 1))
        given_count(np.ascontiguousarray(log_odds[own]), int(together.counts[pair, 0]), chances[own])
    of_members = float(np.square(chances - carries[:, 0]).sum())
    share = size / (4 * size - 2)
    # `squared_error` counts both halves.
    assert Halves(apart, together).squared_error(sharpness) == pytest.approx(2 * share * of_members, rel=0.05)


def test_scores_are_read_as_chances_up_to_a_ceiling() -> None:
    scores = np.array([0.1, 0.5, 0.9, CEILING, 2.0])
    odds = np.exp(log_odds_of(np.log(scores)))
    np.testing.assert_allclose(odds, [1 / 9, 1, 9, CEILING / (1 - CEILING), 2 / (1 - CEILING)], rtol=1e-6)


def test_evidence_that_only_knows_the_pool_says_nothing_about_its_halves() -> None:
    """A leak raises the scores of all members of a group that has the label. The pool is known, so it is no news."""
    apart = drawn(0.0, known=True, size=2)
    pooled = apart.counts[::2] + apart.counts[1::2]
    leak = np.repeat(pooled - pooled.mean(axis=0), 4, axis=0)
    noise = 0.3 * np.random.default_rng(2).normal(size=leak.shape)
    leaking = apart._replace(evidence=(leak + noise).astype(np.float32))
    together = leaking._replace(first=leaking.first[::2], counts=pooled)
    assert least_error(together) > 0.6
    assert least_error(Halves(leaking, together)) < 0.4


def test_pooled_groups_have_the_members_and_labels_of_both() -> None:
    members = sp.csr_array(np.array([[1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 1]], np.float32))
    labels = sp.csr_array(np.array([[2, 0], [1, 1], [0, 1]], np.float32))
    pooled = pool(Groups(members, labels), np.array([0, 2]))
    assert pooled.stayed.tolist() == [1]
    assert pooled.groups.members.toarray().tolist() == [[0, 0, 1, 0, 0], [1, 1, 0, 1, 1]]
    assert pooled.groups.labels.toarray().tolist() == [[1, 1], [2, 1]]
    assert pool(Groups(members, labels, "set"), np.array([0, 1])).groups.labels.toarray().tolist() == [[0, 1], [1, 1]]


def test_groups_that_share_a_row_are_not_pooled() -> None:
    members = sp.csr_array(np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]], np.float32))
    assert only_group(Groups(members, sp.csr_array((4, 1), dtype=np.float32))).tolist() == [False, False, True, False]
