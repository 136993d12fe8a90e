"""Rows that a registered version was trained and measured on, where its dataset is still in the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tasks import settings
from tasks.model_versions import Version
from tasks.training_data import training_labels
from xcore.artifacts import ArtifactRef
from xcore.data.dataset import Dataset
from xcore.data.feature_files import COLUMNS
from xcore.data.readers.base import Split
from xcore.errors import ArtifactError
from xcore.numeric.matrices import Int64
from xcore.report.rows import label_names, some_rows

LONGEST_TEXT = 20_000


def example_rows(version: Version, n: int) -> list[dict[str, Any]]:
    """Some rows at even distances, of the test split where there is one: ``id``, ``row`` and true ``labels``."""
    dataset = _dataset(version)
    if dataset is None:
        return []
    split = next(split for split in ("test", "dev", "train") if split in dataset.splits)
    total = dataset.n_rows(split)
    numbers = np.unique(np.linspace(0, max(total - 1, 0), min(n, total)).astype(np.int64)).tolist()
    return list(_rows(dataset, split, numbers).values())


def remembered_rows(version: Version, numbers: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Training rows by their number among those with labels, as a memory counts them; none without the dataset."""
    dataset = _dataset(version)
    if dataset is None or not numbers:
        return {}
    labelled = _labelled_rows(version)
    places = {number: int(labelled[number]) for number in numbers if number < len(labelled)}
    found = _rows(dataset, "train", list(places.values()))
    return {number: found[place] for number, place in places.items()}


def _labelled_rows(version: Version) -> Int64:
    store = settings.store()
    made = store.manifest(version.model).inputs
    inputs = {role: store.open(made[role]) for role in ("dataset", "labels", "groups") if role in made}
    Y, _ = training_labels(inputs)
    rows: Int64 = np.flatnonzero(np.diff(Y.indptr))
    return rows


def _dataset(version: Version) -> Dataset | None:
    ref = ArtifactRef.of("dataset", version.tags.get("eyrie.dataset", ""))
    try:
        return Dataset(settings.store().open(ref).directory) if ref else None
    except ArtifactError:  # it was cleared away, or lies in another store: the version serves all the same
        return None


def _rows(dataset: Dataset, split: Split, numbers: Sequence[int]) -> dict[int, dict[str, Any]]:
    columns = COLUMNS[dataset.form]
    content = some_rows(dataset.directory / f"{split}.parquet", numbers, [*columns, "labels"])
    ids = some_rows(dataset.directory / f"{split}_rows.parquet", numbers, ["id"])
    wanted = sorted({label for row in content.values() for label in row["labels"]})
    keys = some_rows(dataset.directory / "labels.parquet", wanted, ["id"]) if wanted else {}
    names = label_names(dataset.directory, wanted) if wanted else {}
    return {number: _row(row, str(ids[number]["id"]), columns, keys, names) for number, row in content.items()}


def _row(
    row: Mapping[str, Any],
    row_id: str,
    columns: Sequence[str],
    keys: Mapping[int, Mapping[str, Any]],
    names: Mapping[int, str],
) -> dict[str, Any]:
    values = {name: _as_json(row[name]) for name in columns}
    labels = [{"id": str(keys[label]["id"]), "name": names[label]} for label in row["labels"]]
    return {"id": row_id, "row": values, "labels": labels}


def _as_json(value: Any) -> Any:
    if isinstance(value, str):
        return value[:LONGEST_TEXT]
    return list(value) if isinstance(value, bytes) else value  # pixels
