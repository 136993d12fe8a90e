"""YAML of parameters, read so that nothing is lost and nothing grows: no repeated keys, no bombs of anchors."""

from __future__ import annotations

from typing import Any

import yaml

from xcore.errors import ConfigError

MOST_NODES = 100_000  # after anchors are written out
DEEPEST = 50


class NotYaml(ConfigError):
    """A text that is not YAML, rather than YAML that is not allowed."""


def read_yaml(text: str) -> Any:
    """The value of a YAML text; `ConfigError` where a key stands twice, or where it is too deep or too large."""
    try:
        loader = yaml.SafeLoader(text)
        try:
            root = loader.get_single_node()
            if root is None:
                return None
            _measure(root, {}, 1)
            value = loader.construct_document(root)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise NotYaml(str(error)) from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:  # such as a day that no month has, or a number of 5,000 digits
        raise ConfigError(f"a value cannot be read: {error}") from None
    check_texts(value)
    return value


def _measure(node: yaml.Node, sizes: dict[int, int], depth: int) -> int:
    """How many nodes there are below this one when anchors are written out; a shared node is visited once."""
    if depth > DEEPEST:  # also where an anchor is inside itself
        raise _too_deep()
    known = sizes.get(id(node))
    if known is not None:
        return known
    size = 1
    if isinstance(node, yaml.MappingNode):
        _check_keys(node)
        size += sum(_measure(part, sizes, depth + 1) for pair in node.value for part in pair)
    elif isinstance(node, yaml.SequenceNode):
        size += sum(_measure(part, sizes, depth + 1) for part in node.value)
    if size > MOST_NODES:
        raise ConfigError(f"more than {MOST_NODES:,} values once anchors are written out; write the values as they are")
    sizes[id(node)] = size
    return size


def _check_keys(node: yaml.MappingNode) -> None:
    seen: set[tuple[str, str]] = set()
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode):
            if (key.tag, key.value) in seen:
                line = key.start_mark.line + 1
                raise ConfigError(f"line {line}: the key {key.value[:60]!r} stands twice; keep one of them")
            seen.add((key.tag, key.value))


def check_texts(value: Any) -> None:
    """Refuse texts that cannot be written to a file."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            found = ascii(error.object[error.start])
            raise ConfigError(f"a text has {found}, a half of a character; expected whole Unicode characters") from None
        if "\0" in value:
            raise ConfigError("a text has the character NUL; expected a text without it")
    elif isinstance(value, dict):
        for key, item in value.items():
            check_texts(key)
            check_texts(item)
    elif isinstance(value, list | tuple | set):
        for item in value:
            check_texts(item)


def _too_deep() -> ConfigError:
    return ConfigError(f"values inside values without end; expected at most {DEEPEST} levels")
