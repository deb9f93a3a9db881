"""`omnigraph optimize`, `cleanup`, `repair`, `doctor`, `verify` and `recovery`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import click
from click.exceptions import Exit

from omnigraph.cli.command_line import Option
from omnigraph.cli.console import print_json, print_lines, print_result, terminal_progress
from omnigraph.cli.flags import AsJson, Branch, Consent, EngineChoice, Quiet, Timeout
from omnigraph.cli.rendering import commit_text
from omnigraph.cli.scope import Address
from omnigraph.cli.scoped import CommandGroup, scoped
from omnigraph.cli.tables import counted, text_table, wrapped
from omnigraph.errors.text import size_text
from omnigraph.pipeline.engine_choice import Engine

if TYPE_CHECKING:
    from omnigraph.graph.graph import Graph
    from omnigraph.maintenance.cleanup import CleanupReport
    from omnigraph.maintenance.findings import DoctorReport, Finding
    from omnigraph.maintenance.indexes import IndexReport
    from omnigraph.maintenance.optimize import OptimizedTable, OptimizeReport
    from omnigraph.maintenance.repair import RepairReport
    from omnigraph.maintenance.verify import VerifyReport


# ---- `omnigraph optimize`


@scoped("optimize")
def optimize(
    address: Address,
    indexes_only: Annotated[bool, Option("--indexes-only", help="build missing indexes and nothing else")] = False,
    branch: Branch = "main",
    engine: EngineChoice = Engine.AUTO,
    timeout: Timeout = None,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Compact every dataset of main, complete its indexes and fold the manifest, as one commit that changes no row."""
    if not indexes_only and branch != "main":
        raise click.BadParameter("other branches than main get indexes only: give --indexes-only")
    actor = address.actor
    address.echo("optimize", quiet=quiet)
    with address.open_storage(read_only=False) as graph:
        if indexes_only:
            built = graph.ensure_indices(branch, actor=actor, timeout_s=timeout)
            _print_indexes(graph, built, json=json)
            return
        report = graph.optimize(actor=actor, engine=engine, progress=terminal_progress(quiet=quiet), timeout_s=timeout)
    print_result(report, _lines(report), json=json)
    if report.manifest_error is not None:
        raise Exit(1)


def _lines(report: OptimizeReport) -> Iterator[str]:
    for table in report.tables:
        done = _work(table)
        if done:
            yield f"{table.type_key}: {'; '.join(done)}"
        for item in table.pending_indexes:
            yield f"{table.type_key}.{item.property}: pending, {item.reason}"
    manifest = report.catalog
    if manifest.fragments_removed or manifest.versions_removed:
        yield (
            f"manifest: {counted(manifest.fragments_removed, 'fragment')} folded, "
            f"{counted(manifest.versions_removed, 'old version')} removed"
        )
    if report.manifest_error is not None:
        yield f"manifest: not folded, {report.manifest_error}; run the command again"
    if report.commit is None:
        yield "nothing to commit"
    else:
        yield f"commit {commit_text(report.commit.commit_id)} on {report.branch}"


def _work(table: OptimizedTable) -> list[str]:
    done = []
    if table.skipped == "drift_needs_repair":
        done.append("skipped, something else moved it: see `omnigraph repair`")
    elif table.skipped is not None:
        done.append("skipped, writers kept changing it")
    if table.fragments_removed:
        into = counted(table.fragments_added, "fragment")
        done.append(f"{counted(table.fragments_removed, 'fragment')} into {into}")
    if table.built_indexes:
        done.append(f"built {', '.join(table.built_indexes)}")
    return done


# ---- indexes only


def _print_indexes(graph: Graph, report: IndexReport, *, json: bool) -> None:
    if not json:
        print_lines(_index_lines(report))
        return
    built = {item.type_key: item.names for item in report.built}
    datasets: list[dict[str, object]] = [
        {
            "type_key": key,
            "built_indexes": list(built.get(key, ())),
            "committed": key in built,
            "published_dataset_version": pin.version,
            "pending_indexes": [
                {"property": item.property, "reason": item.reason} for item in report.pending if item.type_key == key
            ],
        }
        for key, pin in sorted(graph.snapshot(report.branch).pins.items())
    ]
    commit = None if report.commit is None else report.commit.commit_id
    print_json({"branch": report.branch, "graph_commit_id": commit, "datasets": datasets})


def _index_lines(report: IndexReport) -> Iterator[str]:
    yield from (f"{item.type_key}: built {', '.join(item.names)}" for item in report.built)
    yield from (f"{item.type_key}.{item.property}: pending, {item.reason}" for item in report.pending)
    if report.commit is None:
        yield "nothing to build" if report.pending else "every index is up to date"
    else:
        yield f"commit {commit_text(report.commit.commit_id)} on {report.branch}"


# ---- `omnigraph cleanup`


@scoped("cleanup")
def cleanup(
    address: Address,
    keep: Annotated[
        int | None, Option("--keep", metavar="N", help="the newest N commits of every branch stay readable")
    ] = None,
    older_than: Annotated[
        str | None, Option("--older-than", metavar="DUR", help="younger states stay readable: 45s, 30m, 12h, 7d, 2w")
    ] = None,
    commits: Annotated[
        bool, Option("--commits", help="forget commits that cannot be read any more: history begins later")
    ] = False,
    confirm: Annotated[bool, Option("--confirm", help="do it; without, only say what would go")] = False,
    yes: Consent = False,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Remove versions that no policy keeps, forks of deleted branches and what dead writers left; else a preview."""
    if confirm:
        address.require_consent("removes old versions of", yes=yes, json=json)
    address.echo("cleanup" if confirm else "cleanup (preview) of", quiet=quiet)
    with address.open_storage(read_only=not confirm) as graph:
        report = graph.cleanup(keep=keep, older_than=older_than, commits=commits, confirm=confirm)
    print_result(report, cleanup_lines(report), json=json)
    if report.errors:
        raise Exit(1)


def cleanup_lines(report: CleanupReport) -> Iterator[str]:
    """The report as a person reads it; types of which nothing goes are left out."""
    rows = [
        [
            item.type_key,
            f"{item.old_versions_removed:,}",
            f"{item.versions_kept:,}",
            f"{item.forks_removed:,}",
            f"{item.staged_files_removed:,}",
            size_text(item.bytes_removed),
        ]
        for item in report.datasets
        if item.bytes_removed
    ]
    yield from text_table(["type", "versions", "kept", "forks", "leftover files", "size"], rows)
    size = size_text(report.catalog_bytes_removed)
    yield f"manifest: {counted(report.catalog_versions_removed, 'old version')}, {size}"
    if report.other_files_removed:
        size = size_text(report.other_bytes_removed)
        yield f"beside the types: {counted(report.other_files_removed, 'file')}, {size}"
    if report.commits_forgotten:
        verb = "forgotten" if report.confirmed else "would be forgotten"
        yield f"history: {counted(report.commits_forgotten, 'commit')} {verb}"
    because = [f"{count:,} {_REASONS[name]}" for name, count in report.kept_because.items() if count]
    yield f"readable: {counted(report.commits_kept, 'commit')} ({', '.join(because)})"
    for item in report.errors:
        yield f"{item.type_key}: not cleaned up, {item.error}"
    yield from report.notes
    if report.confirmed:
        yield f"removed {size_text(report.bytes_removed)}"
    else:
        yield f"nothing was removed: {size_text(report.bytes_removed)} would go with --confirm"


#: Why commits stay readable, in words.
_REASONS = {
    "head": "at a head",
    "fork": "where branches began",
    "merge_base": "for merges",
    "count": "by number",
    "age": "by age",
    "reader": "for readers",
}


# ---- `omnigraph repair`


@scoped("repair")
def repair(
    address: Address,
    confirm: Annotated[bool, Option("--confirm", help="heal what is safe to heal; without it only look")] = False,
    force: Annotated[bool, Option("--force", help="with --confirm: publish changed rows as well")] = False,
    yes: Consent = False,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Find datasets that moved without a commit, doubled commits and dangling edges, and heal what is safe."""
    if confirm:
        if force:
            address.require_consent("publishes unchecked rows of", yes=yes, json=json)
        address.echo("repair", quiet=quiet)
    with address.open_storage(read_only=False) as graph:
        report = graph.repair(confirm=confirm, force=force, actor=address.actor)
    print_result(report, _repair_lines(report), json=json)
    if report.has_refused:
        raise Exit(1)


def _repair_lines(report: RepairReport) -> Iterator[str]:
    yield from _drift_lines(report)
    end = "" if report.is_confirmed else ": heal it with --confirm"
    for commit_id in report.doubled_commits:
        what = "was" if report.is_confirmed else "is"
        yield f"commit {commit_id} {what} in the manifest more than once{end}"
    for item in report.dangling_edges:
        what = "removed" if report.is_confirmed else "found"
        examples = ", ".join(item.examples)
        yield f"{item.type_key} on {item.branch}: {what} {item.count:,} edges without an end ({examples}){end}"
    yield from (f"commit {commit_text(commit.commit_id)} on {commit.branch}" for commit in report.commits)


def _drift_lines(report: RepairReport) -> Iterator[str]:
    drifted = [table for table in report.tables if table.classification != "no_drift"]
    if not drifted:
        yield "no drift: every dataset is where the manifest says"
        yield "for damaged files run `omnigraph verify`"
        return
    yield from text_table(
        ("dataset", "branch", "published", "head", "classification", "action"),
        [
            (
                table.type_key,
                table.branch,
                str(table.published_dataset_version),
                "-" if table.lance_head_version is None else str(table.lance_head_version),
                str(table.classification),
                str(table.action),
            )
            for table in drifted
        ],
    )
    yield from (f"{table.type_key}: {table.advice}" for table in drifted if table.advice)


# ---- `omnigraph doctor`


_LARGEST_TYPES = 10
#: The row of the table for what belongs to no type, so that the sum is complete.
_DERIVED = "kept indexes and vectors (__derived)"
_OTHER = "manifest and control files"
_MESSAGE_WIDTH = 160


@scoped("doctor")
def doctor(
    address: Address,
    deep: Annotated[bool, Option("--deep", help="read every file as well, as `verify` does")] = False,
    rules: Annotated[bool, Option("--rules", help="look for nodes that lack edges of `@card(1..)`")] = False,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Look at the health of a graph without changing anything, and say in plain words what to run."""
    from omnigraph.graph.graph import Graph

    progress = terminal_progress(quiet=quiet or json or not deep)
    report = Graph.examine(address.uri, deep=deep, rules=rules, progress=progress)
    print_result(report, doctor_lines(report), json=json)
    if not report.is_healthy:
        raise Exit(1)


def doctor_lines(report: DoctorReport) -> Iterator[str]:
    """The report as a person reads it, the worst first; the last line says what to run."""
    rows = [row for item in report.findings for row in _finding_rows(item)]
    yield from text_table(["state", "check", "finding"], rows)
    if report.disk:
        yield ""
        sizes = [
            [item.type_key, size_text(item.size_bytes), f"{item.versions:,}", f"{item.forks:,}"]
            for item in report.disk[:_LARGEST_TYPES]
        ]
        if smaller := report.disk[_LARGEST_TYPES:]:
            size = size_text(sum(item.size_bytes for item in smaller))
            sizes.append([f"{len(smaller):,} smaller types", size, "", ""])
        if report.derived_bytes:
            sizes.append([_DERIVED, size_text(report.derived_bytes), "", ""])
        sizes.append([_OTHER, size_text(report.other_bytes), "", ""])
        yield from text_table(["type", "size", "versions", "forks"], sizes)
        yield f"{size_text(report.size_bytes)} in all"
    yield ""
    if report.is_healthy:
        yield "healthy: nothing has to be done"
    elif report.is_damaged:
        commands = "; ".join(report.actions)
        yield f"restore the files that the errors name from a copy, then run: {commands}"
    elif report.actions:
        yield f"run: {'; '.join(report.actions)}"
    else:
        yield "no command helps: read the errors above"


def _finding_rows(item: Finding) -> Iterator[list[str]]:
    """A finding as the lines of the table that it takes: nothing of it is cut."""
    first, *more = wrapped(item.message, _MESSAGE_WIDTH)
    yield [str(item.severity), item.check, first]
    yield from (["", "", line] for line in more)


# ---- `omnigraph verify`


@scoped("verify")
def verify(
    address: Address,
    branch: Annotated[
        list[str] | None,
        Option("--branch", metavar="NAME", help="the head of this branch only; may be given several times"),
    ] = None,
    record: Annotated[
        bool, Option("--record", help="give a checksum to files that have none, unless a file is damaged")
    ] = False,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Read every file that branches and kept commits need, and compare it with its recorded checksum."""
    from omnigraph.graph.graph import Graph

    progress = terminal_progress(quiet=quiet or json)
    report = Graph.verify_at(address.uri, branches=branch or None, record=record, progress=progress)
    print_result(report, verify_lines(report), json=json)
    if not report.is_sound:
        raise Exit(1)


def verify_lines(report: VerifyReport) -> Iterator[str]:
    """The damaged files, then how many files are as they should be."""
    from omnigraph.maintenance.verify import FileStatus

    yield from (str(item) for item in report.problems)
    yield from (str(item) for item in report.outside)
    counts = report.counts()
    total = f"{len(report.files):,} files, {size_text(report.read_bytes)} read"
    old = counts[FileStatus.UNRECORDED]
    note = f"; {old:,} without a recorded checksum" if old else ""
    if report.recorded:
        note = f"; {report.recorded:,} checksums recorded"
    if report.is_sound:
        yield f"sound: {total}{note}"
    else:
        yield f"damaged: {len(report.problems):,} of {total}{note}; restore them from a copy"


# ---- `omnigraph recovery`


app = CommandGroup(help="See what was settled after crashes.")


@app.register("list")
@scoped("recovery list")
def list_recoveries(address: Address, json: AsJson = False) -> None:
    """List every recovery action, newest first, and the intents that are not settled."""
    with address.open_storage(read_only=True) as graph:
        records = graph.recoveries()
        pending = graph.pending_recoveries()
    lines = [f"{r.recovery_id}  {r.recovery_kind:<13} {r.writer_kind:<14} operation {r.operation_id}" for r in records]
    lines += [f"unsettled: {name}; the next write or open settles it" for name in pending]
    document = {"recoveries": [record.to_json() for record in records], "pending": pending}
    print_result(document, lines or ["no recoveries"], json=json)
