"""The `omnigraph` executable: commands, exit codes, and the edge where failures become messages."""

from __future__ import annotations

import os
import sys
import traceback
from typing import TYPE_CHECKING, Annotated

import typer
from typer.exceptions import TyperException

from omnigraph.cli.capabilities import legend
from omnigraph.cli.commands import (
    alias,
    blob,
    branch,
    changes,
    cleanup,
    commit,
    demo,
    diff,
    doctor,
    embed,
    explain,
    export,
    graphs,
    init,
    lint,
    load,
    log,
    login,
    mutate,
    optimize,
    policy,
    profile,
    queries,
    query,
    recovery,
    repair,
    schema,
    snapshot,
    verify,
    version,
)
from omnigraph.cli.interrupts import INTERRUPTED, Interrupts, taking_interrupts
from omnigraph.cli.output import guarded_streams, print_error, print_json, print_warning
from omnigraph.cli.scoped import use_scoped_commands
from omnigraph.cli.words import arranged, wants_json
from omnigraph.errors import OmniError, is_panic

if TYPE_CHECKING:
    from collections.abc import Sequence

app = typer.Typer(
    name="omnigraph",
    help="A typed property graph on Lance datasets, with branches, merges, history and time travel.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog=legend(),
    context_settings={"help_option_names": ["--help", "-h"]},
)
app.command("init")(init.init)
app.command("load")(load.load)
app.command("ingest", hidden=True)(load.ingest)
app.command("mutate")(mutate.mutate)
app.command("query")(query.query)
app.command("export")(export.export)
app.command("snapshot")(snapshot.snapshot)
app.command("diff")(diff.diff)
app.command("log")(log.log)
app.command("embed")(embed.embed)
app.command("optimize")(optimize.optimize)
app.command("cleanup")(cleanup.cleanup)
app.command("repair")(repair.repair)
app.command("doctor")(doctor.doctor)
app.command("verify")(verify.verify)
app.command("version")(version.version)
app.command("lint")(lint.lint)
app.command("explain")(explain.explain)
app.command("demo")(demo.demo)
app.command("alias")(alias.alias)
app.command("login")(login.login)
app.command("logout")(login.logout)
app.add_typer(schema.app, name="schema")
app.add_typer(blob.app, name="blob")
app.add_typer(branch.app, name="branch")
app.add_typer(commit.app, name="commit")
app.add_typer(changes.app, name="changes")
app.add_typer(recovery.app, name="recovery")
app.add_typer(queries.app, name="queries")
app.add_typer(policy.app, name="policy")
app.add_typer(graphs.app, name="graphs")
app.add_typer(profile.app, name="profile")

use_scoped_commands(app)

#: Commands that have commands below them.
_GROUPS = frozenset(group.name for group in app.registered_groups if isinstance(group.name, str))


def _print_version(requested: bool) -> None:
    if requested:
        version.show_version()
        raise typer.Exit


@app.callback()
def _global_options(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", "-v", callback=_print_version, is_eager=True, help="print the release"
        ),
    ] = False,
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and end the process with its exit code."""
    if arguments is not None:
        with guarded_streams():
            _run(list(arguments), Interrupts())
        return
    # The process is that of the command.
    with taking_interrupts() as interrupts, guarded_streams():
        _run(sys.argv[1:], interrupts)


def _run(words: list[str], interrupts: Interrupts) -> None:
    words = arranged(words, _GROUPS)
    as_json = wants_json(words)
    try:
        # Standing alone, it prints wrong command lines itself, for people.
        code = app(args=words, prog_name="omnigraph", standalone_mode=not as_json)
        sys.exit(code or 0)
    except SystemExit as end:
        if end.code != INTERRUPTED:
            raise
        _print_interrupt(end, interrupts, as_json=as_json)
        sys.exit(interrupts.exit_code)
    except TyperException as error:
        message = error.format_message().removeprefix("Invalid value: ")
        print_json({"error": message, "kind": "usage", "code": "bad_request"})
        sys.exit(error.exit_code)
    except typer.Abort:
        print_warning("aborted: there was nothing more to read")
        sys.exit(1)
    except OmniError as error:
        print_error(error, as_json=as_json)
        # A signal to the whole group ends Spark too, and its failure may come first.
        sys.exit(error.exit_code if interrupts.stopped_by is None else interrupts.exit_code)
    except BaseException as error:
        # The outermost edge: a person never sees a stack trace unasked.
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        if os.environ.get("OMNIGRAPH_DEBUG"):
            traceback.print_exc()
        else:
            print_warning(f"internal error: {error!r} (set OMNIGRAPH_DEBUG=1 for the stack trace)")
        sys.exit(1)


def _print_interrupt(end: BaseException, interrupts: Interrupts, *, as_json: bool) -> None:
    """One sentence about work that Ctrl-C or another signal stopped, with what it says about itself."""
    cause: BaseException | None = end
    # With --json Typer gives a code instead of what was raised.
    notes = list(interrupts.notes)
    while cause is not None:
        notes += getattr(cause, "__notes__", [])
        cause = cause.__cause__ or cause.__context__
    sentence = "; ".join([interrupts.sentence, *dict.fromkeys(notes)])
    if as_json:
        print_json({"error": sentence, "kind": "interrupted", "code": "cancelled"})
    else:
        print_warning(sentence)
