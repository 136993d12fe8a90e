"""The command line ``eyrie``, also ``python -m flows``: ``eyrie pipeline preset.yaml`` runs a flow here and now."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

from flows.catalogue import FLOWS
from tasks import settings
from tasks.endpoints import keep_imports_ours, lock_embedded_server, use_services
from xcore.errors import EyrieError


def run_program() -> NoReturn:
    """The program ``eyrie``: run the command of the command line, and exit with its code."""
    # A supervisor's stop ends as Ctrl-C does: Prefect's server, a process of its own, must not stay behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())


def main(words: list[str] | None = None) -> int:
    """Run a command; the exit code is 0, 1 (a bug), 2 (something the caller can mend) or 130 (Ctrl-C)."""
    arguments = _parser().parse_args(words)
    keep_imports_ours()
    if arguments.run is not _serve:  # its servers and its worker write logs
        _quieten_libraries()
    try:
        settings.use_umask()
        if closed := settings.tighten_home():
            print(closed, file=sys.stderr)
        use_services()
        if arguments.run in (_run_flow, _deploy):
            lock_embedded_server()
        return int(arguments.run(arguments))
    except EyrieError as error:
        print(f"error: {_printable(str(error))}", file=sys.stderr)
        return 2
    except (OSError, MemoryError) as error:
        if isinstance(error, OSError) and error.errno is None:
            raise  # not the system's: a library's, and a bug
        print(f"error: {_printable(_system_problem(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ninterrupted: finished steps are kept; run the same command again to continue", file=sys.stderr)
        return 130


def _system_problem(error: OSError | MemoryError) -> str:
    """What the machine refused, and what can be done about it."""
    if isinstance(error, MemoryError):
        return f"not enough memory{f': {error}' if str(error) else ''}; use a smaller model or fewer rows at a time"
    where = f": {error.filename}" if error.filename else ""
    return (
        f"{error.strerror or error}{where}. Finished steps are kept: see that the work folder {settings.home()} can be "
        "written and has space (EYRIE_HOME names another), and run the same command again"
    )


def _printable(text: str) -> str:
    """A message that every terminal can show: file names need not be text."""
    return text.encode("utf-8", "backslashreplace").decode()


def _quieten_libraries() -> None:
    """Show warnings and errors, and nothing of Prefect's: that goes to its database, and an error is told once."""
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    logging.basicConfig(handlers=[handler], format="%(levelname)s %(name)s: %(message)s")
    handler.addFilter(lambda record: not record.name.startswith("prefect"))
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="eyrie", description="Run Eyrie's flows and look after its store.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name in FLOWS:
        command = commands.add_parser(name, help=f"run the flow `{name}`")
        command.add_argument("preset", type=Path, nargs="?", help="YAML file with the flow's parameters")
        command.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="change one parameter")
        command.add_argument("--plan", action="store_true", help="show which steps would be run, and run none")
        command.add_argument("--json", action="store_true", help="print the summary as JSON")
        command.set_defaults(run=_run_flow, flow=name)
    _add_artifact_commands(commands)
    _add_model_commands(commands)
    _add_service_commands(commands)
    _add_backup_commands(commands)
    suggestion = commands.add_parser("suggest", help="list the rows whose own labels would tell most, to label next")
    suggestion.add_argument("id", help="id of imputed labels, or of a model that was trained on them")
    suggestion.add_argument("--rows", type=_positive, default=20, metavar="N", help="number of rows (default 20)")
    suggestion.add_argument("--json", action="store_true", help="print one JSON object per row")
    suggestion.set_defaults(run=_suggest)
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a number of at least 1, got {text}")
    return number


def _add_artifact_commands(commands: Any) -> None:
    artifacts = commands.add_parser("artifacts", help="look at, check and clean the artifact store")
    actions = artifacts.add_subparsers(required=True, metavar="ACTION")
    listing = actions.add_parser("ls", help="what is there")
    listing.add_argument("--json", action="store_true")
    show = actions.add_parser("show", help="how one artifact was made, and of what")
    show.add_argument("id", help="an id, kind/id, or the first characters of one")
    show.add_argument("--json", action="store_true")
    verify = actions.add_parser("verify", help="check every byte of every artifact")
    gc = actions.add_parser("gc", help="remove what no run refers to")
    gc.add_argument("--yes", action="store_true", help="really remove; without it, only say what would go")
    gc.add_argument(
        "--older-than", type=float, default=24.0, metavar="HOURS", help="spare what is younger (default 24)"
    )
    for action, parser in {"list": listing, "show": show, "verify": verify, "gc": gc}.items():
        parser.set_defaults(run=_artifacts, action=action)


def _add_model_commands(commands: Any) -> None:
    models = commands.add_parser("models", help="registered models: list, register, promote, roll back, serve")
    actions = models.add_subparsers(required=True, metavar="ACTION")
    listing = actions.add_parser("ls", help="the versions of a registered model")
    register = actions.add_parser("register", help="register a model of the store as a new version")
    promote = actions.add_parser("promote", help="make a version the champion, whatever the comparison said")
    back = actions.add_parser("rollback", help="give the alias champion back to the version before")
    for action, parser in {"list": listing, "register": register, "promote": promote, "rollback": back}.items():
        parser.add_argument("name", help="name of the registered model, which is the experiment's")
        parser.add_argument("--json", action="store_true")
        parser.set_defaults(run=_models, action=action)
    register.add_argument("model", help="model/ID")
    register.add_argument(
        "--labels", type=Path, metavar="FILE", help="table with labels that the model was not trained on (id, name)"
    )
    promote.add_argument("version", help="a version number or an alias")
    serve = actions.add_parser("serve", help="answer rows over HTTP with a version of a registered model, until Ctrl-C")
    serve.add_argument("name", help="name of the registered model, which is the experiment's")
    serve.add_argument("--version", default="champion", help="a version number or an alias (default champion)")
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on; beyond loopback set EYRIE_AUTH")
    serve.add_argument("--port", type=int, help="default 5001, or a free one if that is taken")
    serve.set_defaults(run=_serve_model)


def _add_service_commands(commands: Any) -> None:
    serve = commands.add_parser("serve", help="run Prefect, MLflow and a worker for this work folder, until Ctrl-C")
    serve.add_argument("--profile", choices=("sqlite", "postgres"), default="sqlite", help="database of both servers")
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on; beyond loopback set EYRIE_AUTH")
    serve.add_argument("--prefect-port", type=int, help="default 4200, or a free one if that is taken")
    serve.add_argument("--mlflow-port", type=int, help="default 5000, or a free one if that is taken")
    serve.set_defaults(run=_serve)
    deploy = commands.add_parser("deploy", help="make a Prefect server hold what prefect.yaml declares, and no more")
    deploy.add_argument(
        "--no-worker-runs", action="store_true", help="no worker runs: mark runs under way as crashed, then deploy"
    )
    deploy.add_argument("presets", type=Path, nargs="*", help="deploy these presets instead, and change nothing else")
    deploy.add_argument("--flow", help="the flow that the presets are for (default: found from their content)")
    deploy.set_defaults(run=_deploy)
    init = commands.add_parser("init", help="look at files of your own, and write a preset for them")
    init.add_argument("files", type=Path, nargs="+", metavar="FILE", help="train files, and dev and test files if any")
    init.add_argument("--name", help="name of the experiment (default: that of the first file)")
    init.add_argument("--output", type=Path, help="the preset to write (default NAME.yaml)")
    init.add_argument("--text", metavar="COLUMN", help="the column with the text")
    init.add_argument("--labels", metavar="COLUMN", help="the column with the labels")
    init.set_defaults(run=_init)
    options = commands.add_parser("options", help="what can be set, with bounds and defaults")
    options.add_argument("path", nargs="?", help="such as model, model.parabel, data.reader.csv or score.cut")
    options.add_argument("--markdown", action="store_true", help="print docs/reference.md")
    options.set_defaults(run=_options)
    kernels = commands.add_parser("kernels", help="compile what runs need, once per machine; set-up does this")
    kernels.set_defaults(run=_kernels)
    env = commands.add_parser("env", help="print the variables by which other programs reach the services")
    env.set_defaults(run=_env)


def _add_backup_commands(commands: Any) -> None:
    backup = commands.add_parser("backup", help="write the whole work folder into one tar file; services may run")
    backup.add_argument("file", type=Path, help="the new file, such as eyrie-2026-01-31.tar")
    backup.set_defaults(run=_backup)
    restore = commands.add_parser("restore", help="fill an empty work folder from a backup")
    restore.add_argument("file", type=Path, help="a file that `eyrie backup` wrote")
    restore.set_defaults(run=_restore)


def _run_flow(arguments: argparse.Namespace) -> int:
    from flows.commands import run_flow

    return run_flow(arguments.flow, arguments.preset, arguments.set, arguments.json, arguments.plan)


def _suggest(arguments: argparse.Namespace) -> int:
    from flows.suggest_command import suggest

    return suggest(arguments)


def _artifacts(arguments: argparse.Namespace) -> int:
    from flows import store_commands

    return int(getattr(store_commands, f"{arguments.action}_artifacts")(arguments))


def _models(arguments: argparse.Namespace) -> int:
    from flows import model_commands

    return int(getattr(model_commands, f"{arguments.action}_models")(arguments))


def _serve(arguments: argparse.Namespace) -> int:
    from flows.operations.services import serve

    return serve(
        profile=arguments.profile,
        host=arguments.host,
        prefect_port=arguments.prefect_port,
        mlflow_port=arguments.mlflow_port,
    )


def _serve_model(arguments: argparse.Namespace) -> int:
    from flows.operations.model_server import serve_version

    return serve_version(arguments.name, arguments.version, arguments.host, arguments.port)


def _deploy(arguments: argparse.Namespace) -> int:
    from flows.operations.deploy import deploy, deploy_presets, prepare_server

    if arguments.presets:
        return deploy_presets(arguments.presets, arguments.flow)
    return prepare_server() if arguments.no_worker_runs else deploy()


def _backup(arguments: argparse.Namespace) -> int:
    from flows.operations.backup import back_up

    return back_up(arguments.file)


def _restore(arguments: argparse.Namespace) -> int:
    from flows.operations.backup import restore

    return restore(arguments.file)


def _init(arguments: argparse.Namespace) -> int:
    from flows.first_preset import write_first_preset

    name = arguments.name or arguments.files[0].name.split(".")[0]
    output = arguments.output or Path(f"{name}.yaml")
    return write_first_preset(arguments.files, name, output, arguments.text, arguments.labels)


def _options(arguments: argparse.Namespace) -> int:
    from flows.option_commands import show_options

    return show_options(arguments.path, arguments.markdown)


def _kernels(arguments: argparse.Namespace) -> int:
    from flows.kernels import compile_kernels

    return compile_kernels()


def _env(arguments: argparse.Namespace) -> int:
    from flows.operations.services import print_environment

    return print_environment()


if __name__ == "__main__":
    run_program()
