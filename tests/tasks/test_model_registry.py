"""Models in MLflow's registry: what is in a version, which one is the champion, and a real server on it."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tasks import settings
from tasks.champions import apply_decision, champion_parts, mark_challenger, promote, rollback
from tasks.model_parts import parts_of
from tasks.model_registry import register
from tasks.model_versions import champion, find_model, find_version, registered_ids, source_run, versions
from tasks.thresholds import thresholds_recipe
from tasks.tracking import TrackedRun
from tasks.tracking_client import tracking_client
from tests.conftest import free_port, wait_until_healthy
from tests.small_models import made_model, texts
from xcore.data.dataset import Dataset
from xcore.data.readers.base import Form
from xcore.errors import ConfigError
from xcore.inference.thresholds import LabelThresholds
from xcore.models.family import MODEL_KINDS
from xcore.models.ova import Ova

PICKLES = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
CASES: list[tuple[str, Form]] = [
    *((kind, "text") for kind in sorted(MODEL_KINDS)),
    ("ova", "sparse"),
    ("ova", "vector"),
]
ROWS: dict[Form, dict[str, list[Any]]] = {
    "text": {"text": ["bee1 bee2 word3", "nothing known"]},
    "sparse": {"indices": [[3, 1], []], "values": [[2.0, 1.5], []]},
    "vector": {"vector": [[0.1, 2.5, 0.3, 0.2, 0.1, 0.0], [0.0] * 6]},
}


@pytest.fixture
def sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A work folder with an embedded MLflow, and a module path that is as before when the test is over."""
    monkeypatch.setenv("EYRIE_HOME", str(tmp_path / "home"))
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI", "EYRIE_STORE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", settings.tracking_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "false")
    monkeypatch.setenv("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    monkeypatch.setattr(sys, "path", list(sys.path))  # MLflow puts the model's own code there
    return tmp_path


@pytest.fixture(params=["sqlite", "server"])
def backend(request: pytest.FixtureRequest, sqlite: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "server":
        monkeypatch.setenv("MLFLOW_TRACKING_URI", request.getfixturevalue("mlflow_server"))
    return f"nest-{request.param}"


def models(folder: Path, *ridges: float) -> list[Any]:
    return [parts_of(made_model(Ova(ridge=ridge), "text", folder / "source").ref) for ridge in ridges]


@pytest.mark.parametrize(("kind", "form"), CASES)
def test_a_registered_model_answers_as_the_one_in_the_store_and_holds_no_pickle(
    sqlite: Path, kind: str, form: Form
) -> None:
    import mlflow
    import pandas as pd

    parts = parts_of(made_model(MODEL_KINDS[kind](), form, sqlite / "source", dev=0.2).ref)
    version, is_new = register("nest", parts, None)
    assert is_new
    promote(version)
    served = mlflow.pyfunc.load_model("models:/nest@champion")
    answer = served.predict(pd.DataFrame(ROWS[form]), params={"k": 3})
    assert [len(labels) for labels in answer["labels"]] == [3, 3]
    assert list(answer["scores"][0]) == sorted(answer["scores"][0], reverse=True)
    if form != "sparse":
        assert answer["names"][0][0] == "bee"
    threshold = answer["scores"][0][0]
    strict = served.predict(pd.DataFrame(ROWS[form]), params={"threshold": threshold})
    assert strict["labels"][0] == answer["labels"][0][:1]
    values = LabelThresholds.load(settings.store().open(thresholds_recipe(parts).ref).directory).values
    ids = Dataset(settings.store().open(parts.dataset.ref).directory).label_table()["id"].to_pylist()
    by_id = dict(zip(ids, values.tolist(), strict=True))
    own = served.predict(pd.DataFrame(ROWS[form]), params={"k": 3, "per_label": True})
    for labels, scores, kept in zip(answer["labels"], answer["scores"], own["labels"], strict=True):
        assert kept == [label for label, score in zip(labels, scores, strict=True) if score >= by_id[label]]

    signature = served.metadata.signature
    assert {column.name for column in signature.inputs} == set(ROWS[form])
    assert {column.name for column in signature.outputs} == {"labels", "names", "scores"}
    assert {param.name: param.default for param in signature.params} == {
        "k": 5,
        "threshold": None,
        "per_label": False,
    }
    example = json.loads((logged_folder() / "serving_input_example.json").read_text())
    assert set(example["dataframe_split"]["columns"]) == set(ROWS[form])
    files = [path for path in logged_folder().rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert not [path for path in files if path.suffix in (".pkl", ".pickle") or path.read_bytes()[:2] in PICKLES]


def logged_folder() -> Path:
    """Where the only logged model's files lie."""
    (folder,) = (settings.home() / "mlflow-files" / "nest" / "models").glob("*/artifacts")
    return folder


@pytest.mark.xdist_group("servers")
def test_a_model_is_registered_once_and_known_by_its_id(backend: str, tmp_path: Path) -> None:
    first, second = models(tmp_path, 0.1, 0.2)
    run = TrackedRun.open(backend, f"{backend}-result", "a run")
    run.log_step(settings.store().manifest(first.model.ref), "model")
    assert source_run(backend, first.model.ref) == run.id
    version, is_new = register(backend, first, run.id)
    assert (version.number, is_new) == (1, True)
    again, is_new = register(backend, first, run.id)
    assert (again.number, is_new) == (1, False)
    assert register(backend, second, None)[0].number == 2
    assert [version.model for version in versions(backend)] == [second.model.ref, first.model.ref]
    assert registered_ids() >= {*first.ids().values(), *second.ids().values()}
    assert tracking_client().get_model_version(backend, "1").run_id == run.id


@pytest.mark.xdist_group("servers")
def test_promotion_moves_the_alias_and_rollback_gives_it_back(backend: str, tmp_path: Path) -> None:
    one, two, three = (register(backend, parts, None)[0] for parts in models(tmp_path, 0.1, 0.2, 0.3))
    assert champion(backend) is None
    assert apply_decision(one, "promote", "first")["champion"] == 1
    mark_challenger(two)
    assert find_model(backend, "challenger") == two.model
    assert apply_decision(two, "keep", "not better") == {
        "name": backend, "version": 2, "promoted": False, "champion": 1, "reason": "not better",
    }  # fmt: skip
    assert apply_decision(two, "promote", "better")["promoted"]
    assert apply_decision(three, "promote", "better")["champion"] == 3
    assert find_model(backend, "champion") == three.model
    assert find_model(backend, "2") == two.model
    assert not apply_decision(find_version(backend, "3"), "promote", "better")["promoted"]

    current, before = rollback(backend)
    assert (current.number, before.number) == (3, 2)
    assert find_model(backend, "champion") == two.model
    refused = apply_decision(find_version(backend, "3"), "promote", "better")
    assert (refused["promoted"], refused["champion"]) == (False, 2)
    assert "rolled back to version 2 by hand" in refused["reason"]
    assert rollback(backend)[1].number == 1
    with pytest.raises(ConfigError, match="replaced no other version"):
        rollback(backend)
    assert promote(find_version(backend, "3"))  # by hand it may come back
    assert find_version(backend, "3").note == "replaced version 1"


def test_what_is_not_there_is_said(sqlite: Path) -> None:
    (parts,) = models(sqlite, 0.1)
    with pytest.raises(ConfigError, match=r"no version 'champion' of the registered model 'nest'; there are: none"):
        find_model("nest", "champion")
    with pytest.raises(ConfigError, match="'nest' has no champion"):
        rollback("nest")
    register("nest", parts, None)
    with pytest.raises(ConfigError, match=r"no version '7' .* there are: 1\."):
        find_model("nest", "7")
    with pytest.raises(ConfigError, match="is a dataset, expected a model"):
        find_model("nest", str(parts.dataset.ref))
    assert find_model("nest", str(parts.model.ref)[:12]) == parts.model.ref
    assert champion_parts("nest") == (None, "")


def test_a_champion_whose_artifacts_are_gone_is_explained(sqlite: Path) -> None:
    (parts,) = models(sqlite, 0.1)
    promote(register("nest", parts, None)[0])
    settings.store().remove(parts.model.ref)
    found, problem = champion_parts("nest")
    assert found is None
    assert "the champion, nest version 1, cannot be opened: no artifact model/" in problem


def test_a_registration_that_was_interrupted_uses_the_files_that_were_logged(sqlite: Path) -> None:
    (parts,) = models(sqlite, 0.1)
    version, _ = register("nest", parts, None)
    tracking_client().delete_model_version("nest", str(version.number))  # as if the process died before this was made
    again, is_new = register("nest", parts, None)
    assert is_new
    assert logged_folder().is_dir()  # still the only one
    assert again.model == parts.model.ref


@pytest.mark.slow
@pytest.mark.xdist_group("servers")
def test_mlflow_serves_the_champion(sqlite: Path) -> None:
    (parts,) = models(sqlite, 0.1)
    promote(register("nest", parts, None)[0])
    port, log = free_port(), sqlite / "serve.log"
    words = [sys.executable, "-m", "mlflow", "models", "serve", "-m", "models:/nest@champion", "--env-manager", "local"]
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    with log.open("wb") as stream:
        server = subprocess.Popen(
            [*words, "--host", "127.0.0.1", "--port", str(port), "--workers", "1"],
            cwd=sqlite, env=environment, stdout=stream, stderr=stream, start_new_session=True,
        )  # fmt: skip
        try:
            wait_until_healthy(server, f"http://127.0.0.1:{port}/ping", log, seconds=240)
            rows = texts(20, seed=5)
            asked = {"dataframe_records": [{"text": text} for text, _ in rows], "params": {"k": 2}}
            status, answer = post(port, asked)
            assert status == 200
            best = [row["names"][0] for row in answer["predictions"]]
            assert sum(name == label for name, (_, label) in zip(best, rows, strict=True)) > 16
            assert {tuple(sorted(row)) for row in answer["predictions"]} == {("known", "labels", "names", "scores")}
            status, answer = post(port, asked | {"params": {"k": 0}})
            assert status == 400
            assert "k: Input should be greater than or equal to 1, got 0" in answer["message"]
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait()


def post(port: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/invocations", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())
