"""Sorted runs merged block by block, and a directory that appears all at once."""

from __future__ import annotations

import os
import shutil
import tempfile
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.core.ids import new_ulid
from omnigraph.errors import BadRequestError
from omnigraph.frozen import frozen
from omnigraph.pipeline.export.formats import LINES
from omnigraph.storage.location import GraphLocation, parse_location
from omnigraph.storage.objects import sync_files
from omnigraph.storage.uploads import holds_objects, upload_new

# ---- External sort of lines by id
#
# Memory is bounded by the size of a run while sorting, and by one block per run while merging. Both work on whole
# blocks; no line is handled on its own.


#: Lines of so many bytes are sorted in memory.
RUN_BYTES = 64 * 1024 * 1024
#: How much of a run a merge holds at a time.
_BLOCK_BYTES = 1024 * 1024
#: How many runs one merge reads at once; more of them are merged in several passes.
MAX_MERGED_RUNS = 64


def sorted_blocks(lines: Iterable[pa.RecordBatch], folder: str, run_bytes: int = RUN_BYTES) -> Iterator[pa.RecordBatch]:
    """All lines by ascending id. What does not fit into one run goes through files in `folder`."""
    tables = _sorted_tables(lines, run_bytes)
    first, second = next(tables, None), next(tables, None)
    if first is None:
        return
    if second is None:
        yield from _blocks(first)
        return
    runs = [_write_run(_blocks(table), folder) for table in (first, second)]
    del first, second
    runs += (_write_run(_blocks(table), folder) for table in tables)
    while len(runs) > MAX_MERGED_RUNS:
        merged, runs = runs[:MAX_MERGED_RUNS], runs[MAX_MERGED_RUNS:]
        runs.append(merge_into_run(merged, folder))
        remove_runs(merged)
    yield from merged_blocks(runs)
    remove_runs(runs)


def write_runs(lines: Iterable[pa.RecordBatch], folder: str, run_bytes: int = RUN_BYTES) -> list[str]:
    """Sort lines into run files of about `run_bytes`; their paths."""
    return [_write_run(_blocks(table), folder) for table in _sorted_tables(lines, run_bytes)]


def merge_into_run(runs: Sequence[str], folder: str) -> str:
    """One run with the lines of several; those stay, because a task may run again."""
    return _write_run(merged_blocks(runs), folder)


def merged_blocks(runs: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The lines of all runs by ascending id."""
    with ExitStack() as files:
        live = [_Run(files.enter_context(pa.OSFile(path, "rb"))) for path in runs]
        while live := [run for run in live if run.block is not None]:
            # Up to the smallest of the last ids no block that was not read yet can hold a line.
            bound = min(run.last_id for run in live)
            yield from _blocks(_sorted([run.take_through(bound) for run in live]))


def remove_runs(runs: Sequence[str]) -> None:
    """Remove runs that were merged: a large export should not take the disk twice over."""
    for path in runs:
        os.unlink(path)


def line_bytes(block: pa.RecordBatch) -> pa.Buffer | bytes:
    """The text of a block of lines as it stands in a file; nothing is copied."""
    lines = block.column("line")
    _, offsets, text = lines.buffers()
    if not len(lines) or offsets is None or text is None:
        return b""
    ends = np.frombuffer(memoryview(offsets), np.int64)
    begin, end = int(ends[lines.offset]), int(ends[lines.offset + len(lines)])
    return text.slice(begin, end - begin)


class _Run:
    """A run that is being merged, one block at a time."""

    def __init__(self, file: pa.NativeFile) -> None:
        self._reader = pa.ipc.open_stream(file)
        self.block: pa.RecordBatch | None = None
        self._advance()

    @property
    def last_id(self) -> str:
        return _id_at(self._current, -1)

    def take_through(self, bound: str) -> pa.RecordBatch:
        """The lines of the current block whose ids are not above `bound`."""
        block = self._current
        count = bisect_right(range(block.num_rows), bound, key=lambda row: _id_at(block, row))
        if count == block.num_rows:
            self._advance()
        else:
            self.block = block.slice(count)
        return block.slice(0, count)

    @property
    def _current(self) -> pa.RecordBatch:
        assert self.block is not None, "a run that has ended is not asked"
        return self.block

    def _advance(self) -> None:
        self.block = next(self._reader, None)


def _id_at(block: pa.RecordBatch, row: int) -> str:
    return str(block.column("id")[row].as_py())


def _sorted_tables(lines: Iterable[pa.RecordBatch], run_bytes: int) -> Iterator[pa.Table]:
    """Lines in sorted tables of about `run_bytes` each."""
    pending: list[pa.RecordBatch] = []
    size = 0
    for batch in lines:
        if not batch.num_rows:
            continue
        pending.append(batch)
        size += batch.nbytes
        if size >= run_bytes:
            yield _sorted(pending)
            pending, size = [], 0
    if pending:
        yield _sorted(pending)


def _sorted(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    table = pa.Table.from_batches(batches, LINES).combine_chunks()
    return table.take(pc.sort_indices(table["id"])).combine_chunks()


def _blocks(table: pa.Table) -> Iterator[pa.RecordBatch]:
    rows = max(1, _BLOCK_BYTES * table.num_rows // max(1, table.nbytes))
    yield from table.to_batches(max_chunksize=rows)


def _write_run(blocks: Iterable[pa.RecordBatch], folder: str) -> str:
    path = os.path.join(folder, f"{new_ulid()}.run")
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, LINES, options=options) as writer:
        for block in blocks:
            writer.write_batch(block)
    return path


# ---- The target of an export
#
# Everything is written into a hidden directory first: beside the target, or for an object store in a temporary one.


@frozen(kw_only=True)
class Staging:
    """The hidden directory of one export."""

    target: GraphLocation
    #: What will be the target: a file, or a directory.
    result: Path
    #: Files of tasks. What is not moved from here into the result goes away, as what a task wrote in vain.
    scratch: Path

    def place(self, path: str, name: str) -> Path:
        """Move a file that a task wrote into the resulting directory."""
        place = self.result / name
        place.parent.mkdir(parents=True, exist_ok=True)
        check_shared(path)
        os.rename(path, place)
        return place

    def final_name(self, path: Path) -> str:
        """The name that a file of the result has in the end."""
        inside = path.relative_to(self.result).as_posix()
        return self.target.uri if inside == "." else f"{self.target.uri}/{inside}"

    def publish(self, files: Sequence[Path], *, durable: bool) -> None:
        """Make the result visible under the name of the target.

        On an object store a file appears complete. Several appear one after the other, in the given order, and those
        that are there go when a later one fails.

        Raises:
            BadRequestError: something has that name meanwhile.
        """
        if self.target.is_local:
            self._rename(self.target.path, durable=durable)
            return
        names = [(path, self.final_name(path).removeprefix(self.target.uri).lstrip("/")) for path in files]
        if not upload_new(self.target, names):
            raise _existing(self.target)

    def _rename(self, target: Path, *, durable: bool) -> None:
        is_folder = self.result.is_dir()
        if durable:
            files = [path for path in self.result.rglob("*") if path.is_file()]
            sync_files(files if is_folder else [self.result])
        try:
            if is_folder or not self._link(target):
                if os.path.lexists(target):
                    raise _existing(self.target)
                os.rename(self.result, target)
        except FileExistsError as error:
            raise _existing(self.target) from error
        if durable:
            sync_files([target])

    def _link(self, target: Path) -> bool:
        """Name the file by a hard link, which never replaces a file; False where links are not supported."""
        try:
            os.link(self.result, target)
        except FileExistsError:
            raise
        except OSError:
            return False
        return True


def export_target(target: str | os.PathLike[str], graph_uri: str) -> GraphLocation:
    """The place that a user means.

    Raises:
        BadRequestError: it is in use, inside the graph, or in a directory that does not exist. An export replaces
            nothing.
    """
    location = parse_location(target)
    if os.path.lexists(location.uri) if location.is_local else holds_objects(location):
        raise _existing(location)
    if location.uri.startswith(f"{graph_uri.rstrip('/')}/"):
        raise BadRequestError(f"{location} is inside the graph: choose a place outside of it")
    if location.is_local and not location.path.parent.is_dir():
        raise BadRequestError(f"{location.path.parent} is not a directory: create it first")
    return location


def _existing(place: GraphLocation) -> BadRequestError:
    return BadRequestError(f"{place} exists, and an export replaces nothing: remove it or choose another name")


def check_shared(path: str) -> None:
    """A file that a task wrote has to be visible here.

    Raises:
        BadRequestError: executors and driver do not share the file system of the target.
    """
    if not os.path.exists(path):
        raise BadRequestError(
            f"a task wrote {path}, and it is not visible here: executors and driver have to share the file system of "
            "the target"
        )


@contextmanager
def staging(target: GraphLocation) -> Iterator[Staging]:
    """The hidden directory of an export; it is gone at the end, whatever happens."""
    parent = target.path.parent if target.is_local else Path(tempfile.gettempdir())
    folder = parent / f".export-{new_ulid()}"
    scratch = folder / "scratch"
    try:
        scratch.mkdir(parents=True)
        yield Staging(target=target, result=folder / "result", scratch=scratch)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
