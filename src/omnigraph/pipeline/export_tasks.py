"""The tasks of an export: they read fragments, write files into a scratch directory, and answer with their paths."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.budget import work_steps
from omnigraph.ids import new_ulid
from omnigraph.pipeline.export_lines import TypeShape, json_lines
from omnigraph.pipeline.export_runs import line_bytes, merge_into_run, sorted_blocks, write_runs
from omnigraph.pipeline.progress import advance
from omnigraph.storage.failures import translated
from omnigraph.storage.fragment_scans import scan_group

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from omnigraph.pipeline.workers import Message
    from omnigraph.storage.partitions import TableAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportTask:
    """Some fragments of one type; plain values for other processes."""

    shape: TypeShape
    address: TableAddress
    fragments: tuple[int, ...]
    #: Where the task may write; every file gets a name of its own, because a task may run more than once.
    scratch: str

    def rows(self) -> Iterator[pa.RecordBatch]:
        """The rows of the fragments."""
        yield from work_steps(scan_group(self.address, self.fragments, self.shape.columns))

    def new_file(self) -> str:
        """A path that no other run of any task uses."""
        return os.path.join(self.scratch, new_ulid())


def write_task_runs(task: ExportTask) -> Message:
    """Sort the rows of a task into runs."""
    counter = _Counter()
    with translated(f"sorting {task.shape.table_key}"):
        files = write_runs(counter.lines(task), task.scratch)
    return {"rows": counter.rows, "files": files}


def merge_task_runs(group: tuple[str, list[str]]) -> Message:
    """Merge some runs into one; the runs stay, because a task may run again."""
    scratch, runs = group
    with translated("merging sorted rows"):
        return {"file": merge_into_run(runs, scratch)}


def write_line_part(task: ExportTask) -> Message:
    """Write the rows of a task as one sorted file; none when there are no rows."""
    counter = _Counter()
    path = task.new_file()
    with translated(f"writing {task.shape.table_key}"), open(path, "wb") as file:
        for block in sorted_blocks(counter.lines(task), task.scratch):
            file.write(line_bytes(block))
    return {"rows": counter.rows, "file": path if counter.rows else None}


def write_parquet_part(task: ExportTask) -> Message:
    """Write the rows of a task as one Parquet file, also when there are none."""
    from omnigraph.pipeline.export_parquet import write_parquet

    path = task.new_file()
    with translated(f"writing {task.shape.table_key}"):
        return {"rows": write_parquet(path, task.shape, task.rows()), "file": path}


class _Counter:
    """Counts the rows that pass."""

    def __init__(self) -> None:
        self.rows = 0

    def lines(self, task: ExportTask) -> Iterator[pa.RecordBatch]:
        for batch in task.rows():
            self.rows += batch.num_rows
            advance(batch.num_rows)
            yield json_lines(task.shape, batch)
