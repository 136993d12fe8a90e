"""Counts of a served model, in the text format that Prometheus reads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from time import perf_counter
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

TENTHS = tuple(tenth / 10 for tenth in range(1, 11))
KNOWN_PATHS = ("/", "/invocations", "/api/model", "/api/rows", "/api/suggest", "/api/reasons", "/metrics", "/health")


class ModelMetrics:
    """What happened since the server started."""

    media_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        made: dict[str, Any] = {"registry": self._registry}
        self._requests = Counter("eyrie_requests", "Requests by path and status.", ["path", "status"], **made)
        self._seconds = Histogram("eyrie_request_seconds", "Time to answer a request.", ["path"], **made)
        self._rows = Counter("eyrie_rows", "Rows scored.", **made)
        self._unlabelled = Counter("eyrie_rows_without_labels", "Rows that got no label.", **made)
        self._best = Histogram("eyrie_best_score", "Score of the first label of a row.", buckets=TENTHS, **made)
        self._version = Gauge("eyrie_model_version", "Version that answers now.", ["name"], **made)
        self._failed = Gauge("eyrie_failed_version", "Version that could not be loaded; 0 if there is none.", **made)

    def counted(self, predict: Callable[..., Any]) -> Callable[..., Any]:
        """A function that scores rows, with its answers counted."""

        @wraps(predict)  # MLflow looks at the signature to see whether there are parameters
        def counting(*words: Any, **options: Any) -> Any:
            found = predict(*words, **options)
            self._rows.inc(len(found))
            for scores in found["scores"]:
                if len(scores):
                    self._best.observe(float(scores[0]))
                else:
                    self._unlabelled.inc()
            return found

        return counting

    async def timed(self, request: Any, answer: Callable[[Any], Awaitable[Any]]) -> Any:
        """Answer a request, and count it."""
        start = perf_counter()
        response = await answer(request)
        path = request.url.path if request.url.path in KNOWN_PATHS else "other"
        self._requests.labels(path, str(response.status_code)).inc()
        self._seconds.labels(path).observe(perf_counter() - start)
        return response

    def text(self, name: str, version: int, failed: int | None) -> bytes:
        """All counts as they are now."""
        self._version.labels(name).set(version)
        self._failed.set(failed or 0)
        return generate_latest(self._registry)
