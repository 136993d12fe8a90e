"""Heads: what a training step, its memory and a prediction cost as the number of classes grows."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from pydantic import TypeAdapter

from benchmarks.harness import Goal, Row, peak_memory_bytes, row, run_json
from xcore.heads.base import Head
from xcore.heads.family import AnyHead
from xcore.heads.fitting.base import Targets, TorchHead
from xcore.numeric.matrices import Float32, Int64
from xcore.training.loop import State
from xcore.training.schedule import Schedule
from xcore.training.shards import Lookup, single_threaded_torch

FEATURES, BATCH, RANKS = 512, 256, 5
HEADS: dict[str, dict[str, Any]] = {
    "mhp, 2 heads": {"kind": "mhp"},
    "mhp, 3 heads": {"kind": "mhp", "heads": 3},
    "g-mhe, 4 parts": {"kind": "g-mhe", "parts": 4},
    "mhs": {"kind": "mhs"},
    "mhc": {"kind": "mhc"},
    "mhc, groups of 50": {"kind": "mhc"},
    "mhc, softmax": {"kind": "mhc", "loss": "softmax"},
}
SPEED = {"mhp, 2 heads": Goal(17), "mhs": Goal(8), "mhc": Goal(4)}
LESS_MEMORY = Goal(4.0)
STEP = "import json, sys; from benchmarks import heads; print(json.dumps(heads.step(*sys.argv[1:])))"
PEER = "one-hot, plain torch"


def run(quick: bool) -> list[Row]:
    """Steps and predictions of all heads; each step is measured in a process of its own."""
    sizes, repeats = ((1_000, 10_000), 3) if quick else ((10_000, 100_000, 1_000_000), 8)
    return _steps(sizes, repeats, judged=not quick) + _predictions(sizes, repeats, judged=not quick)


def _steps(sizes: tuple[int, ...], repeats: int, judged: bool) -> list[Row]:
    rows, found = [], {}
    for name in (PEER, "negative-sampling", *HEADS):
        for size in sizes:
            found[name, size] = run_json(["-c", STEP, name, str(size), str(repeats)])
            measured = found[name, size]
            rows.append(row("heads", f"{name}, {size:,} classes", "step, per row", 1e6 * measured["seconds"], "us"))
            rows.append(row("heads", f"{name}, {size:,} classes", "peak memory", measured["peak"] / 2**30, "GB"))
    most = sizes[-1]
    for name in ("negative-sampling", *HEADS):
        times = found[PEER, most]["seconds"] / found[name, most]["seconds"]
        goal = SPEED.get(name) if judged else None
        rows.append(row("heads", f"{name}, {most:,} classes", "faster than one-hot", times, "x", PEER, goal))
    saved = (found[PEER, most]["peak"] - found["mhp, 2 heads", most]["peak"]) / 2**30
    less = LESS_MEMORY if judged else None
    rows.append(row("heads", f"mhp, {most:,} classes", "memory below one-hot", saved, "GB", PEER, less))
    for name, n_heads in (("mhp, 2 heads", 2), ("mhp, 3 heads", 3)):
        growth = found[name, most]["seconds"] / found[name, sizes[0]]["seconds"]
        limit = Goal(1.3 * (most / sizes[0]) ** (1 / n_heads), at_least=False) if judged else None
        rows.append(row("heads", name, f"growth of a step, {sizes[0]:,} to {most:,}", growth, "x", None, limit))
    return rows


def step(name: str, n_classes: str, repeats: str) -> dict[str, float]:
    """Seconds per row of a step (the quickest of some), and the largest memory of this process."""
    advance = {PEER: _one_hot, "negative-sampling": _negative_sampling}.get(name, lambda size: _ours(name, size))
    once, n_rows = advance(int(n_classes))
    once()
    seconds = math.inf
    for _ in range(int(repeats)):
        start = time.perf_counter()
        once()
        seconds = min(seconds, time.perf_counter() - start)
    return {"seconds": seconds / n_rows, "peak": float(peak_memory_bytes())}


def _one_hot(n_classes: int) -> tuple[Callable[[], None], int]:
    """A linear layer with softmax, trained by torch's own AdamW with all of torch's threads."""
    layer = torch.nn.Linear(FEATURES, n_classes)
    optimiser = torch.optim.AdamW(layer.parameters(), fused=True)
    x, classes = torch.from_numpy(features(BATCH)), torch.from_numpy(targets_of(BATCH, n_classes).classes)

    def once() -> None:
        optimiser.zero_grad()
        torch.autograd.backward(torch.nn.functional.cross_entropy(layer(x), classes))
        optimiser.step()

    return once, BATCH


def _negative_sampling(n_classes: int) -> tuple[Callable[[], None], int]:
    """Our own sampled softmax: ten negatives per row, from a tree."""
    from benchmarks.sampling import BATCH as PAIRS
    from benchmarks.sampling import Trainer

    return Trainer.of(n_classes).advance, PAIRS


def _ours(name: str, n_classes: int) -> tuple[Callable[[], None], int]:
    """A step of the training loop on fixed features."""
    problem = FixedFeatures.of(head_of(name, n_classes), n_classes)
    state, examples = State(problem), np.arange(BATCH)
    schedule = Schedule(BATCH, 100, BATCH, 1e-3, 1e-2, seed=0)

    def once() -> None:
        with single_threaded_torch():
            state.advance(problem, schedule, examples)

    return once, BATCH


@dataclass
class FixedFeatures:
    """A head alone, as the training loop takes it."""

    module: TorchHead
    x: Float32
    targets: Targets

    @classmethod
    def of(cls, head: Head, n_classes: int) -> FixedFeatures:
        shares = np.full(n_classes, 1 / n_classes, np.float32)
        return cls(head.module(n_classes, FEATURES, shares, 0), features(BATCH), targets_of(BATCH, n_classes))

    @property
    def tables(self) -> Mapping[str, torch.Tensor]:
        return self.module.tables

    def loss(self, examples: Int64, lookup: Lookup, generator: torch.Generator) -> torch.Tensor:
        own = Targets(
            len(examples),
            self.targets.n_classes,
            np.arange(len(examples)),
            self.targets.classes[examples],
            self.targets.values[examples],
        )
        return self.module.loss(torch.from_numpy(self.x[examples]), own, lookup, generator)

    def evaluate(self) -> dict[str, float]:
        return {}


def _predictions(sizes: tuple[int, ...], repeats: int, judged: bool) -> list[Row]:
    """The five best classes of rows of features, on the threads that predictions use."""
    rows, sublinear = [], Goal(0.8, at_least=False) if judged else None
    for name in ("mhp, 2 heads", "mhc"):
        times = []
        for size in sizes:
            fitted = head_of(name, size).module(size, FEATURES, np.full(size, 1 / size, np.float32), 0).fitted()
            x = features(BATCH)
            fitted.topk(x, RANKS)
            quickest = math.inf
            for _ in range(repeats):
                start = time.perf_counter()
                fitted.topk(x, RANKS)
                quickest = min(quickest, time.perf_counter() - start)
            times.append(quickest / BATCH)
            rows.append(row("heads", f"{name}, {size:,} classes", "top 5 of a row", 1e6 * times[-1], "us"))
        slope = np.polyfit(np.log(sizes), np.log(times), 1)[0]
        rows.append(row("heads", name, "slope of log time over log classes", slope, "", None, sublinear))
    return rows


def head_of(name: str, n_classes: int) -> Head:
    """A head by its name in this benchmark."""
    options = HEADS[name]
    if name == "mhc, groups of 50":
        options = {**options, "lengths": (-(-n_classes // 50), 50)}
    head: Head = TypeAdapter(AnyHead).validate_python(options)
    return head


def features(n: int) -> Float32:
    """Features as a layer with ReLU makes them."""
    return np.maximum(np.random.default_rng(0).standard_normal((n, FEATURES), np.float32), 0)


def targets_of(n: int, n_classes: int) -> Targets:
    """One class per row, each equally likely."""
    classes = np.random.default_rng(1).integers(0, n_classes, n)
    return Targets(n, n_classes, np.arange(n), classes, np.ones(n, np.float32))
