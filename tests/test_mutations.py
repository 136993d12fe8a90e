"""The list of mutations fits the present code."""

from __future__ import annotations

from pathlib import Path

from benchmarks.harness import Goal, row, without_goal_of_full_size
from benchmarks.mutations import read_mutations
from xcore.metrics.family import METRICS

ROOT = Path(__file__).parents[1]
NOT_COMPUTING = {"library", "views"}  # they call and show what others compute


def test_every_mutation_changes_the_present_source_at_one_place_and_still_compiles() -> None:
    for mutation in read_mutations():
        mutated = mutation.mutated()
        assert mutated != (ROOT / mutation.file).read_text(), mutation.name
        compile(mutated, mutation.file, "exec")


def test_every_mutation_names_tests_that_exist() -> None:
    for mutation in read_mutations():
        assert mutation.test_files(), mutation.name
        for path, word in zip(mutation.test_files(), mutation.tests, strict=True):
            assert path.is_file(), mutation.name
            assert "::" not in word or f"def {word.partition('::')[2]}(" in path.read_text(), mutation.name


def test_the_list_covers_every_package_of_the_method_every_metric_and_the_steps() -> None:
    mutated = {mutation.file for mutation in read_mutations()}
    packages = {path.parent.name for path in (ROOT / "xcore").glob("*/__init__.py")} - NOT_COMPUTING
    assert packages <= {Path(file).parts[1] for file in mutated}
    metrics = {f"xcore/metrics/{metric.module.rpartition('.')[2]}.py" for metric in METRICS.values()}
    assert metrics <= mutated
    assert len(read_mutations()) >= 120
    assert len({mutation.name for mutation in read_mutations()}) == len(read_mutations())


def test_a_quick_run_judges_only_goals_that_hold_at_any_size() -> None:
    full, same_bits = row("b", "c", "m", 3, "x", goal=Goal(20)), row("b", "c", "m", 1, "", goal=Goal(1, any_size=True))
    assert (full["ok"], without_goal_of_full_size(full)["ok"], without_goal_of_full_size(full)["goal"]) == (
        False,
        None,
        None,
    )
    assert without_goal_of_full_size(same_bits) == same_bits
    assert same_bits["ok"]
