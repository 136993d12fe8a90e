"""The result of an imputer. Models that learn from one need not know any imputer."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from xcore.numeric.checks import Checked
from xcore.numeric.matrices import CSR, csr, list_parts, lists_of_csr
from xcore.saved import Count, Described, metadata_of, read_json, read_table

_FILE, _DETAILS = "labels.parquet", "details.json"


@dataclass(frozen=True)
class Imputed:
    """Labels of single rows, imputed from their groups.

    Attributes
    ----------
    Y : CSR float32 (n, L)
        Stored entries are the imputed positives, their values the confidence in (0, 1] that each is true.
    details : what the imputer has to say for the report: plain JSON values.
    """

    Y: CSR
    details: dict[str, Any] = field(default_factory=dict)

    def positives(self, at_least: float = 0.0, weighted: bool = True) -> CSR:
        """Training labels: the positives of confidence `at_least`, with it as their weight or with weight 1."""
        kept = self.Y.data >= at_least
        indptr = np.concatenate([[0], np.cumsum(kept)])[self.Y.indptr]
        weights = self.Y.data[kept] if weighted else np.ones(int(kept.sum()), np.float32)
        return csr(weights, self.Y.indices[kept], indptr, self.Y.shape[1])

    def counts(self) -> dict[str, int]:
        """For the manifest."""
        return {
            "imputed_positives": int(self.Y.nnz),
            "rows_without_labels": int((np.diff(self.Y.indptr) == 0).sum()),
            "labels_without_rows": int(self.Y.shape[1] - len(np.unique(self.Y.indices))),
        }

    def save(self, directory: Path) -> None:
        """Write list columns `labels` and `confidence`, one row per train row, and the details as JSON."""
        labels, confidence = lists_of_csr(self.Y)
        table = pa.table({"labels": labels, "confidence": confidence})
        pq.write_table(table.replace_schema_metadata({"n_labels": str(self.Y.shape[1])}), directory / _FILE)
        (directory / _DETAILS).write_text(json.dumps(self.details, indent=2, sort_keys=True))

    @classmethod
    def load(cls, directory: Path) -> Imputed:
        """Read what `save` wrote."""
        path = directory / _FILE
        table = read_table(path, {"labels": pa.list_(pa.int32()), "confidence": pa.list_(pa.float32())})
        n_labels = metadata_of(path, table, _Metadata).n_labels
        offsets, labels = list_parts(table["labels"])
        confidence_offsets, confidence = list_parts(table["confidence"])
        Checked(path, "labels", labels).within(0, n_labels).ascending(offsets)
        smallest, above_one = np.nextafter(np.array([0, 1], np.float32), np.float32(2)).tolist()
        weights = Checked(path, "confidence", confidence).within(smallest, above_one)
        if not np.array_equal(offsets, confidence_offsets):
            weights.refuse("has lists of other lengths than 'labels'", "one number per label")
        return cls(csr(confidence, labels, offsets, n_labels), read_json(directory / _DETAILS, dict[str, Any]))


class _Metadata(Described):
    """Of ``labels.parquet``."""

    n_labels: Count
