"""`omnigraph profile`, `login`, `logout` and `version`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import click

from omnigraph import INTERNAL_SCHEMA_VERSION, __version__
from omnigraph.cli.capabilities import RULES
from omnigraph.cli.command_line import Argument, Option
from omnigraph.cli.config import (
    OperatorConfig,
    Profile,
    active_profile,
    config_path,
    credentials_path,
    forget_token,
    read_operator_config,
    store_token,
)
from omnigraph.cli.console import print_result, print_text, print_warning
from omnigraph.cli.flags import AsJson
from omnigraph.cli.scope import ScopeFlags, ServerScope, profile_scope, resolve_scope, server_scope
from omnigraph.cli.scoped import CommandGroup, scoped
from omnigraph.cli.tables import text_table
from omnigraph.frozen import frozen

# ---- `omnigraph profile`


app = CommandGroup(help="Look at the scopes of your configuration.")

#: How the defaults are called beside the profiles.
_DEFAULTS = "(defaults)"


@frozen(kw_only=True)
class ScopeView:
    """A scope as it is shown; `binding` is what the file says, `target` what it stands for."""

    name: str | None
    binding: str | None
    scope_kind: str | None
    target: str | None
    valid: bool
    error: str | None
    default_graph: str | None
    active: bool


@app.register("list")
@scoped("profile list")
def list_profiles(json: AsJson = False) -> None:
    """List the profiles and the defaults; a star marks what holds now."""
    views = list(scope_views(read_operator_config(), active_profile()))
    rows = [
        [
            "*" if view.active else "",
            view.name or _DEFAULTS,
            view.scope_kind or "",
            view.target or view.binding or "",
            view.default_graph or "",
            "" if view.valid else "not valid",
        ]
        for view in views
    ]
    table = list(text_table(["", "profile", "kind", "target", "graph", ""], rows))
    print_result({"profiles": [asdict(view) for view in views]}, table or ["no profiles"], json=json)


@app.register("show")
@scoped("profile show")
def show_profile(
    name: Annotated[str | None, Argument(metavar="NAME", help="the one that holds, if left out")] = None,
    json: AsJson = False,
) -> None:
    """Show one profile, or the scope that holds now."""
    views = list(scope_views(read_operator_config(), active_profile()))
    found = next((v for v in views if (v.active if name is None else v.name == name)), None)
    if found is None:
        which = "no scope holds" if name is None else f"there is no profile `{name}`"
        names = ", ".join(view.name for view in views if view.name is not None)
        raise click.BadParameter(f"{which}: your configuration has {names or 'no profiles'}")
    facts = {
        "profile": found.name or _DEFAULTS,
        "kind": found.scope_kind,
        "binding": found.binding,
        "target": found.target,
        "graph": found.default_graph,
        "active": "yes" if found.active else "no",
        "error": found.error,
    }
    lines = (f"{key:<8} {value}" for key, value in facts.items() if value is not None)
    print_result(asdict(found), lines, json=json)


def scope_views(config: OperatorConfig, active: str | None) -> Iterator[ScopeView]:
    """Every profile, and the defaults when they name a scope."""
    for name in sorted(config.profiles):
        yield _view(name, config.profiles[name], config, is_active=name == active)
    if active and active not in config.profiles:
        yield _view(active, Profile(), config, is_active=True)
    defaults = config.defaults
    if defaults.server is not None or defaults.store is not None:
        scope = Profile(server=defaults.server, store=defaults.store, default_graph=defaults.default_graph)
        yield _view(None, scope, config, is_active=not active)


def _view(name: str | None, profile: Profile, config: OperatorConfig, *, is_active: bool) -> ScopeView:
    kinds = [kind for kind in ("server", "cluster", "store") if getattr(profile, kind) is not None]
    target, error = None, None
    try:
        flags = ScopeFlags()
        scope = resolve_scope(flags, RULES["query"], config, None) if name is None else profile_scope(name, config)
        target = scope.url if isinstance(scope, ServerScope) else scope.uri
    except click.BadParameter as refused:
        error = refused.message
    return ScopeView(
        name=name,
        binding=getattr(profile, kinds[0]) if len(kinds) == 1 else None,
        scope_kind=kinds[0] if len(kinds) == 1 else None,
        target=target,
        valid=error is None,
        error=error,
        default_graph=profile.default_graph,
        active=is_active,
    )


# ---- `omnigraph login` and `logout`


ServerName = Annotated[str, Argument(metavar="NAME", help="a server of your configuration")]


@scoped("login")
def login(
    name: ServerName,
    token: Annotated[
        str | None, Option("--token", metavar="TOKEN", help="otherwise it is read", show_default=False, hidden=True)
    ] = None,
    json: AsJson = False,
) -> None:
    """Store the token of a server in a file that only you can read. Prompts for it, or reads standard input."""
    if token is not None:
        print_warning(
            "--token shows the token to all users who list processes, and keeps it in the history of your shell: "
            "leave it out, and type or pipe the token"
        )
    config = read_operator_config()
    if name not in config.servers:
        raise click.BadParameter(f"give the name of a server: `{name}` is not among the `servers` in {config_path()}")
    url = server_scope(name, config).url
    store_token(name, _read_token() if token is None else token.strip())
    document = {"server": name, "url": url, "credentials": str(credentials_path())}
    print_result(document, [f"the token of {name} ({url}) is kept in {credentials_path()}"], json=json)


@scoped("logout")
def logout(name: ServerName, json: AsJson = False) -> None:
    """Forget the token of a server, if one is stored."""
    was_known = forget_token(name)
    line = f"forgot the token of {name}" if was_known else f"there is no token of {name}"
    print_result({"server": name, "removed": was_known}, [line], json=json)


def _read_token() -> str:
    if sys.stdin.isatty():
        from getpass import getpass

        return getpass("token: ").strip()
    return sys.stdin.readline().strip()


# ---- `omnigraph version`


@scoped("version")
def version() -> None:
    """Print the release and the storage format it reads and writes."""
    show_version()


def show_version() -> None:
    """Print them; `--version` does the same."""
    print_text(f"omnigraph {__version__}\ninternal-schema {INTERNAL_SCHEMA_VERSION}")
