"""Labels for new rows: what a served model answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import scipy.sparse as sp
from pydantic import Field

from xcore.components import Component
from xcore.data.readers.base import Form
from xcore.errors import ConfigError
from xcore.inference.thresholds import LabelThresholds
from xcore.models.bags import ExplainsBags
from xcore.models.base import Extensible, Fitted
from xcore.models.reasons import Remembering
from xcore.numeric.matrices import CSR, NO_LABEL, Int64, TopK, csr, list_parts, rows_with
from xcore.numeric.ragged import TokenRows
from xcore.text.family import AnyFittedText
from xcore.training.data import LabelSide, Matrix


class Cut(Component):
    """How many labels each row gets."""

    k: int = Field(5, ge=1, le=10_000, title="Labels per row", description="Maximum number of labels per row.")
    threshold: float | None = Field(
        None,
        description="Lowest score that a label needs to be kept. A higher threshold keeps fewer labels. Empty: "
        "no limit.",
    )
    per_label: bool = Field(
        False,
        title="Thresholds of labels",
        description="Keep a label only if its score reaches the threshold of this label, which was chosen on dev rows "
        "for the highest F1. Only for models whose dataset has dev rows.",
    )


@dataclass(frozen=True)
class Scorer:
    """A trained model with all that it needs to take rows as they come and to answer with names.

    Attributes
    ----------
    fitted : Fitted
    form : 'text', 'sparse', 'vector' or 'image'
        Columns of the rows: ``text``; ``indices`` and ``values``; ``vector``; or ``image``, the bytes or the pixel
        values from 0 to 255, line by line.
    label_ids, label_names : string (n_labels,)
        Id and name of each label number of the model.
    text : AnyFittedText or None
        What makes features of text; None for other rows, and for a model that takes plain texts.
    thresholds : LabelThresholds or None
        Thresholds of the labels.
    """

    fitted: Fitted
    form: Form
    label_ids: pa.ChunkedArray
    label_names: pa.ChunkedArray
    text: AnyFittedText | None = None
    thresholds: LabelThresholds | None = None

    def __post_init__(self) -> None:
        if len(self.label_ids) != self.fitted.n_labels:
            raise ConfigError(
                f"the model knows {self.fitted.n_labels} labels but the label table has {len(self.label_ids)}: "
                "take the table of the dataset that the model was trained on. Further labels need a model that finds "
                "labels by their names, such as memory"
            )
        needs_text = self.form == "text" and self.fitted.form != "text"
        if self.thresholds is not None and len(self.thresholds.values) != self.fitted.n_labels:
            raise ConfigError(
                f"the model knows {self.fitted.n_labels} labels but there are {len(self.thresholds.values)} "
                "thresholds: take those that were chosen for this model"
            )
        if (needs_text and self.text is None) or (self.form != "text" and self.text is not None):
            raise ConfigError("a model of texts needs the vocabulary it was trained with, and only such a model")
        if needs_text and self.text is not None and self.text.n_features != self.fitted.n_features:
            raise ConfigError(
                f"the model was trained on {self.fitted.n_features} features but the vocabulary has "
                f"{self.text.n_features}: take the vocabulary that the model was trained with"
            )

    @classmethod
    def of_labels(
        cls,
        fitted: Fitted,
        form: Form,
        label_ids: pa.ChunkedArray,
        label_names: pa.ChunkedArray,
        text: AnyFittedText | None = None,
        thresholds: LabelThresholds | None = None,
    ) -> Scorer:
        """A scorer for a label table that may go on after the labels of the training, for a model that allows it."""
        n = fitted.n_labels
        if len(label_ids) <= n or not isinstance(fitted, Extensible):
            return cls(fitted, form, label_ids, label_names, text, thresholds)
        known = cls(fitted, form, label_ids[:n], label_names[:n], text, thresholds)
        return known.with_labels(label_ids[n:].to_pylist(), label_names[n:].to_pylist())

    def with_labels(self, ids: Sequence[str], names: Sequence[str]) -> Scorer:
        """The same model with more labels, which it finds by their names; ids that it knows are left out.

        Raises
        ------
        ConfigError
            The model knows labels by their training rows only.
        """
        known = set(self.label_ids.to_pylist())
        new = {key: name or key for key, name in zip(ids, names, strict=True) if key not in known}
        if not new:
            return self
        if not isinstance(self.fitted, Extensible):
            raise ConfigError(
                f"the label table has {len(new)} labels that the model was not trained on, such as "
                f"{next(iter(new))!r}: only a model that finds labels by their names, such as memory, can predict them"
            )
        texts = list(new.values())
        X = self._rows_of(texts) if self.text is not None else None
        fitted = self.fitted.with_labels(LabelSide(texts, X))
        all_ids = pa.chunked_array([*self.label_ids.chunks, pa.array(list(new), pa.string())])
        all_names = pa.chunked_array([*self.label_names.chunks, pa.array(texts, pa.string())])
        thresholds = self.thresholds.extended(len(all_ids)) if self.thresholds else None
        return replace(self, fitted=fitted, label_ids=all_ids, label_names=all_names, thresholds=thresholds)

    def top(self, rows: pa.RecordBatch, k: int) -> TopK:
        """The k best label numbers of each row; other columns than those of `form` are not looked at."""
        return self.fitted.predict_topk(self.features(rows), k)

    def answer(self, rows: pa.RecordBatch, cut: Cut) -> pa.Table:
        """``labels`` (ids), ``names`` and ``scores`` of each row, best first. Cost: that of the model, plus O(n k).

        ``known`` is false where the model knows no feature of the row: its labels are then the same for every such row.
        """
        features = self.features(rows)
        top = self.fitted.predict_topk(features, cut.k)
        kept = top.labels != NO_LABEL
        if cut.threshold is not None:
            kept &= top.scores >= _float32(cut.threshold)
        if cut.per_label:
            kept &= self._label_thresholds().kept(top)
        offsets = pa.array(np.concatenate([[0], np.cumsum(kept.sum(axis=1))]).astype(np.int32))
        numbers = pa.array(top.labels[kept])

        def lists(table: pa.ChunkedArray) -> pa.ListArray:
            return pa.ListArray.from_arrays(offsets, table.take(numbers).combine_chunks())

        scores = pa.ListArray.from_arrays(offsets, pa.array(top.scores[kept], pa.float32()))
        columns = {"labels": lists(self.label_ids), "names": lists(self.label_names), "scores": scores}
        return pa.table({**columns, "known": pa.array(self._known(rows, features))})

    def _label_thresholds(self) -> LabelThresholds:
        if self.thresholds is None:
            raise ConfigError(
                "this model has no thresholds of labels: they are chosen on dev rows. Train it on data with dev rows "
                "(data.dev or data.holdout.dev), or register it again if it has some"
            )
        return self.thresholds

    def _known(self, rows: pa.RecordBatch, features: Matrix) -> npt.NDArray[np.bool_]:
        """Which rows hold anything that the model knows; an encoder makes a vector of an empty text too."""
        if self.form == "text":
            written = [bool(text and text.strip()) for text in rows.column("text").to_pylist()]
            return np.array(written, np.bool_) & _has_features(features)
        return _has_features(features)

    def nearest(self, rows: pa.RecordBatch, n: int) -> list[dict[str, Any]]:
        """The keys that weigh most in the answer to the first row: ``row`` or ``label``, and ``weight``.

        ``row`` counts the training rows that have labels. A model that does not remember its training rows has none.
        """
        if not isinstance(self.fitted, Remembering):
            return []
        near = self.fitted.evidence(self.features(rows.slice(0, 1)), n)
        found: list[dict[str, Any]] = []
        for row, label, weight in zip(near.rows[0].tolist(), near.labels[0].tolist(), near.weights[0], strict=True):
            if row >= 0:
                found.append({"row": row, "weight": float(weight)})
            elif label >= 0:
                named = {"label": self.label_ids[label].as_py(), "name": self.label_names[label].as_py()}
                found.append({**named, "weight": float(weight)})
        return found

    def explain_bag(self, rows: pa.RecordBatch, k: int) -> list[dict[str, Any]]:
        """The k best labels of the bag that all rows make together, the best first.

        Each has ``label`` (id), ``name``, ``score``, ``row`` (the position of the row that explains it) and ``weight``
        (the part of that row in the evidence of all rows, from 0 to 1).

        Raises
        ------
        ConfigError
            The model does not learn from bags, or there are no rows.
        """
        if not isinstance(self.fitted, ExplainsBags):
            raise ConfigError(
                "this model answers single rows: only a model that learns from bags, such as co-attention or "
                "deep-miml, says which row of a bag explains a label"
            )
        n = rows.num_rows
        if not n:
            raise ConfigError("the bag has no rows, expected at least one")
        bag = csr(np.ones(n), np.arange(n), np.array([0, n]), n)
        found = self.fitted.explain(self.features(rows), bag, min(k, self.fitted.n_labels))
        best = zip(found.top.labels[0].tolist(), found.top.scores[0].tolist(), strict=True)
        why = zip(found.rows[0].tolist(), found.weights[0].tolist(), strict=True)
        return [
            {
                "label": self.label_ids[label].as_py(),
                "name": self.label_names[label].as_py(),
                "score": score,
                "row": row,
                "weight": weight,
            }
            for (label, score), (row, weight) in zip(best, why, strict=True)
            if label != NO_LABEL
        ]

    def features(self, rows: pa.RecordBatch) -> Matrix:
        """The rows in the form that the model takes.

        Raises
        ------
        ConfigError
            A column is missing, or a row does not lie in the model's feature space; the first such row is named.
        """
        if self.form == "text":
            (column,) = self._columns(rows, "text")
            texts = ["" if text is None else text for text in column.to_pylist()]
            return self._rows_of(texts)
        if self.form == "vector":
            (vectors,) = self._columns(rows, "vector")
            offsets, flat = list_items(vectors)
            self._check_rows(np.diff(offsets) != self.fitted.n_features, f"a vector of {self.fitted.n_features}")
            dense = _float32(flat).reshape(len(vectors), self.fitted.n_features)
            self._check_rows(~np.isfinite(dense).all(axis=1), "finite values that fit a float32")
            return dense
        if self.form == "image":
            return self._images(self._columns(rows, "image")[0])
        offsets, indices = list_items(self._columns(rows, "indices")[0])
        others, values = list_items(self._columns(rows, "values")[0])
        self._check_rows(np.diff(offsets) != np.diff(others), "as many values as indices")
        wrong = (indices < 0) | (indices >= self.fitted.n_features)
        self._check_rows(rows_with(offsets, wrong), f"indices from 0 to {self.fitted.n_features - 1}")
        return self._finite(_added_up(csr(_float32(values), indices, offsets, self.fitted.n_features)))

    def _images(self, column: pa.Array) -> Matrix:
        """Images as lines of pixels: each model knows the shape that it was trained on."""
        if not pa.types.is_list(column.type):  # bytes, as in files
            column = pa.array([None if image is None else list(image) for image in column.to_pylist()])
        offsets, pixels = list_items(column.cast(pa.list_(pa.float64())))
        size = self.fitted.n_features
        self._check_rows(np.diff(offsets) != size, f"an image of {size} pixel values")
        whole = (pixels >= 0) & (pixels <= 255) & (pixels == np.floor(pixels))
        self._check_rows(rows_with(offsets, ~whole), "pixel values that are whole numbers from 0 to 255")
        return pixels.astype(np.uint8).reshape(len(column), size, 1)

    def _rows_of(self, texts: list[str]) -> Matrix:
        """Texts in the form that the model takes."""
        if self.text is None or self.fitted.form == "text":
            return texts
        return self.text.sequences(texts) if self.fitted.form == "tokens" else self.text.transform(texts)

    def _columns(self, rows: pa.RecordBatch, *names: str) -> list[pa.Array]:
        for name in names:
            if name not in rows.schema.names:
                there = ", ".join(rows.schema.names) or "no columns"
                raise ConfigError(f"rows of a {self.form} model need a column '{name}', got {there}")
        return [rows.column(name) for name in names]

    def _finite(self, matrix: CSR) -> CSR:
        self._check_rows(rows_with(matrix.indptr, ~np.isfinite(matrix.data)), "finite values that fit a float32")
        return matrix

    @staticmethod
    def _check_rows(wrong: Any, expected: str) -> None:
        if wrong.any():
            raise ConfigError(f"row {int(np.argmax(wrong))} (from 0) does not fit the model: expected {expected}")


def list_items(column: pa.Array) -> tuple[Int64, Any]:
    """Offsets and flat values of lists of any kind; a row without a list is empty."""
    if pa.types.is_fixed_size_list(column.type):
        column = column.cast(pa.list_(column.type.value_type))
    offsets, values = list_parts(pa.chunked_array([column]))
    return offsets, np.require(
        values, requirements="W"
    )  # models compile their kernels for arrays like those of training


def _float32(numbers: Any) -> Any:
    """Numbers as float32, infinite where they do not fit: whoever sent them gets an answer or an error, no warning."""
    with np.errstate(over="ignore"):
        return np.asarray(numbers, np.float32)


def _has_features(rows: Matrix) -> npt.NDArray[np.bool_]:
    """Which rows, in the form that a model takes, hold anything that it knows."""
    if isinstance(rows, TokenRows):
        return np.diff(rows.offsets) > 0
    if isinstance(rows, np.ndarray):
        return np.asarray(rows.reshape(len(rows), -1).any(axis=1), np.bool_)
    if isinstance(rows, list):  # of texts, for a model with an encoder of its own
        return np.ones(len(rows), np.bool_)
    return rows_with(rows.indptr, rows.data != 0)


def _added_up(matrix: CSR) -> CSR:
    """The matrix with ascending, unrepeated column ids in each row."""
    if matrix.has_canonical_format:
        return matrix
    # scipy sorts only where both kinds of index have one type
    same = sp.csr_array((matrix.data, matrix.indices.astype(np.int64), matrix.indptr), shape=matrix.shape)
    same.sum_duplicates()
    return csr(same.data, same.indices, same.indptr, matrix.shape[1])
