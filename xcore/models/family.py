"""The family of models, by kind, and how a fitted one is opened."""

from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import BaseModel, Field

from xcore.components import members_of
from xcore.errors import ArtifactDamaged
from xcore.models.base import Fitted, Model
from xcore.models.negative_sampling.model import NegativeSampling
from xcore.models.network import NeuralNetwork
from xcore.models.omikuji import Omikuji
from xcore.models.ova import Ova
from xcore.models.parabel.model import Parabel
from xcore.saved import read_json

AnyModel: TypeAlias = Annotated[Ova | Parabel | NegativeSampling | NeuralNetwork | Omikuji, Field(discriminator="kind")]
MODEL_KINDS: dict[str, type[Model]] = members_of(AnyModel)


def load_model(directory: Path) -> Fitted:
    """Read what a fitted model of any kind wrote."""
    kind = read_json(directory / "model.json", _About).kind
    if kind not in MODEL_KINDS:
        raise ArtifactDamaged(
            f"{directory / 'model.json'}: field 'kind' is {kind!r}, expected one of {sorted(MODEL_KINDS)}; "
            "take a model of this version"
        )
    return MODEL_KINDS[kind].load(directory)


class _About(BaseModel):
    """What every ``model.json`` holds; the loader of the kind looks at the rest."""

    kind: str
