"""Rows that tasks read, brought together by bucket, each handled by one task; keys that tasks wrote to files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, overload, runtime_checkable

import numpy as np

from omnigraph.core.arrow import Array, Batch, Rows, pa, pc
from omnigraph.core.budget import work_steps
from omnigraph.pipeline.keys import text_bytes
from omnigraph.pipeline.workers import Item, Message, Workers, advance
from omnigraph.storage.answers import AnswerFolder, attempt_name, read_answer, write_answer

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


@dataclass(frozen=True, slots=True, kw_only=True)
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
        """As `run_exchange`."""
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


@dataclass(frozen=True, slots=True)
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
