"""Groups of train rows that share a label list."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp

from xcore.data.label_index import UNKNOWN, LabelIndex
from xcore.data.quarantine import Quarantine
from xcore.data.readers.sparse_rows import list_array
from xcore.data.side_tables import id_cell, list_cell, table_rows
from xcore.data.source import GroupFile
from xcore.errors import InputError, Place
from xcore.numeric.matrices import CSR, Int32, Int64


@dataclass(frozen=True)
class GroupTable:
    """What a groups file says; members or labels are None where the file has no such column."""

    file: GroupFile
    ids: list[str]
    lines: list[int]
    members: list[list[str]] | None
    labels: list[list[str]] | None

    def error(self, group: int, field: str, problem: str, found: str, expected: str) -> InputError:
        """An error at one group's cell."""
        return InputError(Place(str(self.file.path), self.lines[group], field=field), problem, found, expected)


def read_groups(file: GroupFile) -> GroupTable:
    """Read a groups file; an id that stands twice is an error. Memory O(members + labels)."""
    ids: dict[str, int] = {}
    members, labels = list[list[str]](), list[list[str]]()
    has_members = has_labels = False
    for line, cells in table_rows(file.path, [file.id], [file.members, file.labels]):
        key = id_cell(file.path, line, file.id, cells[file.id])
        if key in ids:
            place = Place(str(file.path), line, field=file.id)
            raise InputError(place, "repeated group", repr(key), f"each id once; it is also on line {ids[key]}")
        ids[key] = line
        has_members, has_labels = has_members or file.members in cells, has_labels or file.labels in cells
        members.append(list_cell(file.path, line, file.members, cells.get(file.members), file.delimiter))
        labels.append(list_cell(file.path, line, file.labels, cells.get(file.labels), file.delimiter))
    return GroupTable(
        file, list(ids), list(ids.values()), members if has_members else None, labels if has_labels else None
    )


@dataclass(frozen=True)
class IngestedGroups:
    """Groups of train rows.

    Attributes
    ----------
    ids : list of str
    members : CSR (G, n)
        Entry 1 where a row belongs to a group; groups may overlap.
    labels : CSR (G, L)
        How often a group's label list names a label.
    """

    ids: list[str]
    members: CSR
    labels: CSR

    def table(self) -> pa.Table:
        """``id``, ``members`` (positions in train), ``labels`` and ``counts`` (multiplicities) of each group."""
        return pa.table({
            "id": pa.array(self.ids, pa.string()),
            "members": list_array(self.members.indptr.astype(np.int64), self.members.indices.astype(np.int32)),
            "labels": list_array(self.labels.indptr.astype(np.int64), self.labels.indices.astype(np.int32)),
            "counts": list_array(self.labels.indptr.astype(np.int64), self.labels.data.astype(np.int32)),
        })  # fmt: skip

    def counts(self) -> dict[str, int]:
        """What the manifest says about them."""
        memberships = np.bincount(self.members.indices, minlength=self.members.shape[1])
        return {
            "groups": len(self.ids),
            "members": int(self.members.nnz),
            "label_nnz": int(self.labels.nnz),
            "groups_without_labels": int((np.diff(self.labels.indptr) == 0).sum()),
            "rows_in_no_group": int((memberships == 0).sum()),
            "rows_in_several_groups": int((memberships > 1).sum()),
        }

    def with_labels(self, final: Int32, n_labels: int) -> IngestedGroups:
        """The same groups after labels got their final numbers."""
        labels = sp.csr_array(
            (self.labels.data, final[self.labels.indices], self.labels.indptr), shape=(len(self.ids), n_labels)
        )
        labels.sort_indices()
        return IngestedGroups(self.ids, self.members, labels)


def members_by_column(column: pa.ChunkedArray, known: list[str] | None) -> tuple[list[str], CSR]:
    """Groups from the group of each row: in the order of `known`, or else of their first row."""
    present = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    ids = known if known is not None else pc.unique(present.drop_null()).to_pylist()
    codes = pc.index_in(present, pa.array(ids, pa.string())).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(~np.isnan(codes.astype(np.float64)) & present.is_valid().to_numpy(zero_copy_only=False))
    return ids, _incidence(codes[rows].astype(np.int64), rows, (len(ids), len(present)))


def members_by_file(table: GroupTable, row_ids: pa.Array, quarantine: Quarantine) -> CSR:
    """Groups from the row ids that a groups file names; unknown and repeated members are bad input."""
    lists = table.members or []
    groups = np.repeat(np.arange(len(lists)), [len(members) for members in lists])
    names = pa.array([member for members in lists for member in members], pa.string())
    rows = pc.fill_null(pc.index_in(names, row_ids), -1).to_numpy().astype(np.int64)
    pair = groups * (len(row_ids) + 1) + rows
    again = np.ones(len(pair), np.bool_)
    again[np.unique(pair, return_index=True)[1]] = False
    for at in np.flatnonzero((rows < 0) | again).tolist():
        problem = "unknown row in a group" if rows[at] < 0 else "repeated row in a group"
        expected = "ids of train rows" if rows[at] < 0 else "each row once a group"
        name = repr(names[at].as_py())
        quarantine.add("train", table.error(int(groups[at]), table.file.members, problem, name, expected))
    good = (rows >= 0) & ~again
    return _incidence(groups[good], rows[good], (len(lists), len(row_ids)))


def labels_by_file(table: GroupTable, index: LabelIndex, n_labels: int | None, quarantine: Quarantine) -> CSR:
    """Label counts (G, provisional labels) from a groups file; an unknown label is bad input."""
    lists = table.labels or []
    groups = np.repeat(np.arange(len(lists)), [len(labels) for labels in lists])
    names = [label for labels in lists for label in labels]
    numbers = index.encode_names(names, n_labels)
    for at in np.flatnonzero(numbers == UNKNOWN).tolist():
        expected = "a label of the label table" if index.table is not None else "a label number in range"
        error = table.error(int(groups[at]), table.file.labels, "unknown label", repr(names[at]), expected)
        quarantine.add("train", error)
    good = numbers != UNKNOWN
    width = int(numbers.max(initial=-1)) + 1
    return _incidence(groups[good], numbers[good].astype(np.int64), (len(lists), width))


def _incidence(rows: Int64, columns: Int64, shape: tuple[int, int]) -> CSR:
    """How often each (row, column) is there, as CSR with ascending columns."""
    matrix = sp.coo_array((np.ones(len(rows), np.int32), (rows, columns)), shape=shape).tocsr()
    matrix.sum_duplicates()
    matrix.sort_indices()
    return matrix
