"""Networks that learn from bags of rows: Deep-MIML, and the same with a co-attention mask."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from pydantic import Field

from xcore.errors import ConfigError
from xcore.imputation.eagle import Eagle
from xcore.imputation.family import AnyImputer
from xcore.imputation.label_embeddings import LabelEmbeddings
from xcore.miml.concepts import Concepts, similarities
from xcore.miml.options import BagLoss, MimlOptions
from xcore.miml.pooling import BagRows
from xcore.models.bags import ExplainedBags
from xcore.models.base import Model, rows_for
from xcore.numeric.arrays import write_arrays
from xcore.numeric.checks import ArrayFile
from xcore.numeric.matrices import CSR, NO_LABEL, Float32, Int32, Int64, TopK, row_blocks, topk_of_dense
from xcore.saved import Count, Described, read_json
from xcore.training.context import FitContext
from xcore.training.data import Matrix, RowForm, TrainingData, Wish
from xcore.training.stages import DeclaredStage

BLOCK_BAGS = 1024
STAGE = "label_embeddings"


class DeepMiml(MimlOptions, Model):
    """Deep-MIML (Feng and Zhou, 2017): a network over the rows of a bag, pooled over concepts and over rows.

    Notes
    -----
    - The value of a label in a row is the best of its concepts, after a ReLU: ``max_c relu(W relu(A x))``. The logit of
      a bag is the largest value of its rows plus a bias. A single row is a bag of one.
    - If the number of carriers is known, the target of a label is its share of the bag's rows; else it is 1.
    - Two other losses use all rows of a bag, not only the best. ``proportion`` (Ardehaly and Culotta, 2017) is the
      cross-entropy of the mean prediction against the label shares. ``count`` is the exact likelihood of the counts
      (Poisson binomial), or of "at least one" where counts are not known.
    - A step costs O(batch_size (nnz width + width concepts L)). Nothing is padded.
    - Without bags, each row is a bag of its own.
    - Training needs torch; predictions do not. The same bits come out for any number of threads.
    """

    takes: ClassVar[tuple[RowForm, ...]] = ("sparse", "image", "vector")
    wants: ClassVar[frozenset[Wish]] = frozenset({"dev", "bags"})

    kind: Literal["deep-miml"] = "deep-miml"

    def _fit(self, data: TrainingData, context: FitContext) -> FittedMiml:
        return _fitted(self, data, 0.0, context)

    @classmethod
    def load(cls, directory: Path) -> FittedMiml:
        """Open a model that `FittedMiml.save` wrote."""
        return FittedMiml.load(directory)


class CoAttention(MimlOptions, Model):
    """Deep-MIML with the co-attention mask of EAGLE (Shen et al., 2020, Section 6).

    Notes
    -----
    - The values of the rows of a bag are multiplied by the mask ``g softmax(tau X L')``: the softmax is over the g rows
      of the bag, for each label. X holds unit rows, L the label embeddings, which stay as they are.
    - ``tau: 0`` is `DeepMiml`. The mask of a bag of one row is 1, so single rows are predicted without it.
    - The embeddings are a stage of their own: models with the same embeddings share it.
    """

    takes: ClassVar[tuple[RowForm, ...]] = DeepMiml.takes
    wants: ClassVar[frozenset[Wish]] = DeepMiml.wants

    kind: Literal["co-attention"] = "co-attention"
    tau: float = Field(
        0.5,
        ge=0,
        le=1e4,
        description="Hardness of the attention. 0: all rows of a bag count alike, which is deep-miml; large: only the "
        "row nearest to the label's embedding counts.",
    )
    embeddings: AnyImputer = Field(
        Eagle(centre=True),
        description="The imputer that makes the label embeddings from the bags. eagle with iterations 0 is EAGLE-0.",
    )

    def stages(self, form: RowForm) -> Mapping[str, DeclaredStage]:
        """The label embeddings."""
        return {STAGE: DeclaredStage(LabelEmbeddings(imputer=self.embeddings))} if self.tau else {}

    def _fit(self, data: TrainingData, context: FitContext) -> FittedMiml:
        return _fitted(self, data, self.tau, context)

    @classmethod
    def load(cls, directory: Path) -> FittedMiml:
        """Open a model that `FittedMiml.save` wrote."""
        return FittedMiml.load(directory)


def _fitted(options: DeepMiml | CoAttention, data: TrainingData, tau: float, context: FitContext) -> FittedMiml:
    from xcore.miml.fitting import Attention, fit_concepts, known_labels

    bags = data.known_bags()
    labels = known_labels(bags)
    embeddings = data.stage(STAGE).fitted.vectors[labels] if tau else None
    attention = Attention(tau, embeddings) if embeddings is not None else None
    concepts = fit_concepts(options, data, bags, labels, attention, context)
    return FittedMiml(options.kind, data.form, data.n_labels, concepts, labels, options.loss, tau, embeddings)


@dataclass(frozen=True)
class FittedMiml:
    """A trained network over bags.

    Attributes
    ----------
    concepts : Concepts
    labels : int32 (m,)
        Label id of each output, ascending.
    loss : str
        What it was trained by; it decides how rows are pooled.
    tau : float
    embeddings : float32 (m, d) or None
        None where tau is 0.
    """

    kind: Literal["deep-miml", "co-attention"]
    form: RowForm
    n_labels: int
    concepts: Concepts
    labels: Int32
    loss: BagLoss
    tau: float = 0.0
    embeddings: Float32 | None = None

    @property
    def n_features(self) -> int:
        return self.concepts.n_features

    def predict_topk(self, X: Matrix, k: int) -> TopK:
        """The k best labels of each row by itself; ties go to the lower label id."""
        rows = rows_for(self, X, k)
        top = TopK(np.empty((rows.shape[0], k), np.int32), np.empty((rows.shape[0], k), np.float32))
        for part in row_blocks(rows.shape[0], BLOCK_BAGS):
            logits = self.concepts.values(rows[part]) + self.concepts.label_bias
            best = self._ranked(self._chances(logits), k)
            top.labels[part], top.scores[part] = best.labels, best.scores
        return top

    def predict_bags(self, X: Matrix, members: CSR, k: int) -> TopK:
        """The k best labels of each bag of rows of X. An empty bag has none.

        Parameters
        ----------
        members : CSR (bags, n)
            Stored entries are the rows of each bag.
        """
        return self.explain(X, members, k).top

    def explain(self, X: Matrix, members: CSR, k: int) -> ExplainedBags:
        """The k best labels of each bag, and for each the row that explains it. Cost O(rows of the bags).

        The weight of a row for a label is its part of the evidence of all rows of the bag. The evidence is the masked
        value for the losses that pool by the maximum, else the probability of the label in the row.
        """
        rows = rows_for(self, X, k)
        if members.shape[1] != rows.shape[0]:
            raise ConfigError(f"bags are over {members.shape[1]} rows, got {rows.shape[0]} rows: they must match")
        found = ExplainedBags.empty(members.shape[0], k)
        filled = np.flatnonzero(np.diff(members.indptr) > 0)
        for part in row_blocks(len(filled), BLOCK_BAGS):
            bags = BagRows.of(members, filled[part])
            evidence, scores = self._pooled(rows[bags.rows], bags)
            best = topk_of_dense(scores, min(k, len(self.labels)))
            found.put(filled[part], self._ranked(scores, k), *_explaining(evidence, bags, best.labels))
        return found

    def mask(self, X: Matrix, members: CSR) -> Float32:
        """The attention mask, float32 (members.nnz, m): one row per member, bag by bag. No bag may be empty."""
        bags = BagRows.of(members, np.arange(members.shape[0]))
        return self._mask(rows_for(self, X, 1)[bags.rows], bags)

    def _mask(self, rows: Matrix, bags: BagRows) -> Float32:
        if self.embeddings is None:
            return np.ones((len(bags.rows), len(self.labels)), np.float32)
        return bags.mask(np.float32(self.tau) * similarities(rows, self.embeddings))

    def _pooled(self, rows: Matrix, bags: BagRows) -> tuple[Float32, Float32]:
        """Evidence of each row (n, m), and scores of each bag (b, m)."""
        values, bias = self.concepts.values(rows) * self._mask(rows, bags), self.concepts.label_bias
        if self.loss in ("logistic", "softmax"):
            return values, self._chances(bags.largest(values) + bias)
        chances = self._chances(values + bias)
        if self.loss == "proportion":
            return chances, bags.means(chances)
        none = bags.sums(np.log1p(-np.minimum(chances, np.float32(1 - 1e-7))))
        some: Float32 = (np.float32(1) - np.exp(none)).astype(np.float32)
        return chances, some

    def _chances(self, logits: Float32) -> Float32:
        """Probabilities of each label by itself, or a distribution over labels."""
        if self.loss in ("logistic", "count"):
            odds: Float32 = np.exp(-np.maximum(logits, np.float32(-80)))
            return np.float32(1) / (np.float32(1) + odds)
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares: Float32 = weights / weights.sum(axis=1, keepdims=True)
        return shares

    def _ranked(self, scores: Float32, k: int) -> TopK:
        best = topk_of_dense(scores, k)
        is_label = best.labels != NO_LABEL
        return TopK(np.where(is_label, self.labels[np.maximum(best.labels, 0)], NO_LABEL).astype(np.int32), best.scores)

    def save(self, directory: Path) -> None:
        """Write ``weights.safetensors`` and ``model.json``."""
        arrays = {"labels": self.labels} | self.concepts.arrays()
        if self.embeddings is not None:
            arrays["embeddings"] = self.embeddings
        write_arrays(directory / "weights.safetensors", arrays)
        about = {
            "kind": self.kind,
            "form": self.form,
            "n_features": self.n_features,
            "n_labels": self.n_labels,
            "width": len(self.concepts.hidden_bias),
            "concepts": self.concepts.n_concepts,
            "loss": self.loss,
            "tau": self.tau,
        }
        (directory / "model.json").write_text(json.dumps(about, indent=2) + "\n")

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read what `save` wrote."""
        about = read_json(directory / "model.json", _About)
        with ArrayFile(directory / "weights.safetensors") as file:
            labels = file.take("labels", np.int32, (None,)).within(0, about.n_labels).ascending()
            if not len(labels.array):
                labels.refuse("is empty", "at least one label")
            m = len(labels.array)
            concepts = Concepts.take(file, about.n_features, about.width, about.concepts, m)
            embeddings = None
            if about.tau:
                embeddings = file.take("embeddings", np.float32, (m, about.n_features)).finite().array
        return cls(about.kind, about.form, about.n_labels, concepts, labels.array, about.loss, about.tau, embeddings)


def _explaining(evidence: Float32, bags: BagRows, best: Int32) -> tuple[Int64, Float32]:
    """For each bag and each of its best outputs (b, k): the row with the most evidence, and its part of all of it."""
    rows, weights = np.empty(best.shape, np.int64), np.empty(best.shape, np.float32)
    for bag, (first, end) in enumerate(zip(bags.offsets[:-1], bags.offsets[1:], strict=True)):
        own = evidence[first:end, best[bag]]
        winner = own.argmax(axis=0)
        total = own.sum(axis=0)
        rows[bag] = bags.rows[first + winner]
        weights[bag] = np.where(total > 0, own.max(axis=0) / np.maximum(total, np.float32(1e-30)), 1 / (end - first))
    return rows, weights


class _About(Described):
    """``model.json``."""

    kind: Literal["deep-miml", "co-attention"]
    form: Literal["sparse", "vector", "image"]
    n_features: Count
    n_labels: Count
    width: Annotated[int, Field(ge=1, lt=2**24)]
    concepts: Annotated[int, Field(ge=1, lt=2**16)]
    loss: BagLoss
    tau: Annotated[float, Field(ge=0, le=1e4)]
