"""The family of models, by kind, and how a fitted one is opened."""

from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import Field

from xcore.components import members_of
from xcore.models.base import Fitted, Model
from xcore.models.ensemble.model import Ensemble
from xcore.models.label_subset.model import LabelSubset
from xcore.models.memory.model import Memory
from xcore.models.miml import CoAttention, DeepMiml
from xcore.models.negative_sampling.model import NegativeSampling
from xcore.models.network import NeuralNetwork
from xcore.models.omikuji import Omikuji
from xcore.models.ova import Ova
from xcore.models.parabel.model import Parabel
from xcore.models.siamesexml.model import SiameseXml
from xcore.saved import read_kind

AnyModel: TypeAlias = Annotated[
    Ova
    | Parabel
    | NegativeSampling
    | NeuralNetwork
    | DeepMiml
    | CoAttention
    | Memory
    | SiameseXml
    | Omikuji
    | Ensemble
    | LabelSubset,
    Field(discriminator="kind"),
]
MODEL_KINDS: dict[str, type[Model]] = members_of(AnyModel)


def load_model(directory: Path) -> Fitted:
    """Read what a fitted model of any kind wrote."""
    return MODEL_KINDS[read_kind(directory / "model.json", MODEL_KINDS)].load(directory)
