"""How much it helps to assign outputs before learning: the simulations behind Theorem 1 of EAGLE.

Rows come in groups, and which output of a group belongs to which row is unknown. Three least-squares estimators
compete: without assignment (`noas`), with assignment (`as`), and with the true pairing (`oracle`).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol, Self

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator

from xcore.components import Component, Report, silent
from xcore.numeric.matrices import Float64, Int64, row_blocks
from xcore.numeric.parallel import single_threaded_blas

ESTIMATORS = ("noas", "as", "oracle")

_BLOCK_VALUES = 2**16  # the largest array of a block of repetitions, half a megabyte: it stays in the cache


def least_squares(X: Float64, Z: Float64) -> Float64:
    """LR of Shen et al. (2020), Eq. 3, ``(X' X)^-1 X' Z``, for a batch: (r, n, d) and (r, n, l) give (r, d, l)."""
    transposed = X.swapaxes(1, 2)
    return np.asarray(np.linalg.solve(transposed @ X, transposed @ Z), np.float64)


def assign_outputs(X: Float64, Z: Float64, B: Float64) -> Int64:
    """The member of its group from which B predicts each output best: ``argmin_i ||z - B' x_i||``.

    Parameters
    ----------
    X : float64 (r, m, g, d)
        Rows of r repetitions of m groups.
    Z : float64 (r, m, g, l)
        Outputs of each group, in any order.
    B : float64 (r, d, l)

    Returns
    -------
    int64 (r, m, g)
        For each output the place of its member in the group; ties go to the first. A member may be chosen by several
        outputs, or by none. Cost O(r m g (d + g) l).
    """
    r, m, g, d = X.shape
    predicted = (X.reshape(r, m * g, d) @ B).reshape(r, m, g, -1)
    # ||z||^2 is the same for all members.
    residual = np.square(predicted).sum(axis=3)[:, :, None, :] - 2.0 * (Z @ predicted.swapaxes(2, 3))
    chosen: Int64 = residual.argmin(axis=3)
    return chosen


@dataclass(frozen=True)
class Estimates:
    """Coefficients of the three estimators, each float64 (r, d, l), and how often the assignment was right, (r,)."""

    noas: Float64
    assigned: Float64
    oracle: Float64
    accuracy: Float64

    @classmethod
    def of(cls, X: Float64, Z: Float64) -> Estimates:
        """Learn from X (r, m, g, d) and Z (r, m, g, l). Row i of Z belongs to row i of X.

        Only the oracle uses that: sums do not see the order in a group, and `assign_outputs` compares each output with
        all members. So the unknown permutation of the paper need not be drawn. An output is assigned right if the
        chosen member's own output is the same: itself in regression, one of the same label in classification.
        """
        r, m, g, d = X.shape
        rows, outputs = X.reshape(r, m * g, d), Z.reshape(r, m * g, -1)
        noas = least_squares(X.sum(axis=2), Z.sum(axis=2))
        chosen = assign_outputs(X, Z, noas)
        assigned = least_squares(_members(X, chosen), outputs)
        right = (_members(Z, chosen) == outputs).all(axis=2)
        return cls(noas, assigned, least_squares(rows, outputs), right.mean(axis=1))


def _members(values: Float64, chosen: Int64) -> Float64:
    """The `chosen` (r, m, k) of each group of `values` (r, m, g, c), as (r, m k, c)."""
    r, m, g, c = values.shape
    first = g * np.arange(r * m).reshape(r, m, 1)
    # Whole rows at once: several times as fast as np.take_along_axis.
    members: Float64 = np.take(values.reshape(-1, c), (first + chosen).reshape(r, -1), axis=0)
    return members


class Trials(Protocol):
    """Everything random of a block of r repetitions; settings change what is made of it, and nothing else."""

    def data(self, value: float) -> tuple[Float64, Float64]:
        """Rows (r, m, g, d) and their outputs (r, m, g, l) at a value of the setting."""
        ...

    def error(self, B: Float64) -> Float64:
        """How wrong the coefficients (r, d, l) are, (r,)."""
        ...


class Simulation(Component):
    """Base of the simulations of Shen et al., "Extreme Multi-label Classification from Aggregated Labels" (ICML 2020).

    The paper's sizes are the defaults (Appendix B.1); it does not say how often it repeated them. All values of
    a setting, and all estimators, see the same random numbers: curves differ by the setting, not by luck, and a value's
    figures do not depend on which others are asked for.

    Cost O(repetitions values n (d (d + l) + g l)); memory bounded by blocks of repetitions.
    """

    group_size: int = Field(10, ge=1, le=100, description="Number of rows per group (g).")
    n_rows: int = Field(1_000, ge=1, le=100_000, title="Rows", description="Number of rows in all groups together (n).")
    n_features: int = Field(10, ge=1, le=100, title="Features", description="Number of features per row (d).")
    repetitions: int = Field(
        40,
        ge=2,
        le=100_000,
        description="Number of independent repetitions that are averaged. More repetitions make the curves smoother.",
    )

    @model_validator(mode="after")
    def _groups_are_even_and_enough(self) -> Self:
        n_groups, rest = divmod(self.n_rows, self.group_size)
        if rest:
            raise ValueError(
                f"n_rows must be a multiple of group_size, got {self.n_rows} rows in groups of {self.group_size}; "
                f"the nearest below is {n_groups * self.group_size}"
            )
        # With fewer, the squared error of least squares on Gaussian sums has no mean to speak of.
        enough = self.n_features + 2
        if n_groups < enough:
            raise ValueError(
                f"the sums of {n_groups} groups are too few to learn {self.n_features} coefficients; expected "
                f"n_rows >= group_size * (n_features + 2) = {self.group_size * enough}, got {self.n_rows}"
            )
        return self

    def run(self, rng: np.random.Generator, report: Report = silent) -> pa.Table:
        """Simulate; the same options and generator state give the same bits for any number of threads.

        Returns
        -------
        pa.Table
            A row for each value of the setting and each of `ESTIMATORS`, in that order: `setting` (its name), `value`,
            `estimator`, `error_mean` and `error_std` over the repetitions, `ratio_to_oracle` (of the means; null where
            the oracle makes no error), and `assignment_accuracy` (its mean; null but for `as`).
        """
        _, values = self._setting()
        blocks = list(row_blocks(self.repetitions, max(1, _BLOCK_VALUES // self._values_a_repetition())))
        errors = np.empty((len(values), len(ESTIMATORS), self.repetitions))
        accuracy = np.empty((len(values), self.repetitions))
        with single_threaded_blas():
            for step, block in enumerate(blocks, start=1):
                trials = self.draw(block.stop - block.start, rng)
                for i, value in enumerate(values):
                    found = Estimates.of(*trials.data(value))
                    errors[i, :, block] = [trials.error(B) for B in (found.noas, found.assigned, found.oracle)]
                    accuracy[i, block] = found.accuracy
                report(step, len(blocks))
        return self._table(errors, accuracy)

    def _table(self, errors: Float64, accuracy: Float64) -> pa.Table:
        name, values = self._setting()
        mean = errors.mean(axis=2)
        oracle = np.broadcast_to(mean[:, -1:], mean.shape)
        ratio = np.divide(mean, oracle, out=np.zeros_like(mean), where=oracle > 0)
        hit = np.broadcast_to(accuracy.mean(axis=1, keepdims=True), mean.shape)
        is_as = np.tile([estimator == "as" for estimator in ESTIMATORS], len(values))
        return pa.table(
            {
                "setting": pa.array([name] * mean.size, pa.string()),
                "value": pa.array(np.repeat(np.array(values, np.float64), len(ESTIMATORS))),
                "estimator": pa.array(ESTIMATORS * len(values), pa.string()),
                "error_mean": pa.array(mean.ravel()),
                "error_std": pa.array(errors.std(axis=2, ddof=1).ravel()),
                "ratio_to_oracle": pa.array(ratio.ravel(), mask=oracle.ravel() == 0),
                "assignment_accuracy": pa.array(hit.ravel(), mask=~is_as),
            }
        )

    @abstractmethod
    def _setting(self) -> tuple[str, tuple[float, ...]]:
        """Name and values of what is varied."""

    @abstractmethod
    def draw(self, n: int, rng: np.random.Generator) -> Trials:
        """Everything random of n repetitions."""

    @abstractmethod
    def _values_a_repetition(self) -> int:
        """Size of a repetition's largest array."""


class RegressionSimulation(Simulation):
    """Regression with outputs known for groups only: Section 5, Theorem 1 and Figures 3 and 6 (left).

    Rows are ``x_i = c_j + d_i`` with centres ``c_j ~ N(0, sigma1^2 I)`` and deviations ``d_i ~ N(0, sigma2^2 I)``,
    outputs ``z_i = B*' x_i + e_i`` with ``e_i ~ N(0, sigma_e^2 I)``; B* is Gaussian, scaled to spectral norm 1. The
    error of a repetition is the root mean square over the entries of ``B - B*``.

    As sigma2 grows, `noas` tends to sqrt(g) times the oracle's error (a little above, for the sums are few) and `as`
    to the oracle's; where groups are tight, wrong assignments make `as` the worse of the two.

    Not recoverable from the paper: the law of B*, and whether its RMS is of coefficients or of predictions. For
    isotropic rows the two have the same ratio.
    """

    kind: Literal["regression"] = "regression"
    n_outputs: int = Field(5, ge=1, le=100, title="Outputs", description="Number of outputs per row (l).")
    sigma1: float = Field(1.0, ge=1e-3, le=1e3, description="Standard deviation of the group centres.")
    sigma_noise: float = Field(
        1.0, ge=1e-3, le=1e3, description="Standard deviation of the noise in the outputs (sigma_e)."
    )
    sigma2: tuple[Annotated[float, Field(ge=0, le=1e3)], ...] = Field(
        (0.0, 0.1, 1.0, 5.0, 10.0),
        min_length=1,
        description="Standard deviations of the rows around their group centre. There is one point of the "
        "curve per value. Larger values give more mixed groups.",
    )

    def _setting(self) -> tuple[str, tuple[float, ...]]:
        return "sigma2", self.sigma2

    def _values_a_repetition(self) -> int:
        return self.n_rows * max(self.n_features, self.n_outputs, self.group_size)

    def draw(self, n: int, rng: np.random.Generator) -> _RegressionTrials:
        n_groups = self.n_rows // self.group_size
        coefficients = rng.standard_normal((n, self.n_features, self.n_outputs))
        return _RegressionTrials(
            coefficients=coefficients / np.linalg.norm(coefficients, 2, axis=(1, 2), keepdims=True),
            centres=self.sigma1 * rng.standard_normal((n, n_groups, 1, self.n_features)),
            deviations=rng.standard_normal((n, n_groups, self.group_size, self.n_features)),
            noise=self.sigma_noise * rng.standard_normal((n, n_groups, self.group_size, self.n_outputs)),
        )


@dataclass(frozen=True)
class _RegressionTrials:
    coefficients: Float64  # (r, d, l)
    centres: Float64  # (r, m, 1, d)
    deviations: Float64  # (r, m, g, d), of variance 1
    noise: Float64  # (r, m, g, l)

    def data(self, value: float) -> tuple[Float64, Float64]:
        X = self.centres + value * self.deviations
        r, m, g, d = X.shape
        return X, (X.reshape(r, m * g, d) @ self.coefficients).reshape(self.noise.shape) + self.noise

    def error(self, B: Float64) -> Float64:
        squares: Float64 = np.square(B - self.coefficients).mean(axis=(1, 2))
        return np.sqrt(squares)


class ClassificationSimulation(Simulation):
    """Classification with labels known for groups only: Appendix B.1 and Figure 6 (right).

    A row is the prototype of a label plus noise, ``x_i = e*_c + N(0, sigma1^2 I)``, and its label is
    ``argmax_k <e*_k, x_i> + N(0, sigma_e^2)``. Each group has a favourite label k, drawn evenly; the prototypes of its
    rows are drawn from ``p = (1 + (exp(s) - 1) onehot_k) / (l - 1 + exp(s))``: at purity s = 0 groups are evenly mixed,
    and large s makes them pure. The error of a repetition is measured on `n_test` new rows with evenly
    drawn prototypes: the share of rows with a label other than ``argmax_k <b_k, x>``.

    Where groups are mixed, `as` errs less than `noas`. In pure groups the two meet, well above the oracle: the outputs
    of a group then all choose the same member, so that both learn from a single row per group.

    Not recoverable from the paper, and chosen here: the estimators, which are those of Eq. 3 on one-hot outputs, as
    Section 5 suggests; the law of the prototypes, which are even on the unit sphere as in the paper's theory (with
    Gaussian prototypes of unequal length `as` loses to `noas` at every purity, against what the paper reports); fresh
    rows for the prediction error; and the group's mix, since the printed one sums to more than 1. The paper calls s
    sigma2, and takes the same values for it as in the regression. The oracle errs on few rows, most of them in the few
    repetitions where two prototypes lie close: the ratio needs many repetitions.
    """

    kind: Literal["classification"] = "classification"
    n_labels: int = Field(
        5, ge=2, le=100, title="Labels", description="Number of labels (l). Each row has one of them."
    )
    sigma1: float = Field(0.1, ge=1e-3, le=1e3, description="Standard deviation of the rows around their prototype.")
    sigma_noise: float = Field(
        0.0, ge=0, le=1e3, description="Standard deviation of the noise in the labels (sigma_e)."
    )
    purity: tuple[Annotated[float, Field(ge=0, le=100)], ...] = Field(
        (0.0, 0.1, 1.0, 5.0, 10.0),
        min_length=1,
        description="How strongly a group prefers one label (s). There is one point of the curve per value. 0: "
        "evenly mixed groups; large values: pure groups.",
    )
    n_test: int = Field(
        1_000,
        ge=1,
        le=100_000,
        title="Test rows",
        description="Number of new rows per repetition on which the error is measured.",
    )
    repetitions: int = Field(
        400,
        ge=2,
        le=100_000,
        description="Number of independent repetitions that are averaged. More repetitions make the curves smoother.",
    )

    def _setting(self) -> tuple[str, tuple[float, ...]]:
        return "purity", self.purity

    def _values_a_repetition(self) -> int:
        widest = max(self.n_features, self.n_labels, self.group_size)
        return max(self.n_rows, self.n_test) * widest

    def draw(self, n: int, rng: np.random.Generator) -> _ClassificationTrials:
        def noise(n_rows: int) -> tuple[Float64, Float64]:
            deviations = rng.standard_normal((n, n_rows, self.n_features))
            return self.sigma1 * deviations, self.sigma_noise * rng.standard_normal((n, n_rows, self.n_labels))

        directions = rng.standard_normal((n, self.n_labels, self.n_features))
        prototypes = directions / np.linalg.norm(directions, axis=2, keepdims=True)
        test_rows = _rows_of(prototypes, rng.integers(self.n_labels, size=(n, self.n_test)), *noise(self.n_test))
        groups = (n, self.n_rows // self.group_size, self.group_size)
        return _ClassificationTrials(
            prototypes,
            *test_rows,
            favourite=rng.integers(self.n_labels, size=(*groups[:2], 1)),
            any_label=rng.integers(self.n_labels, size=groups),
            uniform=rng.random(groups),
            noise=noise(self.n_rows),
        )


@dataclass(frozen=True)
class _ClassificationTrials:
    prototypes: Float64  # (r, l, d), of length 1
    X_test: Float64  # (r, t, d)
    y_test: Int64  # (r, t)
    favourite: Int64  # (r, m, 1)
    any_label: Int64  # (r, m, g)
    uniform: Float64  # (r, m, g)
    noise: tuple[Float64, Float64]  # of rows (r, n, d), of labels (r, n, l)

    def data(self, value: float) -> tuple[Float64, Float64]:
        r, n_labels, _ = self.prototypes.shape
        # p is a mixture of the favourite, with this probability, and of all labels evenly.
        follows = np.expm1(value) / (n_labels + np.expm1(value))
        source = np.where(self.uniform < follows, self.favourite, self.any_label)
        X, y = _rows_of(self.prototypes, source.reshape(r, -1), *self.noise)
        return X.reshape(*source.shape, -1), np.eye(n_labels)[y].reshape(*source.shape, n_labels)

    def error(self, B: Float64) -> Float64:
        wrong: Float64 = ((self.X_test @ B).argmax(axis=2) != self.y_test).mean(axis=1)
        return wrong


def _rows_of(prototypes: Float64, source: Int64, deviations: Float64, label_noise: Float64) -> tuple[Float64, Int64]:
    """Rows near the prototypes `source` (r, n), and the label with the most similar prototype, after adding noise."""
    X = _members(prototypes[:, None], source[:, None]) + deviations
    return X, (X @ prototypes.swapaxes(1, 2) + label_noise).argmax(axis=2)
