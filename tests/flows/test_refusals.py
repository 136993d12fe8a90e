"""What the machine refuses is one message and exit code 2, not a traceback."""

import errno
import os
from pathlib import Path

import pytest

from flows import __main__ as command
from tests.workplace import Workplace


@pytest.mark.parametrize("home", ["/dev/null/work", "/proc/1/work", "x" * 300])
def test_an_impossible_work_folder_is_one_message(tmp_path: Path, home: str) -> None:
    done = Workplace(Path(home)).run("artifacts", "ls", folder=None)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "EYRIE_HOME names another" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_work_folder_whose_name_would_end_an_address_is_refused(tmp_path: Path) -> None:
    done = Workplace(tmp_path / "a?b").run("models", "ls", "demo")
    assert (done.returncode, "question mark" in done.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == [], "a database was made outside of the work folder"


@pytest.mark.parametrize("auth", ["keeper:short", "keeper", ":a-long-password", "kee per:a-long-password"])
def test_a_password_that_is_too_short_or_none_is_one_message(tmp_path: Path, auth: str) -> None:
    done = Workplace(tmp_path / "home", EYRIE_AUTH=auth).run("serve")
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert "auth: " in done.stderr


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/disk/x"), "No space left on device: /disk/x"),
        (OSError(errno.EROFS, os.strerror(errno.EROFS), "/disk/x"), "Read-only file system: /disk/x"),
        (PermissionError(errno.EACCES, os.strerror(errno.EACCES), "\udcff"), "Permission denied: \\udcff"),
        (MemoryError("Unable to allocate 9 GiB"), "not enough memory: Unable to allocate 9 GiB"),
    ],
)
def test_what_the_system_refuses_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, says: str
) -> None:
    def fail(arguments: object) -> int:
        raise error

    monkeypatch.setenv("EYRIE_HOME", str(tmp_path))
    monkeypatch.setattr(command, "_artifacts", fail)
    monkeypatch.setattr(command.settings, "use_umask", lambda: None)
    monkeypatch.setattr(command, "keep_imports_ours", lambda: None)
    monkeypatch.setattr(command, "use_services", lambda: None)
    assert command.main(["artifacts", "ls"]) == 2
    assert capsys.readouterr().err.startswith(f"error: {says}")
