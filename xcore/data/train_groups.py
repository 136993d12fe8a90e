"""Groups in a source: their rows, and whether labels on these rows belong to the rows or to the groups."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from xcore.data.dataset import Merge
from xcore.data.group_tables import labels_by_file, members_by_file, read_groups
from xcore.data.label_index import LabelIndex
from xcore.data.quarantine import Quarantine
from xcore.data.row_groups import IngestedGroups, Memberships, members_by_column
from xcore.data.source import Source
from xcore.data.staging import StagedSplit
from xcore.errors import ConfigError
from xcore.numeric.matrices import CSR, Int64, binary_csr, list_parts

ROW_LABELS = {
    "own": "Labels were read as the rows' own; group counts are counted from them.",
    "group": "Labels on rows were read as their group's set; how many rows of a group carry a label is not known.",
}
FILE_LABELS = {
    "list": "Labels of groups were read as lists: a label is repeated once for each member that has it.",
    "set": "Labels of groups were read as sets; how many members of a group carry a label is not known.",
}


class TrainGroups:
    """The groups of a source with groups.

    Attributes
    ----------
    table : GroupTable or None
        The groups file, if there is one.
    row_labels : 'own', 'group' or None
        Whether labels on train rows belong to the rows or to their groups. None if this depends on the rows and `match`
        has not seen them yet.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.table = None if source.groups is None else read_groups(source.groups)
        if self.table and self.table.members is not None and source.reader.groups_rows:
            raise ConfigError("rows have a group column and the groups file has members: leave one of them out")
        self.row_labels: Literal["own", "group"] | None = None
        if source.row_labels_are_own:
            self.row_labels = "own"
        elif source.row_labels == "group" or self.have_labels:
            self.row_labels = "group"
        self._check_holdout()

    @property
    def have_labels(self) -> bool:
        """Whether a file says which labels the groups have."""
        return self.table is not None and self.table.labels is not None

    @property
    def known_ids(self) -> set[str] | None:
        """The groups that a column of groups may name; None: any."""
        return set(self.table.ids) if self.table is not None and self._source.reader.groups_rows else None

    def match(self, train: StagedSplit, rows: Int64, quarantine: Quarantine) -> None:
        """Find the groups of train rows (ascending positions), from which rows may be held out later."""
        self._train, self._rows = train, rows
        self.memberships = self._memberships(quarantine)
        if self.row_labels is None:
            labels = train.column("labels", rows).combine_chunks()
            self.row_labels = "group" if self.memberships.rows_repeat_their_groups_labels(labels) else "own"
        self._check_holdout()

    def tell_of(self, rows: Int64) -> npt.NDArray[np.bool_]:
        """Whether the labels of each of the matched rows are known, or those of any group that it is in.

        A row of which nothing is known is no negative of any label.
        """
        if self.row_labels == "own":
            return np.ones(len(rows), np.bool_)
        members = self.memberships.members[self._are_recorded]
        n_groups = np.bincount(members.indices, minlength=members.shape[1])
        return n_groups[np.searchsorted(self._rows, rows)] > 0

    def of_rows(self, rows: Int64) -> tuple[Memberships, Int64]:
        """The memberships of some of the matched rows; see `Memberships.of_rows`."""
        return self.memberships.of_rows(np.searchsorted(self._rows, rows))

    def with_labels(
        self, rows: Int64, index: LabelIndex, n_labels: int | None, quarantine: Quarantine
    ) -> IngestedGroups:
        """The groups of the rows that stay in train, with provisional label numbers."""
        kept, left = self.of_rows(rows)
        labels, merge, repeated = self._labels(kept.members, left, rows, index, n_labels, quarantine)
        told = np.flatnonzero(self._are_recorded[left])
        ids = [kept.ids[group] for group in told.tolist()]
        return IngestedGroups(ids, kept.members[told], labels[told], merge, repeated)

    def note(self, merge: Merge) -> str:
        """How labels were read, for people."""
        return FILE_LABELS[merge] if self.have_labels else ROW_LABELS[self.row_labels or "own"]

    @property
    def _are_recorded(self) -> npt.NDArray[np.bool_]:
        """Which groups have recorded labels."""
        table = self.table
        if table is None or table.labels is None or table.file.empty == "none":
            return np.ones(len(self.memberships.ids), np.bool_)
        return np.array([bool(labels) for labels in table.labels], np.bool_)

    def _memberships(self, quarantine: Quarantine) -> Memberships:
        if self._source.reader.groups_rows:
            column = self._train.column("group", self._rows)
            return members_by_column(column, None if self.table is None else self.table.ids)
        if self.table is not None and self.table.members is not None:
            name = "row" if self._train.ids is None else "id"
            ids = self._train.column(name, self._rows).cast(pa.string()).combine_chunks()
            return members_by_file(self.table, ids, quarantine)
        raise ConfigError(
            f"{self._source.groups} has no column of members and the rows have no group column: "
            "the members of the groups are unknown; name one of the two columns"
        )

    def _labels(
        self, members: CSR, left: Int64, rows: Int64, index: LabelIndex, n_labels: int | None, quarantine: Quarantine
    ) -> tuple[CSR, Merge, int]:
        if self.table is not None and self.have_labels:
            labels, merge, repeated = labels_by_file(self.table, index, n_labels, quarantine)
            return labels[left], merge, repeated
        offsets, flat = list_parts(self._train.column("labels", rows))
        counted = (members @ binary_csr(flat, offsets, int(flat.max(initial=-1)) + 1)).tocsr()
        counted.sort_indices()
        if self.row_labels == "own":
            return counted, "list", 0
        counted.data[:] = 1
        return counted, "set", 0

    def _check_holdout(self) -> None:
        """Rows without labels of their own cannot be held out: there would be no truth to measure against."""
        for split, share in (("dev", self._source.holdout.dev), ("test", self._source.test_share)):
            if share > 0 and self.row_labels == "group":
                raise ConfigError(
                    f"rows of train cannot be held out as {split}, because their labels belong to groups: name {split} "
                    "files with a label list for each row, set row_labels to own if the labels on train rows are "
                    f"their own, or set holdout.{split} to 0 to do without {split}"
                )
