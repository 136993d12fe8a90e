"""What was run: the steps with their options, what they cost, and what was made of what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from xcore.artifacts import Artifact, Manifest
from xcore.artifacts.naming import step_names
from xcore.components import flatten
from xcore.data.dataset import Dataset
from xcore.errors import ConfigError
from xcore.report.charts import meter
from xcore.report.html import Child, Html, element, facts, folded, foreign, note, section, table
from xcore.report.wording import MOST_ITEMS, count, n_bytes, plain, seconds, shorten

NEEDED = ("dataset", "model", "predictions", "evaluation")
COMMIT_DIGITS = 12


class Run:
    """The artifacts that led to an evaluation, by kind; of several of one kind, the one nearest to the evaluation.

    Parameters
    ----------
    lineage : sequence of Artifact
        Inputs first, the evaluation last.
    """

    def __init__(self, lineage: Sequence[Artifact]) -> None:
        self.lineage = list(lineage)
        self.names = step_names(self.manifests) if lineage else {}
        by_id = {artifact.ref.id: artifact for artifact in lineage}
        self._by_kind: dict[str, Artifact] = {}
        for step_id in self.names:  # steps of one kind come nearest first
            self._by_kind.setdefault(by_id[step_id].ref.kind, by_id[step_id])
        missing = [kind for kind in NEEDED if kind not in self._by_kind]
        if missing:
            raise ConfigError(
                f"a report needs the artifacts {', '.join(NEEDED)}, got {', '.join(self._by_kind) or 'none'} "
                f"(no {', '.join(missing)}): give the whole lineage of an evaluation"
            )
        self.dataset = Dataset(self["dataset"].directory)

    def __getitem__(self, kind: str) -> Artifact:
        return self._by_kind[kind]

    def get(self, kind: str) -> Artifact | None:
        return self._by_kind.get(kind)

    def counts(self, kind: str) -> Mapping[str, Any]:
        """What a step counted; nothing where there is no such step."""
        artifact = self.get(kind)
        return artifact.manifest.counts if artifact else {}

    def options(self, kind: str) -> Mapping[str, Any]:
        artifact = self.get(kind)
        return artifact.manifest.options if artifact else {}

    def title(self, manifest: Manifest) -> str:
        """What people call a step; where others are called the same, with the name that it has among them."""
        same = sum(other.component == manifest.component for other in self.manifests)
        return manifest.component if same == 1 else f"{manifest.component} ({self.names[manifest.id]})"

    @property
    def manifests(self) -> list[Manifest]:
        return [artifact.manifest for artifact in self.lineage]

    @property
    def split(self) -> Any:
        """The split that was measured."""
        return self.options("evaluation")["split"]

    @property
    def data_name(self) -> str:
        """What people would call the data: the folder of its first file, or the kind of its reader."""
        first = next(iter(self["dataset"].manifest.sources), None)
        if first is None:
            return str(self.options("dataset").get("reader", {}).get("kind", "dataset"))
        path = PurePath(first)
        return path.parent.name or path.stem

    @property
    def model_name(self) -> str:
        return str(self.options("model").get("kind", "model"))


def options_section(run: Run) -> Html:
    """The steps with all their options, the source files, and the environment."""
    return section(
        "run",
        "What was run",
        facts(_environment(run.manifests)),
        element("h3", "Options of each step"),
        [_step(run.title(manifest), manifest, run.manifests[:place]) for place, manifest in enumerate(run.manifests)],
        _sources(run["dataset"].manifest),
    )


def cost_section(run: Run) -> Html:
    """Seconds, peak memory and bytes of each step, with a bar each."""
    manifests = run.manifests
    most = {
        "seconds": max(manifest.seconds for manifest in manifests),
        "memory": max(manifest.peak_memory_bytes for manifest in manifests),
        "bytes": max(manifest.n_bytes for manifest in manifests),
    }
    rows = [
        [
            run.title(manifest),
            seconds(manifest.seconds),
            seconds(manifest.compile_seconds),
            meter(manifest.seconds / max(most["seconds"], 1e-9)),
            n_bytes(manifest.peak_memory_bytes),
            meter(manifest.peak_memory_bytes / max(most["memory"], 1)),
            n_bytes(manifest.n_bytes),
            meter(manifest.n_bytes / max(most["bytes"], 1)),
        ]
        for manifest in manifests
    ]
    total = sum(manifest.seconds for manifest in manifests)
    size = sum(manifest.n_bytes for manifest in manifests)
    return section(
        "cost",
        "Cost of each step",
        element("p", f"{seconds(total)} in all, and {n_bytes(size)} on disk."),
        table(["Step", "Time", "Compiling", "", "Peak memory", "", "On disk", ""], rows),
        note(
            "What each step cost when its result was made. A step with a result in the store cost this run "
            "nothing. Compiling is not part of the time: the first run on a machine compiles the kernels that it "
            "needs, and keeps them. Peak memory is that of the whole process while the step ran."
        ),
    )


def lineage_section(run: Run) -> Html:
    """Every artifact by its id, with what it was made of."""
    rows = [
        [
            element("code", str(manifest.ref), id=_anchor(manifest)),
            run.title(manifest),
            _inputs(manifest, run.manifests),
            manifest.created.strftime("%Y-%m-%d %H:%M:%S UTC"),
            element("code", _commit(manifest)),
        ]
        for manifest in run.manifests
    ]
    return section(
        "lineage",
        "Lineage",
        table(["Artifact", "Step", "Made of", "Made at", "Commit"], rows),
        note(
            "An id names everything that went into an artifact. ",
            element("code", f"eyrie artifacts show {run['evaluation'].ref.id}"),
            " tells the rest, and the id is a tag of the MLflow run.",
        ),
    )


def link(manifest: Manifest) -> Html:
    """A link to an artifact's line in the lineage."""
    return element("a", element("code", str(manifest.ref)), href=f"#{_anchor(manifest)}")


def _anchor(manifest: Manifest) -> str:
    return f"{manifest.kind}-{manifest.id}"


def _inputs(manifest: Manifest, known: Sequence[Manifest]) -> Child:
    by_id = {each.id: each for each in known}
    parts: list[Child] = []
    for role, ref in manifest.inputs.items():
        name = link(by_id[ref.id]) if ref.id in by_id else element("code", str(ref))
        parts.append(element("div", f"{role}: ", name))
    if manifest.sources:
        parts.append(element("div", f"source files: {count(len(manifest.sources))}"))
    return parts


def _environment(manifests: Sequence[Manifest]) -> Iterable[tuple[str, Child]]:
    yield "Seed", _distinct(str(manifest.seed) for manifest in manifests)
    yield "Commit", element("code", _distinct(_commit(manifest) for manifest in manifests))
    yield "Finished", max(manifest.created for manifest in manifests).strftime("%Y-%m-%d %H:%M:%S UTC")
    for library in dict.fromkeys(name for manifest in manifests for name in manifest.versions):
        yield library, _distinct(manifest.versions.get(library, "") for manifest in manifests)


def _commit(manifest: Manifest) -> str:
    if manifest.git_commit is None:
        return "not in git"
    commit, plus, changes = manifest.git_commit.partition("+")
    return commit[:COMMIT_DIGITS] + plus + changes


def _distinct(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(value for value in values if value))


def _step(title: str, manifest: Manifest, earlier: Sequence[Manifest]) -> Html:
    """One step, opened where a person looks first."""
    heading = element("summary", f"{title} ", element("code", str(manifest.ref)))
    same = next((other for other in earlier if other.options and other.options == manifest.options), None)
    content = element("p", "The same options as ", link(same)) if same else facts(_option_rows(manifest, earlier))
    is_open = "" if manifest.kind in ("model", "imputed") else None
    return element("details", heading, content, open=is_open)


def _option_rows(manifest: Manifest, earlier: Sequence[Manifest]) -> Iterable[tuple[Child, Child]]:
    own = dict(manifest.options)
    for name, value in manifest.options.items():
        same = next((other for other in earlier if isinstance(value, Mapping) and other.options == value), None)
        if same is not None:
            del own[name]
            yield element("code", name), ["as in ", link(same)]
    for name, value in flatten(own).items():
        yield element("code", name), foreign(plain(value))
    yield element("code", "seed"), str(manifest.seed)


def _sources(manifest: Manifest) -> Html | None:
    if not manifest.sources:
        return None
    rows: list[Sequence[Child]] = [
        [foreign(shorten(path, 200)), n_bytes(record.n_bytes), element("code", record.sha256[:16])]
        for path, record in list(manifest.sources.items())[:MOST_ITEMS]
    ]
    more = len(manifest.sources) - len(rows)
    left_out = note(f"{count(more)} more files are in the manifest.") if more > 0 else None
    title = f"Source files ({count(len(manifest.sources))})"
    return folded(title, table(["File", "Size", "SHA-256 begins"], rows), left_out)
