"""Labels that no training row carries: how well they are ranked by their names, on EURLEX57K and YSO titles.

EURLEX57K has 163 labels that occur only outside its training rows; they are judged on its dev and test rows. Of YSO
titles a tenth of the labels is taken off all training rows. Only rows with such a label are judged, and only these
labels count as true. ``EYRIE_ROW_STEP=4`` takes every fourth training row of YSO titles.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks.harness import Row, cpu_of, data_folder, row
from xcore.components import silent
from xcore.models.base import Fitted
from xcore.models.memory import Memory
from xcore.models.siamesexml import SiameseXml
from xcore.models.siamesexml.fitted import FittedSiamese
from xcore.numeric.matrices import CSR, NO_LABEL, Int32, Int64, binary_csr, row_blocks
from xcore.siamese.options import Classifiers, Shortlists, SiameseEncoder
from xcore.text.family import terms_of
from xcore.text.tfidf import Tfidf
from xcore.text.wordllama import WordLlama
from xcore.training.data import LabelledRows, LabelSide, Matrix, RowForm, RowsInMemory, TrainingData
from xcore.training.dev_choice import hits_of, ideal_gains, ndcg

BENCH = "unseen_labels"
DEV_ROWS = 3000
MOST_ROWS = 1000  # that are judged
HELD_OUT = 0.1
BLOCK_ROWS = 256
DEPTHS = (5, 10, 100)


@dataclass(frozen=True)
class Task:
    """Texts and labels of training rows, dev rows and judged rows; `unseen` are labels without training rows."""

    texts: tuple[Sequence[str], Sequence[str], Sequence[str]]
    truth: tuple[CSR, CSR, CSR]
    names: Sequence[str]
    unseen: Int64


def run(quick: bool) -> Iterator[Row]:
    """All rows of the datasets that are present; `quick`: a hundredth of the training rows."""
    step = 100 if quick else int(os.environ.get("EYRIE_ROW_STEP", "1"))
    for name, task_of in (("yso-titles", titles), ("eurlex57k", laws)):
        folder = data_folder(name)
        if folder is None:
            continue
        task = task_of(folder, step)
        yield row(BENCH, name, "labels without training rows", len(task.unseen), "")
        yield row(BENCH, name, "judged rows", task.truth[2].shape[0], "")
        yield from _judged(name, task)


def titles(folder: Path, step: int) -> Task:
    """YSO titles without a tenth of the labels in training."""
    ids, names = _labels(folder)
    train, test = (_rows(folder / f"{split}.parquet", ids) for split in ("train", "test"))
    unseen = np.sort(np.random.default_rng(0).choice(len(ids), int(HELD_OUT * len(ids)), replace=False))
    chosen = np.arange(0, len(train[0]), step)
    texts, Y = _at(train[0], chosen), _without(train[1][chosen].tocsr(), unseen)
    return _task(texts, Y, *test, names, unseen)


def laws(folder: Path, step: int) -> Task:
    """EURLEX57K as it is; `step` is not used unless the run is quick."""
    ids, names = _labels(folder)
    train, *others = (_rows(folder / f"{split}.parquet", ids) for split in ("train", "dev", "test"))
    texts = [text for other in others for text in other[0]]
    Y = _stacked([other[1] for other in others])
    unseen = np.setdiff1d(np.unique(Y.indices), np.unique(train[1].indices)).astype(np.int64)
    chosen = np.arange(0, len(train[0]), step if step == 100 else 1)
    return _task(_at(train[0], chosen), train[1][chosen].tocsr(), texts, Y, names, unseen)


def _judged(name: str, task: Task) -> Iterator[Row]:
    """Every model on the rows that have an unseen label."""
    encoder = WordLlama().fit((), silent)
    vectors = [encoder.transform(texts) for texts in (*task.texts, task.names)]
    of_vectors = _data(task, vectors, "vector", None)
    zero_shot = Memory(row_share=0.0, n_neighbours=10_000, temperature=0.05, exact_below=10**9)
    nothing = replace(of_vectors, rows=RowsInMemory(vectors[0][:1], "vector"), Y=task.truth[0][:1].tocsr(), dev=None)
    yield from _figures(f"{name}, names alone, wordllama", *cpu_of(partial(zero_shot.fit, nothing)), vectors[2], task)
    yield from _figures(f"{name}, memory, wordllama", *cpu_of(partial(Memory().fit, of_vectors)), vectors[2], task)
    text = Tfidf(max_features=60_000).fit([task.texts[0]], silent)
    words = [text.transform(texts) for texts in (*task.texts, task.names)]
    of_words = _data(task, words, "sparse", terms_of(text, "sparse"))
    for case, model in SIAMESE.items():
        yield from _figures(f"{name}, siamesexml, {case}", *cpu_of(partial(model.fit, of_words)), words[2], task)


SIAMESE = {
    "Module I": SiameseXml(
        encoder=SiameseEncoder(table="wordllama", label_names="required", epochs=4),
        shortlists=Shortlists(near=0, random=5),
        classifiers=Classifiers(epochs=0),
    ),
    "as in the preset": SiameseXml(
        encoder=SiameseEncoder(table="wordllama", label_names="required", epochs=0),
        shortlists=Shortlists(near=0, random=5),
        classifiers=Classifiers(epochs=0, batch_size=1024, temperature=0.05),
        joint_epochs=2,
        joint_learning_rate=0.005,
    ),
}


def _figures(case: str, seconds: float, model: Fitted, X: Matrix, task: Task) -> Iterator[Row]:
    """Recall and nDCG of the unseen labels, among all labels and among themselves."""
    truth = _only(task.truth[2], task.unseen)
    among_all, alone = _rankings(model, X, task.unseen)
    for place, ranking in {"among all labels": among_all, "among unseen labels": alone}.items():
        for depth in DEPTHS:
            found = hits_of(ranking[:, :depth], truth).sum(axis=1) / np.diff(truth.indptr)
            yield row(BENCH, case, f"recall@{depth} {place}", 100 * float(found.mean()), "%")
        value = ndcg(hits_of(ranking[:, :5], truth), ideal_gains(truth))
        yield row(BENCH, case, f"nDCG@5 {place}", 100 * value, "%")
    yield row(BENCH, case, "CPU time of the fit", seconds, "s")


def _rankings(model: Fitted, X: Matrix, unseen: Int64) -> tuple[Int32, Int32]:
    """The first labels of each row, and its first unseen ones; -1 where there are fewer."""
    if isinstance(model, FittedSiamese):
        model = replace(model, n_candidates=model.n_labels)
    is_unseen = np.zeros(model.n_labels + 1, np.bool_)
    is_unseen[unseen] = True
    deepest = max(DEPTHS)
    of_all, of_unseen = [], []
    for part in row_blocks(X.shape[0], BLOCK_ROWS):
        labels = model.predict_topk(X[part], model.n_labels).labels
        order = np.argsort(~is_unseen[labels], axis=1, kind="stable")[:, :deepest]
        alone = np.take_along_axis(labels, order, axis=1)
        of_all.append(labels[:, :deepest])
        of_unseen.append(np.where(is_unseen[alone], alone, NO_LABEL).astype(np.int32))
    return np.concatenate(of_all), np.concatenate(of_unseen)


def _labels(folder: Path) -> tuple[dict[str, int], list[str]]:
    """Numbers of the labels by their ids, and their names."""
    table = pq.read_table(folder / "labels.parquet", columns=["id", "name"])
    return {key: number for number, key in enumerate(table["id"].to_pylist())}, table["name"].to_pylist()


def _rows(path: Path, ids: dict[str, int]) -> tuple[list[str], CSR]:
    table = pq.read_table(path, columns=["text", "labels"])
    own = [sorted({ids[label] for label in labels}) for labels in table["labels"].to_pylist()]
    return table["text"].to_pylist(), _matrix(own, len(ids))


def _matrix(own: Sequence[Sequence[int]], n_labels: int) -> CSR:
    ends = np.concatenate([[0], np.cumsum([len(labels) for labels in own])])
    return binary_csr(np.array([label for labels in own for label in labels], np.int64), ends, n_labels)


def _at(texts: Sequence[str], numbers: Int64) -> list[str]:
    return [texts[number] for number in numbers.tolist()]


def _stacked(parts: Sequence[CSR]) -> CSR:
    ends = np.concatenate([[0], np.cumsum(np.concatenate([np.diff(part.indptr) for part in parts]))])
    return binary_csr(np.concatenate([part.indices for part in parts]), ends, parts[0].shape[1])


def _only(Y: CSR, labels: Int64) -> CSR:
    """The matrix without the entries of all other labels."""
    kept = np.isin(Y.indices, labels)
    ends = np.concatenate([[0], np.cumsum(kept)])[Y.indptr]
    return binary_csr(Y.indices[kept], ends, Y.shape[1])


def _without(Y: CSR, labels: Int64) -> CSR:
    return _only(Y, np.setdiff1d(np.arange(Y.shape[1]), labels))


def _task(
    texts: Sequence[str], Y: CSR, other_texts: Sequence[str], others: CSR, names: Sequence[str], unseen: Int64
) -> Task:
    """Dev rows are training rows; of the other rows at most 1,000 with an unseen label are judged."""
    rng = np.random.default_rng(1)
    is_dev = np.zeros(len(texts), np.bool_)
    is_dev[rng.permutation(len(texts))[: min(DEV_ROWS, len(texts) // 10)]] = True
    has_unseen = np.flatnonzero(np.diff(_only(others, unseen).indptr))
    judged = np.sort(rng.permutation(has_unseen)[:MOST_ROWS])
    train, dev = np.flatnonzero(~is_dev), np.flatnonzero(is_dev)
    return Task(
        (_at(texts, train), _at(texts, dev), _at(other_texts, judged)),
        (Y[train].tocsr(), Y[dev].tocsr(), others[judged].tocsr()),
        names,
        unseen,
    )


def _data(task: Task, X: Sequence[Matrix], form: RowForm, terms: Sequence[str] | None) -> TrainingData:
    """Training rows, dev rows and label names in one form."""
    dev = LabelledRows(RowsInMemory(X[1], form), task.truth[1])
    return TrainingData(RowsInMemory(X[0], form), task.truth[0], dev, LabelSide(task.names, X[3], terms=terms))
