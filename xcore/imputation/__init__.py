"""The family of imputers. An imputer's own modules import `xcore.imputation.base`, so that ids hash only what is used."""

from typing import Annotated, get_args

from pydantic import Field

from xcore.imputation.base import Imputer
from xcore.imputation.baseline import Baseline
from xcore.imputation.eagle import Eagle

AnyImputer = Annotated[Baseline | Eagle, Field(discriminator="kind")]

IMPUTER_KINDS: dict[str, type[Imputer]] = {
    member.model_fields["kind"].default: member for member in get_args(get_args(AnyImputer)[0])
}
