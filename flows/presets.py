"""Presets: parameters of a flow in a YAML file, with overrides from the command line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from flows.params import AS_WRITTEN
from flows.preset_paths import paths_from
from flows.reference import did_you_mean, names_at
from flows.strict_yaml import DEEPEST, NotYaml, check_texts, read_yaml
from xcore.components import Component
from xcore.data.readers.cells import shown
from xcore.data.readers.numerals import whole
from xcore.errors import ConfigError
from xcore.files import problem_with_file, shown_path

P = TypeVar("P", bound=Component)

LARGEST_PRESET = 1 << 20  # bytes; the YAML parser takes seconds for that much
MOST_PROBLEMS = 20  # in one message

_PUNCTUATION = re.compile(r"""[^\w\[\]{}"'~]+""")  # such as the delimiters , | # - and a tab, which is blank to YAML


def load_params(
    schema: type[P], preset: Path | None, overrides: Iterable[str] = (), written_for: type[Component] | None = None
) -> P:
    """Parameters from a preset and from ``path=value`` overrides, checked against the flow's schema.

    A preset may be written for another flow that takes more: what only that one takes is left out. Relative paths of
    the preset count from its folder, those of overrides from the current one.
    """
    tree, overrides = _read_for(schema, preset, written_for) if preset else {}, list(overrides)
    for override in overrides:
        _override(tree, override)
    try:
        params = _checked(schema, tree, overrides)
        return paths_from(preset.parent, params, [one.partition("=")[0] for one in overrides]) if preset else params
    except ValidationError as error:
        raise ConfigError(_explain(schema, error, f"{preset} (with --set)" if preset else "the parameters")) from None


def preset_as_written(
    schema: type[Component], preset: Path, written_for: type[Component] | None = None
) -> dict[str, Any]:
    """A preset's parameters and all defaults, in the form that the schema describes; variables stay as written.

    Prefect's form finds the kind of a component by its fields, so none is left out.
    """
    return params_as_written(schema, _read_for(schema, preset, written_for), str(preset), preset.parent)


def params_as_written(
    schema: type[Component], tree: dict[str, Any], where: str, folder: Path | None = None
) -> dict[str, Any]:
    """The same for parameters that were read from the file `where`; relative paths count from `folder`, if any."""
    try:
        params = schema.model_validate(tree, context=AS_WRITTEN)
        return (paths_from(folder, params) if folder else params).model_dump(mode="json")
    except ValidationError as error:
        raise ConfigError(_explain(schema, error, where)) from None


def _read_for(schema: type[Component], preset: Path, written_for: type[Component] | None) -> dict[str, Any]:
    tree = read_preset(preset)
    others = written_for.model_fields.keys() - schema.model_fields.keys() if written_for else set()
    return {name: value for name, value in tree.items() if name not in others}


def read_preset(preset: Path) -> dict[str, Any]:
    """What is written in a preset, unchecked."""
    expected = "expected a YAML file such as those in deployments/presets"
    if problem := problem_with_file(preset):
        missing = problem == "no file at this path"
        raise ConfigError(f"preset {'not found' if missing else f'is {problem}'}: {shown_path(preset)}; {expected}")
    if preset.stat().st_size > LARGEST_PRESET:
        raise ConfigError(f"preset too large: {preset} has more than {LARGEST_PRESET:,} bytes; {expected}")
    try:
        tree = read_yaml(preset.read_text(encoding="utf8"))
    except (NotYaml, UnicodeDecodeError) as error:
        raise ConfigError(f"{preset} is not YAML: {error}") from None
    except ConfigError as error:
        raise ConfigError(f"{preset}: {error}") from None
    if not isinstance(tree, dict):
        raise ConfigError(f"{preset} holds {type(tree).__name__}, expected a mapping of parameter names to values")
    return tree


def _override(tree: dict[str, Any], override: str) -> None:
    path, separator, text = override.partition("=")
    names = path.split(".")
    if not separator or not all(names) or len(names) > DEEPEST:
        raise ConfigError(f"--set got {shown(override)}, expected path=value, such as model.kind=ova")
    if not text:
        raise ConfigError(
            f"--set {_short(override)}: no value, expected one after '='; null is none, '\"\"' an empty text"
        )
    try:
        check_texts(override)
        set_value(tree, path, _value(text))
    except ConfigError as error:
        raise ConfigError(f"--set {_short(override)}: {error}") from None


def _checked(schema: type[P], tree: dict[str, Any], overrides: Iterable[str]) -> P:
    """The tree as parameters. An override that looks like a number, as an id may, is a text where one is expected."""
    try:
        return schema.model_validate(tree)
    except ValidationError as error:
        wrong = [problem["loc"] for problem in error.errors() if _is_number_for_text(problem)]
        pairs = [(path, text) for path, _, text in (one.partition("=") for one in overrides)]
        texts = [(path, text) for path, text in pairs if any(_leads_to(path, place) for place in wrong)]
        if not texts:
            raise
        for path, text in texts:
            set_value(tree, path, text)
        return schema.model_validate(tree)


def _is_number_for_text(problem: Any) -> bool:
    return problem["type"] == "string_type" and isinstance(problem["input"], int | float)


def _leads_to(path: str, place: Sequence[str | int]) -> bool:
    """Whether a dotted path means the place of an error, which also names kinds."""
    names, parts = path.split("."), [str(part) for part in place]
    rest = iter(parts)
    return names[-1] == parts[-1] and all(name in rest for name in names)


def set_value(tree: dict[str, Any], path: str, value: Any) -> None:
    """Set one parameter of a tree by its dotted path; another `kind` drops the options of the old one."""
    *parents, last = path.split(".")
    node: Any = tree
    for depth, name in enumerate(parents):
        key = _key(node, name)
        if isinstance(node, dict) and node.get(key) is None:
            node[key] = {}
        node = node[key]
        if not isinstance(node, dict | list):
            place = ".".join(parents[: depth + 1])
            raise ConfigError(f"{place} is {shown(node)}, expected a group of parameters")
    if isinstance(node, dict) and last == "kind" and node.get("kind") != value:
        node.clear()  # options of another kind would not fit
    node[_key(node, last)] = value


def _key(node: Any, name: str) -> str | int:
    """What `name` stands for in a group of parameters or in a list."""
    if isinstance(node, dict):
        return name
    number = whole(name)
    if number is None or number >= len(node):
        items = f"items 0 to {len(node) - 1}" if node else "no items"
        raise ConfigError(f"{shown(name)} is not an item of the list, which has {items}")
    return number


def _value(text: str) -> Any:
    """A value as YAML reads it; what is no YAML, or only punctuation that YAML would take for its own, is text."""
    if _PUNCTUATION.fullmatch(text):
        return text
    try:
        return read_yaml(text)
    except NotYaml:
        return text


def _short(text: str) -> str:
    """A text in a message, on one line and readable everywhere."""
    return ascii(text)[1:-1][:100] if not text.isprintable() or len(text) > 100 else text


def _explain(schema: type[Component], error: ValidationError, where: str) -> str:
    """One line for each problem: where, what is wrong, what was got, and what may have been meant."""
    lines, problems = [], error.errors()
    around = {problem["loc"][:depth] for problem in problems for depth in range(len(problem["loc"]))}
    own = [problem for problem in problems if problem["loc"] not in around]  # a list of wrong items says nothing new
    for problem in own[:MOST_PROBLEMS]:
        place = ".".join(str(part) for part in problem["loc"])
        lines.append(f"{place}: {_told(schema, problem)}" if place else _told(schema, problem))
    if len(own) > MOST_PROBLEMS:
        lines.append(f"and {len(own) - MOST_PROBLEMS:,} more")
    return "\n  ".join([f"{where} cannot be used:", *lines])


def _told(schema: type[Component], problem: Any) -> str:
    """What is wrong, what was got, and what may have been meant."""
    kind, said, loc, got = problem["type"], str(problem["msg"]), problem["loc"], f", got {str(problem['input'])[:80]!r}"
    if kind == "missing":
        return said
    if kind == "value_error":  # our own, which names what it got where that helps
        is_told = "got " in said or isinstance(problem["input"], dict | list)
        return said.removeprefix("Value error, ") + ("" if is_told else got)
    if kind == "extra_forbidden":
        return said + _instead(str(loc[-1]), "Options", names_at(schema, loc[:-1]))
    if kind == "union_tag_invalid":
        tag, known = problem["ctx"]["tag"], problem["ctx"]["expected_tags"].replace("'", "").split(", ")
        return f"there is no kind {tag[:80]!r}" + _instead(tag, "Kinds", known)
    if kind == "union_tag_not_found":
        return f"no kind is given{got}" + _instead("", "Kinds", names_at(schema, loc))
    return said + got + (". Write it in quotes" if _is_number_for_text(problem) else "")


def _instead(wrong: str, what: str, names: Iterable[str]) -> str:
    """The likeliest of the names that there are, and all of them."""
    return f"{did_you_mean(wrong, names) or '.'} {what} here: {', '.join(names)}" if names else ""
