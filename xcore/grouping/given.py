"""Groups as a user has them."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from xcore.data.dataset import merge_of
from xcore.errors import ConfigError
from xcore.grouping.base import Grouper
from xcore.grouping.groups import Groups, groups_of_table
from xcore.numeric.matrices import CSR


class GivenGroups(Grouper):
    """The groups of the data. They may overlap. A repeated member counts once."""

    kind: Literal["given"] = "given"
    merge: Literal["auto", "list", "set"] = Field(
        "auto",
        description="How to use the label counts of a group. auto: as the data says. list: a count is the "
        "number of members that have the label; an error if the data has only sets. set: counts are ignored.",
    )

    def group(self, X: CSR, Y: CSR, rng: np.random.Generator, given: pa.Table | None = None) -> Groups:
        if given is None:
            raise ConfigError(
                "grouper 'given' needs groups in the dataset, got a dataset without groups: give the reader a column "
                "of groups, or the source a file of groups, or choose random, clusters or mixed"
            )
        return given_groups(given, X.shape[0], Y.shape[1], self.merge)


def given_groups(
    given: pa.Table, n_rows: int, n_labels: int, wanted: Literal["auto", "list", "set"] = "auto"
) -> Groups:
    """Groups of a dataset's table (`Dataset.groups`), over its rows and labels; `wanted` is the option `merge`."""
    stored = merge_of(given)
    if wanted == "list" and stored == "set":
        raise ConfigError(
            "grouping.merge is list, but the data has only the set of labels of each group, not how many members "
            "carry them: leave merge out, or ingest labels that tell the counts (row_labels: own, or groups.merge: "
            "list)"
        )
    merge = stored if wanted == "auto" else wanted
    groups = groups_of_table(given, n_rows, n_labels, merge or "list")
    # A table that says nothing and counts nothing above 1 tells sets, not that each label has exactly one carrier.
    is_set = merge is None and not (groups.labels.data > 1).any()
    return replace(groups, merge="set") if is_set else groups
