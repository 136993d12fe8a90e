"""Imports go one way: flows > tasks > xcore. A machine checks it."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FORBIDDEN = {
    "xcore": {"tasks", "flows", "benchmarks", "prefect", "mlflow"},
    "tasks": {"flows", "benchmarks"},
    "flows": {"benchmarks", "mlflow", "numpy", "scipy", "pyarrow", "torch", "numba"},
}
KNOWS_PREFECT = {"tasks/execution.py"}
KNOWS_MLFLOW = {
    "tasks/tracking.py",
    "tasks/tracking_client.py",
    "tasks/lost_runs.py",
    "tasks/model_registry.py",
    "tasks/pyfunc.py",
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
