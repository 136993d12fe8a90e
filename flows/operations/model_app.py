"""A served model on the web: MLflow's API, the page to try it, Annif's protocol and metrics. It checks no header."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial
from importlib import resources
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field
from starlette.routing import Route

from flows.operations.annif import annif_routes
from flows.operations.model_metrics import ModelMetrics
from flows.operations.served import Served
from tasks.known_rows import example_rows, remembered_rows
from tasks.scoring_app import LoadedVersion
from xcore.components import Component
from xcore.errors import EyrieError
from xcore.inference.reasons import MOST_PARTS, Row, effects, parts_of

FORWARDED = ("/invocations", "/ping", "/health", "/version")
FILES = {"/": "index.html", "/page.css": "page.css", "/page.js": "page.js"}
TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
MOST_BYTES, MOST_READ, MOST_IN_BULK = 2_000_000, 50_000_000, 200_000_000  # bytes of a request
N_EXAMPLES, N_NEAREST, N_TERMS = 40, 8, 8
DEPTH = 100  # labels that are looked at when a part of the row is left out


class Question(Component):
    """A row, how many labels it should get, and whether each must reach its own threshold."""

    row: dict[str, Any]
    k: int = Field(20, ge=1, le=200)
    per_label: bool = False


class BagQuestion(Component):
    """The rows of a bag, and how many labels it should get."""

    rows: list[dict[str, Any]] = Field(min_length=1, max_length=1000)
    k: int = Field(20, ge=1, le=200)


class Why(Component):
    """A row, and the labels to explain."""

    row: dict[str, Any]
    labels: list[str] = Field(max_length=200)


def model_application(name: str, which: str) -> FastAPI:
    """Load the version `which` of a registered model, and return the application that serves it."""
    metrics = ModelMetrics()
    served = Served(name, which, partial(LoadedVersion, count=metrics.counted))

    @asynccontextmanager
    async def following(_: FastAPI) -> AsyncIterator[None]:
        served.follow()
        yield
        served.stop()

    application = FastAPI(lifespan=following, openapi_url=None)
    application.middleware("http")(metrics.timed)
    application.middleware("http")(_refuse_large)
    application.exception_handler(EyrieError)(_tell)
    application.include_router(_page_routes())
    application.include_router(_model_routes(served))
    application.include_router(annif_routes(served))

    @application.get("/metrics")
    def counts() -> Response:
        text = metrics.text(name, served.current.version.number, served.failed)
        return Response(text, media_type=metrics.media_type)

    for path in FORWARDED:
        application.router.routes.append(Route(path, _Forwarded(served)))
    return application


class _Forwarded:
    """MLflow's scoring server, of the version that answers now."""

    def __init__(self, served: Served) -> None:
        self._served = served

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._served.current.application(scope, receive, send)


def _page_routes() -> APIRouter:
    routes, folder = APIRouter(), resources.files("flows.operations") / "model_page"
    for path, file in FILES.items():
        kind = TYPES[file.rpartition(".")[2]]
        answer = partial(Response, (folder / file).read_bytes(), media_type=kind, headers=HEADERS)
        routes.add_api_route(path, lambda answer=answer: answer(), methods=["GET"], response_model=None)
    return routes


def _model_routes(served: Served) -> APIRouter:
    routes = APIRouter(prefix="/api")

    @routes.get("/model")
    def model() -> dict[str, Any]:
        loaded = served.current
        return {
            "name": loaded.version.name,
            "version": loaded.version.number,
            "alias": served.which if served.follows else None,
            "form": loaded.form,
            "scale": loaded.scale,
            "bags": loaded.explains_bags,
            "thresholds": loaded.has_thresholds,
            "description": loaded.version.description,
        }

    @routes.get("/rows")
    def rows() -> list[dict[str, Any]]:
        return example_rows(served.current.version, N_EXAMPLES)

    @routes.post("/suggest")
    def suggest(question: Question) -> dict[str, Any]:
        loaded = served.current
        (found,) = loaded.answer([question.row], question.k, question.per_label)
        return {"version": loaded.version.number, "suggestions": [asdict(one) for one in found]}

    @routes.post("/bag")
    def bag(question: BagQuestion) -> dict[str, Any]:
        loaded = served.current
        found = loaded.bag(question.rows, question.k)
        return {"version": loaded.version.number, "suggestions": [asdict(one) for one in found]}

    @routes.post("/reasons")
    def reasons(why: Why) -> dict[str, Any]:
        return _reasons(served.current, why.row, why.labels)

    return routes


def _reasons(loaded: LoadedVersion, row: Row, labels: list[str]) -> dict[str, Any]:
    def scores(rows: Any) -> list[Mapping[str, float]]:
        return [{one.id: one.score for one in found} for found in loaded.probe(rows, DEPTH)]

    parts = parts_of(row)
    found = effects(scores, row, labels, parts, N_TERMS)
    terms = {label: [one._asdict() for one in each] for label, each in zip(labels, found, strict=True)}
    return {"terms": terms, "cut": len(parts) == MOST_PARTS, "nearest": _nearest(loaded, row)}


def _nearest(loaded: LoadedVersion, row: Row) -> list[dict[str, Any]]:
    near = loaded.nearest(row, N_NEAREST)
    rows = remembered_rows(loaded.version, [each["row"] for each in near if "row" in each])
    return [each | rows.get(each.get("row", -1), {}) for each in near]


async def _refuse_large(request: Request, answer: Any) -> Response:
    """Nothing that a page or Annif sends is large; bulk goes to /invocations or to the flow `score`.

    The length must be told: a request in pieces without one could go on until the memory is full.
    """
    size = request.headers.get("content-length", "" if request.method == "POST" else "0")
    if not size.isdecimal() or "transfer-encoding" in request.headers:
        return JSONResponse({"detail": "the length of the request must be given"}, 411)
    most = MOST_IN_BULK if request.url.path == "/invocations" else MOST_BYTES
    if int(size) > most:
        if int(size) <= MOST_READ:  # whoever is still sending does not read the answer
            async for _ in request.stream():
                pass
        return JSONResponse({"detail": f"the request has {size} bytes, at most {most} are taken"}, 413)
    response: Response = await answer(request)
    return response


async def _tell(_: Request, error: Exception) -> Response:
    return JSONResponse({"detail": str(error)}, 400)
