"""Cutting the input into parts: each is read by one task, and together they are every record exactly once.

Parts are numbered in the order of the input: files by path, then by position.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from omnigraph.errors import BadRequestError
from omnigraph.pipeline.columnar import open_table
from omnigraph.pipeline.ids import MAX_PARTS
from omnigraph.pipeline.inputs import InputFile, find_files, open_bytes, readable
from omnigraph.pipeline.mapping import MappedType, SourceFormat, endings_of, format_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

GRAPH_ENDINGS = ("jsonl", "ndjson", "json")
_TABLE_ENDINGS = ("parquet", "pq", "csv", "tsv", "orc")
_SMALLEST_PART_BYTES = 4 * 1024 * 1024
_LARGEST_PART_BYTES = 64 * 1024 * 1024
#: Rows of a part of a columnar file: one fragment of the usual size.
_PART_ROWS = 1_048_576


class PartKind(StrEnum):
    """How a part is read."""

    GRAPH_LINES = "graph_lines"
    GRAPH_OBJECTS = "graph_objects"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    ORC = "orc"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Some records of one file."""

    number: int
    kind: PartKind
    file: InputFile
    #: Lines that begin in this range of bytes belong to the part; up to the end of the file without an end.
    begin: int = 0
    end: int | None = None
    #: Row groups of a Parquet file, stripes of an ORC file.
    groups: tuple[int, ...] = ()
    #: Records of the file before this part, where they are known.
    first_record: int = 0
    mapped: MappedType | None = None


@dataclass(slots=True)
class _Cutter:
    """Makes numbered parts of about equal size."""

    parallelism: int
    parts: list[Part] = field(default_factory=list)

    def add(self, kind: PartKind, file: InputFile, **rest: Any) -> None:
        self.parts.append(Part(number=len(self.parts), kind=kind, file=file, **rest))

    def add_lines(self, kind: PartKind, file: InputFile, size: int, **rest: Any) -> None:
        begins = range(0, max(file.size, 1), size)
        for begin in begins:
            end = begin + size if begin + size < file.size else None
            self.add(kind, file, begin=begin, end=end, **rest)

    def add_groups(
        self, kind: PartKind, file: InputFile, sizes: Sequence[int], limit: int, mapped: MappedType
    ) -> None:
        chosen: list[int] = []
        first = rows = 0
        for number, size in enumerate(sizes):
            if chosen and rows + size > limit:
                self.add(kind, file, groups=tuple(chosen), first_record=first, mapped=mapped)
                first, rows, chosen = first + rows, 0, []
            chosen.append(number)
            rows += size
        if chosen:
            self.add(kind, file, groups=tuple(chosen), first_record=first, mapped=mapped)


def cut_graph_files(source: str, parallelism: int, *, is_strict: bool) -> list[Part]:
    """Parts of files in the graph format.

    Raises:
        InputFileError: a file cannot be read.
        BadRequestError: the files are tables, which need a mapping.
    """
    files = find_files(source, GRAPH_ENDINGS)
    refuse_tables(files)
    cutter = _Cutter(parallelism)
    size = _part_bytes(sum(file.size for file in files), parallelism)
    for file in files:
        if not is_strict:
            cutter.add(PartKind.GRAPH_OBJECTS, file)
        elif file.compression is not None:
            cutter.add(PartKind.GRAPH_LINES, file)
        else:
            cutter.add_lines(PartKind.GRAPH_LINES, file, size)
    return _checked(cutter.parts)


def refuse_tables(files: Sequence[InputFile]) -> None:
    """Make sure that files hold graph records.

    Raises:
        BadRequestError: one is a table, which needs a mapping.
    """
    for file in files:
        if file.ending in _TABLE_ENDINGS:
            raise BadRequestError(
                f"{file.path} is a table, not graph records: write a mapping that says which type it feeds, "
                "and load it with `--mapping FILE` (mapping=)"
            )


def cut_mapped_files(types: Sequence[MappedType], parallelism: int) -> list[Part]:
    """Parts of all files that a mapping names; Spark tables are not files.

    Raises:
        InputFileError: a file cannot be read.
        BadRequestError: a format is unknown.
    """
    cutter = _Cutter(parallelism)
    found = [
        (mapped, file)
        for mapped in types
        if mapped.format is not SourceFormat.TABLE
        for file in find_files(mapped.source, endings_of(mapped))
    ]
    size = _part_bytes(sum(file.size for _, file in found), parallelism)
    groups = _group_rows((file, format_of(file, mapped)) for mapped, file in found)
    # Over all files, as for text: a file of many is not cut only because there are many tasks.
    total = sum(sum(groups.get(file, ())) for _, file in found)
    limit = min(_PART_ROWS, max(1, -(-total // parallelism)))
    for mapped, file in found:
        match format_of(file, mapped):
            case SourceFormat.PARQUET:
                cutter.add_groups(PartKind.PARQUET, file, groups[file], limit, mapped)
            case SourceFormat.ORC:
                cutter.add_groups(PartKind.ORC, file, groups[file], limit, mapped)
            case SourceFormat.CSV:
                _cut_text(cutter, PartKind.CSV, file, mapped, size)
            case SourceFormat.JSON:
                _cut_text(cutter, PartKind.JSON, file, mapped, size)
            case SourceFormat.TABLE:
                continue
    return _checked(cutter.parts)


def _cut_text(
    cutter: _Cutter, kind: PartKind, file: InputFile, mapped: MappedType, size: int
) -> None:
    is_whole = file.compression is not None or (kind is PartKind.CSV and mapped.csv.multiline)
    if kind is PartKind.JSON and not is_whole:
        with open_bytes(file) as stream, readable(file):
            is_whole = stream.read(64).removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"["
    if is_whole:
        cutter.add(kind, file, mapped=mapped)
    else:
        cutter.add_lines(kind, file, size, mapped=mapped)


def _group_rows(
    files: Iterable[tuple[InputFile, SourceFormat]],
) -> dict[InputFile, list[int]]:
    """The rows of each row group or stripe of columnar files; reads the ends of the files."""
    found: dict[InputFile, list[int]] = {}
    for file, kind in files:
        if kind in (SourceFormat.PARQUET, SourceFormat.ORC) and file not in found:
            with readable(file), open_table(file, is_parquet=kind is SourceFormat.PARQUET) as table:
                found[file] = table.group_rows()
    return found


def _part_bytes(total: int, parallelism: int) -> int:
    return min(max(total // (2 * parallelism), _SMALLEST_PART_BYTES), _LARGEST_PART_BYTES)


def _checked(parts: list[Part]) -> list[Part]:
    if len(parts) > MAX_PARTS:
        raise BadRequestError(
            f"the input has {len(parts):,} parts, more than {MAX_PARTS:,}: use larger files"
        )
    return parts


def input_bytes(parts: Sequence[Part]) -> int:
    """The size of all files that the parts belong to."""
    return sum({part.file.path: part.file.size for part in parts}.values())


def by_source(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """The parts of each file, in order; a file that feeds several types counts for each of them."""
    sources: dict[tuple[str, int], list[Part]] = {}
    for part in parts:
        sources.setdefault((part.file.path, id(part.mapped)), []).append(part)
    yield from sources.values()
