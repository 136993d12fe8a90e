"""Options of the label subset: the selection, and the model that is trained on the selected labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from pydantic import ConfigDict, Field, field_validator

from xcore.models.base import Model, ScoreScale
from xcore.models.nested import AnyModelBelow
from xcore.numeric.matrices import CSR, Int32
from xcore.selection.options import LabelSelection
from xcore.selection.selected import FittedSelection
from xcore.training.context import FitContext
from xcore.training.data import LabelSide, RowForm, TrainingData, Wish, canonical_csr
from xcore.training.stages import DeclaredStage

if TYPE_CHECKING:
    from xcore.models.label_subset.fitted import FittedLabelSubset

LEVEL = 1  # it holds models that hold no others


def _first_model() -> Model:
    from xcore.models.family import MODEL_KINDS

    return MODEL_KINDS["ova"]()


class LabelSubset(Model):
    """Trains any other model on a few chosen labels and on the outlier labels, and reconstructs all other labels.

    Notes
    -----
    - The selection (`LabelSelection`) is a stage. Models with the same selection share it. Stages of the inner model
      that look at no label are shared too; its other stages are fitted on the reduced labels.
    - The score of a chosen label or an outlier is that of the inner model. The score of any other label is
      ``sum over chosen labels s of share_s Z_sl``. Shares are the inner model's scores; margins and logarithms of
      shares are turned into shares first (`Model.score_scale`).
    - With ridge regression inside (``ova``), own predictors for outliers are the same as reconstruction plus a
      regression of the residuals: both are linear in the targets.
    - A prediction costs one full ranking of the trained labels by the inner model, plus the non-zeros of the map.
    """

    model_config = ConfigDict(defer_build=True)

    takes: ClassVar[tuple[RowForm, ...]] = ("sparse", "vector", "tokens", "text", "image")
    wants: ClassVar[frozenset[Wish]] = frozenset({"dev", "labels"})  # the inner model gets what it wants
    nesting: ClassVar[int] = LEVEL

    kind: Literal["label-subset"] = "label-subset"
    selection: LabelSelection = Field(
        LabelSelection(), description="Which labels to train on, and how the others are reconstructed from them."
    )
    model: Annotated[Model, AnyModelBelow(LEVEL)] = Field(
        default_factory=_first_model,
        description="The model to train on the chosen labels and the outliers. Without a choice: ova.",
    )

    @field_validator("model")
    @classmethod
    def _learns_from_rows(cls, model: Model) -> Model:
        if "bags" in model.wants:
            raise ValueError(
                f"kind: {model.options()['kind']} learns from the labels of bags, but labels are chosen by "
                "the labels of rows: take a model of rows, and an imputer for the labels of groups"
            )
        return model

    def form_for(self, available: Sequence[RowForm]) -> RowForm:
        """The form that the inner model takes."""
        return self.model.form_for(available)

    @property
    def two_readings(self) -> bool:
        return self.model.two_readings

    @property
    def score_scale(self) -> ScoreScale:
        return "share"

    def stages(self, form: RowForm) -> Mapping[str, DeclaredStage]:
        """The selection, and the stages of the inner model that look at no label."""
        declared = {"selection": DeclaredStage(self.selection)}
        for role, stage in self.model.stages(form).items():
            needed = {*stage.uses, stage.rows} - {None}
            if not (stage.options.learns_labels or stage.options.wants) and needed <= declared.keys():
                declared[role] = stage
        return declared

    def _fit(self, data: TrainingData, context: FitContext) -> FittedLabelSubset:
        from xcore.models.label_subset.fitted import FittedLabelSubset

        selection: FittedSelection = data.stage("selection").fitted
        inner = self.model.fit(self._reduced(data, selection.trained), context)
        return FittedLabelSubset.of(selection, inner, self.model.score_scale)

    def _reduced(self, data: TrainingData, trained: Int32) -> TrainingData:
        """The data with the trained labels alone, and with no more than the inner model wants."""
        wants, dev, labels = self.model.wants, data.dev, data.labels
        return replace(
            data,
            Y=_columns(data.Y, trained),
            dev=replace(dev, Y=_columns(dev.Y, trained)) if dev and "dev" in wants else None,
            labels=_label_side(labels, trained) if labels and wants & {"labels", "names"} else None,
            stages={role: stage for role, stage in data.stages.items() if role != "selection"},
        )

    @classmethod
    def load(cls, directory: Path) -> FittedLabelSubset:
        """Open a model that `FittedLabelSubset.save` wrote."""
        from xcore.models.label_subset.fitted import FittedLabelSubset

        return FittedLabelSubset.load(directory)


def _columns(Y: CSR, labels: Int32) -> CSR:
    return canonical_csr(Y[:, labels])


def _label_side(side: LabelSide, labels: Int32) -> LabelSide:
    def part(rows: CSR | None) -> CSR | None:
        return None if rows is None else canonical_csr(rows[labels]) if hasattr(rows, "indptr") else rows[labels]

    return LabelSide(list(np.array(side.texts, dtype=object)[labels]), part(side.X), part(side.features))
