"""The self-representation of many labels by linearised ADMM on sparse inner products.

Label j solves ``min |z|_1 + alpha |y_j - D z|`` (a square-root lasso) by

    z    <- Soft(z + D'(y - D z - E + Lam/sigma) / eta, 1 / (sigma eta)),    eta >= |D|^2
    E    <- ColShrink(y - D z + Lam/sigma, alpha / sigma)
    Lam  <- Lam + sigma (y - D z - E),    sigma <- growth sigma

With A = y - D z + Lam/sigma, the two last lines are E = s A and Lam = sigma (1 - s) A for a number s. So A, E and Lam
are always of the form ``a y - D v``, and an iteration needs one product of the atoms' inner products with the sparse z.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import scipy.sparse as sp

from xcore.components import Report, silent
from xcore.numeric.matrices import CSR, Float64, Int32, Int64, row_blocks
from xcore.numeric.parallel import even_blocks, over_blocks
from xcore.selection.dictionary import Problem
from xcore.selection.splitting import Schedule
from xcore.training.checkpoints import Checkpoints, Pieces

LABELS_PER_BLOCK = 128
WAVE = 8  # blocks between two reports
BOUND_ITERATIONS = 12


class Settings(NamedTuple):
    """Numbers of one solve; see `Schedule`.

    Attributes
    ----------
    alpha : float
        Weight of the errors.
    max_candidates : int
        Atoms that a label may use: those with the largest cosine.
    all_atoms : bool
        Whether atoms that never occur together with a label may represent it too.
    """

    alpha: float
    sigma: float
    growth: float
    max_sigma: float
    tolerance: float
    max_iterations: int
    max_candidates: int
    all_atoms: bool

    @classmethod
    def of(
        cls, alpha: float, schedule: Schedule, max_candidates: int | None = None, all_atoms: bool = False
    ) -> Settings:
        most = max_candidates or int(np.iinfo(np.int32).max)
        sigmas = float(schedule.sigma), float(schedule.growth), float(schedule.max_sigma)
        return cls(float(alpha), *sigmas, float(schedule.tolerance), int(schedule.max_iterations), most, all_atoms)


class Solution(NamedTuple):
    """Coefficients of all labels, and how they were reached.

    Attributes
    ----------
    coefficients : CSR float64 (L, m)
        Row j is the column z_j of Z.
    iterations : int32 (L,)
        0 for labels that the closed-form test settled.
    objectives : float64 (T,)
        ``sum_j |z_j|_1 + alpha |y_j - D z_j|`` after each iteration.
    residuals : float64 (T,)
        The largest ``|y_j - D z_j - E_j|`` after each iteration.
    """

    coefficients: CSR
    iterations: Int32
    objectives: Float64
    residuals: Float64

    @property
    def is_pure_outlier(self) -> Int32:
        """Labels that no iteration was spent on."""
        skipped: Int32 = np.flatnonzero(self.iterations == 0).astype(np.int32)
        return skipped


class _Block(NamedTuple):
    """What one block of labels gives."""

    values: Float64
    atoms: Int32
    sizes: Int64
    iterations: Int32
    objectives: Float64
    residuals: Float64


def represent(
    problem: Problem, settings: Settings, checkpoints: Checkpoints | None = None, report: Report = silent
) -> Solution:
    """Solve for all labels, in blocks that threads share. The same bits come out for any number of threads.

    A label with c candidates costs O(c^2) once, and O(c |z|_0) per iteration. Labels that pass the closed-form test
    for pure outliers (`is_pure_outlier`) cost one look at their inner products.
    """
    blocks = even_blocks(np.diff(problem.cross.indptr), max(1, -(-problem.n_labels // LABELS_PER_BLOCK)))
    pieces, solved = Pieces(checkpoints or Checkpoints(None)), list[_Block]()
    for wave in row_blocks(len(blocks), WAVE):
        numbers = [number for number in range(wave.start, wave.stop) if number not in pieces.done]
        made = over_blocks(lambda number: _solve(problem, settings, blocks[number]), numbers)
        fresh = dict(zip(numbers, made, strict=True))
        for number in range(wave.start, wave.stop):
            if number in fresh:
                pieces.add(number, fresh[number]._asdict())
                solved.append(fresh[number])
            else:
                solved.append(_Block(**pieces.done[number]))
        last = {"objective": sum(float(block.objectives[-1]) for block in solved)}
        report(wave.stop, len(blocks), last | {"residual": max(float(block.residuals[-1]) for block in solved)})
    return _joined(solved, problem)


def _joined(blocks: list[_Block], problem: Problem) -> Solution:
    sizes = np.concatenate([np.zeros(1, np.int64), *(block.sizes for block in blocks)])
    atoms = np.concatenate([np.zeros(0, np.int32), *(block.atoms for block in blocks)])
    values = np.concatenate([np.zeros(0), *(block.values for block in blocks)])
    iterations = np.concatenate([np.zeros(0, np.int32), *(block.iterations for block in blocks)])
    n_iterations = max(1, int(iterations.max(initial=0)))
    objectives = np.sum([block.objectives[:n_iterations] for block in blocks], axis=0, initial=0.0)
    residuals = np.max([block.residuals[:n_iterations] for block in blocks], axis=0, initial=0.0)
    coefficients = sp.csr_array((values, atoms, np.cumsum(sizes)), shape=(problem.n_labels, problem.n_atoms))
    return Solution(coefficients, iterations, objectives, residuals)


def _solve(problem: Problem, settings: Settings, labels: range) -> _Block:
    found = _solve_labels(problem, settings, labels.start, labels.stop)
    return _Block(*found)


@numba.njit(cache=True, nogil=True)
def is_pure_outlier(largest_product: float, square: float, alpha: float) -> bool:
    """Whether z = 0 is optimal: no atom has an inner product above |y| / alpha with the label (closed form)."""
    return bool(largest_product <= np.sqrt(square) / alpha)


@numba.njit(cache=True, nogil=True)
def _solve_labels(
    problem: Problem, settings: Settings, start: int, stop: int
) -> tuple[Float64, Int32, Int64, Int32, Float64, Float64]:
    n_atoms = len(problem.atom_squares)
    place = np.full(n_atoms, -1, np.int32)  # of an atom among the candidates
    values, atoms = np.empty(16, np.float64), np.empty(16, np.int32)
    sizes, iterations = np.zeros(stop - start, np.int64), np.zeros(stop - start, np.int32)
    objectives = np.zeros(settings.max_iterations)
    residuals = np.zeros(settings.max_iterations)
    n_kept = 0
    for label in range(start, stop):
        candidates, products = _candidates(problem, settings, label)
        square = problem.squares[label]
        if len(products) == 0 or is_pure_outlier(products.max(), square, settings.alpha):
            objectives += settings.alpha * np.sqrt(square)
            continue
        local = _local_products(problem, candidates, place)
        z, n_done = _iterate(local, products, square, settings, objectives, residuals)
        iterations[label - start] = n_done
        order = np.argsort(candidates)
        for at in order:
            if z[at] != 0.0:
                if n_kept == len(values):
                    values = np.concatenate((values, np.empty_like(values)))
                    atoms = np.concatenate((atoms, np.empty_like(atoms)))
                values[n_kept], atoms[n_kept] = z[at], candidates[at]
                n_kept += 1
                sizes[label - start] += 1
    return values[:n_kept].copy(), atoms[:n_kept].copy(), sizes, iterations, objectives, residuals


@numba.njit(cache=True, nogil=True)
def _candidates(problem: Problem, settings: Settings, label: int) -> tuple[Int32, Float64]:
    """Atoms that may represent a label, and their inner products with it; those with the largest cosine if many."""
    cross, own = problem.cross, problem.own[label]
    first, last = cross.indptr[label], cross.indptr[label + 1]
    if settings.all_atoms:
        products = np.zeros(len(problem.atom_squares))
        for at in range(first, last):
            products[cross.indices[at]] = cross.data[at]
        atoms = np.flatnonzero(problem.atom_squares > 0).astype(np.int32)
        atoms = atoms[atoms != own]
        return atoms, products[atoms]
    kept = cross.indices[first:last] != own
    atoms, products = cross.indices[first:last][kept], cross.data[first:last][kept]
    if len(atoms) > settings.max_candidates:
        cosines = products / np.sqrt(problem.atom_squares[atoms])
        best = np.argsort(-cosines, kind="mergesort")[: settings.max_candidates]
        return atoms[best], products[best]
    return atoms, products


@numba.njit(cache=True, nogil=True)
def _local_products(problem: Problem, candidates: Int32, place: Int32) -> Float64:
    """Inner products of the candidates, dense; `place` is all -1 before and after."""
    local = np.zeros((len(candidates), len(candidates)))
    for at in range(len(candidates)):
        place[candidates[at]] = at
    for at in range(len(candidates)):
        for entry in range(problem.atoms.indptr[candidates[at]], problem.atoms.indptr[candidates[at] + 1]):
            other = place[problem.atoms.indices[entry]]
            if other >= 0:
                local[at, other] = problem.atoms.data[entry]
    for at in range(len(candidates)):
        place[candidates[at]] = -1
    return local


@numba.njit(cache=True, nogil=True)
def _largest_eigenvalue_bound(matrix: Float64) -> float:
    """An upper bound of the largest eigenvalue of a non-negative matrix: max (Mx)_i / x_i for any positive x.

    The bound of Collatz and Wielandt is true for every x; power iterations make it tight.
    """
    x, bound = np.ones(len(matrix)), np.inf
    for _ in range(BOUND_ITERATIONS):
        moved = np.zeros(len(matrix))
        for i in range(len(matrix)):
            _add(x[i], matrix[i], moved)
        bound = min(bound, (moved / x).max())
        x = moved / moved.max() + 1e-6
    return bound


@numba.njit(cache=True, nogil=True)
def _iterate(
    local: Float64, products: Float64, square: float, settings: Settings, objectives: Float64, residuals: Float64
) -> tuple[Float64, int]:
    """The ADMM of one label; adds its objective to `objectives`, and puts its residual into `residuals` if larger."""
    n = len(products)
    eta = _largest_eigenvalue_bound(local)
    z, moved = np.zeros(n), np.zeros(n)  # moved = local @ z
    v, moved_v = np.zeros(n), np.zeros(n)  # A = a y - D v, moved_v = local @ v
    a, s, sigma, last_sigma = 0.0, 0.0, settings.sigma, settings.sigma
    objective, residual, done = 0.0, 0.0, 0
    for step in range(settings.max_iterations):
        kept = (1.0 - s) * last_sigma / sigma  # Lam / sigma = kept A
        y_share, threshold, largest_move = 1.0 + (kept - s) * a, 1.0 / (sigma * eta), 0.0
        for i in range(n):
            before = z[i]
            point = before + (y_share * products[i] - moved[i] - (kept - s) * moved_v[i]) / eta
            z[i] = max(point - threshold, 0.0) + min(point + threshold, 0.0)
            largest_move = max(largest_move, abs(z[i] - before))
        moved[:] = 0.0
        for i in range(n):
            if z[i] != 0.0:
                _add(z[i], local[i], moved)
        a = 1.0 + kept * a
        size, error, length = 0.0, square, a * a * square  # |z|_1, |y - D z|^2, |A|^2
        for i in range(n):
            v[i], moved_v[i] = z[i] + kept * v[i], moved[i] + kept * moved_v[i]
            size += abs(z[i])
            error += z[i] * (moved[i] - 2.0 * products[i])
            length += v[i] * (moved_v[i] - 2.0 * a * products[i])
        s = max(1.0 - settings.alpha / (sigma * np.sqrt(length)), 0.0) if length > 0.0 else 0.0
        residual = np.sqrt(max(_gap(a, s, z, moved, v, moved_v, products, square), 0.0))
        objective = size + settings.alpha * np.sqrt(max(error, 0.0))
        objectives[step] += objective
        residuals[step] = max(residuals[step], residual)
        done = step + 1
        if residual < settings.tolerance and largest_move < settings.tolerance:
            break
        last_sigma, sigma = sigma, min(sigma * settings.growth, settings.max_sigma)
    objectives[done:] += objective
    residuals[done:] = np.maximum(residuals[done:], residual)
    return z, done


@numba.njit(cache=True, nogil=True)
def _gap(
    a: float,
    s: float,
    z: Float64,
    moved: Float64,
    v: Float64,
    moved_v: Float64,
    products: Float64,
    square: float,
) -> float:
    """Squared length of ``y - D z - E = (1 - s a) y - D (z - s v)``, from small numbers so that it stays precise."""
    share = 1.0 - s * a
    total = share * share * square
    for i in range(len(z)):
        total += (z[i] - s * v[i]) * (moved[i] - s * moved_v[i] - 2.0 * share * products[i])
    return total


@numba.njit(cache=True, nogil=True)
def _add(factor: float, values: Float64, out: Float64) -> None:
    """``out += factor * values``. BLAS would cut long vectors by the number of threads."""
    for i in range(len(out)):
        out[i] += factor * values[i]
