"""The docs speak of what is there: kinds, components, links, commands."""

import re
from pathlib import Path
from pkgutil import resolve_name

import pytest

from flows.catalogue import FLOWS
from flows.params import FlowParams
from xcore.artifacts.schemas import KINDS
from xcore.models.family import MODEL_KINDS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(
    (ROOT / "docs").glob("*.md")
)


def text_of(name: str) -> str:
    return (ROOT / name).read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_every_artifact_kind_is_described(kind: str) -> None:
    assert f"| `{kind}` |" in text_of("docs/artifacts.md")


@pytest.mark.parametrize("kind", MODEL_KINDS)
def test_every_model_has_a_line(kind: str) -> None:
    assert f"`{kind}`" in text_of("docs/method.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_within_the_repository_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)[^)]*\)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_named_in_backticks_exist(page: Path) -> None:
    named = re.findall(r"`((?:xcore|tasks|flows|tests|benchmarks|deployments|docs)/[\w./-]+)`", page.read_text())
    assert [name for name in named if "NAME" not in name and not (ROOT / name).exists()] == []


def test_commands_in_the_docs_are_commands() -> None:
    services = {"serve", "deploy", "env", "backup", "restore"}
    commands = {*FLOWS, *services, "artifacts", "models", "options", "init", "kernels", "suggest"}
    for page in PAGES:
        for name in re.findall(r"(?:`|^|\()(?:eyrie|python -m flows) ([a-z-]+)", page.read_text(), re.M):
            assert name in commands, f"{page.name} speaks of `eyrie {name}`"


def test_targets_in_the_docs_are_in_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z]+):", text_of("Makefile"), re.M))
    for page in PAGES:
        assert set(re.findall(r"`make ([a-z]+)", page.read_text())) <= targets, page.name


def test_the_readme_is_a_short_front_door() -> None:
    assert text_of("README.md").count("\n") < 150


@pytest.mark.parametrize("name", FLOWS)
def test_every_flow_can_be_loaded_by_its_names(name: str) -> None:
    entry = FLOWS[name]
    assert entry.flow.name == name
    assert issubclass(entry.params, FlowParams)
    assert callable(resolve_name(entry.planner_name))
    assert entry.preset_of is None or issubclass(entry.preset_of, FlowParams)
