"""Groups of rows that share their labels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp

from xcore.data.dataset import Merge
from xcore.errors import ConfigError
from xcore.numeric.checks import Checked
from xcore.numeric.matrices import CSR, Int64, csr, list_parts
from xcore.saved import Count, Described, metadata_of, read_table

_FILE = "groups.parquet"


@dataclass(frozen=True)
class Groups:
    """Which rows belong together, and the labels known for each group as a whole.

    Attributes
    ----------
    members : CSR (m, n)
        1 where a row is a member; groups may overlap, be empty, or leave rows out.
    labels : CSR (m, L)
        How many members carry the label (`merge` "list"), or 1 where at least one does ("set").
    merge : whether the counts of `labels` are known.
    duplicate_members : how many repeated memberships were removed when the groups were read.
    """

    members: CSR
    labels: CSR
    merge: Merge = "list"
    duplicate_members: int = 0

    def __post_init__(self) -> None:
        if self.members.shape[0] != self.labels.shape[0]:
            raise ConfigError(
                f"{self.members.shape[0]} groups have members but {self.labels.shape[0]} have labels: they must match"
            )
        for name, matrix in (("members", self.members), ("labels", self.labels)):
            _check_indices(name, matrix)
        if len(self.labels.data) and (self.labels.data.min() < 1 or np.any(self.labels.data % 1)):
            raise ConfigError(
                f"label counts of a group must be whole numbers of at least 1, got {self.labels.data.min():g} "
                f"to {self.labels.data.max():g}; leave out a label that no member carries"
            )

    @property
    def n_groups(self) -> int:
        return int(self.members.shape[0])

    @property
    def n_rows(self) -> int:
        return int(self.members.shape[1])

    @property
    def n_labels(self) -> int:
        return int(self.labels.shape[1])

    @property
    def sizes(self) -> Int64:
        """Members of each group (m,)."""
        sizes: Int64 = np.diff(self.members.indptr)
        return sizes

    def counts(self) -> dict[str, int]:
        """What the manifest says about these groups; every oddity of the input is counted here."""
        sizes, n_group_labels = self.sizes, np.diff(self.labels.indptr)
        per_row = np.bincount(self.members.indices, minlength=self.n_rows)
        per_pair = np.repeat(sizes, n_group_labels)
        return {
            "groups": self.n_groups,
            "rows": self.n_rows,
            "labels": self.n_labels,
            "group_label_pairs": int(self.labels.nnz),
            "largest_group": int(sizes.max(initial=0)),
            "groups_of_one": int((sizes == 1).sum()),
            "groups_without_members": int((sizes == 0).sum()),
            "groups_without_labels": int((n_group_labels == 0).sum()),
            "groups_with_more_labels_than_members": int((n_group_labels > sizes).sum()),
            "rows_in_no_group": int((per_row == 0).sum()),
            "rows_in_several_groups": int((per_row > 1).sum()),
            "labels_in_no_group": int(self.n_labels - len(np.unique(self.labels.indices))),
            "label_counts_above_group_size": int(((self.labels.data > per_pair) & (per_pair > 0)).sum()),
            "duplicate_members_removed": self.duplicate_members,
        }

    def take(self, groups: Int64) -> Groups:
        """Only these groups, over the same rows and labels."""
        return Groups(self.members[groups], self.labels[groups], self.merge)

    def with_own_labels(self, rows: Int64, Y: CSR) -> Groups:
        """The same with the labels of some rows known: each row is a group of its own beside its other groups.

        Parameters
        ----------
        rows : int64 (k,)
        Y : CSR (k, L)
            Their labels; the values do not matter.
        """
        alone = csr(np.ones(len(rows)), rows, np.arange(len(rows) + 1), self.n_rows)
        own = csr(np.ones(Y.nnz), Y.indices, Y.indptr, self.n_labels)
        members, labels = sp.vstack([self.members, alone]).tocsr(), sp.vstack([self.labels, own]).tocsr()
        return Groups(
            csr(members.data, members.indices, members.indptr, self.n_rows),
            csr(labels.data, labels.indices, labels.indptr, self.n_labels),
            self.merge,
            self.duplicate_members,
        )

    def without_known_rows(self) -> Groups:
        """The same where rows of known labels have left all groups but their own, with their labels.

        The labels of a row are known if it is the only member of a group with labels. Its other groups lose the member,
        and count one carrier less of each of its labels. Where only sets are known, a known carrier explains a label:
        no other member needs to carry it.
        """
        alone = (self.sizes == 1) & (np.diff(self.labels.indptr) > 0)
        known = np.zeros(self.n_rows, np.float32)
        known[self.members[np.flatnonzero(alone)].indices] = 1
        leaving = np.repeat(~alone, self.sizes) & (known[self.members.indices] > 0)
        if not leaving.any():
            return self
        own = (self.members[np.flatnonzero(alone)].T @ self.labels[np.flatnonzero(alone)]).tocsr()
        own.data[:] = 1
        places = np.append(0, np.cumsum(leaving))[self.members.indptr]
        left = csr(np.ones(int(leaving.sum())), self.members.indices[leaving], places, self.n_rows)
        rest = (self.labels - left @ own).tocsr()
        rest.data[rest.data < 1] = 0
        rest.eliminate_zeros()
        rest.sort_indices()
        kept = np.append(0, np.cumsum(~leaving))[self.members.indptr]
        members = csr(np.ones(int((~leaving).sum())), self.members.indices[~leaving], kept, self.n_rows)
        labels = csr(rest.data, rest.indices, rest.indptr, self.n_labels)
        return Groups(members, labels, self.merge, self.duplicate_members)

    def save(self, directory: Path) -> None:
        """Write ``groups.parquet``: list columns `members`, `labels`, `counts`, one row per group."""
        offsets = pa.array(self.labels.indptr.astype(np.int32))
        columns = {
            "members": pa.ListArray.from_arrays(
                pa.array(self.members.indptr.astype(np.int32)), pa.array(self.members.indices, pa.int32())
            ),
            "labels": pa.ListArray.from_arrays(offsets, pa.array(self.labels.indices, pa.int32())),
            "counts": pa.ListArray.from_arrays(offsets, pa.array(self.labels.data.astype(np.int32))),
        }
        shape = {"n_rows": self.n_rows, "n_labels": self.n_labels, "duplicate_members": self.duplicate_members}
        metadata = {key: str(value) for key, value in shape.items()} | {"merge": self.merge}
        pq.write_table(pa.table(columns).replace_schema_metadata(metadata), directory / _FILE)

    @classmethod
    def load(cls, directory: Path) -> Groups:
        """Read what `save` wrote."""
        path = directory / _FILE
        table = read_table(path, dict.fromkeys(("members", "labels", "counts"), pa.list_(pa.int32())))
        said = metadata_of(path, table, _Metadata)
        for name, n_ids in (("members", said.n_rows), ("labels", said.n_labels)):
            offsets, ids = list_parts(table[name])
            Checked(path, name, ids).within(0, n_ids).ascending(offsets)
        counted, counts = list_parts(table["counts"])
        checked = Checked(path, "counts", counts).within(1, 2**31)
        if not np.array_equal(counted, offsets):
            checked.refuse("has lists of other lengths than 'labels'", "one number per label")
        read = groups_of_table(table, said.n_rows, said.n_labels, said.merge)
        return Groups(read.members, read.labels, read.merge, said.duplicate_members)


class _Metadata(Described):
    """Of ``groups.parquet``."""

    n_rows: Count
    n_labels: Count
    merge: Merge
    duplicate_members: Count


def _check_indices(name: str, matrix: CSR) -> None:
    if matrix.nnz and not (matrix.indices.min() >= 0 and matrix.indices.max() < matrix.shape[1]):
        raise ConfigError(
            f"{name} of the groups must be ids from 0 to {matrix.shape[1] - 1}, "
            f"got {matrix.indices.min()} to {matrix.indices.max()}; check that the groups belong to this dataset"
        )


def groups_of_table(table: pa.Table, n_rows: int, n_labels: int, merge: Merge) -> Groups:
    """Groups from list columns `members`, `labels` and, where counts are known, `counts`."""
    offsets, flat = list_parts(table["members"])
    label_offsets, label_ids = list_parts(table["labels"])
    known = "counts" in table.column_names and merge == "list"
    counts = list_parts(table["counts"])[1] if known else np.ones(len(label_ids))
    if len(counts) != len(label_ids):
        raise ConfigError(
            f"groups have {len(label_ids)} labels but {len(counts)} counts: give one count for each label"
        )
    members = merged_rows(np.ones(len(flat)), flat, offsets, n_rows, "members")
    labels = merged_rows(counts, label_ids, label_offsets, n_labels, "labels")
    duplicates = int((members.data - 1).sum())
    members.data[:] = 1
    if merge == "set":
        labels.data[:] = 1
    return Groups(members, labels, merge, duplicates)


def merged_rows(values: Any, columns: Any, indptr: Int64, n_columns: int, name: str) -> CSR:
    """CSR with sorted columns, where repeated entries of a row have been added up."""
    matrix = csr(values, columns, indptr, n_columns)
    _check_indices(name, matrix)
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    summed = sp.coo_array((matrix.data, (rows, matrix.indices)), shape=matrix.shape).tocsr()
    return csr(summed.data, summed.indices, summed.indptr, n_columns)
