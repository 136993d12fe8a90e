"""The family of imputers, by kind."""

from typing import Annotated, TypeAlias

from pydantic import Field

from xcore.components import members_of
from xcore.imputation.auto import Auto
from xcore.imputation.baseline import Baseline
from xcore.imputation.disaggregate import Disaggregate
from xcore.imputation.eagle import Eagle

AnyImputer: TypeAlias = Annotated[Baseline | Eagle | Disaggregate | Auto, Field(discriminator="kind")]
IMPUTER_KINDS = members_of(AnyImputer)
