"""Kill -9 of a server, of the worker, of a run's process and of everything at once, in the middle of a run.

The services are those of ``eyrie serve``, and the run is one of a deployment. A run whose process was killed is
retried by the request that Prefect's page sends.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.client import HTTPException
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.faults.outcome import Outcome
from benchmarks.faults.work import DEMO, MODELS, SMALL, digest, manifests, sound_store
from flows.params import PipelineParams
from flows.presets import load_params
from tests.e2e.stack import FINAL, Stack, running_stack

MODEL = "negative-sampling"  # the one with the most steps
KILLS = 3  # of each sort
SECONDS_TO_MARK = 120.0  # as promised: a lost run is then marked in both dashboards
SECONDS_FOR_RECORDS = 60.0  # those of tasks arrive after the end of their run
SERVICES = {"the Prefect server": 0, "the MLflow server": 1, "the worker": 2}  # places in the record of the services
Found = TypeVar("Found")
RETRY = {"type": "SCHEDULED", "name": "AwaitingRetry", "message": "Retry from the UI"}


def outcomes(folder: Path, quick: bool) -> Iterator[Outcome]:
    """One outcome for each sort of process. The quick form does without: services alone take a minute to start."""
    if quick:
        return
    expected = digest(sound_store(folder, MODEL))
    with ExitStack() as stopped_at_the_end:
        trial = _Trial(folder / "services", stopped_at_the_end, expected)
        yield trial.undisturbed()
        for kind in SERVICES:
            yield trial.kills(kind)
        yield trial.kills("the process of the run")
        yield trial.kills("everything")


class _Trial:
    """Services in a work folder of their own, and runs of one deployment with the same steps, each made anew."""

    def __init__(self, place: Path, stop: ExitStack, expected: dict[str, dict[str, str]]) -> None:
        self._place, self._stop, self._expected = place, stop, expected
        self._home, self._store = place / "home", place / "home" / "store"
        self._draws, self._seconds = random.Random(0), 0.0
        _declare(place)
        self._start()

    def _start(self) -> None:
        self._stack: Stack = self._stop.enter_context(running_stack(self._home, folder=self._place))

    def undisturbed(self) -> Outcome:
        """A run to compare with. Its duration tells from which moments to draw."""
        outcome = Outcome("services, an undisturbed run")
        run = self._begin("undisturbed")
        self._seconds = self._stack.finished(run["id"])["total_run_time"]
        outcome.counts["seconds"] = round(self._seconds)
        self._check_end(outcome, run, {})
        return outcome

    def kills(self, kind: str) -> Outcome:
        """Kill one sort of process, each time in another run."""
        outcome = Outcome(f"kill -9 of {kind}")
        number = 0
        while outcome.counts["killed"] < KILLS and not outcome.problems:
            number += 1
            run = self._begin(f"{kind.replace(' ', '-')}-{number}")
            time.sleep(self._draws.uniform(0.05, 0.85) * self._seconds)
            if (found := self._flow_run(run))["state_type"] in FINAL:
                self._seconds = found["total_run_time"]  # the first run was slower
                continue
            self._kill(kind, run)
            killed = time.monotonic()
            outcome.counts["killed"] += 1
            kept = manifests(self._store)
            outcome.counts["finished steps at that moment"] += len(kept)
            if kind not in SERVICES:
                if kind == "everything":
                    self._start()
                self._see_it_marked(outcome, run, killed)
                self._retry(outcome, run)
            self._check_end(outcome, run, kept)
        return outcome

    def _begin(self, name: str) -> dict[str, Any]:
        """A run of the deployment that is under way. Its experiment is new, and so is its MLflow run."""
        shutil.rmtree(self._store, ignore_errors=True)
        deployment = self._stack.deployment("pipeline/faults")
        params = deployment["parameters"]["params"] | {"name": name}
        run: dict[str, Any] = self._stack.api(
            f"/deployments/{deployment['id']}/create_flow_run", {"name": name, "parameters": {"params": params}}
        )
        self._stack.wait_for(lambda: self._flow_run(run)["state_type"] == "RUNNING")
        return run

    def _kill(self, kind: str, run: dict[str, Any]) -> None:
        if kind == "everything":
            self._stack.kill_everything()
        elif kind in SERVICES:
            record = json.loads((self._home / "services.json").read_text())
            os.kill(record["processes"][SERVICES[kind]][0], signal.SIGKILL)
        else:
            _, process, _ = (self._home / "runs" / run["id"]).read_text().split()
            os.kill(int(process), signal.SIGKILL)

    def _see_it_marked(self, outcome: Outcome, run: dict[str, Any], killed: float) -> None:
        """Crashed in Prefect, with its tasks, and not under way in MLflow."""

        def marked() -> bool:
            return self._flow_run(run)["state_type"] == "CRASHED" and not self._under_way(run)

        right = _within(killed + SECONDS_TO_MARK, marked)
        outcome.check(right, f"{run['name']} was not marked: {self._flow_run(run)['state']}, {self._under_way(run)}")
        longest = outcome.counts["seconds until marked, at most"]
        outcome.counts["seconds until marked, at most"] = max(longest, round(time.monotonic() - killed))
        statuses = self._mlflow_statuses(run["name"])
        outcome.check(statuses in ([], ["KILLED"]), f"{run['name']} is in MLflow: {statuses}")

    def _retry(self, outcome: Outcome, run: dict[str, Any]) -> None:
        answer = self._stack.api(f"/flow_runs/{run['id']}/set_state", {"state": RETRY, "force": False})
        outcome.check(answer["status"] == "ACCEPT", f"the retry of {run['name']} was refused: {answer}")
        outcome.counts["retried"] += 1

    def _check_end(self, outcome: Outcome, run: dict[str, Any], kept: dict[str, bytes]) -> None:
        """The run ends well, with the bytes of a run without services, and with one run in MLflow."""
        name, limit = run["name"], time.monotonic() + 400
        _within(limit, lambda: self._flow_run(run)["state_type"] in FINAL)
        state = self._flow_run(run)["state"]
        outcome.check(state["type"] == "COMPLETED", f"{name} ended as {state}: {self._stack.logs()}")
        outcome.counts["ended well"] += state["type"] == "COMPLETED"
        outcome.check(digest(self._store) == self._expected, f"{name}: other bytes than without services")
        now = manifests(self._store)
        again = [place for place in kept if kept[place] != now.get(place)]
        outcome.check(not again, f"{name}: a finished step was lost or made again: {again}")
        _within(time.monotonic() + SECONDS_FOR_RECORDS, lambda: not self._under_way(run))
        outcome.check(not self._under_way(run), f"{name} has ended, but is under way: {self._under_way(run)}")
        statuses = self._mlflow_statuses(name)
        outcome.check(statuses == ["FINISHED"], f"{name} is in MLflow: {statuses}")

    def _flow_run(self, run: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = self._patiently(lambda: self._stack.api(f"/flow_runs/{run['id']}"))
        return found

    def _under_way(self, run: dict[str, Any]) -> list[str]:
        """Tasks in Prefect, and the run in MLflow, that are said to be under way."""
        asked = {"flow_runs": {"id": {"any_": [run["id"]]}}}
        tasks = self._patiently(lambda: self._stack.api("/task_runs/filter", asked))
        running = [status for status in self._mlflow_statuses(run["name"]) if status == "RUNNING"]
        return [task["name"] for task in tasks if task["state_type"] not in FINAL] + running

    def _mlflow_statuses(self, experiment: str) -> list[str]:
        """Of all runs of an experiment."""

        def look() -> list[str]:
            known = self._stack.mlflow_api("experiments/search", {"max_results": 1000})["experiments"]
            ids = [one["experiment_id"] for one in known if one["name"] == experiment]
            found = self._stack.mlflow_api("runs/search", {"experiment_ids": ids}) if ids else {}
            return [found_run["info"]["status"] for found_run in found.get("runs", [])]

        return self._patiently(look)

    def _patiently(self, look: Callable[[], Found]) -> Found:
        """What servers answer, as soon as they are there again."""

        def ask() -> list[Found] | None:
            try:
                return [look()]
            except (OSError, HTTPException):
                return None

        return self._stack.wait_for(ask)[0]


def _within(limit: float, condition: Callable[[], bool]) -> bool:
    """Whether something is so before a moment."""
    while not (right := condition()) and time.monotonic() < limit:
        time.sleep(0.5)
    return right


def _declare(place: Path) -> None:
    """A folder with one deployment. JSON is YAML too."""
    params = load_params(PipelineParams, DEMO, [*SMALL, *MODELS[MODEL]])
    deployment = {
        "name": "faults",
        "description": "A small pipeline.",
        "entrypoint": "flows.pipeline.pipeline",
        "tags": ["eyrie"],
        "work_pool": {"name": "local", "work_queue_name": "training"},
        "parameters": {"params": params.model_dump(mode="json")},
    }
    place.mkdir()
    (place / "prefect.yaml").write_text(json.dumps({"deployments": [deployment]}))
