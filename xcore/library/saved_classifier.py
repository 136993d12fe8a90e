"""A trained classifier at rest: the model's own files in ``model/``, and ``classifier.json``, which is written last."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from xcore.errors import ArgumentError, ArtifactDamaged, ArtifactMissing
from xcore.files import replacing
from xcore.library.label_space import LabelSpace
from xcore.models.base import Fitted, Model
from xcore.models.family import AnyModel

FILE, MODEL, FORMAT = "classifier.json", "model", 1


@dataclass(frozen=True)
class SavedClassifier:
    """All that a classifier needs to predict and to be trained again.

    Attributes
    ----------
    parameters : dict
        Parameters of the estimator beside its model.
    """

    model: Model
    fitted: Fitted
    space: LabelSpace
    k: int
    parameters: dict[str, Any]

    def write(self, folder: Path) -> None:
        """Write to a new or empty folder."""
        if folder.exists() and any(folder.iterdir()):
            raise ArgumentError(f"{folder} is not empty: save to a new folder, or remove this one first")
        classes = self.space.classes
        about = {
            "format": FORMAT,
            "model": self.model.options(),
            "parameters": self.parameters,
            "k": self.k,
            "targets": {"form": self.space.form, "dtype": self.space.dtype},
            "classes": {"dtype": classes.dtype.str, "labels": classes.tolist()},
        }
        text = _as_json(about)
        (folder / MODEL).mkdir(parents=True)
        self.fitted.save(folder / MODEL)
        with replacing(folder / FILE) as draft:
            draft.write_text(text)

    @classmethod
    def read(cls, folder: Path) -> SavedClassifier:
        """Read what `write` wrote."""
        try:
            about = json.loads((folder / FILE).read_text())
        except OSError as error:
            raise ArtifactMissing(
                f"{folder} holds no {FILE} ({error}): expected a folder that Classifier.save wrote to its end"
            ) from None
        except ValueError as error:
            raise ArtifactDamaged(f"{folder / FILE} is not JSON ({error}): save the classifier again") from None
        if about.get("format") != FORMAT:
            raise ArtifactDamaged(f"{folder} has format {about.get('format')}, expected {FORMAT}: train and save again")
        adapter: TypeAdapter[Model] = TypeAdapter(AnyModel)
        model = adapter.validate_python(about["model"])
        classes = np.empty(len(about["classes"]["labels"]), about["classes"]["dtype"])
        classes[:] = about["classes"]["labels"]
        space = LabelSpace(classes, about["targets"]["form"], about["targets"]["dtype"])
        return cls(model, type(model).load(folder / MODEL), space, about["k"], about["parameters"])


def _as_json(about: dict[str, Any]) -> str:
    labels = about["classes"]["labels"]
    wrong = next((label for label in labels if not isinstance(label, str | int | float | bool | None)), None)
    if wrong is not None:
        raise ArgumentError(
            f"label {wrong!r} is a {type(wrong).__name__}, and only text, numbers and None can be saved: train with "
            "such labels"
        )
    return json.dumps(about) + "\n"
