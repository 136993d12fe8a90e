"""Pairs of CSR ``.npz`` files as `scipy.sparse.save_npz` writes them and PECOS uses them, read as streams."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from xcore.data.readers.base import INT32_MAX, Block, FilePair, Shape, agreed
from xcore.data.readers.pairs import PairReader, merged
from xcore.data.readers.sparse_rows import features_block, list_array, sort_lists, without_zeros
from xcore.data.readers.streams import need_file
from xcore.errors import EyrieError, InputError, Place
from xcore.memory import need_memory
from xcore.numeric.matrices import Float32, Int32, Int64

Member: TypeAlias = tuple[IO[bytes], np.dtype[Any], int]  # of a .npy: stream at the first entry, dtype, entries

BYTES_AN_ENTRY = 8
VECTORS = {"indptr": "iu", "indices": "iu", "data": "biuf"}
WORDS = {"SU": "text", "iu": "whole numbers", "biuf": "numbers"}


class NpzReader(PairReader):
    """CSR ``.npz`` pairs (`scipy.sparse.save_npz`): a feature matrix and a label matrix, as PECOS uses them."""

    kind: Literal["npz"] = "npz"

    def sizes(self, pair: FilePair) -> tuple[tuple[int, int], tuple[int, int]]:
        with opened(pair.features, "features") as X, opened(pair.labels, "labels") as Y:
            return (X.n_rows, X.n_columns), (Y.n_rows, Y.n_columns)

    def pair_blocks(self, pair: FilePair, block_bytes: int) -> Iterator[Block]:
        with opened(pair.features, "features") as X, opened(pair.labels, "labels") as Y:
            for stop in X.cuts(block_bytes):
                yield _pair_block(X, Y, stop)
            X.finish()
            Y.finish()

    def label_features(self, path: Path, shape: Shape, block_bytes: int) -> tuple[int, Iterator[Block]]:
        with opened(path, "label features") as matrix:
            agreed("labels", [("the labels file", shape.n_labels or matrix.n_rows), (matrix.file, matrix.n_rows)])
            return matrix.n_columns, _feature_blocks(path, "label features", block_bytes)


def _feature_blocks(path: Path, field: str, block_bytes: int) -> Iterator[Block]:
    """The rows of one matrix."""
    with opened(path, field) as matrix:
        for stop in matrix.cuts(block_bytes):
            yield _feature_block(matrix, stop)
        matrix.finish()


def _feature_block(matrix: MatrixStream, stop: int) -> Block:
    """The rows up to `stop` of one matrix."""
    lines = np.arange(matrix.at, stop, dtype=np.int64) + 1
    offsets, indices, values, bad = matrix.rows(stop)
    block = features_block(matrix.file, lines, offsets, indices, values)
    block.bad.update(bad)
    return block


def _pair_block(X: MatrixStream, Y: MatrixStream, stop: int) -> Block:
    """The rows up to `stop` of both files."""
    label_offsets, labels, weights, bad = Y.rows(stop)
    return merged(_feature_block(X, stop), list_array(*without_zeros(label_offsets, labels, weights)), bad, Y.file)


class MatrixStream:
    """The rows of a CSR matrix in a zip of ``.npy`` members, first to last; only `indptr` is kept whole."""

    def __init__(self, file: str, field: str, members: dict[str, Member], shape: tuple[int, int]) -> None:
        self.file, self.field, self.at = file, field, 0
        self.n_rows, self.n_columns = shape
        self._members = members
        need_memory(32 * members["indptr"][2], f"the row offsets of {file}", "Write the matrix as several files.")
        self._indptr: Int64 = self._read("indptr", members["indptr"][2]).astype(np.int64)
        entries = members["indices"][2]
        ordered = len(self._indptr) == self.n_rows + 1 and not (np.diff(self._indptr) < 0).any()
        if not ordered or self._indptr[0] != 0 or self._indptr[-1] != entries or members["data"][2] != entries:
            raise self._damaged(f"an indptr of {len(self._indptr)} entries over {entries} indices", "one CSR matrix")

    def cuts(self, block_bytes: int) -> Iterator[int]:
        """Where blocks of about `block_bytes` end; a block has at least one row."""
        stop, most = 0, max(1, block_bytes // BYTES_AN_ENTRY)
        while stop < self.n_rows:
            limit = self._indptr[stop] + most
            stop = max(stop + 1, int(np.searchsorted(self._indptr, limit, side="right")) - 1)
            stop = min(stop, self.n_rows, self.at + block_bytes)
            yield stop

    def rows(self, stop: int) -> tuple[Int64, Int32, Float32, dict[int, InputError]]:
        """The next rows: offsets, sorted column ids, values, and what is wrong with which row."""
        offsets = self._indptr[self.at : stop + 1] - self._indptr[self.at]
        need_memory(32 * int(offsets[-1]), f"rows {self.at + 1} to {stop} of {self.file}", "Check the file.")
        indices, values = self._read("indices", int(offsets[-1])), self._read("data", int(offsets[-1]))
        first, self.at = self.at, stop
        bad: dict[int, InputError] = {}
        self._judge(first, offsets, indices, (indices < 0), bad, f"negative {self._noun} id", "an id of 0 or more")
        outside = indices >= self.n_columns
        self._judge(
            first, offsets, indices, outside, bad, f"{self._noun} id out of range", f"an id below {self.n_columns}"
        )
        with np.errstate(over="ignore"):
            floats = values.astype(np.float32)
        self._judge(first, offsets, values, np.isnan(floats), bad, "NaN value", "a finite number")
        self._judge(first, offsets, values, np.isinf(floats), bad, "infinite value", "a number that fits a float32")
        ids = np.clip(indices, 0, INT32_MAX).astype(np.int32)
        repeated = sort_lists(offsets, ids, floats)
        for row in [] if self.field == "labels" else repeated.tolist():  # ingestion judges labels that stand twice
            twice = ids[offsets[row] : offsets[row + 1]]
            found = str(int(twice[1:][twice[1:] == twice[:-1]][0]))
            bad.setdefault(row, self._error(first + row, "repeated feature id", found, "each once per row"))
        return offsets, ids, floats, bad

    def finish(self) -> None:
        """Read to the end of each member, where the archive checks its sum."""
        for stream, _, _ in self._members.values():
            with blamed(self.file):
                rest = stream.read(1)
            if rest:
                raise self._damaged("bytes after the last entry", "one CSR matrix")

    @property
    def _noun(self) -> str:
        return "label" if self.field == "labels" else "feature"

    def _judge(
        self, first: int, offsets: Int64, shown: npt.NDArray[Any], wrong: npt.NDArray[np.bool_],
        bad: dict[int, InputError], problem: str, expected: str,
    ) -> None:  # fmt: skip
        """Mark the rows with a wrong entry, each with its first."""
        entries = np.flatnonzero(wrong)
        rows, firsts = np.unique(np.searchsorted(offsets, entries, side="right") - 1, return_index=True)
        for row, entry in zip(rows.tolist(), entries[firsts].tolist(), strict=True):
            bad.setdefault(row, self._error(first + row, problem, str(shown[entry]), expected))

    def _error(self, row: int, problem: str, found: str, expected: str) -> InputError:
        return InputError(Place(self.file, row + 1, field=self.field), problem, found, expected)

    def _read(self, name: str, count: int) -> npt.NDArray[Any]:
        stream, dtype, _ = self._members[name]
        with blamed(self.file):
            content = stream.read(count * dtype.itemsize)
        if len(content) < count * dtype.itemsize:
            raise self._damaged(f"the end of {name} after {len(content)} bytes", f"{count * dtype.itemsize} bytes")
        return np.frombuffer(content, dtype).copy()

    def _damaged(self, found: str, expected: str) -> InputError:
        return InputError(Place(self.file), "truncated or damaged file", found, expected, "Write the file again.")


@contextmanager
def opened(path: Path, field: str) -> Iterator[MatrixStream]:
    """Open one CSR ``.npz``; damage that shows now or while it is read is an `InputError`."""
    with ExitStack() as stack:
        with blamed(str(path)):
            archive = stack.enter_context(zipfile.ZipFile(path))
            names = archive.namelist()
            if len(set(names)) < len(names):
                raise InputError(Place(str(path)), "repeated array", ", ".join(sorted(names)[:9]), "each array once")
            form = _few(archive, path, "format", "SU")
            if form not in (["csr"], [b"csr"]):
                found = ", ".join(map(repr, form))[:60]
                raise InputError(Place(str(path)), "not a CSR matrix", found, "'csr'", "Save x.tocsr().")
            shape = _few(archive, path, "shape", "iu")
            if len(shape) != 2 or not all(0 <= size <= INT32_MAX for size in shape):
                expected = f"rows and columns, at most {INT32_MAX:,} of each"
                raise InputError(Place(str(path), field="shape"), "wrong shape", repr(shape)[:60], expected)
            members = {name: _member(stack, archive, path, name, kinds) for name, kinds in VECTORS.items()}
            matrix = MatrixStream(str(path), field, members, (shape[0], shape[1]))
        yield matrix


@contextmanager
def blamed(file: str) -> Iterator[None]:
    """Turn what goes wrong inside into an error about `file`; of two open files, only the one that is being read."""
    need_file(Path(file))
    try:
        yield
    except EyrieError:
        raise
    except Exception as error:  # zipfile and numpy raise almost anything when a file is damaged
        found = (str(error).splitlines() or [""])[0][:200] or type(error).__name__
        expected = "a file that scipy.sparse.save_npz wrote"
        raise InputError(Place(file), "truncated or damaged file", found, expected) from None


def _member(stack: ExitStack, archive: zipfile.ZipFile, path: Path, name: str, kinds: str) -> Member:
    """A ``.npy`` member of the archive with a dtype of these kinds, read up to its first entry."""
    try:
        stream = stack.enter_context(archive.open(f"{name}.npy"))
    except KeyError:
        found = ", ".join(sorted(archive.namelist()))
        raise InputError(Place(str(path)), f"no array '{name}'", found, "what scipy.sparse.save_npz writes") from None
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    if len(shape) > 1 or min(shape, default=0) < 0 or dtype.kind not in kinds:
        expected = f"a vector of {WORDS[kinds]}"
        raise InputError(Place(str(path), field=name), "wrong array", f"{dtype} {shape}"[:100], expected)
    count, n_bytes = math.prod(shape), archive.getinfo(f"{name}.npy").file_size
    if count * dtype.itemsize > n_bytes:
        raise InputError(Place(str(path), field=name), "truncated or damaged file",
                         f"{n_bytes:,} bytes", f"{count:,} entries of {dtype}, as its header says")  # fmt: skip
    return stream, dtype, count


def _few(archive: zipfile.ZipFile, path: Path, name: str, kinds: str) -> list[Any]:
    """The entries of a short member."""
    with ExitStack() as stack:
        stream, dtype, count = _member(stack, archive, path, name, kinds)
        entries: list[Any] = np.frombuffer(stream.read(min(count, 9) * dtype.itemsize), dtype).tolist()
        return entries
