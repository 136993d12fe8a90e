"""Prints the ids of all steps of small pipelines, as planned by the code that is first on the path.

Words: a folder for input files, then modules. After the first plan, each of these modules in turn gets one more
constant, and everything is planned anew; the edits stay. The output is a list of plans: pipeline > step > id.
"""

import importlib
import json
import sys
from pathlib import Path
from typing import Any, get_args

from flows.params import PipelineParams, SimulateParams
from flows.plans import plan_pipeline
from flows.studies import plan_simulate
from tasks.promote import comparison_recipe
from tasks.score import ModelParts, UsedModel, scores_recipe
from xcore.artifacts import ArtifactRef, KeptArtifact, Recipe, identity
from xcore.inference.batches import Batch
from xcore.inference.promotion import Promotion
from xcore.inference.scorer import Cut
from xcore.models.parabel import Parabel
from xcore.text.tfidf import Tfidf

GENERATED = {"kind": "generated", "n_train": 20, "n_test": 5, "n_labels": 4, "n_features": 32}


def parameters(folder: Path) -> dict[str, dict[str, Any]]:
    """Of pipelines that use other members of the families."""
    (folder / "train.txt").write_text("2 3 2\n0 0:1.0\n1 1:1.0 2:0.5\n")
    (folder / "train.csv").write_text("id,text,labels\na,one two,x\nb,two three,y\n")
    (folder / "labels.csv").write_text("id\nx\ny\n")
    csv = {"kind": "csv", "id": "id", "text": "text", "labels": "labels", "label_delimiter": ";"}
    tables = {"train": [str(folder / "train.csv")], "labels": str(folder / "labels.csv")}
    grouped = {"data": {"reader": GENERATED | {"group_size": 1}}, "grouping": {"kind": "random"}}
    return {
        "sparse": {"data": {"reader": {"kind": "xmc"}, "train": [str(folder / "train.txt")]}},
        "text": {"data": {"reader": csv, **tables}, "text": {"kind": "tfidf"}},
        "grouped": grouped | {"imputer": {"kind": "eagle"}, "model": {"kind": "ova"}},
        "chosen": grouped | {"imputer": {"kind": "auto"}},
        "sampled": {"data": {"reader": GENERATED}, "model": {"kind": "negative-sampling"}},
        "subset": {"data": {"reader": GENERATED}, "model": {"kind": "label-subset", "model": {"kind": "parabel"}}},
    }


def kept(kind: str) -> KeptArtifact:
    return KeptArtifact.of(ArtifactRef(kind=kind, id="0123456789abcdef"))


def results(folder: Path) -> dict[str, Recipe]:
    """The last step of each plan, also of those that start from artifacts in the store."""
    plans = {name: plan_pipeline(PipelineParams.model_validate(params)) for name, params in parameters(folder).items()}
    used = UsedModel(family=Parabel(), text=Tfidf(), form="text")
    parts = ModelParts(used, kept("model"), kept("dataset"), kept("vocabulary"))
    rows = {"reader": {"kind": "csv", "text": "text", "label_delimiter": ";"}, "files": [folder / "train.csv"]}
    text = plans["text"]
    return {name: plan.evaluation for name, plan in plans.items()} | {
        "score": scores_recipe(parts, Batch.model_validate(rows), Cut(), names=True, block_mb=1),
        "promote": comparison_recipe(text.predictions, text.data.dataset, parts, "", Promotion(), 0),
        "simulate": plan_simulate(SimulateParams.model_validate({"simulation": {"kind": "regression"}})),
    }


def ids(folder: Path) -> dict[str, dict[str, str]]:
    identity._read_module.cache_clear()
    return {name: {step.name: step.id for step in result.lineage()} for name, result in results(folder).items()}


def classes(union: Any) -> list[Any]:
    """The types in a union, annotated or not; a type alone is a union of one."""
    return [one for inner in get_args(union) for one in classes(inner)] or [union]


def families(root: Path) -> dict[str, list[str]]:
    """The kinds in each family of components, by the module that holds it."""
    found = {}
    for path in sorted((root / "xcore").rglob("family.py")):
        name = ".".join(path.relative_to(root).with_suffix("").parts)
        module = importlib.import_module(name)
        unions = [value for key, value in vars(module).items() if key.startswith("Any")]
        members = [member for union in unions for member in classes(union) if hasattr(member, "model_fields")]
        if members:
            found[name] = sorted({str(member.model_fields["kind"].default) for member in members})
    return found


if __name__ == "__main__":
    folder, modules = Path(sys.argv[1]), sys.argv[2:]
    root = Path(identity.__file__).parents[2]
    assert root == Path.cwd(), f"the code comes from {root}, expected the copy in the current folder"
    plans = [ids(folder)]
    for name in modules:
        with (root / Path(*name.split("."))).with_suffix(".py").open("a") as source:
            source.write("\n_ONE_MORE_CONSTANT = 1\n")
        plans.append(ids(folder))
    print(json.dumps({"families": families(root), "plans": plans}))
