"""Every code block of docs/library.md is run, in order and in one namespace."""

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "library.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)


def test_all_code_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {}
    assert len(BLOCKS) == PAGE.read_text().count("\n```python\n") > 10
    for number, block in enumerate(BLOCKS):
        exec(compile(block, f"block {number} of {PAGE.name}", "exec"), found)
    assert found["precision"] > 0.6
    assert found["precision_from_groups"] > 0.6
    assert not list((tmp_path / "checkpoints").glob("*")), "a fit that ended keeps no checkpoint"
