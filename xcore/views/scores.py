"""What people see of scored rows: how many there were, and whether they look like those before."""

from __future__ import annotations

from collections.abc import Sequence

from xcore.artifacts import Artifact
from xcore.views.base import Point, View

TRACKED = (
    "rows",
    "labels_per_row",
    "rows_without_labels",
    "rows_without_known_features",
    "mean_best_score",
    "label_distance",
    "rows_per_second",
)


class ScoresView(View):
    """A batch of scored rows."""

    def points(self, artifact: Artifact) -> Sequence[Point]:
        counts = artifact.manifest.counts
        return [(0, {f"batch/{name}": float(counts[name]) for name in TRACKED if name in counts})]

    def sentence(self, artifact: Artifact) -> str:
        counts = artifact.manifest.counts
        unknown = counts["rows_without_known_features"]
        doubt = f". The model knows no feature of {unknown:,} rows (known = false): their labels mean nothing"
        return (
            f"{counts['labels_per_row']:.2f} labels per row, {counts['rows_without_labels']:,} rows without any; mean "
            f"best score {counts['mean_best_score']:.3f}, distance from the labels of the training "
            f"{counts['label_distance']:.3f} (compare it between batches){doubt if unknown else ''}"
        )
