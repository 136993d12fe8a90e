"""No assignment: every member carries every label of its group."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from xcore.components import Report
from xcore.grouping.groups import Groups
from xcore.imputation.base import SMALLER_GROUPS, Imputer, Pairs, rows_and_labels
from xcore.imputation.imputed import Imputed
from xcore.memory import need_array
from xcore.numeric.matrices import CSR


class Baseline(Imputer):
    """Every member gets every label of its group.

    This is the product Y1 Y2 of Shen et al. (2020), Section 3, with ``weight: one`` as published. The share is exact
    where counts are known, and a lower bound where they are not. Cost and memory O(sum over groups of members times
    labels).
    """

    kind: Literal["baseline"] = "baseline"
    weight: Literal["share", "one"] = Field(
        "share",
        description="Confidence of the labels. share: the share of the members that carry the label. one: 1, as in the "
        "published baseline; training then takes all these labels for certain.",
    )

    def _impute(self, X: CSR, groups: Groups, rng: np.random.Generator, report: Report) -> Imputed:
        pairs = Pairs.of(groups)
        need_array((int(pairs.size.sum()),), "the candidates of all labels", SMALLER_GROUPS, entry_bytes=64)
        position = np.arange(pairs.size.sum()) - np.repeat(pairs.candidates()[:-1], pairs.size)
        rows = pairs.members[np.repeat(pairs.first, pairs.size) + position]
        labels = np.repeat(pairs.label_of_pair(), pairs.size)
        shares = pairs.carriers / pairs.size if self.weight == "share" else np.ones(len(pairs.size))
        confidence = np.repeat(shares, pairs.size)
        report(1, 1)
        return Imputed(rows_and_labels(rows, labels, confidence, (groups.n_rows, groups.n_labels)))
