"""One part of the input → its records, type by type, in pieces that fit into memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow.csv as _csv

from omnigraph.core.arrow import Batch, Rows, pa
from omnigraph.errors import InputFileError
from omnigraph.errors.text import size_text
from omnigraph.errors.writes import LINE, RECORD
from omnigraph.pipeline.shape.items import NotAListError, items_of
from omnigraph.pipeline.shape.plan import EntityShape, LoadPlan
from omnigraph.pipeline.shape.shaping import RawRecords
from omnigraph.pipeline.shape.value_sources import ItemSource
from omnigraph.pipeline.sources.column_map import (
    ColumnMap,
    SourceColumns,
    arrow_columns,
    map_columns,
    plain_columns,
    raw_records,
)
from omnigraph.pipeline.sources.inputs import ByteStream, CountedQuotes, line_blocks, open_bytes, open_text, readable
from omnigraph.pipeline.sources.json_rows import (
    NotAnObjectError,
    has_member,
    json_columns,
    json_member,
    present_members,
)
from omnigraph.pipeline.sources.jsonl import (
    BrokenOffError,
    count_bad,
    group_records,
    is_utf8,
    read_items,
    read_lines,
    read_objects,
)
from omnigraph.pipeline.sources.mapping import MappedType, SourceFormat
from omnigraph.pipeline.sources.parts import Part, open_table
from omnigraph.pipeline.sources.records import (
    LINE_TOO_LONG,
    MAX_LINE_BYTES,
    BadRecordError,
    decoder,
    is_too_long,
    not_utf8,
    read_record,
)
from omnigraph.pipeline.violations import Place, ViolationCounts

if TYPE_CHECKING:
    from numpy.typing import NDArray


csv: Any = _csv
_Numbers: TypeAlias = "NDArray[np.int64]"
_Object: TypeAlias = dict[str, object]

_BLOCK_BYTES = 8 * 1024 * 1024
_MAX_HEADER_BYTES = 1024 * 1024  # longer lines do not name the columns of a CSV file
_SHOWN_BYTES = 4096  # of a bad line, in a report
_INVALID_CSV = "invalid CSV"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class PartReader:
    """Reads one part; afterwards `lines` says how many lines or records it has."""

    def __init__(self, part: Part, plan: LoadPlan, violations: ViolationCounts) -> None:
        self.lines = 0
        #: How many characters stand before the last record, if it is all that cannot be read of a file.
        self.rest: int | None = None
        self._part = part
        self._plan = plan
        self._violations = violations
        self._is_list = False

    @property
    def unit(self) -> str:
        """The unit that `lines` counts; of JSON it is known after reading."""
        match self._part.format:
            case None:
                return LINE if self._plan.is_strict else RECORD
            case SourceFormat.CSV:
                return RECORD if self._mapped[0].csv.multiline else LINE
            case SourceFormat.JSON:
                return RECORD if self._is_list else LINE
        return RECORD

    def records(self) -> Iterator[RawRecords]:
        """All records of the part.

        Raises:
            InputFileError: the file is gone or damaged.
            BadRequestError: a mapping does not fit the file.
        """
        with readable(self._part.file):
            match self._part.format:
                case None:
                    yield from self._graph_lines() if self._plan.is_strict else self._graph_objects()
                case SourceFormat.CSV:
                    yield from self._csv()
                case SourceFormat.JSON:
                    yield from self._json()
                case _:
                    yield from self._columnar()

    def check_columns(self) -> None:
        """Bind the columns of a mapped file to those of its type, as far as they are known before its records.

        Raises:
            InputFileError: the file is gone or damaged.
            BadRequestError: a mapping does not fit the file.
        """
        with readable(self._part.file):
            match self._part.format:
                case SourceFormat.CSV:
                    names, _ = self._csv_names(self._mapped[0])
                    if names:
                        self._columns_for(plain_columns(names))
                case SourceFormat.JSON:
                    self._columns_for(self._json_columns(()))
                case _:
                    with open_table(self._part.file, is_parquet=self._part.format is SourceFormat.PARQUET) as table:
                        chosen = self._columns_for(arrow_columns(table.schema))
                        raw_records(self._mapped[1], table.schema.empty_table(), chosen, np.empty(0, np.int64))

    # ---- the graph format

    def _graph_lines(self) -> Iterator[RawRecords]:
        source = self._part.file.path
        for lines, numbers in self._line_blocks():
            yield from read_lines(lines, numbers, self._plan, self._violations, source)

    def _graph_objects(self) -> Iterator[RawRecords]:
        """Objects between any white space, as old files have them; they are counted, not their lines."""
        source, found, size = self._part.file.path, [], 0
        for body, length in read_objects(self._part.file, decoder(self._plan)):
            self.lines += 1
            try:
                if isinstance(body, BadRecordError):
                    self._note_rest(body)
                    raise body
                found.append((self.lines, read_record(body, self._plan)))
            except BadRecordError as bad:
                count_bad(bad, self.lines, source, self._violations)
            del body
            size += length
            if size >= _BLOCK_BYTES:
                yield from group_records(found, self._plan)
                found, size = [], 0
        yield from group_records(found, self._plan)

    # ---- tables

    @property
    def _mapped(self) -> tuple[MappedType, EntityShape]:
        mapped = self._part.mapped
        assert mapped is not None, "a part of a table belongs to a mapped type"
        return mapped, self._plan.shapes[mapped.type_key]

    def _columns_for(self, source: SourceColumns) -> ColumnMap:
        (mapped, shape), plan, file = self._mapped, self._plan, self._part.file
        source = source.with_partitions(file.partitions)
        return map_columns(mapped, shape, source, file.path, is_strict=plan.is_strict, is_patch=plan.is_patch)

    def _columnar(self) -> Iterator[RawRecords]:
        part = self._part
        with open_table(part.file, is_parquet=part.format is SourceFormat.PARQUET) as table:
            chosen = self._columns_for(arrow_columns(table.schema))
            for batch in table.batches(part.groups, chosen.stored_columns):
                yield self.mapped_records(batch, chosen)

    def mapped_records(self, batch: Batch, chosen: ColumnMap) -> RawRecords:
        """The records of a batch of mapped columns; they follow those that were read before."""
        first = self.lines
        self.lines += batch.num_rows
        numbers = np.arange(first + 1, first + batch.num_rows + 1, dtype=np.int64)
        return raw_records(self._mapped[1], batch, chosen, numbers)

    @property
    def _delimiter(self) -> str:
        return self._mapped[0].csv.delimiter_of(self._part.file)

    def _csv(self) -> Iterator[RawRecords]:
        mapped, shape = self._mapped
        names, has_more = self._csv_names(mapped)
        if not names:
            return
        chosen = self._columns_for(plain_columns(names))
        if mapped.csv.multiline:
            if has_more:
                yield from self._csv_stream(mapped, names, chosen)
            return
        for block, all_numbers in self._line_blocks():
            # A line of nothing but separators is a record.
            blank = b"\r" if self._delimiter == " " else b" \r"
            keep = [
                position
                for position, line in enumerate(block)
                if line.strip(blank) and self._is_short_enough(line, int(all_numbers[position]))
            ]
            lines, numbers = [block[position] for position in keep], all_numbers[keep]
            if mapped.csv.header is None and self._part.begin == 0 and len(numbers) and numbers[0] == 1:
                lines, numbers = lines[1:], numbers[1:]
            for table, positions in self._csv_tables(lines, np.arange(len(lines)), names, mapped):
                yield raw_records(shape, table, chosen, numbers[positions], is_text=True)
            for done, position in enumerate(sorted(self._bad_lines)):
                if not self._violations.wants_example(_INVALID_CSV):
                    left = len(self._bad_lines) - done
                    self._violations.count(_INVALID_CSV, left)
                    self._violations.records += left
                    break
                self._refuse(
                    int(numbers[position]),
                    _INVALID_CSV,
                    self._csv_violation_text(lines[position], names, mapped),
                    lines[position][:_SHOWN_BYTES].decode(errors="replace"),
                )

    def _csv_violation_text(self, line: bytes, names: list[str], mapped: MappedType) -> str:
        """The violation text of a line that is not valid CSV."""
        try:
            line.decode()
        except UnicodeDecodeError as error:
            return f"the line {not_utf8(error)}"
        if line.count(b'"') % 2:
            return "a quote is open at the end of the line; if values hold line breaks, say `multiline: true`"
        if b"\r" in line.removesuffix(b"\r"):
            return "the line has a carriage return inside; if values hold line breaks, say `multiline: true`"
        refused: dict[int, int] = {}
        self._parse_csv(line, names, mapped, refused)
        if not refused:
            return f"the line cannot be read as {_values(len(names))}"
        return f"the line has {_values(refused[0])} instead of {len(names):,}"

    def _csv_tables(
        self, lines: list[bytes], positions: _Numbers, names: list[str], mapped: MappedType
    ) -> Iterator[tuple[Rows, _Numbers]]:
        """Tables of the good lines with their positions; the others are in `_bad_lines` afterwards."""
        # A quote that a line does not close would silently take a part of the next one.
        is_bad = [line.count(b'"') % 2 == 1 or not is_utf8(line) for line in lines]
        self._bad_lines: list[int] = positions[is_bad].tolist()
        if self._bad_lines:
            lines = [line for line, bad in zip(lines, is_bad, strict=True) if not bad]
            positions = positions[~np.array(is_bad)]
        stack = [(lines, positions)]
        while stack:
            some, where = stack.pop()
            if not some:
                continue
            refused: dict[int, int] = {}
            table = self._parse_csv(b"\n".join(some), names, mapped, refused)
            if table is not None and table.num_rows + len(refused) == len(some):
                self._bad_lines += where[list(refused)].tolist()
                yield table.combine_chunks(), np.delete(where, list(refused))
            elif len(some) == 1:
                self._bad_lines.append(int(where[0]))
            else:
                # What no rule foresees: halves, until the bad lines stand alone.
                middle = len(some) // 2
                stack.append((some[middle:], where[middle:]))
                stack.append((some[:middle], where[:middle]))

    def _csv_stream(self, mapped: MappedType, names: list[str], chosen: ColumnMap) -> Iterator[RawRecords]:
        refused: set[int] = set()
        lines_of_names = 1 if mapped.csv.header is None else 0

        def refuse(row: _csv.InvalidRow) -> str:
            text = f"the record has {_values(row.actual_columns)} instead of {row.expected_columns:,}"
            # Arrow counts the line of names too.
            number = (row.number or 0) - lines_of_names
            refused.add(number)
            self._refuse(number, _INVALID_CSV, text, row.text)
            return "skip"

        with open_text(self._part.file) as stream:
            counted = CountedQuotes(stream, self._part.file.path)
            options = self._csv_options(names, mapped, skip_rows=lines_of_names, on_bad=refuse)
            waiting: Batch | None = None
            for batch in csv.open_csv(counted, **options):
                if waiting is not None:
                    numbers = self._numbers_without(refused, waiting.num_rows)
                    yield raw_records(self._mapped[1], waiting, chosen, numbers, is_text=True)
                waiting = batch
        if waiting is None:
            return
        numbers = self._numbers_without(refused, waiting.num_rows)
        if counted.quotes % 2 and max(refused, default=0) < self.lines:
            # Arrow takes the rest of the file for a value of its last record.
            self._refuse(self.lines, _INVALID_CSV, "a quote is never closed")
            waiting, numbers = waiting.slice(0, waiting.num_rows - 1), numbers[:-1]
        yield raw_records(self._mapped[1], waiting, chosen, numbers, is_text=True)

    def _numbers_without(self, refused: set[int], count: int) -> _Numbers:
        """The numbers of the next good records; refused ones have theirs in between."""
        numbers: list[int] = []
        while len(numbers) < count:
            self.lines += 1
            if self.lines not in refused:
                numbers.append(self.lines)
        return np.array(numbers, dtype=np.int64)

    def _csv_names(self, mapped: MappedType) -> tuple[list[str], bool]:
        """The names of the columns, and whether there may be records; no names for a file that holds nothing."""
        if mapped.csv.header is not None:
            return list(mapped.csv.header), self._part.file.size > 0
        return self._csv_header(is_multiline=mapped.csv.multiline)

    def _csv_header(self, *, is_multiline: bool) -> tuple[list[str], bool]:
        """The names in the first line, none for a file that holds nothing; and whether there is more than that line."""
        with open_text(self._part.file) as stream:
            first = b""
            while b"\n" not in first and (more := stream.read(64 * 1024)):
                first += more
                if len(first) > _MAX_HEADER_BYTES:
                    raise InputFileError(
                        self._part.file.path,
                        f"its first line, which names the columns, has more than {size_text(_MAX_HEADER_BYTES)}",
                    )
            rest = first.removeprefix(_BYTE_ORDER_MARK)
            while not rest.strip():
                if not (rest := stream.read(64 * 1024)):
                    return [], False
        line = first.split(b"\n", 1)[0].removeprefix(_BYTE_ORDER_MARK).rstrip(b"\r")
        if not line.strip():
            raise InputFileError(self._part.file.path, "its first line is empty; it has to name the columns")
        try:
            line.decode()
        except UnicodeDecodeError as error:
            raise InputFileError(self._part.file.path, f"its first line {not_utf8(error)}") from error
        if b"\r" in line and not is_multiline:
            # Records up to the first line feed would be taken for a part of the header.
            raise InputFileError(
                self._part.file.path,
                "its first line has a carriage return inside: make line ends of the file line feeds, for example with "
                "tr '\\r' '\\n', or say `multiline: true`",
            )
        parsed = csv.read_csv(
            pa.BufferReader(line + b"\n"),
            read_options=csv.ReadOptions(use_threads=False),
            parse_options=csv.ParseOptions(delimiter=self._delimiter),
        )
        return [str(name) for name in parsed.schema.names], b"\n" in first or b"\r" in first

    def _csv_options(
        self, names: list[str], mapped: MappedType, *, skip_rows: int = 0, on_bad: Callable[..., str]
    ) -> dict[str, Any]:
        return {
            "read_options": csv.ReadOptions(
                column_names=names, use_threads=False, skip_rows=skip_rows, block_size=_BLOCK_BYTES
            ),
            "parse_options": csv.ParseOptions(
                delimiter=self._delimiter,
                newlines_in_values=mapped.csv.multiline,
                ignore_empty_lines=True,
                invalid_row_handler=on_bad,
            ),
            "convert_options": csv.ConvertOptions(
                column_types={name: pa.utf8() for name in names},
                null_values=list(mapped.csv.null),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        }

    def _parse_csv(self, blob: bytes, names: list[str], mapped: MappedType, refused: dict[int, int]) -> Rows | None:
        """Lines as a table without those that have another number of values: `refused` has it by their position."""

        def refuse(row: _csv.InvalidRow) -> str:
            refused[(row.number or 0) - 1] = row.actual_columns
            return "skip"

        try:
            options = self._csv_options(names, mapped, on_bad=refuse)
            options["read_options"].block_size = len(blob) + 1
            table: Rows = csv.read_csv(pa.BufferReader(blob), **options)
        except pa.ArrowInvalid:
            return None
        return table

    def _json(self) -> Iterator[RawRecords]:
        """Objects of properties: one per line, or one list of them."""
        mapped, shape = self._mapped
        for objects, places in self._unfolded_rows(mapped.each):
            present = dict.fromkeys(name for row in objects for name in row)
            chosen = self._columns_for(self._json_columns(list(present)))
            rows, numbers = objects, places
            if any("." in path for path in chosen.columns):
                rows, numbers = self._with_members(objects, places, chosen.columns)
            batch = {name: [row.get(name) for row in rows] for name in chosen.columns}
            raw = raw_records(shape, batch, chosen, numbers)
            yield replace(raw, present=present_members(rows, chosen)) if self._plan.is_patch else raw

    def _json_columns(self, present: Sequence[str]) -> SourceColumns:
        """The columns of objects that have some members, and those that the mapping names."""
        # What an object does not have may be in the name of a folder.
        folders = dict(self._part.file.partitions)
        wanted = [name for name in self._mapped[0].named_columns if name not in folders]
        return json_columns(present, wanted)

    def _unfolded_rows(self, each: ItemSource | None) -> Iterator[tuple[list[_Object], _Numbers]]:
        """The objects of the part; with `each` one per item, without those whose member is not a list."""
        for objects, places in self._json_rows():
            if each is None:
                yield objects, places
                continue
            found: list[_Object] = []
            numbers: list[int] = []
            for row, number in zip(objects, places.tolist(), strict=True):
                try:
                    items = items_of(row, each)
                except NotAListError as error:
                    self._refuse(number, "invalid JSON", str(error), error.value)
                    continue
                found += items
                numbers += [number] * len(items)
            if found:
                yield found, np.array(numbers, dtype=np.int64)

    def _with_members(self, rows: list[_Object], numbers: _Numbers, paths: list[str]) -> tuple[list[_Object], _Numbers]:
        """Rows with the values at the end of paths; those in which a path leads nowhere are counted and left out."""
        found: list[_Object] = []
        places: list[int] = []
        refused: set[int] = set()
        for row, number in zip(rows, numbers.tolist(), strict=True):
            try:
                values = {path: json_member(row, path) for path in paths}
                found.append({path: value for path, value in values.items() if has_member(row, path)})
                places.append(number)
            except NotAnObjectError as error:
                self._refuse(number, "invalid JSON", str(error), error.value, is_known=number in refused)
                refused.add(number)
        if refused and self._plan.keeps_bad:
            # Items of one object stay together.
            kept = [place for place, number in enumerate(places) if number not in refused]
            found, places = [found[place] for place in kept], [places[place] for place in kept]
        return found, np.array(places, dtype=np.int64)

    def _json_rows(self) -> Iterator[tuple[list[_Object], _Numbers]]:
        strict = decoder(self._plan)
        with open_text(self._part.file) as stream:
            first = stream.read(64).removeprefix(_BYTE_ORDER_MARK)
            is_list = self._part.begin == 0 and first.lstrip()[:1] == b"["
        if is_list:
            self._is_list = True
            yield from self._listed_rows(strict)
            return
        for lines, numbers in self._line_blocks():
            found: list[_Object] = []
            places: list[int] = []
            for line, number in zip(lines, numbers.tolist(), strict=True):
                if not line.strip() or not self._is_short_enough(line, number):
                    continue
                try:
                    row = strict.decode(line.decode())
                except UnicodeDecodeError as error:
                    self._refuse(number, "invalid JSON", f"the line {not_utf8(error)}")
                    continue
                except (ValueError, RecursionError) as error:
                    self._refuse(number, "invalid JSON", str(error))
                    continue
                if not isinstance(row, dict):
                    self._refuse(number, "invalid JSON", "a record is a JSON object")
                    continue
                found.append(row)
                places.append(number)
            if found:
                yield found, np.array(places, dtype=np.int64)

    def _listed_rows(self, strict: json.JSONDecoder) -> Iterator[tuple[list[_Object], _Numbers]]:
        """The objects of one list; its items are counted, not its lines."""
        found: list[_Object] = []
        places: list[int] = []
        size = 0
        for row, length in read_items(self._part.file, strict):
            self.lines += 1
            if isinstance(row, dict):
                found.append(row)
                places.append(self.lines)
            else:
                is_broken = isinstance(row, BadRecordError)
                self._note_rest(row)
                text = str(row) if is_broken else "a record is a JSON object"
                self._refuse(self.lines, "invalid JSON", text)
            del row
            size += length
            if size >= _BLOCK_BYTES:
                yield found, np.array(places, dtype=np.int64)
                found, places, size = [], [], 0
        if found:
            yield found, np.array(places, dtype=np.int64)

    # ---- lines

    def _is_short_enough(self, line: bytes, number: int) -> bool:
        """Whether a line of a table is whole; a longer one was cut when it was read."""
        if not is_too_long(line):
            return True
        text = f"the line has more than {size_text(MAX_LINE_BYTES)}"
        self._refuse(number, LINE_TOO_LONG, text)
        return False

    def first_lines(self, size: int) -> list[bytes]:
        """Some of the first lines of the part as they are; objects where lines do not count. Reads little more."""
        with readable(self._part.file):
            if self._plan.is_strict:
                return self._first_lines(size)
            found: list[bytes] = []
            for body, length in read_objects(self._part.file, decoder(self._plan)):
                if isinstance(body, dict):
                    kept = {name: body[name] for name in ("type", "edge") if name in body}
                    found.append(json.dumps(kept).encode())
                size -= length
                if size <= 0:
                    break
            return found

    def _first_lines(self, size: int) -> list[bytes]:
        with part_content(self._part) as stream:
            begun = stream.read(size)
        begin = self._part.begin
        lines = (begun if begin else begun.removeprefix(_BYTE_ORDER_MARK)).split(b"\n")
        # The first line belongs to the part before, the last one goes on; a file may also be one line.
        return lines[1 if begin else 0 : -1] or lines

    def _line_blocks(self) -> Iterator[tuple[list[bytes], _Numbers]]:
        """The lines that begin in the part, with their numbers from 1."""
        part = self._part
        with part_content(self._part) as stream:
            for lines in line_blocks(stream, part.begin, part.end):
                first = self.lines
                self.lines += len(lines)
                if part.begin == 0 and first == 0 and lines:
                    lines[0] = lines[0].removeprefix(_BYTE_ORDER_MARK)
                yield lines, np.arange(first + 1, first + len(lines) + 1, dtype=np.int64)

    def _note_rest(self, bad: object) -> None:
        if isinstance(bad, BrokenOffError):
            self.rest = bad.offset

    def _refuse(self, line: int, rule: str, text: str, value: object = None, *, is_known: bool = False) -> None:
        key = None if self._part.mapped is None else self._part.mapped.type_key
        place = Place(self._part.file.path, line)
        self._violations.records += not is_known
        self._violations.add(place, rule, f"{rule}: {text}", type_key=key, value=value)


@contextmanager
def part_content(part: Part) -> Iterator[ByteStream]:
    """The content of a file from one byte before the part; what is packed is one part."""
    if part.file.compression is not None:
        with open_text(part.file) as content:
            yield content
        return
    with open_bytes(part.file) as stream:
        stream.seek(max(part.begin - 1, 0))
        yield stream


def _values(count: int) -> str:
    return f"{count:,} value{'' if count == 1 else 's'}"
