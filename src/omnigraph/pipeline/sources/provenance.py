"""Where rows come from: the numbers of their records, and the places that reports name.

A task notes the numbers of the records that became rows, as runs of neighbours. Few runs travel in its answer; more of
them are files of the load. So a row is traced to its line without reading the input again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np

from omnigraph.core.arrow import Batch, pa
from omnigraph.core.ids import TableKey
from omnigraph.errors.writes import LINE
from omnigraph.frozen import frozen
from omnigraph.pipeline.sources.mapping import MappedType
from omnigraph.pipeline.sources.parts import Part
from omnigraph.pipeline.violations import Place
from omnigraph.pipeline.workers import Message
from omnigraph.storage.answers import AnswerFolder, attempt_name, read_answer, write_answer

if TYPE_CHECKING:
    from numpy.typing import NDArray


# ---- The numbers of records behind rows


#: Runs that travel in a message.
_SENT_RUNS = 64
#: Runs that a task holds before they go into a file.
_HELD_RUNS = 1_000_000
_RUNS = pa.schema([("first", pa.int64()), ("length", pa.int64())])


class NumberNotes:
    """Notes the numbers of the records that become rows of one type, in the order of the rows."""

    def __init__(self, folder: AnswerFolder | None, part: int) -> None:
        self._folder = folder
        self._part = part
        self._firsts: list[NDArray[np.int64]] = []
        self._lengths: list[NDArray[np.int64]] = []
        self._held = 0
        self._files: list[str] = []

    def add(self, numbers: NDArray[np.int64]) -> None:
        """Go on with the records of more rows."""
        if not len(numbers):
            return
        begins = np.concatenate(([0], np.flatnonzero(np.diff(numbers) != 1) + 1))
        self._firsts.append(numbers[begins])
        self._lengths.append(np.diff(np.append(begins, len(numbers))))
        self._held += len(begins)
        if self._held >= _HELD_RUNS and self._folder is not None:
            self._write()

    def _write(self) -> None:
        assert self._folder is not None, "without a folder everything travels"
        name = attempt_name("numbers", self._part)
        write_answer(self._folder, name, _RUNS, [self._take()])
        self._files.append(name)

    def _take(self) -> Batch:
        """The runs that are held; neighbours that continue each other are one."""
        firsts = np.concatenate(self._firsts) if self._firsts else np.empty(0, np.int64)
        lengths = np.concatenate(self._lengths) if self._lengths else np.empty(0, np.int64)
        self._firsts, self._lengths, self._held = [], [], 0
        begins = np.flatnonzero(np.append([True], firsts[1:] != (firsts + lengths)[:-1])[: len(firsts)])
        lengths = np.add.reduceat(lengths, begins) if len(begins) else lengths
        runs: Batch = pa.RecordBatch.from_arrays([pa.array(firsts[begins]), pa.array(lengths)], schema=_RUNS)
        return runs

    def message(self) -> Message:
        """The notes as plain JSON values."""
        runs = self._take()
        if runs.num_rows > _SENT_RUNS and self._folder is not None:
            self._firsts, self._lengths = [np.asarray(runs.column(0))], [np.asarray(runs.column(1))]
            self._write()
            runs = runs.slice(0, 0)
        return {"files": self._files, "runs": [column.to_pylist() for column in runs.columns]}


@frozen(kw_only=True)
class RecordNumbers:
    """The numbers of the records behind the rows of one type in a piece of the input. Travels to tasks."""

    folder: AnswerFolder | None
    files: tuple[str, ...]
    firsts: tuple[int, ...]
    lengths: tuple[int, ...]

    @staticmethod
    def from_message(message: Message, folder: AnswerFolder | None) -> RecordNumbers:
        """The notes of a task."""
        firsts, lengths = message["runs"]
        return RecordNumbers(folder=folder, files=tuple(message["files"]), firsts=tuple(firsts), lengths=tuple(lengths))

    def at(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers behind some rows, which are counted from 0."""
        found = np.zeros(len(rows), dtype=np.int64)
        begin = 0
        for firsts, lengths in self._runs():
            ends = begin + np.cumsum(lengths)
            end = int(ends[-1]) if len(ends) else begin
            here = np.flatnonzero((rows >= begin) & (rows < end))
            runs = np.searchsorted(ends, rows[here], side="right")
            found[here] = firsts[runs] + rows[here] - (ends[runs] - lengths[runs])
            begin = end
        return found

    def all(self) -> NDArray[np.int64]:
        """The numbers behind all rows."""
        found = [np.empty(0, np.int64)]
        for firsts, lengths in self._runs():
            begins = np.cumsum(lengths) - lengths
            found.append(np.arange(int(lengths.sum())) + np.repeat(firsts - begins, lengths))
        return np.concatenate(found)

    def _runs(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        for name in self.files:
            assert self.folder is not None, "files lie in the folder of the load"
            for batch in read_answer(self.folder, name):
                yield np.asarray(batch.column(0)), np.asarray(batch.column(1))
        yield np.array(self.firsts, np.int64), np.array(self.lengths, np.int64)


# ---- Pieces of the input, and the rows that they became


@frozen(kw_only=True)
class Piece:
    """What one task read: a part of a file, or a partition of a frame."""

    #: As reports call it.
    source: str
    #: What is counted in it.
    unit: str = LINE
    #: How many characters stand before the last record, if it is all that cannot be read of a file.
    rest: int | None = None
    #: Lines of the file, or whatever is counted, before it.
    before: int = 0
    #: How many lines, records or rows it has.
    lines: int = 0
    numbers: Mapping[TableKey, RecordNumbers] = field(default_factory=dict)
    #: None for a partition of a frame.
    part: Part | None = None
    #: How a frame is read, and the file with the rows of its partition where they are kept; empty if there are none.
    frame: MappedType | None = None
    kept: str = ""

    @property
    def mapped(self) -> MappedType | None:
        """The entry of a mapping that describes it; None for graph records."""
        return self.frame if self.part is None else self.part.mapped

    @property
    def shares_records(self) -> bool:
        """Whether a record of it may be several rows."""
        return self.mapped is not None and self.mapped.each is not None

    def places(self, key: TableKey, rows: NDArray[np.int64]) -> list[Place]:
        """The places of some rows of a type, which are counted from 0 within the piece."""
        numbers = self.numbers[key].at(rows) + self.before
        return [Place(self.source, number, self.unit) for number in numbers.tolist()]


@frozen
class Origin:
    """Where a row comes from: so many rows of its type into a piece."""

    piece: int
    row: int

    def behind(self, rows: int) -> Origin:
        """The origin of a later row of the same fragment."""
        return Origin(self.piece, self.row + rows)


class Provenance:
    """The pieces of an input, in its order."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []

    def add(self, piece: Piece) -> int:
        """Go on with another piece; its number."""
        self.pieces.append(piece)
        return len(self.pieces) - 1

    def of_rows(self, key: TableKey, origins: Mapping[int, Origin]) -> RowSource:
        """The same for tasks: the rows of a type in some fragments or files."""
        return RowSource(key, origins, {origin.piece: self.pieces[origin.piece] for origin in origins.values()})

    def places(self, key: TableKey, rows: Sequence[Origin]) -> list[Place]:
        """The places of some rows of a type."""
        numbers = np.array([row.piece for row in rows], np.int64)
        found: dict[int, Place] = {}
        for piece in np.unique(numbers).tolist():
            here = np.flatnonzero(numbers == piece).tolist()
            positions = np.array([rows[place].row for place in here], np.int64)
            found |= zip(here, self.pieces[piece].places(key, positions), strict=True)
        return [found[place] for place in range(len(rows))]


_OFFSET_BITS = 32
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1


@frozen
class RowSource:
    """The origins of the rows of a type by their addresses, of a fragment or a file and a place. Travels to tasks."""

    key: TableKey
    #: By fragment or file.
    origins: Mapping[int, Origin]
    pieces: Mapping[int, Piece]

    def numbers(self, addresses: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The pieces of some rows, and the numbers of their records there."""
        pieces = np.zeros(len(addresses), np.int64)
        numbers = np.zeros(len(addresses), np.int64)
        files = addresses >> _OFFSET_BITS
        rows = addresses & _OFFSET_MASK
        for file in np.unique(files).tolist():
            here = files == file
            origin = self.origins[file]
            pieces[here], rows[here] = origin.piece, rows[here] + origin.row
        for piece in np.unique(pieces).tolist():
            here = pieces == piece
            numbers[here] = self.pieces[piece].numbers[self.key].at(rows[here])
        return pieces, numbers

    def places(self, pieces: NDArray[np.int64], numbers: NDArray[np.int64]) -> list[Place]:
        """The places of records."""
        found = []
        for number, record in zip(pieces.tolist(), numbers.tolist(), strict=True):
            piece = self.pieces[number]
            found.append(Place(piece.source, piece.before + record, piece.unit))
        return found
