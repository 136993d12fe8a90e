"""A version of a registered model, loaded by MLflow: its answers, and MLflow's scoring server as an application."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tasks.model_versions import Version
from tasks.settings import tracking_uri
from xcore.errors import ConfigError
from xcore.inference.reasons import Row

COLUMNS = {"text": ("text",), "sparse": ("indices", "values"), "vector": ("vector",), "image": ("image",)}
NUMBERS = {"indices": int, "values": float, "vector": float, "image": int}


@dataclass(frozen=True)
class Suggestion:
    """A label that a row gets. `share` is the score as an estimate from 0 to 1, whatever the scale of the model."""

    id: str
    name: str
    score: float
    share: float


@dataclass(frozen=True)
class Explained(Suggestion):
    """A label of a bag. `row` is the position of the row that explains it, `weight` its part of all evidence."""

    row: int
    weight: float


class LoadedVersion:
    """A version in memory. It answers rows as ``/invocations`` does, since both call the same function.

    Attributes
    ----------
    version : Version
    form : 'text', 'sparse', 'vector' or 'image'
    scale : what its scores estimate: 'share', 'margin' or 'log'
    application : MLflow's scoring server as an ASGI application. It checks no header itself.
    """

    def __init__(self, version: Version, count: Callable[[Any], Any] | None = None) -> None:
        import mlflow
        from mlflow.pyfunc import scoring_server

        mlflow.set_tracking_uri(tracking_uri())
        self.version = version
        self._model: Any = mlflow.pyfunc.load_model(f"models:/{version.name}/{version.number}")
        self._predict: Any = self._model.predict
        if count is not None:
            self._model.predict = count(self._predict)  # for the page and for /invocations alike
        config = self._model.model_config
        self.form = str(config["form"])
        self.scale = str(config.get("scale", "share"))
        self.application: Any = scoring_server.init(self._model)

    def answer(self, rows: Sequence[Row], k: int, per_label: bool = False) -> list[list[Suggestion]]:
        """The k best labels of each row; `ConfigError` for rows that do not fit the model.

        With `per_label` only those that reach the threshold of their label.
        """
        return self._answer(self._model.predict, rows, k, {"per_label": True} if per_label else {})

    def probe(self, rows: Sequence[Row], k: int) -> list[list[Suggestion]]:
        """The same for rows that nobody sent, such as parts of a row; they are not counted."""
        return self._answer(self._predict, rows, k, {})

    def _answer(self, predict: Any, rows: Sequence[Row], k: int, cut: dict[str, Any]) -> list[list[Suggestion]]:
        import pandas as pd
        from mlflow.exceptions import MlflowException

        checked = [self._checked(row) for row in rows]
        try:
            found = predict(pd.DataFrame(checked), params={"k": k, **cut})
        except MlflowException as error:
            raise ConfigError(error.message) from None
        columns = (found[name] for name in ("labels", "names", "scores"))
        return [
            [Suggestion(*one) for one in zip(ids, names, map(float, scores), self._shares(scores), strict=True)]
            for ids, names, scores in zip(*columns, strict=True)
        ]

    def nearest(self, row: Row, n: int) -> list[dict[str, Any]]:
        """The training rows and label names that weigh most in the answer; none for a model without such a memory."""
        import pandas as pd

        look = getattr(self._model.unwrap_python_model(), "nearest", None)
        return look(pd.DataFrame([self._checked(row)]), n) if look else []

    @property
    def has_thresholds(self) -> bool:
        """Whether each label has a threshold, for `answer`; no version of older code has."""
        return bool(getattr(self._model.unwrap_python_model(), "has_thresholds", False))

    @property
    def explains_bags(self) -> bool:
        """Whether `bag` answers: only models that learn from bags do."""
        return bool(getattr(self._model.unwrap_python_model(), "explains_bags", False))

    def bag(self, rows: Sequence[Row], k: int) -> list[Explained]:
        """The k best labels of the bag that the rows make together, each with the row that explains it."""
        import pandas as pd
        from mlflow.exceptions import MlflowException

        if not self.explains_bags:
            raise ConfigError(
                "this model answers single rows: only a model that learns from bags, such as co-attention or "
                "deep-miml, says which row of a bag explains a label"
            )
        frame = pd.DataFrame([self._checked(row) for row in rows])
        try:
            found = self._model.unwrap_python_model().bag(frame, k)
        except MlflowException as error:
            raise ConfigError(error.message) from None
        shares = self._shares([one["score"] for one in found])
        return [
            Explained(one["label"], one["name"], one["score"], share, one["row"], one["weight"])
            for one, share in zip(found, shares, strict=True)
        ]

    def _checked(self, row: Row) -> Row:
        columns = COLUMNS[self.form]
        if set(row) != set(columns):
            raise ConfigError(f"a row of this model has {' and '.join(columns)}, got {', '.join(row) or 'nothing'}")
        if self.form == "text":
            if not isinstance(row["text"], str):
                raise ConfigError(f"text must be a string, got {row['text']!r:.80}")
            return {"text": _encodable(row["text"])}
        return {name: _numbers(name, row[name]) for name in columns}

    def _shares(self, scores: Sequence[float]) -> list[float]:
        """Scores of one row, the best first, on a scale from 0 to 1."""
        values = np.asarray(scores, np.float64)
        if self.scale == "margin":
            values = (values + 1) / 2
        elif self.scale == "log" and len(values):
            values = np.exp(values - values[0])
            values /= max(values.sum(), 1.0)
        shares: list[float] = np.clip(values, 0, 1).tolist()
        return shares


def _encodable(text: str) -> str:
    r"""JSON may hold half of a surrogate pair (``"\ud800"``), which is no character."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"text has {text[error.start]!a} at position {error.start}, which is no character") from None
    return text


def _numbers(name: str, values: Any) -> list[Any]:
    kind = NUMBERS[name]
    try:
        return [kind(value) for value in values]
    except (TypeError, ValueError):
        raise ConfigError(f"{name} must be a list of numbers, got {values!r:.80}") from None
