"""The family of groupers, by kind."""

from typing import Annotated, TypeAlias

from pydantic import Field

from xcore.grouping.given import GivenGroups
from xcore.grouping.random import RandomGroups
from xcore.grouping.tree import ClusterGroups, MixedGroups

AnyGrouper: TypeAlias = Annotated[GivenGroups | RandomGroups | ClusterGroups | MixedGroups, Field(discriminator="kind")]
