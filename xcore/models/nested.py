"""Models as options of other models, without recursion: each model has a level, and holds models of lower levels only.

So the schema of the parameters stays a finite tree, which forms can show. A class that holds others is built by
pydantic when it is first used: only then is the whole family known.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Annotated, Any

from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema


@dataclass(frozen=True)
class AnyModelBelow:
    """Annotation of a field of type `Model`: any model of the family whose ``nesting`` is below a level.

    The class that has such a field sets ``defer_build=True`` in its ``model_config``.
    """

    level: int

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from xcore.models.family import MODEL_KINDS

        union: Any = reduce(or_, (model for model in MODEL_KINDS.values() if model.nesting < self.level))
        return handler.generate_schema(Annotated[union, Field(discriminator="kind")])
