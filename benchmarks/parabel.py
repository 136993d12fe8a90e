"""Our linear label tree against PECOS XR-Linear, omikuji and napkinXC: quality, time, memory, size, and growth of cost.

Every figure comes from a process of its own (`benchmarks._parabel_worker`), systems in turn, after ours has compiled.
CPU time is what is compared: on a shared machine wall time measures the neighbours.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.harness import ROOT, Goal, Row, data_folder, load, peer_python, row, run_json, work_folder
from xcore.metrics import evaluate
from xcore.numeric.matrices import TopK, csr

BENCH = "parabel"
TERMS = {"eurlex57k": 5_000, "yso-titles": 60_000}
PEERS_OF = {
    ("eurlex57k", 1): ("pecos", "omikuji", "napkinxc"),
    ("yso-titles", 1): ("pecos", "omikuji", "napkinxc"),
    ("eurlex57k", 3): ("omikuji", "pecos"),
    ("yso-titles", 3): ("omikuji",),
}
CPU_SECONDS = 1200  # ten minutes of two cores; what needs more is left out
N_THREADS = 2
MEGABYTE = 1e6

Figures = dict[str, Any]


def run(quick: bool) -> Iterator[Row]:
    """All rows of all datasets that are present, as they are measured; `quick`: a small part of EURLEX57K."""
    folders = {name: data_folder(name) for name in (("eurlex57k",) if quick else TERMS)}
    datasets = {
        name: prepared(folder, work_folder(BENCH, name), TERMS[name]) for name, folder in folders.items() if folder
    }
    if quick:
        datasets = {name: part(data, "rows", 8) for name, data in datasets.items()}
    for name, data in datasets.items():
        measure("eyrie", part(data, "rows", 64), 1)  # so that ours is compiled before it is measured
        ours = [measure("eyrie", data, 1, n_threads) for n_threads in (1, 2, 2)]
        n_files, metric = len({found["model_sha256"] for found in ours}), "different model files at 1, 2, 2 threads"
        yield row(BENCH, name, metric, n_files, "", None, Goal(1, at_least=False, any_size=True))
        if name == "yso-titles":
            yield from growth(data, name, ours[-1])
        yield from compare(data, name, 1, ours[-1])
    for name, data in datasets.items():
        yield from compare(data, name, 3, measure("eyrie", data, 3))


def compare(data: Path, name: str, n_trees: int, ours: Figures) -> Iterator[Row]:
    """Our figures, those of the peers, and ours against theirs; a peer that fails or takes too long is left out."""
    case = f"{name}, {n_trees} tree{'s' * (n_trees > 1)}"
    yield from listed(f"{case}, eyrie", ours)
    peers: dict[str, Figures] = {}
    for system in PEERS_OF[name, n_trees]:
        try:
            peers[system] = measure(system, data, n_trees)
        except RuntimeError as error:
            print(error, file=sys.stderr)
            yield row(BENCH, f"{case}, {system}", "no result, CPU seconds allowed", CPU_SECONDS, "s")
        else:
            yield from listed(f"{case}, {system}", peers[system])
    yield from judged(case, ours, peers)


def measure(system: str, data: Path, n_trees: int, n_threads: int = N_THREADS) -> Figures:
    """One run of the worker, and the quality of its ranking in points."""
    out = work_folder(BENCH, "models") / system
    python = None if system == "eyrie" else PEERS[system]()
    threads = {name: str(n_threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")}
    numbers = [str(number) for number in (n_trees, n_threads, CPU_SECONDS)]
    words = [str(ROOT / "benchmarks" / "_parabel_worker.py"), system, str(data), str(out), *numbers]
    figures: Figures = run_json(words, python, threads)
    labels = np.load(out / "labels.npy")
    scores = np.where(labels >= 0, -np.arange(labels.shape[1], dtype=np.float32), np.float32(-np.inf))
    truth, train = (sp.load_npz(data / f"{name}.npz") for name in ("Y_test", "Y_train"))
    quality = evaluate(
        TopK(labels, scores),
        csr(truth.data, truth.indices, truth.indptr, truth.shape[1]),
        train_counts=np.bincount(train.indices, minlength=train.shape[1]),
        n_train=train.shape[0],
        n_bootstrap=0,
        rng=np.random.default_rng(0),
    )
    wanted = [f"{metric}_at_{k}" for metric in ("precision", "psp") for k in (1, 3, 5)]
    return figures | {name: 100 * quality.metrics[name] for name in wanted}


PEERS = {
    "pecos": lambda: peer_python(
        "pecos", ["numpy<2", "scipy<1.14", "scikit-learn<1.6", "psutil"], ["--no-deps", "libpecos==1.2.8"]
    ),
    "omikuji": lambda: peer_python("omikuji", ["numpy", "scipy", "omikuji==0.5.2"]),
    "napkinxc": lambda: peer_python("napkinxc", ["numpy", "scipy", "napkinxc==0.7.2"]),
}


def listed(case: str, figures: Figures) -> Iterator[Row]:
    """A system's figures as a reader wants them, with the load at their end."""
    for name, value in figures.items():
        if name.startswith(("precision", "psp")):
            yield row(BENCH, case, name, value, "%")
        elif name in {"rss_peak", "rss_before_training", "model_bytes"}:
            yield row(BENCH, case, name.replace("_bytes", "_size"), value / MEGABYTE, "MB")
        elif name in {"one_row_wall", "one_row_cpu", "load_wall"}:
            yield row(BENCH, case, name, 1000 * value, "ms")
        elif not isinstance(value, str):
            yield row(BENCH, case, name, value, "s")
    yield row(BENCH, case, "load average", load(), "")


def judged(case: str, ours: Figures, peers: dict[str, Figures]) -> Iterator[Row]:
    """Ours against the best of the peers (quality) and against PECOS (cost)."""
    for metric in (name for name in ours if peers and name.startswith(("precision", "psp"))):
        best = max(peers, key=lambda name: peers[name][metric])
        ahead = ours[metric] - peers[best][metric]
        yield row(BENCH, case, f"{metric}, ours - best", ahead, "points", best, Goal(-0.3))
    yield row(BENCH, case, "one row, warm, median", 1000 * ours["one_row_wall"], "ms", None, Goal(1.0, at_least=False))
    pecos = peers.get("pecos")
    if pecos:
        for name in ("train_cpu", "predict_cpu", "rss_peak", "model_bytes"):
            ratio = ours[name] / pecos[name]
            yield row(BENCH, case, f"{name}, ours / theirs", ratio, "ratio", "pecos", Goal(1.0, at_least=False))
        for name in ("train_wall", "predict_wall", "one_row_wall"):
            yield row(BENCH, case, f"{name}, ours / theirs", ours[name] / pecos[name], "ratio", "pecos")


def growth(data: Path, name: str, whole: Figures) -> Iterator[Row]:
    """Training CPU time at 1/8 to all of the rows, labels, non-zeros; the exponent is 1 where cost is linear."""
    for what in ("rows", "labels", "non-zeros"):
        case = f"{name}, growth with {what}"
        for one_in in (2, 4, 8):
            seconds = measure("eyrie", part(data, what, one_in), 1)["train_cpu"]
            yield row(BENCH, case, f"train_cpu at 1/{one_in}", seconds, "s")
        yield row(BENCH, case, "exponent from 1/8 to 1", math.log(whole["train_cpu"] / seconds, 8), "")


def prepared(source: Path, folder: Path, n_terms: int) -> Path:
    """TF-IDF of the texts (train vocabulary, sublinear, rows of length 1) and the label matrices, made once."""
    if (folder / "Y_test.npz").exists():
        return folder
    import pyarrow.parquet as pq
    from sklearn.feature_extraction.text import TfidfVectorizer

    tables = {
        split: pq.read_table(source / f"{split}.parquet", columns=["text", "labels"]) for split in ("train", "test")
    }
    words = TfidfVectorizer(max_features=n_terms, sublinear_tf=True, dtype=np.float32)
    words.fit(tables["train"]["text"].to_pylist())
    names = {split: [sorted(set(own)) for own in table["labels"].to_pylist()] for split, table in tables.items()}
    number = {
        name: i for i, name in enumerate(sorted({name for lists in names.values() for own in lists for name in own}))
    }
    for split, table in tables.items():
        save(folder / f"X_{split}.npz", words.transform(table["text"].to_pylist()))
        indptr = np.cumsum([0] + [len(own) for own in names[split]])
        indices = np.array([number[name] for own in names[split] for name in own])
        shape = (len(names[split]), len(number))
        save(folder / f"Y_{split}.npz", sp.csr_matrix((np.ones(len(indices), np.float32), indices, indptr), shape))
    return folder


def part(data: Path, what: str, one_in: int) -> Path:
    """The dataset with every n-th training row, a random n-th of the labels, or of the features' non-zeros."""
    if one_in == 1:
        return data
    folder = data / f"{what}-{one_in}"
    if (folder / "Y_test.npz").exists():
        return folder
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    matrices = {name: sp.load_npz(data / f"{name}.npz") for name in ("X_train", "Y_train", "X_test", "Y_test")}
    kept_labels = np.sort(rng.permutation(matrices["Y_train"].shape[1])[:: one_in if what == "labels" else 1])
    for name, matrix in matrices.items():
        split = "train" if name.endswith("train") else "test"
        labelled = np.flatnonzero(np.diff(matrices[f"Y_{split}"][:, kept_labels].tocsr().indptr))
        small = matrix[labelled] if what == "labels" else matrix
        if what == "rows" and split == "train":
            small = small[::one_in]
        if name.startswith("Y"):
            small = small[:, kept_labels]
        if what == "non-zeros" and name.startswith("X"):
            small.data[rng.random(small.nnz) >= 1 / one_in] = 0
            small.eliminate_zeros()
        save(folder / f"{name}.npz", small)
    return folder


def save(path: Path, matrix: Any) -> None:
    """Write a CSR matrix with ascending columns, uncompressed."""
    matrix = sp.csr_matrix(matrix)
    matrix.sort_indices()
    sp.save_npz(path, matrix, compressed=False)
