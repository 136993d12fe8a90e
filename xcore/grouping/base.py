"""The whole interface of a grouper."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from pydantic import Field

from xcore.components import Component
from xcore.data.dataset import Merge
from xcore.grouping.groups import Groups, merged_rows
from xcore.numeric.matrices import CSR, Int64, binary_csr, csr


class Grouper(Component):
    """Base of the ways to come by groups."""

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
        given : table of the dataset's own groups, see `Dataset.groups`.
        """
        raise TypeError(f"{type(self).__name__} has no group")


class MadeGroups(Grouper):
    """Base of the groupers that make new groups from rows with known labels."""

    merge: Merge = Field(
        "list",
        description="What is known about the labels of a group. list: how many members have each label; set: "
        "only that at least one member has it.",
    )

    def group(self, X: CSR, Y: CSR, rng: np.random.Generator, given: pa.Table | None = None) -> Groups:
        order, sizes = self._partition(X, rng)
        indptr = np.concatenate([[0], np.cumsum(sizes)])
        members = merged_rows(np.ones(len(order)), order, indptr, X.shape[0], "members")
        positives = binary_csr(Y.indices, Y.indptr, Y.shape[1])
        labels = sp.csr_array(members @ positives)
        labels.sort_indices()
        if self.merge == "set":
            labels.data[:] = 1
        return Groups(members, csr(labels.data, labels.indices, labels.indptr, Y.shape[1]), self.merge)

    def _partition(self, X: CSR, rng: np.random.Generator) -> tuple[Int64, Int64]:
        """Rows in the order of their groups, and the size of each group."""
        raise TypeError(f"{type(self).__name__} makes no groups of its own")
