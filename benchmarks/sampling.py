"""Negative sampling: what a draw, a training step and the fit of the sampler cost as the number of classes grows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.harness import Goal, Row, alternate, peak_memory_bytes, row, run_json
from benchmarks.read import one_core
from xcore.kernels import over_blocks
from xcore.matrices import Float32, Int64, row_blocks
from xcore.models.negative_sampling.pairs import Pairs
from xcore.models.negative_sampling.training import Problem, Schedule, drawn_batch
from xcore.models.negative_sampling.updates import Batch, Parameters, Separable, step_separable
from xcore.sampling.draws import keys_of
from xcore.sampling.sampler import FittedTree, Tree
from xcore.sampling.tree import depth_of
from xcore.sampling.walk import Nodes, aligned

K, D, BATCH, NEGATIVES, RATE = 16, 512, 1000, 10, 0.01
LOSS = Separable(0.0, 1.0, 1e-3)
PEAK = "import json, sys; from benchmarks.sampling import peak; print(json.dumps(peak(int(sys.argv[1]))))"


def run(quick: bool) -> list[Row]:
    """Draws, steps, memory, and the fit of the tree, each next to what it is measured against."""
    rows = _draws(3 if quick else 9)
    rows += _steps(10_000, 100_000 if quick else 1_000_000, 5 if quick else 25)
    rows += _memory(50_000 if quick else 1_000_000)
    return rows + (_tree_fit(20_000, 8_000, 20) if quick else _tree_fit(500_000, 200_000, 60))


def random_tree(n_labels: int) -> FittedTree:
    """A tree whose walks spread over all leaves: the most memory that a draw can touch."""
    rng, depth = np.random.default_rng(0), depth_of(n_labels)
    weights = 0.3 * rng.standard_normal((1 << depth, K), np.float32)
    # Labels fill the leaves from the left; where a right child holds only padding, the walk must not enter it.
    biases = np.zeros(1 << depth, np.float32)
    for level in range(depth):
        first = np.arange(1 << level) << (depth - level)
        empty_right = first + (1 << (depth - level - 1)) >= n_labels
        nodes = (1 << level) + np.flatnonzero(empty_right)
        weights[nodes], biases[nodes] = 0, -1000
    leaves = np.arange(1 << depth, dtype=np.int32)
    places = np.arange(n_labels, dtype=np.int32)
    return FittedTree(Nodes(aligned(weights), biases, np.where(leaves < n_labels, leaves, -1), places, depth))


def _draws(repeats: int) -> list[Row]:
    """Time of a draw on one core, ten draws a row, over trees of growing depth."""
    X = np.random.default_rng(1).standard_normal((2000, K), np.float32)
    keys, depths = keys_of(np.uint64(1), 0, np.arange(2000)), (9, 12, 15, 18)
    trees = {depth: random_tree(1 << depth) for depth in depths}
    trees[depths[0]].sample(X, NEGATIVES, keys)  # compiles, or loads what was compiled

    def case(depth: int) -> Callable[[], object]:
        return lambda: trees[depth].sample(X, NEGATIVES, keys)

    with one_core():
        timings = alternate({str(depth): case(depth) for depth in depths}, repeats)
    each = {depth: timings[str(depth)].median / (2000 * NEGATIVES) for depth in depths}
    rows = [row("sampling", f"draw, C = 2^{depth}", "time", 1e9 * each[depth], "ns") for depth in depths]
    return [
        *rows,
        row("sampling", "draw, C = 2^18", "draws, one core", 1 / each[18], "1/s", None, Goal(1e6)),
        row("sampling", "draw", "time", each[18] / each[9], "x", "C = 2^9", Goal(2.5, at_least=False)),
    ]


@dataclass
class Trainer:
    """A training of adversarial sampling that can be advanced step by step."""

    problem: Problem
    parameters: Parameters
    step: int = 0

    @classmethod
    def of(cls, n_classes: int, n: int = 20_000, noise: FittedTree | None = None, Z: Float32 | None = None) -> Trainer:
        """Random rows, and labels that are all alike: the fewest repeats, so the most rows of weights a step."""
        rng = np.random.default_rng(2)
        X = rng.standard_normal((n, D), np.float32)
        classes = rng.integers(0, n_classes, n).astype(np.int32)
        pairs = Pairs(np.arange(n, dtype=np.int32), classes, np.ones(n, np.float32))
        noise, Z = noise or random_tree(n_classes), np.ascontiguousarray(X[:, :K]) if Z is None else Z
        problem = Problem(X, Z, pairs, n_classes, noise, noise.log_prob(Z, classes[:, None])[:, 0])
        return cls(problem, Parameters.random(n_classes, D, np.uint64(3)))

    def chosen(self) -> Int64:
        """The next batch of rows."""
        self.step += 1
        start = (self.step * BATCH) % (len(self.problem.X) - BATCH)
        return np.arange(start, start + BATCH)

    def advance(self) -> None:
        """One step, the draw of its labels included."""
        step_separable(self.batch(), LOSS, RATE, self.parameters)

    def batch(self) -> Batch:
        """The next rows, with labels drawn for them."""
        return drawn_batch(self.problem, SCHEDULE, self.chosen(), self.step)


SCHEDULE = Schedule("adversarial", 1, BATCH, NEGATIVES, RATE, 1e-3, 1.0, "zero", np.uint64(4))


def _steps(few: int, many: int, repeats: int) -> list[Row]:
    """Steps at two numbers of classes in turn, and streaming through the larger weights in the same turns."""
    trainers = {"few": Trainer.of(few), "many": Trainer.of(many)}
    touched = {name: len(np.unique(trainer.batch().labels)) for name, trainer in trainers.items()}
    for trainer in trainers.values():
        trainer.advance()
    rows_of_many = trainers["many"].parameters.rows

    def stream() -> None:
        over_blocks(
            lambda part: np.multiply(rows_of_many[part], np.float32(1), out=rows_of_many[part]),
            row_blocks(len(rows_of_many), 2048),
        )

    stream()
    many_trainer = trainers["many"]
    drawn = iter([many_trainer.batch() for _ in range(repeats)])
    cases: dict[str, Callable[[], object]] = {name: trainer.advance for name, trainer in trainers.items()}
    cases["update"] = lambda: step_separable(next(drawn), LOSS, RATE, many_trainer.parameters)
    timings = alternate(cases | {"stream": stream}, repeats)
    bandwidth = 2 * rows_of_many.nbytes / timings["stream"].median
    rows = [row("sampling", "memory", "bandwidth, read and write", bandwidth / 1e9, "GB/s")]
    touched["update"] = touched["many"]
    for name, case in (("few", f"step, C = {few:,}"), ("many", f"step, C = {many:,}"), ("update", "its update")):
        seconds = timings[name].median
        # Weights and Adagrad's sums of a touched row are read once and written once. A step also draws its labels,
        # which is a matter of computing; what bandwidth limits is the update.
        share = touched[name] * 4 * 4 * D / seconds / bandwidth
        rows += [
            row("sampling", case, "time", 1e3 * seconds, "ms"),
            row("sampling", case, "rows of weights touched", touched[name], "rows"),
            row("sampling", case, "share of bandwidth", share, "x", None, None if name == "few" else Goal(0.4)),
        ]
    ratio = timings["many"].median / timings["few"].median
    case = f"step, C = {many:,}"
    rows.append(row("sampling", case, "time", ratio, "x", f"C = {few:,}", Goal(1.3, at_least=False)))
    per_row = ratio * touched["few"] / touched["many"]
    rows.append(row("sampling", case, "time a touched row", per_row, "x", f"C = {few:,}"))
    return rows


def peak(n_classes: int) -> dict[str, float]:
    """Peak memory of some steps in this process, beyond what a training with few classes takes."""
    few = Trainer.of(1000)
    few.advance()
    before = peak_memory_bytes()
    trainer = Trainer.of(n_classes)
    for _ in range(5):
        trainer.advance()
    nodes = trainer.problem.noise
    tree = sum(array.nbytes for array in nodes.nodes[:4]) if isinstance(nodes, FittedTree) else 0
    return {"bytes": peak_memory_bytes() - before - trainer.problem.X.nbytes - tree}


def _memory(n_classes: int) -> list[Row]:
    """Memory of weights and optimiser against their size, without features and tree."""
    measured, least = run_json(["-c", PEAK, str(n_classes)])["bytes"], 2 * 4 * n_classes * (D + 1)
    case, against = f"memory, C = {n_classes:,}", "weights and optimiser state"
    return [row("sampling", case, "peak", measured / least, "x", against, Goal(1.1, at_least=False))]


def _tree_fit(n: int, n_classes: int, n_steps: int) -> list[Row]:
    """The fit of the tree to clustered points, against an epoch of training with it."""
    rng = np.random.default_rng(5)
    kinds = rng.standard_normal((n_classes // 100, K), np.float32)
    centres = kinds[rng.integers(0, len(kinds), n_classes)] + 0.5 * rng.standard_normal((n_classes, K), np.float32)
    labels = rng.integers(0, n_classes, n).astype(np.int32)
    Z = centres[labels] + 0.7 * rng.standard_normal((n, K), np.float32)
    Z = (Z - Z.mean(axis=0)) / Z.std(axis=0)
    small = rng.integers(0, 64, 500).astype(np.int32)
    Tree().fit(Z[:500], small, 64)  # compiles, or loads what was compiled
    start = time.perf_counter()
    tree = Tree().fit(Z, labels, n_classes)
    fit = time.perf_counter() - start
    trainer = Trainer.of(n_classes, noise=tree, Z=Z[:20_000])
    trainer.advance()
    timing = alternate({"step": trainer.advance}, n_steps)["step"]
    epoch, case = timing.median * n / BATCH, f"tree, {n:,} x {K}, C = {n_classes:,}"
    return [
        row("sampling", case, "fit", fit, "s"),
        row("sampling", case, f"epoch, by {n_steps} steps", epoch, "s"),
        row("sampling", case, "fit", fit / epoch, "x", "an epoch"),
    ]
