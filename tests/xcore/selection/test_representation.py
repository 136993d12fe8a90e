"""The self-representation: both solvers, their proximal operators, and the closed form for pure outliers."""

from itertools import pairwise
from pathlib import Path

import numba
import numpy as np
import pytest
from scipy.optimize import minimize

from tests.xcore.selection.label_matrices import planted, related, sparse
from xcore.numeric.matrices import Float64
from xcore.selection.dictionary import label_products, representation_by, self_representation
from xcore.selection.linearised import Settings, Solution, represent
from xcore.selection.proximal import shrink_columns, soft
from xcore.selection.splitting import Represented, Schedule, represent_by_splitting
from xcore.training import checkpoints
from xcore.training.checkpoints import Checkpoints

EXACT = Schedule(sigma=0.1, growth=1.0, tolerance=1e-7, max_iterations=5000)

SPLIT = Schedule(sigma=1.0, growth=1.0, tolerance=1e-7, max_iterations=5000)  # it needs a larger penalty


def solved(Y: Float64, alpha: float, schedule: Schedule = EXACT, all_atoms: bool = True) -> Solution:
    problem = self_representation(label_products(sparse(Y)))
    return represent(problem, Settings.of(alpha, schedule, all_atoms=all_atoms))


def split(Y: Float64, alpha: float, schedule: Schedule = SPLIT, accelerated: bool = False) -> Represented:
    return represent_by_splitting(Y, Y, alpha, schedule, excludes_itself=True, accelerated=accelerated)


def literal_iterates(Y: Float64, alpha: float, schedule: Schedule, eta: float, n_steps: int) -> list[Float64]:
    """The linearised updates on dense rows, as they are written, with one eta for all labels."""
    Z, E, Lam = np.zeros((Y.shape[1], Y.shape[1])), np.zeros_like(Y), np.zeros_like(Y)
    sigma, found = schedule.sigma, []
    for _ in range(n_steps):
        Z = soft(Z + Y.T @ (Y - Y @ Z - E + Lam / sigma) / eta, 1 / (sigma * eta))
        np.fill_diagonal(Z, 0.0)
        E = shrink_columns(Y - Y @ Z + Lam / sigma, alpha / sigma)
        Lam = Lam + sigma * (Y - Y @ Z - E)
        sigma = min(sigma * schedule.growth, schedule.max_sigma)
        found.append(Z)
    return found


@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_linearised_and_split_solvers_reach_the_same_optimum(alpha: float) -> None:
    Y = related()
    ours, reference = solved(Y, alpha), split(Y, alpha)
    assert ours.objectives[-1] == pytest.approx(reference.objectives[-1], rel=1e-6)
    assert np.abs(ours.coefficients.toarray().T - reference.Z).max() < 1e-3
    assert ours.residuals[-1] < 1e-6
    assert reference.residuals[-1] < 1e-6
    assert np.allclose(reference.E, Y - Y @ reference.Z)


def test_a_growing_penalty_ends_sooner_and_a_little_above_the_optimum() -> None:
    Y = related()
    exact, grown = solved(Y, 0.5), solved(Y, 0.5, Schedule())
    assert len(grown.objectives) < len(exact.objectives) / 3
    assert exact.objectives[-1] * (1 - 1e-9) <= grown.objectives[-1] <= exact.objectives[-1] * 1.005
    assert grown.residuals[-1] < 1e-6
    slow = split(Y, 0.5, Schedule())
    assert slow.objectives[-1] <= exact.objectives[-1] * 1.03


def test_objectives_fall_to_the_optimum_in_the_long_run() -> None:
    curve = solved(related(), 0.5).objectives
    best = curve[-1]
    gaps = curve[len(curve) // 4 :] - best
    assert (gaps >= -1e-6).all()
    halves = np.array_split(gaps, 4)
    assert all(later.max() <= earlier.max() for earlier, later in pairwise(halves))


def test_acceleration_reaches_the_same_optimum_and_refuses_a_growing_penalty() -> None:
    Y = related(100, 12)
    plain, fast = split(Y, 0.5), split(Y, 0.5, accelerated=True)
    assert fast.objectives[-1] == pytest.approx(plain.objectives[-1], rel=1e-7)
    with pytest.raises(ValueError, match=r"growth must be 1, got 1\.1"):
        split(Y, 0.5, Schedule(), accelerated=True)


def test_iterates_on_inner_products_are_those_on_rows() -> None:
    """Two labels that share a dictionary of one label each have eta = n_i: the literal updates can be compared."""
    rng = np.random.default_rng(3)
    first = (rng.random(60) < 0.4).astype(np.float64)
    Y = np.column_stack([first, first * (rng.random(60) < 0.8)])
    for label, other in ((0, 1), (1, 0)):
        eta = float(Y[:, other].sum())
        for n_steps in (1, 5, 40):
            schedule = Schedule(tolerance=1e-300, max_iterations=n_steps)
            expected = literal_iterates(Y, 0.6, schedule, eta, n_steps)[-1][other, label]
            found = solved(Y, 0.6, schedule).coefficients.toarray()[label, other]
            assert found == pytest.approx(expected, abs=1e-12)


def test_one_label_alone_is_solved_as_among_all() -> None:
    Y = related()
    problem, settings = self_representation(label_products(sparse(Y))), Settings.of(0.7, Schedule())
    together = represent(problem, settings).coefficients.toarray()
    for label in (0, 17):
        start, end = problem.cross.indptr[label : label + 2]
        cross = problem.cross._replace(
            data=problem.cross.data[start:end],
            indices=problem.cross.indices[start:end],
            indptr=np.array([0, end - start]),
        )
        one = slice(label, label + 1)
        alone = represent(problem._replace(cross=cross, squares=problem.squares[one], own=problem.own[one]), settings)
        assert np.array_equal(alone.coefficients.toarray()[0], together[label])


@pytest.mark.parametrize("seed", range(6))
def test_the_closed_form_finds_pure_outliers_as_the_solver_does(seed: int) -> None:
    rng = np.random.default_rng(seed)
    Y = (rng.random((60, 16)) < rng.uniform(0.05, 0.4)).astype(np.float64)
    Y[0] = 1.0
    alpha = float(rng.uniform(0.2, 1.0))
    products = Y.T @ Y
    np.fill_diagonal(products, 0.0)
    expected = products.max(axis=1) <= np.sqrt(Y.sum(axis=0)) / alpha
    assert np.array_equal(np.flatnonzero(expected), solved(Y, alpha).is_pure_outlier)
    reference = np.abs(split(Y, alpha).Z).max(axis=0)
    assert np.array_equal(reference < 1e-6, expected)


def test_labels_below_the_tail_threshold_are_pure_outliers() -> None:
    Y = related()
    Y[:, 0] = 0
    Y[:4, 0] = 1
    assert 0 in solved(Y, 0.5).is_pure_outlier, "4 rows are at most 1 / 0.5^2"


def test_planted_children_are_represented_and_independent_labels_are_not() -> None:
    Y = planted()
    Z = solved(Y, 0.5, Schedule()).coefficients.toarray().T
    errors = np.linalg.norm(Y - Y @ Z, axis=0) / np.linalg.norm(Y, axis=0)
    assert (errors[4:16] < 0.6).all()
    assert np.array_equal(errors[16:], np.ones(6))


def test_soft_threshold_minimises_its_objective() -> None:
    rng = np.random.default_rng(0)
    for value, threshold in zip(rng.normal(size=20), rng.uniform(0, 1, 20), strict=True):
        grid = np.linspace(-3, 3, 60_001)
        best = grid[np.argmin(threshold * np.abs(grid) + 0.5 * (grid - value) ** 2)]
        assert soft(np.array([value]), threshold)[0] == pytest.approx(best, abs=1e-4)


def test_column_shrinkage_minimises_its_objective_and_is_zero_for_short_columns() -> None:
    rng = np.random.default_rng(1)
    for threshold in (0.3, 1.0, 2.5):
        column = rng.normal(size=4)

        def objective(e: Float64, column: Float64 = column, threshold: float = threshold) -> float:
            return float(threshold * np.linalg.norm(e) + 0.5 * np.sum((e - column) ** 2))

        found = shrink_columns(column[:, None], threshold)[:, 0]
        numeric = minimize(objective, column / 2, method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-10})
        assert objective(found) <= numeric.fun + 1e-8
    A = rng.normal(size=(5, 8))
    lengths = np.linalg.norm(A, axis=0)
    assert not shrink_columns(A, float(lengths.max())).any()
    assert shrink_columns(A, float(lengths.max()) * 0.999).any()


def test_candidates_are_those_that_co_occur_and_the_closest_if_they_are_many() -> None:
    Y = planted()
    products = label_products(sparse(Y))
    problem = self_representation(products)
    few = represent(problem, Settings.of(1.0, Schedule(), max_candidates=2)).coefficients
    assert np.diff(few.indptr).max() <= 2
    cosines = products.toarray() / np.sqrt(np.outer(products.diagonal(), products.diagonal()))
    np.fill_diagonal(cosines, 0)
    for label in range(Y.shape[1]):
        used = few.indices[few.indptr[label] : few.indptr[label + 1]]
        assert set(used.tolist()) <= set(np.argsort(-cosines[label])[:2].tolist())


def test_a_dictionary_of_some_labels_represents_all_by_those() -> None:
    Y, chosen = related(), np.array([3, 20, 7], np.int32)
    problem = representation_by(label_products(sparse(Y)), chosen)
    ours = represent(problem, Settings.of(1.0, EXACT, all_atoms=True))
    reference = represent_by_splitting(Y, Y[:, chosen], 1.0, SPLIT, excludes_itself=False)
    assert ours.objectives[-1] == pytest.approx(reference.objectives[-1], rel=1e-6)


def test_threads_and_resuming_change_no_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr("xcore.selection.linearised.LABELS_PER_BLOCK", 2)
    problem, settings = self_representation(label_products(sparse(related()))), Settings.of(1.0, Schedule())
    whole = represent(problem, settings)
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        alone = represent(problem, settings)
    finally:
        numba.set_num_threads(before)
    assert np.array_equal(alone.coefficients.data, whole.coefficients.data)
    assert np.array_equal(alone.objectives, whole.objectives)

    def killing(step: int, total: int, metrics: object = None) -> None:
        if step >= total / 2:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        represent(problem, settings, Checkpoints(tmp_path, "a training"), killing)
    kept = Checkpoints(tmp_path, "a training")
    assert kept.names("pieces-")
    resumed = represent(problem, settings, kept)
    assert np.array_equal(resumed.coefficients.data, whole.coefficients.data)
    assert np.array_equal(resumed.objectives, whole.objectives)
