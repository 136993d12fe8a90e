"""A sampler tree at rest: what its walks rely on, checked once when its file is opened."""

from __future__ import annotations

import numpy as np

from xcore.numeric.checks import ArrayFile, Checked
from xcore.numeric.matrices import NO_LABEL, Int32
from xcore.sampling.tree_fit import CERTAIN, depth_of
from xcore.sampling.walk import Nodes, aligned


def checked_nodes(file: ArrayFile, n_labels: int, n_features: int) -> Nodes:
    """The tree of `n_labels` labels and `n_features` features in a file."""
    n_leaves = 1 << depth_of(n_labels)
    leaves = file.take("leaves", np.int32, (n_leaves,)).within(NO_LABEL, n_labels)
    places = file.take("places", np.int32, (n_labels,)).within(0, n_leaves).array
    weights = file.take("weights", np.float32, (n_leaves, n_features)).finite()
    biases = file.take("biases", np.float32, (n_leaves,)).finite()
    # Each label leads to a leaf and back, so no leaf has two labels. All other leaves must have none.
    if (leaves.array[places] != np.arange(n_labels)).any() or (leaves.array != NO_LABEL).sum() != n_labels:
        leaves.refuse("is not the inverse of 'places'", "each label at one leaf")
    _check_turns(leaves.array, weights, biases)
    return Nodes(aligned(weights.array), biases.array, leaves.array, places, depth_of(n_labels))


def _check_turns(leaves: Int32, weights: Checked, biases: Checked) -> None:
    """A node that has labels on one side only turns there with certainty: no walk ends at a leaf without a label."""
    n_leaves = len(leaves)
    has_labels = np.empty(2 * n_leaves, bool)
    has_labels[n_leaves:] = leaves != NO_LABEL
    for first in (1 << level for level in reversed(range(n_leaves.bit_length() - 1))):
        has_labels[first : 2 * first] = has_labels[2 * first : 4 * first].reshape(-1, 2).any(axis=1)
    left, right = has_labels[2::2], has_labels[3::2]  # of the nodes from 1 on
    for nodes, sign in ((right & ~left, 1), (left & ~right, -1)):
        one_sided = 1 + np.flatnonzero(nodes)
        if weights.array[one_sided].any():
            weights.refuse("makes a turn depend on the features where labels are on one side only", "0 there")
        if (sign * biases.array[one_sided] < CERTAIN).any():
            biases.refuse("leads to leaves without a label", f"{sign * CERTAIN} where labels are on one side only")
