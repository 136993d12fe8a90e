"""What all components share: a frozen, bounded, self-describing set of options, and a way to report progress."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, get_args

from pydantic import BaseModel, ConfigDict, SerializationInfo, SerializerFunctionWrapHandler, model_serializer


def title_of(name: str) -> str:
    """What a form calls a field that has no title of its own: ``n_labels`` is the number of labels."""
    words = name.replace("_", " ")
    return f"Number of {words[2:]}" if words.startswith("n ") else words.capitalize()


_SECRET_NAME = re.compile(r"(^|_)(PASS|PASSWORD|PASSWD|SECRET|TOKEN|KEY|AUTH|CREDENTIALS?)(_|$)", re.IGNORECASE)
SHORTEST_SECRET = 4  # a shorter value stands in texts that have nothing to do with it
_secrets: dict[str, str] = {}


def note_secret(name: str, value: str) -> None:
    """Remember the value of an environment variable that a parameter uses, if its name says that it is a secret."""
    if len(value) >= SHORTEST_SECRET and _SECRET_NAME.search(name):
        _secrets[value] = f"${{{name}}}"


def mask_secrets(value: Any) -> Any:
    """The tree with ``${NAME}`` in place of the values of secret variables, as the parameters were written."""
    if isinstance(value, str):
        for secret, variable in _secrets.items():
            value = value.replace(secret, variable)
        return value
    if isinstance(value, dict):
        return {name: mask_secrets(item) for name, item in value.items()} if _secrets else value
    if isinstance(value, list):
        return [mask_secrets(item) for item in value] if _secrets else value
    return value


class Component(BaseModel):
    """Base of every exchangeable part (reader, featuriser, grouper, imputer, model) and of every option group.

    The fields *are* the parameters: the Prefect form, the YAML preset, the API and the code share this one schema.
    A subclass that belongs to a family has a ``kind`` literal, by which the family's union finds it.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, field_title_generator=lambda name, _: title_of(name)
    )

    @model_serializer(mode="wrap")
    def _without_secrets(self, write: SerializerFunctionWrapHandler, info: SerializationInfo) -> Any:
        """Whatever is stored (manifests, MLflow, Prefect) is written as JSON, and names a secret by its variable."""
        return mask_secrets(write(self)) if info.mode == "json" else write(self)

    def options(self) -> dict[str, Any]:
        """All fields as plain JSON values, in a form that names the component's result."""
        return self.model_dump(mode="json")

    def source_files(self) -> tuple[Path, ...]:
        """Files from outside that these options name: their content becomes part of the id of what is made of them."""
        return ()

    def used_modules(self) -> Iterable[str]:
        """Names of modules that these options choose, beside the component's own: they count as code of the step."""
        return ()


def components_in(value: Any) -> Iterator[Component]:
    """All components in a tree of options, the outermost first."""
    if isinstance(value, Component):
        yield value
        value = [getattr(value, name) for name in type(value).model_fields]
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from components_in(item)


def label_of(component: Component) -> str:
    """A short label of a component: its kind, and the options that differ from their defaults."""
    options, words = component.options(), []
    for name, field in type(component).model_fields.items():
        value = getattr(component, name)
        if name != "kind" and value != field.get_default(call_default_factory=True, validated_data={}):
            words.append(f"{name}={_label_of_value(value, options[name])}")
    kind, given = str(options.get("kind", "")), ", ".join(words)
    return f"{kind}({given})" if given or not kind else kind


def _label_of_value(value: Any, plain: Any) -> str:
    """Components inside a component are shortened too; other values are written as they are in options."""
    if isinstance(value, Component):
        return label_of(value)
    if isinstance(value, tuple) and value and all(isinstance(item, Component) for item in value):
        return f"[{', '.join(map(label_of, value))}]"
    return str(plain)


def flatten(options: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested options under dotted names; lists stay whole, and what is empty is left out."""
    flat: dict[str, Any] = {}
    for name, value in options.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}.")
        elif value not in (None, [], (), ""):
            flat[f"{prefix}{name}"] = value
    return flat


def members_of(family: Any) -> dict[str, Any]:
    """The components of a discriminated union, by their kind."""
    return {member.model_fields["kind"].default: member for member in get_args(get_args(family)[0])}


class Report(Protocol):
    """Receives progress: ``step`` of ``total`` is done, with the metrics known at that step."""

    def __call__(self, step: int, total: int, metrics: Mapping[str, float] | None = None) -> None: ...


def silent(step: int, total: int, metrics: Mapping[str, float] | None = None) -> None:
    """A report that goes nowhere."""
