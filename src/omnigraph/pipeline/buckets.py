"""What is exchanged between tasks: rows that some read, and the buckets in which others get them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

import numpy as np
import pyarrow as _arrow
import pyarrow.compute as _compute

from omnigraph.pipeline.workers import Item

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from omnigraph.pipeline.workers import Message

#: The published stubs of pyarrow describe older functions, and arrays of one type only.
pa: Any = _arrow
pc: Any = _compute

#: The column that says to which bucket a row belongs; the first one.
BUCKET = "bucket"
#: Rows that are sorted by bucket at once.
RUN_ROWS = 262_144
_RUN_BYTES = 64 * 1024 * 1024
_WORD = 8
#: Of a longer text these bytes and the last eight are hashed.
_HASHED_BYTES = 256
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange(Generic[Item]):
    """What is read, where it belongs, and what is done with it. Items and functions travel to other processes."""

    stage: str
    items: Sequence[Item]
    #: Gives the rows of an item as record batches of `schema`.
    read: Callable[[Item], Iterable[Any]]
    #: Begins with `BUCKET`.
    schema: Any
    buckets: int
    #: Gets the number of a bucket and all its rows as a table; not called for buckets without rows.
    handle: Callable[[int, Any], Message]


def gathered(batches: Iterable[Any]) -> Iterator[Any]:
    """Neighbouring batches together, as tables of so many rows as are sorted at once."""
    waiting: list[Any] = []
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


def by_bucket(rows: Any, buckets: int) -> Iterator[Any]:
    """One batch for each bucket, in their order, also where it has no rows."""
    order = np.argsort(rows[BUCKET].to_numpy(), kind="stable")
    ordered = rows.take(pa.array(order)).combine_chunks()
    ends = np.searchsorted(ordered[BUCKET].to_numpy(), np.arange(buckets), side="right")
    (batch,) = ordered.to_batches()
    begin = 0
    for end in ends.tolist():
        yield batch.slice(begin, end - begin)
        begin = end


def buckets_of(splitters: Any, keys: Any) -> Any:
    """The bucket of each key: how many of the splitters, which are sorted, it does not lie before."""
    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks()
    return pc.search_sorted(splitters, keys, side="right").cast(pa.int32())


def text_hashes(texts: Any) -> NDArray[np.uint64]:
    """A hash of each text of an array without nulls: equal texts have equal ones, in every process."""
    _, offset_buffer, data_buffer = texts.buffers()
    offsets = np.frombuffer(offset_buffer or bytes(4), dtype=np.int32)
    offsets = offsets[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    data = np.frombuffer(data_buffer or b"", dtype=np.uint8)[: offsets[-1]]
    # Eight bytes behind, so that a whole word begins at every byte.
    padded = np.concatenate([data, np.zeros(_WORD, dtype=np.uint8)])
    words: Any = np.ndarray((len(data) + 1,), "<u8", buffer=padded, strides=(1,))
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


def hash_buckets(hashes: NDArray[np.uint64], buckets: int) -> Any:
    """The bucket of each hash."""
    return pa.array((hashes % np.uint64(buckets)).astype(np.int32))
