"""All classifiers of a forest: which rows each node sees, its blocks of children, and the weights packed for search."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numba
import numpy as np
import numpy.typing as npt

from xcore.grouping.label_tree import Shape
from xcore.models.parabel.node import (
    block_chances,
    block_targets,
    gather_rows,
    kept_weights,
    node_chances,
    rows_under,
)
from xcore.models.parabel.solver import (
    soft_logistic_targets,
    solve_logistic,
    solve_soft_squared_hinge,
    solve_squared_hinge,
)
from xcore.numeric.matrices import CSR, Float32, Int32, Int64
from xcore.numeric.parallel import SparseRows
from xcore.numeric.simd import LANES
from xcore.training.checkpoints import Pieces

BLOCKS_A_TASK = 8  # further children of one node are trained by further tasks, which gather the rows again

Int16: TypeAlias = npt.NDArray[np.int16]
Unsigned: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]


class Chunks(NamedTuple):
    """Pruned weights of all classifiers, grouped by node, then feature, so that a search reads only its row's features.

    Attributes
    ----------
    node_lines : int64 (n_nodes + 1,)
        Lines of each node; a line holds the weights of one feature. Nodes of all trees, one tree after another.
    node_entries : int64 (n_nodes + 1,)
        Entries of each node.
    features : int32 (n_lines,)
        Feature of each line, ascending within a node.
    line_starts : int32 (n_lines + n_nodes,)
        First entry of each line, counted from the node's first; node ``i`` has one value more than lines, from
        place ``node_lines[i] + i`` on.
    children : uint8, uint16 or uint32 (nnz,)
        Number of the child within its node.
    weights : int16 (nnz,)
        Weight of the entry divided by its classifier's scale.
    scales, biases : float32 (n_classifiers,)
        Classifiers in the order of nodes, then children.
    """

    node_lines: Int64
    node_entries: Int64
    features: Int32
    line_starts: Int32
    children: Unsigned
    weights: Int16
    scales: Float32
    biases: Float32


@dataclass(frozen=True)
class Solver:
    """How each linear classifier is trained; the fields of the same names of `Parabel`.

    Attributes
    ----------
    is_soft : bool
        A positive of q below 1 is a positive with q of the loss and a negative with the rest. False: q is its weight.
    """

    loss: str
    cost: float
    bias: float
    tolerance: float
    max_passes: int
    prune_below: float
    is_soft: bool = False


@dataclass(frozen=True)
class Task:
    """Some children of one node, which covers places `first` to `last` of its tree's label order.

    Child ``c`` of the task covers places ``edges[c] : edges[c + 1]``; it is child ``first_child + c`` of the node.
    """

    tree: int
    node: int
    first: int
    last: int
    first_child: int
    edges: Int64


class Part(NamedTuple):
    """What a task has learnt: its kept weights by feature within each block of children."""

    features: Int32
    children: Int32
    weights: Int16
    scales: Float32
    biases: Float32


def train_forest(
    X: CSR,
    positives: CSR,
    orders: Int32,
    shape: Shape,
    solver: Solver,
    seeds: npt.NDArray[np.uint64],
    done: Callable[[int, int], None],
    pieces: Pieces,
) -> Chunks:
    """Train the classifiers of every node on the rows that have a positive under that node; the root sees all rows.

    Parameters
    ----------
    X : CSR float32 (n, d)
    positives : CSR float32 (L, n)
        Rows of each label with their weights.
    orders : int32 (n_trees, L)
        Labels of each tree in the order of its leaves.
    seeds : uint64 (n_trees, n_nodes)
    done : callable
        Told the number of finished tasks and of all tasks.
    pieces : Pieces
        Tasks that a killed training had finished; receives those that this one finishes.

    Notes
    -----
    Cost O(passes * sum over nodes of the non-zeros of its rows * children / LANES). Memory beside the result:
    for each thread a copy of the rows of its node (none for the root), and 128 bytes per row (192 if targets are soft).
    """
    tasks = [task for tree in range(len(orders)) for task in _tasks_of_tree(shape, tree)]
    rows, labels, (n, d) = SparseRows.of(X), SparseRows.of(positives), X.shape
    n_positives = np.diff(labels.indptr)
    sizes = [n_positives[orders[t.tree, t.first : t.last]].sum() * (len(t.edges) - 1) for t in tasks]
    # Largest first, so that no thread is left alone with a large task at the end.
    largest_first = sorted(range(len(tasks)), key=lambda i: (-sizes[i], i))

    def train(i: int) -> Part:
        if i in pieces.done:
            return Part(**pieces.done[i])
        task = tasks[i]
        return _train_node(rows, n, d, labels, orders[task.tree], task, solver, seeds[task.tree, task.node])

    parts: dict[int, Part] = {}
    with ThreadPoolExecutor(numba.get_num_threads()) as pool:
        for i, part in zip(largest_first, pool.map(train, largest_first), strict=True):
            parts[i] = part
            if i not in pieces.done:
                pieces.add(i, part._asdict())
            done(len(parts), len(tasks))
    return _pack(tasks, [parts[i] for i in range(len(tasks))])


def _tasks_of_tree(shape: Shape, tree: int) -> list[Task]:
    """The work of a tree in the order of nodes and children."""
    tasks: list[Task] = []
    width, node = BLOCKS_A_TASK * LANES, 0
    for level in range(shape.depth + 1):
        edges, below = shape.bounds(level), shape.bounds(level + 1)
        firsts = np.searchsorted(below, edges)
        for j in range(len(edges) - 1):
            own = below[firsts[j] : firsts[j + 1] + 1]
            tasks += [
                Task(tree, node, int(edges[j]), int(edges[j + 1]), c, own[c : c + width + 1])
                for c in range(0, len(own) - 1, width)
            ]
            node += 1
    return tasks


def _train_node(
    X: SparseRows, n: int, d: int, positives: SparseRows, order: Int32, task: Task, solver: Solver, seed: np.uint64
) -> Part:
    if task.node == 0:
        chosen, rows, features = np.arange(n, dtype=np.int32), X, np.arange(d, dtype=np.int32)
    else:
        chosen = rows_under(positives, order[task.first : task.last])
        rows, features = gather_rows(X, d, chosen)
    masses = np.ones(n, np.float32)
    if solver.is_soft and task.node:
        masses = node_chances(positives, order[task.first : task.last], chosen)
    parts: list[Part] = []
    for c in range(0, len(task.edges) - 1, LANES):
        edges = task.edges[c : c + LANES + 1]
        n_children = len(edges) - 1
        live = (np.arange(LANES) < n_children).astype(np.float32)
        rest = (live, len(features), solver.bias, solver.tolerance, solver.max_passes, seed)
        lines = _solve(rows, positives, order, edges, chosen, masses, n, solver, rest)
        kept, children, weights = kept_weights(lines, len(features), n_children, solver.prune_below)
        codes, scales = _quantise(children, weights, n_children)
        biases = lines[len(features) * LANES :][:n_children] * np.float32(solver.bias)
        parts.append(Part(features[kept], children + np.int32(task.first_child + c), codes, scales, biases))
    return _join(parts)


def _solve(
    rows: SparseRows, positives: SparseRows, order: Int32, edges: Int64, chosen: Int32, masses: Float32, n: int,
    solver: Solver, rest: tuple[Any, ...],
) -> Float32:  # fmt: skip
    """Weights of up to `LANES` children, by the loss and the reading of the targets that are asked for."""
    lines: Float32
    if solver.is_soft:
        chances = block_chances(positives, order, edges, chosen, n)
        if solver.loss == "squared_hinge":
            lines = solve_soft_squared_hinge(rows, chances, masses, solver.cost, *rest)
        else:
            lines = solve_logistic(rows, *soft_logistic_targets(chances, masses, solver.cost), *rest)
        return lines
    targets = block_targets(positives, order, edges, chosen, n, solver.cost)
    if solver.loss == "squared_hinge":
        lines = solve_squared_hinge(rows, *targets, *rest)
    else:
        lines = solve_logistic(rows, *targets, np.full(len(chosen) * LANES, -np.inf, np.float32), *rest)
    return lines


def _join(parts: list[Part]) -> Part:
    return parts[0] if len(parts) == 1 else Part(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _quantise(children: Int32, weights: Float32, n_children: int) -> tuple[Int16, Float32]:
    """Weights as whole multiples of ``largest / 32767`` of their classifier: half the bytes, an error of 2e-5 of it."""
    largest = np.zeros(n_children, np.float32)
    np.maximum.at(largest, children, np.abs(weights))
    scales = largest / np.float32(32767)
    return np.rint(weights / scales[children]).astype(np.int16), scales


def _pack(tasks: list[Task], parts: list[Part]) -> Chunks:
    """Join what the tasks have learnt by node, feature and child."""
    by_node: dict[tuple[int, int], list[Part]] = {}
    for task, part in zip(tasks, parts, strict=True):
        by_node.setdefault((task.tree, task.node), []).append(part)
    widest = max(task.first_child + len(task.edges) - 1 for task in tasks)
    child_type = np.min_scalar_type(widest - 1)
    features, starts, children, weights = [], [], [], []
    for node_parts in by_node.values():
        node = _join(node_parts)
        by_feature = np.argsort(node.features, kind="stable")
        lines, first = np.unique(node.features[by_feature], return_index=True)
        features.append(lines)
        starts.append(np.append(first, len(by_feature)).astype(np.int32))
        children.append(node.children[by_feature].astype(child_type))
        weights.append(node.weights[by_feature])
    return Chunks(
        node_lines=_ends([len(part) for part in features]),
        node_entries=_ends([len(part) for part in weights]),
        features=np.concatenate(features),
        line_starts=np.concatenate(starts),
        children=np.concatenate(children),
        weights=np.concatenate(weights),
        scales=np.concatenate([part.scales for part in parts]),
        biases=np.concatenate([part.biases for part in parts]),
    )


def _ends(sizes: list[int]) -> Int64:
    return np.append(0, np.cumsum(sizes)).astype(np.int64)
