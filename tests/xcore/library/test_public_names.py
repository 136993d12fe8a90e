"""One import: cheap, lazy, typed, and no part of any step's id."""

import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tasks
import xcore
from xcore.artifacts.identity import code_digests

ROOT = Path(xcore.__file__).parents[1]
# The last one asks for the package's folder, and the others use it.
MAKES_NO_ARTIFACT = {"tasks.model_registry", "tasks.known_rows", "tasks.scoring_app", "tasks.served_model"}


def loaded_after(code: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after some code."""
    words = [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.split())


def test_the_import_loads_nothing_and_a_linear_classifier_no_torch() -> None:
    assert not {"numpy", "numba", "sklearn", "xcore.library.public"} & loaded_after("import xcore")
    assert "xcore.library.public" not in loaded_after("from xcore import errors")
    loaded = loaded_after("import xcore\nxcore.Classifier('parabel').fit([[1.0, 0.0], [0.0, 1.0]], ['a', 'b'])")
    assert "sklearn" in loaded
    assert not {"torch", "prefect", "mlflow"} & loaded


def test_names_can_be_listed_imported_and_are_not_invented() -> None:
    from xcore import Classifier, Parabel  # the spelling that users may prefer

    assert Classifier("parabel")._component() == Parabel()
    assert set(xcore.__all__) <= set(dir(xcore))
    assert all(getattr(xcore, name).__name__ == name for name in xcore.__all__)
    for name in ("Nothing", "nothing", "__nothing__"):
        with pytest.raises(AttributeError, match=name):
            getattr(xcore, name)


def test_no_step_is_named_by_the_library() -> None:
    names = {module.name for module in pkgutil.walk_packages(tasks.__path__, "tasks.")} - MAKES_NO_ARTIFACT
    assert "tasks.fit" in names
    used = set(code_digests(sorted(names)))
    assert "xcore.models.base" in used
    assert not [name for name in used if name in ("xcore", "xcore.library.public") or name.startswith("xcore.library")]


def test_strict_users_of_the_types_see_them(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import xcore\n"
        "fitted: xcore.Classifier = xcore.Classifier('parabel').fit([[1.0]], ['a'])\n"
        "reveal_type(fitted.predict_topk([[1.0]]))\n"
        "reveal_type(xcore.Parabel().n_trees)\n"
        "xcore.Nothing\n"
    )
    settings = tmp_path / "mypy.ini"
    settings.write_text("[mypy]\nplugins = pydantic.mypy\nstrict = true\nfollow_imports = silent\n")
    files = ["--config-file", str(settings), "--cache-dir", str(tmp_path / "cache"), str(script)]
    words = [sys.executable, "-m", "mypy", "--ignore-missing-imports", *files]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    assert 'Revealed type is "xcore.numeric.matrices.TopK"' in done.stdout
    assert re.search(r'Revealed type is "(builtins\.)?int"', done.stdout)
    assert 'has no attribute "Nothing"' in done.stdout
    assert (ROOT / "xcore" / "py.typed").is_file()
