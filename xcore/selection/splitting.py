"""The reference solver of the self-representation: ADMM with Z = J split, on dense matrices.

It minimises ``|Z|_1 + alpha |E|_{2,1}`` subject to ``Y = D Z + E``. It is slow and takes O(n L) memory; `linearised`
solves the same problem for many labels.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from xcore.numeric.matrices import Float64
from xcore.selection.proximal import shrink_columns, soft

LEAST_PROGRESS = 0.999  # of the combined residual; less progress restarts the acceleration


@dataclass(frozen=True)
class Schedule:
    """The penalty and the end of an ADMM.

    Attributes
    ----------
    sigma : float
        First penalty.
    growth : float
        The penalty is multiplied by this (rho of the paper) after each iteration. 1 is exact; above 1 ends sooner, a
        little above the optimum.
    max_sigma : float
    tolerance : float
        The iteration ends when no entry of ``Y - D Z - E`` is larger.
    max_iterations : int
    """

    sigma: float = 1e-2
    growth: float = 1.1
    max_sigma: float = 1e6
    tolerance: float = 1e-6
    max_iterations: int = 500


class Split(NamedTuple):
    """The variables of the second block and the multipliers."""

    J: Float64
    E: Float64
    Lam: Float64
    Gam: Float64

    def beyond(self, before: Split, momentum: float) -> Split:
        """Extrapolated along the last step."""
        return Split(*(new + momentum * (new - old) for new, old in zip(self, before, strict=True)))


@dataclass
class Represented:
    """A solution, and how it was reached.

    Attributes
    ----------
    Z : float64 (m, L)
    E : float64 (n, L)
    objectives, residuals : list of float
        For each iteration: ``|J|_1 + alpha |Y - D J|_{2,1}``, and the largest entry of ``Y - D Z - E``.
    """

    Z: Float64
    E: Float64
    objectives: list[float] = field(default_factory=list)
    residuals: list[float] = field(default_factory=list)


def represent_by_splitting(
    Y: Float64, D: Float64, alpha: float, schedule: Schedule, *, excludes_itself: bool, accelerated: bool = False
) -> Represented:
    """Solve by splitting. One factorisation of O(m^3), then O(n m L) per iteration.

    Parameters
    ----------
    Y : float64 (n, L)
    D : float64 (n, m)
        The dictionary.
    alpha : float
        Weight of the errors.
    schedule : Schedule
    excludes_itself : bool
        Keep the diagonal of Z at 0. It must be set if D is Y: each label would represent itself otherwise.
    accelerated : bool
        Nesterov momentum with restarts. It needs ``growth`` 1.
    """
    if accelerated and schedule.growth != 1:
        raise ValueError(f"the accelerated solver needs a fixed penalty: growth must be 1, got {schedule.growth}")
    factor = cho_factor(D.T @ D + np.eye(D.shape[1]))
    zeros = np.zeros((D.shape[1], Y.shape[1]))
    now = hat = Split(zeros, np.zeros_like(Y), np.zeros_like(Y), zeros)
    found, sigma, weight, last = Represented(zeros, now.E), schedule.sigma, 1.0, np.inf
    for _ in range(schedule.max_iterations):
        before, (Z, now) = now, _step(Y, D, factor, alpha, sigma, hat, excludes_itself)
        gap = Y - D @ Z - now.E
        error = Y - D @ now.J
        found.objectives.append(float(np.abs(now.J).sum() + alpha * np.linalg.norm(error, axis=0).sum()))
        found.residuals.append(float(max(np.abs(gap).max(initial=0.0), np.abs(Z - now.J).max(initial=0.0))))
        if found.residuals[-1] < schedule.tolerance:
            break
        hat, combined = now, _combined_residual(now, hat, sigma)
        if accelerated and combined < LEAST_PROGRESS * last:
            following = (1 + np.sqrt(1 + 4 * weight**2)) / 2
            hat, weight = now.beyond(before, (weight - 1) / following), following
        else:
            weight = 1.0
        last, sigma = combined, min(schedule.growth * sigma, schedule.max_sigma)
    found.Z, found.E = now.J, Y - D @ now.J
    return found


def _step(
    Y: Float64, D: Float64, factor: tuple[Float64, bool], alpha: float, sigma: float, hat: Split, excludes_itself: bool
) -> tuple[Float64, Split]:
    Z = cho_solve(factor, D.T @ (Y - hat.E + hat.Lam / sigma) + hat.J - hat.Gam / sigma)
    J = soft(Z + hat.Gam / sigma, 1 / sigma)
    if excludes_itself:
        np.fill_diagonal(J, 0.0)
    E = shrink_columns(Y - D @ Z + hat.Lam / sigma, alpha / sigma)
    return Z, Split(J, E, hat.Lam + sigma * (Y - D @ Z - E), hat.Gam + sigma * (Z - J))


def _combined_residual(new: Split, hat: Split, sigma: float) -> float:
    primal = np.sum((new.J - hat.J) ** 2) + np.sum((new.E - hat.E) ** 2)
    dual = np.sum((new.Lam - hat.Lam) ** 2) + np.sum((new.Gam - hat.Gam) ** 2)
    return float(dual / sigma + sigma * primal)
