"""SiameseXML (Dahiya et al., ICML 2021): label texts and rows meet in one space, and each label has a classifier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from xcore.errors import ConfigError
from xcore.models.base import Model, ScoreScale, choose_form
from xcore.models.siamesexml.fitted import FittedSiamese
from xcore.siamese.dev_rows import DevRows
from xcore.siamese.encoder import bag_of_tokens
from xcore.siamese.fine_tuning import ROLE, FineTuning, in_vectors
from xcore.siamese.label_rows import label_rows
from xcore.siamese.modules import FittedClassifiers, FittedEncoder, FittedShortlists, label_vectors
from xcore.siamese.options import Classifiers, Shortlists, SiameseEncoder
from xcore.siamese.shortlists import build_indexes
from xcore.training.context import FitContext
from xcore.training.data import RowForm, TrainingData, Wish
from xcore.training.dev_choice import DEPTH, DEV_METRIC, hits_of, ideal_gains, ndcg
from xcore.training.stages import DeclaredStage

DEV_ROWS = 3000
ALPHAS = (0.9, 0.0, 0.1, 0.25, 0.5, 0.75, 0.95, 1.0)  # the first is taken where there is nothing to choose by


class SiameseXml(Model):
    """One encoder of rows and label texts (Module I), and a classifier for each label (Modules III and IV).

    Notes
    -----
    - Modules I, II and III are stages: a change in one does not train those before it again.
    - The score of a label is ``alpha Enc(x) w + (1 - alpha) s``, where s is the mean cosine of f(x) with the embedding
      of the label and with the centroid of its rows. It is computed for the nearest labels of both indexes. alpha is
      that of the best nDCG@5 on at most 3,000 dev rows, else 0.9.
    - Labels with a name but without training rows are ranked by their name. More labels can be added at any time
      (`FittedSiamese.with_labels`).
    - Rows are bags of words or tokens, or vectors of a text encoder that stays as it is, with a trained map. With
      `fine_tuning` they are texts, and a stage before Module I trains the last layers of a transformer.
    - Modules III and IV keep the weights that they start with if no epoch is better on dev rows.
    - Words and classifiers can be trained together from the start: set the epochs of Modules I and III to 0.
    - A target q in (0, 1] counts as q of a positive and 1 - q of a negative in Modules III and IV.
    - Training needs torch; predictions do not. They need faiss where an index has a graph.
    - Memory: 12 D bytes per label in the model, and 12 D more in training.
    """

    takes: ClassVar[tuple[RowForm, ...]] = ("sparse", "vector", "tokens")
    wants: ClassVar[frozenset[Wish]] = frozenset({"dev", "labels"})

    kind: Literal["siamesexml"] = "siamesexml"
    fine_tuning: FineTuning | None = Field(
        None,
        description="A transformer whose last layers are trained before Module I, on texts and label names. The model "
        "then takes plain texts, and text is not used. Empty: no transformer is trained.",
    )
    encoder: SiameseEncoder = Field(SiameseEncoder(), description="Module I: the encoder of rows and label texts.")
    shortlists: Shortlists = Field(
        Shortlists(), description="Module II: labels that each training row is easily confused with."
    )
    classifiers: Classifiers = Field(Classifiers(), description="Module III: a classifier for each label.")
    joint_epochs: int = Field(
        0,
        ge=0,
        description="Module IV: maximum number of further passes in which the tokens' vectors are trained too. The "
        "other options are those of Module III. 0: no Module IV.",
    )
    joint_learning_rate: float = Field(0.0005, gt=0, description="Peak learning rate of Module IV.")
    alpha: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Weight of the classifiers in the score; similarities have the rest. Empty: chosen on dev rows, "
        "else 0.9.",
    )
    n_candidates: int = Field(
        250,
        ge=1,
        le=10_000,
        description="Number of labels from each of the two indexes that are scored per row. More take more time.",
    )

    def form_for(self, available: Sequence[RowForm]) -> RowForm:
        """Sparse rows or vectors; for a table of wordllama sparse rows or tokens, for fine-tuning texts."""
        if self.fine_tuning:
            if "text" in available:
                return "text"
            raise ConfigError(
                f"kind: siamesexml: fine_tuning takes texts, but the rows are {' or '.join(available)}: take a dataset "
                "of texts, or leave fine_tuning empty"
            )
        if self.encoder.table != "wordllama" or "sparse" in available:
            return choose_form(type(self), [form for form in available if form != "tokens"] or available)
        if "tokens" not in available:
            raise ConfigError(
                f"kind: siamesexml: table wordllama takes words or tokens of texts, but the rows are "
                f"{' or '.join(available)}: take a dataset of texts with text.kind tfidf or wordllama, or set table to "
                "random"
            )
        return "tokens"

    def stages(self, form: RowForm) -> dict[str, DeclaredStage]:
        """The transformer, if one is trained, and Modules I, II and III."""
        first = {ROLE: DeclaredStage(self.fine_tuning)} if self.fine_tuning else {}
        return first | {
            "encoder": DeclaredStage(self.encoder, uses=tuple(first)),
            "shortlists": DeclaredStage(self.shortlists, uses=(*first, "encoder")),
            "classifiers": DeclaredStage(self.classifiers, uses=(*first, "encoder", "shortlists")),
        }

    def _fit(self, data: TrainingData, context: FitContext) -> FittedSiamese:
        form, text = data.form, data.stage(ROLE).fitted if self.fine_tuning else None
        data = in_vectors(data, {"dev", "labels"} if self.joint_epochs else {"dev"})
        encoder: FittedEncoder = data.stage("encoder").fitted
        lists: FittedShortlists = data.stage("shortlists").fitted
        found: FittedClassifiers = data.stage("classifiers").fitted
        names, centroids = lists.names, lists.centroids
        last_step = 1
        if self.joint_epochs:
            encoder, found, last_step = self._jointly(data, context)
            names, centroids = build_indexes(encoder, data.rows, data.Y, self.shortlists.exact_below)
        last = replace(encoder.encoder, residual=found.residual)
        model = FittedSiamese(
            form,
            last,
            label_vectors(last, encoder.labels, found.eta),
            names,
            centroids,
            ALPHAS[0] if self.alpha is None else self.alpha,
            self.n_candidates,
            self.shortlists.width,
            text,
        )
        model, metrics = self._chosen(model, data)
        context.report(last_step, last_step, {f"mixed_{name}": value for name, value in metrics.items()})
        return model

    def _jointly(self, data: TrainingData, context: FitContext) -> tuple[FittedEncoder, FittedClassifiers, int]:
        """Module IV."""
        from xcore.siamese.fitting.classifiers import fit_jointly

        texts = label_rows(bag_of_tokens(data.X), data.Y, data.labels, self.encoder.label_names).X
        changes = {"epochs": self.joint_epochs, "learning_rate": self.joint_learning_rate}
        return fit_jointly(self.classifiers.model_copy(update=changes), data, context, texts)

    def _chosen(self, model: FittedSiamese, data: TrainingData) -> tuple[FittedSiamese, dict[str, float]]:
        """The model with the alpha of the best nDCG@5; of equal ones the first."""
        dev = DevRows.of(data, DEV_ROWS)
        if dev is None:
            return model, {}
        candidates, truth, ideal = model.candidates(dev.X), dev.Y, ideal_gains(dev.Y)
        alphas = ALPHAS if self.alpha is None else (self.alpha,)
        values = [ndcg(hits_of(candidates.ranked(alpha, DEPTH).labels, truth), ideal) for alpha in alphas]
        best = alphas[int(np.argmax(values))]
        by_alpha = {f"{DEV_METRIC}_alpha_{alpha}": value for alpha, value in zip(alphas, values, strict=True)}
        return replace(model, alpha=best), {"alpha": best, DEV_METRIC: max(values), **by_alpha}

    @property
    def score_scale(self) -> ScoreScale:
        return "margin"

    @classmethod
    def load(cls, directory: Path) -> FittedSiamese:
        """Open a model that `FittedSiamese.save` wrote."""
        return FittedSiamese.load(directory)
