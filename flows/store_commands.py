"""``eyrie artifacts``: what is in the store, how it was made, whether it is intact, and what can go."""

from __future__ import annotations

import argparse
import json
from datetime import timedelta

from rich.filesize import decimal
from rich.table import Table
from rich.tree import Tree

from flows.terminal import wide_console
from tasks import settings
from xcore.artifacts import ArtifactRef, Manifest, Store
from xcore.artifacts.schemas import KINDS


def list_artifacts(arguments: argparse.Namespace) -> int:
    """What is there."""
    manifests = settings.store().manifests()
    if arguments.json:
        print(json.dumps([manifest.model_dump(mode="json") for manifest in manifests]))
        return 0
    table = Table("made", "seconds", "size", "what")
    table.add_column("artifact", no_wrap=True)
    for manifest in manifests:
        table.add_row(
            f"{manifest.created:%Y-%m-%d %H:%M}",
            f"{manifest.seconds:.1f}",
            decimal(manifest.n_bytes),
            KINDS[manifest.kind].says,
            str(manifest.ref),
        )
    wide_console().print(table if manifests else f"The store at {settings.store().root} is empty.")
    return 0


def show_artifacts(arguments: argparse.Namespace) -> int:
    """How one artifact was made: its manifest, and the tree of all it was made of."""
    store = settings.store()
    ref = store.find(arguments.id)
    if arguments.json:
        print(json.dumps([manifest.model_dump(mode="json") for manifest in store.lineage(ref)]))
        return 0
    console, manifest = wide_console(), store.manifest(ref)
    table = Table(show_header=False)
    for name, value in _facts(manifest):
        table.add_row(name, value)
    console.print(table)
    tree = Tree("lineage")
    _add_lineage(store, ref, tree, "result", set())
    console.print(tree)
    return 0


def verify_artifacts(arguments: argparse.Namespace) -> int:
    """Check every byte; exit code 2 if anything is damaged."""
    verdicts = settings.store().verify()
    damaged = {ref: problem for ref, problem in verdicts.items() if problem}
    for problem in damaged.values():
        print(f"damaged: {problem}")
    for path in settings.store().strangers():
        print(f"not an artifact, left alone: {path}")
    print(f"{len(verdicts)} artifacts checked, {len(damaged)} damaged")
    return 2 if damaged else 0


def gc_artifacts(arguments: argparse.Namespace) -> int:
    """Remove what no run in MLflow refers to, and what interrupted writes left behind."""
    from tasks.model_versions import registered_ids
    from tasks.tracking import kept_ids

    store, age = settings.store(), timedelta(hours=arguments.older_than)
    unreferenced, leftovers = store.unreferenced(kept_ids() | registered_ids(), age), store.leftovers(age)
    for manifest in unreferenced:
        print(f"{manifest.ref}  {decimal(manifest.n_bytes)}")
        if arguments.yes:
            store.remove(manifest.ref)
    for path in leftovers:
        print(f"{path}  unfinished write")
        if arguments.yes:
            store.remove_folder(path)
    total = decimal(sum(manifest.n_bytes for manifest in unreferenced))
    done = "removed" if arguments.yes else "would be removed (say --yes to do it)"
    print(f"{len(unreferenced)} artifacts ({total}) and {len(leftovers)} unfinished writes {done}")
    return 0


def _facts(manifest: Manifest) -> list[tuple[str, str]]:
    return [
        ("artifact", str(manifest.ref)),
        ("what", KINDS[manifest.kind].says),
        ("made by", f"{manifest.component}, {manifest.created:%Y-%m-%d %H:%M:%S} UTC, commit {manifest.git_commit}"),
        ("cost", _cost(manifest)),
        ("options", json.dumps(dict(manifest.options), indent=1)),
        ("seed", str(manifest.seed)),
        ("counts", json.dumps(dict(manifest.counts), indent=1)),
        ("sources", "\n".join(f"{path}  {record.sha256[:16]}" for path, record in manifest.sources.items())),
        ("files", "\n".join(f"{name}  {decimal(record.n_bytes)}" for name, record in manifest.files.items())),
        ("code", "\n".join(f"{name}  {digest}" for name, digest in manifest.code.items())),
        ("libraries", ", ".join(f"{name} {version}" for name, version in manifest.versions.items())),
    ]


def _cost(manifest: Manifest) -> str:
    compiling = f"{manifest.compile_seconds:.2f} s of compiling kernels"
    return f"{manifest.seconds:.2f} s and {compiling}, peak memory {decimal(manifest.peak_memory_bytes)}"


def _add_lineage(store: Store, ref: ArtifactRef, tree: Tree, role: str, shown: set[str]) -> None:
    if ref.id in shown:
        tree.add(f"{role}: {ref}  [dim](see above)[/]")
        return
    shown.add(ref.id)
    manifest = store.manifest(ref)
    branch = tree.add(f"{role}: {ref}  [dim]{manifest.component}, {manifest.seconds:.1f} s[/]")
    for name, source in manifest.inputs.items():
        _add_lineage(store, source, branch, name, shown)
    for path in manifest.sources:
        branch.add(f"file: {path}")
