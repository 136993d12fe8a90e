"""What heads learn: features for classes that were not in training, next words, and the rank that a softmax needs.

Each result is kept in the work folder by its settings, so a run that was stopped continues.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import torch
from pydantic import TypeAdapter
from torch.nn.functional import cross_entropy

from benchmarks.harness import Goal, Row, cpu_seconds, data_folder, row, work_folder
from xcore.data.readers.idx import opened
from xcore.heads.base import Head
from xcore.heads.family import AnyHead
from xcore.models.network import FittedNetwork, NeuralNetwork
from xcore.models.ova import Ova
from xcore.numeric.matrices import CSR, Int64, binary_csr
from xcore.text.tokens import tokenise
from xcore.training.context import FitContext
from xcore.training.data import TrainingData

SEEDS = (0, 1, 2)
CONTEXT = 4  # words
Images = npt.NDArray[np.uint8]
HEADS: dict[str, dict[str, Any]] = {
    "one-hot, softmax": {"kind": "one-hot", "loss": "softmax"},
    "one-hot, logistic": {"kind": "one-hot"},
    "mhp": {"kind": "mhp", "order": "random"},
    "mhc": {"kind": "mhc", "loss": "softmax", "order": "random"},
    "mhs": {"kind": "mhs", "order": "random"},
    "mhs, 1 group": {"kind": "mhs", "order": "random", "lengths": (20, 4), "groups": 1},
    "mhs, 2 groups": {"kind": "mhs", "order": "random", "lengths": (20, 4), "groups": 2},
    "mhs, 4 groups": {"kind": "mhs", "order": "random", "lengths": (20, 4), "groups": 4},
    "mhs, margin": {"kind": "mhs", "order": "random", "margin": 0.2, "scale": 16.0},
    "g-mhe": {"kind": "g-mhe", "order": "random"},
}
WORD_HEADS: dict[str, dict[str, Any]] = {
    "one-hot, softmax": {"kind": "one-hot", "loss": "softmax"},
    "mhc": {"kind": "mhc", "loss": "softmax", "order": "clustered"},
    "mhc, random order": {"kind": "mhc", "loss": "softmax", "order": "random"},
    "mhs": {"kind": "mhs", "order": "random"},
    "mhp": {"kind": "mhp", "order": "random"},
}
AT_LEAST_ONE_HOT = Goal(0.0)


def run(quick: bool) -> list[Row]:
    """The linear probe on unseen classes, next words, and the two-layer linear network."""
    return _probe(quick) + _words(quick) + _ranks(quick)


def kept(name: str, settings: dict[str, Any], measure: Callable[[], dict[str, float]]) -> dict[str, float]:
    """A result from the work folder, or measured now."""
    key = hashlib.sha256(json.dumps([name, settings], sort_keys=True).encode()).hexdigest()[:16]
    path = work_folder("head_quality") / f"{name}-{key}.json"
    if not path.exists():
        path.write_text(json.dumps(measure()))
    found: dict[str, float] = json.loads(path.read_text())
    return found


def head_of(options: dict[str, Any]) -> Head:
    """A head by its options."""
    head: Head = TypeAdapter(AnyHead).validate_python(options)
    return head


def _probe(quick: bool) -> list[Row]:
    """Pairs of digits make 100 classes: a network learns 80, and a linear classifier the other 20 by its features."""
    if data_folder("mnist") is None:
        return []
    rows, found = [], {}
    n_rows, epochs, seeds = (4_000, 2, SEEDS[:1]) if quick else (40_000, 4, SEEDS)
    for name, head in HEADS.items():
        results = []
        for seed in seeds:
            settings = {"head": head, "rows": n_rows, "epochs": epochs, "seed": seed}
            results.append(kept("probe", settings, partial(_probed, head_of(head), n_rows, epochs, seed)))
        for metric in ("seen", "unseen"):
            values = [100 * result[metric] for result in results]
            found[name, metric] = float(np.mean(values))
            case = f"{name}, sd {np.std(values):.2f}"
            rows.append(row("head_quality", case, f"accuracy, {metric} classes", found[name, metric], "%"))
    best = max(found[name, "unseen"] for name in HEADS if name.startswith("one-hot"))
    lead = max(found[name, "unseen"] for name in HEADS if name.startswith("mhs")) - best
    goal = None if quick else AT_LEAST_ONE_HOT
    return [*rows, row("head_quality", "best mhs", "unseen classes, above one-hot", lead, "points", "one-hot", goal)]


def _probed(head: Head, n_rows: int, epochs: int, seed: int) -> dict[str, float]:
    images, classes = images_side_by_side("train", n_rows, 2)
    test_images, test_classes = images_side_by_side("t10k", 10_000, 2)
    model = NeuralNetwork(width=128, channels=(8, 16), epochs=epochs, dropout=0.1, head=head)
    seen = classes % 5 != 0
    fitted = model.fit(_data(images[seen], classes[seen]), FitContext(rng=np.random.default_rng(seed)))
    assert isinstance(fitted, FittedNetwork)
    known = test_classes % 5 != 0
    answers = fitted.predict_topk(test_images[known], 1).labels[:, 0]
    probe = Ova().fit(_data(fitted.network.transform(images[~seen]), classes[~seen]))
    probed = probe.predict_topk(fitted.network.transform(test_images[~known]), 1).labels[:, 0]
    accuracy = float((answers == test_classes[known]).mean())
    return {"seen": accuracy, "unseen": float((probed == test_classes[~known]).mean())}


def images_side_by_side(split: str, n_rows: int, n_images: int) -> tuple[Images, Int64]:
    """Rows of some MNIST images side by side, and the numbers that their digits spell."""
    folder = data_folder("mnist")
    assert folder is not None
    with (
        opened(folder / f"{split}-images-idx3-ubyte.gz") as images,
        opened(folder / f"{split}-labels-idx1-ubyte.gz") as classes,
    ):
        n, (height, width, _) = images.sizes[0], images.image_shape()
        pixels = np.frombuffer(images.read(n * height * width), np.uint8).reshape(n, height, width)
        digits = classes.numbers(n)
    drawn = np.random.default_rng(n).integers(0, n, (n_rows, n_images))
    return np.concatenate([pixels[own] for own in drawn.T], axis=2), digits[drawn] @ 10 ** np.arange(n_images)[::-1]


def _data(X: Any, classes: Int64) -> TrainingData:
    return TrainingData.of(X, binary_csr(classes, np.arange(len(classes) + 1), 100))


def _words(quick: bool) -> list[Row]:
    """The next word of a law from the four words before it."""
    if data_folder("eurlex57k") is None:
        return []
    rows = []
    n_rows, n_words, epochs = (5_000, 500, 1) if quick else (200_000, 20_000, 2)
    for name, head in WORD_HEADS.items():
        settings = {"head": head, "rows": n_rows, "words": n_words, "epochs": epochs}
        found = kept("words", settings, partial(_learnt_words, head_of(head), n_rows, n_words, epochs))
        case = f"{name}, {n_words:,} words"
        for rank in (1, 5):
            rows.append(row("head_quality", case, f"next word among first {rank}", 100 * found[f"at_{rank}"], "%"))
        rows.append(row("head_quality", case, "training, CPU", found["cpu_seconds"], "s"))
    return rows


def _learnt_words(head: Head, n_rows: int, n_words: int, epochs: int) -> dict[str, float]:
    X, words = contexts(n_rows + n_rows // 10, n_words)
    model = NeuralNetwork(width=128, epochs=epochs, dropout=0.1, learning_rate=0.004, head=head)
    Y = binary_csr(words, np.arange(len(words) + 1), n_words)
    before = cpu_seconds()
    fitted = model.fit(TrainingData.of(X[:n_rows], Y[:n_rows]))
    spent = cpu_seconds() - before
    top = fitted.predict_topk(X[n_rows:], 5).labels == words[n_rows:, None]
    return {"at_1": float(top[:, 0].mean()), "at_5": float(top.any(axis=1).mean()), "cpu_seconds": spent}


def contexts(n_rows: int, n_words: int) -> tuple[CSR, Int64]:
    """Four words, each at its place, as features, and the word that follows; rare words are left out of the text."""
    folder = data_folder("eurlex57k")
    assert folder is not None
    table = pq.read_table(folder / "train.parquet", columns=["text"]).slice(0, 40 + n_rows // 100)
    tokens = tokenise(table["text"].to_pylist())
    counts = np.bincount(tokens.ids, minlength=len(tokens.terms))
    number = np.full(len(counts), -1)
    number[np.argsort(-counts, kind="stable")[:n_words]] = np.arange(min(n_words, len(counts)))
    stream = number[tokens.ids]
    stream = stream[stream >= 0]
    starts = np.sort(np.random.default_rng(0).choice(len(stream) - CONTEXT, n_rows, replace=False))
    features = stream[starts[:, None] + np.arange(CONTEXT)] + n_words * np.arange(CONTEXT)
    order = np.random.default_rng(1).permutation(n_rows)
    X = binary_csr(features[order].reshape(-1), CONTEXT * np.arange(n_rows + 1), CONTEXT * n_words)
    return X, stream[starts + CONTEXT][order]


def _ranks(quick: bool) -> list[Row]:
    """Two linear layers learn 100 random points by heart: which rank cross-entropy needs, and which squared error."""
    rows = []
    for rank in (1, 4) if quick else (1, 2, 4, 8, 16, 32, 64, 100):
        for loss in ("cross-entropy", "squared error"):
            found = kept("rank", {"rank": rank, "loss": loss}, partial(_learnt_by_heart, rank, loss))
            rows.append(row("head_quality", f"rank {rank}, {loss}", "training accuracy", 100 * found["accuracy"], "%"))
            rows.append(row("head_quality", f"rank {rank}, {loss}", "loss", found["loss"], ""))
    return rows


def _learnt_by_heart(rank: int, loss: str) -> dict[str, float]:
    n, dimensions, steps = 100, 200, 4000
    torch.manual_seed(0)
    x, classes = torch.randn(n, dimensions), torch.arange(n)
    network = torch.nn.Sequential(torch.nn.Linear(dimensions, rank), torch.nn.Linear(rank, n))
    optimiser = torch.optim.Adam(network.parameters(), 0.01)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.01, steps)
    value = torch.zeros(())
    for _ in range(steps):
        optimiser.zero_grad()
        scores = network(x)
        wanted = torch.eye(n)
        value = (scores - wanted).square().mean() if loss == "squared error" else cross_entropy(scores, classes)
        torch.autograd.backward(value)
        optimiser.step()
        schedule.step()
    accuracy = float((network(x).argmax(dim=1) == classes).float().mean())
    return {"accuracy": accuracy, "loss": float(value.detach())}
