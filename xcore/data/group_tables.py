"""Tables of groups: read, and matched with the rows and labels that they name."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from xcore.data.dataset import Merge
from xcore.data.label_index import UNKNOWN, LabelIndex
from xcore.data.quarantine import Quarantine
from xcore.data.row_groups import Memberships, incidence
from xcore.data.side_tables import id_cell, list_cell, table_rows
from xcore.data.source import GroupFile
from xcore.errors import InputError, Place
from xcore.numeric.matrices import CSR


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


def members_by_file(table: GroupTable, row_ids: pa.Array, quarantine: Quarantine) -> Memberships:
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
        expected = "ids of train rows" if rows[at] < 0 else "each row once per group"
        name = repr(names[at].as_py())
        quarantine.add("train", table.error(int(groups[at]), table.file.members, problem, name, expected))
    good = (rows >= 0) & ~again
    return Memberships(table.ids, incidence(groups[good], rows[good], (len(lists), len(row_ids))))


def labels_by_file(
    table: GroupTable, index: LabelIndex, n_labels: int | None, quarantine: Quarantine
) -> tuple[CSR, Merge, int]:
    """Labels of groups (G, provisional labels), whether their counts are known, and how many repeats were dropped.

    An unknown label is bad input. A file in which no list repeats a label tells sets of labels: that each label had
    exactly one carrier would be a strong claim, which hardly any such file means.
    """
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
    labels = incidence(groups[good], numbers[good].astype(np.int64), (len(lists), width))
    repeats = int((labels.data - 1).sum())
    if table.file.merge == "list" or (table.file.merge == "auto" and repeats):
        return labels, "list", 0
    labels.data[:] = 1
    return labels, "set", repeats
