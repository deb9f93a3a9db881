"""`omnigraph login` and `logout`: the tokens of named servers."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from omnigraph.cli.credentials import credentials_path, forget_token, store_token
from omnigraph.cli.operator_config import read_operator_config
from omnigraph.cli.options import AsJson
from omnigraph.cli.output import print_json, print_text, print_warning
from omnigraph.cli.resolution import server_scope
from omnigraph.cli.scoped import scoped

ServerName = Annotated[
    str, typer.Argument(metavar="NAME", help="a server of your configuration", show_default=False)
]


@scoped("login")
def login(
    name: ServerName,
    token: Annotated[
        str | None,
        typer.Option(
            "--token", metavar="TOKEN", help="otherwise it is read", show_default=False, hidden=True
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Keep the token of a server in a file that only you can read. It is asked for, or read from standard input."""
    if token is not None:
        print_warning(
            "--token shows the token to all users who list processes, and keeps it in the history of your shell: "
            "leave it out, and type or pipe the token"
        )
    config = read_operator_config()
    if name not in config.servers:
        raise typer.BadParameter(f"give the name of a server: {_why_not(name)}")
    url = server_scope(name, config).url
    store_token(name, _read_token() if token is None else token.strip())
    if json:
        print_json({"server": name, "url": url, "credentials": str(credentials_path())})
    else:
        print_text(f"the token of {name} ({url}) is kept in {credentials_path()}")


@scoped("logout")
def logout(name: ServerName, json: AsJson = False) -> None:
    """Forget the token of a server; it is no mistake when there is none."""
    was_known = forget_token(name)
    if json:
        print_json({"server": name, "removed": was_known})
    else:
        print_text(f"forgot the token of {name}" if was_known else f"there is no token of {name}")


def _why_not(name: str) -> str:
    from omnigraph.cli.operator_config import config_path

    return f"`{name}` is not among the `servers` in {config_path()}"


def _read_token() -> str:
    if sys.stdin.isatty():
        from getpass import getpass

        return getpass("token: ").strip()
    return sys.stdin.readline().strip()
