"""Eyrie built as a wheel and installed into a folder of its own, as `pip install` would do."""

import importlib.metadata
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ("flows", "tasks", "xcore", "benchmarks", "pyproject.toml", "README.md", "LICENSE")
OLDEST_BACKEND = 77  # an older setuptools does not know how the licence is written


@dataclass(frozen=True)
class Installed:
    """The wheel's file names, the folder that it was installed into, and the program `eyrie`."""

    names: frozenset[str]
    site: Path
    program: Path


def install_wheel(folder: Path) -> Installed:
    """Build a wheel from a copy of the sources, since a build writes beside them, and install it."""
    backend = importlib.metadata.version("setuptools")
    if int(backend.split(".")[0]) < OLDEST_BACKEND:
        pytest.skip(f"setuptools {backend} cannot build the wheel; {OLDEST_BACKEND} or newer is needed")
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / "source" / name, ignore=shutil.ignore_patterns("__pycache__", "*.nb[ic]"))
        else:
            shutil.copy(source, folder / "source" / name)
    pip("wheel", "--no-build-isolation", "--wheel-dir", str(folder), str(folder / "source"))
    (wheel,) = folder.glob("eyrie-*.whl")
    site = folder / "site"
    pip("install", "--target", str(site), str(wheel))
    with zipfile.ZipFile(wheel) as archive:
        return Installed(frozenset(archive.namelist()), site, site / "bin" / "eyrie")


def pip(*words: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", words[0], "--no-deps", *words[1:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def write_hostile_packages(folder: Path) -> None:
    """A user's own files whose names are those of our packages; whoever imports one of them fails."""
    (folder / "flows").mkdir(parents=True)
    for name in ("flows/__init__.py", "flows/__main__.py", "flows/pipeline.py", "tasks.py", "xcore.py"):
        (folder / name).write_text(f"raise SystemExit('{name} of the user was imported')\n")
