"""The family of groupers, by kind."""

from typing import Annotated, TypeAlias

from pydantic import Field

from xcore.grouping.groupers import ClusterGroups, GivenGroups, MixedGroups, RandomGroups

AnyGrouper: TypeAlias = Annotated[GivenGroups | RandomGroups | ClusterGroups | MixedGroups, Field(discriminator="kind")]
