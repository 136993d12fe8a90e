"""The XMC text reader against scikit-learn's on one file, and the memory of ingesting it."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.harness import Goal, Row, alternate, peak_memory_bytes, row, run_json, work_folder
from xcore.components import silent
from xcore.data.ingest import BLOCK_BYTES, ingest
from xcore.data.readers.xmc import XmcReader
from xcore.data.source import Holdout, Source
from xcore.numeric.matrices import CSR, binary_csr, csr, list_parts

N_FEATURES, N_LABELS, FEATURES_A_ROW, LABELS_A_ROW = 100_000, 10_000, 120, 5
PEER = "sklearn load_svmlight_file(multilabel=True)"
PEAK = "import json, sys; from benchmarks.read import peak; print(json.dumps(peak(sys.argv[1], int(sys.argv[2]))))"


def run(quick: bool) -> list[Row]:
    """Both readers on the same file in turn, with all cores and with one; then ingest files of two sizes."""
    small, large = made_file(10_000 if quick else 40_000), made_file(40_000 if quick else 160_000)
    rows = _speed(small, 3 if quick else 7, "all cores")
    with one_core():
        rows += _speed(small, 3 if quick else 5, "one core")
    return rows + _memory(small, large, (1 << 20) if quick else BLOCK_BYTES)


def made_file(n_rows: int) -> Path:
    """An XMC file with TF-IDF-like values of six digits; made once."""
    path = work_folder("read") / f"{n_rows}.txt"
    if path.exists():
        return path
    rng = np.random.default_rng(n_rows)
    part = path.with_suffix(".part")
    with part.open("w") as file:
        file.write(f"{n_rows} {N_FEATURES} {N_LABELS}\n")
        for _ in range(n_rows):
            labels = np.unique(rng.integers(0, N_LABELS, 1 + rng.poisson(LABELS_A_ROW - 1)))
            features = np.unique(rng.integers(0, N_FEATURES, 1 + rng.poisson(FEATURES_A_ROW - 1)))
            values = rng.random(len(features))
            pairs = " ".join(f"{i}:{v:.6f}" for i, v in zip(features.tolist(), values.tolist(), strict=True))
            file.write(f"{','.join(map(str, labels.tolist()))} {pairs}\n")
    part.rename(path)
    return path


def read_ours(path: Path) -> tuple[CSR, CSR]:
    """The whole file as two matrices in memory, as scikit-learn gives it."""
    reader = XmcReader()
    shape = reader.shape([path])
    blocks = [block.rows for block in reader.blocks(path, shape, BLOCK_BYTES)]
    table = pa.Table.from_batches(blocks)
    offsets, indices = list_parts(table["indices"])
    label_offsets, labels = list_parts(table["labels"])
    X = csr(list_parts(table["values"])[1], indices, offsets, shape.n_features or 0)
    return X, binary_csr(labels, label_offsets, shape.n_labels or 0)


def read_sklearn(path: Path) -> Any:
    """The same rows as scikit-learn reads them (it knows no header, so that line is skipped)."""
    from sklearn.datasets import load_svmlight_file

    with path.open("rb") as file:
        file.readline()
        return load_svmlight_file(file, n_features=N_FEATURES, dtype=np.float32, multilabel=True, zero_based=True)


def _speed(path: Path, repeats: int, cores: str) -> list[Row]:
    X, _ = read_ours(path)  # compiles, or loads what was compiled
    theirs, _ = read_sklearn(path)
    if (theirs != X).nnz:
        raise RuntimeError(f"the two readers disagree about {path}")
    timings = alternate({"ours": lambda: read_ours(path), "sklearn": lambda: read_sklearn(path)}, repeats)
    megabytes = path.stat().st_size / 1e6
    case = f"{megabytes:.0f} MB, {cores}"
    ours, sklearn = timings["ours"].median, timings["sklearn"].median
    return [
        row("read", case, "seconds", ours, "s"),
        row("read", case, "seconds of sklearn", sklearn, "s"),
        row("read", case, "throughput", megabytes / ours, "MB/s"),
        row("read", case, "times faster", sklearn / ours, "x", PEER, Goal(5)),
    ]


def _memory(small: Path, large: Path, block_bytes: int) -> list[Row]:
    rows = []
    for path in (small, large):
        measured = run_json(["-c", PEAK, str(path), str(block_bytes)])
        case = f"ingest {path.stat().st_size / 1e6:.0f} MB, block {block_bytes / 1e6:.1f} MB"
        rows.append(row("read", case, "seconds", measured["seconds"], "s"))
        rows.append(row("read", case, "peak memory above start", measured["bytes"] / 1e6, "MB"))
        rows.append(row("read", case, "peak memory above start", measured["bytes"] / block_bytes, "blocks"))
    return rows


def peak(path: str, block_bytes: int) -> dict[str, float]:
    """Ingest a file in this process: what memory that took beyond a process that has ingested a tiny one."""
    with tempfile.TemporaryDirectory() as folder:
        tiny = Path(folder) / "tiny.txt"
        tiny.write_text("1 1 1\n0 0:1\n")
        _ingest(tiny, Path(folder) / "first", block_bytes)
        before, start = peak_memory_bytes(), time.perf_counter()
        _ingest(Path(path), Path(folder) / "second", block_bytes)
        return {"bytes": peak_memory_bytes() - before, "seconds": time.perf_counter() - start}


def _ingest(path: Path, directory: Path, block_bytes: int) -> None:
    directory.mkdir()
    ingest(
        Source(reader=XmcReader(), train=[path], holdout=Holdout(test=0)),
        directory,
        np.random.default_rng(0),
        silent,
        block_bytes=block_bytes,
    )


@contextmanager
def one_core() -> Iterator[None]:
    """This process on one of its cores."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
