"""An id changes if and only if something changed that its step uses."""

import itertools
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.workplace import Workplace

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("planned_ids.py")


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A copy of the source that a test may edit."""
    return Workplace(tmp_path / "home").use_code_copy(tmp_path / "code")


def planned(code: Path, *modules: str) -> dict[str, Any]:
    inputs = code / "inputs"
    inputs.mkdir(exist_ok=True)
    place = Workplace(code / "home", PYTHONPATH=str(code))
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(inputs), *modules],
        cwd=code,
        env=place.environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def add_member(door: Path, package: str) -> None:
    """A new member in a file of its own, and its name in every union of the family."""
    text = door.read_text()
    union = re.compile(r"^(Any(?!Fitted)\w+: TypeAlias = (?:Annotated\[\s*)?)(\w+)", re.MULTILINE)
    found = union.search(text)
    assert found, f"no family in {door}"
    first = found[2]
    module = re.search(rf"^from (\S+) import .*\b{first}\b", text, re.MULTILINE)
    assert module
    (door.parent / "newcomer.py").write_text(
        f"from typing import Literal\n\nfrom {module[1]} import {first}\n\n\n"
        f'class Newcomer({first}):\n    kind: Literal["newcomer"] = "newcomer"\n'
    )
    imported = f"from {package}.newcomer import Newcomer\n\n"
    door.write_text(text[: found.start()] + imported + union.sub(r"\1Newcomer | \2", text[found.start() :]))


def changed(before: dict[str, Any], after: dict[str, Any]) -> dict[str, set[str]]:
    """The steps whose ids differ, by pipeline; pipelines without any are left out."""
    assert before.keys() == after.keys()
    different = {name: {step for step in before[name] if before[name][step] != after[name][step]} for name in before}
    return {name: steps for name, steps in different.items() if steps}


def test_new_members_of_all_families_change_no_id(code: Path) -> None:
    before = planned(code)
    doors = [door for door in sorted((code / "xcore").rglob("family.py")) if door.parent.name != "metrics"]
    assert {door.parent.name for door in doors} >= {"readers", "text", "grouping", "imputation", "models", "simulation"}
    for door in doors:
        add_member(door, ".".join(door.parent.relative_to(code).parts))
    with (code / "xcore" / "text" / "wordllama.py").open("a") as source:
        source.write("\nONE_MORE = 1\n")

    after = planned(code)
    assert all("newcomer" in kinds for kinds in after["families"].values())
    assert not any("newcomer" in kinds for kinds in before["families"].values())
    assert changed(before["plans"][0], after["plans"][0]) == {}


def test_a_change_counts_for_the_steps_that_use_it_and_for_what_is_made_of_them(code: Path) -> None:
    ranked = {"predict labels", "evaluate predictions"}
    learnt = {"fit model", *ranked}
    text = {"fit vocabulary", "featurise text", *learnt}
    grouped = {"impute labels", *learnt}
    compared = {"compare models", *text} - {"evaluate predictions"}
    expected = {
        "xcore.text.tfidf": {"text": text, "score": {"score rows"}, "promote": compared},
        "xcore.data.readers.xmc": {"sparse": {"ingest dataset", *learnt}},
        "xcore.data.readers.csv": {
            "text": {"ingest dataset", *text},
            "score": {"score rows"},
            "promote": {"ingest dataset", *compared},
        },
        "xcore.models.negative_sampling.losses": {"sampled": learnt},
        "xcore.models.ova": {"grouped": learnt},
        "xcore.models.label_subset.fitted": {"subset": learnt},
        "xcore.selection.linearised": {"subset": {"fit selection", *learnt}},
        "xcore.imputation.eagle": {"grouped": grouped, "chosen": grouped},
        "xcore.grouping.random": {"grouped": {"group rows", *grouped}, "chosen": {"group rows", *grouped}},
        "xcore.simulation.simulations": {"simulate": {"run simulation"}},
        "tasks.predict": {
            **dict.fromkeys(("sparse", "text", "grouped", "chosen", "sampled", "subset"), ranked),
            "promote": {"predict labels", "compare models"},
        },
    }
    plans = planned(code, *expected)["plans"]
    found = [changed(before, after) for before, after in itertools.pairwise(plans)]
    assert dict(zip(expected, found, strict=True)) == expected


def test_a_new_metric_and_an_edited_one_change_evaluations_and_comparisons_alone(code: Path) -> None:
    """All metrics are computed, so a kept evaluation must not stand for one with another set of metrics."""
    measured = {
        **{name: {"evaluate predictions"} for name in ("sparse", "text", "grouped", "chosen", "sampled", "subset")},
        "promote": {"compare models"},
    }
    before, edited = planned(code, "xcore.metrics.recall")["plans"]
    assert changed(before, edited) == measured
    door = code / "xcore" / "metrics" / "family.py"
    recall = (code / "xcore" / "metrics" / "recall.py").read_text()
    (door.parent / "found.py").write_text(recall.replace("RECALL", "FOUND").replace('"recall"', '"found"'))
    text = "from xcore.metrics.found import FOUND\n" + door.read_text()
    door.write_text(text.replace("    RECALL,\n", "    RECALL,\n    FOUND,\n"))
    (after,) = planned(code)["plans"]
    assert changed(edited, after) == measured


@pytest.mark.parametrize("door", sorted((ROOT / "xcore").rglob("family.py")), ids=lambda door: door.parent.name)
def test_a_door_defines_no_member(door: Path) -> None:
    """No id knows what stands in a door, so nothing that computes may stand there."""
    assert not re.search(r"^(@|class )", door.read_text(), re.MULTILINE)
