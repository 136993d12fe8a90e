"""Imputers: EAGLE against plain scipy, its growth, where it still fits, and ours against the training that follows.

CPU time is compared: on a shared machine wall time measures the neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numba
import numpy as np
import scipy.sparse as sp

from benchmarks.harness import Goal, Row, cpu_of, data_folder, peak_memory_bytes, row, run_json, work_folder
from benchmarks.parabel import TERMS, prepared
from xcore.components import silent
from xcore.grouping.base import Grouper
from xcore.grouping.groups import Groups
from xcore.grouping.random import RandomGroups
from xcore.grouping.tree import ClusterGroups
from xcore.imputation.base import Imputer
from xcore.imputation.disaggregate import Disaggregate
from xcore.imputation.eagle import Eagle
from xcore.imputation.imputed import Imputed
from xcore.models.parabel import Parabel
from xcore.numeric.matrices import CSR, Float64, Int64, csr, normalise_rows
from xcore.training.context import FitContext
from xcore.training.data import TrainingData

BENCH = "impute"
DATA = "eurlex57k"
PEAK = "import json, sys; from benchmarks.impute import large; print(json.dumps(large(int(sys.argv[1]))))"


def run(quick: bool) -> list[Row]:
    """All figures on EURLEX57K where it is present, and the memory of EAGLE on large generated data."""
    rows: list[Row] = []
    folder = data_folder(DATA)
    if folder is not None:
        data = prepared(folder, work_folder("parabel", DATA), TERMS[DATA])
        X, Y = (_loaded(sp.load_npz(data / f"{name}_train.npz")) for name in "XY")
        if quick:
            X, Y = _every(16, X), _every(16, Y)
        _compile(_every(200, X), _every(200, Y))
        rows += _against_scipy(X, Y, one_label_in=3)
        rows += _all_labels(X, Y)
        rows += _growth(_every(4, X), _every(4, Y))
        rows += _against_training(X, Y)
    return rows + _memory(100 if quick else 1)


def _loaded(matrix: sp.csr_matrix) -> CSR:
    return csr(matrix.data, matrix.indices, matrix.indptr, matrix.shape[1])


def _every(nth: int, matrix: CSR) -> CSR:
    part: CSR = matrix[np.arange(0, matrix.shape[0], nth)]
    return part


def _compile(X: CSR, Y: CSR) -> None:
    """Everything once on a few rows, so that no figure contains a compilation."""
    groups = _groups(RandomGroups(size=4), X, Y)
    for imputer in (Eagle(), Disaggregate()):
        Parabel().fit(TrainingData.of(X, _impute(imputer, X, groups).Y), FitContext(rng=np.random.default_rng(0)))


def _groups(grouper: Grouper, X: CSR, Y: CSR) -> Groups:
    return grouper.group(X, Y, np.random.default_rng(0))


def _impute(imputer: Imputer, X: CSR, groups: Groups) -> Imputed:
    return imputer.impute(X, groups, np.random.default_rng(0), silent)


def _against_scipy(X: CSR, Y: CSR, one_label_in: int) -> list[Row]:
    """The same labels by our kernel and by two plain scipy programs, which must assign the same rows."""
    chosen = np.random.default_rng(0).permutation(Y.shape[1])[::one_label_in]
    groups = _groups(RandomGroups(size=4), X, Y[:, np.sort(chosen)])
    ours, imputed = cpu_of(lambda: _impute(Eagle(), X, groups))
    case = f"EAGLE, groups of 4, T = 20, {len(chosen)} labels"
    rows = [row(BENCH, case, "CPU time", ours, "s")]
    for name, program in (("group", _eagle_by_group), ("label", _eagle_by_label)):
        theirs, assigned = cpu_of(partial(_scipy_eagle, X, groups, program))
        different = abs(assigned - (imputed.Y > 0)).nnz
        against = f"scipy, one product a {name}"
        rows += [
            row(BENCH, case, "CPU time", theirs / ours, "x less", against, Goal(20)),
            row(BENCH, case, "different assignments", different, "", against, Goal(0, at_least=False, any_size=True)),
        ]
    return rows


def _scipy_eagle(X: CSR, groups: Groups, embed: Callable[..., Float64]) -> CSR:
    """Algorithms 1 and 2 of the paper as one would write them with scipy: T = 20, lambda = 0.1."""
    unit = normalise_rows(X).astype(np.float64)
    by_label = groups.labels.T.tocsr()
    members = np.split(groups.members.indices, groups.members.indptr[1:-1])
    assigned = sp.lil_array((groups.n_rows, groups.n_labels), dtype=bool)
    for label in np.flatnonzero(np.diff(by_label.indptr)):
        own = slice(by_label.indptr[label], by_label.indptr[label + 1])
        rows = [members[group] for group in by_label.indices[own]]
        e = embed(unit, rows, by_label.data[own].astype(np.float64))
        for candidates in rows:
            assigned[candidates[np.argmax(unit[candidates] @ e)], label] = True
    return assigned.tocsr()


def _eagle_by_group(X: CSR, rows: list[Int64], counts: Float64) -> Float64:
    """One product for each group and iteration, as the algorithm is printed."""
    parts = [X[candidates] for candidates in rows]
    e: Float64 = sum(count * part.sum(axis=0) for count, part in zip(counts, parts, strict=True))
    e = e / np.linalg.norm(e)
    for _ in range(20):
        direction = np.zeros_like(e)
        for count, part in zip(counts, parts, strict=True):
            scores = part @ e
            direction += count * (part.T @ (scores == scores.max()).astype(np.float64))
        e = e + 0.1 * direction / np.linalg.norm(direction)
        e = e / np.linalg.norm(e)
    return e


def _eagle_by_label(X: CSR, rows: list[Int64], counts: Float64) -> Float64:
    """All groups of a label in one product for each iteration: what an expert would write."""
    sizes = [len(candidates) for candidates in rows]
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    part, weight = X[np.concatenate(rows)], np.repeat(counts, sizes)
    e: Float64 = part.T @ weight
    e = e / np.linalg.norm(e)
    for _ in range(20):
        scores = part @ e
        best = np.repeat(np.maximum.reduceat(scores, first), sizes)
        direction = part.T @ np.where(scores == best, weight, 0.0)
        e = e + 0.1 * direction / np.linalg.norm(direction)
        e = e / np.linalg.norm(e)
    return e


def _all_labels(X: CSR, Y: CSR) -> list[Row]:
    """All labels at two sizes of groups, and the same bits by one thread."""
    rows, n_threads = [], numba.get_num_threads()
    for size in (4, 10):
        groups = _groups(RandomGroups(size=size), X, Y)
        seconds, imputed = cpu_of(partial(_impute, Eagle(), X, groups))
        rows.append(row(BENCH, f"EAGLE, groups of {size}, all labels", "CPU time", seconds, "s"))
    numba.set_num_threads(1)
    alone = _impute(Eagle(), X, groups)
    numba.set_num_threads(n_threads)
    same = alone.Y.indices.tobytes() == imputed.Y.indices.tobytes()
    return [*rows, row(BENCH, "EAGLE", "same bits by one thread", float(same), "", None, Goal(1, any_size=True))]


def _growth(X: CSR, Y: CSR) -> list[Row]:
    """Exponents of the growth of EAGLE's CPU time in rows, in the size of groups and in T.

    Where rows are more, a label has more groups and is seldom done early: only the cost of a single step is linear in
    the rows. T = 20 is shown next to it.
    """

    def seconds(one_in: int = 1, size: int = 4, iterations: int = 20) -> float:
        part_X, part_Y = _every(one_in, X), _every(one_in, Y)
        groups = _groups(RandomGroups(size=size), part_X, part_Y)
        return min(cpu_of(lambda: _impute(Eagle(iterations=iterations), part_X, groups))[0] for _ in range(3))

    def by_rows(iterations: int) -> list[tuple[float, float]]:
        return [(X.shape[0] / part, seconds(one_in=part, iterations=iterations)) for part in (8, 4, 2, 1)]

    limit = Goal(1.1, at_least=False)
    measured: dict[str, list[tuple[float, float]]] = {
        "rows, one step": by_rows(1),
        "rows, T = 20": by_rows(20),
        "size of groups": [(size, seconds(size=size)) for size in (2, 4, 8, 16)],
        "T": [(iterations, seconds(iterations=iterations)) for iterations in (5, 10, 20, 40)],
    }
    return [
        row(BENCH, f"EAGLE, growth in {what}", "exponent", _slope(points), "", None, limit)
        for what, points in measured.items()
    ]


def _slope(points: Iterable[tuple[float, float]]) -> float:
    xs, ys = zip(*((math.log(x), math.log(y)) for x, y in points), strict=True)
    return float(np.polyfit(xs, ys, 1)[0])


def _against_training(X: CSR, Y: CSR) -> list[Row]:
    """Our imputer's time next to that of the label tree trained on what it imputed."""
    rows = []
    cells: dict[str, Grouper] = {f"groups of {size}": RandomGroups(size=size) for size in (4, 10, 50)}
    cells |= {f"2^{depth} clusters": ClusterGroups(depth=depth) for depth in (10, 8)}
    for name, grouper in cells.items():
        groups = _groups(grouper, X, Y)
        imputing, imputed = cpu_of(partial(_impute, Disaggregate(), X, groups))
        data = TrainingData.of(X, imputed.Y)
        training, _ = cpu_of(partial(Parabel().fit, data))
        case, limit = f"disaggregate, {name}", Goal(1, at_least=False)
        rows += [
            row(BENCH, case, "CPU time", imputing, "s"),
            row(BENCH, case, "CPU time", imputing / training, "x", "training the label tree", limit),
        ]
    return rows


def _memory(divisor: int) -> list[Row]:
    """EAGLE where labels times features would not fit: in a process of its own, for its peak is measured."""
    figures: dict[str, Any] = run_json(["-c", PEAK, str(divisor)])
    case = f"EAGLE, {figures['labels']:,} labels, {figures['features']:,} features, {figures['rows']:,} rows"
    return [
        row(BENCH, case, "CPU time", figures["cpu"], "s"),
        row(BENCH, case, "peak memory", figures["peak"] / 1e9, "GB", None, Goal(12, at_least=False)),
    ]


def large(divisor: int) -> dict[str, float]:
    """EAGLE on generated rows of about 40 non-zeros, whose words follow their labels; groups of 4, T = 20."""
    n, d, n_labels, width = 1_700_000 // divisor, 1_600_000 // divisor, 300_000 // divisor, 40
    rng = np.random.default_rng(0)
    n_own = rng.integers(1, 5, n)
    labels = (n_labels * rng.random(int(n_own.sum()), dtype=np.float32) ** 2).astype(np.int32)
    Y = csr(np.ones(len(labels), np.float32), labels, np.concatenate([[0], np.cumsum(n_own)]), n_labels)
    words = (d * rng.random(n * width, dtype=np.float32) ** 3).astype(np.int32)
    # Half of a row's words are among the twenty of its first label; the other half are anyone's.
    first = labels[Y.indptr[:-1]].astype(np.int64)
    own = (first[:, None] * 7919 + rng.integers(0, 20, (n, width // 2)) * 104_729) % d
    words.reshape(n, width)[:, : width // 2] = own
    X = csr(rng.random(n * width, dtype=np.float32), np.minimum(words, d - 1), np.arange(0, n * width + 1, width), d)
    groups = _groups(RandomGroups(size=4), X, Y)
    seconds, _ = cpu_of(lambda: _impute(Eagle(), X, groups))
    return {"rows": n, "features": d, "labels": n_labels, "cpu": seconds, "peak": float(peak_memory_bytes())}
