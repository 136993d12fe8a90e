"""A trained SiameseXML as plain arrays: it answers without torch, and takes further labels."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field

from xcore.errors import ArtifactDamaged, ConfigError
from xcore.files import opened_part, save_part
from xcore.models.base import rows_for
from xcore.models.siamesexml.ranking import Candidates, measured, union_of
from xcore.numeric.arrays import write_arrays
from xcore.numeric.checks import ArrayFile
from xcore.numeric.matrices import NO_LABEL, Float32, Int32, TopK, row_blocks
from xcore.saved import Count, read_json
from xcore.siamese.encoder import Activation, Encoder
from xcore.siamese.index import LabelIndex
from xcore.siamese.modules import IndexAbout, index_sizes, load_indexes
from xcore.text.transformer import FittedTransformer
from xcore.training.data import LabelSide, Matrix, RowForm

BLOCK_CANDIDATES = 2**23
TEXT_FILES = "text."  # what the names of the transformer's files start with


@dataclass(frozen=True)
class FittedSiamese:
    """Encoder, classifiers and two indexes of labels.

    Attributes
    ----------
    form : 'sparse', 'vector', 'tokens' or 'text'
    encoder : Encoder
    weights : float32 (L, D)
        w of each label, of length 1; zeros for a label that is not known.
    names, centroids : LabelIndex
        Of intermediate embeddings and of centroids.
    alpha : float
        Weight of the classifiers; the similarities have the rest.
    n_candidates : int
        Labels from each index that are scored.
    width : int
        Candidates that a search through a graph looks at.
    text : FittedTransformer or None
        The fine-tuned transformer that makes vectors of texts; None: the rows are not texts.
    """

    form: RowForm
    encoder: Encoder
    weights: Float32
    names: LabelIndex
    centroids: LabelIndex
    alpha: float
    n_candidates: int
    width: int
    text: FittedTransformer | None = None

    @property
    def n_features(self) -> int:
        """Features of its rows; 0 for texts."""
        return 0 if self.text else self.encoder.n_features

    @property
    def n_labels(self) -> int:
        return len(self.weights)

    def predict_topk(self, X: Matrix, k: int) -> TopK:
        """The k best labels of each row. Cost O(nnz D + D^2 + D log L) per row with graphs."""
        rows = self._encodable(rows_for(self, X, k))
        top = TopK(np.empty((rows.shape[0], k), np.int32), np.empty((rows.shape[0], k), np.float32))
        for part in row_blocks(rows.shape[0], max(1, BLOCK_CANDIDATES // (2 * self.n_candidates))):
            found = self.candidates(rows[part]).ranked(self.alpha, k)
            top.labels[part], top.scores[part] = found.labels, found.scores
        return top

    def candidates(self, rows: Matrix) -> Candidates:
        """The shortlist of each row as its encoder takes it, from both indexes, with its scores."""
        intermediate = self.encoder.intermediate(rows)
        indexes = (self.names, self.centroids)
        found = [index.nearest(intermediate, self.n_candidates, self.width) for index in indexes]
        return self._measured(union_of(found), intermediate)

    def shortlist_recall(self, X: Matrix, k: int) -> float | None:
        """The share of the k best labels, if all labels are scored, that the shortlists hold. Cost O(n L D)."""
        rows = self._encodable(rows_for(self, X, k))
        labels = np.union1d(self.names.labels, self.centroids.labels).astype(np.int32)
        if not rows.shape[0] or len(labels) <= self.n_candidates:
            return None
        n_same = n_exact = 0
        for part in row_blocks(rows.shape[0], max(1, BLOCK_CANDIDATES // len(labels))):
            intermediate = self.encoder.intermediate(rows[part])
            everything = np.tile(labels, (len(intermediate), 1))
            exact = self._measured(everything, intermediate).ranked(self.alpha, k)
            own = self.candidates(rows[part]).ranked(self.alpha, k)
            n_same += sum(len(np.intersect1d(*pair)) for pair in zip(own.labels, exact.labels, strict=True))
            n_exact += int((exact.labels != NO_LABEL).sum())
        return n_same / max(n_exact, 1)

    def with_labels(self, labels: LabelSide) -> FittedSiamese:
        """The same model with more labels, numbered after those that it knows, which are found by their names.

        Their classifier is the embedding of their name. Cost O(new labels), and with a graph that of adding them.
        """
        rows = list(labels.texts) if self.text else labels.X
        if rows is None:
            raise ConfigError(
                "new labels need their names as rows of the model's space: train on a dataset of texts, and give the "
                "names of the new labels"
            )
        intermediate = self.encoder.intermediate(self._encodable(rows_for(self, rows, 1)))
        return replace(
            self,
            weights=np.concatenate([self.weights, self.encoder.final(intermediate)]),
            names=self.names.extended(intermediate),
            centroids=self.centroids.with_unknown(len(intermediate)),
        )

    def _encodable(self, rows: Matrix) -> Matrix:
        """Rows as the encoder takes them: texts become vectors."""
        return self.text.transform(rows) if self.text else rows

    def _measured(self, labels: Int32, intermediate: Float32) -> Candidates:
        final = self.encoder.final(intermediate)
        return measured(labels, intermediate, final, self.weights, self.names, self.centroids)

    def save(self, directory: Path) -> None:
        """Write ``model.json``, ``weights.safetensors``, the two indexes, and the transformer, if there is one."""
        if self.text:
            save_part(directory, TEXT_FILES, self.text.save)
        write_arrays(directory / "weights.safetensors", {**self.encoder.arrays(), "weights": self.weights})
        self.names.save(directory / "names.safetensors")
        self.centroids.save(directory / "centroids.safetensors")
        about = {
            "kind": "siamesexml",
            "form": self.form,
            "activation": self.encoder.activation,
            "n_features": self.encoder.n_features,
            "alpha": self.alpha,
            "n_candidates": self.n_candidates,
            "width": self.width,
            **index_sizes(self.names, self.centroids),
        }
        (directory / "model.json").write_text(json.dumps(about, indent=2) + "\n")

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read what `save` wrote."""
        about = read_json(directory / "model.json", _About)
        with ArrayFile(directory / "weights.safetensors") as file:
            encoder = Encoder.take(file, about.activation, about.n_features)
            shape = (about.n_labels, encoder.dimensions)
            weights = file.take("weights", np.float32, shape).finite().within(-1.001, 1.001).array
        if about.dimensions != encoder.dimensions:
            raise ArtifactDamaged(
                f"{directory}: the indexes have vectors of {about.dimensions} numbers, the encoder of "
                f"{encoder.dimensions}; make the artifact again"
            )
        names, centroids = load_indexes(directory, about)
        settings = about.alpha, about.n_candidates, about.width
        text = _text(directory, encoder) if about.form == "text" else None
        return cls(about.form, encoder, weights, names, centroids, *settings, text)


def _text(directory: Path, encoder: Encoder) -> FittedTransformer:
    """The transformer in a folder, which must make rows that the encoder takes."""
    with opened_part(directory, TEXT_FILES) as folder:
        text = FittedTransformer.load(folder)
    if text.dimensions != encoder.n_features:
        raise ArtifactDamaged(
            f"{directory}: the transformer makes vectors of {text.dimensions} numbers, the encoder takes "
            f"{encoder.n_features}; make the artifact again"
        )
    return text


class _About(IndexAbout):
    """``model.json``."""

    kind: Literal["siamesexml"]
    form: Literal["sparse", "vector", "tokens", "text"]
    activation: Activation
    n_features: Count
    alpha: Annotated[float, Field(ge=0, le=1)]
    n_candidates: Annotated[int, Field(ge=1, le=10_000)]
    width: Annotated[int, Field(ge=1, le=10_000)]
