"""Factors of a study: parameters of the pipeline, each with the values that it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from itertools import product
from typing import Any

from pydantic import ValidationError

from flows.params import PipelineParams
from flows.presets import set_value
from xcore.components import Component, label_of
from xcore.errors import ConfigError
from xcore.studies.design import Level

Factors = Mapping[str, Sequence[Any]]
Values = Mapping[str, Any]
NOT_FACTORS = {"seed": "list the seeds in `seeds`", "name": "a study is one experiment"}


def check_factors(factors: Factors) -> None:
    """Raise `ConfigError` where a factor can be seen to be wrong by itself."""
    for path, values in factors.items():
        if path in NOT_FACTORS:
            raise ConfigError(f"factors.{path}: it cannot be a factor; {NOT_FACTORS[path]}")
        if not values:
            raise ConfigError(f"factors.{path}: got no values, expected at least one")
        for place, value in enumerate(values):
            if any(_is_same(value, other) for other in values[:place]):
                raise ConfigError(f"factors.{path}: {value!r} is given twice; remove one")


def combinations(factors: Factors) -> list[dict[str, Any]]:
    """Every combination of the factors' values; the last factor changes fastest."""
    return [dict(zip(factors, values, strict=True)) for values in product(*factors.values())]


def params_with(base: PipelineParams, values: Values, where: str, seed: int | None = None) -> PipelineParams:
    """The pipeline's parameters with some values changed, in the order in which they are given.

    Raises
    ------
    ConfigError
        A path or a value is wrong. The message begins with `where` and the path of the first value that is.
    """
    tree = base.model_dump(mode="json", include=set(PipelineParams.model_fields))
    if seed is not None:
        tree["seed"] = seed
    try:
        return PipelineParams.model_validate(_changed(tree, values))
    except (ValidationError, ConfigError):
        for path, value in values.items():  # slowly, to find out which one is wrong
            try:
                PipelineParams.model_validate(_changed(tree, {path: value}))
                set_value(tree, path, value)
            except ValidationError as error:
                problem = error.errors()[0]
                place = ".".join(str(part) for part in problem["loc"])
                raise ConfigError(f"{where}.{path}: got {value!r}; {place}: {problem['msg']}") from None
            except ConfigError as error:
                raise ConfigError(f"{where}.{path}: got {value!r}; {error}") from None
        raise


def _changed(tree: dict[str, Any], values: Values) -> dict[str, Any]:
    changed = deepcopy(tree)
    for path, value in values.items():
        set_value(changed, path, deepcopy(value))
    return changed


def levels_of(factors: Factors, cells: Sequence[tuple[Values, PipelineParams]]) -> dict[str, list[Level]]:
    """What tables and plots call each value of each factor; no two values of a factor have the same label."""
    found: dict[str, list[Level]] = {}
    for path, values in factors.items():
        checked = [value_at(next(p for v, p in cells if _is_same(v[path], value)), path) for value in values]
        levels = [_level(value) for value in checked]
        labels = [level.label for level in levels]
        found[path] = [
            level if labels.count(level.label) == 1 else level.model_copy(update={"label": _long_label(value)})
            for level, value in zip(levels, checked, strict=True)
        ]
    return found


def place_of(path: str, value: Any, factors: Factors) -> int:
    """Where a value stands among those of its factor."""
    return next(place for place, other in enumerate(factors[path]) if _is_same(value, other))


def value_at(params: PipelineParams, path: str) -> Any:
    """A parameter by its dotted path."""
    value: Any = params
    for name in path.split("."):
        if isinstance(value, Component):
            value = getattr(value, name)
        else:
            value = value[int(name)] if isinstance(value, Sequence) else value[name]
    return value


def _level(value: Any) -> Level:
    if isinstance(value, Component):
        family = str(value.options().get("kind", ""))
        number = getattr(value, "level", None)
        label = _long_label(value) if number is None else f"{family} {number:g}"
        return Level(label=label, family=family, number=number, axis=getattr(value, "level_name", ""))
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return Level(label=_long_label(value), number=value if is_number else None)


def _long_label(value: Any) -> str:
    if isinstance(value, Component):
        return label_of(value) if "kind" in type(value).model_fields else str(value.options())
    if isinstance(value, list | tuple):
        return ", ".join(_long_label(item) for item in value)
    return "none" if value is None else str(value)


def _is_same(one: Any, other: Any) -> bool:
    """Python takes True for 1 and 1.0 for 1, but they are different texts in a preset."""
    return type(one) is type(other) and bool(one == other)
