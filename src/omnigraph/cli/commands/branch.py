"""`omnigraph branch` and `diff`."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.flags import (
    AsJson,
    BranchName,
    Consent,
    EngineChoice,
    Kinds,
    Operations,
    Quiet,
    Timeout,
    Types,
    WorkerName,
    refuse_address,
    scoped,
)
from omnigraph.cli.history_text import conflict_lines, diff_summary, net_change_line
from omnigraph.cli.output import StreamedList, print_json, print_lines, print_text, print_warning, terminal_progress
from omnigraph.cli.scope import Address
from omnigraph.errors import MergeConflictsError

if TYPE_CHECKING:
    from omnigraph.api.results import MergeResult


# ---- `omnigraph branch`


app = typer.Typer(help="Create, merge and delete branches.", no_args_is_help=True, rich_markup_mode=None)


class Strategy(StrEnum):
    """Whose row wins where both branches changed it."""

    OURS = "ours"
    THEIRS = "theirs"


@app.command("create")
@scoped("branch create")
def create_branch(
    name: BranchName,
    address: Address,
    base: Annotated[str, typer.Option("--from", metavar="BASE", help="branch or commit it begins at")] = "main",
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Create a branch at the head of another one, or at a commit; no data is copied."""
    actor = address.actor
    address.echo("branch create in", quiet=quiet)
    with address.open(read_only=False) as graph:
        receipt = graph.create_branch(name, base, actor=actor)
    if json:
        print_json(receipt.to_json())
    else:
        print_text(f"created branch {receipt.name} from {receipt.base}")


@app.command("list")
@scoped("branch list")
def list_branches(address: Address, json: AsJson = False) -> None:
    """List the branches, sorted by name."""
    with address.open(read_only=True) as graph:
        branches = graph.branches()
    if json:
        print_json({"branches": branches})
    else:
        print_text("\n".join(branches))


@app.command("delete")
@scoped("branch delete")
def delete_branch(
    name: BranchName, address: Address, yes: Consent = False, quiet: Quiet = False, json: AsJson = False
) -> None:
    """Delete a branch, with all of its commits that were not merged."""
    actor = address.actor
    address.require_consent(f"deletes branch {name} of", yes=yes, json=json)
    address.echo("branch delete in", quiet=quiet)
    with address.open(read_only=False) as graph:
        receipt = graph.delete_branch(name, actor=actor)
    if json:
        print_json(receipt.to_json())
    else:
        print_text(f"deleted branch {receipt.name}")


@app.command("merge")
@scoped("branch merge")
def merge_branch(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="branch to merge", callback=refuse_address)],
    address: Address,
    into: Annotated[str, typer.Option("--into", metavar="TARGET", help="branch that gets the changes")] = "main",
    delete: Annotated[bool, typer.Option("--delete-branch", help="delete the source when it is merged")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="show outcome and conflicts, write nothing")] = False,
    strategy: Annotated[
        Strategy | None,
        typer.Option("--strategy", help="decide conflicts about rows for the target (ours) or the source (theirs)"),
    ] = None,
    engine: EngineChoice = WorkerName.AUTO,
    timeout: Timeout = None,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Merge a branch into another one, row by row: all of it becomes visible in one commit, or nothing does."""
    actor = address.actor
    if engine is not WorkerName.AUTO:
        address.refuse_on_server("--engine")
    address.echo("branch merge in", quiet=quiet)
    with address.open(read_only=False) as graph:
        try:
            result = graph.merge(
                source,
                into,
                strategy=strategy,
                dry_run=dry_run,
                delete_branch=delete,
                actor=actor,
                engine=engine,
                progress=terminal_progress(quiet=quiet),
                timeout_s=timeout,
            )
        except MergeConflictsError as error:
            if json:
                raise
            lines = conflict_lines(error.source, error.target, error.conflicts, error.total)
            print_warning("\n".join(lines))
            raise typer.Exit(error.exit_code) from None
    if json:
        print_json(result.to_json())
        return
    print_text("\n".join(merge_lines(result)))
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
        yield f"merged {source} into {target}: {how}, commit {result.commit.commit_id}"
    width = max((len(change.type_key) for change in result.changes), default=0)
    for change in result.changes:
        counts = f"+{change.inserted:,} ~{change.updated:,} -{change.deleted:,}"
        yield f"  {change.type_key:<{width}}  {counts}"
    if result.branch_deleted:
        yield f"deleted branch {source}"


# ---- `omnigraph diff`


def _state(metavar: str) -> Any:
    return typer.Argument(metavar=metavar, help="branch or commit", callback=refuse_address)


@scoped("diff")
def diff(
    one: Annotated[str, _state("FROM")],
    other: Annotated[str, _state("TO")],
    address: Address,
    kind: Kinds = None,
    type: Types = None,
    op: Operations = None,
    engine: EngineChoice = WorkerName.AUTO,
    timeout: Timeout = None,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Show what turns one state of a graph into another: entities that came (+), changed (~) and went (-)."""
    if engine is not WorkerName.AUTO:
        address.refuse_on_server("--engine")
    with (
        address.open(read_only=True) as graph,
        graph.diff(
            one,
            other,
            kinds=kind,
            types=type,
            ops=op,
            engine=engine,
            progress=terminal_progress(quiet=quiet),
            timeout_s=timeout,
        ) as found,
    ):
        if json:
            changes = StreamedList(found, lambda change: change.to_json())
            print_json({**found.summary.to_json(), "changes": changes})
            return
        print_lines(net_change_line(change) for change in found)
        print_text(diff_summary(found, one, other))
