"""Content ids: the same ingredients and the same code give the same id, on any machine."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import threading
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

ID_LENGTH = 16
HASHED_PACKAGES = ("xcore", "tasks")
# How results are kept and how errors are worded do not change what is computed: kinds have a schema version for that.
PLUMBING = ("xcore.artifacts", "xcore.errors", "xcore.components", "xcore.files", "xcore.names")
# A module of this name is the door to a family: it imports every member, and a step uses only some of them. The step's
# options name those, so the door is neither hashed nor followed, and a new member changes nobody's id.
FAMILY = "family"
PARSING_ATTEMPTS = 5

_parsing = threading.Lock()


def content_id(ingredients: Any) -> str:
    """The first 16 hex digits of the sha256 of plain JSON values."""
    return json_sha256(ingredients)[:ID_LENGTH]


def json_sha256(value: Any) -> str:
    """sha256 of plain JSON values, whatever the order of names; NaN and infinity are a `ValueError`."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def artifact_id(
    kind: str,
    schema_version: int,
    inputs: Mapping[str, str],
    contents: Mapping[str, str],
    options: Mapping[str, Any],
    seed: int,
    code: Mapping[str, str],
) -> str:
    """The id of an artifact: a recipe computes it before the artifact exists, a manifest states enough to do it again.

    Parameters
    ----------
    kind, schema_version : what is made.
    inputs : mapping of role to id.
    contents : mapping of the path of each source file to the sha256 of its bytes; the paths do not count.
    options : plain JSON values; the path of a source file counts as its content.
    seed : int
    code : mapping of module to digest, see `code_digests`.
    """
    return content_id(
        {
            "kind": kind,
            "schema": schema_version,
            "inputs": dict(inputs),
            "sources": sorted(contents.values()),
            "options": _with_contents(options, contents),
            "seed": seed,
            "code": dict(code),
        }
    )


def _with_contents(value: Any, contents: Mapping[str, str]) -> Any:
    """Plain options with every path of a source file replaced by what the file holds."""
    if isinstance(value, str):
        return contents.get(value, value)
    if isinstance(value, Mapping):
        return {name: _with_contents(item, contents) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_contents(item, contents) for item in value]
    return value


def file_sha256(path: Path) -> str:
    """sha256 of a file's bytes, read in blocks."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def code_digests(roots: Iterable[str]) -> dict[str, str]:
    """Digests of the modules in `roots` and of all that they import, directly or not, within our packages.

    Imports are read from the source, wherever they stand, so the answer does not depend on what else the process
    has loaded: editing one model leaves the ids of all the others alone. Modules named `family` are not followed.
    Comments, docstrings and layout do not count.
    """
    found: dict[str, str] = {}
    waiting = [name for name in roots if _is_hashed(name)]
    while waiting:
        name = waiting.pop()
        if name not in found:
            digest, imported = _read_module(name)
            found[name] = digest
            waiting.extend(imported)
    return dict(sorted(found.items()))


def _is_hashed(name: str) -> bool:
    parts = name.split(".")
    is_plumbing = any(name == plumbing or name.startswith(plumbing + ".") for plumbing in PLUMBING)
    return parts[0] in HASHED_PACKAGES and parts[-1] != FAMILY and not is_plumbing


@cache
def _read_module(name: str) -> tuple[str, tuple[str, ...]]:
    path = _source_of(name)
    if path is None:
        raise ModuleNotFoundError(f"no source file for module {name}")
    tree = _parse(path)
    imported = tuple(sorted({target for target in _imports(tree) if _is_hashed(target)}))
    return hashlib.sha256(ast.dump(_without_docstrings(tree)).encode()).hexdigest()[:ID_LENGTH], imported


def _parse(path: Path) -> ast.Module:
    """The syntax tree of a file.

    CPython 3.11 counts the depth of all trees under construction together. It raises `SystemError` where two threads
    build one at a time, so ours take turns. A library may parse in yet another thread; then we try again.
    """
    source = path.read_bytes()
    for _ in range(PARSING_ATTEMPTS - 1):
        try:
            with _parsing:
                return ast.parse(source, filename=str(path))
        except SystemError:
            continue
    with _parsing:
        return ast.parse(source, filename=str(path))


def _imports(tree: ast.AST) -> Iterable[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield submodule if _is_hashed(node.module) and _source_of(submodule) else node.module


@cache
def _source_of(name: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:  # the parent is a module, not a package: `name` is one of its attributes
        return None
    return Path(spec.origin) if spec and spec.origin else None


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                node.body = node.body[1:]
    return tree
