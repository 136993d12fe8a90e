"""Options of a label subset selection, and the stage that makes one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from xcore.components import Report
from xcore.errors import ConfigError
from xcore.numeric.matrices import CSR, Float64, sparse_of_dense
from xcore.selection.dictionary import label_products, representation_by, self_representation
from xcore.selection.linearised import Settings, Solution, represent
from xcore.selection.reconstruction import (
    Reconstruction,
    chosen_columns,
    least_squares_coefficients,
    reconstruction_of,
)
from xcore.selection.scores import prediction_scores
from xcore.selection.selected import Convergence, FittedSelection
from xcore.selection.set_functions import Chosen, SubsetValue, affinity_of, greedy
from xcore.selection.splitting import Schedule
from xcore.training.checkpoints import Checkpoints, training_name
from xcore.training.context import FitContext
from xcore.training.data import TrainingData, Wish
from xcore.training.stages import Stage


class _Half:
    """The progress of the first or the second solve, as one half of the whole."""

    def __init__(self, report: Report, number: int) -> None:
        self._report, self._number = report, number

    def __call__(self, step: int, total: int, metrics: Mapping[str, float] | None = None) -> None:
        self._report(50 * self._number + 50 * step // max(total, 1), 100, metrics)


class LabelSelection(Stage):
    """Choose a few labels that stand for all labels, and mark the labels that nothing stands for (outliers).

    Notes
    -----
    Each label is represented by the others, ``Y = Y Z + E`` with few non-zeros in Z and few non-zero columns in E. The
    affinity of two labels is the size of their coefficients. The chosen labels have much affinity with the rest and
    little among themselves; a score prefers labels that the features predict well. The rest is reconstructed from
    the chosen labels by a second representation. Labels with a large error in it are outliers.

    The self-representation costs O(n s^2) for s labels per row, and O(iterations c |z|_0) for each label with c
    candidates. The choice costs O(L + nnz(Z)). No dense rows x labels matrix exists.
    """

    artifact: ClassVar[str] = "selection"
    learns_labels: ClassVar[bool] = True
    wants: ClassVar[frozenset[Wish]] = frozenset({"labels"})
    is_random: ClassVar[bool] = False

    budget: int = Field(
        100, ge=1, description="Number of labels to choose. More labels cost more training time and lose less accuracy."
    )
    error_weight: float = Field(
        0.5,
        gt=0,
        description="Weight of the errors of the representation. Labels with at most 1 / weight^2 training rows are "
        "always outliers. A larger weight represents more labels, by more others.",
    )
    overlap_penalty: float = Field(
        0.0,
        ge=0,
        description="Additional weight of the affinity between chosen labels. A larger weight chooses labels that are "
        "less alike.",
    )
    score_weight: float = Field(
        1.0,
        ge=0,
        description="Weight of how well the features predict a label. 0 chooses by the affinity of labels alone, and "
        "works for rows of every form.",
    )
    score: Literal["fit", "residual"] = Field(
        "fit",
        description="fit: share of a label's variance that a ridge regression explains; prefers rare labels that fit "
        "easily. residual: minus its squared error.",
    )
    score_ridge: float = Field(1.0, gt=0, description="Weight of the L2 penalty of the regression for the score.")
    score_features: int = Field(
        2048,
        ge=1,
        description="Maximum number of features that the score uses: those with the largest sums of squares. More "
        "features make the score more precise and slower.",
    )
    affinity: Literal["symmetric", "directed"] = Field(
        "symmetric", description="symmetric: mean of both directions. directed: the coefficients as they are."
    )
    reconstruction: Literal["sparse", "least_squares", "rows"] = Field(
        "sparse",
        description="How chosen labels stand for the rest. sparse: a new representation by the chosen labels. "
        "least_squares: the best linear map, which is dense. rows: the coefficients of the first representation.",
    )
    outlier_above: float = Field(
        0.8,
        ge=0,
        description="Labels with a larger relative error of reconstruction are outliers, which are trained like chosen "
        "labels. 0: every label that is not exact. 1 or more: no outliers.",
    )
    stop_at_loss: bool = Field(
        False, description="Stop before the budget is used if every further label would lower the objective."
    )
    max_candidates: int = Field(
        256,
        ge=1,
        description="Maximum number of labels that may represent a label: those with the largest cosine. Time grows "
        "with it.",
    )
    growth: float = Field(
        1.1,
        ge=1,
        le=2,
        description="Factor of the ADMM penalty per iteration. 1 is exact and slow; larger values end sooner, a little "
        "above the optimum.",
    )
    first_penalty: float = Field(0.01, gt=0, description="ADMM penalty of the first iteration.")
    tolerance: float = Field(1e-6, gt=0, description="The ADMM of a label ends at this residual.")
    max_iterations: int = Field(500, ge=1, description="Maximum number of ADMM iterations per label.")

    @property
    def settings(self) -> Settings:
        """The numbers of the solver."""
        schedule = Schedule(
            sigma=self.first_penalty,
            growth=self.growth,
            tolerance=self.tolerance,
            max_iterations=self.max_iterations,
        )
        return Settings.of(self.error_weight, schedule, self.max_candidates)

    def fit(self, data: TrainingData, context: FitContext) -> FittedSelection:
        """Choose labels; a killed fit continues from the blocks of labels that it had solved."""
        with context.limited_threads():
            return self._fit(data, context)

    def _fit(self, data: TrainingData, context: FitContext) -> FittedSelection:
        products = label_products(data.Y)
        counts = np.bincount(data.Y.indices, minlength=data.n_labels)
        name = training_name(self.options(), 0, (data.Y,)) if context.scratch else ""
        kept = {solve: Checkpoints(context.scratch and context.scratch / solve, name) for solve in ("affinity", "map")}
        first = _Half(context.report, 0)
        solved = represent(self_representation(products), self.settings, kept["affinity"], first)
        value = SubsetValue(*self._scaled_affinity(solved.coefficients), self._scores(data))
        chosen = greedy(value, self.budget, counts > 0, self.stop_at_loss)
        second = _Half(context.report, 1)
        mapped, convergence = self._reconstruct(products, chosen, solved, kept["map"], second)
        second(1, 1)
        names = list(data.labels.texts) if data.labels is not None else [""] * data.n_labels
        outliers = mapped.outliers(self.outlier_above)
        known = (counts.astype(np.int64), mapped.errors, mapped.coefficients)
        return FittedSelection(chosen.labels, chosen.gains, outliers, *known, names, convergence)

    def _scaled_affinity(self, coefficients: CSR) -> tuple[CSR, float]:
        """The affinity with a largest column sum of 1, so that the weight of the score means the same everywhere."""
        affinity = affinity_of(coefficients, self.affinity)
        largest = float(np.bincount(affinity.indices, affinity.data, 1).max(initial=0.0))
        return (affinity / largest if largest else affinity), self.overlap_penalty

    def _scores(self, data: TrainingData) -> Float64:
        if not self.score_weight:
            return np.zeros(data.n_labels)
        if data.form not in ("sparse", "vector"):
            raise ConfigError(
                f"selection.score_weight is {self.score_weight}, but the score needs sparse or vector rows, and the "
                f"rows are {data.form}. Set selection.score_weight: 0"
            )
        X = data.X if data.form == "sparse" else sparse_of_dense(data.X)
        scores = prediction_scores(X, data.Y, self.score_ridge, self.score_features, self.score)
        return self.score_weight * scores / max(float(scores.max(initial=0.0)), np.finfo(np.float64).tiny)

    def _reconstruct(
        self, products: CSR, chosen: Chosen, solved: Solution, checkpoints: Checkpoints, report: Report
    ) -> tuple[Reconstruction, list[Convergence]]:
        labels, convergence = chosen.labels, [Convergence.of("affinity", solved)]
        if self.reconstruction == "sparse":
            again = represent(representation_by(products, labels), self.settings, checkpoints, report)
            convergence.append(Convergence.of("map", again))
            coefficients = again.coefficients
        elif self.reconstruction == "rows":
            coefficients = chosen_columns(solved.coefficients, labels)
        else:
            coefficients = least_squares_coefficients(products, labels)
        return reconstruction_of(coefficients, products, labels), convergence

    @classmethod
    def load(cls, directory: Path) -> FittedSelection:
        """Open what `FittedSelection.save` wrote."""
        return FittedSelection.load(directory)
