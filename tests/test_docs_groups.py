"""The examples of docs/groups.md give what the page says."""

import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from xcore.components import silent
from xcore.data.dataset import Dataset, merge_of
from xcore.data.ingest import ingest
from xcore.data.source import Source

PAGE = Path(__file__).parents[1] / "docs" / "groups.md"
EXAMPLES = [part for part in PAGE.read_text().split("\n## ") if "```text" in part]


def blocks(example: str) -> dict[str, str]:
    return {name.split()[-1]: content for name, content in re.findall(r"```([^\n]+)\n(.*?)```", example, re.S)}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: str(example).partition("\n")[0])
def test_an_example_gives_what_the_page_says(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = blocks(example)
    for name in found.keys() - {"yaml", "text"}:
        (tmp_path / name).write_text(found[name])
    (tmp_path / "dataset").mkdir()
    monkeypatch.chdir(tmp_path)
    source = Source.model_validate(yaml.safe_load(found["yaml"]) | {"holdout": {"test": 0}})
    ingest(source, tmp_path / "dataset", np.random.default_rng(0), silent)
    dataset = Dataset(tmp_path / "dataset")
    groups, rows, names = dataset.groups(), dataset.row_ids("train").to_pylist(), dataset.label_texts()
    assert groups is not None
    said = []
    for group in groups.to_pylist():
        labels = ", ".join(f"{names[label]} {n}" for label, n in zip(group["labels"], group["counts"], strict=True))
        members = " ".join(rows[member] for member in group["members"])
        said.append(f"{group['id']}: {members}, {merge_of(groups)}, {labels}")
    assert said == found["text"].splitlines()


def test_the_page_has_examples() -> None:
    assert len(EXAMPLES) == 6
