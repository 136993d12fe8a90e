"""Dev rows that judge embeddings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xcore.numeric.matrices import CSR, NO_LABEL, Float32, Int64, TopK
from xcore.search.keys import Keys
from xcore.siamese.encoder import bag_of_tokens
from xcore.training.data import LabelledRows, Matrix, RowsInMemory, TrainingData
from xcore.training.dev_choice import DEPTH, dev_metrics, dev_sample

DEV_ROWS = 2000  # at most: they are ranked against all labels after each epoch


@dataclass(frozen=True)
class DevRows:
    """Some dev rows with their labels."""

    X: Matrix
    Y: CSR

    @classmethod
    def of(cls, data: TrainingData, most: int = DEV_ROWS) -> DevRows | None:
        """At most so many dev rows; None where none of them has a label."""
        if data.dev is None:
            return None
        rows = RowsInMemory(bag_of_tokens(data.dev.X), data.dev.rows.form)
        sample = dev_sample(LabelledRows(rows, data.dev.Y), most)
        return None if sample is None else cls(*sample)

    def metrics(self, rows: Float32, vectors: Float32, labels: Int64) -> dict[str, float]:
        """Precision at 1 and nDCG at 5 by cosine of the encoded rows with the vectors of some labels.

        Cost O(rows labels D).
        """
        near = Keys(vectors).nearest(rows, DEPTH, 0)
        top = TopK(np.full((len(near.ids), DEPTH), NO_LABEL, np.int32), np.zeros((len(near.ids), DEPTH), np.float32))
        top.labels[:, : near.ids.shape[1]] = labels[near.ids]
        return dev_metrics(top, self.Y)
