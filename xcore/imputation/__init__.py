"""The family of imputers."""

from typing import Annotated

from pydantic import Field

from xcore.imputation.auto import Auto
from xcore.imputation.baseline import Baseline
from xcore.imputation.disaggregate import Disaggregate
from xcore.imputation.eagle import Eagle

AnyImputer = Annotated[Baseline | Eagle | Disaggregate | Auto, Field(discriminator="kind")]
IMPUTER_KINDS = {"baseline": Baseline, "eagle": Eagle, "disaggregate": Disaggregate, "auto": Auto}
