"""Prefect's server behind a check of Host and Origin: ``python -m flows.operations.prefect_app --host ... --port ...``.

It does what ``prefect server start`` does (API, UI and background services in one process), and takes the same
``PREFECT_...`` variables. Prefect itself checks neither header, and has no setting for it.
"""

from __future__ import annotations

import argparse
import sys

from flows.operations.busy import AskAgain
from flows.operations.trusted import LOOPBACK, TrustedOnly, trusted_names
from tasks.settings import use_umask
from xcore.errors import EyrieError


def main(words: list[str] | None = None) -> int:
    """Serve until a signal comes."""
    parser = argparse.ArgumentParser(prog="python -m flows.operations.prefect_app", description=__doc__)
    parser.add_argument("--host", default=LOOPBACK, help="address to listen on")
    parser.add_argument("--port", type=int, default=4200, help="port to listen on")
    arguments = parser.parse_args(words)
    try:
        use_umask()
        names = trusted_names(arguments.host, arguments.port)
    except EyrieError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    _run(arguments.host, arguments.port, names)
    return 0


def _run(host: str, port: int, names: list[str]) -> None:
    import uvicorn
    from prefect.server.api.server import create_app
    from prefect.settings import get_current_settings

    server = get_current_settings().server
    uvicorn.run(
        TrustedOnly(AskAgain(create_app(final=True)), names),
        host=host,
        port=port,
        timeout_keep_alive=server.api.keepalive_timeout,
        ws_ping_interval=server.api.websocket_ping_interval,
        ws_ping_timeout=server.api.websocket_ping_timeout,
        log_level=server.logging_level.lower(),
    )


if __name__ == "__main__":
    sys.exit(main())
