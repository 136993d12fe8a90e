"""The whole interface of a model: options with `fit`, and a fitted model that predicts and saves itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from xcore.components import Component
from xcore.errors import ConfigError
from xcore.numeric.matrices import Float64, Int32, Int64, TopK
from xcore.text.family import AnyText
from xcore.training.context import FitContext
from xcore.training.data import (
    CONVERSIONS,
    LabelledRows,
    LabelSide,
    Matrix,
    RowForm,
    RowsInMemory,
    TrainingData,
    Wish,
    checked_rows,
)
from xcore.training.stages import DeclaredStage, prepare

# What a score estimates: a label's share of 1, a margin from -1 to 1, or the logarithm of a share up to a constant.
ScoreScale: TypeAlias = Literal["share", "margin", "log"]


class Fitted(Protocol):
    """A trained model."""

    @property
    def form(self) -> RowForm:
        """The form of the rows that it takes."""
        ...

    @property
    def n_features(self) -> int: ...

    @property
    def n_labels(self) -> int: ...

    def predict_topk(self, X: Matrix, k: int) -> TopK:
        """The k best labels of each row of X (n, n_features); any matrix that `checked_rows` takes."""
        ...

    def save(self, directory: Path) -> None:
        """Write the model's files (Parquet, safetensors, JSON; never pickle) into an existing folder."""
        ...

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read what `save` wrote."""
        ...


@runtime_checkable
class Shortlisting(Protocol):
    """A trained model that may score only some labels of a row, and can say what that costs."""

    def shortlist_recall(self, X: Matrix, k: int) -> float | None:
        """The share of the exact k best labels that it finds; None where it scores all labels."""
        ...


@dataclass(frozen=True)
class NestedModel:
    """A whole model inside another one. It is trained like any other model, as an artifact of its own.

    Attributes
    ----------
    model : Model
    seed : int
        Added to the seed of the model that holds it.
    text : AnyText or None
        A text featuriser of its own. None: the rows of the model that holds it.
    """

    model: Model
    seed: int = 0
    text: AnyText | None = None


@runtime_checkable
class Combining(Protocol):
    """A trained model whose answer follows from the rankings of the models that it holds."""

    def combine(self, tops: Sequence[TopK], k: int) -> TopK:
        """The k best labels of each row, from the rankings of its models in their order; see `Model.nested_depth`."""
        ...


@runtime_checkable
class Distributing(Protocol):
    """A trained model that may give each row one distribution over all labels; see `Model.is_distribution`."""

    def log_probability(self, X: Matrix, labels: Int32) -> Float64:
        """Log probability of one label of each row (n,); nan for a label that had no training rows."""
        ...


@runtime_checkable
class Extensible(Protocol):
    """A trained model that can predict labels that it was not trained on, by what is known about them."""

    def with_labels(self, labels: LabelSide) -> Fitted:
        """The same model with more labels, numbered after those that it knows.

        Parameters
        ----------
        labels : LabelSide
            The new labels only. ``X`` are their texts as rows of the model's row space; a model that takes plain texts
            needs the texts alone.
        """
        ...


class Model(Component):
    """Options of a model family.

    A subclass sets a ``kind`` literal, `_fit`, `load`, and what differs of the class attributes, `stages`,
    `nested_models` and `form_for`.
    """

    takes: ClassVar[tuple[RowForm, ...]] = ("sparse",)  # forms of rows that it learns from, the preferred one first
    wants: ClassVar[frozenset[Wish]] = frozenset()  # what it asks for beside rows and targets
    deterministic: ClassVar[bool] = True  # the same input gives the same bits
    resumes: ClassVar[bool] = True  # a killed fit continues from its checkpoint
    nesting: ClassVar[int] = 0  # levels of models inside it; a model may hold models of a lower number only

    def form_for(self, available: Sequence[RowForm]) -> RowForm:
        """The best of the available row forms; `ConfigError` if the model takes none of them."""
        return choose_form(type(self), available)

    def stages(self, form: RowForm) -> Mapping[str, DeclaredStage]:
        """Role > stage that is fitted before the model, for rows of a form."""
        return {}

    def nested_models(self) -> Mapping[str, NestedModel]:
        """Role > whole model that is trained before this one, on the same data."""
        return {}

    def nested_depth(self, k: int) -> int | None:
        """How many labels its nested models must rank for an answer of k; None if it needs the rows themselves."""
        return None

    def fit(self, data: TrainingData, context: FitContext | None = None) -> Fitted:
        """Train on `data`.

        The same data, options and generator state give the same bits for any number of threads, killed and resumed
        from ``context.scratch`` or not.
        """
        context = context or FitContext()
        form = self.form_for([data.form])
        with context.limited_threads():
            data = data if form == data.form else _converted(data, form)
            return self._fit(prepare(self, data, context), context)

    def _fit(self, data: TrainingData, context: FitContext) -> Fitted:
        raise TypeError(f"{type(self).__name__} has no fit")

    @property
    def two_readings(self) -> bool:
        """Whether targets below 1 can be read in two ways; see `xcore.training.data.Reading`."""
        return False

    @property
    def score_scale(self) -> ScoreScale:
        """What the scores of its predictions are; see `ScoreScale`."""
        return "share"

    @property
    def is_distribution(self) -> bool:
        """Whether it learns one distribution over all labels of a row, and its fitted model is `Distributing`."""
        return False

    @classmethod
    def load(cls, directory: Path) -> Fitted:
        """Open a model of this family."""
        raise TypeError(f"{cls.__name__} has no load")


def choose_form(model: type[Model], available: Sequence[RowForm]) -> RowForm:
    """The best of the available row forms for a model; `ConfigError` if the model takes none of them.

    A model of sparse rows also takes vectors: every value is stored. Sparse rows as vectors would not fit in memory.
    A model of either takes images: each pixel is a feature from 0 to 1.
    """
    converted = [to for origin, to in CONVERSIONS if origin in available]
    for forms in (available, converted):
        for form in model.takes:
            if form in forms:
                return form
    raise ConfigError(
        f"kind: {model.model_fields['kind'].default} takes {' or '.join(model.takes)} rows, "
        f"but the rows are {' or '.join(available)}. "
        "Choose another model, or a text featuriser or embedding that makes such rows"
    )


def classes_of(labels: Int32, wanted: Int32) -> tuple[Int64, npt.NDArray[np.bool_]]:
    """The places of wanted labels among a model's own, and which of them it has; 0 for the others."""
    order = np.argsort(labels, kind="stable")
    found = order[np.minimum(np.searchsorted(labels[order], wanted), len(labels) - 1)]
    is_known = labels[found] == wanted
    return np.where(is_known, found, 0), is_known


def rows_for(fitted: Fitted, X: Matrix, k: int) -> Matrix:
    """Rows to predict, checked and in the form and types that a fitted model takes; the one door of `predict_topk`."""
    if k < 1:
        raise ConfigError(f"k must be at least 1, got {k}")
    if fitted.form == "text" and isinstance(X, list | tuple) and not X:
        return []
    rows = checked_rows(X)
    n_features = int(np.prod(rows.X.shape[1:])) if rows.form != "text" else fitted.n_features
    if n_features != fitted.n_features:
        raise ConfigError(f"this model was trained on {fitted.n_features} features, got rows with {n_features}")
    if rows.form == fitted.form:
        return rows.X
    if (rows.form, fitted.form) in CONVERSIONS:
        return CONVERSIONS[rows.form, fitted.form](rows.X)
    raise ConfigError(f"this model was trained on {fitted.form} rows, got {rows.form} rows")


def _converted(data: TrainingData, form: RowForm) -> TrainingData:
    """Rows in another form, for a model that takes only that one."""
    convert = CONVERSIONS[data.form, form]

    def rows(X: Matrix) -> RowsInMemory:
        return RowsInMemory(convert(X), form)

    dev = LabelledRows(rows(data.dev.X), data.dev.Y) if data.dev else None
    return replace(data, rows=rows(data.X), dev=dev)
