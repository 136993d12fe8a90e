"""Groups of train rows as ingestion knows them: members, labels, and whether the counts of labels are known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp

from xcore.data.dataset import Merge
from xcore.data.fingerprints import fingerprints
from xcore.data.readers.sparse_rows import list_array
from xcore.numeric.matrices import CSR, Int32, Int64


@dataclass(frozen=True)
class IngestedGroups:
    """Groups of train rows.

    Attributes
    ----------
    ids : list of str
    members : CSR (G, n)
        Entry 1 where a row belongs to a group; groups may overlap.
    labels : CSR (G, L)
        How many members carry a label (`merge` "list"), or 1 where the group's set has it ("set").
    merge : 'list' or 'set'
        Whether the counts of labels are known.
    repeated_labels : int
        Labels that stood twice in the set of a group, and were dropped.
    """

    ids: list[str]
    members: CSR
    labels: CSR
    merge: Merge
    repeated_labels: int = 0

    def table(self) -> pa.Table:
        """``id``, ``members`` (positions in train), ``labels`` and ``counts`` of each group; see `Dataset.groups`."""
        columns = {
            "id": pa.array(self.ids, pa.string()),
            "members": _lists(self.members, self.members.indices),
            "labels": _lists(self.labels, self.labels.indices),
            "counts": _lists(self.labels, self.labels.data),
        }
        return pa.table(columns).replace_schema_metadata({"merge": self.merge})

    def counts(self) -> dict[str, Any]:
        """What the manifest says about them."""
        memberships = np.bincount(self.members.indices, minlength=self.members.shape[1])
        return {
            "groups": len(self.ids),
            "members": int(self.members.nnz),
            "label_nnz": int(self.labels.nnz),
            "groups_without_labels": int((np.diff(self.labels.indptr) == 0).sum()),
            "rows_in_no_group": int((memberships == 0).sum()),
            "rows_in_several_groups": int((memberships > 1).sum()),
            "repeated_labels": self.repeated_labels,
            "merge": self.merge,
        }

    def with_labels(self, final: Int32, n_labels: int) -> IngestedGroups:
        """The same groups after labels got their final numbers."""
        labels = sp.csr_array(
            (self.labels.data, final[self.labels.indices], self.labels.indptr), shape=(len(self.ids), n_labels)
        )
        labels.sort_indices()
        return IngestedGroups(self.ids, self.members, labels, self.merge, self.repeated_labels)


@dataclass(frozen=True)
class Memberships:
    """Which of some rows belong to which group.

    Attributes
    ----------
    ids : list of str
    members : CSR (G, n)
    """

    ids: list[str]
    members: CSR

    def of_rows(self, rows: Int64) -> tuple[Memberships, Int64]:
        """Only these rows (ascending positions), and the groups that do not lose all their rows."""
        members = sp.csr_array(self.members[:, rows])
        members.sort_indices()
        left = np.flatnonzero((np.diff(members.indptr) > 0) | (np.diff(self.members.indptr) == 0))
        return Memberships([self.ids[group] for group in left.tolist()], members[left]), left

    def table(self) -> pa.Table:
        """``id`` and ``members`` of each group that has rows, for `Dataset.bags`."""
        kept = np.flatnonzero(np.diff(self.members.indptr))
        ids = pa.array([self.ids[group] for group in kept.tolist()], pa.string())
        members = self.members[kept]
        return pa.table({"id": ids, "members": _lists(members, members.indices)})

    def rows_repeat_their_groups_labels(self, labels: pa.ListArray) -> bool:
        """Whether there are groups of several rows, and all rows of each of them have the same label list."""
        prints = fingerprints(pa.record_batch({"labels": labels}), ["labels"])[self.members.indices]
        sizes = np.diff(self.members.indptr)
        first = prints[np.repeat(self.members.indptr[:-1], sizes)] if len(prints) else prints
        return bool((sizes > 1).any() and (prints == first).all())


def members_by_column(column: pa.ChunkedArray, known: list[str] | None) -> Memberships:
    """Groups from the group of each row: in the order of `known`, or else of their first row."""
    present = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    ids = known if known is not None else pc.unique(present.drop_null()).to_pylist()
    codes = pc.index_in(present, pa.array(ids, pa.string())).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(~np.isnan(codes.astype(np.float64)) & present.is_valid().to_numpy(zero_copy_only=False))
    return Memberships(ids, incidence(codes[rows].astype(np.int64), rows, (len(ids), len(present))))


def incidence(rows: Int64, columns: Int64, shape: tuple[int, int]) -> CSR:
    """How often each (row, column) is there, as CSR with ascending columns."""
    matrix = sp.coo_array((np.ones(len(rows), np.int32), (rows, columns)), shape=shape).tocsr()
    matrix.sum_duplicates()
    matrix.sort_indices()
    return matrix


def _lists(matrix: CSR, values: Any) -> pa.ListArray:
    return list_array(matrix.indptr.astype(np.int64), values.astype(np.int32))
