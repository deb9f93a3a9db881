"""Compaction: many small fragments become few large ones, and nothing else changes.

Lance plans the rewrites, tasks run them anywhere, and one commit exchanges the fragments. Row ids, the versions in
which rows were created and changed, and the coverage of indexes stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
from lance import optimize

from omnigraph.errors import DriftError
from omnigraph.storage.durability import sync_files
from omnigraph.storage.failures import translated
from omnigraph.storage.listing import delete_files, list_files
from omnigraph.storage.location import parse_location
from omnigraph.storage.tables import Table, session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnigraph.storage.location import GraphLocation

#: Lance first reserves the numbers of the new fragments, then exchanges the fragments.
_VERSIONS_PER_COMMIT = 2
#: The stubs of Lance lack the methods that write these down as text and read them back.
_Task: Any = optimize.CompactionTask
_Result: Any = optimize.RewriteResult


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionTask:
    """One group of fragments to be written anew. Plain values: it travels to any process."""

    uri: str
    version: int
    rows: int
    #: The task as Lance writes it down.
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan:
    """What to rewrite in one table; without tasks there is nothing to do."""

    version: int
    tasks: tuple[CompactionTask, ...]


def plan_compaction(table: Table, *, target_rows: int) -> CompactionPlan:
    """The rewrites that bring a table to fragments of about `target_rows` rows and drop deleted rows."""
    with translated(f"planning the compaction of {table.path}"):
        plan = optimize.Compaction.plan(
            table._dataset, {"target_rows_per_fragment": max(1, target_rows)}
        )
        planned: list[Any] = plan.tasks
        tasks = tuple(
            CompactionTask(
                uri=table._dataset.uri,
                version=int(plan.read_version),
                rows=sum(fragment.num_rows for fragment in task.fragments),
                text=task.json(),
            )
            for task in planned
        )
    return CompactionPlan(version=table.version, tasks=tasks)


def run_compaction_task(task: CompactionTask) -> str:
    """Write the new fragments of one task; its result as text for `commit_compaction`. Moves nothing."""
    with translated(f"rewriting fragments of {task.uri}"):
        # A handle of its own: the task may run in another process than its plan was made in.
        dataset = lance.dataset(task.uri, version=task.version, session=session())
        result = _Task.from_json(task.text).execute(dataset)
        return str(result.json())


def commit_compaction(table: Table, results: Sequence[str]) -> Table:
    """Exchange the fragments; the table at its new version, two after the old one.

    `table` is at the version that was planned. Indexes by value are rewritten meanwhile, so the cost grows with them.
    When it fails, HEAD may have moved by one version that has the same content.

    Raises:
        DriftError: HEAD is not where the rewrites were prepared, or the commit landed at another version.
    """
    if not results:
        return table
    head = table.latest_version
    if head != table.version:
        raise DriftError(table.path, table.version, head)
    uri = table._dataset.uri
    with translated(f"compacting {table.path}"):
        # The commit moves the handle itself, and the one in `table` is shared with readers.
        dataset = lance.dataset(uri, version=table.version, session=session())
        try:
            optimize.Compaction.commit(dataset, [_Result.from_json(text) for text in results])
        except OSError as error:
            # A conflict has no type of its own here. It needs a foreign version beside the one that reserves numbers.
            head = table.latest_version
            if head < table.version + _VERSIONS_PER_COMMIT:
                raise
            raise DriftError(table.path, table.version, head) from error
        achieved = int(dataset.version)
        if achieved != table.version + _VERSIONS_PER_COMMIT:
            raise DriftError(table.path, table.version + _VERSIONS_PER_COMMIT, achieved)
        committed = lance.dataset(uri, version=achieved, session=session())
    return Table(committed, table.path, table.branch)


def discard_compaction(table: Table, results: Sequence[str]) -> int:
    """Remove the files of results that will not be committed; how many there were.

    What any version since the plan refers to stays: the outcome of a failed commit may be unknown.
    """
    with translated(f"removing rewritten fragments of {table.path}"):
        stems = {
            file.path.removesuffix(".lance")
            for text in results
            for fragment in _Result.from_json(text).new_fragments
            for file in fragment.files
        }
        # Opened anew: the versions that matter are those after the one that `table` shows.
        dataset = lance.dataset(table._dataset.uri, session=session())
        for batch in dataset.tracked_files(min_version=table.version):
            stems -= {Path(str(name)).stem for name in batch["path"].to_pylist()}
    # Names in the dataset itself: rewritten fragments lie where the table is committed, never in the base of a fork.
    location = parse_location(table._dataset.uri)
    names = [f"data/{stem}.lance" for stem in sorted(stems)]
    names += [file.name for stem in sorted(stems) for file in list_files(location, f"data/{stem}")]
    return delete_files(location, names)


def sync_compaction(location: GraphLocation, before: Table, after: Table) -> None:
    """Flush every file that a committed compaction added. Does nothing on an object store."""
    if not location.is_local:
        return
    added: set[str] = set()
    known: set[str] = set()
    with translated(f"flushing {after.path}"):
        for batch in after._dataset.tracked_files(min_version=before.version):
            for row in batch.to_pylist():
                (known if row["version"] == before.version else added).add(row["path"])
    root = Path(after._dataset.uri)
    names = [root / name for name in added - known]
    # Large blobs of a data file lie in a folder beside it.
    names += [name.with_suffix("") for name in names if name.parent.name == "data"]
    sync_files(names)
