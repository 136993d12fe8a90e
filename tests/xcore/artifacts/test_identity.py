import ast
import contextlib
import gc
import importlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from xcore.artifacts import identity, manifest

Write = Callable[..., dict[str, str]]


@pytest.fixture
def digests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write modules of a package of our own and take the digests of one of them."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(identity, "HASHED_PACKAGES", ("nest",))
    monkeypatch.setattr(identity, "PLUMBING", ("nest.pipes",))

    def write(root: str, **modules: str) -> dict[str, str]:
        for name, text in {"__init__": "", **modules}.items():
            path = tmp_path / "nest" / (name.replace(".", "/") + ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        importlib.invalidate_caches()
        identity._read_module.cache_clear()
        identity._source_of.cache_clear()
        return identity.code_digests([root])

    yield write
    identity._read_module.cache_clear()
    identity._source_of.cache_clear()
    for name in [name for name in sys.modules if name.startswith("nest")]:
        del sys.modules[name]


def test_imports_are_followed_wherever_they_stand(digests: Write) -> None:
    found = digests(
        "nest.a",
        a="from nest.b import f\n",
        b="def f():\n    from nest import c\n    import numpy\n    return c\n",
        c="import nest.d as d\n",
        d="",
        e="other = 1\n",
    )
    assert list(found) == ["nest.a", "nest.b", "nest.c", "nest.d"]


def test_an_edit_counts_only_where_it_is_imported(digests: Write) -> None:
    before = digests("nest.a", a="from nest.b import x\n", b="x = 1\n", other="y = 1\n")
    assert digests("nest.a", other="y = 2\n") == before
    assert digests("nest.a", b="x = 2\n") != before


def test_comments_docstrings_and_layout_do_not_count(digests: Write) -> None:
    before = digests("nest.a", a='"""One."""\n\ndef f(x):\n    """Two."""\n    return x\n')
    assert digests("nest.a", a="# why\ndef f( x ):\n\n    return x\n") == before
    assert digests("nest.a", a="def f(x):\n    return -x\n") != before


def test_a_door_to_a_family_is_neither_hashed_nor_followed(digests: Write) -> None:
    modules = {"a": "from nest.kin.family import x\nfrom nest.kin import family\nimport nest.kin.family\n"}
    modules |= {"kin.__init__": "", "kin.family": "from nest.kin.one import x\n", "kin.one": "x = 1\n"}
    before = digests("nest.a", **modules)
    assert list(before) == ["nest.a"]
    assert digests("nest.a", **{"kin.family": "from nest.kin.one import x\ny = 2\n", "kin.one": "x = 3\n"}) == before
    assert "nest.kin.one" in digests("nest.kin.one")


def test_plumbing_does_not_count(digests: Write) -> None:
    before = digests("nest.a", a="import nest.pipes\n", pipes="x = 1\n")
    assert digests("nest.a", pipes="x = 2\n") == before


def test_a_missing_module_is_an_error(digests: Write) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"nest\.gone"):
        digests("nest.gone")


@contextlib.contextmanager
def called_while_parsing(callback: Callable[[], object]) -> Iterator[None]:
    """Run something in the middle of the construction of syntax trees: when their many objects make Python collect."""

    def collected(phase: str, info: object) -> None:
        if phase == "start":
            callback()

    thresholds = gc.get_threshold()
    gc.callbacks.append(collected)
    gc.set_threshold(300)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(collected)


def read_again() -> dict[str, str]:
    identity._read_module.cache_clear()
    return identity.code_digests(["xcore.data.ingest"])


def test_threads_may_read_modules_at_a_time() -> None:
    """CPython 3.11 raises SystemError where one thread starts to build a syntax tree while another is at it."""
    expected, failures = read_again(), []

    def digest() -> None:
        try:
            for _ in range(2):
                assert read_again() == expected
        except BaseException as error:
            failures.append(error)

    with called_while_parsing(lambda: time.sleep(1e-3)):
        threads = [threading.Thread(target=digest) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []


def test_a_module_is_read_again_if_a_library_parses_meanwhile() -> None:
    expected, parsed = read_again(), []

    def parse_once() -> None:
        if not parsed:
            parsed.append(ast.parse("x = 1"))

    with called_while_parsing(parse_once):
        assert read_again() == expected
    assert parsed


def test_content_ids_do_not_depend_on_the_order_of_names() -> None:
    assert identity.content_id({"a": 1, "b": [2]}) == identity.content_id({"b": [2], "a": 1})
    assert identity.content_id({"a": 1}) != identity.content_id({"a": 1.5})
    with pytest.raises(ValueError):
        identity.content_id({"a": float("nan")})


def test_edits_outside_of_the_code_do_not_count_as_changed_source(tmp_path: Path) -> None:
    for name in ("xcore/artifacts", "tasks", "flows"):
        (tmp_path / name).mkdir(parents=True)
    source, declared = tmp_path / "xcore" / "artifacts" / "manifest.py", tmp_path / "prefect.yaml"
    source.write_text(Path(manifest.__file__).read_text())
    declared.write_text("deployments: []")
    for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    ask = f"import runpy; print(runpy.run_path({str(source)!r})['git_commit']())"

    def commit() -> str:
        return subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout.strip()

    declared.write_text("deployments: [more]")
    assert not commit().endswith("+changes")
    source.write_text(source.read_text() + "# edited\n")
    assert commit().endswith("+changes")
