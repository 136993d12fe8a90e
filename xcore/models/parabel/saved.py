"""A forest at rest: what the kernels of the search rely on, checked once when its files are opened."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from xcore.errors import ArtifactDamaged
from xcore.grouping.label_tree import Shape
from xcore.models.parabel.forest import Chunks
from xcore.numeric.arrays import write_arrays
from xcore.numeric.checks import ArrayFile, Checked
from xcore.numeric.matrices import Int64
from xcore.saved import Count, Described, read_json

ABOUT, WEIGHTS = "model.json", "weights.safetensors"
Steepness = Annotated[float, Field(gt=0)]


class About(Described):
    """``model.json``: the numbers of a `FittedParabel`."""

    kind: Literal["parabel"] = "parabel"
    n_features: Count
    n_labels: Count
    arity: Annotated[int, Field(ge=2, le=65536)]
    depth: Annotated[int, Field(ge=0, le=40)]
    beam: Annotated[int, Field(ge=1, lt=2**31)]
    sharpness: tuple[Steepness, Steepness]
    normalise: bool

    def numbers(self) -> dict[str, Any]:
        """All but the kind."""
        return {name: value for name, value in self if name != "kind"}


def save(directory: Path, about: About, arrays: dict[str, Any]) -> None:
    """Write ``weights.safetensors`` and ``model.json``."""
    write_arrays(directory / WEIGHTS, arrays)
    (directory / ABOUT).write_text(about.model_dump_json(indent=2) + "\n")


def load(directory: Path) -> dict[str, Any]:
    """The fields of a `FittedParabel`, mapped into memory and safe to search.

    The quantised weights, most of the file, may be anything: they are not read here.
    """
    about = read_json(directory / ABOUT, About)
    with ArrayFile(directory / WEIGHTS) as file:
        orders = file.take("orders", np.int32, (None, None)).within(0, about.n_labels)
        shape = _shape(about, orders)
        n_curves = len(file.take("slopes", np.float32, (None,)).array)
        if n_curves not in (0, about.n_labels):
            file.take("slopes", np.float32, (about.n_labels,))
        curves = {name: file.take(name, np.float32, (n_curves,)).finite().array for name in ("slopes", "offsets")}
        chunks = _chunks(file, about.n_features, len(orders.array), shape)
    return about.numbers() | curves | {"orders": orders.array, "chunks": chunks}


def _shape(about: About, orders: Checked) -> Shape:
    """The shape of every tree; each holds the same labels, once."""
    n_trees, n_seen = orders.array.shape
    if not n_trees or not n_seen:
        orders.refuse(f"has the shape {orders.array.shape}", "at least one tree of at least one label")
    if about.arity**about.depth > n_seen:
        raise ArtifactDamaged(
            f"{orders.file.with_name(ABOUT)}: arity {about.arity} and depth {about.depth} make more last nodes than "
            f"the {n_seen} labels; make the artifact again"
        )
    ordered = np.sort(orders.array, axis=1)
    if (ordered[:, 1:] == ordered[:, :-1]).any() or (ordered != ordered[0]).any():
        orders.refuse("repeats labels or has others in another tree", "each label once in each tree")
    return Shape(n_seen, about.arity, about.depth)


def _chunks(file: ArrayFile, n_features: int, n_trees: int, shape: Shape) -> Chunks:
    """The classifiers of all nodes; see `Chunks` for what each array is."""
    n_nodes, n_children = n_trees * shape.n_nodes, np.tile(np.diff(shape.child_starts()), n_trees)
    features = file.take("features", np.int32, (None,)).within(0, n_features)
    children = file.take("children", (np.uint8, np.uint16, np.uint32), (None,))
    lines = file.take("node_lines", np.int64, (n_nodes + 1,)).offsets(len(features.array)).array
    entries = file.take("node_entries", np.int64, (n_nodes + 1,)).offsets(len(children.array)).array
    features.ascending(lines)
    starts = file.take("line_starts", np.int32, (len(features.array) + n_nodes,))
    _check_starts(starts, lines, entries)
    _check_children(children, entries, n_children)
    classifiers = (int(n_children.sum()),)
    return Chunks(
        node_lines=lines,
        node_entries=entries,
        features=features.array,
        line_starts=starts.array,
        children=children.array,
        weights=file.take("weights", np.int16, children.array.shape).array,
        scales=file.take("scales", np.float32, classifiers).finite().array,
        biases=file.take("biases", np.float32, classifiers).finite().array,
    )


def _check_starts(starts: Checked, lines: Int64, entries: Int64) -> None:
    """The starts of each node's lines are offsets from 0 to the number of its entries."""
    nodes, array = np.arange(len(lines) - 1), starts.array
    firsts, lasts = lines[:-1] + nodes, lines[1:] + nodes
    falls = array[1:] < array[:-1]
    falls[firsts[1:] - 1] = False
    if falls.any() or array[firsts].any() or (array[lasts] != np.diff(entries)).any():
        starts.refuse("falls within a node, or does not cover the entries of one", "offsets of each node's lines")


def _check_children(children: Checked, entries: Int64, n_children: Int64) -> None:
    """No entry belongs to a child that its node does not have: the search adds to that child's score."""
    used = np.flatnonzero(np.diff(entries))
    largest = np.maximum.reduceat(children.array, entries[used]) if len(used) else children.array
    beyond = np.flatnonzero(largest >= n_children[used])
    if len(beyond):
        node = int(used[beyond[0]])
        children.refuse(
            f"names child {largest[beyond[0]]} of node {node}", f"numbers below {n_children[node]}, its children"
        )
