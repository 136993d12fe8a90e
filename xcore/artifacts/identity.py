"""Content ids: the same ingredients and the same code give the same id, on any machine."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

ID_LENGTH = 16
HASHED_PACKAGES = ("xcore", "tasks")
# How results are kept and how errors are worded do not change what is computed: kinds have a schema version for that.
PLUMBING = ("xcore.artifacts", "xcore.errors", "xcore.components")


def content_id(ingredients: Any) -> str:
    """The first 16 hex digits of the sha256 of plain JSON values."""
    text = json.dumps(ingredients, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:ID_LENGTH]


def file_sha256(path: Path) -> str:
    """sha256 of a file's bytes, read in blocks."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def code_digests(roots: Iterable[str]) -> dict[str, str]:
    """Digests of the modules in `roots` and of all that they import, directly or not, within our packages.

    Imports are read from the source, wherever they stand, so the answer does not depend on what else the process
    has loaded: editing one model leaves the ids of all the others alone. Comments, docstrings and layout do not count.
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
    return name.split(".", maxsplit=1)[0] in HASHED_PACKAGES and not any(
        name == plumbing or name.startswith(plumbing + ".") for plumbing in PLUMBING
    )


@cache
def _read_module(name: str) -> tuple[str, tuple[str, ...]]:
    path = _source_of(name)
    if path is None:
        raise ModuleNotFoundError(f"no source file for module {name}")
    tree = ast.parse(path.read_bytes(), filename=str(path))
    imported = tuple(sorted({target for target in _imports(tree) if _is_hashed(target)}))
    return hashlib.sha256(ast.dump(_without_docstrings(tree)).encode()).hexdigest()[:ID_LENGTH], imported


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
