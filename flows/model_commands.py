"""``eyrie models``: versions of a registered model, which of them serves, and how to go back."""

from __future__ import annotations

import argparse
import json

from rich.table import Column, Table

from flows.terminal import wide_console
from tasks.champions import promote, rollback
from tasks.model_parts import parts_of
from tasks.model_registry import register
from tasks.model_versions import find_model, find_version, run_facts, source_run, versions
from xcore.data.source import LabelFile

MAIN_METRIC = "test/ndcg_at_5"


def list_models(arguments: argparse.Namespace) -> int:
    """All versions, newest first."""
    known = versions(arguments.name)
    if arguments.json:
        rows = [
            {
                "version": v.number,
                "aliases": list(v.aliases),
                "tags": dict(v.tags),
                "registered": v.registered.isoformat(),
            }
            for v in known
        ]
        print(json.dumps(rows))
        return 0
    ids = (Column("model", overflow="fold"), Column("dataset", overflow="fold"))  # an id is never cut
    table = Table("version", "aliases", "kind", "test nDCG@5", "registered", *ids, "note")
    for version in known:
        kind, quality = run_facts(version, MAIN_METRIC)
        table.add_row(
            str(version.number),
            " ".join(version.aliases),
            kind,
            "" if quality is None else f"{100 * quality:.2f}",
            f"{version.registered:%Y-%m-%d}",
            str(version.model),
            version.tags["eyrie.dataset"],
            version.note,
        )
    wide_console().print(table if known else f"There is no registered model {arguments.name!r}.")
    return 0


def register_models(arguments: argparse.Namespace) -> int:
    """Register a model of the store; the run that made it is found by its tag."""
    ref = find_model(arguments.name, arguments.model)
    labels = LabelFile(path=arguments.labels) if arguments.labels else None
    version, is_new = register(arguments.name, parts_of(ref), source_run(arguments.name, ref), labels)
    return _say(arguments, f"{ref} is {version}{'' if is_new else ', as it was before'}", version=version.number)


def promote_models(arguments: argparse.Namespace) -> int:
    """Make a version the champion by hand."""
    version = find_version(arguments.name, arguments.version)
    done = promote(version)
    return _say(arguments, f"{version} is {'now' if done else 'already'} the champion", champion=version.number)


def rollback_models(arguments: argparse.Namespace) -> int:
    """Give the alias back to the version before."""
    current, before = rollback(arguments.name)
    text = f"{before} is the champion again; version {current.number} will not be promoted by itself"
    return _say(arguments, text, champion=before.number, rolled_back=current.number)


def _say(arguments: argparse.Namespace, text: str, **facts: int) -> int:
    print(json.dumps(facts) if arguments.json else text)
    return 0
