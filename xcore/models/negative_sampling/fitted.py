"""The fitted model of the family: it predicts, and saves itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from xcore.embedding.family import load_embedding
from xcore.embedding.pca import FittedPca
from xcore.errors import ArtifactDamaged, ConfigError
from xcore.models.base import classes_of, rows_for
from xcore.models.negative_sampling.linear_scorer import Scorer
from xcore.numeric.arrays import write_arrays
from xcore.numeric.checks import ArrayFile, is_finite
from xcore.numeric.matrices import NO_LABEL, Float32, Float64, Int32, TopK
from xcore.sampling.sampler import FittedTree, load_sampler
from xcore.saved import Count, Described, read_json
from xcore.training.data import Matrix, RowForm, TrainingData
from xcore.training.stages import RowMap


@dataclass(frozen=True)
class Maps:
    """From the rows that the model takes to its vectors, and on to what the tree sees."""

    embedding: RowMap | None
    projection: FittedPca | None

    @classmethod
    def of(cls, data: TrainingData) -> Maps:
        found = [data.stages[role].fitted if role in data.stages else None for role in ("embedding", "projection")]
        return cls(*found)

    def apply(self, X: Matrix) -> tuple[Float32, Float32]:
        x = np.ascontiguousarray(X, np.float32) if self.embedding is None else self.embedding.transform(X)
        return x, np.zeros((len(x), 0), np.float32) if self.projection is None else self.projection.transform(x)


@dataclass(frozen=True)
class FittedNegativeSampling:
    """A trained model.

    Attributes
    ----------
    labels : int32 (C,)
        Label ids of the classes, ascending.
    scorer : Scorer
        The linear model, with the noise if it is added to the scores.
    embedding : RowMap or None
        From sparse features to those of the linear model.
    projection : FittedPca or None
        From the features of the linear model to those of the tree.
    shortlist : int
        Labels that the tree proposes for a row; 0 if all are scored.
    """

    n_features: int
    n_labels: int
    labels: Int32
    scorer: Scorer
    embedding: RowMap | None
    projection: FittedPca | None
    shortlist: int = 0

    @property
    def form(self) -> RowForm:
        return "vector" if self.embedding is None else "sparse"

    def predict_topk(self, X: Matrix, k: int) -> TopK:
        """The k best labels of each row, with scores ``xi + log p_n``; ties go to the lower label id.

        Cost of a row O(C (d + tree_dimensions)), or O(shortlist (d + tree_dimensions log C)).
        """
        x, z = self._features(rows_for(self, X, k))
        if self.shortlist:
            return self._named(self.scorer.shortlist_topk(x, z, k, self.shortlist))
        return self._named(self.scorer.exact_topk(x, z, k))

    def log_probability(self, X: Matrix, labels: Int32) -> Float64:
        """Under the softmax of the scores of all labels; a shortlist is not used. Cost of a row O(C d)."""
        x, z = self._features(rows_for(self, X, 1))
        classes, is_known = classes_of(self.labels, labels)
        return np.where(is_known, self.scorer.log_probability(x, z, classes), np.nan)

    def shortlist_recall(self, X: Matrix, k: int, width: int | None = None) -> float | None:
        """The share of the exact k best labels of the rows of X that a shortlist contains, by default the model's."""
        width = self.shortlist if width is None else width
        if not width:
            return None
        x, z = self._features(rows_for(self, X, k))
        exact, short = self.scorer.exact_topk(x, z, k), self.scorer.shortlist_topk(x, z, width, width)
        found = (exact.labels[:, :, None] == short.labels[:, None, :]).any(axis=2) & (exact.labels != NO_LABEL)
        return float(found.sum() / max((exact.labels != NO_LABEL).sum(), 1))

    def _features(self, X: Matrix) -> tuple[Float32, Float32]:
        is_used = isinstance(self.scorer.noise, FittedTree)
        return Maps(self.embedding, self.projection if is_used else None).apply(X)

    def _named(self, top: TopK) -> TopK:
        named = np.where(top.labels == NO_LABEL, NO_LABEL, self.labels[np.maximum(top.labels, 0)])
        return TopK(named.astype(np.int32), top.scores)

    def save(self, directory: Path) -> None:
        """Write ``weights.safetensors``, ``model.json``, and two files for each part that there is."""
        if not (is_finite(self.scorer.weights) and is_finite(self.scorer.biases)):
            raise ConfigError("the training has diverged: weights are NaN or infinite. Lower learning_rate")
        weights = {"weights": self.scorer.weights, "biases": self.scorer.biases, "labels": self.labels}
        write_arrays(directory / "weights.safetensors", weights)
        parts = {"embedding": self.embedding, "projection": self.projection, "noise": self.scorer.noise}
        kept = {name: part for name, part in parts.items() if part is not None}
        for name, part in kept.items():
            part.save(directory, name)
        about = {"n_features": self.n_features, "n_labels": self.n_labels, "shortlist": self.shortlist}
        about_all = {"kind": "negative-sampling", **about, "parts": sorted(kept)}
        (directory / "model.json").write_text(json.dumps(about_all, indent=2) + "\n")

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Map what `save` wrote into memory."""
        about = read_json(directory / "model.json", _About)
        parts = _load_parts(directory, about.parts)
        embedding: RowMap | None = parts.get("embedding")
        with ArrayFile(directory / "weights.safetensors") as file:
            named = file.take("labels", np.int32, (None,)).within(0, about.n_labels).ascending()
            labels = named.array
            if not len(labels):
                named.refuse("is empty", "at least one label")
            d = embedding.dimensions if embedding else about.n_features
            weights = file.take("weights", np.float32, (len(labels), d)).finite().array
            biases = file.take("biases", np.float32, labels.shape).finite().array
        scorer, sizes = Scorer(weights, biases, parts.get("noise")), (about.n_features, about.n_labels)
        model = cls(*sizes, labels, scorer, embedding, parts.get("projection"), about.shortlist)
        problem = model._misfit()
        if problem:
            raise ArtifactDamaged(f"the files in {directory} do not fit together: {problem}; make the model again")
        return model

    def _misfit(self) -> str | None:
        """What does not fit between the parts, which are already checked one by one; None if all fits."""
        noise, d = self.scorer.noise, self.scorer.weights.shape[1]
        if self.shortlist and not isinstance(noise, FittedTree):
            return f"shortlist is {self.shortlist}, but there is no tree to find it in"
        if noise is not None and noise.n_labels != len(self.labels):
            return f"the noise knows {noise.n_labels} labels, the weights {len(self.labels)}"
        if self.embedding is not None and self.embedding.n_features != self.n_features:
            return f"the embedding takes {self.embedding.n_features} features, the model {self.n_features}"
        if self.projection is not None and self.projection.n_features != d:
            return f"the projection takes {self.projection.n_features} features, the weights {d}"
        seen = self.projection.dimensions if self.projection else 0
        if isinstance(noise, FittedTree) and noise.n_features != seen:
            return f"the tree takes {noise.n_features} features, the projection makes {seen}"
        return None


def _load_parts(directory: Path, wanted: Sequence[str]) -> dict[str, Any]:
    """The parts that ``model.json`` names, which are those that have files."""
    openers = {"embedding": load_embedding, "noise": load_sampler, "projection": FittedPca.load}
    present = {name for name in openers if (directory / f"{name}.json").exists()}
    if present != set(wanted):
        raise ArtifactDamaged(
            f"{directory} holds the parts {sorted(present)}, expected {sorted(wanted)}, as in model.json; "
            "make the artifact again"
        )
    return {name: openers[name](directory, name) for name in sorted(present)}


class _About(Described):
    """``model.json``."""

    kind: Literal["negative-sampling"]
    n_features: Count
    n_labels: Count
    shortlist: Count
    parts: list[Literal["embedding", "projection", "noise"]]
