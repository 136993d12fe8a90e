"""Random groups, made from clean data to study aggregation."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from xcore.grouping.base import MadeGroups
from xcore.numeric.matrices import CSR, Int64


class RandomGroups(MadeGroups):
    """Random groups: the rows in random order, cut into blocks. The last group may be smaller."""

    kind: Literal["random"] = "random"
    level_name: ClassVar[str] = "rows in a group"
    size: int = Field(4, ge=1, description="Number of rows per group (g). Larger groups say less about each row.")

    @property
    def level(self) -> float:
        return self.size

    def _partition(self, X: CSR, rng: np.random.Generator) -> tuple[Int64, Int64]:
        n = X.shape[0]
        starts = np.arange(0, n, self.size)
        return rng.permutation(n), np.diff(np.append(starts, n))
