"""The family of models. A model's modules import `xcore.models.base`, so that a step's id hashes only what it uses."""

from typing import Annotated, get_args

from pydantic import Field

from xcore.models.base import Model
from xcore.models.negative_sampling import NegativeSampling
from xcore.models.omikuji import Omikuji
from xcore.models.ova import Ova
from xcore.models.parabel import Parabel

AnyModel = Annotated[Ova | Parabel | NegativeSampling | Omikuji, Field(discriminator="kind")]

MODEL_KINDS: dict[str, type[Model]] = {
    member.model_fields["kind"].default: member for member in get_args(get_args(AnyModel)[0])
}
