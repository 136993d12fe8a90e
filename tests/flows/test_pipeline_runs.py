"""The promises of a run, tried on the real command line with a real Prefect server and a real MLflow database."""

import json
import sqlite3
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.workplace import Workplace

KILLED = ("-m", "tests.flows.killed")


def mlflow_runs(workplace: Workplace) -> list[tuple[str, str]]:
    with sqlite3.connect(workplace.home / "mlflow.db") as database:
        return list(database.execute("select run_uuid, status from runs order by start_time"))


def sha256_of_all_files(workplace: Workplace, summary: dict[str, Any]) -> dict[str, Any]:
    manifests = (workplace.home / "store" / step["artifact"] / "manifest.json" for step in summary["steps"])
    return {str(path.parent.name): json.loads(path.read_text())["files"] for path in manifests}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, prefect_server: str) -> tuple[Workplace, dict[str, Any]]:
    """A work folder with one run that nothing disturbed, and its summary; a test leaves it as it was."""
    whole = Workplace(tmp_path_factory.mktemp("undisturbed") / "home", PREFECT_API_URL=prefect_server)
    return whole, whole.pipeline()


def test_a_run_killed_in_every_step_in_turn_ends_with_the_same_bytes(
    workplace: Workplace, undisturbed: tuple[Workplace, dict[str, Any]]
) -> None:
    whole, expected = undisturbed
    names = [step["step"].replace(" ", "_") for step in expected["steps"]]
    for position, name in enumerate(names):
        moment = "half" if position % 2 else "built"
        assert workplace.run(name, moment, *workplace.words(), script=KILLED).returncode == -9
        assert [status for _, status in mlflow_runs(workplace)] == ["RUNNING"]
    summary = workplace.pipeline()
    assert [step["cached"] for step in summary["steps"]] == [True] * (len(names) - 1) + [False]
    assert summary["reopened"]
    assert summary["metrics"] == expected["metrics"]
    assert [status for _, status in mlflow_runs(workplace)] == ["FINISHED"]
    assert sha256_of_all_files(workplace, summary) == sha256_of_all_files(whole, expected)

    (page,) = workplace.home.glob(f"mlflow-files/*/{summary['mlflow_run']}/artifacts/report.html")
    assert summary["steps"][-1]["artifact"].split("/")[1] in page.read_text()

    again = workplace.pipeline()
    assert again["nothing_changed"]
    assert all(step["cached"] for step in again["steps"])
    assert mlflow_runs(workplace) == [(summary["mlflow_run"], "FINISHED")]


def test_a_supervisors_stop_ends_a_run_as_an_interrupt_does_and_leaves_no_server_behind(tmp_path: Path) -> None:
    workplace = Workplace(tmp_path / "home")  # no server is named, so Prefect starts one of its own
    process = workplace.start(*workplace.words("model.epochs=10000"))
    deadline = time.monotonic() + 120
    while not list(workplace.home.glob("store/dataset/*")) and time.monotonic() < deadline:
        time.sleep(0.2)
    servers = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    _, told = process.communicate(timeout=60)
    assert servers
    assert process.returncode == 130, told
    assert "finished steps are kept" in told
    assert not psutil.wait_procs(servers, timeout=30)[1]


def test_a_training_killed_halfway_goes_on_from_its_checkpoint_to_the_same_bytes(
    workplace: Workplace, undisturbed: tuple[Workplace, dict[str, Any]]
) -> None:
    whole, expected = undisturbed
    assert workplace.run("fit_sampled_model", "checkpoint-50", *workplace.words(), script=KILLED).returncode == -9
    assert len(list(workplace.home.glob("store/.staging/model-*/state.safetensors"))) == 1
    killed_at = 1000 * time.time()
    summary = workplace.pipeline()
    with sqlite3.connect(workplace.home / "mlflow.db") as database:
        points = f"select min(step) from metrics where key = 'train/loss' and timestamp > {killed_at}"
        (first_step,) = database.execute(points).fetchone()
    assert first_step > 50
    assert sha256_of_all_files(workplace, summary) == sha256_of_all_files(whole, expected)
    assert not list(workplace.home.glob("store/.staging/model-*"))


def test_a_damaged_artifact_is_noticed_and_made_again(undisturbed: tuple[Workplace, dict[str, Any]]) -> None:
    workplace, first = undisturbed
    (model,) = (step["artifact"] for step in first["steps"] if step["artifact"].startswith("model/"))
    victim = max((workplace.home / "store" / model).iterdir(), key=lambda path: path.stat().st_size)
    before = victim.read_bytes()
    victim.write_bytes(before[: len(before) // 2] + b"?" + before[len(before) // 2 + 1 :])
    done = workplace.run("artifacts", "verify")
    assert done.returncode == 2
    assert "1 damaged" in done.stdout
    second = workplace.pipeline()
    assert [step["artifact"] for step in second["steps"] if not step["cached"]] == [model]
    assert victim.read_bytes() == before
    assert workplace.run("artifacts", "verify").returncode == 0


def test_two_pipelines_racing_for_the_same_ids_both_succeed(workplace: Workplace) -> None:
    both = [workplace.start(*workplace.words()) for _ in range(2)]
    outcomes = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], outcomes
    first, second = (json.loads(out.splitlines()[-1]) for out, _ in outcomes)
    assert first["result"] == second["result"]
    assert first["metrics"] == second["metrics"]
    assert {status for _, status in mlflow_runs(workplace)} == {"FINISHED"}


def test_editing_a_model_changes_only_what_depends_on_it(workplace: Workplace, tmp_path: Path) -> None:
    code = workplace.use_code_copy(tmp_path / "code")

    def plan(kind: str) -> dict[str, str]:
        done = workplace.run(*workplace.words(f"model.kind={kind}"), "--plan")
        assert done.returncode == 0, done.stderr
        return dict(step["artifact"].split("/") for step in json.loads(done.stdout))

    before = {kind: plan(kind) for kind in ("ova", "parabel")}
    source = code / "xcore" / "models" / "ova.py"
    source.write_text(source.read_text() + "\n# a remark\n")
    assert plan("ova") == before["ova"]
    source.write_text(source.read_text() + "\nEDITED = True\n")
    after = plan("ova")
    assert {kind for kind in after if after[kind] != before["ova"][kind]} == {"model", "predictions", "evaluation"}
    assert plan("parabel") == before["parabel"]


def test_a_wrong_parameter_is_refused_before_anything_runs(workplace: Workplace) -> None:
    done = workplace.run(*workplace.words("model.kind=oracle"))
    assert done.returncode == 2
    assert "model: there is no kind 'oracle'" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (workplace.home / "store").exists()


def test_a_wrong_file_gets_one_clear_error_and_leaves_nothing(workplace: Workplace, tmp_path: Path) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_text("2 10 5\n1,2 0:1 3:0.5\n1 7:nan\n")
    preset = tmp_path / "bad.yaml"
    preset.write_text(f"data: {{reader: {{kind: xmc}}, train: [{bad}], test: [{bad}]}}\n")
    done = workplace.run("ingest", str(preset))
    assert done.returncode == 2
    assert f"{bad}:3:" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list((workplace.home / "store").glob("dataset/*"))
    assert [status for _, status in mlflow_runs(workplace)] == ["FAILED"]


@pytest.mark.parametrize("words", [["artifacts", "ls"], ["artifacts", "verify"], ["artifacts", "gc"]])
def test_store_commands_work_on_an_empty_store(workplace: Workplace, words: list[str]) -> None:
    done = workplace.run(*words)
    assert done.returncode == 0, done.stderr


def test_the_store_can_be_listed_shown_and_cleaned(workplace: Workplace) -> None:
    summary = workplace.pipeline()
    listed = json.loads(workplace.run("artifacts", "ls", "--json").stdout)
    assert {f"{m['kind']}/{m['id']}" for m in listed} == {step["artifact"] for step in summary["steps"]}
    lineage = json.loads(workplace.run("artifacts", "show", summary["result"], "--json").stdout)
    assert [m["kind"] for m in lineage][-1] == "evaluation"
    shown = workplace.run("artifacts", "show", summary["result"]).stdout
    assert "lineage" in shown
    assert "dataset/" in shown
    kept = workplace.run("artifacts", "gc", "--older-than", "0", "--yes")
    assert "0 artifacts" in kept.stdout
    with sqlite3.connect(workplace.home / "mlflow.db") as database:
        database.execute("update runs set lifecycle_stage = 'deleted'")
    assert f"{len(listed)} artifacts" in workplace.run("artifacts", "gc", "--older-than", "0").stdout
    assert f"{len(listed)} artifacts" in workplace.run("artifacts", "gc", "--older-than", "0", "--yes").stdout
    assert json.loads(workplace.run("artifacts", "ls", "--json").stdout) == []


def test_train_goes_on_from_a_dataset_in_the_store(workplace: Workplace) -> None:
    made = workplace.pipeline("model.kind=ova")
    (dataset,) = (step["artifact"] for step in made["steps"] if step["artifact"].startswith("dataset/"))
    words = ("train", "--set", f"dataset={dataset[8:16]}", "--set", "model.kind=ova", "--json")
    done = workplace.run(*words)
    assert done.returncode == 0, done.stderr
    trained = json.loads(done.stdout.splitlines()[-1])
    assert trained["metrics"] == made["metrics"]
    assert all(step["cached"] for step in trained["steps"])
    assert workplace.run("train", "--set", "dataset=ffff").returncode == 2
