"""Why EAGLE may rank below EAGLE-0: precision of the imputed labels, and of two models that learn from them.

Bibtex's features hold much that all rows share. Weighing terms by inverse document frequency takes a part of it away.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from benchmarks.harness import Row, data_folder, row, work_folder
from xcore.components import silent
from xcore.data.dataset import Dataset
from xcore.data.ingest import ingest
from xcore.data.source import Source
from xcore.grouping.random import RandomGroups
from xcore.imputation.base import column_means, quality_against_truth
from xcore.imputation.eagle import Eagle
from xcore.imputation.imputed import Imputed
from xcore.models.ova import Ova
from xcore.models.parabel import Parabel
from xcore.numeric.matrices import CSR, Float64, csr, normalise_rows
from xcore.training.context import FitContext
from xcore.training.data import TrainingData

SEEDS = (0, 1, 2)
POWERS = (0, 1, 2)  # of the inverse document frequency
SIZES = (4, 10, 20)


def run(quick: bool) -> Iterator[Row]:
    """One row per figure: means over seeds."""
    dataset = _bibtex()
    if dataset is None:
        return
    X, Y = dataset.sparse("train"), dataset.Y("train")
    idf = np.log((X.shape[0] + 1) / (np.bincount(X.indices, minlength=X.shape[1]) + 1)) + 1
    for power in POWERS[:1] if quick else POWERS:
        train, test = (_weighted(rows, idf**power) for rows in (X, dataset.sparse("test")))
        case = f"counts x idf^{power}" if power else "counts"
        length = float(np.linalg.norm(column_means(normalise_rows(train))))
        yield row("eagle_order", case, "length of the mean unit row", length, "")
        for size, iterations in product(SIZES[:1] if quick else SIZES, (0, 20)):
            found = [
                _measured(train, Y, test, dataset.Y("test"), size, Eagle(iterations=iterations), seed)
                for seed in (SEEDS[:1] if quick else SEEDS)
            ]
            for metric in found[0]:
                value = float(np.mean([each[metric] for each in found]))
                yield row("eagle_order", f"{case}, groups of {size}, T = {iterations}", metric, value, "%")


def _bibtex() -> Dataset | None:
    source = data_folder("bibtex")
    if source is None:
        return None
    folder = work_folder("eagle_order", "bibtex")
    if not any(folder.iterdir()):
        files = {split: [source / f"{split}.txt"] for split in ("train", "test")}
        ingest(Source.model_validate({"reader": {"kind": "xmc"}, **files}), folder, np.random.default_rng(0), silent)
    return Dataset(folder)


def _weighted(X: CSR, weights: Float64) -> CSR:
    return csr(X.data * weights[X.indices], X.indices, X.indptr, X.shape[1])


def _measured(X: CSR, Y: CSR, X_test: CSR, Y_test: CSR, size: int, eagle: Eagle, seed: int) -> dict[str, float]:
    """In percent: precision of the imputed labels, rows without any, and P@1 of two models trained on them."""
    groups = RandomGroups(size=size).group(X, Y, np.random.default_rng(seed))
    imputed = eagle.impute(X, groups, np.random.default_rng(seed))
    return {
        "imputed labels that are true": 100 * quality_against_truth(imputed, Y)["precision"],
        "rows without a label": 100 * float((np.diff(imputed.Y.indptr) == 0).mean()),
        "P@1, parabel": _precision(Parabel(), X, imputed, X_test, Y_test, seed),
        "P@1, ova": _precision(Ova(), X, imputed, X_test, Y_test, seed),
    }


def _precision(model: Parabel | Ova, X: CSR, imputed: Imputed, X_test: CSR, Y_test: CSR, seed: int) -> float:
    fitted = model.fit(TrainingData.of(X, imputed.Y), FitContext(rng=np.random.default_rng(seed)))
    best = fitted.predict_topk(X_test, 1).labels[:, 0]
    return 100 * float((Y_test.toarray()[np.arange(len(best)), best] > 0).mean())
