"""A step before it is run: what it makes, of what, and how. Its id is known without running anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xcore.artifacts.identity import artifact_id, code_digests, file_sha256
from xcore.artifacts.lineage import inputs_first
from xcore.artifacts.manifest import ArtifactRef, FileRecord
from xcore.artifacts.schemas import schema_of
from xcore.components import Component, Report, components_in
from xcore.errors import ArtifactMissing, ConfigError
from xcore.files import problem_with_file, shown_path

if TYPE_CHECKING:
    from xcore.artifacts.store import Artifact


@dataclass(frozen=True)
class BuildContext:
    """What a build function gets: opened inputs, options, a seeded generator, and an empty folder to fill.

    `scratch` is a folder that outlives a build that is killed: what the next build of the same artifact finds there it
    need not make again. It may not exist yet, and another process may use or clear it at the same time.
    """

    inputs: Mapping[str, Artifact]
    options: Any
    rng: np.random.Generator
    report: Report
    directory: Path
    scratch: Path


Build = Callable[[BuildContext], Mapping[str, Any]]


@dataclass(frozen=True)
class Recipe:
    """How to make one artifact.

    Parameters
    ----------
    kind : str
        Kind of the artifact made; one of `xcore.artifacts.schemas.KINDS`.
    build : callable
        A module-level function that fills ``context.directory`` and returns the counts for the manifest.
    options : Component
        All parameters of the step. Components inside it count as code that the step uses.
    inputs : mapping of role to Recipe
        The artifacts it is made of.
    sources : paths
        Files from outside, named by their content; a path among the options does not enter the id.
    seed : int
    title : str
        What people call the step, where the build function's name does not tell; it does not enter the id.
    """

    kind: str
    build: Build
    options: Component
    inputs: Mapping[str, Recipe] = field(default_factory=dict)
    sources: tuple[Path, ...] = ()
    seed: int = 0
    title: str = ""

    @property
    def name(self) -> str:
        """What people call the step: its title, or else the build function's name in words."""
        return self.title or self.build.__name__.replace("_", " ")

    @cached_property
    def id(self) -> str:
        # Inputs first, without recursion: a long chain of steps would exceed the interpreter's limit.
        for step in inputs_first(self, _without_id, id):
            if step is not self:
                _ = step.id
        return artifact_id(
            self.kind,
            schema_of(self.kind).version,
            {role: recipe.id for role, recipe in self.inputs.items()},
            {path: record.sha256 for path, record in self.source_records.items()},
            self.options.options(),
            self.seed,
            self.code,
        )

    @property
    def ref(self) -> ArtifactRef:
        return ArtifactRef(kind=self.kind, id=self.id)

    @cached_property
    def code(self) -> dict[str, str]:
        """Digests of the modules that the step is made of: the build function's, its components', and their imports."""
        return code_digests({self.build.__module__, *_modules_of(self.options)})

    @cached_property
    def source_records(self) -> dict[str, FileRecord]:
        problems = [(path, problem) for path in self.sources if (problem := problem_with_file(path))]
        if problems:
            path, problem = problems[0]
            what = "input file not found" if problem == "no file at this path" else f"input file is {problem}"
            raise ConfigError(
                f"{what}: {shown_path(path)}"
                + (f" (and {len(problems) - 1} more)" if len(problems) > 1 else "")
                + f"; expected a readable file, relative paths count from {Path.cwd()}"
            )
        return {str(path): FileRecord(sha256=file_sha256(path), n_bytes=path.stat().st_size) for path in self.sources}

    def rng(self) -> np.random.Generator:
        """The step's own generator: it depends on the seed and the kind, so that other options see the same draws."""
        return np.random.default_rng([self.seed, *self.kind.encode()])

    def lineage(self) -> Iterator[Recipe]:
        """This recipe and all it is made of, inputs before what uses them, each once."""
        seen: set[str] = set()
        # Recipes are told apart as objects here: equal ones may have been planned twice, and are found out by their id.
        for recipe in inputs_first(self, lambda step: step.inputs.values(), id):
            if recipe.id not in seen:
                seen.add(recipe.id)
                yield recipe


@dataclass(frozen=True)
class KeptArtifact(Recipe):
    """An artifact that is in the store already, as an input for new steps; it cannot be made again from here."""

    kept_id: str = ""

    @cached_property
    def id(self) -> str:
        return self.kept_id

    @classmethod
    def of(cls, ref: ArtifactRef) -> KeptArtifact:
        return cls(ref.kind, _cannot_build, Component(), kept_id=ref.id)


def _cannot_build(context: BuildContext) -> Mapping[str, Any]:
    raise ArtifactMissing("an artifact was named by its id but is missing or damaged: run the flow that makes it")


def _without_id(recipe: Recipe) -> Iterable[Recipe]:
    """The inputs that have no computed id yet."""
    return (source for source in recipe.inputs.values() if "id" not in vars(source))


def _modules_of(value: Any) -> Iterable[str]:
    """The modules of all components in a tree of options."""
    for component in components_in(value):
        yield type(component).__module__
        yield from component.used_modules()
