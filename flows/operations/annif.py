"""The protocol of Annif's ``http`` backend: an Annif installation can use a served model as one of its projects.

In Annif's ``projects.cfg``: ``backend=http`` and ``endpoint=http://HOST:PORT/v1/projects/NAME/suggest``. Label ids must
be the URIs of Annif's vocabulary.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool

from flows.operations.served import Served
from xcore.errors import ConfigError

DEFAULT_LIMIT, MOST = 10, 1000


def annif_routes(served: Served) -> APIRouter:
    """What the backend asks: about the project, and for subjects of a text."""
    routes = APIRouter(prefix="/v1")

    @routes.get("/projects")
    def projects() -> dict[str, Any]:
        return {"projects": [_project(served)]}

    @routes.get(f"/projects/{served.name}")
    def project() -> dict[str, Any]:
        return _project(served)

    @routes.post(f"/projects/{served.name}/suggest")
    async def suggest(request: Request) -> dict[str, Any]:
        form = parse_qs((await request.body()).decode(errors="replace"), keep_blank_values=True)
        text = form.get("text", [""])[-1]
        limit = _number(form, "limit", DEFAULT_LIMIT, int)
        threshold = _number(form, "threshold", 0.0, float)
        if served.current.form != "text":
            raise ConfigError(f"this model takes {served.current.form} rows, and Annif sends texts")
        if not 1 <= limit <= MOST:
            raise ConfigError(f"limit is {limit}, expected 1 to {MOST}")
        (found,) = await run_in_threadpool(served.current.answer, [{"text": text}], int(limit))
        kept = [one for one in found if one.share >= threshold]
        return {"results": [{"uri": one.id, "label": one.name, "notation": None, "score": one.share} for one in kept]}

    return routes


def _number(form: dict[str, list[str]], name: str, usual: float, kind: Any) -> float:
    text = form.get(name, [""])[-1]
    try:
        number: float = kind(text) if text else usual
    except ValueError:
        raise ConfigError(f"{name} is {text!r}, expected a number") from None
    return number


def _project(served: Served) -> dict[str, Any]:
    version = served.current.version
    return {
        "project_id": version.name,
        "name": str(version),
        "language": "any",
        "backend": {"backend_id": "eyrie"},
        "is_trained": True,
        "modification_time": version.registered.isoformat(),
    }
