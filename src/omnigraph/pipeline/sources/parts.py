"""Cuts the input into parts; columnar files as batches of bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow
import pyarrow.orc as _orc
import pyarrow.parquet as _parquet

from omnigraph.core.arrow import Batch, pa, pc
from omnigraph.errors import BadRequestError, InputFileError
from omnigraph.frozen import frozen
from omnigraph.pipeline.keys import MAX_PARTS
from omnigraph.pipeline.sources.inputs import InputFile, find_files, open_bytes, readable
from omnigraph.pipeline.sources.mapping import MappedType, SourceFormat, endings_of, format_of

# ---- Batches of columnar files (Parquet, ORC)
#
# One value of a dictionary can stand for a million rows, and a run of equal values for a billion: neither the size of
# a file nor the number of its rows says how much memory a batch takes. What a file says about itself is checked
# before its rows are read, and what comes out of it is counted.


orc: Any = _orc
parquet: Any = _parquet

_BATCH_ROWS = 131_072
#: About how much memory the columns of a batch may take.
_BATCH_BYTES = 32 * 1024 * 1024
#: Deeper than any type that a property may have, and far from what a parser of schemas survives.
_MAX_SCHEMA_DEPTH = 64
#: The least that eight values take in memory, where nearly all of them may be null.
_LEAST_BYTES_PER_8_VALUES = 4


@contextmanager
def open_table(file: InputFile, *, is_parquet: bool) -> Iterator[_Parquet | _Orc]:
    """A Parquet or an ORC file.

    Raises:
        InputFileError: it is damaged; so do the methods of what this gives.
    """
    with open_bytes(file) as stream:
        with _damage(file):
            table = _Parquet(file, stream) if is_parquet else _Orc(file, stream)
        yield table


@contextmanager
def _damage(file: InputFile) -> Iterator[None]:
    """Translate what Arrow raises besides its own errors when parts of a file contradict each other."""
    try:
        yield
    except (KeyError, IndexError, OverflowError, UnicodeDecodeError, RecursionError) as error:
        reason = f"parts of it contradict each other ({type(error).__name__})"
        raise InputFileError(file.path, f"it is damaged: {reason}") from error


class _Parquet:
    """An open file of columns."""

    def __init__(self, file: InputFile, stream: pyarrow.NativeFile) -> None:
        self._input = file
        self._stream = stream
        self._table = parquet.ParquetFile(stream, schema_depth_limit=_MAX_SCHEMA_DEPTH)
        self._metadata = self._table.metadata
        #: Its columns, as Arrow reads them.
        self.schema = self._table.schema_arrow

    def group_rows(self) -> list[int]:
        """The rows of each of its groups, which tasks read.

        Raises:
            ResourceLimitError: by its own account the file holds too much.
        """
        groups = range(self._metadata.num_row_groups)
        with _damage(self._input):
            leaves = [leaf for group in groups for leaf in self._leaves(group)]
            rows = [self._metadata.row_group(group).num_rows for group in groups]
            declared = [
                max(leaf.total_uncompressed_size, leaf.num_values * _LEAST_BYTES_PER_8_VALUES // 8) for leaf in leaves
            ]
        self._input.check_content(sum(declared))
        return rows

    def batches(self, groups: Sequence[int], columns: list[str]) -> Iterator[Batch]:
        """Some columns of some groups, in bounded pieces; `address.city` is a member of a struct.

        Raises:
            ResourceLimitError: they hold too much.
        """
        with _damage(self._input):
            yield from self._batches(groups, columns)

    def _batches(self, groups: Sequence[int], columns: list[str]) -> Iterator[Batch]:
        content_bytes = 0
        for group in groups:
            longest = self._longest_values(group, columns)
            self._check_lists(group, columns, longest)
            size = self._batch_rows(group, columns, longest)
            for batch in self._table.iter_batches(size, row_groups=[group], columns=columns):
                content_bytes += batch.nbytes
                self._input.check_content(content_bytes)
                yield batch

    def _leaves(self, group: int, columns: list[str] | None = None) -> Iterator[_parquet.ColumnChunkMetaData]:
        """The metadata of each stored column of a row group; a column of lists is stored as its items."""
        known, wanted = self._metadata.row_group(group), set(columns or ())
        for number in range(known.num_columns):
            leaf = known.column(number)
            if columns is None or not wanted.isdisjoint(_beginnings(leaf.path_in_schema)):
                yield leaf

    def _check_lists(self, group: int, columns: list[str], longest: dict[str, int]) -> None:
        """Count what lists of texts hold, where it may be too much: a batch is at least one row, however long.

        Raises:
            ResourceLimitError: it is too much.
        """
        rows = self._metadata.row_group(group).num_rows
        for leaf in self._leaves(group, columns):
            length = longest.get(leaf.path_in_schema, 0)
            if leaf.num_values <= rows or leaf.num_values * length <= _BATCH_BYTES:
                continue
            path, content_bytes = leaf.path_in_schema, 0
            probe = self._with_dictionaries([path])
            for batch in probe.iter_batches(_BATCH_ROWS, row_groups=[group], columns=[path]):
                for values in _dictionary_arrays(batch.column(0)):
                    lengths = pc.binary_length(values.dictionary).cast(pa.int64())
                    content_bytes += pc.sum(lengths.take(values.indices)).as_py() or 0
                    self._input.check_content(content_bytes)

    def _batch_rows(self, group: int, columns: list[str], longest: dict[str, int]) -> int:
        """The number of rows of a group that fit into a batch."""
        rows = max(self._metadata.row_group(group).num_rows, 1)
        row_bytes = 0.0
        for leaf in self._leaves(group, columns):
            per_row = max(leaf.num_values, 1) / rows
            stored = max(leaf.total_uncompressed_size, 0) / rows
            row_bytes += max(stored, per_row * longest.get(leaf.path_in_schema, 0))
        return int(min(max(_BATCH_BYTES / max(row_bytes, 1), 1), _BATCH_ROWS))

    def _longest_values(self, group: int, columns: list[str]) -> dict[str, int]:
        """Per stored column of texts that has a dictionary: the length of its longest value.

        The first row of a group brings the whole dictionary, and the dictionary is never larger than the file says.
        """
        paths = {
            leaf.path_in_schema: leaf
            for leaf in self._leaves(group, columns)
            if leaf.physical_type == "BYTE_ARRAY" and leaf.has_dictionary_page
        }
        if not paths:
            return {}
        found: dict[str, int] = {}
        probe = self._with_dictionaries(list(paths))
        for batch in probe.iter_batches(1, row_groups=[group], columns=list(paths)):
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                for values in _dictionary_arrays(column):
                    longest = pc.max(pc.binary_length(values.dictionary)).as_py() or 0
                    for path in paths:
                        if name in _beginnings(path):
                            found[path] = max(found.get(path, 0), longest)
            break
        return found

    def _with_dictionaries(self, paths: list[str]) -> Any:
        """The same file; texts of these stored columns stay places in a dictionary."""
        return parquet.ParquetFile(self._stream, metadata=self._metadata, read_dictionary=paths, pre_buffer=False)


def _beginnings(path: str) -> Iterator[str]:
    """A path and the columns that it is inside of."""
    steps = path.split(".")
    for count in range(1, len(steps) + 1):
        yield ".".join(steps[:count])


def _dictionary_arrays(column: Any) -> Iterator[Any]:
    """The arrays with a dictionary inside of a column."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        yield column
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        yield from _dictionary_arrays(column.values)
    elif pa.types.is_struct(kind):
        for number in range(kind.num_fields):
            yield from _dictionary_arrays(column.field(number))


class _Orc:
    """As `_Parquet`; its groups are stripes."""

    def __init__(self, file: InputFile, stream: pyarrow.NativeFile) -> None:
        self._input = file
        self._table = orc.ORCFile(stream)
        self.schema = self._table.schema

    def group_rows(self) -> list[int]:
        self._input.check_content(self._table.nrows * len(self.schema.names) * _LEAST_BYTES_PER_8_VALUES // 8)
        # The length of a stripe is known only by reading it: one column is enough.
        with _damage(self._input):
            stripes = range(self._table.nstripes)
            return [self._table.read_stripe(number, columns=[0]).num_rows for number in stripes]

    def batches(self, groups: Sequence[int], columns: list[str]) -> Iterator[Batch]:
        content_bytes = 0
        for group in groups:
            with _damage(self._input):
                # Without columns a stripe has no rows either, and each one is a record.
                chosen: list[str] | list[int] = columns or [0]
                stripe = self._table.read_stripe(group, columns=chosen)
            content_bytes += stripe.nbytes
            self._input.check_content(content_bytes)
            rows = min(max(_BATCH_BYTES * stripe.num_rows // max(stripe.nbytes, 1), 1), _BATCH_ROWS)
            yield from pa.Table.from_batches([stripe]).to_batches(max_chunksize=rows)


# ---- Splitting the input into parts
#
# Parts are numbered in the order of the input: files by path, then by position.


GRAPH_ENDINGS = ("jsonl", "ndjson", "json")
_TABLE_ENDINGS = ("parquet", "pq", "csv", "tsv", "orc")
_SMALLEST_PART_BYTES = 4 * 1024 * 1024
_LARGEST_PART_BYTES = 64 * 1024 * 1024
#: Rows of a part of a columnar file: one fragment of the usual size.
_PART_ROWS = 1_048_576


@frozen(kw_only=True)
class Part:
    """Some records of one file."""

    file: InputFile
    #: None: records of the graph format.
    format: SourceFormat | None = None
    #: In the order of the input.
    number: int = 0
    #: Lines that begin in this range of bytes belong to the part; up to the end of the file without an end.
    begin: int = 0
    end: int | None = None
    #: Row groups of a Parquet file, stripes of an ORC file.
    groups: tuple[int, ...] = ()
    #: Records of the file before this part, where they are known.
    first_record: int = 0
    mapped: MappedType | None = None


def cut_graph_files(source: str, parallelism: int, *, is_strict: bool) -> list[Part]:
    """Parts of files in the graph format.

    Raises:
        InputFileError: a file cannot be read.
        BadRequestError: the files are tables, which need a mapping.
    """
    files = find_files(source, GRAPH_ENDINGS)
    refuse_tables(files)
    size = _part_bytes(sum(file.size for file in files), parallelism)
    return _numbered(
        Part(file=file, begin=begin, end=end)
        for file in files
        for begin, end in _ranges(file, size, is_whole=not is_strict or file.compression is not None)
    )


def refuse_tables(files: Sequence[InputFile]) -> None:
    """Make sure that files hold graph records.

    Raises:
        BadRequestError: one is a table, which needs a mapping.
    """
    for file in files:
        if file.ending in _TABLE_ENDINGS:
            raise BadRequestError(
                f"{file.path} is a table, not graph records: write a mapping that says which type it feeds, "
                "and load it with `--mapping FILE` (mapping=); `omnigraph infer` proposes one"
            )


def cut_mapped_files(types: Sequence[MappedType], parallelism: int) -> list[Part]:
    """Parts of all files that a mapping names; Spark tables are not files.

    Raises:
        InputFileError: a file cannot be read.
        BadRequestError: a format is unknown.
    """
    found = [
        (mapped, file, format_of(file, mapped))
        for mapped in types
        if mapped.format is not SourceFormat.TABLE
        for file in find_files(mapped.source, endings_of(mapped))
    ]
    size = _part_bytes(sum(file.size for _, file, _ in found), parallelism)
    groups = _group_rows((file, kind) for _, file, kind in found)
    # Over all files, as for text: a file of many is not cut only because there are many tasks.
    total = sum(sum(groups.get(file, ())) for _, file, _ in found)
    limit = min(_PART_ROWS, max(1, -(-total // parallelism)))
    parts: list[Part] = []
    for mapped, file, kind in found:
        whole = Part(file=file, format=kind, mapped=mapped)
        if file in groups:
            parts += _cut_groups(whole, groups[file], limit)
        else:
            ranges = _ranges(file, size, is_whole=_is_whole(file, kind, mapped))
            parts += [replace(whole, begin=begin, end=end) for begin, end in ranges]
    return _numbered(parts)


def _cut_groups(whole: Part, sizes: Sequence[int], limit: int) -> Iterator[Part]:
    """Parts of a columnar file: neighbouring groups together, while they have few rows."""
    chosen: list[int] = []
    first = rows = 0
    for number, size in enumerate(sizes):
        if chosen and rows + size > limit:
            yield replace(whole, groups=tuple(chosen), first_record=first)
            first, rows, chosen = first + rows, 0, []
        chosen.append(number)
        rows += size
    if chosen:
        yield replace(whole, groups=tuple(chosen), first_record=first)


def _ranges(file: InputFile, size: int, *, is_whole: bool) -> Iterator[tuple[int, int | None]]:
    """The ranges of bytes of a file of lines; one that cannot be cut has one."""
    for begin in (0,) if is_whole else range(0, max(file.size, 1), size):
        yield begin, None if is_whole or begin + size >= file.size else begin + size


def _is_whole(file: InputFile, kind: SourceFormat, mapped: MappedType) -> bool:
    """Whether one task has to read a text: it is packed, or its records are not lines."""
    if file.compression is not None:
        return True
    if kind is SourceFormat.CSV:
        return mapped.csv.multiline
    with open_bytes(file) as stream, readable(file):
        return bool(stream.read(64).removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"[")


def _group_rows(files: Iterable[tuple[InputFile, SourceFormat]]) -> dict[InputFile, list[int]]:
    """The rows of each row group or stripe of columnar files; reads the ends of the files."""
    found: dict[InputFile, list[int]] = {}
    for file, kind in files:
        if kind in (SourceFormat.PARQUET, SourceFormat.ORC) and file not in found:
            with readable(file), open_table(file, is_parquet=kind is SourceFormat.PARQUET) as table:
                found[file] = table.group_rows()
    return found


def _part_bytes(total: int, parallelism: int) -> int:
    return min(max(total // (2 * parallelism), _SMALLEST_PART_BYTES), _LARGEST_PART_BYTES)


def _numbered(parts: Iterable[Part]) -> list[Part]:
    numbered = [replace(part, number=number) for number, part in enumerate(parts)]
    if len(numbered) > MAX_PARTS:
        raise BadRequestError(f"the input has {len(numbered):,} parts, more than {MAX_PARTS:,}: use larger files")
    return numbered


def input_bytes(parts: Sequence[Part]) -> int:
    """The size of all files that the parts belong to."""
    return sum({part.file.path: part.file.size for part in parts}.values())


def by_source(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """The parts of each file, in order; a file that feeds several types counts for each of them."""
    sources: dict[tuple[str, int], list[Part]] = {}
    for part in parts:
        sources.setdefault((part.file.path, id(part.mapped)), []).append(part)
    yield from sources.values()
