"""What all components share: a frozen, bounded, self-describing set of options, and a way to report progress."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, get_args

from pydantic import BaseModel, ConfigDict


def title_of(name: str) -> str:
    """What a form calls a field that has no title of its own: ``n_labels`` is the number of labels."""
    words = name.replace("_", " ")
    return f"Number of {words[2:]}" if words.startswith("n ") else words.capitalize()


class Component(BaseModel):
    """Base of every exchangeable part (reader, featuriser, grouper, imputer, model) and of every option group.

    The fields *are* the parameters: the Prefect form, the YAML preset, the API and the code share this one schema.
    A subclass that belongs to a family has a ``kind`` literal, by which the family's union finds it.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, field_title_generator=lambda name, _: title_of(name)
    )

    def options(self) -> dict[str, Any]:
        """All fields as plain JSON values, in a form that names the component's result."""
        return self.model_dump(mode="json")

    def used_modules(self) -> Iterable[str]:
        """Names of modules that these options choose, beside the component's own: they count as code of the step."""
        return ()


def label_of(component: Component) -> str:
    """A short label of a component: its kind, and the options that differ from their defaults."""
    options = component.options()
    given = {
        name: options[name]
        for name, field in type(component).model_fields.items()
        if name != "kind"
        and getattr(component, name) != field.get_default(call_default_factory=True, validated_data={})
    }
    words = ", ".join(f"{name}={value}" for name, value in given.items())
    return f"{options['kind']}({words})" if words else str(options["kind"])


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
