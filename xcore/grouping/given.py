"""Groups as a user has them."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pyarrow as pa

from xcore.errors import ConfigError
from xcore.grouping.base import Grouper
from xcore.grouping.groups import Groups, groups_of_table
from xcore.numeric.matrices import CSR


class GivenGroups(Grouper):
    """The groups that came with the data; they may overlap, and repeated members count once."""

    kind: Literal["given"] = "given"

    def group(self, X: CSR, Y: CSR, rng: np.random.Generator, given: pa.Table | None = None) -> Groups:
        if given is None:
            raise ConfigError(
                "grouper 'given' needs groups in the dataset, got a dataset without any; "
                "read one with a group column or file, or choose random, clusters or mixed"
            )
        return groups_of_table(given, X.shape[0], Y.shape[1], self.merge)
