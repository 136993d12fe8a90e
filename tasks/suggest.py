"""Which rows a person should label next, from imputed labels in the store."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tasks import settings
from xcore.artifacts import Manifest
from xcore.data.dataset import Dataset
from xcore.errors import ConfigError
from xcore.grouping.groups import Groups
from xcore.imputation.imputed import Imputed
from xcore.imputation.suggestion import rows_to_label, uncertainty

MOST_LABELS = 5  # of a row, in a suggestion


@dataclass(frozen=True)
class Suggestion:
    """A row to label.

    Attributes
    ----------
    row : str
        Its id.
    text : str or None
        None where rows have no text.
    labels : mapping of label to confidence
        Its likeliest labels, best first.
    uncertainty : float
        In bits; see `xcore.imputation.suggestion`.
    """

    row: str
    text: str | None
    labels: dict[str, float]
    uncertainty: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def suggest_rows(text: str, n: int) -> list[Suggestion]:
    """The n rows to label first, for the imputed labels with an id, or for those that an artifact was made from."""
    store = settings.store()
    ref = store.find(text)
    imputation = _imputation(store.lineage(ref), str(ref))
    opened = {role: store.open(imputation.inputs[role]) for role in ("groups", "dataset")}
    imputed, groups = Imputed.load(store.open(imputation.ref).directory), Groups.load(opened["groups"].directory)
    dataset = Dataset(opened["dataset"].directory)
    rows, doubt = rows_to_label(imputed, groups, n), uncertainty(imputed)
    ids, names = dataset.row_ids("train").take(rows).to_pylist(), dataset.label_texts()
    texts = _texts(dataset, set(rows.tolist())) if dataset.form == "text" else {}
    found = []
    for row, key in zip(rows.tolist(), ids, strict=True):
        own = imputed.Y[[row]]
        best = sorted(zip(-own.data, own.indices.tolist(), strict=True))[:MOST_LABELS]
        labels = {names[label]: round(float(-minus), 4) for minus, label in best}
        found.append(Suggestion(key, texts.get(row), labels, round(float(doubt[row]), 4)))
    return found


def _imputation(lineage: list[Manifest], name: str) -> Manifest:
    for manifest in lineage:
        if manifest.kind == "imputed":
            return manifest
    raise ConfigError(
        f"{name} was not made from imputed labels: name an imputation, or a model that was trained on one "
        "(`eyrie artifacts ls` lists them)"
    )


def _texts(dataset: Dataset, rows: set[int]) -> dict[int, str]:
    """The texts of some train rows, read block by block."""
    found, start = dict[int, str](), 0
    for block in dataset.text_blocks("train"):
        found |= {row: block[row - start].as_py() for row in rows if start <= row < start + len(block)}
        start += len(block)
    return found
