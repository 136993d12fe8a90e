"""Labels for files of any size, block by block; a killed call continues after its last finished block."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field, model_validator

from xcore.components import Component, Report
from xcore.data.quarantine import Quarantine
from xcore.data.readers.base import Block, Shape, Wanted
from xcore.data.readers.family import BYTES_A_ROW, AnyRowReader
from xcore.data.writing import RowWriter
from xcore.errors import ConfigError, InputError, Place
from xcore.files import replacing
from xcore.inference.scorer import Cut, Scorer, list_items
from xcore.numeric.matrices import list_parts, rows_with

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
    """Score files into ``scores.parquet``: ``id``, ``labels``, ``names`` (if asked for), ``scores``, ``known``,
    ``threshold``.

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
    columns = {"id": pa.string(), "labels": TEXTS, "names": TEXTS, "scores": SCORES, "known": pa.bool_()}
    columns["threshold"] = pa.float32()
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
    offsets, indices = list_items(block.rows.column("indices"))
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
