"""From labels as a caller has them to targets, and from rankings back to the caller's form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.utils.multiclass import check_classification_targets

from xcore.errors import ArgumentError
from xcore.numeric.matrices import CSR, NO_LABEL, Float32, TopK, csr
from xcore.training.data import canonical_csr, checked_targets

TargetForm: TypeAlias = Literal["single", "lists", "sparse", "dense"]
Labels: TypeAlias = npt.NDArray[Any]

COLLECTIONS = (list, tuple, set, frozenset, np.ndarray, Mapping)


@dataclass(frozen=True)
class LabelSpace:
    """The labels of a training, and the form in which they came.

    Attributes
    ----------
    classes : array (L,)
        The label of each column of the targets.
    form : 'single', 'lists', 'sparse' or 'dense'
        One label per row, a collection of labels per row, or a matrix with one column per label.
    dtype : str
        Type of the values of a dense matrix.
    """

    classes: Labels
    form: TargetForm
    dtype: str = "<f4"

    @classmethod
    def of(cls, Y: Any, classes: Any = None) -> LabelSpace:
        """The labels that stand in Y; `classes` names the columns of a matrix."""
        form = form_of(Y)
        if form in ("single", "lists"):
            if classes is not None:
                raise ArgumentError(
                    "classes names the columns of a matrix, but y holds labels: leave classes out, or give a matrix"
                )
            return cls(classes_of_single(Y) if form == "single" else classes_of(flat(Y)), form)
        matrix = Y if form == "sparse" else np.asarray(Y)
        return cls(names_of_columns(classes, matrix.shape[1]), form, "<f4" if form == "sparse" else matrix.dtype.str)

    @cached_property
    def _ids(self) -> dict[Hashable, int]:
        return {label: number for number, label in enumerate(self.classes.tolist())}

    def encode(self, Y: Any) -> CSR:
        """Targets, CSR float32 (n, L). Labels that are not among the classes are left out: no model can find them."""
        form, n_labels = form_of(Y), len(self.classes)
        if form in ("sparse", "dense"):
            targets = checked_targets(Y if form == "sparse" else np.asarray(Y))
            if targets.shape[1] != n_labels:
                raise ArgumentError(f"y has {targets.shape[1]} columns, expected {n_labels}: one per label")
            return targets
        rows = [(label,) for label in np.asarray(Y).tolist()] if form == "single" else Y
        lists = [[self._ids[label] for label in row if label in self._ids] for row in rows]
        _check_repeats(lists, self.classes)
        return csr_of_lists(lists, n_labels)

    def decode(self, top: TopK) -> Any:
        """The labels of a ranking in the form that the training labels had."""
        if self.form == "single":
            return self.classes[top.labels[:, 0]]
        if self.form == "lists":
            named = self.classes.tolist()
            return [[named[label] for label in row if label != NO_LABEL] for row in top.labels.tolist()]
        indicator = matrix_of(top, np.ones(top.labels.shape, np.float32), len(self.classes))
        return indicator if self.form == "sparse" else indicator.toarray().astype(self.dtype)


def form_of(Y: Any) -> TargetForm:
    """In which form labels come."""
    if Y is None:
        raise ArgumentError("it requires y to be passed, but the target y is None: give the labels of the rows")
    if sp.issparse(Y):
        return "sparse"
    if isinstance(Y, np.ndarray) and Y.dtype != object:
        return _form_of_array(Y)
    if not hasattr(Y, "__array__") or getattr(Y, "ndim", 2) == 1:
        n_collections = sum(isinstance(row, COLLECTIONS) for row in Y)
        if n_collections and n_collections == len(Y):
            return "lists"
        if n_collections:
            raise ArgumentError(
                f"{n_collections} rows of y are collections of labels and {len(Y) - n_collections} are not: "
                "give a list of labels for each row, or one label for each row"
            )
    return _form_of_array(np.asarray(Y))


def _form_of_array(Y: Labels) -> TargetForm:
    if Y.ndim == 1:
        return "single"
    if Y.ndim != 2 or Y.dtype.kind not in "fiub":
        raise ArgumentError(
            f"y must be one label per row, a list of labels per row, or a matrix of numbers (n, L), got an array of "
            f"shape {Y.shape} and type {Y.dtype}"
        )
    return "dense"


def flat(rows: Iterable[Any]) -> Iterable[Any]:
    """All labels of all rows."""
    return (label for row in rows for label in row)


def classes_of_single(Y: Any) -> Labels:
    """The distinct labels of rows with one label each, ascending where they can be compared."""
    labels = np.asarray(Y)
    if labels.dtype.kind == "f":
        if not np.isfinite(labels).all():
            raise ArgumentError("Input y contains NaN or infinity: give every row a label, or leave the row out")
        check_classification_targets(labels)
    return classes_of(labels.tolist()) if labels.dtype == object else np.unique(labels)


def classes_of(labels: Iterable[Any]) -> Labels:
    """The distinct labels, in the order of `in_order`."""
    distinct = in_order(labels)
    if any(isinstance(label, float | np.floating) for label in distinct):
        raise ArgumentError(
            "labels must be names or whole numbers, got a float: give a matrix of targets as an array or as a sparse "
            "matrix"
        )
    if distinct and all(isinstance(label, int | np.integer) for label in distinct):
        return np.array(distinct, np.int64)
    classes = np.empty(len(distinct), object)
    classes[:] = distinct
    return classes


def in_order(values: Iterable[Any]) -> list[Any]:
    """The distinct values, ascending where they can be compared and else in order of appearance."""
    distinct = list(dict.fromkeys(values))
    try:
        return sorted(distinct)
    except TypeError:
        return distinct  # values of several types have no order


def names_of_columns(classes: Any, n_columns: int) -> Labels:
    """The labels of the columns of a matrix: as given, or their numbers."""
    if classes is None:
        return np.arange(n_columns)
    names = np.asarray(classes)
    if names.shape != (n_columns,) or len(set(names.tolist())) != n_columns:
        raise ArgumentError(
            f"classes must be {n_columns} different labels, one for each column, got shape {names.shape} with "
            f"{len(set(names.ravel().tolist()))} different labels"
        )
    return names


def csr_of_lists(lists: list[list[int]], n_columns: int) -> CSR:
    """Lists of column ids as CSR; a repeated id is counted."""
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in lists], dtype=np.int64)])
    flat_ids = np.fromiter((number for row in lists for number in row), np.int64, indptr[-1])
    return canonical_csr(sp.csr_array((np.ones(len(flat_ids)), flat_ids, indptr), shape=(len(lists), n_columns)))


def matrix_of(top: TopK, values: Float32, n_labels: int) -> CSR:
    """A ranking as CSR (n, L) with a value (n, k) for each offered label; values of 0 are stored too."""
    order = np.argsort(top.labels, axis=1, kind="stable")
    labels, values = np.take_along_axis(top.labels, order, 1), np.take_along_axis(values, order, 1)
    offered = labels != NO_LABEL
    indptr = np.concatenate([[0], np.cumsum(offered.sum(axis=1))])
    return csr(values[offered], labels[offered], indptr, n_labels)


def _check_repeats(lists: list[list[int]], classes: Labels) -> None:
    """Refuse a row that names a label twice: mostly it is a row of 0 and 1 that was meant as a matrix."""
    for number, row in enumerate(lists):
        if len(set(row)) != len(row):
            label = classes.tolist()[Counter(row).most_common(1)[0][0]]
            raise ArgumentError(
                f"row {number} of y names label {label!r} more than once, expected each label once. If the rows are "
                "0 and 1 for each label, give an array: np.asarray(y)"
            )
