"""What MLflow runs to serve a registered model. It is copied beside the model's files; nothing is pickled."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from mlflow.exceptions import MlflowException
from mlflow.models import set_model
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE
from mlflow.pyfunc import PythonModel
from pydantic import ValidationError

from xcore.errors import ConfigError, EyrieError
from xcore.inference.scorer import Cut, Scorer
from xcore.inference.thresholds import LabelThresholds
from xcore.models.bags import ExplainsBags
from xcore.models.family import load_model
from xcore.text.family import load_text

COLUMNS = {
    "text": {"text": pa.string()},
    "sparse": {"indices": pa.list_(pa.int64()), "values": pa.list_(pa.float64())},
    "vector": {"vector": pa.list_(pa.float64())},
    "image": {"image": pa.list_(pa.int64())},
}


class ServedModel(PythonModel):
    """Rows in (``text``, ``indices`` and ``values``, ``vector`` or ``image``), label ids, names and scores out."""

    def load_context(self, context: Any) -> None:
        """Open the model, and answer one empty row, so that the first caller does not wait for the compiler."""
        files = {name: Path(path) for name, path in context.artifacts.items()}
        labels = pq.read_table(files["labels"])
        self._scorer = Scorer.of_labels(
            load_model(files["model"]),
            context.model_config["form"],
            labels["id"],
            labels["name"],
            load_text(files["vocabulary"]) if "vocabulary" in files else None,
            LabelThresholds.load(files["thresholds"]) if "thresholds" in files else None,
        )
        self._scorer.answer(self._rows(pd.DataFrame(self._example())), Cut())

    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """``labels``, ``names`` and ``scores`` of each row, best first; `params` are those of `Cut`."""
        try:
            answer = self._scorer.answer(self._rows(model_input), _cut(params or {}))
        except (EyrieError, pa.ArrowException) as error:
            raise MlflowException(str(error), INVALID_PARAMETER_VALUE) from None
        return pd.DataFrame({name: answer[name].to_pylist() for name in answer.column_names})

    def nearest(self, frame: pd.DataFrame, n: int) -> list[dict[str, Any]]:
        """The training rows and label names that weigh most in the answer to the first row, the nearest first."""
        return self._scorer.nearest(self._rows(frame), n)

    @property
    def has_thresholds(self) -> bool:
        """Whether each label has a threshold, for ``per_label``."""
        return self._scorer.thresholds is not None

    @property
    def explains_bags(self) -> bool:
        """Whether `bag` answers."""
        return isinstance(self._scorer.fitted, ExplainsBags)

    def bag(self, frame: pd.DataFrame, k: int) -> list[dict[str, Any]]:
        """The k best labels of the bag that the rows make together, each with the row that explains it."""
        try:
            return self._scorer.explain_bag(self._rows(frame), k)
        except (EyrieError, pa.ArrowException) as error:
            raise MlflowException(str(error), INVALID_PARAMETER_VALUE) from None

    def _rows(self, frame: pd.DataFrame) -> pa.RecordBatch:
        columns = COLUMNS[self._scorer.form]
        return pa.record_batch(
            {name: pa.array(frame[name].tolist(), kind) for name, kind in columns.items() if name in frame}
        )

    def _example(self) -> dict[str, list[Any]]:
        width = self._scorer.fitted.n_features
        return {"text": [""], "indices": [[]], "values": [[]], "vector": [[0.0] * width], "image": [[0] * width]}


def _cut(params: Mapping[str, Any]) -> Cut:
    try:
        return Cut.model_validate({name: value for name, value in params.items() if value is not None})
    except ValidationError as error:
        problem = error.errors()[0]
        raise ConfigError(f"{problem['loc'][0]}: {problem['msg']}, got {problem['input']!r}") from None


set_model(ServedModel())
