"""Records as they stand in their source, by their numbers: what a quarantine keeps of them.

Lines and records of text are copied byte for byte, with the line that names the columns; rows of columnar files and of
frames keep all of their columns. Numbers are those by which the reading of a part counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import IO, TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq

from omnigraph.core.arrow import Array, Batch, pa, pc
from omnigraph.frozen import frozen
from omnigraph.pipeline.sources.inputs import ByteStream, open_text, readable
from omnigraph.pipeline.sources.jsonl import rest_of, value_texts
from omnigraph.pipeline.sources.mapping import MappedType, SourceFormat
from omnigraph.pipeline.sources.parts import Part, open_table
from omnigraph.pipeline.sources.reading import part_content
from omnigraph.storage.answers import AnswerFolder, read_answer

if TYPE_CHECKING:
    import pyarrow
    from numpy.typing import NDArray

_BLOCK_BYTES = 8 * 1024 * 1024
#: Where values of JSON begin and end does not depend on what is right in them.
_DECODER = json.JSONDecoder()
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n|\r|\n")
_PARQUET = "parquet"


@frozen(kw_only=True)
class KeptRows:
    """The rows of a partition of a frame, which cannot be read twice. Travels to tasks."""

    folder: AnswerFolder
    #: The file; empty for a partition without rows.
    name: str

    def batches(self) -> Iterator[Batch]:
        """All rows, in order."""
        yield from read_answer(self.folder, self.name)


# ---- one kind of source after the other


def ending_of(part: Part | None) -> str:
    """The ending of a file with records of a part, or with rows of a frame."""
    match None if part is None else part.format:
        case None if part is not None:
            return "jsonl"
        case SourceFormat.CSV:
            assert part is not None, "it has a format"
            return part.file.ending if part.file.ending in ("csv", "tsv") else "csv"
        case SourceFormat.JSON:
            return "json"
    return _PARQUET


def write_originals(
    path: str,
    part: Part | KeptRows,
    numbers: NDArray[np.int64],
    *,
    is_strict: bool,
    is_list: bool,
    rest: int | None = None,
) -> int:
    """Write the records with these numbers, which are sorted, as a file; the number of the first one in it.

    The last one may be the rest of a text behind so many characters, in which no values can be told apart.

    Raises:
        InputFileError: the source is gone or damaged.
    """
    if isinstance(part, KeptRows):
        _write_rows(path, part.batches(), numbers)
        return 1
    if part.format in (SourceFormat.PARQUET, SourceFormat.ORC):
        with readable(part.file), open_table(part.file, is_parquet=part.format is SourceFormat.PARQUET) as table:
            _write_rows(path, table.batches(part.groups, list(table.schema.names)), numbers)
        return 1
    with readable(part.file), open(path, "xb") as file:
        if part.format is SourceFormat.CSV:
            assert part.mapped is not None, "a part of a table belongs to a mapped type"
            return _write_csv(file, part, part.mapped, numbers)
        if is_list or (part.format is None and not is_strict):
            _write_values(file, part, numbers, is_list=is_list, rest=rest)
        else:
            with part_content(part) as stream:
                file.writelines(copied_lines(stream, part.begin, numbers))
    return 1


def _write_values(file: IO[bytes], part: Part, numbers: NDArray[np.int64], *, is_list: bool, rest: int | None) -> None:
    """JSON values as they stand, in a list or one after the other; the last one may be a rest that breaks off."""
    if rest is not None and numbers[-1] == 1:
        file.writelines(rest_of(part.file, 0))
        return
    whole = numbers if rest is None else numbers[:-1]
    wanted = set(whole.tolist())
    texts = islice(value_texts(part.file, _DECODER, is_list=is_list), max(wanted, default=0))
    mark, between = (b"[", b",\n") if is_list else (b"", b"\n")
    for number, text in enumerate(texts, start=1):
        if number in wanted:
            file.write(mark + text.encode())
            mark = between
    if rest is not None:
        file.write(mark)
        file.writelines(rest_of(part.file, rest))
    else:
        file.write(b"]\n" if is_list else b"\n")


def _write_csv(file: IO[bytes], part: Part, mapped: MappedType, numbers: NDArray[np.int64]) -> int:
    """Records of CSV behind the line that names the columns; the number of the first one in the file."""
    has_names = mapped.csv.header is None
    if mapped.csv.multiline:
        with open_text(part.file) as stream:
            records = csv_records(stream, mapped.csv.delimiter_of(part.file).encode())
            if has_names:
                file.write(next(records, b"") + b"\n")
            wanted = set(numbers.tolist())
            file.writelines(record + b"\n" for number, record in enumerate(records, start=1) if number in wanted)
        # Records are counted, not the line of names.
        return 1
    if has_names:
        with open_text(part.file) as stream:
            file.write(_first_line(stream) + b"\n")
    with part_content(part) as stream:
        file.writelines(copied_lines(stream, part.begin, numbers))
    return 2 if has_names else 1


def _write_rows(path: str, batches: Iterable[Batch], numbers: NDArray[np.int64]) -> None:
    writer = None
    first = 1
    try:
        for batch in batches:
            begin, end = np.searchsorted(numbers, (first, first + batch.num_rows))
            chosen = _at(batch, numbers[begin:end] - first)
            names = batch.schema.names
            rows = pa.Table.from_batches(
                [pa.RecordBatch.from_arrays([storable(column) for column in some.columns], names) for some in chosen]
            )
            if writer is None:
                writer = pq.ParquetWriter(path, rows.schema, compression="zstd")
            if rows.num_rows:
                writer.write_table(rows)
            first += batch.num_rows
    finally:
        if writer is not None:
            writer.close()


def _at(batch: Batch, places: NDArray[np.int64]) -> list[Batch]:
    """Some rows, as neighbours: not every type of Arrow can be taken from one by one."""
    if not len(places):
        return [batch.slice(0, 0)]
    runs = np.split(places, np.flatnonzero(np.diff(places) != 1) + 1)
    return [batch.slice(int(run[0]), len(run)) for run in runs]


def storable(column: Array) -> Array:
    """The same values in a type that Parquet has; those of a type without any like it as text.

    >>> storable(pa.array([{}, None], pa.struct([]))).to_pylist()
    ['{}', None]
    """
    if pa.types.is_run_end_encoded(column.type):
        column = pc.run_end_decode(column)
    if _is_storable(column.type):
        return column
    found: Array = pa.array([None if value is None else str(value) for value in column.to_pylist()], pa.utf8())
    return found


def _is_storable(kind: pyarrow.DataType) -> bool:
    if pa.types.is_union(kind) or pa.types.is_interval(kind) or pa.types.is_run_end_encoded(kind):
        return False
    if pa.types.is_struct(kind) and not kind.num_fields:
        return False
    return all(_is_storable(kind.field(number).type) for number in range(kind.num_fields))


# ---- lines and records of text


def copied_lines(stream: ByteStream, begin: int, numbers: NDArray[np.int64]) -> Iterator[bytes]:
    """The lines of a part with these numbers, as they stand; a long one comes in pieces.

    The stream stands one byte before `begin`, where that is not the beginning of the file.
    """
    number, is_wanted, ends_open = (0 if begin else 1), False, False
    last = int(numbers[-1]) if len(numbers) else 0
    is_first_block = not begin
    if not begin:
        is_wanted = bool(len(numbers)) and int(numbers[0]) == 1
    while number <= last and (block := stream.read(_BLOCK_BYTES)):
        if is_first_block:
            block, is_first_block = block.removeprefix(_BYTE_ORDER_MARK), False
        ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + 1
        starts = np.concatenate(([0], ends))
        count = len(ends)
        if is_wanted:
            yield block[: int(ends[0])] if count else block
        inner = numbers[np.searchsorted(numbers, number + 1) : np.searchsorted(numbers, number + count)]
        for place in (inner - number).tolist():
            yield block[int(starts[place]) : int(ends[place])]
        if count:
            number += count
            place = int(np.searchsorted(numbers, number))
            is_wanted = place < len(numbers) and int(numbers[place]) == number
            if is_wanted and (rest := block[int(ends[-1]) :]):
                yield rest
        ends_open = is_wanted and not block.endswith(b"\n")
    if ends_open:
        yield b"\n"


def _first_line(stream: ByteStream) -> bytes:
    """The first line of a text without its line feed and without a byte order mark."""
    found = b""
    while b"\n" not in found and (block := stream.read(64 * 1024)):
        found += block
    return found.removeprefix(_BYTE_ORDER_MARK).partition(b"\n")[0]


def csv_records(stream: ByteStream, delimiter: bytes) -> Iterator[bytes]:
    """The records of a CSV text whose values may hold line breaks, as they stand, without empty lines.

    As Arrow reads them: a quote opens a value only where the value begins, and two of them inside of one are one.
    """
    special = re.compile(rb'["\r\n' + re.escape(delimiter) + rb"]")
    kept, is_complete, is_first = b"", False, True
    while not is_complete:
        block = stream.read(_BLOCK_BYTES)
        is_complete = not block
        kept += block.removeprefix(_BYTE_ORDER_MARK) if is_first else block
        is_first = False
        rest = 0
        for begin, end in _record_spans(kept, special, is_complete=is_complete):
            if end > begin:
                yield kept[begin:end]
            rest = _behind(kept, end)
        kept = kept[rest:]


def _behind(text: bytes, end: int) -> int:
    """Where the next record begins."""
    found = _LINE_END.match(text, end)
    return end if found is None else found.end()


def _record_spans(text: bytes, special: re.Pattern[bytes], *, is_complete: bool) -> Iterator[tuple[int, int]]:
    """Where records begin and end; the last one only if the text is complete."""
    begin = value = position = 0
    is_quoted = False
    while (found := special.search(text, position)) is not None:
        place, position = found.start(), found.end()
        mark = text[place:position]
        if not is_complete and position == len(text):
            # What follows decides what it is.
            return
        if is_quoted:
            if mark == b'"':
                if text[position : position + 1] == b'"':
                    position += 1
                else:
                    is_quoted = False
        elif mark == b'"':
            is_quoted = place == value
        elif mark in (b"\r", b"\n"):
            yield begin, place
            begin = value = position = _behind(text, place)
        else:
            value = position
    if is_complete and begin < len(text):
        yield begin, len(text)
