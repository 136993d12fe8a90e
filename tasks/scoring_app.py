"""MLflow's scoring server for a version of a registered model, as an ASGI application. It checks no header itself."""

from __future__ import annotations

from typing import Any

from tasks.model_registry import Version
from tasks.settings import tracking_uri


def scoring_application(version: Version) -> Any:
    """Load the model, and return the application that answers rows at ``/invocations``."""
    import mlflow
    from mlflow.pyfunc import scoring_server

    mlflow.set_tracking_uri(tracking_uri())
    return scoring_server.init(mlflow.pyfunc.load_model(f"models:/{version.name}/{version.number}"))
