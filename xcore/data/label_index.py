"""The label space: from what rows call their labels to numbers 0..L-1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from xcore.data.readers.numerals import whole
from xcore.data.side_tables import id_cell, list_cell, name_cell, table_rows
from xcore.data.source import LabelFile
from xcore.errors import InputError, Place
from xcore.numeric.matrices import Int32, Int64

UNKNOWN = -1


@dataclass(frozen=True)
class LabelTable:
    """What a label file says: an id, a name and the parents of each label, in its order."""

    ids: list[str]
    names: list[str]
    parents: list[list[str]]


def read_label_table(file: LabelFile) -> LabelTable:
    """Read a label file; an id that stands twice is an error. Memory O(L)."""
    table, lines = LabelTable([], [], []), dict[str, int]()
    needed = [] if file.id is None else [file.id]
    for line, cells in table_rows(file.path, needed, [file.name, file.parents]):
        key = str(len(table.ids)) if file.id is None else id_cell(file.path, line, file.id, cells[file.id])
        if key in lines:
            place = Place(str(file.path), line, field=file.id)
            raise InputError(place, "repeated label", repr(key), f"each id once; it is also on line {lines[key]}")
        lines[key] = line
        table.ids.append(key)
        table.names.append(name_cell(file.path, line, file.name, cells.get(file.name)) or key)
        table.parents.append(list_cell(file.path, line, file.parents, cells.get(file.parents), file.delimiter))
    return table


class LabelIndex:
    """Numbers for labels while rows are read.

    With a table the numbers are its order and other labels are unknown. Without one, integer labels are their own
    numbers; other labels get provisional numbers as they come, which `order` replaces at the end. Memory O(L).
    """

    def __init__(self, table: LabelTable | None, integer: bool) -> None:
        self.table, self._integer = table, integer
        self._numbers = {} if table is None else {key: number for number, key in enumerate(table.ids)}

    @property
    def is_open(self) -> bool:
        """Whether a label that was never seen gets a new number."""
        return self.table is None and not self._integer

    def encode(self, labels: pa.Array) -> Int32:
        """The numbers of a flat column of label ids (strings, or integers); UNKNOWN where a table has no such id."""
        if pa.types.is_integer(labels.type) and self.table is None and self._integer:
            return np.array(labels.to_numpy(), np.int32)
        encoded = labels.dictionary_encode()
        distinct = np.array([self._number(str(key)) for key in encoded.dictionary.to_pylist()], np.int32)
        return distinct[encoded.indices.to_numpy()] if len(labels) else np.zeros(0, np.int32)

    def encode_names(self, names: list[str], n_labels: int | None) -> Int32:
        """The numbers of labels that a side table names; for integer labels without a table they must be numbers."""
        if self.is_open or self.table is not None:
            return self.encode(pa.array(names, pa.string()))
        limit = 2**31 if n_labels is None else n_labels
        numbers = map(whole, names)
        return np.array([UNKNOWN if n is None or n >= limit else n for n in numbers], np.int32)

    def _number(self, key: str) -> int:
        if self.table is not None:
            return self._numbers.get(key, UNKNOWN)
        return self._numbers.setdefault(key, len(self._numbers))

    def order(self, in_train: npt.NDArray[np.bool_], elsewhere: npt.NDArray[np.bool_]) -> Int32:
        """Final number of each provisional one: sorted labels of train, then sorted labels only seen elsewhere.

        A label that is in neither (it was only in rows that were set aside) gets UNKNOWN.
        """
        if not self.is_open:
            return np.arange(len(in_train), dtype=np.int32)
        keys = list(self._numbers)
        final = np.full(len(keys), UNKNOWN, np.int32)
        train = sorted(np.flatnonzero(in_train).tolist(), key=lambda number: keys[number])
        rest = sorted(np.flatnonzero(elsewhere & ~in_train).tolist(), key=lambda number: keys[number])
        final[np.array(train + rest, np.int64)] = np.arange(len(train) + len(rest))
        return final

    def _own_ids(self, final: Int32, n_labels: int) -> list[str]:
        ids = [str(number) for number in range(n_labels)]
        for provisional, key in enumerate(self._numbers):
            if final[provisional] != UNKNOWN:
                ids[final[provisional]] = key
        return ids

    def final_table(self, final: Int32, n_labels: int, train_count: Int64) -> pa.Table:
        """The label table of the dataset."""
        ids: Any
        names: Any
        parents: Any
        if self.table is not None:
            ids, names, parents = self.table.ids, self.table.names, self.table.parents
        else:
            ids = self._own_ids(final, n_labels) if self.is_open else pa.array(np.arange(n_labels)).cast(pa.string())
            names, parents = ids, pa.ListArray.from_arrays(np.zeros(n_labels + 1, np.int32), pa.array([], pa.string()))
        columns: dict[str, Any] = {
            "id": pa.array(ids, pa.string()),
            "name": pa.array(names, pa.string()),
            "parents": pa.array(parents, pa.list_(pa.string())),
            "train_count": pa.array(train_count, pa.int64()),
        }
        return pa.table(columns)


def label_of(labels: pa.Array, position: int) -> str:
    """A label as a message shows it."""
    return repr(str(pc.cast(labels, pa.string())[position].as_py()))
