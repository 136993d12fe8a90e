"""The order in which labels become classes. It decides which labels share a digit."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
import scipy.sparse as sp

from xcore.errors import ConfigError
from xcore.grouping.label_tree import Shape, embed_labels, order_labels
from xcore.numeric.matrices import Int32, sparse_of_dense
from xcore.training.data import TrainingData, canonical_csr

LabelOrder: TypeAlias = Literal["given", "sorted", "random", "clustered"]


def ordered_labels(order: LabelOrder, labels: Int32, data: TrainingData, rng: np.random.Generator) -> Int32:
    """Some label ids in an order, int32 (m,).

    Parameters
    ----------
    order : 'given', 'sorted', 'random' or 'clustered'
        By number, by name, at random, or so that labels of similar rows stand together.
    labels : int32 (m,)
        Ascending label ids.
    """
    if order == "given":
        return labels
    if order == "random":
        return rng.permutation(labels)
    if order == "sorted":
        if data.labels is None:
            raise ConfigError("order: sorted needs the names of the labels; give a label table, or take order: given")
        names = data.labels.texts
        return np.array(sorted(labels.tolist(), key=lambda label: names[label]), np.int32)
    X = data.X
    if not sp.issparse(X):
        X = sparse_of_dense(np.ascontiguousarray(X.reshape(len(X), -1), np.float32))
    shape = Shape.of(len(labels), arity=2, leaf_size=2)
    return labels[order_labels(embed_labels(X, canonical_csr(data.Y[:, labels].T)), shape, rng)]
