"""Samplers of labels with one interface: uniform, by frequency, and the tree that conditions on the features."""

from __future__ import annotations

import json
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numba
import numpy as np
from pydantic import Field

from xcore.components import Component
from xcore.errors import ConfigError
from xcore.numeric.arrays import write_arrays
from xcore.numeric.checks import ArrayFile
from xcore.numeric.draws import Keys, unit
from xcore.numeric.matrices import NO_LABEL, Float32, Float64, Int32, TopK, row_blocks
from xcore.numeric.parallel import over_blocks
from xcore.sampling.tree_file import checked_nodes
from xcore.sampling.tree_fit import fit_nodes
from xcore.sampling.walk import Nodes, all_log_probs, best_leaves, draw_labels, log_probs_of, rows_together
from xcore.saved import Count, Described, read_json

LARGEST_WEIGHT = 1e290  # the sum over all labels stays finite
BATCHES_PER_BLOCK = 4  # of walkers that a thread takes at a time; whole ones, for a small one waits for memory as long


class Draws(NamedTuple):
    """Labels drawn for n rows, m each, and their log-probabilities."""

    labels: Int32  # (n, m)
    log_probs: Float32  # (n, m)


class FittedSampler:
    """A distribution over labels. It may be conditional on features."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def n_labels(self) -> int: ...

    @property
    def n_features(self) -> int:
        """Features that it conditions on; 0 if it does not."""
        return 0

    def sample(self, X: Float32, m: int, keys: Keys) -> Draws:
        """Draw m labels for each row of X (n, n_features); ``keys[i]`` decides the draws of row i, on any thread."""
        X = np.ascontiguousarray(X)
        labels, log_probs = np.empty((len(keys), m), np.int32), np.empty((len(keys), m), np.float32)

        def fill(part: slice) -> None:
            self._draw(X[part], keys[part], labels[part], log_probs[part])

        over_blocks(fill, row_blocks(len(keys), BATCHES_PER_BLOCK * rows_together(m)))
        return Draws(labels, log_probs)

    def log_prob(self, X: Float32, labels: Int32) -> Float32:
        """``log p(label | x)`` for labels (n, m) of the rows of X; float32 (n, m)."""
        X, out = np.ascontiguousarray(X), np.empty(labels.shape, np.float32)

        def fill(part: slice) -> None:
            self._log_prob(X[part], labels[part], out[part])

        over_blocks(fill, row_blocks(len(labels), BATCHES_PER_BLOCK * rows_together(labels.shape[1])))
        return out

    @abstractmethod
    def log_prob_all(self, X: Float32) -> Float64:
        """``log p(label | x)`` of all labels; float64 (n, n_labels)."""

    @abstractmethod
    def _draw(self, X: Float32, keys: Keys, labels: Int32, log_probs: Float32) -> None: ...

    @abstractmethod
    def _log_prob(self, X: Float32, labels: Int32, out: Float32) -> None: ...

    @abstractmethod
    def _arrays(self) -> dict[str, Any]: ...

    def save(self, directory: Path, name: str = "sampler") -> None:
        """Write ``<name>.safetensors`` and ``<name>.json``."""
        write_arrays(directory / f"{name}.safetensors", self._arrays())
        about = {"kind": self.kind, "n_labels": self.n_labels, "n_features": self.n_features}
        (directory / f"{name}.json").write_text(json.dumps(about, indent=2) + "\n")


@dataclass(frozen=True)
class FittedUniform(FittedSampler):
    """The uniform distribution over `n_labels` labels."""

    size: int
    kind: ClassVar[str] = "uniform"

    @property
    def n_labels(self) -> int:
        return self.size

    def _draw(self, X: Float32, keys: Keys, labels: Int32, log_probs: Float32) -> None:
        _draw_uniform(keys, self.n_labels, labels)
        log_probs[:] = -np.log(self.n_labels)

    def _log_prob(self, X: Float32, labels: Int32, out: Float32) -> None:
        out[:] = -np.log(self.n_labels)

    def log_prob_all(self, X: Float32) -> Float64:
        return np.full((len(X), self.n_labels), -np.log(self.n_labels))

    def _arrays(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True)
class FittedFrequency(FittedSampler):
    """Labels by how often they were seen; a draw is a binary search, O(log n_labels).

    Attributes
    ----------
    weights : float64 (n_labels,)
        Proportional to the probabilities.
    """

    weights: Float64
    kind: ClassVar[str] = "frequency"

    @property
    def n_labels(self) -> int:
        return len(self.weights)

    @cached_property
    def _ends(self) -> Float64:
        return np.cumsum(self.weights)

    @cached_property
    def _log_probs(self) -> Float64:
        probabilities: Float64 = self.weights / self._ends[-1]
        return np.log(probabilities)

    def _draw(self, X: Float32, keys: Keys, labels: Int32, log_probs: Float32) -> None:
        _draw_by_weight(keys, self._ends, labels)
        log_probs[:] = self._log_probs[labels]

    def _log_prob(self, X: Float32, labels: Int32, out: Float32) -> None:
        out[:] = self._log_probs[labels]

    def log_prob_all(self, X: Float32) -> Float64:
        return np.tile(self._log_probs, (len(X), 1))

    def _arrays(self) -> dict[str, Any]:
        return {"weights": self.weights}


@dataclass(frozen=True)
class FittedTree(FittedSampler):
    """The tree of `xcore.sampling.tree_fit`; a draw or a probability costs O(k log n_labels)."""

    nodes: Nodes
    kind: ClassVar[str] = "tree"

    @property
    def n_labels(self) -> int:
        return len(self.nodes.places)

    @property
    def n_features(self) -> int:
        return int(self.nodes.weights.shape[1])

    def _draw(self, X: Float32, keys: Keys, labels: Int32, log_probs: Float32) -> None:
        draw_labels(self.nodes, X, keys, labels, log_probs)

    def _log_prob(self, X: Float32, labels: Int32, out: Float32) -> None:
        log_probs_of(self.nodes, X, labels, out)

    def log_prob_all(self, X: Float32) -> Float64:
        """Level by level, O(k n_labels) a row."""
        X, out = np.ascontiguousarray(X), np.empty((len(X), self.n_labels))
        over_blocks(lambda part: all_log_probs(self.nodes, X[part], out[part]), row_blocks(len(X), 8))
        return out

    def shortlist(self, X: Float32, width: int) -> TopK:
        """About the `width` most probable labels of each row, by beam search, with their log-probabilities."""
        X = np.ascontiguousarray(X)
        top = TopK(np.full((len(X), width), NO_LABEL, np.int32), np.full((len(X), width), -np.inf, np.float32))
        over_blocks(
            lambda part: best_leaves(self.nodes, X[part], top.labels[part], top.scores[part]), row_blocks(len(X), 16)
        )
        return top

    def _arrays(self) -> dict[str, Any]:
        return {name: getattr(self.nodes, name) for name in ("weights", "biases", "leaves", "places")}


class Uniform(Component):
    """Draws all labels with the same probability."""

    kind: Literal["uniform"] = "uniform"

    def fit(self, X: Float32, labels: Int32, n_labels: int, weights: Float32 | None = None) -> FittedUniform:
        """A sampler of `n_labels` labels; the data do not matter."""
        return FittedUniform(_checked(n_labels))


class Frequency(Component):
    """Draws labels in proportion to their training counts plus one.

    A positive of weight q counts q times.
    """

    kind: Literal["frequency"] = "frequency"
    exponent: float = Field(
        1.0, ge=0, description="Exponent of the label counts. 0 draws all labels with the same probability."
    )

    def fit(self, X: Float32, labels: Int32, n_labels: int, weights: Float32 | None = None) -> FittedFrequency:
        """Count the labels (n,) of the data points, with weights (n,) if they are given."""
        counts = np.bincount(labels, weights, minlength=_checked(n_labels)) + 1.0
        return FittedFrequency(np.asarray(counts**self.exponent, np.float64))


class Tree(Component):
    """Balanced binary tree of logistic models that mimics ``p(label | x)`` (section 3 of the paper).

    Notes
    -----
    Fitting costs O(n k^2 log(n_labels) rounds). The released code's runs are ``structure: eigen``,
    ``penalty: per_label`` with half the strength given here, because its penalty is ``1/2 |w|^2``.
    """

    kind: Literal["tree"] = "tree"
    structure: Literal["alternate", "eigen"] = Field(
        "alternate",
        description="How labels are split. alternate: splits and weights are improved in turn, as in the "
        "paper. eigen: split along the first principal axis.",
    )
    strength: float = Field(
        10.0,
        gt=0,
        description="Weight of the L2 penalty on the parameters of a node. A larger weight regularises more.",
    )
    penalty: Literal["const", "per_label"] = Field(
        "const",
        description="const: the same strength at each node. per_label: the strength is multiplied by the "
        "number of labels below the node.",
    )

    def fit(self, X: Float32, labels: Int32, n_labels: int) -> FittedTree:
        """Fit to points X float32 (n, k) with labels int32 (n,)."""
        per_label, alternate = self.penalty == "per_label", self.structure == "alternate"
        return FittedTree(
            fit_nodes(X, labels, _checked(n_labels), self.strength, per_label=per_label, alternate=alternate)
        )


def load_sampler(directory: Path, name: str = "sampler") -> FittedSampler:
    """Read what `FittedSampler.save` wrote."""
    about = read_json(directory / f"{name}.json", _About)
    with ArrayFile(directory / f"{name}.safetensors") as file:
        if about.kind == "tree":
            return FittedTree(checked_nodes(file, about.n_labels, about.n_features))
        if about.kind == "uniform":
            return FittedUniform(about.n_labels)
        smallest = np.finfo(np.float64).tiny
        return FittedFrequency(
            file.take("weights", np.float64, (about.n_labels,)).within(smallest, LARGEST_WEIGHT).array
        )


class _About(Described):
    """``<name>.json``."""

    kind: Literal["uniform", "frequency", "tree"]
    n_labels: Annotated[int, Field(ge=1, lt=2**31)]
    n_features: Count


def load_tree(directory: Path, name: str) -> FittedTree:
    """Read a tree that `FittedSampler.save` wrote."""
    sampler = load_sampler(directory, name)
    if not isinstance(sampler, FittedTree):
        raise ConfigError(f"{directory} holds a {sampler.kind} sampler, expected a tree")
    return sampler


def _checked(n_labels: int) -> int:
    if n_labels < 1:
        raise ConfigError(f"a sampler needs at least one label, got {n_labels}")
    return n_labels


@numba.njit(cache=True, nogil=True)
def _draw_uniform(keys: Keys, n_labels: int, labels: Int32) -> None:
    for row in range(len(keys)):
        for j in range(labels.shape[1]):
            labels[row, j] = min(int(unit(keys[row], j) * n_labels), n_labels - 1)


@numba.njit(cache=True, nogil=True)
def _draw_by_weight(keys: Keys, ends: Float64, labels: Int32) -> None:
    for row in range(len(keys)):
        for j in range(labels.shape[1]):
            place = np.searchsorted(ends, unit(keys[row], j) * ends[-1], side="right")
            labels[row, j] = min(place, len(ends) - 1)
