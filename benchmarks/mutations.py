"""Do the tests notice? Small named mutations of the code, each applied to a copy of the tree with its tests run there.

``mutations.toml`` holds the list. Each result is kept in a file of its own, so that a second run repeats only mutations
whose file or tests have changed since, and a killed run loses at most one.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.harness import ROOT, Goal, Row, row, work_folder

LIST = Path(__file__).with_name("mutations.toml")
LEFT_OUT = (".git", ".venv", "work", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis")
SECONDS = 600  # a mutated program may hang; that is noticed too
QUICK = 5
NOTICED, SURVIVED = "noticed", "survived"
OUTCOMES = {0: SURVIVED, 1: NOTICED, 2: NOTICED}  # by pytest's exit code: passed, failed, could not be collected


@dataclass(frozen=True)
class Mutation:
    """One change of the code that some test must notice.

    Attributes
    ----------
    file : path below the root.
    old, new : the text that is replaced, which occurs exactly once, and its replacement.
    tests : files and node ids for pytest.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def mutated(self) -> str:
        """The source after the change. An old text that does not occur exactly once is an error."""
        source = (ROOT / self.file).read_text()
        if source.count(self.old) != 1:
            raise ValueError(
                f"{self.name!r}: {self.file} holds {self.old!r} {source.count(self.old)} times, expected 1"
            )
        return source.replace(self.old, self.new)

    @property
    def package(self) -> str:
        return "/".join(Path(self.file).parts[: 2 if self.file.startswith("xcore/") else 1])

    def test_files(self) -> list[Path]:
        return [ROOT / word.partition("::")[0] for word in self.tests]

    def digest(self) -> str:
        """Changes with the mutation, with the file that it changes, and with its tests."""
        parts = [
            self.old,
            self.new,
            *self.tests,
            *(path.read_text() for path in (ROOT / self.file, *self.test_files())),
        ]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def read_mutations() -> list[Mutation]:
    """The whole list, in its order."""
    targets = tomllib.loads(LIST.read_text())["target"]
    return [
        Mutation(name, target["file"], old, new, tuple(own or target["tests"]))
        for target in targets
        for name, old, new, *own in target["mutations"]
    ]


def run(quick: bool) -> Iterator[Row]:
    """One row per mutation, then how many survived in each package and in all."""
    mutations = read_mutations()[:QUICK] if quick else read_mutations()
    survivors: Counter[str] = Counter()
    for mutation in mutations:
        noticed = outcome(mutation) == NOTICED
        survivors[mutation.package] += not noticed
        yield row("mutations", mutation.file, mutation.name, noticed, "", goal=Goal(1, any_size=True))
    none = Goal(0, at_least=False, any_size=True)
    for package, n in Counter(mutation.package for mutation in mutations).items():
        yield row("mutations", f"{package}: {n}", "survivors", survivors[package], "", goal=none)
    yield row("mutations", f"all {len(mutations)}", "survivors", survivors.total(), "", goal=none)


def outcome(mutation: Mutation) -> str:
    """What is kept of an earlier run; else what a run with the mutation gives."""
    kept = work_folder("mutations") / mutation.digest()
    if not kept.exists():
        kept.write_text(_tried(mutation))
    return kept.read_text()


def _tried(mutation: Mutation) -> str:
    """Whether the tests fail with the mutation. What fails must pass without it, else its failing says nothing."""
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        copy = Path(folder) / ROOT.name
        # Times of files are copied too, so compiled kernels beside the code stay valid.
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*LEFT_OUT))
        (copy / mutation.file).write_text(mutation.mutated())
        for path in _stale_kernels(mutation, copy):
            path.unlink()
        found, failed = _run_tests(mutation.tests, copy)
    if found == NOTICED:
        _check_unmutated(failed)
    return found


@cache
def _check_unmutated(tests: tuple[str, ...]) -> None:
    if _run_tests(tests, ROOT)[0] != SURVIVED:
        raise RuntimeError(f"pytest {' '.join(tests)} fails without any mutation: mend it first")


def _run_tests(tests: tuple[str, ...], tree: Path) -> tuple[str, tuple[str, ...]]:
    """What became of the tests, and the first that failed; a run that takes too long has failed as a whole."""
    data = Path(os.environ.get("XC_DATA", ROOT.parent / "shared" / "data"))
    with tempfile.TemporaryDirectory(prefix="mutation-home-") as home:
        environment = os.environ | {"PYTHONPATH": str(tree), "XC_DATA": str(data), "EYRIE_HOME": home}
        words = [sys.executable, "-m", "pytest", "-x", "-q", "-rfE", "-p", "no:cacheprovider", *tests]
        try:
            done = subprocess.run(
                words, cwd=tree, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return NOTICED, tests
    if done.returncode not in OUTCOMES:
        raise RuntimeError(f"pytest {' '.join(tests)} ended with {done.returncode}: {done.stdout}{done.stderr}")
    failed = re.findall(r"^(?:FAILED|ERROR) (tests/[^\s\[]+)", done.stdout, re.MULTILINE)
    return OUTCOMES[done.returncode], tuple(failed) or tests


def _stale_kernels(mutation: Mutation, tree: Path) -> list[Path]:
    """Compiled kernels that may hold the old code: numba looks at a kernel's own file, not at what the kernel calls.

    A kernel may hold code and constants of other modules, so the mutated module and all that import it count, unless
    the module has no kernels and the mutation changes no top-level line.
    """
    source = (ROOT / mutation.file).read_text()
    line = source[: source.index(mutation.old)].rpartition("\n")[2] + mutation.old
    if "numba" not in source and re.match(r"[A-Z_]+ ?[:=]", line) is None:
        return []
    stale = _importers(mutation.file.removesuffix(".py").replace("/", "."))
    return [
        path
        for name in stale
        for path in (tree / name.replace(".", "/")).parent.glob(f"__pycache__/{name.rpartition('.')[2]}.*.nb?")
    ]


def _importers(module: str) -> set[str]:
    """The module, and all modules of the project that import it, directly or through others."""
    imports = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): _imported(path)
        for package in ("xcore", "benchmarks")
        for path in (ROOT / package).rglob("*.py")
    }
    found, new = {module}, {module}
    while new:
        new = {name for name, imported in imports.items() if imported & new} - found
        found |= new
    return found


def _imported(path: Path) -> set[str]:
    """Names of modules, and of what is taken from them, that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names
