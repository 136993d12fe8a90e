from __future__ import annotations

from typing import Literal

import numba
import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp

from xcore.grouping.groups import Groups, Merge
from xcore.grouping.random import RandomGroups
from xcore.imputation.base import quality_against_truth
from xcore.imputation.baseline import Baseline
from xcore.imputation.eagle import Eagle
from xcore.numeric.matrices import CSR, csr


def as_csr(dense: object) -> CSR:
    matrix = sp.csr_array(np.asarray(dense, np.float32))
    return csr(matrix.data, matrix.indices, matrix.indptr, matrix.shape[1])


def planted(
    g: int, seed: int, n: int = 4000, n_labels: int = 100, d: int = 64, merge: Merge = "list"
) -> tuple[CSR, CSR, Groups]:
    """Unit prototypes plus noise of length 1, one label per row, random groups."""
    rng = np.random.default_rng(seed)
    prototypes = rng.standard_normal((n_labels, d))
    prototypes /= np.linalg.norm(prototypes, axis=1, keepdims=True)
    noise = rng.standard_normal((n, d))
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    label = rng.integers(n_labels, size=n)
    X, Y = as_csr(prototypes[label] + noise), as_csr(np.eye(n_labels)[label])
    return X, Y, RandomGroups(size=g, merge=merge).group(X, Y, rng)


def unit_rows(X: CSR, centre: bool = False) -> npt.NDArray[np.float64]:
    rows = X.toarray().astype(np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    rows = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return rows - rows.mean(axis=0) if centre else rows


Candidates = list[tuple[npt.NDArray[np.int32], float]]


def candidates_by_label(groups: Groups) -> list[Candidates]:
    """For each label, the members of its groups and their counts."""
    members, counts = np.split(groups.members.indices, groups.members.indptr[1:-1]), groups.labels.toarray()
    return [[(members[j], c[j]) for j in np.flatnonzero(c)] for c in counts.T]


def climb(
    rows: npt.NDArray[np.float64], own: Candidates, iterations: int, step: float
) -> list[npt.NDArray[np.float64]]:
    """The iterates of Algorithm 1 as printed: every embedding formed, no early exit."""
    e = np.sum([count * rows[group].sum(axis=0) for group, count in own], axis=0)
    iterates = [e / np.linalg.norm(e)]
    for _ in range(iterations):
        e, total = iterates[-1], np.zeros_like(e)
        for group, count in own:
            v = rows[group] @ e
            total += count * rows[group[v == v.max()]].sum(axis=0)
        e = e + step * total / np.linalg.norm(total)
        iterates.append(e / np.linalg.norm(e))
    return iterates


def straightforward(X: CSR, groups: Groups, eagle: Eagle) -> set[tuple[int, int]]:
    """EAGLE as printed, dense and label by label."""
    rows = unit_rows(X, eagle.centre)
    assigned = set()
    for label, own in enumerate(candidates_by_label(groups)):
        e = climb(rows, own, eagle.iterations, eagle.step)[-1] if own else rows[0]
        for group, count in own:
            n_chosen = int(min(count, len(group))) if eagle.assign == "top_m" else 1
            best = np.argsort(-(rows[group] @ e), kind="stable")[:n_chosen]
            assigned |= {(int(row), label) for row in group[best]}
    return assigned


def pairs_of(Y: CSR) -> set[tuple[int, int]]:
    return {(int(row), int(label)) for row, label in np.argwhere(Y.toarray())}


@pytest.mark.parametrize("iterations", [0, 1, 20])
@pytest.mark.parametrize("step", [0.1, 3.0])
@pytest.mark.parametrize("assign", ["one", "top_m"])
@pytest.mark.parametrize("centre", [False, True])
def test_assignments_are_those_of_the_printed_algorithm(
    iterations: int, step: float, assign: Literal["one", "top_m"], centre: bool
) -> None:
    eagle = Eagle(iterations=iterations, step=step, assign=assign, centre=centre)
    for seed, g in enumerate((3, 7, 12, 25, 40)):
        X, _, groups = planted(g, seed, n=400, n_labels=12, d=16)
        assert pairs_of(eagle.impute(X, groups, np.random.default_rng(0)).Y) == straightforward(X, groups, eagle)


@pytest.mark.parametrize(
    ("g", "eagle_0", "eagle"), [(4, 1.0, 1.0), (10, 0.982, 1.0), (25, 0.446, 0.912), (50, 0.119, 0.358)]
)
def test_planted_labels_are_recovered_as_often_as_derived(g: int, eagle_0: float, eagle: float) -> None:
    precision = np.zeros((3, 2))
    for seed in range(3):
        X, Y, groups = planted(g, seed, merge="set")
        for column, iterations in enumerate((0, 20)):
            imputed = Eagle(iterations=iterations).impute(X, groups, np.random.default_rng(0))
            precision[seed, column] = quality_against_truth(imputed, Y)["precision"]
    assert precision.mean(axis=0) == pytest.approx([eagle_0, eagle], abs=0.06)


@pytest.mark.parametrize("iterations", [0, 20])
@pytest.mark.parametrize("centre", [False, True])
def test_groups_of_one_give_the_true_labels_back(iterations: int, centre: bool) -> None:
    X, Y, groups = planted(g=1, seed=0, n=200, n_labels=10, d=8)
    imputed = Eagle(iterations=iterations, centre=centre).impute(X, groups, np.random.default_rng(0))
    np.testing.assert_array_equal(imputed.Y.toarray(), Y.toarray())


def test_every_pair_yields_one_member_of_its_group() -> None:
    X, _, groups = planted(g=8, seed=2, n=400, n_labels=20, d=16)
    Y = Eagle().impute(X, groups, np.random.default_rng(0)).Y
    np.testing.assert_array_equal((groups.members @ Y).toarray(), groups.labels.toarray() > 0)


def test_top_m_gives_a_label_to_as_many_members_as_the_group_counts() -> None:
    X, _, groups = planted(g=40, seed=2, n=400, n_labels=5, d=16)
    Y = Eagle(assign="top_m").impute(X, groups, np.random.default_rng(0)).Y
    np.testing.assert_array_equal((groups.members @ Y).toarray(), groups.labels.toarray())


def test_the_order_of_rows_and_groups_and_the_length_of_rows_do_not_matter() -> None:
    X, _, groups = planted(g=5, seed=3, n=200, n_labels=10, d=16)
    rng = np.random.default_rng(0)
    order, group_order = rng.permutation(200), rng.permutation(groups.n_groups)
    scaled = as_csr(X.toarray()[order] * rng.choice([0.5, 2.0, 8.0], size=(200, 1)))
    members, labels = groups.members.toarray()[group_order], groups.labels.toarray()[group_order]
    moved = Groups(as_csr(members[:, order]), as_csr(labels))
    plain = Eagle().impute(X, groups, np.random.default_rng(0)).Y.toarray()
    np.testing.assert_array_equal(Eagle().impute(scaled, moved, np.random.default_rng(0)).Y.toarray(), plain[order])


def test_opposite_samples_do_not_produce_nan_and_are_told_apart_by_groups_of_their_own() -> None:
    x = np.array([0.6, 0.8, 0.0])
    X = as_csr([x, -x] * 6)
    members = np.kron(np.eye(6), np.ones(2))
    both = Groups(as_csr(members), as_csr(np.ones((6, 2))))
    symmetric = Eagle().impute(X, both, np.random.default_rng(0)).Y
    np.testing.assert_array_equal((both.members @ symmetric).toarray(), np.ones((6, 2)))
    alone = np.zeros((2, 12))
    alone[0, 0], alone[1, 1] = 1, 1
    told_apart = Groups(as_csr(np.vstack([members, alone])), as_csr(np.vstack([np.ones((6, 2)), np.eye(2)])))
    recovered = Eagle().impute(X, told_apart, np.random.default_rng(0)).Y
    np.testing.assert_array_equal(recovered.toarray(), np.tile(np.eye(2), (6, 1)))


def test_all_zero_rows_are_chosen_only_where_nothing_better_is_there() -> None:
    X = as_csr([[0, 0], [1, 0], [0, 0], [0, 0]])
    groups = Groups(as_csr([[1, 1, 0, 0], [0, 0, 1, 1]]), as_csr([[1], [1]]))
    Y = Eagle().impute(X, groups, np.random.default_rng(0)).Y
    assert Y.toarray().ravel().tolist() == [0, 1, 1, 0]


def test_centring_finds_carriers_that_a_common_direction_hides() -> None:
    X, Y, groups = planted(g=10, seed=0, n=2000, n_labels=50, d=32)
    shared = as_csr(np.hstack([X.toarray(), np.abs(np.random.default_rng(1).normal(4, 1.5, (2000, 1)))]))
    plain, centred = (
        quality_against_truth(Eagle(centre=centre).impute(shared, groups, np.random.default_rng(0)), Y)["precision"]
        for centre in (False, True)
    )
    assert centred > plain + 0.2


def test_any_number_of_threads_gives_the_same_assignment() -> None:
    X, _, groups = planted(g=10, seed=4, n=600, n_labels=30, d=16)
    made = []
    for n_threads in (1, numba.config.NUMBA_NUM_THREADS):
        numba.set_num_threads(n_threads)
        made.append(Eagle(centre=True).impute(X, groups, np.random.default_rng(0)).Y.indices)
    np.testing.assert_array_equal(*made)


def gain(X: CSR, groups: Groups, embeddings: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """F of each label: the sum over its groups of count times the largest inner product."""
    products, found = unit_rows(X) @ embeddings.astype(np.float64).T, np.zeros(groups.n_labels)
    for label, own in enumerate(candidates_by_label(groups)):
        found[label] = sum(count * products[group, label].max() for group, count in own)
    return found


@pytest.mark.parametrize("step", [0.01, 0.1, 1.0, 1e6])
def test_the_objective_never_decreases_whatever_the_length_of_the_step(step: float) -> None:
    X, _, groups = planted(g=7, seed=5, n=400, n_labels=12, d=16)
    found = [
        gain(X, groups, Eagle(iterations=T, step=step).label_embeddings(X, groups, np.random.default_rng(0)))
        for T in (0, 1, 2, 3, 5, 10)
    ]
    assert (np.diff(found, axis=0) >= -1e-5 * np.abs(found[0])).all()
    assert (found[-1] > found[0]).mean() > 0.8


@pytest.mark.parametrize(("g", "eagle_0", "eagle"), [(4, 0.891, 0.985), (10, 0.674, 0.979), (25, 0.384, 0.877)])
def test_embeddings_point_to_the_planted_prototypes_as_far_as_derived(g: int, eagle_0: float, eagle: float) -> None:
    X, _, groups = planted(g, seed=0, merge="set")
    prototypes = np.random.default_rng(0).standard_normal((100, 64))
    prototypes /= np.linalg.norm(prototypes, axis=1, keepdims=True)
    found = [
        (Eagle(iterations=T).label_embeddings(X, groups, np.random.default_rng(0)) * prototypes).sum(axis=1).mean()
        for T in (0, 20)
    ]
    assert found == pytest.approx([eagle_0, eagle], abs=0.06)


def test_more_steps_find_more_carriers_in_large_groups() -> None:
    X, Y, groups = planted(50, seed=0, merge="set")
    precision = [
        quality_against_truth(Eagle(iterations=T).impute(X, groups, np.random.default_rng(0)), Y)["precision"]
        for T in (0, 5, 20, 100)
    ]
    assert precision == pytest.approx([0.128, 0.259, 0.416, 0.446], abs=0.1)
    assert precision == sorted(precision)


@pytest.mark.parametrize("iterations", [1, 4])
def test_all_members_that_tie_at_the_maximum_count_in_a_step(iterations: int) -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(12, 6))
    X = as_csr(np.concatenate([x, x[::2]]))  # every second row has a copy, in the same group
    members = np.zeros((6, 18))
    for group in range(6):
        members[group, [2 * group, 2 * group + 1, 12 + group]] = 1
    groups = Groups(as_csr(members), as_csr(np.ones((6, 2))))
    found = Eagle(iterations=iterations).label_embeddings(X, groups, np.random.default_rng(0))
    expected = climb(unit_rows(X), candidates_by_label(groups)[0], iterations, 0.1)[-1]
    np.testing.assert_allclose(found[0], expected, atol=1e-5)


def test_a_start_that_vanishes_is_replaced_by_one_of_the_candidates() -> None:
    """All labels share their groups of x and -x: each label chooses one side, the same in all groups."""
    x = np.array([0.6, 0.8, 0.0])
    X, members = as_csr([x, -x] * 6), np.kron(np.eye(6), np.ones(2))
    groups = Groups(as_csr(members), as_csr(np.ones((6, 20))))
    for centre in (False, True):
        Y = Eagle(centre=centre).impute(X, groups, np.random.default_rng(0)).Y.toarray()
        sides = Y.reshape(6, 2, 20)[:, 1]
        assert (sides == sides[0]).all()
        assert 0 < sides[0].sum() < 20
    assert not Baseline().label_embeddings(X, groups, np.random.default_rng(0)).any()
