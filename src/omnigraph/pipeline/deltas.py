"""The rows that differ between two states, ordered by id: few of them in memory, many of them in files.

Both are read in the same way: how many there are by what happened to them, any stretch of them, and only some of the
operations. What is in files is streamed; memory does not grow with the number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as _arrow
import pyarrow.compute as _compute

from omnigraph.errors import BadRequestError
from omnigraph.pipeline.differences import DELTA, OPERATIONS, operation_codes, operation_counts
from omnigraph.storage.answers import read_answer

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from omnigraph.pipeline.scratch import Scratch
    from omnigraph.storage.answers import AnswerFolder

#: The published stubs of pyarrow describe older functions, and arrays of one type only.
pa: Any = _arrow
pc: Any = _compute

#: Rows of a batch; all but the last one of a file have exactly so many.
BATCH_ROWS = 65_536


class Delta(Protocol):
    """Rows as `differences.DELTA`, ordered by id."""

    @property
    def counts(self) -> tuple[int, ...]:
        """How many rows there are of each operation, by its code."""
        ...

    @property
    def held_bytes(self) -> int:
        """The memory that the rows take."""
        ...

    @property
    def is_in_files(self) -> bool:
        """Whether the rows are in files, which go with the object."""
        ...

    def __len__(self) -> int: ...

    def batches(self, begin: int = 0, end: int | None = None) -> Iterator[Any]:
        """The rows from one place in the order to another, as tables of at most `BATCH_ROWS`."""
        ...

    def only(self, codes: Collection[int]) -> Delta:
        """The rows of some operations."""
        ...

    def shared(self) -> Delta:
        """The same rows for several users: `close` removes nothing, the files go when nobody refers to them."""
        ...

    def place_behind(self, entity_id: str) -> int:
        """The place of the first row behind an id."""
        ...

    def close(self) -> None:
        """Remove files of the rows; nothing can be read any more."""
        ...


class HeldDelta:
    """Rows in memory."""

    is_in_files = False

    def __init__(self, rows: Any) -> None:
        self._rows = rows
        self.counts = operation_counts(rows)

    @property
    def held_bytes(self) -> int:
        """As `Delta.held_bytes`."""
        return int(self._rows.nbytes)

    def __len__(self) -> int:
        return int(self._rows.num_rows)

    def batches(self, begin: int = 0, end: int | None = None) -> Iterator[Any]:
        """As `Delta.batches`."""
        last = len(self) if end is None else min(end, len(self))
        for first in range(begin, last, BATCH_ROWS):
            yield self._rows.slice(first, min(BATCH_ROWS, last - first))

    def only(self, codes: Collection[int]) -> HeldDelta:
        """As `Delta.only`."""
        return HeldDelta(_with_codes(self._rows, codes))

    def shared(self) -> HeldDelta:
        """As `Delta.shared`."""
        return self

    def place_behind(self, entity_id: str) -> int:
        """As `Delta.place_behind`."""
        return _count_up_to(self._rows, entity_id)

    def close(self) -> None:
        """As `Delta.close`; memory goes with the object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaPart:
    """A file with some of the rows, ordered by id; parts follow each other in that order."""

    name: str
    #: Parts of one bucket hold what several deltas say about the same ids.
    bucket: int
    #: Rows of each operation.
    counts: tuple[int, ...]
    first_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FiledDelta:
    """Rows in files."""

    folder: AnswerFolder
    #: Keeps the folder.
    scratch: Scratch
    parts: Sequence[DeltaPart]
    codes: frozenset[int] = field(default=frozenset(range(OPERATIONS)))
    is_shared: bool = False

    @property
    def counts(self) -> tuple[int, ...]:
        """As `Delta.counts`."""
        return tuple(
            sum(part.counts[code] for part in self.parts) if code in self.codes else 0
            for code in range(OPERATIONS)
        )

    @property
    def held_bytes(self) -> int:
        """As `Delta.held_bytes`; the names of files do not count."""
        return 0

    @property
    def is_in_files(self) -> bool:
        """As `Delta.is_in_files`."""
        return True

    def __len__(self) -> int:
        return sum(self.counts)

    def batches(self, begin: int = 0, end: int | None = None) -> Iterator[Any]:
        """As `Delta.batches`."""
        last = len(self) if end is None else min(end, len(self))
        for part in self.parts:
            count = self._count(part)
            if begin < count and last > 0:
                yield from self._slice(part, begin, min(last, count))
            begin, last = max(0, begin - count), last - count

    def only(self, codes: Collection[int]) -> FiledDelta:
        """As `Delta.only`."""
        return replace(self, codes=self.codes.intersection(codes))

    def shared(self) -> FiledDelta:
        """As `Delta.shared`."""
        return replace(self, is_shared=True)

    def place_behind(self, entity_id: str) -> int:
        """As `Delta.place_behind`; reads one part."""
        before = [part for part in self.parts if part.first_id <= entity_id]
        if not before:
            return 0
        *whole, part = before
        place = sum(map(self._count, whole))
        return place + sum(
            _count_up_to(rows, entity_id) for rows in self._slice(part, 0, self._count(part))
        )

    def close(self) -> None:
        """As `Delta.close`."""
        if not self.is_shared:
            self.scratch.close()

    def _count(self, part: DeltaPart) -> int:
        return sum(part.counts[code] for code in self.codes)

    def _slice(self, part: DeltaPart, begin: int, end: int) -> Iterator[Any]:
        """Rows of one part, counted without those that are left out."""
        place, number = 0, 0
        if len(self.codes) == OPERATIONS:
            number = begin // BATCH_ROWS
            place = number * BATCH_ROWS
        if place >= end:
            return
        for batch in self._read(part, number):
            rows = _with_codes(pa.Table.from_batches([batch], DELTA), self.codes)
            first, last = max(begin - place, 0), min(end - place, rows.num_rows)
            if first < last:
                yield rows.slice(first, last - first)
            place += rows.num_rows
            if place >= end:
                return

    def _read(self, part: DeltaPart, number: int) -> Iterator[Any]:
        if self.scratch.is_closed:
            raise BadRequestError("these differences were closed: compare again")
        return read_answer(self.folder, part.name, number)


def _with_codes(rows: Any, codes: Collection[int]) -> Any:
    if len(codes) == OPERATIONS:
        return rows
    return rows.filter(pa.array(np.isin(operation_codes(rows), list(codes))))


def _count_up_to(rows: Any, entity_id: str) -> int:
    behind = pc.greater(rows["id"], pa.scalar(entity_id, pa.utf8()))
    return int(rows.num_rows - np.count_nonzero(np.asarray(behind)))
