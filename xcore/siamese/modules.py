"""What each module of SiameseXML leaves to the next one, as plain arrays."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from xcore.numeric.arrays import write_arrays
from xcore.numeric.checks import ArrayFile
from xcore.numeric.matrices import NO_LABEL, Float32, Int32
from xcore.saved import Count, Described, read_json
from xcore.search.keys import unit_rows
from xcore.siamese.encoder import Activation, Encoder
from xcore.siamese.index import LabelIndex


@dataclass(frozen=True)
class FittedEncoder:
    """Module I.

    Attributes
    ----------
    encoder : Encoder
    labels : float32 (L, D)
        Intermediate embedding f(z) of each label; zeros for a label that is not known.
    is_known : bool (L,)
        Labels that have a name or training rows.
    """

    encoder: Encoder
    labels: Float32
    is_known: Any

    def save(self, directory: Path) -> None:
        """Write ``encoder.json`` and ``encoder.safetensors``."""
        arrays = {**self.encoder.arrays(), "labels": self.labels, "is_known": self.is_known.astype(np.uint8)}
        write_arrays(directory / "encoder.safetensors", arrays)
        _write_json(
            directory / "encoder.json", {"activation": self.encoder.activation, "n_features": self.encoder.n_features}
        )

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read what `save` wrote."""
        about = read_json(directory / "encoder.json", _EncoderAbout)
        with ArrayFile(directory / "encoder.safetensors") as file:
            encoder = Encoder.take(file, about.activation, about.n_features)
            is_known = file.take("is_known", np.uint8, (None,)).within(0, 2).array > 0
            shape = (len(is_known), encoder.dimensions)
            labels = file.take("labels", np.float32, shape).finite().within(-1.001, 1.001).array
        return cls(encoder, labels, is_known)


@dataclass(frozen=True)
class FittedShortlists:
    """Module II.

    Attributes
    ----------
    names : LabelIndex
        Intermediate embeddings of all known labels.
    centroids : LabelIndex
        Centroids of the rows of each label that has training rows.
    negatives : int32 (n, S)
        Labels of the shortlist of each training row, none of them the row's own; -1 where there are fewer.
    """

    names: LabelIndex
    centroids: LabelIndex
    negatives: Int32

    def save(self, directory: Path) -> None:
        """Write ``shortlists.json``, the two indexes and ``negatives.safetensors``."""
        self.names.save(directory / "names.safetensors")
        self.centroids.save(directory / "centroids.safetensors")
        write_arrays(directory / "negatives.safetensors", {"negatives": self.negatives})
        about = {"n_rows": len(self.negatives), **index_sizes(self.names, self.centroids)}
        _write_json(directory / "shortlists.json", about)

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read what `save` wrote."""
        about = read_json(directory / "shortlists.json", _ShortlistsAbout)
        names, centroids = load_indexes(directory, about)
        with ArrayFile(directory / "negatives.safetensors") as file:
            negatives = file.take("negatives", np.int32, (about.n_rows, None)).within(NO_LABEL, about.n_labels).array
        return cls(names, centroids, negatives)


@dataclass(frozen=True)
class FittedClassifiers:
    """Module III.

    Attributes
    ----------
    residual : float32 (D, D)
        R of the encoder after this module.
    eta : float32 (L, D)
    """

    residual: Float32
    eta: Float32

    def save(self, directory: Path) -> None:
        """Write ``classifiers.json`` and ``classifiers.safetensors``."""
        _write_json(directory / "classifiers.json", {"n_labels": len(self.eta), "dimensions": self.eta.shape[1]})
        write_arrays(directory / "classifiers.safetensors", {"residual": self.residual, "eta": self.eta})

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read what `save` wrote."""
        about = read_json(directory / "classifiers.json", _ClassifiersAbout)
        size = about.dimensions
        with ArrayFile(directory / "classifiers.safetensors") as file:
            eta = file.take("eta", np.float32, (about.n_labels, size)).finite().array
            residual = file.take("residual", np.float32, (size, size)).finite().array
        return cls(residual, eta)


def label_vectors(encoder: Encoder, intermediate: Float32, eta: Float32) -> Float32:
    """w = Nrm(Enc(z) + eta) of labels, from f(z); zeros for labels that are not known. Cost O(L D^2)."""
    return unit_rows(encoder.final(intermediate) + eta)


class IndexAbout(Described):
    """What a JSON file says of the two indexes."""

    n_labels: Count
    dimensions: Count
    names_have_graph: bool
    centroids_have_graph: bool


class _ShortlistsAbout(IndexAbout):
    """``shortlists.json``."""

    n_rows: Count


class _ClassifiersAbout(Described):
    """``classifiers.json``."""

    n_labels: Count
    dimensions: Count


class _EncoderAbout(Described):
    """``encoder.json``."""

    activation: Activation
    n_features: Count


def index_sizes(names: LabelIndex, centroids: LabelIndex) -> dict[str, Any]:
    """What `IndexAbout` reads."""
    return {
        "n_labels": names.n_labels,
        "dimensions": int(names.keys.vectors.shape[1]),
        "names_have_graph": names.keys.graph is not None,
        "centroids_have_graph": centroids.keys.graph is not None,
    }


def load_indexes(directory: Path, about: IndexAbout) -> tuple[LabelIndex, LabelIndex]:
    """The indexes of names and of centroids in a folder."""
    size = about.n_labels, about.dimensions
    names = LabelIndex.load(directory / "names.safetensors", *size, about.names_have_graph)
    return names, LabelIndex.load(directory / "centroids.safetensors", *size, about.centroids_have_graph)


def _write_json(path: Path, about: dict[str, Any]) -> None:
    path.write_text(json.dumps(about, indent=2) + "\n")
