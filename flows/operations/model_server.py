"""A registered model served over HTTP, with a page to try it, behind a check of Host and Origin."""

from __future__ import annotations

from flows.operations.password import PasswordOnly
from flows.operations.services import ServeOptions, choose_port
from flows.operations.trusted import TrustedOnly, trusted_names
from tasks.model_versions import find_version

USUAL_PORT = 5001


def serve_version(name: str, which: str, host: str, wanted_port: int | None) -> int:
    """Serve the version `which` (an alias or a number) until Ctrl-C. Rows go to ``/invocations``, as with MLflow.

    A version that is named by an alias is exchanged when the alias moves.
    """
    auth = ServeOptions.checked(host=host).auth
    port = choose_port(host, wanted_port, USUAL_PORT)
    names = trusted_names(host, port)
    version = find_version(name, which)

    import uvicorn

    from flows.operations.model_app import model_application

    print(f"loading {version} ...", flush=True)
    application = model_application(name, which)
    closed = PasswordOnly(application, auth) if auth else application
    print(f"page to try it: http://{names[0]}/", flush=True)
    uvicorn.run(TrustedOnly(closed, names), host=host, port=port)
    return 0
