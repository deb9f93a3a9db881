"""`omnigraph changes`: what happens on a branch, for readers that come back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.change_lines import change_line
from omnigraph.cli.commit_lines import cause_line
from omnigraph.cli.options import AsJson, Branch, Kinds, Operations, PageLimit, Timeout, Types
from omnigraph.cli.output import print_json, print_lines, print_text, print_warning
from omnigraph.cli.scope import Address
from omnigraph.cli.scoped import scoped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from omnigraph.branches.changes import Cause, Change
    from omnigraph.branches.feed import FeedPage

app = typer.Typer(
    help="Follow the changes of a branch.", no_args_is_help=True, rich_markup_mode=None
)


@app.command("poll")
@scoped("changes poll")
def poll(
    address: Address,
    branch: Branch = "main",
    cursor: Annotated[
        str | None, typer.Option("--cursor", metavar="CURSOR", help="go on from an earlier poll")
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--start", metavar="WHERE", help="now (the default), beginning or after:COMMIT"
        ),
    ] = None,
    limit: PageLimit = 1_000,
    kind: Kinds = None,
    type: Types = None,
    op: Operations = None,
    json: AsJson = False,
) -> None:
    """Print what happened on a branch since a cursor, commit by commit, and the cursor for the next poll.

    The cursor comes last, after everything that it stands behind: keep it together with what you made of the changes.
    """
    if cursor is not None and start is not None:
        raise typer.BadParameter("give one of --cursor and --start")
    with address.open(read_only=True) as graph:

        def next_page(page_token: str | None) -> FeedPage:
            is_first = page_token is None
            return graph.feed(
                branch,
                cursor if is_first else None,
                start if is_first else None,
                kinds=kind,
                types=type,
                ops=op,
                limit=limit,
                page_token=page_token,
            )

        pages = _follow(next_page)
        if json:
            found = list(pages)
            last = found[-1]
            blocks = _blocks(found)
            print_json({"blocks": blocks, "cursor": last.cursor, "caught_up": last.caught_up})
            return
        last = _print_blocks(pages)
    if not last.caught_up:
        print_warning("there are more commits: poll again with this cursor")
    print_text(f"cursor: {last.cursor}")


@app.command("baseline")
@scoped("changes baseline")
def baseline(
    out: Annotated[
        str, typer.Option("--out", metavar="PATH", help="file to create", show_default=False)
    ],
    address: Address,
    branch: Branch = "main",
    kind: Kinds = None,
    type: Types = None,
    op: Operations = None,
    timeout: Timeout = None,
    json: AsJson = False,
) -> None:
    """Write every entity of a branch as JSON lines, and print the cursor from which its changes go on."""
    if out == "-":
        raise typer.BadParameter("a baseline is a file, not standard output")
    with address.open(read_only=True) as graph:
        result = graph.baseline(branch, out=out, kinds=kind, types=type, ops=op, timeout_s=timeout)
    if json:
        print_json(result.to_json())
        return
    entities = "1 entity" if result.entities == 1 else f"{result.entities:,} entities"
    print_text(f"{entities} of commit {result.snapshot_commit_id} in {result.target}")
    print_text(f"cursor: {result.resume_cursor}")


def _follow(next_page: Callable[[str | None], FeedPage]) -> Iterator[FeedPage]:
    page = next_page(None)
    yield page
    while page.next_page_token is not None:
        page = next_page(page.next_page_token)
        yield page


def _print_blocks(pages: Iterator[FeedPage]) -> FeedPage:
    """A line per commit and its changes under it, page by page; gives the last page."""
    page, cause = None, None
    for page in pages:
        for block in page.blocks:
            # The changes of one commit may come on several pages.
            if block.cause != cause:
                print_text(cause_line(block.cause))
            cause = block.cause
            print_lines(f"  {change_line(change)}" for change in block.changes)
    assert page is not None, "a feed has one page at least"
    return page


def _blocks(pages: list[FeedPage]) -> list[dict[str, object]]:
    """The blocks of all pages as JSON, one per commit."""
    found: dict[str, tuple[Cause, list[Change]]] = {}
    for page in pages:
        for block in page.blocks:
            _, changes = found.setdefault(block.cause.graph_commit_id, (block.cause, []))
            changes += block.changes
    return [
        {"cause": cause.to_json(), "changes": [change.to_json() for change in changes]}
        for cause, changes in found.values()
    ]
