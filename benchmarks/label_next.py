"""Labels of some rows beside labels of groups: how much they help, and suggested rows against any rows.

Groups of 50 with counts, `disaggregate`, `ova`. The truth is used to answer for the rows that are labelled, and to
measure precision on the test rows; nothing is chosen by it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sklearn.datasets import load_svmlight_file

from benchmarks.harness import Row, data_folder, row
from xcore.grouping.groups import Groups
from xcore.grouping.random import RandomGroups
from xcore.imputation.disaggregate import Disaggregate
from xcore.imputation.imputed import Imputed
from xcore.imputation.suggestion import rows_to_label
from xcore.models.ova import Ova
from xcore.numeric.matrices import CSR, Int64, binary_csr, csr
from xcore.training.context import FitContext
from xcore.training.data import LabelledRows, TrainingData
from xcore.training.dev_choice import hits_of

BENCH = "label_next"
DATA = ("bibtex", "delicious")
GROUP_SIZE = 50
LABELLED = (100, 300, 1000)
SEEDS = 3


def run(quick: bool) -> Iterator[Row]:
    """Precision at 1 and 3 by the number of labelled rows."""
    for name in DATA:
        folder = data_folder(name)
        if folder is not None:
            train, test = (_rows(folder / f"{split}.txt") for split in ("train", "test"))
            for seed in range(1 if quick else SEEDS):
                yield from _curve(name, train, test, seed, LABELLED[:1] if quick else LABELLED)


def _curve(name: str, train: LabelledRows, test: LabelledRows, seed: int, labelled: tuple[int, ...]) -> Iterator[Row]:
    groups = RandomGroups(size=GROUP_SIZE).group(train.X, train.Y, np.random.default_rng(seed))
    start = _imputed(train, groups)
    yield from _precision(f"{name}, seed {seed}, 0 rows", "no rows", train, test, start)
    order = np.random.default_rng([seed, 1]).permutation(train.Y.shape[0])
    suggested, imputed, before = groups, start, 0
    for n in labelled:
        case = f"{name}, seed {seed}, {n} rows"
        yield from _precision(case, "any rows", train, test, _imputed(train, _known(groups, train, order[:n])))
        suggested = _known(suggested, train, rows_to_label(imputed, suggested, n - before))
        imputed, before = _imputed(train, suggested), n
        yield from _precision(case, "suggested rows", train, test, imputed)


def _known(groups: Groups, train: LabelledRows, rows: Int64) -> Groups:
    chosen = np.sort(rows)
    return groups.with_own_labels(chosen, train.Y[chosen])


def _imputed(train: LabelledRows, groups: Groups) -> Imputed:
    return Disaggregate().impute(train.X, groups, np.random.default_rng(0))


def _precision(case: str, which: str, train: LabelledRows, test: LabelledRows, imputed: Imputed) -> Iterator[Row]:
    data = TrainingData.of(train.X, imputed.Y, reading=imputed.reading)
    top = Ova().fit(data, FitContext(rng=np.random.default_rng(0))).predict_topk(test.X, 3)
    hits = hits_of(top.labels, test.Y)
    for k in (1, 3):
        yield row(BENCH, case, f"P@{k}, {which}", 100 * hits[:, :k].mean(), "%")


def _rows(path: Path) -> LabelledRows:
    """A file of the extreme classification repository."""
    with path.open("rb") as file:
        n_rows, n_features, n_labels = map(int, file.readline().split())
        X, labels = load_svmlight_file(file, n_features=n_features, multilabel=True, zero_based=True)
    ids = np.array([int(label) for own in labels for label in sorted(own)], np.int32)
    Y = binary_csr(ids, np.append(0, np.cumsum([len(own) for own in labels])), n_labels)
    if X.shape[0] != n_rows:
        raise ValueError(f"{path} has {X.shape[0]} rows, its header says {n_rows}")
    return LabelledRows.of(_features(X), Y)


def _features(X: CSR) -> CSR:
    return csr(X.data, X.indices, X.indptr, X.shape[1])
