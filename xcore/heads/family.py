"""The family of heads, by kind."""

from typing import Annotated, TypeAlias

from pydantic import Field

from xcore.heads.cascade import CascadeAbout, MultiHeadCascade
from xcore.heads.label_sets import LabelSets, LabelSetsAbout
from xcore.heads.mixture import MixtureAbout, MultiHeadMixture
from xcore.heads.one_hot import OneHot, OneHotAbout
from xcore.heads.product import MultiHeadProduct, ProductAbout
from xcore.heads.sampled import MultiHeadSampling, SampledAbout

AnyHead: TypeAlias = Annotated[
    OneHot | MultiHeadProduct | LabelSets | MultiHeadCascade | MultiHeadSampling | MultiHeadMixture,
    Field(discriminator="kind"),
]
AnyHeadAbout: TypeAlias = Annotated[
    OneHotAbout | ProductAbout | LabelSetsAbout | CascadeAbout | SampledAbout | MixtureAbout,
    Field(discriminator="kind"),
]
