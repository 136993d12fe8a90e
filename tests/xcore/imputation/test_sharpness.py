from __future__ import annotations

import numpy as np
import pytest

from xcore.imputation.sharpness import Judged, best_sharpness, ranking


def drawn(sharpness: float, known: bool, n_groups: int = 2000, size: int = 6) -> Judged:
    """Groups whose members carry three labels with odds of ``exp(sharpness * evidence)``, times 0.2."""
    rng = np.random.default_rng(0)
    evidence = rng.normal(size=(n_groups * size, 3))
    carries = rng.random(evidence.shape) < 1 / (1 + np.exp(-(np.log(0.2) + sharpness * evidence)))
    counts = carries.reshape(n_groups, size, 3).sum(axis=1).astype(np.float64)
    first = np.arange(0, n_groups * size + 1, size)
    return Judged(first, evidence.astype(np.float32), counts if known else np.minimum(counts, 1), known)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("sharpness", [0.5, 1.0, 2.0])
def test_the_exponent_that_made_the_counts_is_found(sharpness: float, known: bool) -> None:
    assert best_sharpness(drawn(sharpness, known)) == pytest.approx(sharpness, rel=0.2)


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
