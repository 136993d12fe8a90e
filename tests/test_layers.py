"""Imports go one way: flows > tasks > xcore. A machine checks it."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FORBIDDEN = {
    "xcore": {"tasks", "flows", "benchmarks", "prefect", "mlflow"},
    "tasks": {"flows", "benchmarks"},
    "flows": {"benchmarks", "mlflow", "numpy", "scipy", "pyarrow", "torch", "numba"},
}
KNOWS_PREFECT = {"tasks/execution.py"}
# Rooms of xcore from the ground up: a room may use those of lower lines, not those of its own line or above.
ROOMS = (
    "errors",
    "components files memory names saved",
    "numeric",
    "artifacts data metrics search",
    "training grouping sampling simulation",
    "text heads imputation selection",
    "network",
    "embedding miml siamese",
    "models",
    "inference library",
    "studies",
    "report",
    "views",
)
DOOR = "xcore/__init__.py"  # names what `import xcore` gives, lazily
KNOWS_MLFLOW = {
    "tasks/empty_databases.py",
    "tasks/mlflow_server.py",
    "tasks/tracking.py",
    "tasks/tracking_client.py",
    "tasks/lost_runs.py",
    "tasks/model_registry.py",
    "tasks/model_versions.py",
    "tasks/pyfunc.py",
    "tasks/served_model.py",
    "tasks/scoring_app.py",
}


def imported_packages(text: str) -> set[str]:
    """Top-level names of all packages that a source text imports."""
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names.add((node.module or "").split(".")[0])
    return names


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("package", FORBIDDEN)
def test_no_package_imports_what_is_above_it(package: str) -> None:
    assert sources(package)
    wrong = {
        str(path.relative_to(ROOT)): imported_packages(path.read_text()) & FORBIDDEN[package]
        for path in sources(package)
    }
    assert {path: names for path, names in wrong.items() if names} == {}


def test_few_files_know_mlflow_and_one_prefect() -> None:
    uses = {str(path.relative_to(ROOT)): imported_packages(path.read_text()) for path in sources("tasks")}
    assert {path for path, names in uses.items() if "mlflow" in names} == KNOWS_MLFLOW
    assert {path for path, names in uses.items() if "prefect" in names} == KNOWS_PREFECT


def rooms_used(text: str) -> set[str]:
    """Rooms of xcore that a source text imports, at the top or inside functions."""
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("xcore.")}


def test_rooms_of_xcore_use_only_rooms_below_them() -> None:
    height = {room: at for at, line in enumerate(ROOMS) for room in line.split()}
    wrong = []
    for path in sources("xcore"):
        name = str(path.relative_to(ROOT))
        if name == DOOR:
            continue
        room = path.relative_to(ROOT / "xcore").with_suffix("").parts[0]
        assert room in height, f"{room} has no place among the rooms: add it to ROOMS"
        wrong += [
            f"{name} uses {used}" for used in rooms_used(path.read_text()) - {room} if height[used] >= height[room]
        ]
    assert wrong == []


def test_torch_is_imported_by_few_rooms() -> None:
    users = {str(path.relative_to(ROOT)) for path in sources("xcore") if "torch" in imported_packages(path.read_text())}
    assert {name.split("/")[1] for name in users} <= {"training", "heads", "network", "miml", "siamese", "text"}


def test_a_plan_loads_neither_torch_nor_prefect_nor_mlflow(tmp_path: Path) -> None:
    preset = "deployments/presets/demo.yaml"
    code = (
        f"import sys; from flows.__main__ import main; main(['pipeline', '{preset}', '--plan', '--json']);"
        "print(sorted({'torch', 'prefect', 'mlflow', 'matplotlib'} & set(sys.modules)))"
    )
    environment = os.environ | {"EYRIE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_nothing_is_pickled() -> None:
    found = [
        str(path.relative_to(ROOT))
        for package in FORBIDDEN
        for path in sources(package)
        if imported_packages(path.read_text()) & {"pickle", "cloudpickle", "joblib", "dill"}
    ]
    assert found == []


def test_the_check_itself_sees_a_wrong_import() -> None:
    assert imported_packages("def f():\n    from tasks.fit import x\n    import mlflow.client\n") == {"tasks", "mlflow"}
