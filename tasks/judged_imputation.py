"""The imputer `auto`, with the model of the pipeline as its judge. Only steps that use `auto` depend on this module."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import SerializeAsAny

from xcore.components import Component, Report
from xcore.grouping.groups import Groups
from xcore.imputation.auto import Auto
from xcore.imputation.base import Imputer
from xcore.imputation.imputed import Imputed
from xcore.models.base import Model
from xcore.numeric.matrices import CSR, TopK
from xcore.training.context import FitContext
from xcore.training.data import TrainingData


class JudgedImputer(Component):
    """The imputer that chooses, and the model that judges its trials."""

    kind: Literal["auto"] = "auto"
    imputer: Auto
    model: SerializeAsAny[Model]

    def impute(self, X: CSR, groups: Groups, rng: np.random.Generator, report: Report) -> Imputed:
        """As `Auto.impute`, judged by the model."""
        return self.imputer.impute_for(ModelSolver(self.model), X, groups, rng, report)


@dataclass(frozen=True)
class ModelSolver:
    """A model as the judge of imputations."""

    model: Model

    @property
    def two_readings(self) -> bool:
        return self.model.two_readings

    def best_labels(self, X: CSR, imputed: Imputed, rows: CSR, k: int) -> TopK:
        """Train on imputed labels and rank the labels of other rows. The seed is the same for all imputations."""
        data = TrainingData.of(X, imputed.Y, reading=imputed.reading)
        return self.model.fit(data, FitContext(rng=np.random.default_rng(0))).predict_topk(rows, k)


def judged(imputer: Imputer, model: Model) -> Component:
    """The imputer; `auto` together with the model, if this can be trained on features alone."""
    can_judge = "sparse" in model.takes and not model.nested_models() and "labels" not in model.wants
    return JudgedImputer(imputer=imputer, model=model) if isinstance(imputer, Auto) and can_judge else imputer
