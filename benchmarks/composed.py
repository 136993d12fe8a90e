"""Composed digits: several MNIST images side by side, one class per number that they spell, on a small network.

It asks what the heads of Multi-Head Encoding need of the order of labels: the digits of a class are those of the images
(given), or say nothing about the images (random). For a cascade it also counts how often each of its two heads is
right, and how well a plain softmax tells random groups of ten classes apart.

Each result is kept in the work folder by its settings, so a run that was stopped continues.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks.harness import Row, cpu_of, data_folder, row
from benchmarks.head_quality import head_of, images_side_by_side, kept
from xcore.heads.cascade import FittedCascade
from xcore.models.network import FittedNetwork, NeuralNetwork
from xcore.numeric.matrices import Int64, binary_csr
from xcore.training.context import FitContext
from xcore.training.data import TrainingData

Options = dict[str, Any]
ONE_HOT: Options = {"kind": "one-hot", "loss": "softmax"}
CASCADE: Options = {"kind": "mhc", "loss": "softmax"}
SMALL: Options = {"width": 128}
DEEP: Options = {"width": 512, "hidden": (512,)}
CONVOLUTIONS: Options = {"width": 128, "channels": (8, 16), "epochs": 3}  # the network of the presets
GROUP = 10  # classes of a random group
N_TEST = 10_000

# images per row > name > head, layers, whether the classes are random groups
CASES: dict[int, dict[str, tuple[Options, Options, bool]]] = {
    3: {
        "one-hot": (ONE_HOT, SMALL, False),
        "mhc, given order": (CASCADE, SMALL, False),
        "mhc, random order": (CASCADE | {"order": "random"}, SMALL, False),
        "mhc, random order, 512 + 512 units": (CASCADE | {"order": "random"}, DEEP, False),
        "one-hot on random groups of 10": (ONE_HOT, SMALL, True),
    },
    4: {
        "one-hot": (ONE_HOT, SMALL, False),
        "mhp, given order": ({"kind": "mhp", "lengths": (10,) * 4}, SMALL, False),
        "mhp, given order, convolutions": ({"kind": "mhp", "lengths": (10,) * 4}, CONVOLUTIONS, False),
        "mhs, random order": ({"kind": "mhs", "order": "random"}, SMALL, False),
    },
    5: {
        "mhp, given order": ({"kind": "mhp", "lengths": (10,) * 5}, SMALL, False),
        "mhs, random order": ({"kind": "mhs", "order": "random"}, SMALL, False),
    },
}


def run(quick: bool) -> Iterator[Row]:
    """Accuracy of every case on test and training rows, and the CPU time of its training."""
    if data_folder("mnist") is None:
        return
    n_rows, epochs = (2_000, 1) if quick else (60_000, 10)
    for n_images in (3,) if quick else CASES:
        for name, (head, layers, is_grouped) in CASES[n_images].items():
            settings = {"images": n_images, "head": head, "grouped": is_grouped, "rows": n_rows, "epochs": epochs}
            measure = partial(measured, n_images, head, is_grouped, n_rows, epochs, layers)
            for metric, value in kept("composed", settings | layers, measure).items():
                unit = "s" if metric == "training, CPU" else "%"
                yield row("composed", f"{10**n_images:,} classes, {name}", metric, value, unit)


def measured(
    n_images: int, head: Options, is_grouped: bool, n_rows: int, epochs: int, layers: Options
) -> dict[str, float]:
    """Train on composed rows of the training images, and test on rows of the test images."""
    (X, classes), (X_test, truth) = (
        images_side_by_side(split, n, n_images) for split, n in (("train", n_rows), ("t10k", N_TEST))
    )
    n_classes = 10**n_images
    if is_grouped:
        groups = np.random.default_rng(5).permutation(n_classes) // GROUP
        classes, truth, n_classes = groups[classes], groups[truth], n_classes // GROUP
    model = NeuralNetwork(**{"channels": (), "dropout": 0.1, "epochs": epochs, "head": head_of(head)} | layers)
    data = TrainingData.of(X, binary_csr(classes, np.arange(n_rows + 1), n_classes))
    seconds, fitted = cpu_of(lambda: model.fit(data, FitContext(rng=np.random.default_rng(0))))
    assert isinstance(fitted, FittedNetwork)
    some = min(n_rows, 5_000)
    found = {"accuracy": _share(fitted, X_test, truth), "training rows": _share(fitted, X[:some], classes[:some])}
    if isinstance(fitted.head, FittedCascade):
        found |= _right_heads(fitted, fitted.head, X_test, truth)
    return found | {"training, CPU": seconds}


def _share(fitted: FittedNetwork, X: Any, classes: Int64) -> float:
    return 100 * float((fitted.predict_topk(X, 1).labels[:, 0] == classes).mean())


def _right_heads(fitted: FittedNetwork, head: FittedCascade, X: Any, truth: Int64) -> dict[str, float]:
    """How often the first of two heads finds the group, and the second the class of the right group."""
    code = np.full(fitted.n_labels, -1, np.int64)
    code[fitted.labels] = np.arange(len(fitted.labels))
    wanted, length = code[truth], head.codec.lengths[1]
    features = fitted.network.transform(X)
    groups = (features @ head.weights.T + head.biases).argmax(axis=1)
    second = head.further[0]
    scores = (features @ second.weights.T + second.biases) @ second.table.T
    scores[wanted[:, None] // length != np.arange(scores.shape[1]) // length] = -np.inf
    return {
        "group right": 100 * float((groups == wanted // length).mean()),
        "class right, given the group": 100 * float((scores.argmax(axis=1) == wanted).mean()),
    }
