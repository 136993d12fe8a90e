"""A working day in the two dashboards, by mouse and keyboard, on services that were started from scratch."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flows.operations.form import title_of_kind
from tasks.mlflow_view import PARALLEL, run_link, view_link
from tests.e2e.conftest import WINDOW
from tests.e2e.stack import UNAVAILABLE, Stack
from xcore.models.family import MODEL_KINDS

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Locator, Page, Response

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("e2e")]

SMALL = {"kind": "generated", "n_train": 800, "n_test": 200, "n_labels": 40, "group_size": 4}
SMALL_IN_FORM = {"Train rows": 800, "Test rows": 200, "Number of labels": 40, "Group size": 4}
TALL = WINDOW | {"height": 3000}
STEPS = (
    *("ingest-dataset", "fit-embedding", "group-rows", "impute-labels", "fit-projection", "fit-tree"),
    *("fit-model", "predict-labels", "evaluate-predictions"),
)
SECONDS_BEFORE_RELOAD, RELOADS = 40, 3
Run = dict[str, Any]


def open_form(page: Page, stack: Stack, deployment: str) -> None:
    """From the list of deployments to the form of a custom run, click by click."""
    from playwright.sync_api import TimeoutError as NotSeen

    for _ in range(RELOADS):  # a list that is drawn again under the pointer opens another page than the one clicked
        try:
            open_deployment(page, stack, deployment)
        except NotSeen:
            continue
        else:
            break
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_text("Custom run").click()
    appeared(page, page.get_by_role("button", name="Submit"))


def open_deployment(page: Page, stack: Stack, deployment: str) -> None:
    patience = 1000 * SECONDS_BEFORE_RELOAD
    page.goto(f"{stack.prefect}/deployments")
    appeared(page, page.get_by_placeholder("Search deployments")).fill(deployment)
    page.get_by_role("link", name=deployment, exact=True).click(timeout=patience)
    page.get_by_role("button", name="Run", exact=True).wait_for(timeout=patience)


def appeared(page: Page, wanted: Locator) -> Locator:
    """What a page is to show, when it does; a page whose requests failed on a loaded machine is loaded again."""
    from playwright.sync_api import TimeoutError as NotSeen

    for _ in range(RELOADS):
        try:
            wanted.wait_for(timeout=1000 * SECONDS_BEFORE_RELOAD)
        except NotSeen:
            page.reload()
        else:
            break
    wanted.wait_for()
    return wanted


def part(page: Page, title: str, inside: Locator | None = None) -> Locator:
    """The first part of the form that has this title: a field, or a box of fields."""
    titles = (inside or page).locator(".schema-form-property__label")
    named = titles.filter(has_text=re.compile(rf"^\s*{re.escape(title)}( \(Optional\))?\s*$"))
    return named.first.locator("xpath=ancestor::*[contains(concat(' ', @class, ' '), ' schema-form-property ')][1]")


def field(page: Page, title: str, inside: Locator | None = None) -> Locator:
    """Where one types the parameter that the form calls so."""
    return part(page, title, inside).locator("input, textarea").first


def choose_tab(box: Locator, name: str) -> None:
    """Click a tab of a box, and see that it is open."""
    tabs = box.locator(".p-button-group").first
    tabs.get_by_role("button", name=name, exact=True).click()
    tabs.locator("button[aria-selected=true]").get_by_text(name, exact=True).wait_for()


def press_submit(page: Page) -> Response:
    """What the server says to the form."""
    while True:  # SQLite is locked for too long on a loaded machine: a person would click again
        with page.expect_response(lambda response: response.url.endswith("/create_flow_run")) as answer:
            page.get_by_role("button", name="Submit").click()
        if answer.value.status != UNAVAILABLE:
            return answer.value


def submitted(page: Page, stack: Stack) -> Run:
    """The run that a form leads to, when it has ended."""
    answer = press_submit(page)
    assert answer.ok, answer.text()
    run = stack.finished(answer.json()["id"])
    assert run["state_type"] == "COMPLETED", stack.logs()
    return run


def open_report(page: Page, stack: Stack, run: Run, key: str) -> None:
    page.set_viewport_size(TALL)
    page.goto(f"{stack.prefect}/runs/flow-run/{run['id']}")
    appeared(page, page.get_by_text("Artifacts", exact=True)).click()
    page.get_by_text(key, exact=True).click()
    page.set_viewport_size(WINDOW)


@pytest.fixture(scope="module")
def clicked(stack: Stack, everyday: tuple[BrowserContext, list[str]], pictures: Path) -> Run:
    """A pipeline that was started in the form, with other parameters than the deployment's."""
    page = everyday[0].new_page()
    open_form(page, stack, "pipeline-demo")
    for title, value in SMALL_IN_FORM.items():
        field(page, title, part(page, "Reader")).fill(str(value))
    field(page, "Seed").fill("1")
    page.screenshot(path=pictures / "prefect-form.png", animations="disabled")
    run = submitted(page, stack)
    page.close()
    return run


@pytest.fixture(scope="module")
def retrained(stack: Stack, clicked: Run) -> Run:
    """The second of two retrainings on the command line, which has the first one's model for a champion to beat."""
    sizes = [word for name, value in SMALL.items() for word in ("--set", f"data.reader.{name}={value}")]
    for kind in ("parabel", "ova"):
        stack.command("retrain", "deployments/presets/demo.yaml", *sizes, "--set", f"model.kind={kind}")
    ended = {"state": {"type": {"any_": ["COMPLETED"]}}}
    return stack.runs(flows={"name": {"any_": ["retrain"]}}, flow_runs=ended)[0]


def test_a_run_started_by_clicking_completes_and_shows_its_reports(
    page: Page, stack: Stack, clicked: Run, pictures: Path
) -> None:
    assert clicked["parameters"]["params"]["data"]["reader"].items() >= SMALL.items()
    assert clicked["parameters"]["params"]["seed"] == 1
    assert re.match(r"precision_at_1 0\.\d{4}, ", clicked["state"]["message"])
    page.goto(f"{stack.prefect}/runs/flow-run/{clicked['id']}")
    appeared(page, page.get_by_text("Completed", exact=True).first)
    appeared(page, page.get_by_text(f"{len(STEPS)} Task runs"))
    page.get_by_text("Artifacts", exact=True).click()
    page.get_by_text("demo-result", exact=True).wait_for()
    page.screenshot(path=pictures / "prefect-run.png", animations="disabled")
    page.set_viewport_size(TALL)  # the page draws only what is in sight
    for step in STEPS:
        page.get_by_text(f"{step}-result", exact=True).wait_for()
    page.set_viewport_size(WINDOW)
    page.get_by_text("demo-result", exact=True).click()
    page.get_by_role("link", name="this run in MLflow").wait_for()
    assert re.search(r"precision\s+\d+\.\d\d \(\d+\.\d-\d+\.\d\)", page.locator("table").first.inner_text())
    page.screenshot(path=pictures / "prefect-result.png", animations="disabled")
    open_report(page, stack, clicked, "impute-labels-result")
    page.get_by_text("peak memory, MB").wait_for()
    page.screenshot(path=pictures / "prefect-step.png", animations="disabled")


def test_a_bad_parameter_is_refused_in_the_form(page: Page, stack: Stack, pictures: Path) -> None:
    of_form = {"flows": {"name": {"any_": ["pipeline"]}}}
    before = len(stack.runs(**of_form))
    open_form(page, stack, "pipeline-demo")
    field(page, "Seed").fill("-1")
    assert press_submit(page).status == 409
    page.get_by_text("'params.seed'. Failure reason: -1 is less than the minimum of 0").first.wait_for()
    page.screenshot(path=pictures / "prefect-refused.png", animations="disabled")
    assert page.get_by_role("button", name="Submit").is_visible()
    assert len(stack.runs(**of_form)) == before


def test_another_kind_of_model_is_chosen_by_its_tab_changed_and_run(page: Page, stack: Stack, pictures: Path) -> None:
    open_form(page, stack, "pipeline-demo")
    field(page, "Name").fill("tabs")
    for title, value in SMALL_IN_FORM.items():
        field(page, title, part(page, "Reader")).fill(str(value))
    model = part(page, "Model")
    choose_tab(model, "Ova")
    field(page, "Ridge", model).fill("0.25")
    model.scroll_into_view_if_needed()
    page.screenshot(path=pictures / "prefect-form-model.png", animations="disabled")
    run = submitted(page, stack)
    chosen = run["parameters"]["params"]["model"]
    assert (chosen["kind"], chosen["ridge"], chosen["loss"]) == ("ova", 0.25, "squared")


def test_a_wrong_value_in_a_tab_is_refused(page: Page, stack: Stack) -> None:
    open_form(page, stack, "pipeline-demo")
    model = part(page, "Model")
    choose_tab(model, "Parabel")
    field(page, "Trees", model).fill("0")
    answer = press_submit(page)
    assert answer.status == 409
    assert "params.model" in answer.text()


def test_every_kind_of_model_has_a_tab_with_its_fields(page: Page, stack: Stack) -> None:
    open_form(page, stack, "pipeline-demo")
    model = part(page, "Model")
    shown = model.locator(".p-button-group").first.locator("button").all_inner_texts()
    assert sorted(shown) == sorted(map(title_of_kind, MODEL_KINDS))
    for kind in MODEL_KINDS:
        choose_tab(model, title_of_kind(kind))
        while field(page, "Kind", model).input_value() != kind:  # the form fills in defaults by and by
            page.wait_for_timeout(50)
        choose_tab(model, title_of_kind(kind))


def test_the_nightly_schedule_is_shown_with_its_next_runs(page: Page, stack: Stack, pictures: Path) -> None:
    page.goto(f"{stack.prefect}/deployments")
    page.get_by_placeholder("Search deployments").fill("demo")
    appeared(page, page.get_by_role("link", name="score-demo", exact=True))
    page.screenshot(path=pictures / "prefect-deployments.png", animations="disabled")
    page.get_by_role("link", name="retrain-demo", exact=True).click()
    appeared(page, page.get_by_text("nightly", exact=True))
    page.get_by_text("Upcoming", exact=True).click()
    nights = page.get_by_text(re.compile(r"Scheduled for .* 03:00:00 AM"))
    nights.nth(2).wait_for()
    assert nights.count() >= 3
    page.screenshot(path=pictures / "prefect-schedule.png", animations="disabled")


def test_runs_are_compared_in_a_table_in_charts_and_in_parallel_coordinates(
    page: Page, stack: Stack, retrained: Run, pictures: Path
) -> None:
    experiment = stack.mlflow_api("experiments/get-by-name?experiment_name=demo")["experiment"]
    page.goto(f"{stack.mlflow}/#/experiments?workflowType=machine_learning")
    page.get_by_role("link", name="demo", exact=True).wait_for()
    page.screenshot(path=pictures / "mlflow-experiments.png", animations="disabled")
    page.goto(view_link(stack.mlflow, experiment["experiment_id"]))
    cells = page.locator(".ag-center-cols-container [col-id='metrics.`test/precision_at_1`']")
    cells.nth(2).wait_for()
    assert all(0 < float(text) < 1 for text in cells.all_inner_texts())
    kinds = page.locator(".ag-center-cols-container [col-id='params.`model.kind`']").all_inner_texts()
    assert kinds == ["ova", "parabel", "negative-sampling"]
    page.screenshot(path=pictures / "mlflow-table.png", animations="disabled")

    page.locator("label").filter(has=page.locator("input[value=CHART]")).click()
    page.locator(".js-plotly-plot .bars .point").nth(3).wait_for()
    page.screenshot(path=pictures / "mlflow-charts.png", animations="disabled")
    page.get_by_text(PARALLEL).first.scroll_into_view_if_needed()
    parallel = page.locator(".parcoords").first
    parallel.wait_for()
    parallel.scroll_into_view_if_needed()
    page.screenshot(path=pictures / "mlflow-parallel.png", animations="disabled")

    page.locator("label").filter(has=page.locator("input[value=TABLE]")).click()
    for row in range(2):
        page.locator(".ag-pinned-left-cols-container [role=row]").nth(row).locator(".ag-checkbox-input").check()
    page.get_by_role("button", name="Compare").click()
    page.get_by_text("Comparing 2 Runs from 1 Experiment").wait_for()
    page.get_by_text("Parallel Coordinates Plot").wait_for()
    page.screenshot(path=pictures / "mlflow-compare.png", animations="disabled")


def test_the_report_of_a_run_opens_in_mlflow_and_asks_nothing_of_any_network(
    page: Page,
    stack: Stack,
    clicked: Run,
    new_context: Callable[[], tuple[BrowserContext, list[str]]],
    pictures: Path,
    tmp_path: Path,
) -> None:
    run = mlflow_run(stack, clicked)
    page.goto(run_link(stack.mlflow, run["experiment_id"], run["run_id"]))
    page.get_by_text("test/precision_at_1", exact=True).wait_for()
    page.screenshot(path=pictures / "mlflow-run.png", animations="disabled")
    page.get_by_role("tab", name="Artifacts").click()
    page.get_by_text("report.html", exact=True).first.click()
    inside = page.frame_locator("iframe")
    inside.get_by_role("heading", name="What was run").wait_for()
    where = page.get_by_text(re.compile("^Path:"))
    where.evaluate("line => { line.style.visibility = 'hidden' }")  # pictures tell nothing of the machine
    page.screenshot(path=pictures / "mlflow-report.png", animations="disabled")

    (file,) = stack.workplace.home.glob(f"mlflow-files/*/{run['run_id']}/artifacts/report.html")
    alone = tmp_path / "report.html"
    alone.write_bytes(file.read_bytes())
    context, outside = new_context()
    opened, asked = context.new_page(), []
    opened.on("request", lambda request: asked.append(request.url))
    opened.goto(alone.as_uri())
    opened.screenshot(path=pictures / "report.png", animations="disabled")
    opened.get_by_role("link", name="Lineage").click()
    opened.get_by_role("heading", name="Lineage").wait_for()
    assert {address.partition("#")[0] for address in asked if not address.startswith("data:")} == {alone.as_uri()}
    assert outside == []
    context.close()


def mlflow_run(stack: Stack, run: Run) -> dict[str, Any]:
    """The MLflow run that a flow run made."""
    experiment = stack.mlflow_api("experiments/get-by-name?experiment_name=demo")["experiment"]
    search = {"experiment_ids": [experiment["experiment_id"]], "filter": f"tags.`eyrie.flow_run_id` = '{run['id']}'"}
    (found,) = stack.mlflow_api("runs/search", search)["runs"]
    info: dict[str, Any] = found["info"]
    return info


def test_a_promotion_is_explained_and_can_be_taken_back(
    page: Page, stack: Stack, retrained: Run, pictures: Path
) -> None:
    open_report(page, stack, retrained, "promotion")
    page.get_by_text("precision_at_1").first.wait_for()
    page.screenshot(path=pictures / "prefect-promotion.png", animations="disabled")
    stack.command("models", "promote", "demo", "2")  # whatever the comparison said
    assert champion(stack) == "2"
    page.goto(f"{stack.mlflow}/#/models/demo?workflowType=machine_learning")
    page.get_by_text("champion").first.wait_for()
    page.screenshot(path=pictures / "mlflow-registry.png", animations="disabled")
    stack.command("models", "rollback", "demo")
    assert champion(stack) == "1"


def test_there_is_no_way_to_the_ui_that_asks_an_outside_host(page: Page, stack: Stack) -> None:
    page.goto(f"{stack.prefect}/v2/dashboard")
    page.get_by_text("Settings", exact=True).wait_for()
    assert "/v2/" not in page.url
    assert page.get_by_text("V2").count() == 0


def champion(stack: Stack) -> str:
    found = stack.mlflow_api("registered-models/alias?name=demo&alias=champion")
    return str(found["model_version"]["version"])
