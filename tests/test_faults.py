"""The quick form of the fault suite: kills, damage, odd input, little room, races and other surroundings."""

import json
import subprocess
import sys

import pytest

from tests.workplace import ROOT

pytestmark = pytest.mark.slow


def test_faults_are_survived_or_refused() -> None:
    words = [sys.executable, "-m", "benchmarks", "faults", "--quick", "--json"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=1200)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout.splitlines()[-1])
    assert {row["ok"] for row in rows if row["metric"] == "went wrong"} == {True}, done.stderr
    tried = {(row["case"], row["metric"]): row["value"] for row in rows}
    assert tried["kill -9, parabel", "killed"] >= 6
    assert tried["damaged files, parabel", "damaged"] == tried["damaged files, parabel", "noticed"] > 100
    assert sum(number for (_, metric), number in tried.items() if metric == "inputs") > 1_000
    assert tried["little room on the disk", "refused"] > 0
