"""The family of models, by kind."""

from typing import Annotated, TypeAlias

from pydantic import Field

from xcore.components import members_of
from xcore.models.base import Model
from xcore.models.negative_sampling.model import NegativeSampling
from xcore.models.network import NeuralNetwork
from xcore.models.omikuji import Omikuji
from xcore.models.ova import Ova
from xcore.models.parabel.model import Parabel

AnyModel: TypeAlias = Annotated[Ova | Parabel | NegativeSampling | NeuralNetwork | Omikuji, Field(discriminator="kind")]
MODEL_KINDS: dict[str, type[Model]] = members_of(AnyModel)
