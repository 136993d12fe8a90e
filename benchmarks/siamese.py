"""SiameseXML: how prediction and training steps grow with the number of labels and rows, on generated data.

All times are CPU time. One thread is used if ``NUMBA_NUM_THREADS`` and ``OMP_NUM_THREADS`` are 1. Building the graphs
takes most of the time; ``EYRIE_MOST_LABELS=131072`` leaves out larger sizes than the default of 2^20.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch

from benchmarks.harness import Goal, Row, cpu_of, row
from xcore.models.siamesexml.fitted import FittedSiamese
from xcore.numeric.matrices import CSR, Float32, binary_csr, row_blocks
from xcore.search.keys import Keys, unit_rows
from xcore.siamese.encoder import Encoder
from xcore.siamese.fitting.classifiers import ClassifierProblem
from xcore.siamese.fitting.encoder import EncoderProblem
from xcore.siamese.index import LabelIndex
from xcore.siamese.label_rows import LabelRows
from xcore.siamese.options import Classifiers, Shortlists, SiameseEncoder
from xcore.training.loop import State
from xcore.training.schedule import Schedule

BENCH = "siamese"
DIMENSIONS = 64
TOPICS = 256
QUERIES = 64
SINGLE_QUERIES = 16
SHORTLIST = 500
SINGLE_LABELS = 2**17
WIDTH = Shortlists().width
INDEPENDENT = Goal(0.2, at_least=False)  # our reading of "independent of the number of labels", which asks for 0


def run(quick: bool) -> Iterator[Row]:
    """Prediction against the number of labels, then a step of Modules I and III."""
    most = int(os.environ.get("EYRIE_MOST_LABELS", str(2**20)))
    sizes = [size for size in (2**12, 2**14, 2**16, 2**17, 2**18, 2**20) if size <= most]
    yield from _prediction([2**12, 2**13] if quick else sizes)
    yield from _steps("Module I", _encoder_step, [2**12, 2**14] if quick else [2**12, 2**14, 2**16, 2**18])
    yield from _steps("Module III", _classifier_step, [2**12, 2**14] if quick else [2**14, 2**16, 2**18])


def vectors(n: int, seed: int) -> Float32:
    """Unit vectors around shared topics."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(0).standard_normal((TOPICS, DIMENSIONS))
    noise = rng.standard_normal((n, DIMENSIONS))
    return unit_rows((centres[rng.integers(0, TOPICS, n)] + noise).astype(np.float32))


def model_of(n_labels: int) -> FittedSiamese:
    """A model of generated labels whose rows are vectors; both indexes have graphs."""
    names, centroids = vectors(n_labels, 1), vectors(n_labels, 2)
    everyone = np.arange(n_labels, dtype=np.int32)
    encoder = Encoder(np.eye(DIMENSIONS, dtype=np.float32), np.zeros((DIMENSIONS, DIMENSIONS), np.float32), "none")
    indexes = [LabelIndex.build(own, everyone, 0) for own in (names, centroids)]
    return FittedSiamese("vector", encoder, names, indexes[0], indexes[1], 0.9, SHORTLIST // 2, WIDTH)


def _prediction(sizes: list[int]) -> Iterator[Row]:
    """Time of one query against the number of labels, and the share of the exact neighbours that are found."""
    queries = vectors(QUERIES, 3)
    times = []
    for size in sizes:
        model = model_of(size)
        model.predict_topk(queries[:1], 5)
        times.append(_least_cpu(partial(_single_queries, model, queries)) / SINGLE_QUERIES)
        is_stated = size == SINGLE_LABELS
        goal = Goal(5.0, at_least=False) if is_stated else None
        yield row(BENCH, f"{size} labels", "one query", 1000 * times[-1], "ms", goal=goal)
        recall = _recall(model.names.keys, queries)
        yield row(BENCH, f"{size} labels", f"recall@{SHORTLIST} of the graph", recall, "", goal=Goal(0.95))
    yield row(BENCH, "one query", "slope of log time, log labels", _slope(sizes, times), "", goal=Goal(0.35, False))


def _least_cpu(work: Callable[[], None]) -> float:
    """CPU seconds of the best of five runs; with one thread they are the time on a quiet machine."""
    return min(cpu_of(work)[0] for _ in range(5))


def _single_queries(model: FittedSiamese, queries: Float32) -> None:
    for at in range(SINGLE_QUERIES):
        model.predict_topk(queries[[at]], 5)


def _recall(keys: Keys, queries: Float32) -> float:
    found, exact = (own.nearest(queries, SHORTLIST, WIDTH).ids for own in (keys, keys.exact()))
    return float(np.mean([len(np.intersect1d(*pair)) / SHORTLIST for pair in zip(found, exact, strict=True)]))


def _steps(name: str, step_of: Callable[[int], Callable[[], None]], sizes: list[int]) -> Iterator[Row]:
    """Time of a training step against the number of labels, with four rows per label."""
    steps = {f"{size} labels": step_of(size) for size in sizes}
    for step in steps.values():
        step()
    times = [_least_cpu(step) for step in steps.values()]
    for case, seconds in zip(steps, times, strict=True):
        yield row(BENCH, f"{name}, {case}", "a step", 1000 * seconds, "ms")
    slope = _slope(sizes, times)
    yield row(BENCH, name, "slope of log time, log labels", slope, "", goal=INDEPENDENT)


def _rows_and_labels(n_labels: int) -> tuple[Float32, CSR]:
    n_rows = 4 * n_labels
    labels = np.random.default_rng(5).integers(0, n_labels, n_rows)
    return vectors(n_rows, 4), binary_csr(labels, np.arange(n_rows + 1), n_labels)


def _encoder_step(n_labels: int) -> Callable[[], None]:
    X, Y = _rows_and_labels(n_labels)
    known = np.ones(n_labels, np.bool_)
    start = Encoder(np.eye(DIMENSIONS, dtype=np.float32), np.zeros((DIMENSIONS, DIMENSIONS), np.float32), "none")
    options = SiameseEncoder(batch_size=1024, refresh=0)
    labels = LabelRows(vectors(n_labels, 1), known, known)
    problem = EncoderProblem(options, X, Y, labels, start, None, 0, torch.device("cpu"))
    state, examples = State(problem), np.arange(1024)
    return lambda: state.advance(problem, problem.schedule, examples)


def _classifier_step(n_labels: int) -> Callable[[], None]:
    X, Y = _rows_and_labels(n_labels)
    texts = vectors(n_labels, 1)
    rng, n_rows = np.random.default_rng(6), len(X)
    negatives = np.empty((n_rows, 50), np.int32)
    for part in row_blocks(n_rows, 65536):
        negatives[part] = rng.integers(0, n_labels, (part.stop - part.start, 50))
    start = Encoder(np.eye(DIMENSIONS, dtype=np.float32), np.zeros((DIMENSIONS, DIMENSIONS), np.float32), "none")
    problem = ClassifierProblem(
        Classifiers(), X, Y, np.arange(n_rows), negatives, start, texts, np.arange(n_labels), np.zeros_like(texts),
        None, None, torch.device("cpu"),
    )  # fmt: skip
    schedule = Schedule(n_rows, 1, 128, 0.0005, 0.0, seed=0)
    state = State(problem)
    examples = np.sort(rng.choice(n_rows, 128, replace=False))
    return lambda: state.advance(problem, schedule, examples)


def _slope(sizes: list[int], seconds: list[float]) -> float:
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
