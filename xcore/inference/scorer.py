"""Labels for new rows: what a served model answers, and the same for files of any size, block by block."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp
from pydantic import Field, model_validator

from xcore.components import Component, Report
from xcore.data.quarantine import Quarantine
from xcore.data.readers.base import Block, Form, Shape, Wanted
from xcore.data.readers.family import BYTES_A_ROW, AnyRowReader
from xcore.data.writing import RowWriter
from xcore.errors import ConfigError, InputError, Place
from xcore.files import replacing
from xcore.models.base import Extensible, Fitted
from xcore.numeric.matrices import CSR, NO_LABEL, Int64, TopK, csr, list_parts, rows_with
from xcore.text.family import AnyFittedText
from xcore.training.data import LabelSide, Matrix

TEXTS = pa.list_(pa.string())
SCORES = pa.list_(pa.float32())
SCORES_FILE = "scores.parquet"


class Batch(Component):
    """Rows to score: files of one format. They are read as in ingestion, but their labels are ignored."""

    reader: AnyRowReader = Field(description="File format and its options. Labels and groups are not read.")
    files: list[Path] = Field(min_length=1, description="Files to score, in this order.")
    on_bad_row: Literal["fail", "quarantine"] = Field(
        "fail",
        description="What to do with bad rows. fail: stop at the first one. quarantine: leave them out and "
        "write down the reason.",
    )
    max_bad_share: float = Field(
        0.01,
        ge=0,
        le=1,
        description="Largest share of bad rows that quarantine accepts. If more rows are bad, scoring fails.",
    )

    @model_validator(mode="after")
    def _knows_the_first_feature(self) -> Self:
        if self.reader.kind == "libsvm" and self.reader.first_index == "auto":
            raise ValueError("reader.first_index is auto, which depends on the file: say 0 or 1, as in training")
        return self


class Cut(Component):
    """How many labels each row gets."""

    k: int = Field(5, ge=1, le=10_000, title="Labels per row", description="Maximum number of labels per row.")
    threshold: float | None = Field(
        None,
        description="Lowest score that a label needs to be kept. A higher threshold keeps fewer labels. Empty: "
        "no limit.",
    )


@dataclass(frozen=True)
class Scorer:
    """A trained model with all that it needs to take rows as they come and to answer with names.

    Attributes
    ----------
    fitted : Fitted
    form : 'text', 'sparse' or 'vector'
        Columns of the rows: ``text``; ``indices`` and ``values``; or ``vector``.
    label_ids, label_names : string (n_labels,)
        Id and name of each label number of the model.
    text : AnyFittedText or None
        What makes features of text; None for other rows, and for a model that takes plain texts.
    """

    fitted: Fitted
    form: Form
    label_ids: pa.ChunkedArray
    label_names: pa.ChunkedArray
    text: AnyFittedText | None = None

    def __post_init__(self) -> None:
        if len(self.label_ids) != self.fitted.n_labels:
            raise ConfigError(
                f"the model knows {self.fitted.n_labels} labels but the label table has {len(self.label_ids)}: "
                "take the table of the dataset that the model was trained on. Further labels need a model that finds "
                "labels by their names, such as memory"
            )
        needs_text = self.form == "text" and self.fitted.form != "text"
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
    ) -> Scorer:
        """A scorer for a label table that may go on after the labels of the training, for a model that allows it."""
        n = fitted.n_labels
        if len(label_ids) <= n or not isinstance(fitted, Extensible):
            return cls(fitted, form, label_ids, label_names, text)
        known = cls(fitted, form, label_ids[:n], label_names[:n], text)
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
        return replace(self, fitted=fitted, label_ids=all_ids, label_names=all_names)

    def top(self, rows: pa.RecordBatch, k: int) -> TopK:
        """The k best label numbers of each row; other columns than those of `form` are not looked at."""
        return self.fitted.predict_topk(self.features(rows), k)

    def answer(self, rows: pa.RecordBatch, cut: Cut) -> pa.Table:
        """``labels`` (ids), ``names`` and ``scores`` of each row, best first. Cost: that of the model, plus O(n k)."""
        top = self.top(rows, cut.k)
        kept = top.labels != NO_LABEL
        if cut.threshold is not None:
            kept &= top.scores >= np.float32(cut.threshold)
        offsets = pa.array(np.concatenate([[0], np.cumsum(kept.sum(axis=1))]).astype(np.int32))
        numbers = pa.array(top.labels[kept])

        def lists(table: pa.ChunkedArray) -> pa.ListArray:
            return pa.ListArray.from_arrays(offsets, table.take(numbers).combine_chunks())

        scores = pa.ListArray.from_arrays(offsets, pa.array(top.scores[kept], pa.float32()))
        return pa.table({"labels": lists(self.label_ids), "names": lists(self.label_names), "scores": scores})

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
            offsets, flat = _parts(vectors)
            self._check_rows(np.diff(offsets) != self.fitted.n_features, f"a vector of {self.fitted.n_features}")
            dense = np.asarray(flat, np.float32).reshape(len(vectors), self.fitted.n_features)
            self._check_rows(~np.isfinite(dense).all(axis=1), "finite values that fit a float32")
            return dense
        offsets, indices = _parts(self._columns(rows, "indices")[0])
        others, values = _parts(self._columns(rows, "values")[0])
        self._check_rows(np.diff(offsets) != np.diff(others), "as many values as indices")
        wrong = (indices < 0) | (indices >= self.fitted.n_features)
        self._check_rows(rows_with(offsets, wrong), f"indices from 0 to {self.fitted.n_features - 1}")
        return _added_up(self._finite(csr(values, indices, offsets, self.fitted.n_features)))

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


def _parts(column: pa.Array) -> tuple[Int64, Any]:
    """Offsets and flat values of lists of any kind; a row without a list is empty."""
    if pa.types.is_fixed_size_list(column.type):
        column = column.cast(pa.list_(column.type.value_type))
    offsets, values = list_parts(pa.chunked_array([column]))
    return offsets, np.require(
        values, requirements="W"
    )  # models compile their kernels for arrays like those of training


def _added_up(matrix: CSR) -> CSR:
    """The matrix with ascending, unrepeated column ids in each row."""
    if matrix.has_canonical_format:
        return matrix
    # scipy sorts only where both kinds of index have one type
    same = sp.csr_array((matrix.data, matrix.indices.astype(np.int64), matrix.indptr), shape=matrix.shape)
    same.sum_duplicates()
    return csr(same.data, same.indices, same.indptr, matrix.shape[1])


def score_batch(
    scorer: Scorer,
    batch: Batch,
    cut: Cut,
    *,
    names: bool,
    directory: Path,
    scratch: Path,
    report: Report,
    block_bytes: int,
) -> dict[str, Any]:
    """Score files into ``scores.parquet``: ``id``, ``labels``, ``names`` (if asked for), ``scores``, ``threshold``.

    Parameters
    ----------
    directory : Path
        Receives the result, and ``quarantine.parquet`` where bad rows were left out.
    scratch : Path
        Keeps each finished block until all is done. A call that finds blocks there reads the input again but does not
        score those rows again. The folder must belong to these files, this model and these options.
    block_bytes : int
        Input that is scored at a time; memory is a few times that.

    Returns
    -------
    dict
        Rows, labels given, rows taken from finished blocks, rows per second of this call, bad rows by reason.

    Notes
    -----
    The bytes of the result do not depend on where earlier calls stopped, nor on what else writes to `scratch`: a block
    appears by a rename, and one that cannot be read is scored again.
    """
    quarantine = Quarantine(directory / "quarantine.parquet" if batch.on_bad_row == "quarantine" else None,
                            batch.max_bad_share)  # fmt: skip
    schema = _schema(names)
    start, total = time.perf_counter(), expected_blocks(batch, block_bytes)
    read = written = fresh = labels = 0
    with RowWriter(directory / SCORES_FILE, schema) as writer:
        for number, block in enumerate(_blocks(scorer, batch, block_bytes)):
            rows = _good_rows(block, read, quarantine)
            part = scratch / f"{number:08d}.arrow"
            table = _kept(part, schema)
            if table is None:
                table = _scored(scorer, rows, cut).select(schema.names).cast(schema)
                _keep(part, table)
                fresh += rows.num_rows
            writer.write(table)
            read, written, labels = read + block.rows.num_rows, written + table.num_rows, labels + _size(table)
            speed = fresh / max(time.perf_counter() - start, 1e-9)
            report(number + 1, max(number + 1, total), {"rows_per_second": speed})
    quarantine.check(read)
    quarantine.close()
    return {
        "rows": written,
        "labels_given": labels,
        "rows_from_before": written - fresh,
        "rows_per_second": round(fresh / max(time.perf_counter() - start, 1e-9), 1),
        "quarantined": quarantine.counts(),
    }


def expected_blocks(batch: Batch, block_bytes: int) -> int:
    """About how many blocks the files have; a compressed file may turn out to have more."""
    blocks = 0
    for path in batch.files:
        if path.suffix == ".parquet":
            blocks += -(-pq.read_metadata(path).num_rows // max(1, block_bytes // BYTES_A_ROW))
        else:
            blocks += -(-path.stat().st_size // block_bytes)
    return blocks


def _schema(names: bool) -> pa.Schema:
    columns = {"id": pa.string(), "labels": TEXTS, "names": TEXTS, "scores": SCORES, "threshold": pa.float32()}
    return pa.schema([(name, kind) for name, kind in columns.items() if names or name != "names"])


def _blocks(scorer: Scorer, batch: Batch, block_bytes: int) -> Iterator[Block]:
    """All rows of all files, in the model's form and feature space."""
    reader, wanted = batch.reader, scorer.fitted.n_features
    if reader.form != scorer.form:
        raise ConfigError(
            f"the reader gives {reader.form} rows but the model was trained on {scorer.form} rows: "
            "name the column or the format that holds what the model was trained on"
        )
    shape = reader.shape(list(batch.files))
    if scorer.form != "text" and shape.n_features not in (None, wanted):
        raise ConfigError(f"the files have {shape.n_features} features but the model was trained on {wanted}")
    for path in batch.files:
        for block in reader.blocks(path, Shape(wanted), block_bytes, Wanted(labels=False, groups="no")):
            if scorer.form == "sparse":
                _find_outside(block, wanted)
            yield block


def _find_outside(block: Block, n_features: int) -> None:
    """Mark rows with a feature that the model does not know."""
    offsets, indices = _parts(block.rows.column("indices"))
    for row in np.flatnonzero(rows_with(offsets, indices >= n_features)).tolist():
        found = int(indices[offsets[row] : offsets[row + 1]].max())
        place = Place(block.file, block.rows.column("line")[row].as_py())
        error = InputError(place, "feature id out of range", str(found), f"at most {n_features - 1}, as in training")
        block.bad.setdefault(row, error)


def _good_rows(block: Block, first_row: int, quarantine: Quarantine) -> pa.RecordBatch:
    """The rows that can be scored, each with an id: its own, or its number among all rows read."""
    for position in sorted(block.bad):
        quarantine.add("score", block.bad[position])
    rows = block.rows
    if "id" not in rows.schema.names:
        numbers = pa.array(np.arange(first_row, first_row + rows.num_rows)).cast(pa.string())
        rows = rows.append_column("id", numbers)
    good = np.ones(rows.num_rows, np.bool_)
    good[list(block.bad)] = False
    return rows.filter(pa.array(good)) if block.bad else rows


def _scored(scorer: Scorer, rows: pa.RecordBatch, cut: Cut) -> pa.Table:
    answer = scorer.answer(rows, cut)
    threshold = pa.array([cut.threshold], pa.float32()).take(pa.array(np.zeros(rows.num_rows, np.int64)))
    return answer.append_column("id", rows.column("id")).append_column("threshold", threshold)


def _size(table: pa.Table) -> int:
    return len(list_parts(table["labels"])[1])


def _kept(part: Path, schema: pa.Schema) -> pa.Table | None:
    """A finished block, or None where there is none or it is damaged."""
    try:
        with pa.OSFile(str(part)) as file:
            table = pa.ipc.open_file(file).read_all()
    except (OSError, pa.ArrowInvalid):
        return None
    return table if table.schema.equals(schema) else None


def _keep(part: Path, table: pa.Table) -> None:
    """Write a finished block: whole or not at all, also when another process writes it too or clears the folder."""
    part.parent.mkdir(parents=True, exist_ok=True)
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    try:
        with replacing(part) as draft, pa.ipc.new_file(str(draft), table.schema, options=options) as file:
            file.write_table(table)
    except FileNotFoundError:  # the other process is done and has cleared the folder: this block is still in memory
        return
