"""Changes files of saved things, loads each, and prints a line before and after: ``changed_files FOLDER``.

It runs in a process of its own, for a change that is not noticed may end it. Every changed file is consistent: a
checksum made anew would not tell it from a good one.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.contracts.loadable import Answer, Loadable, everything
from xcore.errors import ArtifactDamaged, EyrieError
from xcore.numeric.arrays import open_arrays, write_arrays

OFFSETS = {"indptr", "node_lines", "node_entries", "line_starts"}
COUNTS = {"counts"}  # of labels in a group: they may be above its size
FIELD_VALUES = {"none": None, "text": "x", "negative": -1, "huge": 10**12, "list": [], "not a number": float("nan")}


@dataclass(frozen=True)
class Change:
    """A change of a folder, and whether another answer may follow from it: from another weight, not from NaN."""

    name: str
    make: Callable[[Path], None]
    may_answer: bool = False


def changes(folder: Path) -> Iterator[Change]:
    """All changes of all files of a saved thing."""
    for path in sorted(folder.iterdir()):
        yield from whole_file(path.name, path.stat().st_size)
        if path.suffix == ".json":
            yield from of_json(path)
        if path.suffix == ".safetensors":
            yield from of_arrays(path)
        if path.suffix == ".parquet":
            yield from of_table(path)


def whole_file(name: str, size: int) -> Iterator[Change]:
    def as_folder(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).mkdir()

    def as_pipe(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    yield Change(f"{name} deleted", lambda folder: (folder / name).unlink())
    yield Change(f"{name} a folder", as_folder)
    yield Change(f"{name} a pipe", as_pipe)
    for kept in {0, 7, size // 2, size - 9} & set(range(size)):
        yield Change(f"{name} cut to {kept} bytes", lambda folder, kept=kept: os.truncate(folder / name, kept))


def of_json(path: Path) -> Iterator[Change]:
    content = json.loads(path.read_text())

    def written(new: Any) -> Callable[[Path], None]:
        return lambda folder: (folder / path.name).write_text(new if isinstance(new, str) else json.dumps(new)) and None

    yield Change(f"{path.name} a list", written([content]))
    yield Change(f"{path.name} deep", written("[" * 100_000))
    for field, value in content.items():
        place = f"{path.name} field {field}"
        yield Change(f"{place} deleted", written({name: content[name] for name in content if name != field}))
        for name, new in FIELD_VALUES.items():
            yield Change(f"{place} {name}", written(content | {field: new}))
        yield Change(f"{place} infinite", written(json.dumps(content | {field: "@"}).replace('"@"', "1e999")))
        yield Change(f"{place} endless", written(json.dumps(content | {field: "@"}).replace('"@"', "9" * 5000)))
        if isinstance(value, int):
            for new in (0, value - 1, value + 1, not value):
                yield Change(f"{place} {new}", written(content | {field: new}), may_answer=True)


def of_arrays(path: Path) -> Iterator[Change]:
    arrays = {name: array.copy() for name, array in open_arrays(path).items()}

    def written(new: dict[str, np.ndarray]) -> Callable[[Path], None]:
        return lambda folder: write_arrays(folder / path.name, new)

    yield Change(f"{path.name} one array more", written(arrays | {"more": np.zeros(3)}))
    for name, array in arrays.items():
        place = f"{path.name} array {name}"
        yield Change(f"{place} deleted", written({key: arrays[key] for key in arrays if key != name}))
        for how, new, may_answer in changed(name, array):
            yield Change(f"{place} {how}", written(arrays | {name: new}), may_answer)


def of_table(path: Path) -> Iterator[Change]:
    table = pq.read_table(path)

    def written(new: pa.Table) -> Callable[[Path], None]:
        return lambda folder: pq.write_table(new, folder / path.name)

    yield Change(f"{path.name} without metadata", written(table.replace_schema_metadata(None)))
    for key, value in (table.schema.metadata or {}).items():
        for new in (b"", b"x", b"-1", b"1" * 30, b"nan", b"0", str(value).encode()):
            metadata = dict(table.schema.metadata) | {key: new}
            yield Change(f"{path.name} metadata {key!r} {new!r}", written(table.replace_schema_metadata(metadata)))
    # Whoever uses groups or imputed labels compares the number of rows with the data.
    yield Change(
        f"{path.name} emptied", written(table.slice(0, 0)), may_answer="n_labels" in str(table.schema.metadata)
    )
    for at, name in enumerate(table.column_names):
        place, column = f"{path.name} column {name}", table[name].combine_chunks()
        yield Change(f"{place} deleted", written(table.drop_columns([name])))
        nulls = pa.nulls(len(column), column.type)
        yield Change(f"{place} null", written(table.set_column(at, name, nulls)))
        flat = column.values if pa.types.is_list(column.type) else column
        if pa.types.is_binary(flat.type):
            yield Change(f"{place} repeated", written(table.set_column(at, name, pa.array([b"x"] * len(flat)))))
            continue
        if pa.types.is_string(flat.type):
            yield Change(f"{place} repeated", written(table.set_column(at, name, pa.array(["x"] * len(flat)))))
            continue
        for how, values, may_answer in changed(name, flat.to_numpy()):
            if len(values) == len(flat) and values.ndim == 1:
                new = pa.array(values)
                if flat is not column:
                    new = pa.ListArray.from_arrays(column.offsets, new)
                yield Change(f"{place} {how}", written(table.set_column(at, name, new)), may_answer)


def changed(name: str, array: np.ndarray) -> Iterator[tuple[str, np.ndarray, bool]]:
    """Other arrays in the place of one, and whether another answer may follow."""
    other = {4: 8, 8: 4, 2: 4, 1: 2}[array.itemsize]
    yield "of another type", array.astype(f"{array.dtype.kind}{other}"), False
    yield "of one more dimension", array[None], False
    yield (
        "longer",
        np.concatenate([array, array[:1]]) if len(array) else np.zeros((3, *array.shape[1:]), array.dtype),
        False,
    )
    if not array.size:
        return
    yield "shorter", array[:-1], False
    yield "emptied", array[:0], False
    yield "backwards", np.ascontiguousarray(array[::-1]), name not in OFFSETS or len(array) < 3
    yield "all alike", np.full_like(array, array.flat[0]), True
    for how, at in (("at first", 0), ("in the middle", array.size // 2), ("at last", -1)):
        for value, may_answer in values_like(name, array):
            new = array.copy()
            new.flat[at] = value
            yield f"{value} {how}", new, may_answer


def values_like(name: str, array: np.ndarray) -> list[tuple[Any, bool]]:
    """Numbers to put into an array: of indices, none that is far outside; of weights, no NaN and nothing infinite."""
    if array.dtype.kind == "f":
        return [(np.nan, False), (np.inf, False), (-np.inf, False), (-1.5, True), (0.0, True), (2.5, True)]
    limits = np.iinfo(array.dtype)
    is_weight = array.dtype == np.int16 or name in COUNTS
    return [(limits.max, is_weight), (limits.min, is_weight or limits.min == 0), (1, True), (0, True)]


def verdict(thing: Loadable, folder: Path, usual: Answer, change: Change) -> str:
    """``ok: ...``, or what is wrong."""
    loaded = None
    try:
        loaded = thing.load(folder)
        answer = thing.answer(loaded)
    except EyrieError as error:
        is_clear = loaded is not None or (isinstance(error, ArtifactDamaged) and folder.name in str(error))
        return f"ok: {error}" if is_clear else f"damage that is not reported as such, with its place: {error}"
    except BaseException as error:
        return f"not our error: {type(error).__name__}: {error}"
    if len(answer) == len(usual) and all(np.array_equal(a, b) for a, b in zip(answer, usual, strict=True)):
        return "ok: the same answer"
    if not thing.is_sound(loaded, answer):
        return "a wrong answer"
    return "ok: another answer" if change.may_answer else "another answer, and nothing was noticed"


def main() -> None:
    work = Path(sys.argv[1])
    for name, thing in everything().items():
        good, bad = work / "good", work / "changed"
        shutil.rmtree(good, ignore_errors=True)
        good.mkdir()
        thing.save(good)
        usual = thing.answer(thing.load(good))
        for change in changes(good):
            shutil.rmtree(bad, ignore_errors=True)
            shutil.copytree(good, bad)
            change.make(bad)
            print(json.dumps(["try", f"{name}: {change.name}"]), flush=True)
            print(json.dumps(["end", verdict(thing, bad, usual, change)]), flush=True)


if __name__ == "__main__":
    main()
