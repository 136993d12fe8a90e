"""The list of mutations fits the present code."""

from __future__ import annotations

from pathlib import Path

from benchmarks.mutations import read_mutations

ROOT = Path(__file__).parents[1]


def test_every_mutation_changes_the_present_source_at_one_place_and_still_compiles() -> None:
    for mutation in read_mutations():
        mutated = mutation.mutated()
        assert mutated != (ROOT / mutation.file).read_text(), mutation.name
        compile(mutated, mutation.file, "exec")


def test_every_mutation_names_tests_that_exist() -> None:
    for mutation in read_mutations():
        assert mutation.test_files(), mutation.name
        missing = [path for path in mutation.test_files() if not path.is_file()]
        assert not missing, mutation.name
