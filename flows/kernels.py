"""``eyrie kernels``: make what runs need once per machine, before the first of them waits for it.

numba compiles a kernel for the types of its arguments when it is first called, and keeps the result beside the code.
So small examples of the usual runs are run in a folder that is thrown away. Each is a process of its own. Empty
databases of Prefect and MLflow are kept too: new work folders get copies.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tasks.empty_databases import MLFLOW, PREFECT, keep

_ROWS = {"kind": "generated", "n_train": 600, "n_test": 100, "n_labels": 40, "noise": 0.6}
_TEXTS = {"kind": "jsonl", "text": "text", "labels": "labels"}
_SPARSE = {"kind": "xmc"}
# The longest first: what is left at the end should be short. Labels of groups and the sampler's tree take most.
# Those that share most of their kernels are run one after the other in one process.
EXAMPLES: dict[str, list[dict[str, Any]]] = {
    "labels of groups": [{"data": {"reader": _ROWS | {"group_size": 4}}, "model": {"kind": "ova"}}],
    "negative-sampling": [
        {
            "data": {"reader": _ROWS | {"group_size": 4}},
            "imputer": {"kind": "baseline"},
            "model": {"kind": "negative-sampling"},
        }
    ],
    "texts, sparse rows and parabel": [
        {"data": {"reader": reader}, "model": {"kind": "parabel"}} for reader in (_TEXTS, _SPARSE)
    ],
}


def compile_kernels() -> int:
    """Run all examples, as many at a time as there are processors, and say how far it is."""
    console = Console(stderr=True)
    start, compiled = time.monotonic(), 0.0
    with _bar(console) as bar, ProcessPoolExecutor(_processors(), get_context("spawn")) as pool:
        running: dict[Future[Any], str] = {pool.submit(compile_for, name): f"kernels for {name}" for name in EXAMPLES}
        running |= {pool.submit(keep, each): f"empty database of {each.program}" for each in (PREFECT, MLFLOW)}
        task = bar.add_task("compiling kernels", total=len(running))
        for name, seconds in _ended(running):
            compiled += seconds or 0.0
            bar.update(task, advance=1)
            if not console.is_terminal:
                said = "ready" if seconds is None else f"compiled for {seconds:.1f} s"
                console.print(f"{name}: {said}", highlight=False)
    spent = time.monotonic() - start
    print(f"kernels are compiled: {compiled:.1f} s of compiling in {spent:.1f} s; later runs find them")
    return 0


def _ended(running: dict[Future[Any], str]) -> Iterator[tuple[str, float | None]]:
    for future in as_completed(running):
        yield running[future], future.result()


def _bar(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal)


def _processors() -> int:
    return min(len(os.sched_getaffinity(0)), len(EXAMPLES))


def compile_for(name: str) -> float:
    """Run some examples in a work folder of their own; returns the seconds in which kernels were compiled."""
    from flows.params import PipelineParams
    from flows.plans import plan_pipeline
    from xcore.artifacts import Store
    from xcore.numeric.stopwatch import Stopwatch

    with TemporaryDirectory(prefix="eyrie-kernels-") as folder, Stopwatch() as watch:
        store = Store(folder)
        for example in EXAMPLES[name]:
            params = PipelineParams.model_validate(_with_files(example, Path(folder)))
            for recipe in plan_pipeline(params).evaluation.lineage():
                store.make(recipe)
    return watch.compile_seconds


def _with_files(example: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The example's parameters, with files where its reader wants them."""
    reader = example["data"]["reader"]
    if reader["kind"] == "generated":
        return example
    contents = {"jsonl": _jsonl, "xmc": _xmc}[reader["kind"]]
    files = {}
    for split, n_rows in {"train": 400, "test": 50}.items():
        path = folder / f"{split}.{reader['kind']}"
        path.write_text(contents(n_rows))
        files[split] = [str(path)]
    return example | {"data": {"reader": reader, **files}}


def _jsonl(n_rows: int) -> str:
    texts = (f"word{row % 7} word{row % 11} word{row % 13}" for row in range(n_rows))
    rows = ({"text": text, "labels": [f"label{row % 20}"]} for row, text in enumerate(texts))
    return "".join(json.dumps(row) + "\n" for row in rows)


def _xmc(n_rows: int) -> str:
    rows = (f"{row % 20} {row % 7}:1.5 {7 + row % 11}:1 {18 + row % 13}:0.5\n" for row in range(n_rows))
    return f"{n_rows} 31 20\n" + "".join(rows)
