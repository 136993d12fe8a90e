"""The process of a run goes on when the worker that reads its output dies."""

import os
import subprocess
import sys
from pathlib import Path

from tests.workplace import ROOT, Workplace

RUN = """
import sys
from pathlib import Path
from rich.console import Console
print("up", flush=True)
input()
for stream in (sys.stdout, sys.stderr):
    Console(file=stream).print("as Prefect logs")
    print("as others print", file=stream, flush=True)
Path(sys.argv[1]).touch()
"""


def test_a_run_goes_on_when_nobody_reads_its_output_any_more(tmp_path: Path) -> None:
    (tmp_path / "a_run.py").write_text(RUN)
    path = os.pathsep.join([str(ROOT), str(tmp_path)])
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "flows.operations.pinned", "a_run", str(tmp_path / "done")],
        env=Workplace(tmp_path / "home", PYTHONPATH=path).environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin
    assert process.stdout
    assert process.stderr
    assert process.stdout.readline() == "up\n"
    process.stdout.close()
    process.stderr.close()
    print(file=process.stdin, flush=True)
    process.stdin.close()
    assert process.wait(timeout=300) == 0
    assert (tmp_path / "done").exists()
