"""Groups of rows that share their labels: as a user has them, or made from clean data to study aggregation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

import numba
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp
from pydantic import Field

from xcore.components import Component
from xcore.errors import ArtifactDamaged, ConfigError
from xcore.numeric.matrices import CSR, Float64, Int64, binary_csr, csr, list_parts, normalise_rows
from xcore.numeric.parallel import SparseRows, over_blocks

Merge: TypeAlias = Literal["list", "set"]

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

    def save(self, directory: Path) -> None:
        """Write ``groups.parquet``: list columns `members`, `labels`, `counts`, one row a group."""
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
        table = pq.read_table(directory / _FILE)
        said = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
        if not {"n_rows", "n_labels", "merge", "duplicate_members"} <= said.keys():
            raise ArtifactDamaged(f"{_FILE} lacks its row and label numbers in the metadata; make the groups again")
        merge: Merge = "set" if said["merge"] == "set" else "list"
        read = _groups_of_table(table, int(said["n_rows"]), int(said["n_labels"]), merge)
        return Groups(read.members, read.labels, read.merge, int(said["duplicate_members"]))


def _check_indices(name: str, matrix: CSR) -> None:
    if matrix.nnz and not (matrix.indices.min() >= 0 and matrix.indices.max() < matrix.shape[1]):
        raise ConfigError(
            f"{name} of the groups must be ids from 0 to {matrix.shape[1] - 1}, "
            f"got {matrix.indices.min()} to {matrix.indices.max()}; check that the groups belong to this dataset"
        )


def _groups_of_table(table: pa.Table, n_rows: int, n_labels: int, merge: Merge) -> Groups:
    """Groups from list columns `members`, `labels` and, where counts are known, `counts`."""
    offsets, flat = list_parts(table["members"])
    label_offsets, label_ids = list_parts(table["labels"])
    known = "counts" in table.column_names and merge == "list"
    counts = list_parts(table["counts"])[1] if known else np.ones(len(label_ids))
    if len(counts) != len(label_ids):
        raise ConfigError(
            f"groups have {len(label_ids)} labels but {len(counts)} counts: give one count for each label"
        )
    members = _merged(np.ones(len(flat)), flat, offsets, n_rows, "members")
    labels = _merged(counts, label_ids, label_offsets, n_labels, "labels")
    duplicates = int((members.data - 1).sum())
    members.data[:] = 1
    if merge == "set":
        labels.data[:] = 1
    return Groups(members, labels, merge, duplicates)


def _merged(values: Any, columns: Any, indptr: Int64, n_columns: int, name: str) -> CSR:
    """CSR with sorted columns, where repeated entries of a row have been added up."""
    matrix = csr(values, columns, indptr, n_columns)
    _check_indices(name, matrix)
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    summed = sp.coo_array((matrix.data, (rows, matrix.indices)), shape=matrix.shape).tocsr()
    return csr(summed.data, summed.indices, summed.indptr, n_columns)


class Grouper(Component):
    """Base of the ways to come by groups."""

    merge: Merge = Field(
        "list",
        description="list: it is known how many members of a group carry a label; set: only that at least one does.",
    )

    level_name: ClassVar[str] = ""

    @property
    def level(self) -> float | None:
        """Where these groups stand among those of their kind: the option that studies vary, called `level_name`."""
        return None

    def group(self, X: CSR, Y: CSR, rng: np.random.Generator, given: pa.Table | None = None) -> Groups:
        """Groups of the rows of X.

        Parameters
        ----------
        X : CSR float32 (n, d)
        Y : CSR (n, L)
            True labels, of which the made groups keep only the sums; `GivenGroups` looks at its shape alone.
        given : table of the dataset's own groups: `members`, `labels` (list<int32>) and, where known, `counts`.
        """
        order, sizes = self._partition(X, rng)
        indptr = np.concatenate([[0], np.cumsum(sizes)])
        members = _merged(np.ones(len(order)), order, indptr, X.shape[0], "members")
        positives = binary_csr(Y.indices, Y.indptr, Y.shape[1])
        labels = sp.csr_array(members @ positives)
        labels.sort_indices()
        if self.merge == "set":
            labels.data[:] = 1
        return Groups(members, csr(labels.data, labels.indices, labels.indptr, Y.shape[1]), self.merge)

    def _partition(self, X: CSR, rng: np.random.Generator) -> tuple[Int64, Int64]:
        """Rows in the order of their groups, and the size of each group."""
        raise TypeError(f"{type(self).__name__} makes no groups of its own")


class GivenGroups(Grouper):
    """The groups that came with the data; they may overlap, and repeated members count once."""

    kind: Literal["given"] = "given"

    def group(self, X: CSR, Y: CSR, rng: np.random.Generator, given: pa.Table | None = None) -> Groups:
        if given is None:
            raise ConfigError(
                "grouper 'given' needs groups in the dataset, got a dataset without any; "
                "read one with a group column or file, or choose random, clusters or mixed"
            )
        return _groups_of_table(given, X.shape[0], Y.shape[1], self.merge)


class RandomGroups(Grouper):
    """A random permutation of the rows, cut into blocks; the last may be short."""

    kind: Literal["random"] = "random"
    level_name: ClassVar[str] = "rows in a group"
    size: int = Field(4, ge=1, description="Rows in a group (g).")

    @property
    def level(self) -> float:
        return self.size

    def _partition(self, X: CSR, rng: np.random.Generator) -> tuple[Int64, Int64]:
        n = X.shape[0]
        starts = np.arange(0, n, self.size)
        return rng.permutation(n), np.diff(np.append(starts, n))


class _TreeGroups(Grouper):
    """Leaves of a tree of balanced 2-means splits."""

    level_name: ClassVar[str] = "depth (2^depth groups)"
    depth: int = Field(10, ge=0, le=30, description="Splits in a row (q); 2^q groups.")
    iterations: int = Field(20, ge=1, le=1000, description="Most rounds of 2-means in one split.")

    @property
    def level(self) -> float:
        return self.depth

    def _partition(self, X: CSR, rng: np.random.Generator) -> tuple[Int64, Int64]:
        return _balanced_tree(self._points(normalise_rows(X), rng), self.depth, self.iterations, rng)

    def _points(self, rows: CSR, rng: np.random.Generator) -> CSR:
        return rows


class ClusterGroups(_TreeGroups):
    """Similar rows together: balanced spherical 2-means, applied `depth` times, gives 2^depth groups of one size (+-1).

    Each split starts from two random members, then alternates centres and a cut at the median of
    ``<x, c_1 - c_2>``. Cost O(nnz(X) depth iterations); extra memory O(n + d) for each thread.
    """

    kind: Literal["clusters"] = "clusters"


class MixedGroups(_TreeGroups):
    """Between clusters and random groups: clusters of ``[(1 - r) x, r u]``, u a random direction for each row.

    u has coordinates of its own, and in many dimensions a random direction is nearly orthogonal to x in any case
    (cosine about ``dimensions^-1/2``); so the features stay sparse, and r = 0 gives the clusters exactly.
    """

    kind: Literal["mixed"] = "mixed"
    level_name: ClassVar[str] = "heterogeneity"
    heterogeneity: float = Field(0.5, ge=0, le=1, description="0: clusters; 1: random groups (r).")
    dimensions: int = Field(256, ge=2, le=4096, description="Coordinates of the random directions.")

    @property
    def level(self) -> float:
        return self.heterogeneity

    def _points(self, rows: CSR, rng: np.random.Generator) -> CSR:
        r = np.float32(self.heterogeneity)
        if r == 0:
            return rows
        noise = rng.standard_normal((rows.shape[0], self.dimensions), dtype=np.float32)
        noise *= r / np.linalg.norm(noise, axis=1, keepdims=True)
        mixed = sp.hstack([rows * (1 - r), sp.csr_array(noise)], format="csr")
        return normalise_rows(csr(mixed.data, mixed.indices, mixed.indptr, mixed.shape[1]))


def _balanced_tree(X: CSR, depth: int, iterations: int, rng: np.random.Generator) -> tuple[Int64, Int64]:
    """Rows in leaf order and the leaf sizes after `depth` balanced splits of every node."""
    rows, order = SparseRows.of(X), np.arange(X.shape[0])
    bounds = np.array([0, X.shape[0]])
    for _ in range(depth):
        nodes = np.arange(len(bounds) - 1)
        starts = rng.random((len(nodes), 2))

        def split(block: Int64, bounds: Int64 = bounds, starts: Float64 = starts) -> None:
            scratch = np.zeros((2, X.shape[1]))
            for node in block:
                members = order[bounds[node] : bounds[node + 1]]
                _split(rows, members, starts[node], iterations, scratch)

        over_blocks(split, [block for block in np.array_split(nodes, 16) if len(block)])
        middles = (bounds[:-1] + bounds[1:]) // 2
        bounds = np.append(np.column_stack([bounds[:-1], middles]).ravel(), bounds[-1])
    return order, np.diff(bounds)


@numba.njit(cache=True, nogil=True)
def _split(X: SparseRows, members: Int64, start: Float64, iterations: int, scratch: Float64) -> None:
    """Reorder the members of a node so that its first half and its second half are its two children.

    `scratch` (2, d) is zero before and after: only features of the members are touched, since a dense pass over all
    features for each node would cost O(d 2^depth).
    """
    rows, size, half = members.copy(), len(members), len(members) // 2
    if size < 2:
        return
    first = int(start[0] * size)
    second = (first + 1 + int(start[1] * (size - 1))) % size
    left, right = rows[first : first + 1], rows[second : second + 1]
    total, difference, scores = scratch[0], scratch[1], np.empty(size)
    for _ in range(iterations):
        _move_centre(X, left, 1.0, total, difference)
        _move_centre(X, right, -1.0, total, difference)
        for position in range(size):
            dot = 0.0
            for entry in range(X.indptr[rows[position]], X.indptr[rows[position] + 1]):
                dot += X.data[entry] * difference[X.indices[entry]]
            scores[position] = -dot
        for row in rows:
            for entry in range(X.indptr[row], X.indptr[row + 1]):
                difference[X.indices[entry]] = 0.0
        previous = left
        ranked = rows[np.argsort(scores, kind="mergesort")]
        left, right = np.sort(ranked[:half]), np.sort(ranked[half:])
        if len(previous) == half and np.all(previous == left):
            break
    members[:half] = left
    members[half:] = right


@numba.njit(cache=True, nogil=True)
def _move_centre(X: SparseRows, rows: Int64, sign: float, total: Float64, target: Float64) -> None:
    """Add `sign` times the unit vector along the sum of some rows to `target`; `total` is zero before and after."""
    for row in rows:
        for entry in range(X.indptr[row], X.indptr[row + 1]):
            total[X.indices[entry]] += X.data[entry]
    square = 0.0
    for row in rows:
        for entry in range(X.indptr[row], X.indptr[row + 1]):
            square += X.data[entry] * total[X.indices[entry]]
    scale = sign / np.sqrt(square) if square > 0 else 0.0
    for row in rows:
        for entry in range(X.indptr[row], X.indptr[row + 1]):
            target[X.indices[entry]] += scale * total[X.indices[entry]]
            total[X.indices[entry]] = 0.0
