"""What is exchanged between tasks: rows that some read, and the buckets in which others get them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

import pyarrow as _arrow
import pyarrow.compute as _compute

from omnigraph.pipeline.workers import Item

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from omnigraph.pipeline.workers import Message

#: The published stubs of pyarrow describe older functions, and arrays of one type only.
pa: Any = _arrow
pc: Any = _compute

#: The column that says to which bucket a row belongs; the first one.
BUCKET = "bucket"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange(Generic[Item]):
    """What is read, where it belongs, and what is done with it. Items and functions travel to other processes."""

    stage: str
    items: Sequence[Item]
    #: Gives the rows of an item as record batches of `schema`.
    read: Callable[[Item], Iterable[Any]]
    #: Begins with `BUCKET`; of the types that Spark has too.
    schema: Any
    buckets: int
    #: Gets the number of a bucket and all its rows as a table; not called for buckets without rows.
    handle: Callable[[int, Any], Message]


def buckets_of(splitters: Any, keys: Any) -> Any:
    """The bucket of each key: how many of the splitters, which are sorted, it does not lie before."""
    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks()
    return pc.search_sorted(splitters, keys, side="right").cast(pa.int32())
