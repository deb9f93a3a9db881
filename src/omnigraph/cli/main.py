"""The `omnigraph` executable: commands, exit codes, and the edge where failures become messages."""

from __future__ import annotations

import os
import sys
import traceback
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.commands import (
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
    init,
    lint,
    load,
    log,
    mutate,
    optimize,
    policy,
    queries,
    query,
    recovery,
    repair,
    schema,
    snapshot,
    version,
)
from omnigraph.cli.output import print_error, print_warning
from omnigraph.errors import OmniError

if TYPE_CHECKING:
    from collections.abc import Sequence

app = typer.Typer(
    name="omnigraph",
    help="A typed property graph on Lance datasets, with branches, merges, history and time travel.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
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
app.command("version")(version.show_version)
app.command("lint")(lint.lint)
app.command("explain")(explain.explain)
app.command("demo")(demo.demo)
app.add_typer(schema.app, name="schema")
app.add_typer(blob.app, name="blob")
app.add_typer(branch.app, name="branch")
app.add_typer(commit.app, name="commit")
app.add_typer(changes.app, name="changes")
app.add_typer(recovery.app, name="recovery")
app.add_typer(queries.app, name="queries")
app.add_typer(policy.app, name="policy")

#: Old spellings of commands, rewritten before parsing.
_RENAMED = {
    ("check",): ("lint",),
    ("query", "lint"): ("lint",),
    ("query", "check"): ("lint",),
    ("change",): ("mutate",),
    ("read",): ("query",),
}

#: Flags that may stand before the command as well; with the number of words they take.
_GLOBAL = {"--as": 2, "--store": 2, "--json": 1, "--yes": 1, "--quiet": 1}


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
    words = _rewrite(list(sys.argv[1:] if arguments is None else arguments))
    try:
        app(args=words, prog_name="omnigraph")
    except OmniError as error:
        print_error(error, as_json="--json" in words)
        sys.exit(error.exit_code)
    except Exception as error:  # noqa: BLE001  # the outermost edge: a person never sees a stack trace unasked
        if os.environ.get("OMNIGRAPH_DEBUG"):
            traceback.print_exc()
        else:
            print_warning(f"internal error: {error!r} (set OMNIGRAPH_DEBUG=1 for the stack trace)")
        sys.exit(1)


def _rewrite(words: list[str]) -> list[str]:
    words = _behind_command(words)
    for old, new in _RENAMED.items():
        if tuple(words[: len(old)]) == old:
            print_warning(f"`{' '.join(old)}` is deprecated: use `{' '.join(new)}`")
            return [*new, *words[len(old) :]]
    return words


def _behind_command(words: list[str]) -> list[str]:
    """Global flags before the command, moved behind it."""
    moved: list[str] = []
    while words and (name := words[0].partition("=")[0]) in _GLOBAL:
        count = _GLOBAL[name] if name == words[0] else 1
        moved += words[:count]
        words = words[count:]
    return words + moved if words else moved
