"""One-vs-all linear scorers: ridge regression from one factorisation, or support vector machines. The others' oracle.

For features X (n, d) and targets Y (n, L; the weight of a positive, 0 elsewhere), with column means x̄ and ȳ,

    W = (XᵀX - n x̄ x̄ᵀ + λ I)⁻¹ (XᵀY - n x̄ ȳᵀ),    score(x) = x W + (ȳ - x̄ W).

The matrix to factorise is the same for all labels, so labels cost one back-substitution each. The intercept leaves
precision on EURLEX57K as it is, and gives a row without features the most frequent labels instead of arbitrary ones.

With the squared hinge loss, every label's scorer is that of a label tree of one level (`Parabel`), which trains it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Self

import numba
import numpy as np
import scipy.sparse as sp
from pydantic import Field

from xcore.errors import ConfigError
from xcore.models.base import Model, ScoreScale, rows_for
from xcore.models.parabel import FittedParabel, Parabel
from xcore.numeric.arrays import write_arrays
from xcore.numeric.checks import ArrayFile
from xcore.numeric.matrices import CSR, Float32, Int32, TopK, csr, normalise_rows, row_blocks
from xcore.numeric.parallel import SparseRows, over_blocks, single_threaded_blas
from xcore.numeric.ridge import RidgeProblem
from xcore.numeric.topk import best_first, clear, offer
from xcore.saved import Count, Described, read_json
from xcore.training.checkpoints import Checkpoints, Pieces
from xcore.training.context import FitContext
from xcore.training.data import Matrix, RowForm, TrainingData

ROW_BLOCK = 256
WAVE = 4  # label blocks between two reports of progress


class Ova(Model):
    """One-vs-all linear scorers on sparse features.

    Notes
    -----
    With the penalty ``ridge |w|^2`` and weights of positives p: ``loss: squared`` regresses on p; ``squared_hinge`` has
    ``sum p max(0, 1 - y score)^2``, trained by the solver of the label tree at its default tolerance and passes, where
    the intercept is penalised as a weight is. The rest is about ridge regression.

    With s non-zeros per row: training costs O(n s² + d³/3 + 2 d² L) time and 8 d² bytes for the matrix, plus
    8 d label_block bytes per thread; a prediction costs O(s) rows of kept weights, plus L. Labels without a training
    row are never offered. The same bits come out at any number of threads: blocks are fixed, and BLAS runs on one
    thread per block. (Another processor or BLAS may round differently.)
    """

    kind: Literal["ova"] = "ova"
    loss: Literal["squared", "squared_hinge"] = Field(
        "squared",
        description="squared: ridge regression, solved exactly. squared_hinge: linear support vector machines.",
    )
    ridge: float = Field(0.1, gt=0, description="Weight of the L2 penalty. A larger penalty shrinks the weights more.")
    prune: float = Field(
        0.01,
        ge=0,
        description="Weights with a smaller absolute value are set to 0. A larger limit makes the model "
        "smaller; 0 keeps all.",
    )
    normalise: bool = Field(True, description="Scale each row of features to length 1, in training and in prediction.")
    label_block: int = Field(
        256,
        ge=1,
        title="Labels per block",
        description="Number of labels that a thread solves at the same time. Memory grows in proportion.",
    )
    max_features: int = Field(
        20_000,
        ge=1,
        description="Maximum number of features. Data with more features is rejected, because training needs 8 "
        "bytes of memory for each pair of features.",
    )

    def _fit(self, data: TrainingData, context: FitContext) -> FittedOva:
        """Solve for all labels; ridge regression draws nothing."""
        if self.loss == "squared_hinge":
            cost = 0.5 / self.ridge  # ridge |w|^2 + loss is 2 ridge (1/2 |w|^2 + cost * loss)
            tree = Parabel(depth=0, loss=self.loss, cost=cost, prune_below=self.prune, normalise=self.normalise)
            return FittedOva.of_one_level(tree._fit(data, context))
        return self._fit_ridge(data, context)

    def _fit_ridge(self, data: TrainingData, context: FitContext) -> FittedOva:
        n_features, n_labels = data.X.shape[1], data.Y.shape[1]
        if n_features > self.max_features:
            raise ConfigError(
                f"ova factorises a matrix of features x features: {n_features:,} of them take "
                f"{8 * n_features**2 / 2**30:.1f} GiB, and max_features allows {self.max_features:,}. "
                "Reduce the features, raise max_features, or use kind: parabel"
            )
        labels = np.flatnonzero(np.bincount(data.Y.indices, minlength=n_labels)).astype(np.int32)
        X = normalise_rows(data.X) if self.normalise else data.X
        blocks = [labels[part] for part in row_blocks(len(labels), self.label_block)]
        n_steps = len(blocks) + 1
        pieces = Pieces(Checkpoints.of(context.scratch, self.options(), 0, (data.X, data.Y)))
        with single_threaded_blas():
            problem = RidgeProblem.of(X, data.Y, self.ridge)
            context.report(1, n_steps)
            parts = self._solve_blocks(problem, blocks, pieces, context)
        by_label = sp.vstack([part for part, _ in parts] or [sp.csr_array((0, n_features), dtype=np.float32)])
        weights = by_label.T.tocsr()
        intercept = np.concatenate([np.zeros(0, np.float32), *(part for _, part in parts)])
        kept = csr(weights.data, weights.indices, weights.indptr, len(labels))
        return FittedOva(kept, intercept, labels, n_features, n_labels, self.normalise)

    def _solve_blocks(
        self, problem: RidgeProblem, blocks: list[Int32], pieces: Pieces, context: FitContext
    ) -> list[tuple[CSR, Float32]]:
        """Kept weights and intercepts of every block of labels; a block that a killed fit had solved is not again."""
        n_features, solved = len(problem.x_mean), list[tuple[CSR, Float32]]()
        for wave in row_blocks(len(blocks), WAVE):
            numbers = [number for number in range(wave.start, wave.stop) if number not in pieces.done]
            made = over_blocks(lambda number: _kept_weights(problem, blocks[number], self.prune), numbers)
            fresh = dict(zip(numbers, made, strict=True))
            for number in range(wave.start, wave.stop):
                if number in fresh:
                    weights, intercept = fresh[number]
                    rows = {name: getattr(weights, name) for name in ("data", "indices", "indptr")}
                    pieces.add(number, rows | {"intercept": intercept})
                else:
                    kept = pieces.done[number]
                    weights = csr(kept["data"], kept["indices"], kept["indptr"], n_features)
                    intercept = kept["intercept"]
                solved.append((weights, intercept))
            context.report(1 + wave.stop, len(blocks) + 1)
        return solved

    @property
    def two_readings(self) -> bool:
        return self.loss == "squared_hinge"

    @property
    def score_scale(self) -> ScoreScale:
        return "margin" if self.loss == "squared_hinge" else "share"

    @classmethod
    def load(cls, directory: Path) -> FittedOva:
        """Open a model that `FittedOva.save` wrote."""
        return FittedOva.load(directory)


@dataclass
class FittedOva:
    """Weights of all labels that have a training row.

    Attributes
    ----------
    weights : CSR float32 (n_features, m)
        Kept weights, one column for each of the m trained labels.
    intercept : float32 (m,)
    labels : int32 (m,)
        Label id of each column, ascending.
    """

    weights: CSR
    intercept: Float32
    labels: Int32
    n_features: int
    n_labels: int
    normalise: bool

    @classmethod
    def of_one_level(cls, tree: FittedParabel) -> Self:
        """The classifiers of a tree without branches."""
        packed = tree.chunks
        sizes = np.zeros(tree.n_features, np.int64)
        sizes[packed.features] = np.diff(packed.line_starts)
        weights = packed.weights * packed.scales[packed.children]
        kept = csr(weights, packed.children, np.append(0, np.cumsum(sizes)), len(packed.biases))
        return cls(kept, packed.biases, tree.orders[0], tree.n_features, tree.n_labels, tree.normalise)

    @property
    def form(self) -> RowForm:
        return "sparse"

    def predict_topk(self, X: Matrix, k: int) -> TopK:
        """The k best labels of each row; ties go to the lower label id. Rows are scored one by one, in blocks."""
        X = rows_for(self, X, k)
        rows = SparseRows.of(normalise_rows(X) if self.normalise else X)
        scorer = _Scorer(SparseRows.of(self.weights), self.intercept, self.labels)
        top = TopK(np.empty((X.shape[0], k), np.int32), np.empty((X.shape[0], k), np.float32))

        def score(part: slice) -> None:
            block = rows._replace(indptr=rows.indptr[part.start : part.stop + 1])
            _score_rows(block, scorer, top.labels[part], top.scores[part])

        over_blocks(score, row_blocks(X.shape[0], ROW_BLOCK))
        return top

    def save(self, directory: Path) -> None:
        """Write ``weights.safetensors`` and ``model.json``."""
        arrays = {name: getattr(self.weights, name) for name in ("data", "indices", "indptr")}
        write_arrays(directory / "weights.safetensors", arrays | {"intercept": self.intercept, "labels": self.labels})
        shape = {"n_features": self.n_features, "n_labels": self.n_labels, "normalise": self.normalise}
        (directory / "model.json").write_text(json.dumps({"kind": "ova"} | shape, indent=2) + "\n")

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read what `save` wrote."""
        about = read_json(directory / "model.json", _About)
        with ArrayFile(directory / "weights.safetensors") as file:
            labels = file.take("labels", np.int32, (None,)).within(0, about.n_labels).ascending().array
            intercept = file.take("intercept", np.float32, labels.shape).finite().array
            data = file.take("data", np.float32, (None,)).finite().array
            indices = file.take("indices", np.int32, data.shape).within(0, len(labels)).array
            indptr = file.take("indptr", np.int64, (about.n_features + 1,)).offsets(len(data)).array
        weights = csr(data, indices, indptr, len(labels))
        return cls(weights, intercept, labels, about.n_features, about.n_labels, about.normalise)


class _About(Described):
    """``model.json``."""

    kind: Literal["ova"]
    n_features: Count
    n_labels: Count
    normalise: bool


def _kept_weights(problem: RidgeProblem, labels: Int32, prune: float) -> tuple[CSR, Float32]:
    """Kept weights (labels, d) and intercepts (labels,) of a block of labels."""
    weights = problem.solved(problem.right_sides(labels))
    weights[np.abs(weights) < prune] = 0.0
    intercept = problem.y_mean[labels] - weights @ problem.x_mean
    return sp.csr_array(weights.astype(np.float32)), intercept.astype(np.float32)


class _Scorer(NamedTuple):
    weights: SparseRows  # (d, m)
    intercept: Float32  # (m,)
    labels: Int32  # (m,)


@numba.njit(cache=True, nogil=True)
def _score_rows(rows: SparseRows, scorer: _Scorer, top_labels: Int32, top_scores: Float32) -> None:
    """Score all labels for one row at a time, and keep the k best."""
    weights = scorer.weights
    scores = np.empty_like(scorer.intercept)
    clear(top_scores, top_labels)
    for r in range(len(rows.indptr) - 1):
        scores[:] = scorer.intercept
        for p in range(rows.indptr[r], rows.indptr[r + 1]):
            feature, value = rows.indices[p], rows.data[p]
            for q in range(weights.indptr[feature], weights.indptr[feature + 1]):
                scores[weights.indices[q]] += value * weights.data[q]
        for column in range(len(scores)):
            offer(top_scores[r], top_labels[r], scores[column], scorer.labels[column])
        best_first(top_scores[r], top_labels[r])
