"""Files that were changed are refused when they are loaded, or change nothing: no kernel runs out of bounds."""

import json
import subprocess
import sys
from pathlib import Path


def test_a_changed_file_is_refused_or_harmless(tmp_path: Path) -> None:
    """Some 10,000 changes of all saved things, in a child process; the last change before its end is the one."""
    words = [sys.executable, "-m", "tests.contracts.changed_files", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=1200)
    # A library writes lines of its own.
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    tried = [text for word, text in lines if word == "try"]
    verdicts = [text for word, text in lines if word == "end"]
    assert done.returncode == 0, f"ended with {done.returncode} at {tried[-1:]}: {done.stderr[-2000:]}"
    assert len(tried) == len(verdicts) > 9000
    wrong = {name: text for name, text in zip(tried, verdicts, strict=True) if not text.startswith("ok: ")}
    assert wrong == {}
