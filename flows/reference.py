"""Every option of every flow, read from the schemas: for `eyrie options`, for docs/reference.md and for messages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any

from flows.catalogue import FLOWS
from xcore.components import Component
from xcore.errors import ConfigError

Schema = dict[str, Any]
COLUMNS = ("option", "values", "default", "what it does")
PREFIX = "#/$defs/"
BOUNDS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}


@dataclass(frozen=True)
class Place:
    """A place in a tree of options: a group of options, a choice between kinds, or a single option."""

    schema: Schema
    definitions: dict[str, Schema]

    @classmethod
    @cache  # pydantic takes half a second for the pipeline's, and a message asks for every wrong name
    def of(cls, params: type[Component]) -> Place:
        """The parameters of a flow."""
        schema = params.model_json_schema()
        return cls(schema, schema.get("$defs", {}))

    @property
    def description(self) -> str:
        return str(self.schema.get("description", "")).split("\n\n")[0].replace("\n", " ")

    @property
    def alternatives(self) -> list[Place]:
        """Itself, or the members of its union; what a reference stands for."""
        return [Place(one, self.definitions) for one in _alternatives(self.schema, self.definitions)]

    @property
    def kinds(self) -> dict[str, Place]:
        """The members of a family, by kind."""
        return {kind: place for place in self.alternatives if (kind := _kind(place.schema))}

    @property
    def children(self) -> dict[str, Place]:
        """The options in this place, or the kinds that it can have."""
        alternatives = self.alternatives
        if self.kinds and "properties" not in self.schema:
            return self.kinds
        groups = [place for place in alternatives if "properties" in place.schema]
        found = {name: value for place in groups for name, value in place.schema["properties"].items()}
        return {name: Place(value, self.definitions) for name, value in found.items()}

    def rows(self) -> Iterator[tuple[str, str, str, str]]:
        """Name, values, default and description of each option."""
        required = self.schema.get("required", ())
        for name, option in self.schema.get("properties", {}).items():
            if name != "kind":
                default = "required" if name in required else _default(option.get("default"))
                yield name, _values(option, self.definitions), default, Place(option, {}).description


def _alternatives(schema: Schema, definitions: dict[str, Schema]) -> Iterator[Schema]:
    if "$ref" in schema:
        yield from _alternatives(definitions[schema["$ref"].removeprefix(PREFIX)], definitions)
    elif "items" in schema and isinstance(schema["items"], dict):
        yield from _alternatives(schema["items"], definitions)
    elif members := (*schema.get("oneOf", ()), *schema.get("anyOf", ())):
        for member in members:
            yield from _alternatives(member, definitions)
    else:
        yield schema


def _kind(schema: Schema) -> str | None:
    kind = schema.get("properties", {}).get("kind", {}).get("const")
    return str(kind) if kind else None


def _values(option: Schema, definitions: dict[str, Schema]) -> str:
    """What an option can be, in words."""
    if "items" in option and option.get("type") == "array":
        items = option["items"]
        return f"list of {_values(items, definitions)}" if items else "list"
    words = [_value(one) for one in _alternatives(option, definitions)]
    return ", ".join(dict.fromkeys(words)) if all("kind " in word for word in words) else " or ".join(words)


def _value(schema: Schema) -> str:
    if kind := _kind(schema):
        return f"kind {kind}"
    if "properties" in schema:
        return f"options {', '.join(schema['properties'])}"
    if "enum" in schema:
        return " or ".join(map(str, schema["enum"]))
    bounds = " and ".join(f"{sign} {schema[name]:g}" for name, sign in BOUNDS.items() if name in schema)
    names = {"null": "empty", "string": "text", "object": "mapping", "boolean": "true or false", "array": "list"}
    kind = str(schema.get("format") or schema.get("type") or "any value")
    return f"{names.get(kind, kind)} {bounds}".rstrip()


def _default(value: Any) -> str:
    if isinstance(value, dict):
        return str(value.get("kind", "see its options"))
    return "empty" if value in (None, [], {}, "") else json.dumps(value)


def find_place(path: str) -> Place:
    """The place of a dotted path such as ``model.parabel``; a flow's name may come first.

    Raises
    ------
    ConfigError
        There is no such place. The message tells what there is.
    """
    first, *rest = path.split(".")
    if first in FLOWS:
        place = Place.of(FLOWS[first].params)
    else:
        flows = [Place.of(entry.params) for entry in FLOWS.values()]
        place = next((flow for flow in flows if first in flow.children), flows[0])
        rest.insert(0, first)
    for depth, name in enumerate(rest):
        children = place.children
        if name not in children:
            known = children or (FLOWS if depth == 0 else {})
            where = ".".join(rest[:depth]) or "the parameters"
            likely = did_you_mean(name, known) or "."
            raise ConfigError(f"{where}: there is no {name!r}{likely} There is: {', '.join(known)}")
        place = children[name]
    alternatives = place.alternatives
    return alternatives[0] if len(alternatives) == 1 else place


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`, did you mean 'x'?` if a known name is like it."""
    close = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def names_at(params: type[Component], place: Sequence[str | int]) -> list[str]:
    """Names of the options in the place that an error of pydantic gives; none if it cannot be found."""
    found = Place.of(params)
    for name in place:
        if not isinstance(name, int):
            children = found.children
            if name not in children:
                return []
            found = children[name]
    return list(found.children)


def reference_markdown() -> str:
    """The whole of docs/reference.md."""
    parts = [
        "# Reference of all options",
        "After reading this page you know every option of every flow. `eyrie options model.parabel` prints a part\n"
        "of it. This page is made from the schemas: `eyrie options --markdown > docs/reference.md`.",
    ]
    definitions: dict[str, Schema] = {}
    for name, entry in FLOWS.items():
        place = Place.of(entry.params)
        definitions |= place.definitions
        parts += [f"## Flow `{name}`", _table(place)]
    parts.append("## Components and groups of options")
    for title, schema in sorted(definitions.items(), key=lambda item: (_kind(item[1]) is None, item[0])):
        place = Place(schema, definitions)
        kind = _kind(schema)
        parts += [f"### {f'`{kind}` ({title})' if kind else title}", place.description]
        parts.append(_table(place) if any(place.rows()) else "It has no options.")
    return "\n\n".join(parts) + "\n"


def _table(place: Place) -> str:
    lines = [COLUMNS, ["---"] * len(COLUMNS), *place.rows()]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)
