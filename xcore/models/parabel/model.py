"""Options of the linear label tree, and the fitted forest that predicts and saves itself."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, Self

import numba
import numpy as np
from pydantic import Field

from xcore.components import Report
from xcore.errors import ConfigError
from xcore.grouping.label_tree import Shape, embed_labels, order_labels
from xcore.models.base import Model, rows_for
from xcore.models.parabel import saved
from xcore.models.parabel.calibration import fit_curves
from xcore.models.parabel.forest import Chunks, Solver, train_forest
from xcore.models.parabel.search import best_labels, search_forest
from xcore.numeric.matrices import CSR, Float32, Int32, Int64, TopK, csr, row_blocks
from xcore.numeric.parallel import SparseRows, over_blocks
from xcore.training.checkpoints import Checkpoints, Pieces
from xcore.training.context import FitContext
from xcore.training.data import Matrix, RowForm, TrainingData, canonical_csr

BLOCK_SCORES = 2**22  # child scores that one thread holds at a time while predicting
CALIBRATION_OFFERS = 50
STEPS = 1000  # in which a training's progress is reported
ALREADY_ONE = 1e-5  # a squared length this near 1 differs from it by the rounding of float32
# A branch, or a label, takes the share sigmoid(sharpness * margin) of its parent's score. A branch that is wrongly
# doubted loses all its labels, so it is judged more gently. Chosen on held-out training rows: EURLEX57K, YSO titles.
SHARPNESS = {"squared_hinge": (2.5, 4.0), "logistic": (1.0, 1.0)}


class Parabel(Model):
    """Balanced label tree with linear classifiers (Parabel; wider and flatter trees are Bonsai and XR-Linear).

    Labels with similar mean rows share a branch. A prediction follows the few best branches. The score of a label is
    the product of the shares along its path, averaged over the trees.

    Notes
    -----
    - A label without a training row is in no tree and is never offered. A row without labels is a negative at the root.
    - Targets q below 1 that are read as weights multiply their part of the loss; a branch takes the largest weight of
      its labels. Read as targets, a row counts in a node with the chance m that any of the node's labels is its own:
      q of the loss as a positive of a child, m - q as a negative. The chance of several labels is that of independent
      ones, and the root has m = 1.
    - ``depth=0`` is one-vs-all; ``arity=2, leaf_size=100, n_trees=3`` is the published Parabel.
    - The default cost and pruning are made for rows of length 1, as `normalise` makes them.
    - The default shape and passes were chosen on EURLEX57K's dev rows and on held-out training rows of YSO titles.
    - Cost of training: see `train_forest`. To predict a row with s features costs at most O(beam * arity * depth * s).
    """

    kind: Literal["parabel"] = "parabel"
    n_trees: int = Field(
        1,
        ge=1,
        le=100,
        title="Trees",
        description="Number of trees. Their scores are averaged. More trees are usually more accurate; time and size "
        "grow in proportion.",
    )
    arity: int = Field(
        64,
        ge=2,
        le=65536,
        description="Maximum number of children per node. If depth is set, each node has exactly this many.",
    )
    leaf_size: int = Field(
        100, ge=1, description="Maximum number of labels per leaf. Levels are added until the leaves are small enough."
    )
    depth: int | None = Field(
        None,
        ge=0,
        le=40,
        description="Number of levels above the labels. 0 is one-vs-all. Empty: the depth follows from leaf_size.",
    )
    loss: Literal["squared_hinge", "logistic"] = Field("squared_hinge", description="Loss of the linear classifiers.")
    cost: float = Field(
        1.0,
        gt=0,
        description="Weight of the loss relative to the L2 penalty (C). A larger cost fits the training rows "
        "more closely.",
    )
    bias: float = Field(1.0, ge=0, description="Value of the constant feature. 0: no intercept.")
    normalise: bool = Field(True, description="Scale each row of features to length 1, in training and in prediction.")
    tolerance: float = Field(
        0.1,
        gt=0,
        description="A classifier stops when the range of its dual gradients is at most this. A larger "
        "tolerance stops sooner.",
    )
    max_passes: int = Field(20, ge=1, description="Maximum number of passes over the rows of a node.")
    prune_below: float = Field(
        0.1,
        ge=0,
        description="Weights with a smaller absolute value are set to 0. A larger limit makes the model "
        "smaller; 0 keeps all.",
    )
    beam: int = Field(
        10,
        ge=1,
        description="Number of nodes per level that a prediction follows. A larger beam is slower and misses "
        "fewer labels.",
    )
    calibrate: Literal["none", "platt"] = Field(
        "none",
        description="none: raw scores. platt: the scores become probabilities; this trains a second model "
        "without the held-out rows.",
    )
    calibration_share: float = Field(
        0.1,
        gt=0,
        le=0.5,
        description="Share of the rows that is held out to fit the probabilities. The final model is trained "
        "on all rows.",
    )

    def _fit(self, data: TrainingData, context: FitContext) -> FittedParabel:
        """Cluster the labels, train all classifiers, and fit probabilities if asked to."""
        X, Y, rng = canonical_csr(data.X), canonical_csr(data.Y), context.rng
        if self.normalise:
            rows = _unit_rows(SparseRows.of(X))
            X = csr(rows.data, rows.indices, rows.indptr, X.shape[1])
        is_soft = data.has_soft_targets
        options = self.options() | ({"is_soft": True} if is_soft else {})
        kept = Checkpoints.of(context.scratch, options, _seed_of(rng), (X, Y))
        if self.calibrate == "none":
            return self._fit_forest(X, Y, is_soft, rng, _Progress(context.report, 0, 1), Pieces(kept, "whole"))
        shuffled = rng.permutation(X.shape[0])
        n_held = max(1, round(self.calibration_share * X.shape[0]))
        held, rest = np.sort(shuffled[:n_held]), np.sort(shuffled[n_held:])
        if not Y[rest].nnz:
            raise ConfigError(
                f"calibrate: platt holds out {n_held} of {X.shape[0]} rows, and no label is left in the others. "
                "Give more rows, lower calibration_share, or set calibrate: none"
            )
        progress = [_Progress(context.report, number, 2) for number in range(2)]
        partial = self._fit_forest(X[rest], Y[rest], is_soft, rng, progress[0], Pieces(kept, "partial"))
        curves = fit_curves(partial.predict_topk(X[held], CALIBRATION_OFFERS), Y[held])
        whole = self._fit_forest(X, Y, is_soft, rng, progress[1], Pieces(kept, "whole"))
        return replace(whole, slopes=curves[0], offsets=curves[1])

    def _fit_forest(
        self, X: CSR, Y: CSR, is_soft: bool, rng: np.random.Generator, progress: _Progress, pieces: Pieces
    ) -> FittedParabel:
        seen = np.flatnonzero(np.bincount(Y.indices, minlength=Y.shape[1])).astype(np.int32)
        if not len(seen):
            raise ConfigError(
                f"none of the {Y.shape[0]} training rows has a label: parabel needs at least one positive"
            )
        by_label = canonical_csr(Y.T.tocsr())
        positives = canonical_csr(by_label[seen])
        shape = Shape.of(len(seen), self.arity, self.leaf_size, self.depth)
        embeddings = embed_labels(X, positives) if shape.depth else None
        orders = np.empty((self.n_trees, len(seen)), np.int32)
        for tree in range(self.n_trees):
            orders[tree] = order_labels(embeddings, shape, rng) if embeddings is not None else np.arange(len(seen))
        seeds = rng.integers(0, 2**63, (self.n_trees, shape.n_nodes), dtype=np.uint64)
        del embeddings
        solver = Solver(self.loss, self.cost, self.bias, self.tolerance, self.max_passes, self.prune_below, is_soft)
        chunks = train_forest(X, positives, orders, shape, solver, seeds, progress, pieces)
        return FittedParabel(
            X.shape[1],
            Y.shape[1],
            shape.arity,
            shape.depth,
            self.beam,
            SHARPNESS[self.loss],
            self.normalise,
            seen[orders],
            chunks,
        )

    @property
    def two_readings(self) -> bool:
        return True

    @classmethod
    def load(cls, directory: Path) -> FittedParabel:
        """Open a model that `FittedParabel.save` wrote."""
        return FittedParabel.load(directory)


@dataclass(frozen=True)
class _Progress:
    """Reports the tasks of one of several trainings as steps of the whole; trainings may differ in their tasks."""

    report: Report
    training: int
    n_trainings: int

    def __call__(self, step: int, total: int) -> None:
        self.report(STEPS * self.training + STEPS * step // total, STEPS * self.n_trainings)


def _seed_of(rng: np.random.Generator) -> int:
    """A number that tells generator states apart; the generator is not moved."""
    return zlib.crc32(json.dumps(rng.bit_generator.state, sort_keys=True, default=str).encode())


def _unit_rows(rows: SparseRows) -> SparseRows:
    """Rows of length 1; those that are so already, as TF-IDF makes them, stay as they are, without a copy if all do."""
    scales = _row_scales(rows)
    if np.all(scales == 1):
        return rows
    # out here because a compiled function cannot return arrays that are read-only or not, as mapped files may be
    return SparseRows(_scaled(rows, scales), rows.indices, rows.indptr)


@numba.njit(cache=True, nogil=True)
def _row_scales(rows: SparseRows) -> Float32:
    scales = np.ones(len(rows.indptr) - 1, np.float32)
    for i in range(len(scales)):
        square = 0.0
        for value in rows.data[rows.indptr[i] : rows.indptr[i + 1]]:
            square += np.float64(value) * value
        if square > 0 and abs(square - 1) > ALREADY_ONE:
            scales[i] = 1 / np.sqrt(square)
    return scales


@numba.njit(cache=True, nogil=True)
def _scaled(rows: SparseRows, scales: Float32) -> Float32:
    values = rows.data.copy()
    for i in range(len(scales)):
        values[rows.indptr[i] : rows.indptr[i + 1]] *= scales[i]
    return values


def _no_curve() -> Float32:
    return np.empty(0, np.float32)


@dataclass
class FittedParabel:
    """A trained forest.

    Attributes
    ----------
    arity, depth : int
        Shape of every tree.
    beam : int
        Nodes of each level that a prediction follows.
    sharpness : (float, float)
        A branch with margin ``m`` takes the share ``sigmoid(sharpness[0] * m)`` of its parent's score; a label, with
        ``sharpness[1]``.
    normalise : bool
        Rows are scaled to length 1 first.
    orders : int32 (n_trees, m)
        The m labels seen in training, in the order of each tree's leaves.
    chunks : Chunks
        Weights of the classifiers.
    slopes, offsets : float32 (n_labels,), or empty
        Curves of `fit_curves`.
    """

    n_features: int
    n_labels: int
    arity: int
    depth: int
    beam: int
    sharpness: tuple[float, float]
    normalise: bool
    orders: Int32
    chunks: Chunks
    slopes: Float32 = field(default_factory=_no_curve)
    offsets: Float32 = field(default_factory=_no_curve)

    @property
    def form(self) -> RowForm:
        return "sparse"

    def predict_topk(self, X: Matrix, k: int) -> TopK:
        """The k best labels of each row, with scores in [0, 1]; equal scores by ascending label.

        At most the labels of `beam` last nodes are offered. Memory is bounded by blocks of rows.
        """
        X = rows_for(self, X, k)
        rows = _unit_rows(SparseRows.of(X)) if self.normalise else SparseRows.of(X)
        levels, first_children, edges = self._layout
        top = TopK(np.empty((X.shape[0], k), np.int32), np.empty((X.shape[0], k), np.float32))

        def predict(part: slice) -> None:
            block = rows._replace(indptr=rows.indptr[part.start : part.stop + 1])
            nodes, found = search_forest(
                block, self.n_features, levels, first_children, self.chunks, len(self.orders), self.beam, self.sharpness
            )
            curves, out = (self.slopes, self.offsets), (top.labels[part], top.scores[part])
            best_labels(nodes, found, levels[-2], edges, self.orders, self.n_labels, *curves, *out)

        over_blocks(predict, row_blocks(X.shape[0], self._block_rows(X.shape[0])))
        return top

    @cached_property
    def _layout(self) -> tuple[Int64, Int64, Int64]:
        """First node of each level, first classifier of each node, first label place of each last node."""
        shape = Shape(self.orders.shape[1], self.arity, self.depth)
        return shape.level_starts(), shape.child_starts(), shape.bounds(shape.depth)

    def _block_rows(self, n: int) -> int:
        """Rows of a block: few enough for the memory, and as many blocks as threads."""
        n_leaves = self.arity**self.depth
        held, widest = min(self.beam, n_leaves), max(self.arity, -(-self.orders.shape[1] // n_leaves))
        room = BLOCK_SCORES // (len(self.orders) * held * widest)
        return int(max(1, min(room, -(-n // numba.get_num_threads()))))

    def save(self, directory: Path) -> None:
        """Write ``weights.safetensors`` and ``model.json``."""
        about = saved.About(
            n_features=self.n_features,
            n_labels=self.n_labels,
            arity=self.arity,
            depth=self.depth,
            beam=self.beam,
            sharpness=self.sharpness,
            normalise=self.normalise,
        )
        arrays = self.chunks._asdict() | {"orders": self.orders, "slopes": self.slopes, "offsets": self.offsets}
        saved.save(directory, about, arrays)

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Map what `save` wrote into memory; the indices are checked, the weights are not read before their use."""
        return cls(**saved.load(directory))
