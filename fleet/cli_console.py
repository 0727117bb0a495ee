"""`fleet console`: the on-call page; `fleet console token NAME`: a token to log in with.

The context's object is what loads the application.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.app import process_broker, settings
from fleet.errors import FleetError

if TYPE_CHECKING:
    from fleet.app import App

cli = typer.Typer(help="The on-call page, and tokens to log in with.")


class ConsoleNotInstalled(FleetError):
    """Raised when the console is started and what its extra installs is not there."""


@cli.callback(invoke_without_command=True)
def console(
    context: typer.Context,
    host: Annotated[str | None, typer.Option(help="Where to listen; FLEET_CONSOLE_HOST, else 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(help="FLEET_CONSOLE_PORT, else 8310; 0: a free one.")] = None,
) -> None:
    """Serve the on-call page until Ctrl-C; outside loopback only to who logs in."""
    if context.invoked_subcommand is not None:
        return
    _require_installed()
    from fleet.console.serving import serve
    from fleet.servers import require_broker

    app: App = context.obj()
    configured = settings()
    require_broker(process_broker(), "console")
    listens = host or configured.console_host
    serve(app, configured, listens, configured.console_port if port is None else port)


@cli.command()
def token(
    name: Annotated[str, typer.Argument(help="Whose it is; one a person, as the audit will name them.")],
    role: Annotated[str, typer.Option(help="`read`, or `operate`, which may change things.")] = "read",
) -> None:
    """Draw a token: said once, with the line that lets it in."""
    from fleet.console import tokens
    from fleet.errors import DeclarationInvalid

    if role not in ("read", "operate"):
        raise DeclarationInvalid(f"--role {role!r}: give read or operate.")
    secret, line = tokens.draw(name, "operate" if role == "operate" else "read")
    tokens.read(line, None)  # a name that its line could not hold
    typer.echo(f"The token, for {name} alone; it is not shown again:\n\n  {secret}\n")
    typer.echo(f"The line for the file that FLEET_CONSOLE_TOKENS_FILE names:\n\n  {line}")


def _require_installed() -> None:
    needs = {"starlette": "starlette", "uvicorn": "uvicorn", "jinja2": "jinja2", "itsdangerous": "itsdangerous"}
    needs |= {"python_multipart": "python-multipart"}
    missing = [package for module, package in needs.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise ConsoleNotInstalled(
            f"The console needs {', '.join(missing)}, not installed here: in the checkout, pip install '.[console]'."
        )
