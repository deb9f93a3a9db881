"""Exports: rows of pinned tables as sorted lines or Parquet, in tasks or here."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from omnigraph.core.arrow import Batch
from omnigraph.core.budget import work_steps
from omnigraph.core.ids import TableKey, new_ulid
from omnigraph.errors import BadRequestError
from omnigraph.frozen import frozen
from omnigraph.pipeline.export.files import (
    MAX_MERGED_RUNS,
    Staging,
    check_shared,
    line_bytes,
    merge_into_run,
    merged_blocks,
    remove_runs,
    sorted_blocks,
    staging,
    write_runs,
)
from omnigraph.pipeline.export.formats import TypeShape, json_lines
from omnigraph.pipeline.workers import Message, Progress, StageProgress, Workers, advance
from omnigraph.storage._failures import translated
from omnigraph.storage.datasets.partitions import TableAddress, list_fragment_groups, scan_group, table_address
from omnigraph.storage.datasets.tables import Table
from omnigraph.storage.location import GraphLocation

if TYPE_CHECKING:
    import pyarrow as pa


# ---- Export tasks


@frozen(kw_only=True)
class ExportTask:
    """Some fragments of one type; plain values for other processes."""

    shape: TypeShape
    address: TableAddress
    fragments: tuple[int, ...]
    #: Where the task may write; every file gets a name of its own, because a task may run more than once.
    scratch: str

    def rows(self) -> Iterator[Batch]:
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
    from omnigraph.pipeline.export.formats import write_parquet

    path = task.new_file()
    with translated(f"writing {task.shape.table_key}"):
        return {"rows": write_parquet(path, task.shape, task.rows()), "file": path}


class _Counter:
    """Counts the rows that pass."""

    def __init__(self) -> None:
        self.rows = 0

    def lines(self, task: ExportTask) -> Iterator[Batch]:
        for batch in task.rows():
            self.rows += batch.num_rows
            advance(batch.num_rows)
            yield json_lines(task.shape, batch)


# ---- The export job
#
# A task takes a group of fragments. For one sorted file it makes sorted runs, which the driver merges as it writes;
# for a directory it makes one part. Tasks write into a scratch directory and answer with paths; the driver moves what
# counts into the result.


#: A task takes at least and at most about so many rows, unless its table has fewer or its fragments are larger.
_MIN_TASK_ROWS = 100_000
_MAX_TASK_ROWS = 1_000_000


class ExportFormat(StrEnum):
    """The file format of an export."""

    JSONL = "jsonl"
    PARQUET = "parquet"


@frozen(kw_only=True)
class ExportSource:
    """One type and its rows at the version of the snapshot."""

    shape: TypeShape
    table: Table


@frozen(kw_only=True)
class Exported:
    """The result of an export: rows per type, and the files."""

    rows: dict[TableKey, int]
    files: tuple[Path, ...] = ()
    #: What the files are called when the export is done.
    names: tuple[str, ...] = ()


# ---- in this process


def export_stream(
    sources: Sequence[ExportSource], write: Callable[[pa.Buffer | bytes], object], progress: Progress
) -> Exported:
    """Write all rows as sorted JSON lines, type by type, from this process alone."""
    rows: dict[TableKey, int] = {}
    with progress.stage("export", len(sources)) as stage, TemporaryDirectory(prefix="omnigraph-export-") as scratch:
        for done, source in enumerate(sources):
            key = source.shape.table_key
            rows[key] = 0
            groups = list_fragment_groups(source.table)
            fragments = [number for group in groups for number in group.fragment_ids]
            batches = scan_group(table_address(source.table), fragments, source.shape.columns)
            watched = _watched(batches, stage, done, sum(rows.values()))
            lines = (json_lines(source.shape, batch) for batch in watched)
            for block in work_steps(sorted_blocks(lines, scratch)):
                write(line_bytes(block))
                rows[key] += block.num_rows
                stage.update(done, sum(rows.values()))
        stage.update(len(sources), sum(rows.values()))
    return Exported(rows=rows)


def _watched(batches: Iterable[Batch], stage: StageProgress, done: int, rows: int) -> Iterator[Batch]:
    """The batches of a scan; sorting reads all of them before the first row is written, and nothing would look."""
    for batch in work_steps(batches):
        stage.update(done, rows)
        yield batch


# ---- in tasks


def export_files(
    sources: Sequence[ExportSource],
    target: GraphLocation,
    *,
    format: ExportFormat,
    parts: bool,
    workers: Workers,
    progress: Progress,
    durable: bool,
) -> Exported:
    """Write all rows to a file or a directory that appears when it is complete, or not at all.

    Executors of a cluster cannot write into the temporary files of this machine, which an object store takes its
    objects from.

    Raises:
        BadRequestError: the target exists, or a value cannot be expressed in the format; or it is an object store, and
            the workers are not on this machine.
        StorageError: reading or writing failed.
    """
    if not target.is_local and not workers.is_on_this_machine:
        raise BadRequestError(
            f"the executors of a cluster do not reach the temporary files that {target} is made from: export with "
            'engine="local" (--engine local), or to a folder that executors and driver share, and copy it'
        )
    with translated(f"writing {target}"), staging(target) as place:
        tasks = _plan_tasks(sources, str(place.scratch), workers.parallelism)
        if format is ExportFormat.PARQUET:
            exported = _parquet(sources, tasks, place, workers)
        elif parts:
            answers = workers.run("write rows", write_line_part, tasks)
            exported = _placed(sources, tasks, answers, place, _line_part_name)
        else:
            exported = _line_file(sources, tasks, place, workers, progress)
        with progress.stage("upload", len(exported.files)) if not target.is_local else nullcontext():
            place.publish(exported.files, durable=durable)
        return replace(exported, names=tuple(map(place.final_name, exported.files)))


def _plan_tasks(sources: Sequence[ExportSource], scratch: str, parallelism: int) -> list[ExportTask]:
    """Tasks in the order of the types; a table without rows has one, so that a type is never missing."""
    tasks = []
    for source in sources:
        share = source.table.row_count // (2 * parallelism)
        rows = max(_MIN_TASK_ROWS, min(_MAX_TASK_ROWS, share))
        groups = [group.fragment_ids for group in list_fragment_groups(source.table, rows)]
        address = table_address(source.table)
        tasks += [
            ExportTask(shape=source.shape, address=address, fragments=group, scratch=scratch)
            for group in groups or [()]
        ]
    return tasks


def _line_file(
    sources: Sequence[ExportSource], tasks: Sequence[ExportTask], place: Staging, workers: Workers, progress: Progress
) -> Exported:
    """One file: types in their order, rows by id."""
    runs: defaultdict[TableKey, list[str]] = defaultdict(list)
    for task, answer in zip(tasks, workers.run("sort rows", write_task_runs, tasks), strict=True):
        runs[task.shape.table_key] += answer["files"]
    for key in runs:
        runs[key] = _few_runs(runs[key], place, workers)
    rows: dict[TableKey, int] = {}
    with progress.stage("write rows", len(sources)) as stage, open(place.result, "wb") as file:
        for done, source in enumerate(sources):
            key = source.shape.table_key
            rows[key] = 0
            for path in runs[key]:
                check_shared(path)
            for block in work_steps(merged_blocks(runs[key])):
                file.write(line_bytes(block))
                rows[key] += block.num_rows
                stage.update(done, sum(rows.values()))
            remove_runs(runs[key])
        stage.update(len(sources), sum(rows.values()))
    return Exported(rows=rows, files=(place.result,))


def _few_runs(runs: list[str], place: Staging, workers: Workers) -> list[str]:
    """Runs merged in tasks until one merge can read them all."""
    while len(runs) > MAX_MERGED_RUNS:
        groups = [
            (str(place.scratch), runs[begin : begin + MAX_MERGED_RUNS])
            for begin in range(0, len(runs), MAX_MERGED_RUNS)
        ]
        merged = [answer["file"] for answer in workers.run("merge rows", merge_task_runs, groups)]
        remove_runs(runs)
        runs = merged
    return runs


def _parquet(
    sources: Sequence[ExportSource], tasks: Sequence[ExportTask], place: Staging, workers: Workers
) -> Exported:
    """A directory of files per type, and the mapping that loads them."""
    from omnigraph.pipeline.export.formats import MAPPING, folder_of, mapping_text

    answers = workers.run("write rows", write_parquet_part, tasks)
    exported = _placed(
        sources, tasks, answers, place, lambda shape, number: f"{folder_of(shape)}/part-{number:05d}.parquet"
    )
    mapping = place.result / MAPPING
    mapping.write_text(mapping_text([source.shape for source in sources]), encoding="utf-8")
    return replace(exported, files=(*exported.files, mapping))


def _line_part_name(shape: TypeShape, number: int) -> str:
    """The name of a sorted file; names sort as the types do."""
    return f"{shape.table_key.replace(':', '-')}-{number:05d}.jsonl"


def _placed(
    sources: Sequence[ExportSource],
    tasks: Sequence[ExportTask],
    answers: Sequence[Message],
    place: Staging,
    name: Callable[[TypeShape, int], str],
) -> Exported:
    """A directory with the parts of all tasks under their names, numbered within each type."""
    place.result.mkdir()
    rows = {source.shape.table_key: 0 for source in sources}
    numbers: defaultdict[TableKey, int] = defaultdict(int)
    files = []
    for task, answer in zip(tasks, answers, strict=True):
        key = task.shape.table_key
        rows[key] += answer["rows"]
        if answer["file"] is not None:
            files.append(place.place(answer["file"], name(task.shape, numbers[key])))
            numbers[key] += 1
    return Exported(rows=rows, files=tuple(files))
