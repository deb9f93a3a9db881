"""`omnigraph branch`, `diff`, `commit`, `log`, `changes` and `snapshot`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, TypeVar

import click

from omnigraph.cli.command_line import Argument, Option, Words
from omnigraph.cli.console import (
    StreamedList,
    print_json,
    print_lines,
    print_result,
    print_text,
    print_warning,
    terminal_progress,
)
from omnigraph.cli.flags import (
    AsJson,
    Branch,
    ChangeFilter,
    CommitId,
    EngineChoice,
    NoPager,
    PageLimit,
    Quiet,
    Timeout,
    refuse_address,
)
from omnigraph.cli.rendering import (
    BRANCH_WIDTH,
    cause_line,
    change_line,
    commit_line,
    commit_text,
    conflict_lines,
    diff_lines,
    draw_commits,
    first_line,
    time_text,
    type_changes_line,
)
from omnigraph.cli.scope import Address
from omnigraph.cli.scoped import CommandGroup, derived, scoped
from omnigraph.cli.screen import print_pages
from omnigraph.cli.tables import counted
from omnigraph.errors import BranchNotFoundError
from omnigraph.errors.text import one_line
from omnigraph.pipeline.engine_choice import Engine

if TYPE_CHECKING:
    from omnigraph.api.graph_api import GraphApi
    from omnigraph.api.results import BranchReceipt, MergeResult
    from omnigraph.branches.changes import Cause, Change, ChangesPage
    from omnigraph.branches.feed import FeedPage
    from omnigraph.commit.rows import GraphCommit
    from omnigraph.commit.snapshot import Snapshot
    from omnigraph.commit.tags import Tag

_Page = TypeVar("_Page", "ChangesPage", "FeedPage")


# ---- `omnigraph branch`


branch_app = CommandGroup(help="Create, merge and delete branches.")


@branch_app.register("create")
@derived("create_branch")
def create_branch(receipt: BranchReceipt) -> Iterator[str]:
    """Create a branch at the head of another one, or at a commit; no data is copied."""
    yield f"created branch {receipt.name} from {receipt.base}"


@branch_app.register("list")
@derived("list_branches")
def list_branches(branches: list[str]) -> list[str]:
    """List the branches, sorted by name."""
    return branches


@branch_app.register("delete")
@derived("delete_branch")
def delete_branch(receipt: BranchReceipt) -> Iterator[str]:
    """Delete a branch, with all of its commits that were not merged."""
    yield f"deleted branch {receipt.name}"


@branch_app.register("merge")
@derived("merge_branches")
def merge_branch(result: MergeResult) -> Iterator[str]:
    """Merge a branch into another one, row by row: all of it becomes visible in one commit, or nothing does."""
    yield from merge_lines(result)
    if result.branch_delete_error is not None:
        print_warning(f"branch {result.source} was not deleted: {result.branch_delete_error}")


def merge_lines(result: MergeResult) -> Iterator[str]:
    """The receipt, or the preview, as a person reads it."""
    source, target = result.source, result.target
    if result.conflict_total:
        yield from conflict_lines(source, target, result.conflicts, result.conflict_total)
        return
    how = str(result.outcome)
    if result.strategy is not None:
        how += f" with strategy {result.strategy}"
    if result.outcome == "already_up_to_date":
        yield f"nothing to merge from {source} into {target}: {result.outcome}"
    elif result.commit is None:
        yield f"{source} would be merged into {target}: {how}; nothing was written"
    else:
        yield f"merged {source} into {target}: {how}, commit {commit_text(result.commit.commit_id)}"
    width = max((len(change.type_key) for change in result.changes), default=0)
    yield from (type_changes_line(change, width=width) for change in result.changes)
    if result.branch_deleted:
        yield f"deleted branch {source}"


# ---- `omnigraph tag`


tag_app = CommandGroup(help="Name commits, so that their states stay readable.")


@tag_app.register("create")
@derived("create_tag")
def create_tag(tag: Tag) -> Iterator[str]:
    """Name a commit, by default the newest one of main. A tag never moves."""
    yield f"created tag {tag.name} at commit {commit_text(tag.commit_id)}"


@tag_app.register("list")
@derived("list_tags")
def list_tags(tags: list[Tag]) -> Iterator[str]:
    """List the tags, sorted by name."""
    width = max((len(tag.name) for tag in tags), default=0)
    for tag in tags:
        reason = "" if tag.message is None else f"  {first_line(tag.message)}"
        yield f"{tag.name:<{width}}  {commit_text(tag.commit_id)}  {time_text(tag.created_at)}{reason}"
    if not tags:
        yield "no tags"


@tag_app.register("delete")
@derived("delete_tag")
def delete_tag(tag: Tag) -> Iterator[str]:
    """Delete a tag. Its commit stays, as long as something else keeps it."""
    yield f"deleted tag {tag.name} of commit {commit_text(tag.commit_id)}"


# ---- `omnigraph diff`


@scoped("diff")
def diff(
    one: Annotated[str, Argument(metavar="FROM", help="branch or commit", callback=refuse_address, words=Words.BRANCH)],
    other: Annotated[str, Argument(metavar="TO", help="branch or commit", callback=refuse_address, words=Words.BRANCH)],
    address: Address,
    only: ChangeFilter,
    engine: EngineChoice = Engine.AUTO,
    timeout: Timeout = None,
    no_pager: NoPager = False,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Show what turns one state of a graph into another: entities that came (+), changed (~) and went (-)."""
    if engine is not Engine.AUTO:
        address.refuse_on_server("--engine")
    with (
        address.open(read_only=True) as graph,
        graph.diff(
            one, other, engine=engine, progress=terminal_progress(quiet=quiet), timeout_s=timeout, **only.arguments()
        ) as found,
    ):
        if json:
            changes = StreamedList(found, lambda change: change.to_json())
            print_json({**found.summary.to_json(), "changes": changes})
            return
        print_pages(diff_lines(found, one, other), is_allowed=not no_pager)


# ---- `omnigraph commit`


commit_app = CommandGroup(help="Look at the history of a graph.")


@commit_app.register("list")
@scoped("commit list")
def list_commits(
    address: Address,
    branch: Branch = "main",
    all_branches: Annotated[
        bool, Option("--all-branches", help="commits of all branches, also those that were merged")
    ] = False,
    filter_: Annotated[str | None, Option("--filter", metavar="actor=ID", help="only commits of an actor")] = None,
    actor: Annotated[str | None, Option("--actor", metavar="ID", help="short form of --filter actor=ID")] = None,
    no_pager: NoPager = False,
    json: AsJson = False,
) -> None:
    """List the commits of a branch or of all branches, newest first."""
    from omnigraph.api.answers import Commits

    wanted = _actor(filter_, actor)
    if all_branches and branch != "main":
        raise click.UsageError("give --branch or --all-branches, not both")
    with address.open(read_only=True) as graph:
        commits = graph.commits(branch, actor=wanted, all_branches=all_branches)
    if json:
        print_json(Commits(commits=commits).to_json())
        return
    width = max((len(commit.branch) for commit in commits), default=0)
    lines = [commit_line(commit, branch_width=max(width, BRANCH_WIDTH)) for commit in commits]
    print_pages(lines or ["no commits"], is_allowed=not no_pager)


@commit_app.register("show")
@derived("get_commit")
def show_commit(commit: GraphCommit) -> Iterator[str]:
    """Show one commit."""
    facts = {
        "commit": commit.commit_id,
        "branch": commit.branch,
        "graph version": commit.graph_version,
        "parent": commit.parent_id or "none",
        "merged parent": commit.merged_parent_id,
        "merge strategy": commit.merge_strategy,
        "actor": commit.actor or "none",
        "recovered for": commit.recovery_for_actor,
        "message": None if commit.message is None else f"\n{'':<15}".join(map(one_line, commit.message.splitlines())),
        "metadata": None if commit.metadata is None else json.dumps(commit.metadata, ensure_ascii=False),
        "created": time_text(commit.created_at),
        "written": None if commit.written_at is None else time_text(commit.written_at),
        "kind": commit.kind,
        "tables": ", ".join(commit.tables) or "none",
    }
    return (f"{name:<14} {value}" for name, value in facts.items() if value is not None)


@commit_app.register("changes")
@scoped("commit changes")
def show_changes(
    commit_id: CommitId,
    address: Address,
    *,
    limit: PageLimit = 1_000,
    page_token: Annotated[
        str | None,
        Option(
            "--page-token",
            metavar="TOKEN",
            help="print one page and the token of the next one; empty for the first page",
        ),
    ] = None,
    only: ChangeFilter,
    no_pager: NoPager = False,
    json: AsJson = False,
) -> None:
    """Show what a commit did, against its first parent: every entity before and after."""
    with address.open(read_only=True) as graph:

        def page_at(token: str | None) -> ChangesPage:
            return graph.changes(commit_id, limit=limit, page_token=token, **only.arguments())

        pages = _follow(page_at) if page_token is None else iter([page_at(page_token or None)])
        if json:
            print_json(_document(list(pages)))
            return
        print_pages(_change_lines(pages), is_allowed=not no_pager)


def _change_lines(pages: Iterator[ChangesPage]) -> Iterator[str]:
    """The changes of pages, and what comes behind them."""
    is_empty, token = True, None
    for page in pages:
        yield from map(change_line, page.changes)
        is_empty, token = is_empty and not page.changes, page.next_page_token
    if is_empty:
        yield "no changes"
    if token is not None:
        yield f"next page: {token}"


def _follow(page_at: Callable[[str | None], _Page]) -> Iterator[_Page]:
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
        raise click.BadParameter("the one filter is actor=ID")
    return value


# ---- `omnigraph log`


@scoped("log")
def log(
    address: Address,
    branch: Annotated[
        str | None,
        Option(
            "--branch", metavar="NAME", help="branch; main is the default, with --graph all are", words=Words.BRANCH
        ),
    ] = None,
    graph: Annotated[bool, Option("--graph", help="draw branches and merges, with all that was merged")] = False,
    no_pager: NoPager = False,
    json: AsJson = False,
) -> None:
    """Show the commits of a graph, newest first."""
    from omnigraph.api.answers import Commits
    from omnigraph.commit.lineage import log_of

    with address.open(read_only=True) as opened:
        if graph:
            heads = branch_heads(opened)
            commits = opened.log(branch)
        else:
            commits = opened.commits(branch or "main")
    if json:
        print_json((log_of(commits, heads) if graph else Commits(commits=commits)).to_json())
    else:
        lines = drawn_history(commits, heads) if graph else map(commit_line, commits)
        print_pages(lines, is_allowed=not no_pager)


def branch_heads(graph: GraphApi) -> dict[str, Snapshot]:
    """The head of every branch."""
    heads = {}
    for name in graph.branches():
        with suppress(BranchNotFoundError):  # it was deleted meanwhile
            heads[name] = graph.snapshot(name)
    return heads


def drawn_history(commits: Sequence[GraphCommit], heads: Mapping[str, Snapshot]) -> Iterator[str]:
    """Commits as lines with lanes between them; branches are named at their heads."""
    from omnigraph.commit.lineage import is_of_deleted_branch

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


changes_app = CommandGroup(help="Follow the changes of a branch.")


@changes_app.register("poll")
@scoped("changes poll")
def poll(
    address: Address,
    *,
    branch: Branch = "main",
    cursor: Annotated[str | None, Option("--cursor", metavar="CURSOR", help="go on from an earlier poll")] = None,
    start: Annotated[
        str | None, Option("--start", metavar="WHERE", help="now (the default), beginning or after:COMMIT")
    ] = None,
    limit: PageLimit = 1_000,
    only: ChangeFilter,
    json: AsJson = False,
) -> None:
    """Print what happened on a branch since a cursor, commit by commit, and the cursor for the next poll.

    The cursor comes last, after everything that it stands behind: keep it together with what you made of the changes.
    """
    if cursor is not None and start is not None:
        raise click.BadParameter("give one of --cursor and --start")
    with address.open(read_only=True) as graph:

        def next_page(page_token: str | None) -> FeedPage:
            begin = (cursor, start) if page_token is None else (None, None)
            return graph.feed(branch, *begin, limit=limit, page_token=page_token, **only.arguments())

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


@changes_app.register("baseline")
@scoped("changes baseline")
def baseline(
    out: Annotated[str, Option("--out", metavar="PATH", help="file to create", show_default=False)],
    address: Address,
    *,
    branch: Branch = "main",
    only: ChangeFilter,
    timeout: Timeout = None,
    json: AsJson = False,
) -> None:
    """Write every entity of a branch as JSON lines, and print the cursor from which its changes go on."""
    if out == "-":
        raise click.BadParameter("a baseline is a file, not standard output")
    with address.open(read_only=True) as graph:
        result = graph.baseline(branch, out=out, timeout_s=timeout, **only.arguments())
    entities, commit = counted(result.entities, "entity", "entities"), commit_text(result.snapshot_commit_id)
    written = f"{entities} of commit {commit} in {result.target}"
    print_result(result, (written, f"cursor: {result.resume_cursor}"), json=json)


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


@derived("get_snapshot")
def snapshot(found: Snapshot) -> Iterator[str]:
    """Show which version of every dataset a branch reads, and how many entities it holds."""
    pins = [found.pins[key] for key in sorted(found.pins)]
    width = max((len(pin.table_key) for pin in pins), default=0)
    yield f"branch {found.branch} at commit {commit_text(found.commit_id)}, graph version {found.graph_version}"
    for pin in pins:
        yield f"  {pin.table_key:<{width}}  {pin.row_count:>12,}  version {pin.version}"
