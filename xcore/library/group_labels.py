"""Groups as a caller has them: group ids of rows or a membership matrix, and labels of the groups."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from xcore.data.dataset import Merge
from xcore.errors import ArgumentError
from xcore.grouping.groups import Groups
from xcore.library.label_space import Labels, classes_of, csr_of_lists, flat, form_of, in_order, names_of_columns
from xcore.numeric.matrices import CSR, binary_csr
from xcore.training.data import canonical_csr, without_zeros


def read_groups(groups: Any, labels: Any, n_rows: int, merge: Merge, classes: Any) -> tuple[Groups, Labels]:
    """Groups with their labels, and the label of each column."""
    if isinstance(groups, Groups):
        if labels is not None:
            raise ArgumentError("Groups hold their labels already, got labels as well: leave one of the two out")
        return groups, names_of_columns(classes, groups.n_labels)
    if labels is None:
        raise ArgumentError("labels is None: give the labels of each group, or Groups")
    if sp.issparse(groups) or getattr(groups, "ndim", 1) == 2:
        members = _binary(canonical_csr(groups if sp.issparse(groups) else sp.csr_array(np.asarray(groups))))
        ids: list[Hashable] = list(range(members.shape[0]))
    else:
        ids, members = _numbered(groups, labels)
    if members.shape[1] != n_rows:
        raise ArgumentError(f"features have {n_rows} rows but the groups are over {members.shape[1]}: they must match")
    counts, names = _label_counts(labels, ids, members, classes)
    if merge == "set":
        counts = _binary(counts)
    return Groups(members, counts, merge), names


def _numbered(groups: Any, labels: Any) -> tuple[list[Hashable], CSR]:
    """The ids of the groups in order, and the members of each. A mapping may name groups without members."""
    of_row = groups.tolist() if hasattr(groups, "tolist") else list(groups)
    present = [group for group in of_row if not _is_missing(group)]
    names: list[Hashable] = in_order([*present, *(labels if isinstance(labels, Mapping) else ())])
    number = {name: at for at, name in enumerate(names)}
    lists: list[list[int]] = [[] for _ in names]
    for row, group in enumerate(of_row):
        if not _is_missing(group):
            lists[number[group]].append(row)
    return names, csr_of_lists(lists, len(of_row))


def _label_counts(labels: Any, ids: list[Hashable], members: CSR, classes: Any) -> tuple[CSR, Labels]:
    if isinstance(labels, Mapping):
        unlabelled = [group for group, size in zip(ids, np.diff(members.indptr), strict=True) if size > 0]
        missing = next((group for group in unlabelled if group not in labels), None)
        if missing is not None:
            raise ArgumentError(f"group {missing!r} has members but no labels: give an empty list if it has none")
        labels = [labels.get(group, ()) for group in ids]
    if len(ids) != (labels.shape[0] if hasattr(labels, "shape") else len(labels)):
        n_given = labels.shape[0] if hasattr(labels, "shape") else len(labels)
        raise ArgumentError(f"there are {len(ids)} groups but labels of {n_given}: give labels for each group")
    form = form_of(labels)
    if form == "lists":
        return _counts_of_lists(labels, classes)
    if form == "single":
        raise ArgumentError("labels must be a list of labels for each group, got one value per group")
    counts = without_zeros(canonical_csr(labels if form == "sparse" else sp.csr_array(np.asarray(labels))))
    return counts, names_of_columns(classes, counts.shape[1])


def _counts_of_lists(lists: Any, classes: Any) -> tuple[CSR, Labels]:
    rows = [_repeated(row) for row in lists]
    if classes is not None:
        raise ArgumentError("classes names the columns of a matrix, but labels holds labels: leave classes out")
    names = classes_of(flat(rows))
    number = {name: at for at, name in enumerate(names.tolist())}
    return csr_of_lists([[number[label] for label in row] for row in rows], len(names)), names


def _repeated(row: Any) -> list[Any]:
    """A group's labels, each as often as members carry it."""
    if not isinstance(row, Mapping):
        return list(row)
    return [label for label, count in row.items() for _ in range(int(count))]


def _binary(matrix: CSR) -> CSR:
    return binary_csr(matrix.indices, matrix.indptr, matrix.shape[1])


def _is_missing(group: Any) -> bool:
    return group is None or (isinstance(group, float) and math.isnan(group))
