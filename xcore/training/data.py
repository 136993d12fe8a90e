"""What a fit learns from: rows in the form that the model takes, targets, and what else the model asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import scipy.sparse as sp

from xcore.errors import ConfigError
from xcore.numeric.matrices import (
    CSR,
    Int64,
    binary_csr,
    csr,
    row_blocks,
    sparse_of_dense,
    sparse_of_images,
    vectors_of_images,
)
from xcore.numeric.ragged import TokenRows

RowForm: TypeAlias = Literal["sparse", "vector", "tokens", "text", "image"]
Matrix: TypeAlias = Any  # rows in memory: CSR, a float32 or uint8 array, `TokenRows`, or a list of texts
Wish: TypeAlias = Literal["dev", "labels", "names", "bags"]  # names: the labels' texts, but not as rows

# What a target q below 1 says. weight: the positive counts with q of its loss. target: the label is the row's with the
# chance q, so q of the loss counts as a positive and 1 - q as a negative.
Reading: TypeAlias = Literal["weight", "target"]

# From the form that rows have to the one that is wanted.
CONVERSIONS: dict[tuple[RowForm, RowForm], Callable[[Matrix], Matrix]] = {
    ("vector", "sparse"): sparse_of_dense,
    ("image", "vector"): vectors_of_images,
    ("image", "sparse"): sparse_of_images,
}

BLOCK_ROWS = 16384


class Rows(Protocol):
    """The rows of one split, in one form; read when asked for."""

    @property
    def form(self) -> RowForm: ...

    def whole(self) -> Matrix:
        """All rows at once."""
        ...

    def blocks(self) -> Iterator[Matrix]:
        """All rows in order, a block at a time; may be called again and again."""
        ...


@dataclass(frozen=True)
class RowsInMemory:
    """Rows that are there already."""

    X: Matrix
    form: RowForm

    def whole(self) -> Matrix:
        return self.X

    def blocks(self) -> Iterator[Matrix]:
        return (self.X[part] for part in row_blocks(n_rows_of(self.X), BLOCK_ROWS))


@dataclass(frozen=True)
class Bags:
    """Rows that belong together.

    Attributes
    ----------
    members : CSR (n_bags, n_rows)
        Stored entries are the rows of each bag.
    Y : CSR float32 (n_bags, L) or None
        Labels of the bags. None: the labels of their rows, added up.
    counted : bool
        Whether a value of Y is the number of rows that carry the label. Else 1 means that at least one row does.
    """

    members: CSR
    Y: CSR | None = None
    counted: bool = False


@dataclass(frozen=True)
class LabelledBags:
    """Bags whose labels are known; the fields are those of `Bags`."""

    members: CSR
    Y: CSR
    counted: bool


@dataclass(frozen=True)
class LabelledRows:
    """Rows with their labels: a hold-out set.

    Attributes
    ----------
    rows : Rows
    Y : CSR float32 (n, L)
    bags : Bags or None
    """

    rows: Rows
    Y: CSR
    bags: Bags | None = None

    @property
    def X(self) -> Matrix:
        return self.rows.whole()

    @classmethod
    def of(cls, X: Matrix, Y: CSR) -> LabelledRows:
        """Rows and labels in memory, checked."""
        rows, targets = checked_rows(X), checked_targets(Y)
        _check_lengths(n_rows_of(rows.X), targets)
        return cls(rows, targets)


@dataclass(frozen=True)
class LabelSide:
    """What is known about the labels themselves.

    Attributes
    ----------
    texts : sequence of str (L,)
        Names, or ids where there is no name.
    X : matrix (L, d) or None
        The texts as rows of the same space as the training rows: made by the same vocabulary or encoder.
    features : CSR (L, f) or None
        Features that came with the dataset, in a space of their own.
    is_named : bool
        Whether the texts are names. False: the dataset has none, and the texts are only ids.
    terms : sequence of str (d,) or None
        What each column of sparse rows X stands for: a word. None: not known.
    """

    texts: Sequence[str]
    X: Matrix | None = None
    features: CSR | None = None
    is_named: bool = True
    terms: Sequence[str] | None = None


@dataclass(frozen=True)
class PreparedStage:
    """A stage that was fitted before the model (see `xcore.training.stages`).

    Attributes
    ----------
    fitted : object
        What the stage's ``fit`` returned, or ``load`` read.
    rows : Rows or None
        The training rows as the stage maps them; None for a stage that maps none.
    seconds, cpu_seconds : float
        What it cost.
    """

    fitted: Any
    rows: Rows | None = None
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    @property
    def X(self) -> Matrix:
        if self.rows is None:
            raise ConfigError("this stage maps no rows")
        return self.rows.whole()


@dataclass(frozen=True)
class TrainingData:
    """What a model or a stage learns from.

    ``TrainingData.of(X, Y)`` takes matrices in memory and checks them; steps of the pipeline give rows that lie in the
    store. Beyond rows and targets a model gets what it declares in ``wants``, and the stages that it declares.

    Attributes
    ----------
    rows : Rows
        Rows in a form that the model takes.
    Y : CSR float32 (n, L)
        Targets. A stored value q in (0, 1] is the chance that the label is the row's: 1 is an ordinary label.
    reading : "weight" or "target"
        What q below 1 does in the loss of models that know both readings: parabel, and ova with the squared hinge.
        The losses of all other models are linear in the target, so that their two readings are the same.
    dev : LabelledRows or None
        Rows that may choose something: when to stop, which settings. Never the test split.
    labels : LabelSide or None
    bags : Bags or None
    stages : mapping of role to PreparedStage
    """

    rows: Rows
    Y: CSR
    dev: LabelledRows | None = None
    labels: LabelSide | None = None
    bags: Bags | None = None
    stages: Mapping[str, PreparedStage] = field(default_factory=dict)
    reading: Reading = "weight"

    @classmethod
    def of(
        cls,
        X: Matrix,
        Y: CSR,
        *,
        dev: tuple[Matrix, CSR] | None = None,
        labels: LabelSide | None = None,
        bags: Bags | None = None,
        reading: Reading = "weight",
    ) -> TrainingData:
        """Training data in memory: checked, and brought to the types that models expect.

        Raises
        ------
        ConfigError
            Shapes that do not fit, NaN or infinite features, targets outside (0, 1].
        """
        rows, targets = checked_rows(X), checked_targets(Y)
        _check_lengths(n_rows_of(rows.X), targets)
        if bags is not None:
            _check_bags(bags, targets)
        held = LabelledRows.of(*dev) if dev is not None else None
        if held is not None and held.Y.shape[1] != targets.shape[1]:
            raise ConfigError(
                f"dev rows have {held.Y.shape[1]} labels, training rows {targets.shape[1]}: use one space"
            )
        return cls(rows, targets, held, labels, bags, reading=reading)

    @cached_property
    def X(self) -> Matrix:
        """All training rows at once."""
        return self.rows.whole()

    @property
    def form(self) -> RowForm:
        return self.rows.form

    @property
    def n_labels(self) -> int:
        return int(self.Y.shape[1])

    @property
    def has_soft_targets(self) -> bool:
        """Whether any target is below 1 and is to be read as a target."""
        return self.reading == "target" and bool((self.Y.data < 1).any())

    def known_bags(self) -> LabelledBags:
        """The bags with their labels. Each row is a bag of its own if there are no bags."""
        if self.bags is None:
            n = self.Y.shape[0]
            return LabelledBags(binary_csr(np.arange(n), np.arange(n + 1), n), self.Y, counted=True)
        if self.bags.Y is None:
            return LabelledBags(self.bags.members, canonical_csr(self.bags.members @ self.Y), counted=True)
        return LabelledBags(self.bags.members, self.bags.Y, self.bags.counted)

    def with_stage(self, role: str, stage: PreparedStage) -> TrainingData:
        """The same data with one more stage."""
        return replace(self, stages={**self.stages, role: stage})

    def stage(self, role: str) -> PreparedStage:
        """A stage that the model declares."""
        return self.stages[role]


def checked_rows(X: Matrix) -> RowsInMemory:
    """Rows of features in the types that models expect, whatever matrix they come as; an error names what is wrong.

    Sparse matrices of any format become CSR float32 with ascending, unrepeated columns; arrays of numbers become
    float32 in C order; uint8 arrays of 3 or 4 dimensions are images; `TokenRows` and lists of texts stay as they are.
    """
    if isinstance(X, TokenRows):
        return RowsInMemory(X, "tokens")
    if sp.issparse(X):
        matrix = canonical_csr(X)
        _check_finite(matrix.data)
        return RowsInMemory(matrix, "sparse")
    if isinstance(X, list | tuple) and X and isinstance(X[0], str):
        return RowsInMemory(list(X), "text")
    array = np.asarray(X)
    if array.dtype == np.uint8 and array.ndim in (3, 4):
        return RowsInMemory(np.ascontiguousarray(array), "image")
    if array.ndim != 2 or array.dtype.kind not in "fiub":
        raise ConfigError(
            f"rows of features must be a sparse matrix or an array of numbers (n, d), got {type(X).__name__} of shape "
            f"{array.shape} and type {array.dtype}"
        )
    dense = np.ascontiguousarray(array, np.float32)
    _check_finite(dense)
    return RowsInMemory(dense, "vector")


def checked_targets(Y: Any) -> CSR:
    """Targets as CSR float32 (n, L) with values in (0, 1]; entries of 0 are dropped."""
    matrix = canonical_csr(Y if sp.issparse(Y) else sp.csr_array(np.atleast_2d(np.asarray(Y))))
    if len(matrix.data) and not np.isfinite(matrix.data).all():
        raise ConfigError("targets must be in (0, 1], got NaN or infinite values")
    matrix = without_zeros(matrix)
    if len(matrix.data) and not (float(matrix.data.min()) > 0 and float(matrix.data.max()) <= 1):
        raise ConfigError(f"targets must be in (0, 1], got {matrix.data.min()} to {matrix.data.max()}")
    return matrix


def canonical_csr(matrix: Any) -> CSR:
    """Any sparse matrix as CSR of the types of `csr`, with ascending, unrepeated columns; copied only where it must be.

    Repeated entries of a cell are added up, as scipy does.
    """
    rows = matrix.tocsr()
    if not rows.has_canonical_format:
        # scipy sorts only where both kinds of index have one type
        # and changes all three arrays in place
        rows = sp.csr_array((rows.data.copy(), rows.indices.astype(np.int64), rows.indptr.copy()), shape=rows.shape)
        rows.sum_duplicates()
    return csr(rows.data, rows.indices, rows.indptr, rows.shape[1])


def without_zeros(matrix: CSR) -> CSR:
    """The matrix without stored zeros; not copied if there are none. (scipy's own refuses indices of two types.)"""
    if matrix.data.all():
        return matrix
    kept = matrix.data != 0
    indptr = np.concatenate([[0], np.cumsum(kept)])[matrix.indptr]
    return csr(matrix.data[kept], matrix.indices[kept], indptr, matrix.shape[1])


def n_rows_of(X: Matrix) -> int:
    """Number of rows in any form."""
    return len(X) if isinstance(X, list) else int(X.shape[0])


def rows_at(X: Matrix, rows: Int64) -> Matrix:
    """Some rows, in the form that they have."""
    if isinstance(X, list):
        return [X[row] for row in rows]
    some = X[rows]
    return csr(some.data, some.indices, some.indptr, some.shape[1]) if sp.issparse(some) else some


def _check_lengths(n: int, Y: CSR) -> None:
    if n != Y.shape[0]:
        raise ConfigError(f"features have {n} rows, labels {Y.shape[0]}: they must match")


def _check_bags(bags: Bags, Y: CSR) -> None:
    if bags.members.shape[1] != Y.shape[0]:
        raise ConfigError(f"bags are over {bags.members.shape[1]} rows, but there are {Y.shape[0]}: they must match")
    expected = (bags.members.shape[0], Y.shape[1])
    if bags.Y is not None and bags.Y.shape != expected:
        raise ConfigError(f"labels of bags have the shape {bags.Y.shape}, expected {expected}: one row per bag")
    if bags.Y is not None and len(bags.Y.data) and not (np.isfinite(bags.Y.data).all() and bags.Y.data.min() >= 0):
        raise ConfigError("label counts of bags must be finite and at least 0")


def _check_finite(values: Any) -> None:
    if values.size and not np.isfinite(values).all():
        raise ConfigError(
            "features hold NaN or infinite values, expected finite float32 numbers: mend the rows, or drop them"
        )
