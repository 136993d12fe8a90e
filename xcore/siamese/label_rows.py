"""Labels as rows of the space of the training rows: by their names, or else by their training rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcore.errors import ConfigError
from xcore.numeric.matrices import CSR, binary_csr, normalise_rows
from xcore.search.keys import unit_rows
from xcore.siamese.encoder import bag_of_tokens
from xcore.training.data import LabelSide, Matrix, canonical_csr

NameUse: TypeAlias = Literal["auto", "required", "unused"]
Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class LabelRows:
    """What the encoder sees of each label.

    Attributes
    ----------
    X : CSR or float32 (L, n_features)
    is_known : bool (L,)
        Whether the label has a row at all. A label without name and without training rows has none.
    is_trained : bool (L,)
        Whether the label has training rows.
    """

    X: Matrix
    is_known: Mask
    is_trained: Mask


def label_rows(rows: Matrix, Y: CSR, labels: LabelSide | None, names: NameUse) -> LabelRows:
    """The name of each label; where it has none, or none with a known token, the mean of its training rows.

    Cost O(entries of the names), and O(entries of the rows of all labels without a name).
    """
    is_trained = np.bincount(Y.indices, minlength=Y.shape[1]) > 0
    found = _names(labels, names)
    if found is None:
        return LabelRows(_means(rows, Y, is_trained), is_trained, is_trained)
    has_name = _has_features(found)
    nameless = is_trained & ~has_name
    if nameless.any():
        found = found + _means(rows, Y, nameless)
        found = canonical_csr(found) if sp.issparse(found) else found
    return LabelRows(found, is_trained | has_name, is_trained)


def _means(rows: Matrix, Y: CSR, chosen: Mask) -> Matrix:
    """The mean training row of the chosen labels, of length 1; empty rows (L, n_features) for all others."""
    ids = np.flatnonzero(chosen)
    own = binary_csr(np.arange(len(ids)), np.concatenate([[0], np.cumsum(chosen)]), len(ids))
    sums = own @ (canonical_csr(Y[:, ids].T) @ rows)
    return normalise_rows(canonical_csr(sums)) if sp.issparse(sums) else unit_rows(np.asarray(sums, np.float32))


def _names(labels: LabelSide | None, use: NameUse) -> Matrix | None:
    if use != "unused" and labels is not None and labels.X is not None and labels.is_named:
        return bag_of_tokens(labels.X)
    if use == "required":
        raise ConfigError(
            "label_names is required, but the labels have no names as rows of the training rows' space: give a label "
            "table with names (data.labels) to a dataset of texts, or set label_names to auto"
        )
    return None


def _has_features(rows: Matrix) -> Mask:
    return np.asarray(np.diff(rows.indptr) > 0 if sp.issparse(rows) else np.any(rows != 0, axis=1), np.bool_)
