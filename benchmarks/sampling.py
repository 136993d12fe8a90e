"""Negative sampling: what a draw, a training step and the fit of the sampler cost as the number of classes grows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numba
import numpy as np

from benchmarks.harness import Goal, Row, Timing, alternate, cpu_seconds, peak_memory_bytes, row, run_json
from benchmarks.read import one_core
from xcore.models.negative_sampling.pairs import Pairs
from xcore.models.negative_sampling.sgd import Problem, Schedule, drawn_batch
from xcore.models.negative_sampling.updates import GROUP_PAIRS, Batch, Parameters, Separable, step_separable
from xcore.numeric.draws import keys_of
from xcore.numeric.matrices import Float32, Int64, row_blocks
from xcore.numeric.parallel import over_blocks
from xcore.sampling.sampler import FittedTree, Tree
from xcore.sampling.tree_fit import depth_of
from xcore.sampling.walk import Nodes, aligned

Result = TypeVar("Result")

K, D, BATCH, NEGATIVES, RATE = 16, 512, 1000, 10, 0.01
LOSS = Separable(0.0, 1.0, 1e-3)
A_SMALL_FRACTION = Goal(0.25, at_least=False)
PEAK = "import json, sys; from benchmarks.sampling import peak; print(json.dumps(peak(int(sys.argv[1]))))"


def run(quick: bool) -> list[Row]:
    """Draws, steps, memory, and the fit of the tree, each next to what it is measured against."""
    rows = _draws(5 if quick else 60)
    rows += _steps(10_000, 100_000 if quick else 1_000_000, 5 if quick else 60)
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
    """Time of a draw on one core, ten draws per row, over trees of growing depth."""
    X = np.random.default_rng(1).standard_normal((2000, K), np.float32)
    keys, depths = keys_of(np.uint64(1), 0, np.arange(2000)), (9, 12, 15, 18)
    trees = {depth: random_tree(1 << depth) for depth in depths}
    trees[depths[0]].sample(X, NEGATIVES, keys)  # compiles, or loads what was compiled

    def case(depth: int) -> Callable[[], object]:
        return lambda: trees[depth].sample(X, NEGATIVES, keys)

    with one_core():
        timings = alternate({str(depth): case(depth) for depth in depths}, repeats)
    each = {depth: timings[str(depth)].best / (2000 * NEGATIVES) for depth in depths}
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


SCHEDULE = Schedule("adversarial", 1, BATCH, NEGATIVES, RATE, 1e-3, 1.0, "zero", 0, np.uint64(4))


@numba.njit(nogil=True)
def _rewrite(rows: Float32, chosen: Int64, factor: np.float32) -> None:
    """Read and write some rows, and nothing else."""
    for i in chosen:
        row = rows[i]
        for f in range(len(row)):
            row[f] *= factor


def _steps(few: int, many: int, repeats: int) -> list[Row]:
    """Steps at two numbers of classes, and what memory gives to plain reading and writing, in the same turns.

    Weights and Adagrad's sums of a touched row must be read once and written once, and the features read once: a step
    cannot be quicker than memory takes for that, whether it goes by streaming or by random rows of this size.
    """
    trainers = {"few": Trainer.of(few), "many": Trainer.of(many)}
    touched = {name: len(np.unique(trainer.batch().labels)) for name, trainer in trainers.items()}
    for trainer in trainers.values():
        trainer.advance()
    rows_of_many, rng = trainers["many"].parameters.rows, np.random.default_rng(6)
    streamed = rows_of_many[: min(many, 250_000)]

    def stream() -> None:
        over_blocks(
            lambda part: np.multiply(streamed[part], np.float32(1), out=streamed[part]),
            row_blocks(len(streamed), 2048),
        )

    def visit() -> None:
        chosen = np.sort(rng.choice(many, touched["many"], replace=False))
        over_blocks(
            lambda part: _rewrite(rows_of_many, chosen[part], np.float32(1)), row_blocks(len(chosen), GROUP_PAIRS)
        )

    stream()
    visit()
    drawn = iter([trainers["many"].batch() for _ in range(repeats)])
    cases: dict[str, Callable[[], object]] = {name: trainer.advance for name, trainer in trainers.items()}
    cases["update"] = lambda: step_separable(next(drawn), LOSS, RATE, trainers["many"].parameters)
    timings = alternate(cases | {"stream": stream, "visit": visit}, repeats)
    bandwidth = {
        "streaming": 2 * streamed.nbytes / timings["stream"].best,
        "random rows": 2 * touched["many"] * rows_of_many[0].nbytes / timings["visit"].best,
    }
    return _memory_rows(bandwidth) + _step_rows(few, many, touched, timings, bandwidth)


def _memory_rows(bandwidth: dict[str, float]) -> list[Row]:
    return [
        row("sampling", f"memory, {pattern}", "bandwidth, read and write", rate / 1e9, "GB/s")
        for pattern, rate in bandwidth.items()
    ]


def _step_rows(
    few: int, many: int, touched: dict[str, int], timings: dict[str, Timing], bandwidth: dict[str, float]
) -> list[Row]:
    rows, names = [], {"few": f"step, C = {few:,}", "many": f"step, C = {many:,}", "update": "its update"}
    touched = touched | {"update": touched["many"]}
    for name, case in names.items():
        seconds = timings[name].best
        rows.append(row("sampling", case, "time", 1e3 * seconds, "ms"))
        rows.append(row("sampling", case, "rows of weights touched", touched[name], "rows"))
        rate = (touched[name] * 2 * 4 * 2 * (D + 1) + BATCH * 4 * D) / seconds
        for pattern, limit in bandwidth.items():
            goal = None if name == "few" else Goal(0.4)
            rows.append(row("sampling", case, "share of bandwidth", rate / limit, "x", pattern, goal))
    ratio, case, against = timings["many"].best / timings["few"].best, names["many"], f"C = {few:,}"
    rows.append(row("sampling", case, "time", ratio, "x", against, Goal(1.3, at_least=False)))
    per_row = ratio * touched["few"] / touched["many"]
    return [*rows, row("sampling", case, "time a touched row", per_row, "x", against)]


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


def _advance(trainer: Trainer, n_steps: int) -> None:
    for _ in range(n_steps):
        trainer.advance()


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
    tree, fit, fit_cpu = _timed(lambda: Tree().fit(Z, labels, n_classes))
    trainer = Trainer.of(n_classes, noise=tree, Z=Z[:20_000])
    trainer.advance()
    _, steps, steps_cpu = _timed(partial(_advance, trainer, n_steps))
    epochs, case = n / BATCH / n_steps, f"tree, {n:,} x {K}, C = {n_classes:,}"
    likelihood = float(tree.log_prob(Z, labels[:, None]).mean())
    return [
        row("sampling", case, "log-likelihood a row", likelihood, "nat", f"uniform {-np.log(n_classes):.2f}"),
        row("sampling", case, "fit", fit, "s"),
        row("sampling", case, f"epoch, by {n_steps} steps", steps * epochs, "s"),
        row("sampling", case, "fit, wall time", fit / (steps * epochs), "x", "an epoch"),
        row("sampling", case, "fit, CPU time", fit_cpu / (steps_cpu * epochs), "x", "an epoch", A_SMALL_FRACTION),
    ]


def _timed(work: Callable[[], Result]) -> tuple[Result, float, float]:
    """What `work` gives, its wall seconds, and its CPU seconds."""
    start, start_cpu = time.perf_counter(), cpu_seconds()
    result = work()
    return result, time.perf_counter() - start, cpu_seconds() - start_cpu
