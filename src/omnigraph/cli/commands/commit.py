"""`omnigraph commit`: the history of a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.change_lines import change_line
from omnigraph.cli.commit_lines import commit_line, time_text
from omnigraph.cli.options import AsJson, Branch, CommitId, Kinds, Operations, PageLimit, Types
from omnigraph.cli.output import print_json, print_lines, print_text
from omnigraph.cli.scope import Address
from omnigraph.cli.scoped import scoped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from omnigraph.branches.changes import ChangesPage

app = typer.Typer(
    help="Look at the history of a graph.", no_args_is_help=True, rich_markup_mode=None
)


@app.command("list")
@scoped("commit list", positional=True)
def list_commits(
    address: Address,
    branch: Branch = "main",
    filter_: Annotated[
        str | None, typer.Option("--filter", metavar="actor=ID", help="only commits of an actor")
    ] = None,
    actor: Annotated[
        str | None, typer.Option("--actor", metavar="ID", help="short form of --filter actor=ID")
    ] = None,
    json: AsJson = False,
) -> None:
    """List the commits of a branch, newest first."""
    from omnigraph.wire.commits import commit_json

    wanted = _actor(filter_, actor)
    with address.open(read_only=True) as graph:
        commits = graph.commits(branch, actor=wanted)
    if json:
        print_json({"commits": [commit_json(commit) for commit in commits]})
    elif commits:
        print_text("\n".join(commit_line(commit) for commit in commits))
    else:
        print_text("no commits")


@app.command("show")
@scoped("commit show")
def show_commit(
    commit_id: CommitId,
    address: Address,
    json: AsJson = False,
) -> None:
    """Show one commit."""
    from omnigraph.wire.commits import commit_json

    with address.open(read_only=True) as graph:
        commit = graph.commit(commit_id)
    if json:
        print_json(commit_json(commit))
        return
    facts = {
        "commit": commit.commit_id,
        "branch": commit.branch,
        "graph version": commit.graph_version,
        "parent": commit.parent_id or "none",
        "merged parent": commit.merged_parent_id,
        "merge strategy": commit.merge_strategy,
        "actor": commit.actor or "none",
        "recovered for": commit.recovery_for_actor,
        "created": time_text(commit.created_at),
        "written": None if commit.written_at is None else time_text(commit.written_at),
        "kind": commit.kind,
        "tables": ", ".join(commit.tables) or "none",
    }
    print_text(
        "\n".join(f"{name:<14} {value}" for name, value in facts.items() if value is not None)
    )


@app.command("changes")
@scoped("commit changes")
def show_changes(
    commit_id: CommitId,
    address: Address,
    limit: PageLimit = 1_000,
    page_token: Annotated[
        str | None,
        typer.Option(
            "--page-token",
            metavar="TOKEN",
            help="print one page and the token of the next one; empty for the first page",
        ),
    ] = None,
    kind: Kinds = None,
    type: Types = None,
    op: Operations = None,
    json: AsJson = False,
) -> None:
    """Show what a commit did, against its first parent: every entity before and after."""
    with address.open(read_only=True) as graph:

        def page_at(token: str | None) -> ChangesPage:
            return graph.changes(
                commit_id, kinds=kind, types=type, ops=op, limit=limit, page_token=token
            )

        pages = _follow(page_at) if page_token is None else iter([page_at(page_token or None)])
        if json:
            print_json(_document(list(pages)))
            return
        is_empty, token = True, None
        for page in pages:
            print_lines(change_line(change) for change in page.changes)
            is_empty, token = is_empty and not page.changes, page.next_page_token
    if is_empty:
        print_text("no changes")
    if token is not None:
        print_text(f"next page: {token}")


def _follow(page_at: Callable[[str | None], ChangesPage]) -> Iterator[ChangesPage]:
    page = page_at(None)
    yield page
    while page.next_page_token is not None:
        page = page_at(page.next_page_token)
        yield page


def _document(pages: list[ChangesPage]) -> dict[str, object]:
    """Pages of one commit as one document."""
    changes = [change.to_json() for page in pages for change in page.changes]
    return pages[-1].to_json() | {"changes": changes}


def _actor(filter_: str | None, actor: str | None) -> str | None:
    if filter_ is None:
        return actor
    key, _, value = filter_.partition("=")
    if key != "actor" or not value or actor is not None:
        raise typer.BadParameter("the one filter is actor=ID")
    return value
