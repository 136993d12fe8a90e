"""The result of an imputer. Models that learn from one need not know any imputer."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from xcore.components import Component
from xcore.numeric.checks import Checked
from xcore.numeric.matrices import CSR, csr, list_parts, lists_of_csr
from xcore.saved import Count, Described, metadata_of, read_json, read_table
from xcore.training.data import Reading

_FILE, _DETAILS = "labels.parquet", "details.json"


class TargetOptions(Component):
    """How a model learns from imputed labels."""

    confidence: Literal["auto", "target", "weight", "ignore"] = Field(
        "auto",
        description="What a confidence q does in training. target: q of the loss counts as a positive, 1 - q as a "
        "negative. weight: the label is a positive of weight q. ignore: every imputed label is certain. auto: target "
        "or weight, as the imputer says.",
    )
    min_confidence: float = Field(
        0.0, ge=0, le=1, description="Imputed labels of a lower confidence are not trained on. 0 keeps all."
    )


@dataclass(frozen=True)
class Imputed:
    """Labels of single rows, imputed from their groups.

    Attributes
    ----------
    Y : CSR float32 (n, L)
        Stored entries are the imputed positives, their values the confidence in (0, 1] that each is true.
    details : what the imputer has to say for the report: plain JSON values.
    reading : "weight" or "target"
        How models should read the confidences (`xcore.training.data.Reading`). An imputer that keeps every member with
        the chance that it carries the label says target; one that chooses members says weight.
    """

    Y: CSR
    details: dict[str, Any] = field(default_factory=dict)
    reading: Reading = "weight"

    def positives(self, at_least: float = 0.0, weighted: bool = True) -> CSR:
        """The positives of confidence `at_least`, with it as their value or with 1."""
        kept = self.Y.data >= at_least
        indptr = np.concatenate([[0], np.cumsum(kept)])[self.Y.indptr]
        values = self.Y.data[kept] if weighted else np.ones(int(kept.sum()), np.float32)
        return csr(values, self.Y.indices[kept], indptr, self.Y.shape[1])

    def targets(self, use: TargetOptions) -> Imputed:
        """What a model trains on, as the options say."""
        Y = self.positives(use.min_confidence, weighted=use.confidence != "ignore")
        readings: dict[str, Reading] = {"target": "target", "weight": "weight"}
        return replace(self, Y=Y, reading=readings.get(use.confidence, self.reading))

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
        metadata = {"n_labels": str(self.Y.shape[1]), "reading": self.reading}
        pq.write_table(table.replace_schema_metadata(metadata), directory / _FILE)
        (directory / _DETAILS).write_text(json.dumps(self.details, indent=2, sort_keys=True))

    @classmethod
    def load(cls, directory: Path) -> Imputed:
        """Read what `save` wrote."""
        path = directory / _FILE
        table = read_table(path, {"labels": pa.list_(pa.int32()), "confidence": pa.list_(pa.float32())})
        said = metadata_of(path, table, _Metadata)
        n_labels = said.n_labels
        offsets, labels = list_parts(table["labels"])
        confidence_offsets, confidence = list_parts(table["confidence"])
        Checked(path, "labels", labels).within(0, n_labels).ascending(offsets)
        smallest, above_one = np.nextafter(np.array([0, 1], np.float32), np.float32(2)).tolist()
        weights = Checked(path, "confidence", confidence).within(smallest, above_one)
        if not np.array_equal(offsets, confidence_offsets):
            weights.refuse("has lists of other lengths than 'labels'", "one number per label")
        details = read_json(directory / _DETAILS, dict[str, Any])
        return cls(csr(confidence, labels, offsets, n_labels), details, said.reading)


class _Metadata(Described):
    """Of ``labels.parquet``."""

    n_labels: Count
    reading: Reading
