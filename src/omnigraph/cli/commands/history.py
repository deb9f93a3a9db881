"""`omnigraph commit`, `log`, `changes` and `snapshot`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.derived import renders
from omnigraph.cli.flags import AsJson, Branch, CommitId, Kinds, Operations, PageLimit, Timeout, Types, scoped
from omnigraph.cli.history_text import BRANCH_WIDTH, cause_line, change_line, commit_line, draw_commits, time_text
from omnigraph.cli.output import print_json, print_lines, print_text, print_warning
from omnigraph.cli.scope import Address
from omnigraph.errors import BranchNotFoundError

if TYPE_CHECKING:
    from omnigraph.api.graph_api import GraphApi
    from omnigraph.branches.changes import Cause, Change, ChangesPage
    from omnigraph.branches.feed import FeedPage
    from omnigraph.commit.rows import GraphCommit
    from omnigraph.commit.snapshot import Snapshot


# ---- `omnigraph commit`


commit_app = typer.Typer(help="Look at the history of a graph.", no_args_is_help=True, rich_markup_mode=None)


@commit_app.command("list")
@scoped("commit list", positional=True)
def list_commits(
    address: Address,
    branch: Branch = "main",
    filter_: Annotated[
        str | None, typer.Option("--filter", metavar="actor=ID", help="only commits of an actor")
    ] = None,
    actor: Annotated[str | None, typer.Option("--actor", metavar="ID", help="short form of --filter actor=ID")] = None,
    json: AsJson = False,
) -> None:
    """List the commits of a branch, newest first."""
    wanted = _actor(filter_, actor)
    with address.open(read_only=True) as graph:
        commits = graph.commits(branch, actor=wanted)
    if json:
        print_json({"commits": [commit.to_json() for commit in commits]})
    elif commits:
        print_text("\n".join(commit_line(commit) for commit in commits))
    else:
        print_text("no commits")


@commit_app.command("show")
@scoped("commit show")
def show_commit(commit_id: CommitId, address: Address, json: AsJson = False) -> None:
    """Show one commit."""
    with address.open(read_only=True) as graph:
        commit = graph.commit(commit_id)
    if json:
        print_json(commit.to_json())
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
    print_text("\n".join(f"{name:<14} {value}" for name, value in facts.items() if value is not None))


@commit_app.command("changes")
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
            return graph.changes(commit_id, kinds=kind, types=type, ops=op, limit=limit, page_token=token)

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


# ---- `omnigraph log`


@scoped("log", positional=True)
def log(
    address: Address,
    branch: Annotated[
        str | None, typer.Option("--branch", metavar="NAME", help="branch; main is the default, with --graph all are")
    ] = None,
    graph: Annotated[bool, typer.Option("--graph", help="draw branches and merges, with all that was merged")] = False,
    json: AsJson = False,
) -> None:
    """Show the commits of a graph, newest first."""
    from omnigraph.commit.documents import log_of

    with address.open(read_only=True) as opened:
        if graph:
            heads = branch_heads(opened)
            commits = opened.log(branch)
        else:
            commits = opened.commits(branch or "main")
    if not graph:
        if json:
            print_json({"commits": [commit.to_json() for commit in commits]})
        else:
            print_lines(commit_line(commit) for commit in commits)
        return
    if json:
        print_json(log_of(commits, heads).to_json())
    else:
        print_lines(drawn_history(commits, heads))


def branch_heads(graph: GraphApi) -> dict[str, Snapshot]:
    """The head of every branch."""
    heads = {}
    for name in graph.branches():
        with suppress(BranchNotFoundError):  # it was deleted meanwhile
            heads[name] = graph.snapshot(name)
    return heads


def drawn_history(commits: Sequence[GraphCommit], heads: Mapping[str, Snapshot]) -> Iterator[str]:
    """Commits as lines with lanes between them; branches are named at their heads."""
    from omnigraph.commit.documents import is_of_deleted_branch

    branches = {
        commit.commit_id: f"{commit.branch} (deleted)" if is_of_deleted_branch(commit, heads) else commit.branch
        for commit in commits
    }
    width = max((len(name) for name in branches.values()), default=0)

    def describe(commit: GraphCommit) -> str:
        return commit_line(commit, branch=branches[commit.commit_id], branch_width=max(width, BRANCH_WIDTH))

    return draw_commits(commits, head_labels(heads), describe)


def head_labels(heads: Mapping[str, Snapshot]) -> dict[str, list[str]]:
    """The branches that are at a commit, by its id."""
    labels: dict[str, list[str]] = {}
    for name, head in heads.items():
        labels.setdefault(head.commit_id, []).append(name)
    return labels


# ---- `omnigraph changes`


changes_app = typer.Typer(help="Follow the changes of a branch.", no_args_is_help=True, rich_markup_mode=None)


@changes_app.command("poll")
@scoped("changes poll")
def poll(
    address: Address,
    branch: Branch = "main",
    cursor: Annotated[str | None, typer.Option("--cursor", metavar="CURSOR", help="go on from an earlier poll")] = None,
    start: Annotated[
        str | None, typer.Option("--start", metavar="WHERE", help="now (the default), beginning or after:COMMIT")
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

        pages = _follow_changes(next_page)
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


@changes_app.command("baseline")
@scoped("changes baseline")
def baseline(
    out: Annotated[str, typer.Option("--out", metavar="PATH", help="file to create", show_default=False)],
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


def _follow_changes(next_page: Callable[[str | None], FeedPage]) -> Iterator[FeedPage]:
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


# ---- `omnigraph snapshot`


@renders("get_snapshot")
def snapshot_lines(found: Snapshot) -> Iterator[str]:
    """Show which version of every dataset a branch reads, and how many entities it holds."""
    pins = [found.pins[key] for key in sorted(found.pins)]
    width = max((len(pin.table_key) for pin in pins), default=0)
    yield f"branch {found.branch} at commit {found.commit_id}, graph version {found.graph_version}"
    for pin in pins:
        yield f"  {pin.table_key:<{width}}  {pin.row_count:>12,}  version {pin.version}"
