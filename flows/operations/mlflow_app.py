"""MLflow's server behind a check of Host and Origin: ``python -m flows.operations.mlflow_app server ...``.

It takes the words and variables of ``mlflow server``. MLflow itself checks the Origin header of its REST routes only: a
page of another site could ask ``/graphql``.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from flows.operations.trusted import TrustedOnly, trusted_names
from tasks.mlflow_server import APPLICATION, HOST, PORT, run_mlflow


def create_application() -> TrustedOnly:
    """MLflow's application with the check in front, as the process of the server calls it."""
    from uvicorn.importer import import_from_string

    found = import_from_string(os.environ[APPLICATION])
    application: Any = found() if os.environ[APPLICATION].endswith(":create_app") else found
    return TrustedOnly(application, trusted_names(os.environ[HOST], int(os.environ[PORT])))


if __name__ == "__main__":
    pinned = ("-P", "-m", "flows.operations.pinned")  # a user's folder called flows must not be imported
    run_mlflow(sys.argv[1:], "flows.operations.mlflow_app:create_application", pinned)
