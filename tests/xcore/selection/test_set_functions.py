"""The set functions, their gains, and lazy greedy against naive greedy."""

import numpy as np
import pytest
import scipy.sparse as sp

from tests.xcore.selection.label_matrices import planted, sparse
from xcore.numeric.matrices import CSR, Float64, Int32
from xcore.selection.dictionary import label_products, self_representation
from xcore.selection.linearised import Settings, represent
from xcore.selection.set_functions import SubsetValue, affinity_of, greedy
from xcore.selection.splitting import Schedule


def random_value(n_labels: int, seed: int, penalty: float = 0.5) -> SubsetValue:
    """Weights are multiples of 1/64, so that sums are exact and ties are ties."""
    rng = np.random.default_rng(seed)
    W = rng.integers(0, 64, (n_labels, n_labels)) / 64 * (rng.random((n_labels, n_labels)) < 0.3)
    np.fill_diagonal(W, 0.0)
    return SubsetValue(sp.csr_array(W), penalty, rng.integers(0, 8, n_labels) / 8)


def by_definition(value: SubsetValue, members: list[int]) -> float:
    W, inside = value.affinity.toarray(), np.zeros(value.affinity.shape[0], bool)
    inside[members] = True
    cut = W[np.ix_(~inside, inside)].sum()
    return float(cut - value.penalty * W[np.ix_(inside, inside)].sum() + value.scores[inside].sum())


def naive_greedy(value: SubsetValue, budget: int) -> tuple[list[int], list[float]]:
    chosen: list[int] = []
    gains: list[float] = []
    for _ in range(budget):
        rest = [label for label in range(value.affinity.shape[0]) if label not in chosen]
        now = by_definition(value, chosen)
        found = [by_definition(value, [*chosen, label]) - now for label in rest]
        best = int(np.argmax(found))  # the first of equal ones
        chosen.append(rest[best])
        gains.append(found[best])
    return chosen, gains


def everything(value: SubsetValue) -> np.ndarray:
    return np.ones(value.affinity.shape[0], bool)


@pytest.mark.parametrize("penalty", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("seed", range(4))
def test_lazy_greedy_is_naive_greedy_with_gains_that_are_differences(seed: int, penalty: float) -> None:
    value = random_value(30, seed, penalty)
    chosen, gains = naive_greedy(value, 20)
    found = greedy(value, 20, everything(value))
    assert found.labels.tolist() == chosen
    assert found.gains.tolist() == gains


def test_the_closed_form_is_the_definition() -> None:
    value, rng = random_value(25, 7), np.random.default_rng(0)
    for size in (0, 1, 5, 25):
        members = rng.permutation(25)[:size]
        assert value.of(members.astype(np.int32)) == by_definition(value, members.tolist())


def test_returns_diminish() -> None:
    value, rng = random_value(20, 3), np.random.default_rng(1)
    for _ in range(500):
        order = rng.permutation(20).tolist()
        small, large, label = order[:4], order[: rng.integers(4, 19)], order[-1]
        gain_small = by_definition(value, [*small, label]) - by_definition(value, small)
        gain_large = by_definition(value, [*large, label]) - by_definition(value, large)
        assert gain_large <= gain_small


def test_ties_go_to_the_lower_label_and_only_eligible_labels_are_chosen() -> None:
    value = SubsetValue(sp.csr_array((4, 4)), 0.5, np.array([1.0, 2.0, 2.0, 2.0]))
    assert greedy(value, 4, np.array([True, False, True, True])).labels.tolist() == [2, 3, 0]


def test_choosing_can_stop_before_the_value_falls() -> None:
    W = np.array([[0.0, 1.0], [1.0, 0.0]])
    value = SubsetValue(sp.csr_array(W), 1.0, np.zeros(2))
    assert greedy(value, 2, everything(value)).gains.tolist() == [1.0, -3.0]
    assert greedy(value, 2, everything(value), stop_at_loss=True).labels.tolist() == [0]


def test_affinity_is_symmetric_or_as_it_is_and_has_an_empty_diagonal() -> None:
    problem = self_representation(label_products(sparse(planted())))
    coefficients: CSR = represent(problem, Settings.of(1.0, Schedule())).coefficients
    Z: Float64 = coefficients.toarray().T
    both, one = affinity_of(coefficients, "symmetric").toarray(), affinity_of(coefficients, "directed").toarray()
    assert np.allclose(both, (np.abs(Z) + np.abs(Z.T)) / 2)
    assert np.allclose(one, np.abs(Z))
    assert not np.diag(both).any()


def test_planted_parents_are_chosen_first() -> None:
    problem = self_representation(label_products(sparse(planted())))
    affinity = affinity_of(represent(problem, Settings.of(0.5, Schedule())).coefficients, "symmetric")
    chosen: Int32 = greedy(SubsetValue(affinity, 0.5, np.zeros(22)), 4, np.ones(22, bool)).labels
    assert sorted(chosen.tolist()) == [0, 1, 2, 3]
