"""Rows that tasks read, brought together by bucket; keys that tasks wrote; the folder of files of one operation."""

from __future__ import annotations

import logging
import os
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Generic, Protocol, overload, runtime_checkable

import numpy as np

from omnigraph.core.arrow import Array, Batch, Rows, pa, pc
from omnigraph.core.budget import work_steps
from omnigraph.core.env_settings import Variable
from omnigraph.errors import BadRequestError, OmniError
from omnigraph.frozen import frozen
from omnigraph.pipeline.keys import text_bytes
from omnigraph.pipeline.workers import Item, Message, Workers, advance
from omnigraph.storage.answers import (
    AnswerFolder,
    attempt_name,
    new_answer_folder,
    read_answer,
    remove_answers,
    write_answer,
)
from omnigraph.storage.location import GraphLocation, parse_location

if TYPE_CHECKING:
    import pyarrow
    from numpy.typing import NDArray


# ---- Sources and buckets of an exchange


#: The column that says to which bucket a row belongs; the first one.
BUCKET = "bucket"
#: Rows that are sorted by bucket at once.
RUN_ROWS = 262_144
_RUN_BYTES = 64 * 1024 * 1024
_WORD = 8
#: Of a longer text these bytes and the last eight are hashed.
_HASHED_BYTES = 4096
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


@frozen(kw_only=True)
class Exchange(Generic[Item]):
    """The items to read, their buckets, and the function of a bucket. Travels to other processes."""

    stage: str
    items: Sequence[Item]
    #: Gives the rows of an item as record batches of `schema`.
    read: Callable[[Item], Iterable[Batch]]
    #: Begins with `BUCKET`.
    schema: pyarrow.Schema
    buckets: int
    #: Gets the number of a bucket and all its rows as a table; not called for buckets without rows.
    handle: Callable[[int, Rows], Message]


def gathered(batches: Iterable[Batch]) -> Iterator[Rows]:
    """Neighbouring batches together, as tables of so many rows as are sorted at once."""
    waiting: list[Batch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= RUN_ROWS or size >= _RUN_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, rows, size = [], 0, 0
    if rows:
        yield pa.Table.from_batches(waiting)


def by_bucket(rows: Rows, buckets: int) -> Iterator[Batch]:
    """One batch for each bucket, in their order, also where it has no rows."""
    order = np.argsort(rows[BUCKET].to_numpy(), kind="stable")
    ordered = rows.take(pa.array(order)).combine_chunks()
    ends = np.searchsorted(ordered[BUCKET].to_numpy(), np.arange(buckets), side="right")
    (batch,) = ordered.to_batches()
    begin = 0
    for end in ends.tolist():
        yield batch.slice(begin, end - begin)
        begin = end


def buckets_of(splitters: Array, keys: Array) -> Array:
    """The bucket of each key: how many of the splitters, which are sorted, it does not lie before."""
    found: Array = pc.search_sorted(splitters, keys, side="right").cast(pa.int32())
    return found


def text_hashes(texts: Array) -> NDArray[np.uint64]:
    """A hash of each text of an array without nulls: equal texts have equal ones, in every process."""
    offsets, data = text_bytes(texts)
    # Eight bytes behind, so that a whole word begins at every byte.
    padded = np.concatenate([data, np.zeros(_WORD, dtype=np.uint8)])
    words = np.ndarray((len(data) + 1,), np.dtype("<u8"), buffer=padded, strides=(1,))
    lengths = np.diff(offsets)
    hashes = lengths.astype(np.uint64)
    for begin in range(0, min(int(lengths.max(initial=0)), _HASHED_BYTES), _WORD):
        rows = np.flatnonzero(lengths > begin)
        left = np.minimum(lengths[rows] - begin, _WORD).astype(np.uint64)
        # What follows a text belongs to its neighbour.
        strange = np.uint64(8) * (np.uint64(_WORD) - left)
        word = (words[offsets[rows] + begin] << strange) >> strange
        hashes[rows] = _mixed(hashes[rows], word)
    rows = np.flatnonzero(lengths > _HASHED_BYTES)
    hashes[rows] = _mixed(hashes[rows], words[offsets[1:][rows] - _WORD])
    return hashes


def _mixed(hashes: NDArray[np.uint64], words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        mixed = (hashes ^ words) * _MULTIPLIER
    return np.asarray(mixed ^ (mixed >> np.uint64(32)))


def hash_buckets(hashes: NDArray[np.uint64], buckets: int) -> Array:
    """The bucket of each hash."""
    found: Array = pa.array((hashes % np.uint64(buckets)).astype(np.int32))
    return found


# ---- Exchanging rows by bucket
#
# On Spark it is a shuffle. In this process the rows of each bucket are written one behind the other into files, so
# that memory does not grow with their number.


@runtime_checkable
class Shuffles(Protocol):
    """Workers that bring rows together by themselves."""

    def exchange(self, exchange: Exchange[Item]) -> list[Message]:
        """The answers for all buckets that have rows, in the order of their numbers."""
        ...


def run_exchange(exchange: Exchange[Item], workers: Workers, folder: AnswerFolder) -> list[Message]:
    """The answers for all buckets that have rows, in the order of their numbers.

    `folder` is for this process: on Spark the rows lie where Spark keeps its shuffles.
    """
    if not exchange.items:
        return []
    if isinstance(workers, Shuffles):
        return workers.exchange(exchange)
    return _exchanged_here(exchange, workers, folder)


def _exchanged_here(exchange: Exchange[Item], workers: Workers, folder: AnswerFolder) -> list[Message]:
    def write(number_and_item: tuple[int, Item]) -> Message:
        number, item = number_and_item
        names, rows = [], 0
        for run in gathered(work_steps(exchange.read(item))):
            name = attempt_name("run", number)
            write_answer(folder, name, run.schema, by_bucket(run, exchange.buckets))
            names.append(name)
            rows += run.num_rows
            advance(run.num_rows)
        return {"runs": names, "rows": rows}

    written = workers.run("read rows", write, list(enumerate(exchange.items)))
    runs = [name for answer in written for name in answer["runs"]]

    def handle(bucket: int) -> Message:
        batches = [batch for name in runs for batch in read_answer(folder, name, bucket, bucket + 1)]
        rows = pa.Table.from_batches(batches) if batches else None
        return exchange.handle(bucket, rows) | {BUCKET: bucket} if rows else {}

    answers = workers.run(exchange.stage, handle, range(exchange.buckets))
    return [answer for answer in answers if answer]


# ---- Answer files with keys


_SCHEMA = pa.schema([pa.field("key", pa.utf8())])


@frozen
class KeyFiles(Sequence[str]):
    """Keys in files of an operation. Read as a sequence they stream by; picklable, for tasks that read a file each."""

    folder: AnswerFolder
    names: tuple[str, ...]
    total: int

    def __len__(self) -> int:
        return self.total

    def __iter__(self) -> Iterator[str]:
        for name in self.names:
            for batch in self.batches(name):
                yield from map(str, batch.column(0).to_pylist())

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[str]: ...
    def __getitem__(self, place: int | slice) -> str | Sequence[str]:
        return list(self)[place]

    def batches(self, name: str) -> Iterator[Batch]:
        """The keys of one file, as batches with a column `key`."""
        yield from read_answer(self.folder, name)


def write_keys(folder: AnswerFolder, part: int, batches: Iterable[Batch]) -> Message:
    """Write the keys of batches with one column; for `key_files`."""
    name = attempt_name("keys", part)
    rows = (pa.RecordBatch.from_arrays([batch.column(0)], schema=_SCHEMA) for batch in batches)
    answer = write_answer(folder, name, _SCHEMA, rows)
    return {"name": answer.name, "rows": answer.rows}


def key_files(folder: AnswerFolder, answers: Iterable[Message]) -> KeyFiles:
    """The keys that tasks wrote."""
    found = [answer for answer in answers if answer["rows"]]
    names = tuple(str(answer["name"]) for answer in found)
    return KeyFiles(folder, names, sum(int(answer["rows"]) for answer in found))


def joined_keys(first: Sequence[str], second: Sequence[str]) -> Sequence[str]:
    """The keys of both; those in files of one folder stay there."""
    if isinstance(first, KeyFiles) and isinstance(second, KeyFiles):
        assert first.folder == second.folder, "keys of one plan lie together"
        return KeyFiles(first.folder, (*first.names, *second.names), first.total + second.total)
    return [*first, *second]


# ---- The folder of one large comparison or merge: made with its first file, gone with the object that uses it


_log = logging.getLogger(__name__)
SCRATCH = Variable(
    "OMNIGRAPH_SCRATCH",
    "Holds the files of large comparisons; the driver and all executors have to reach it.",
    default="a temporary folder; on a cluster the graph",
    values="a folder or `s3://` prefix",
)


@frozen(kw_only=True)
class ScratchPlace:
    """A place for the files of an operation."""

    root: GraphLocation
    #: A writer keeps them in the graph: its executors write there anyway.
    is_writer: bool = False
    is_read_only: bool = False
    #: Begins a read of the graph, and gives the function that ends it: cleanup leaves files of running reads alone.
    begin_read: Callable[[], Callable[[], None]] | None = None

    def location(self, workers: Workers | None) -> tuple[GraphLocation, bool]:
        """The root for files that all workers reach, and whether it was made for them alone.

        Raises:
            BadRequestError: there is no place that the executors of a cluster reach.
        """
        if self.is_writer:
            return self.root, False
        if chosen := SCRATCH.text():
            return parse_location(chosen), False
        if workers is None or workers.is_on_this_machine:
            return parse_location(tempfile.mkdtemp(prefix="omnigraph-")), True
        if not self.is_read_only:
            return self.root, False
        raise BadRequestError(
            "the differences are too many for one process, and the executors of a cluster may not keep them in a graph "
            f"that is open for reading only: set {SCRATCH} to a folder or s3:// prefix that this process and the "
            "executors reach, or open the graph for writing"
        )


class Scratch:
    """A folder for the files of one operation.

    It is removed by `close`, when nothing refers to the object any more, and at the end of the process.
    """

    def __init__(self, place: ScratchPlace) -> None:
        self._place = place
        self._folder: AnswerFolder | None = None
        self._removal: weakref.finalize[..., Scratch] | None = None

    @property
    def is_closed(self) -> bool:
        """Whether there was a folder, and it is gone."""
        return self._removal is not None and not self._removal.alive

    def folder(self, workers: Workers | None) -> AnswerFolder:
        """The folder, for workers or for this process alone.

        Raises:
            BadRequestError: there is no place that the executors of a cluster reach.
        """
        if self._folder is None:
            place = self._place
            root, is_own = place.location(workers)
            is_in_graph = root == place.root
            end_read = place.begin_read() if is_in_graph and place.begin_read else None
            self._folder = new_answer_folder(root)
            self._removal = weakref.finalize(self, _remove, self._folder, os.getpid(), is_own=is_own, end_read=end_read)
        return self._folder

    @contextmanager
    def inner(self) -> Iterator[Scratch]:
        """A second folder at the same place, for what only a step of the work needs."""
        inner = Scratch(self._place)
        try:
            yield inner
        finally:
            inner.close()

    def close(self) -> None:
        """Remove the folder, if there is one."""
        if self._removal is not None:
            self._removal()


def _remove(folder: AnswerFolder, process_id: int, *, is_own: bool, end_read: Callable[[], None] | None) -> None:
    if os.getpid() != process_id:
        return  # a fork of the process: the folder is its parent's
    try:
        remove_answers(folder)
    except (OmniError, OSError) as problem:
        # The work is done; `cleanup` removes what stays in a graph.
        _log.warning("%s stays behind: %s", folder.root.child(folder.name), problem)
    if is_own:
        with suppress(OSError):
            folder.root.path.rmdir()
    if end_read is not None:
        end_read()
