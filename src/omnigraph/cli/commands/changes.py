"""`omnigraph changes`: what happens on a branch, for readers that come back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.change_lines import change_line
from omnigraph.cli.options import AsJson, Branch, Kinds, Operations, PageLimit, Store, Types
from omnigraph.cli.output import print_json, print_lines, print_text, print_warning
from omnigraph.cli.scope import open_graph
from omnigraph.cli.times import time_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from omnigraph.branches.changes import Cause
    from omnigraph.branches.feed import ChangeBlock, FeedPage

app = typer.Typer(
    help="Follow the changes of a branch.", no_args_is_help=True, rich_markup_mode=None
)


@app.command("poll")
def poll(
    store: Store = None,
    branch: Branch = "main",
    cursor: Annotated[
        str | None, typer.Option("--cursor", metavar="CURSOR", help="go on from the last poll")
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--start",
            metavar="WHERE",
            help="without a cursor: now (the default), beginning or after:COMMIT",
        ),
    ] = None,
    limit: PageLimit = 1_000,
    kind: Kinds = None,
    type: Types = None,
    op: Operations = None,
    json: AsJson = False,
) -> None:
    """Print what happened on a branch since a cursor, commit by commit, and the cursor for the next time.

    The cursor comes last, and only when everything before it was printed: keep it together with what you did with
    the changes.
    """
    if cursor is not None and start is not None:
        raise typer.BadParameter("give one of --cursor and --start")
    with open_graph(None, store, read_only=True) as graph:
        poll = _Poll(
            lambda **where: graph.feed(
                branch, **where, limit=limit, kinds=kind, types=type, ops=op
            ),
            cursor=cursor,
            start=start,
        )
        if json:
            blocks = _merged(poll.blocks())
            print_json(
                {"blocks": blocks, "cursor": poll.last.cursor, "caught_up": poll.last.caught_up}
            )
            return
        print_lines(_lines(poll.blocks()))
    if not poll.last.caught_up:
        print_warning("there are more commits: poll again with this cursor")
    print_text(f"cursor: {poll.last.cursor}")


@app.command("baseline")
def baseline(
    out: Annotated[
        str,
        typer.Option("--out", metavar="PATH", help="file to create", show_default=False),
    ],
    store: Store = None,
    branch: Branch = "main",
    kind: Kinds = None,
    type: Types = None,
    op: Operations = None,
    json: AsJson = False,
) -> None:
    """Write every entity of a branch as JSON lines, and print the cursor from which its changes go on."""
    if out == "-":
        raise typer.BadParameter("a baseline is a file: the cursor is good once it is on the disk")
    with open_graph(None, store, read_only=True) as graph:
        result = graph.baseline(branch, out=out, kinds=kind, types=type, ops=op)
    if json:
        print_json(result.to_json())
        return
    entities = "1 entity" if result.entities == 1 else f"{result.entities:,} entities"
    print_text(f"{entities} of commit {result.snapshot_commit_id} in {result.target}")
    print_text(f"cursor: {result.resume_cursor}")


def _lines(blocks: Iterable[ChangeBlock]) -> Iterator[str]:
    """A line per commit, and its changes under it."""
    last = None
    for block in blocks:
        # The changes of one commit may come on several pages.
        if block.cause != last:
            yield cause_line(block.cause)
        last = block.cause
        for change in block.changes:
            yield f"  {change_line(change)}"


def _merged(blocks: Iterable[ChangeBlock]) -> list[dict[str, object]]:
    """The blocks as JSON, one per commit."""
    found: dict[str, tuple[Cause, list[Change]]] = {}
    for block in blocks:
        _, changes = found.setdefault(block.cause.graph_commit_id, (block.cause, []))
        changes += block.changes
    return [
        {"cause": cause.to_json(), "changes": [change.to_json() for change in changes]}
        for cause, changes in found.values()
    ]
