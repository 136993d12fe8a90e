"""A trained label subset: the inner model, and the map from its labels to all labels."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import numba
import numpy as np
import numpy.typing as npt

from xcore.errors import ArtifactDamaged
from xcore.files import opened_part, save_part
from xcore.models.base import Fitted, ScoreScale, rows_for
from xcore.models.family import load_model
from xcore.numeric.arrays import write_arrays
from xcore.numeric.checks import ArrayFile
from xcore.numeric.matrices import CSR, NO_LABEL, Float32, Int32, TopK, csr, row_blocks
from xcore.numeric.parallel import SparseRows, over_blocks
from xcore.numeric.topk import best_first, clear, offer
from xcore.saved import Count, Described, read_json
from xcore.selection.selected import FittedSelection
from xcore.training.data import Matrix, RowForm, n_rows_of

BLOCK_SCORES = 2**22
ROW_BLOCK = 64
PREFIX = "inner."


@dataclass(frozen=True)
class FittedLabelSubset:
    """A model of some labels that ranks all of them.

    Attributes
    ----------
    inner : Fitted
        Its label i is ``trained[i]``.
    trained : int32 (m,)
        Label ids, ascending.
    map : CSR float32 (m, n_labels)
        What a trained label's share adds to the scores of labels that are not trained.
    scale : ScoreScale
        Of the inner model's scores.
    """

    inner: Fitted
    trained: Int32
    map: CSR
    scale: ScoreScale

    @classmethod
    def of(cls, selection: FittedSelection, inner: Fitted, scale: ScoreScale) -> Self:
        """The model of a selection; only columns of labels that are not trained are kept of the map."""
        trained = selection.trained
        entries = selection.coefficients.tocoo()
        is_trained = np.zeros(selection.n_labels, bool)
        is_trained[trained] = True
        kept = ~is_trained[entries.row]
        rows = np.searchsorted(trained, selection.chosen[entries.col[kept]])
        labels, values = entries.row[kept], entries.data[kept]
        order = np.lexsort((labels, rows))
        indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(trained)))])
        return cls(inner, trained, csr(values[order], labels[order], indptr, selection.n_labels), scale)

    @property
    def form(self) -> RowForm:
        return self.inner.form

    @property
    def n_features(self) -> int:
        return self.inner.n_features

    @property
    def n_labels(self) -> int:
        return int(self.map.shape[1])

    def predict_topk(self, X: Matrix, k: int) -> TopK:
        """The k best labels of each row; ties go to the lower label id.

        Trained labels that the inner model does not offer count as 0 in the map, and are not offered.
        """
        rows = rows_for(self, X, k)
        n_rows = n_rows_of(rows)
        top = TopK(np.empty((n_rows, k), np.int32), np.empty((n_rows, k), np.float32))
        is_mapped = np.zeros(self.n_labels, np.bool_)
        is_mapped[self.map.indices] = True
        width, arrays = max(1, len(self.trained)), SparseRows.of(self.map)
        for part in row_blocks(n_rows, max(1, BLOCK_SCORES // width)):
            found = self.inner.predict_topk(rows[part], width)
            shares, labels, scores = as_shares(found, self.scale), top.labels[part], top.scores[part]

            def fill(
                block: slice,
                found: TopK = found,
                shares: Float32 = shares,
                labels: Int32 = labels,
                scores: Float32 = scores,
            ) -> None:
                offers = (found.labels[block], shares[block])
                _map_rows(*offers, self.trained, arrays, is_mapped, labels[block], scores[block])

            over_blocks(fill, row_blocks(len(found), ROW_BLOCK))
        return top

    def save(self, directory: Path) -> None:
        """Write ``model.json``, ``subset.safetensors``, and the inner model's files with a prefix to their names."""
        save_part(directory, PREFIX, self.inner.save)
        arrays = {name: getattr(self.map, name) for name in ("data", "indices", "indptr")}
        write_arrays(directory / "subset.safetensors", arrays | {"trained": self.trained})
        about = {"kind": "label-subset", "n_labels": self.n_labels, "scale": self.scale}
        (directory / "model.json").write_text(json.dumps(about, indent=2) + "\n")

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read what `save` wrote."""
        about = read_json(directory / "model.json", _About)
        with ArrayFile(directory / "subset.safetensors") as file:
            trained = file.take("trained", np.int32, (None,)).within(0, about.n_labels).ascending().array
            data = file.take("data", np.float32, (None,)).finite().array
            indices = file.take("indices", np.int32, data.shape).within(0, about.n_labels).array
            indptr = file.take("indptr", np.int64, (len(trained) + 1,)).offsets(len(data)).array
        with opened_part(directory, PREFIX) as folder:
            inner = load_model(folder)
        if inner.n_labels != len(trained):
            raise ArtifactDamaged(
                f"{directory}: the inner model has {inner.n_labels} labels, but array 'trained' names {len(trained)}; "
                "make the artifact again"
            )
        return cls(inner, trained, csr(data, indices, indptr, about.n_labels), about.scale)


class _About(Described):
    """``model.json``."""

    kind: Literal["label-subset"]
    n_labels: Count
    scale: ScoreScale


def as_shares(top: TopK, scale: ScoreScale) -> Float32:
    """Scores as shares of 1, in the same order; 0 where there is no label."""
    is_label, scores = top.labels != NO_LABEL, top.scores
    if scale == "margin":
        scores = (scores + np.float32(1)) / np.float32(2)
    elif scale == "log":
        best = np.where(is_label[:, :1], scores[:, :1], np.float32(0))
        # row by row from the best to the last, so that a row's bits do not depend on the others
        odds = np.where(is_label, np.exp((scores - best).astype(np.float64)), 0.0)
        scores = (odds / np.maximum(np.cumsum(odds, axis=1)[:, -1:], 1.0)).astype(np.float32)
    shares: Float32 = np.where(is_label, scores, np.float32(0)).astype(np.float32)
    return shares


@numba.njit(cache=True, nogil=True)
def _map_rows(
    found: Int32,
    shares: Float32,
    trained: Int32,
    to_all: SparseRows,
    is_mapped: npt.NDArray[np.bool_],
    top_labels: Int32,
    top_scores: Float32,
) -> None:
    """Scores of all labels for one row at a time, and the k best of them."""
    scores = np.empty(len(is_mapped), np.float32)
    clear(top_scores, top_labels)
    for row in range(len(found)):
        for label in range(len(scores)):
            scores[label] = np.float32(0) if is_mapped[label] else np.float32(-np.inf)
        for at in range(found.shape[1]):
            own, share = found[row, at], shares[row, at]
            if own == NO_LABEL:
                break
            scores[trained[own]] = share
            for entry in range(to_all.indptr[own], to_all.indptr[own + 1]):
                scores[to_all.indices[entry]] += share * to_all.data[entry]
        for label in range(len(scores)):
            if scores[label] > -np.inf:
                offer(top_scores[row], top_labels[row], scores[label], label)
        best_first(top_scores[row], top_labels[row])
