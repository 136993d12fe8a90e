"""A model of the store with all that it needs to score rows, found by its manifest."""

from __future__ import annotations

from pydantic import TypeAdapter, ValidationError

from tasks import settings
from tasks.score import ModelParts, UsedModel
from xcore.artifacts import ArtifactRef, KeptArtifact
from xcore.components import Component
from xcore.data.dataset import Dataset
from xcore.errors import ConfigError
from xcore.models.base import Model
from xcore.models.family import AnyModel
from xcore.text.family import AnyText


def parts_of(model: ArtifactRef) -> ModelParts:
    """A model with all it needs, found by its manifest; an error says which part is gone or not understood."""
    store = settings.store()
    made = store.manifest(model)
    dataset = Dataset(store.open(made.inputs["dataset"]).directory)
    vocabulary = made.inputs.get("vocabulary")
    if vocabulary is None and "features" in made.inputs:
        vocabulary = store.manifest(made.inputs["features"]).inputs.get("vocabulary")
    text: Component | None = None
    try:
        family: Model = TypeAdapter[Model](AnyModel).validate_python(dict(made.options))
        if vocabulary:
            text = TypeAdapter[Component](AnyText).validate_python(dict(store.manifest(vocabulary).options))
    except ValidationError as error:
        problem = error.errors()[0]
        raise ConfigError(
            f"{model} was trained by code whose options differ: {'.'.join(map(str, problem['loc']))}: "
            f"{problem['msg']}. Train it again, or use the code it was trained with"
        ) from None
    return ModelParts(
        UsedModel(family=family, text=text, form=dataset.form),
        KeptArtifact.of(model),
        KeptArtifact.of(made.inputs["dataset"]),
        KeptArtifact.of(vocabulary) if vocabulary else None,
    )
