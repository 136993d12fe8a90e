"""The parameter schema of a flow in the dialect of Prefect's run form, where each kind of a component has a tab.

The form shows `anyOf` as tabs, and `oneOf` with a discriminator as a bare JSON box. It does not know discriminators: it
opens the first tab that has most of a value's fields. So members with the same fields share a tab and have a dropdown
for `kind`, and a member comes before those that have all of its fields and more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

Schema = dict[str, Any]
PREFIX = "#/definitions/"
_CAPITAL = re.compile(r"(?<=[a-z])[A-Z]")
FIRST = -1  # of the positions, which are 0 where nothing is said


@cache  # many deployments are of one flow
def form_schema(flow: Any) -> Schema:
    """The schema of a flow's parameters, with a tab for each kind. It accepts the same values."""
    schema: Schema = flow.parameters.model_dump_for_openapi()
    definitions: dict[str, Schema] = {name: _named(one) for name, one in schema["definitions"].items()}
    shared: dict[str, Schema] = {}
    tabbed: Schema = _with_tabs(schema | {"definitions": definitions}, definitions, shared)
    tabbed["definitions"] |= shared
    return tabbed


def title_of_kind(kind: str) -> str:
    """What the tab of a kind is called."""
    return kind.replace("-", " ").capitalize()


def _named(definition: Schema) -> Schema:
    """A readable title. A component that has a kind must state it: without, nothing tells the members apart."""
    kind = definition.get("properties", {}).get("kind", {}).get("const")
    if kind is None:
        return definition | {"title": _CAPITAL.sub(lambda match: f" {match[0].lower()}", definition["title"])}
    required = ["kind", *(name for name in definition.get("required", ()) if name != "kind")]
    properties = definition["properties"] | {"kind": definition["properties"]["kind"] | {"position": FIRST}}
    return definition | {"title": title_of_kind(kind), "required": required, "properties": properties}


def _with_tabs(node: Any, definitions: Mapping[str, Schema], shared: dict[str, Schema]) -> Any:
    if isinstance(node, list):
        return [_with_tabs(item, definitions, shared) for item in node]
    if not isinstance(node, dict):
        return node
    members = list(_members(node))
    if "oneOf" in node or any("oneOf" in member for member in node.get("anyOf", ())):
        others = {name: value for name, value in node.items() if name not in ("oneOf", "anyOf", "discriminator")}
        return others | {"anyOf": _tabs(members, definitions, shared)}
    return {name: _with_tabs(value, definitions, shared) for name, value in node.items()}


def _members(node: Schema) -> Iterator[Schema]:
    """The alternatives of a union; those of a union within it are among them."""
    for member in (*node.get("oneOf", ()), *node.get("anyOf", ())):
        yield from _members(member) if "oneOf" in member or "anyOf" in member else (member,)


def _tabs(members: list[Schema], definitions: Mapping[str, Schema], shared: dict[str, Schema]) -> list[Schema]:
    same_fields: dict[frozenset[str], list[str]] = {}
    others = []
    for member in members:
        if "$ref" in member:
            name = member["$ref"].removeprefix(PREFIX)
            same_fields.setdefault(frozenset(definitions[name]["properties"]), []).append(name)
        else:
            others.append(member)
    ordered: list[frozenset[str]] = []
    for fields in same_fields:
        place = next((i for i, other in enumerate(ordered) if fields < other), len(ordered))
        ordered.insert(place, fields)
    names = [_shared_tab(same_fields[fields], definitions, shared) for fields in ordered]
    return [*({"$ref": f"{PREFIX}{name}"} for name in names), *others]


def _shared_tab(names: list[str], definitions: Mapping[str, Schema], shared: dict[str, Schema]) -> str:
    """The definition that several members with the same fields have in common; where there is one, its own."""
    first, *others = (definitions[name] for name in names)
    if not others:
        return names[0]
    kinds = [definitions[name]["properties"]["kind"]["const"] for name in names]
    kind = {"title": "Kind", "type": "string", "enum": kinds, "default": kinds[0], "position": FIRST}
    title = " or ".join(title_of_kind(kind) for kind in kinds)
    described = " ".join(f"{kind}: {definitions[name]['description']}" for kind, name in zip(kinds, names, strict=True))
    joined = first | {"title": title, "description": described}
    joined["properties"] = first["properties"] | {"kind": kind}
    name = "Or".join(names)
    shared[name] = _with_tabs(joined, definitions, shared)
    return name
