"""Samples of tables: their columns as Arrow, all rows of small tables and some of larger ones."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow
import pyarrow.csv as _csv

from omnigraph.core.arrow import Array, Rows, pa, pc
from omnigraph.core.env_settings import WholeNumber
from omnigraph.errors import InputFileError
from omnigraph.errors.text import size_text
from omnigraph.frozen import frozen
from omnigraph.inference.columns import SampledColumn
from omnigraph.inference.csv_dialect import BYTE_ORDER_MARK, Dialect
from omnigraph.inference.tables import FileTable, LeftOut, read_up_to
from omnigraph.pipeline.shape.items import KEY, VALUE
from omnigraph.pipeline.shape.value_sources import notation
from omnigraph.pipeline.sources.inputs import InputFile, open_bytes, open_text, readable
from omnigraph.pipeline.sources.jsonl import read_items
from omnigraph.pipeline.sources.parts import open_table
from omnigraph.pipeline.sources.records import BadRecordError

csv: Any = _csv

INFER_MAX_BYTES = WholeNumber(
    "OMNIGRAPH_INFER_MAX_BYTES",
    64 * 1024 * 1024,
    "Tables up to this size are read whole to propose a schema; of larger ones a quarter of it, spread over the table.",
    lowest=64 * 1024,
)
_BLOCK_BYTES = 1024 * 1024


@frozen(kw_only=True)
class Table:
    """One table and a sample of it."""

    #: The name that a type is called after.
    stem: str
    #: As comments call it.
    shown: str
    #: What a mapping says about where its records are.
    entry: Mapping[str, object]
    columns: tuple[SampledColumn, ...]
    #: Rows that were read, and whether these are all.
    rows: int
    is_whole: bool = True
    #: How much was read, where that is not everything.
    sample: str = ""
    left_out: tuple[LeftOut, ...] = ()
    #: Records that no load can read, such as lines with too many values.
    bad_records: int = 0
    #: Whether the names of its columns are made up.
    is_unnamed: bool = False
    #: Whether a person chose the stem as the name of a type.
    is_named: bool = False
    #: Whether its rows have an order, so that the first one of an id may count.
    is_ordered: bool = True

    @property
    def extent(self) -> str:
        """The rows as a comment counts them."""
        return f"{self.rows:,} row{'' if self.rows == 1 else 's'}" if self.is_whole else self.sample


def read_table(found: FileTable) -> Table:
    """The table in files, with a sample of its rows.

    Raises:
        InputFileError: a file cannot be read.
    """
    limit = INFER_MAX_BYTES.read()
    match found.kind:
        case "csv":
            return _read_csv(found, limit)
        case "json":
            return _read_json(found, limit)
    return _read_columnar(found, limit)


# ---- Samples
#
# A table within the limit is read whole. Of a larger one the beginning and blocks from everywhere are read; of a packed
# file only the beginning.


_SAMPLED_SHARE = 4


def _pieces(table: FileTable, limit: int) -> Iterator[tuple[InputFile, bytes]]:
    """Whole lines of the files, as they come: all of them, or a sample."""
    if table.size <= limit:
        for file in table.files:
            with readable(file), open_text(file) as stream:
                yield file, read_up_to(stream, limit * max(file.limits.max_ratio, 1))
        return
    wanted = limit // _SAMPLED_SHARE
    share = wanted // min(len(table.files), wanted // _BLOCK_BYTES or 1)
    step = max(1, len(table.files) * share // wanted)
    for file in table.files[::step]:
        with readable(file):
            yield file, b"".join(_spread(file, share))


def _spread(file: InputFile, wanted: int) -> Iterator[bytes]:
    """Whole lines from the beginning of a file, and from places in it."""
    if file.compression is not None or file.size <= wanted:
        with open_text(file) as stream:
            yield _whole_lines(read_up_to(stream, wanted), is_first=True)
        return
    blocks = max(1, wanted // _BLOCK_BYTES)
    size = min(wanted, _BLOCK_BYTES)
    with open_bytes(file) as stream:
        for number in range(blocks):
            stream.seek(number * (file.size - size) // max(1, blocks - 1))
            yield _whole_lines(stream.read(size), is_first=number == 0)


def _whole_lines(block: bytes, *, is_first: bool) -> bytes:
    begin = 0 if is_first else block.find(b"\n") + 1
    return block[begin : block.rfind(b"\n") + 1]


def _sample_text(table: FileTable, rows: int, limit: int) -> str:
    return f"a sample of {rows:,} rows, {size_text(limit // _SAMPLED_SHARE)} of {size_text(table.size)}"


# ---- CSV


def _read_csv(table: FileTable, limit: int) -> Table:
    dialect = table.dialect
    assert dialect is not None, "a CSV file was looked at"
    chunks: list[Rows] = []
    bad = 0
    is_whole = table.size <= limit
    for number, (file, content) in enumerate(_pieces(table, limit)):
        if not is_whole and dialect.is_multiline and number:
            break
        _check_utf8(file, content)
        some, refused = _parsed(content.removeprefix(BYTE_ORDER_MARK), dialect)
        bad += refused
        chunks.append(some)
    rows = pa.concat_tables(chunks).combine_chunks()
    entry = {"source": table.source, **dialect.entry(ending=table.files[0].ending)}
    columns, left_out = [], []
    for place, name in enumerate(dialect.names):
        values = one_array(rows[place])
        reason = _why_not(name, dialect.names, values)
        if reason:
            left_out.append(LeftOut(name=name or f"column {place + 1}", reason=reason))
        else:
            columns.append(SampledColumn(name=name, number=place + 1, values=values, is_text=True))
    columns += _partition_columns(table, rows.num_rows, len(columns), {column.name for column in columns})
    return Table(
        stem=table.stem,
        shown=table.shown,
        entry=entry,
        columns=tuple(columns),
        rows=rows.num_rows,
        is_whole=is_whole,
        sample="" if is_whole else _sample_text(table, rows.num_rows, limit),
        left_out=tuple(left_out),
        bad_records=bad,
        is_unnamed=not dialect.has_header,
    )


def one_array(column: Any) -> Array:
    """A column as one array."""
    found = column.combine_chunks() if isinstance(column, pyarrow.ChunkedArray) else column
    return pa.concat_arrays(found.chunks) if isinstance(found, pyarrow.ChunkedArray) else found


def _why_not(name: str, names: Sequence[str], values: Array) -> str:
    """Why a column cannot be named in a mapping; nothing if it can."""
    if name.strip() and names.count(name) > 1:
        return "two columns have this name"
    if name.strip() and not name.startswith("Unnamed: "):
        return ""
    numbers = [str(number) for number in range(len(values))]
    if values.to_pylist() in (numbers, [str(number + 1) for number in range(len(values))]):
        return "it numbers the rows"
    return "" if name.strip() else "it has no name"


def _check_utf8(file: InputFile, content: bytes) -> None:
    if content.isascii():
        return
    try:
        content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputFileError(
            file.path,
            f"byte {content[error.start]:#x} in line {line:,} is not UTF-8: convert the file, for example with "
            "iconv -f WINDOWS-1252 -t UTF-8",
        ) from error


def _parsed(content: bytes, dialect: Dialect) -> tuple[Rows, int]:
    """The records of a text of lines, and how many cannot be read."""
    bad = 0

    def refuse(row: _csv.InvalidRow) -> str:
        nonlocal bad
        bad += 1
        return "skip"

    if not dialect.is_multiline and content.count(b'"'):
        lines = content.split(b"\n")
        good = [line for line in lines if not line.count(b'"') % 2]
        bad += len(lines) - len(good)
        content = b"\n".join(good)
    skipped = 1 if dialect.has_header else 0
    names = [f"c{number}" for number in range(len(dialect.names))]
    if not content.strip():
        return pa.table({name: pa.array([], pa.utf8()) for name in names}), bad
    found: Rows = csv.read_csv(
        pa.BufferReader(content),
        read_options=csv.ReadOptions(column_names=names, skip_rows=skipped, block_size=min(len(content) + 1, 2**30)),
        parse_options=csv.ParseOptions(
            delimiter=dialect.delimiter, newlines_in_values=dialect.is_multiline, invalid_row_handler=refuse
        ),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.utf8()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    return found, bad


def _partition_columns(table: FileTable, rows: int, before: int, taken: set[str]) -> list[SampledColumn]:
    """Columns whose values are in the names of folders; which rows have which value does not matter for a guess."""
    values: dict[str, list[str | None]] = defaultdict(list)
    for file in table.files:
        for name, value in file.partitions:
            values[name].append(value)
    return [
        SampledColumn(
            name=name,
            number=before + place,
            values=pa.array([some[row * len(some) // max(rows, 1)] for row in range(rows)], pa.utf8()),
            is_text=True,
        )
        for place, (name, some) in enumerate(values.items(), start=1)
        if name not in taken
    ]


# ---- JSON


def _read_json(table: FileTable, limit: int) -> Table:
    rows: list[dict[str, object]] = []
    bad = 0
    is_whole = table.size <= limit
    for file, objects in _objects(table, limit):
        for item in objects:
            if isinstance(item, dict):
                rows.append({**dict(file.partitions), **item})
            else:
                bad += 1
    names = dict.fromkeys(name for row in rows for name in row)
    columns: list[SampledColumn] = []
    left_out: list[LeftOut] = []
    for name in names:
        _add_json(columns, left_out, name, [row.get(name) for row in rows])
    return Table(
        stem=table.stem,
        shown=table.shown,
        entry={"source": table.source},
        columns=tuple(columns),
        rows=len(rows),
        is_whole=is_whole,
        sample="" if is_whole else _sample_text(table, len(rows), limit),
        left_out=tuple(left_out),
        bad_records=bad,
    )


def _objects(table: FileTable, limit: int) -> Iterator[tuple[InputFile, Iterator[object]]]:
    """What lines or lists hold; something else than an object where it is not one."""
    is_whole = table.size <= limit
    for file in table.files:
        with readable(file), open_text(file) as stream:
            is_list = read_up_to(stream, 64).removeprefix(BYTE_ORDER_MARK).lstrip()[:1] == b"["
        if is_list:
            most = None if is_whole else max(1, limit // _SAMPLED_SHARE // len(table.files))
            yield file, _listed(file, most)
            continue
        some = replace(table, files=(file,))
        for _, content in _pieces(some, limit if is_whole else min(limit, file.size - 1)):
            yield file, _decoded(content)


def _listed(file: InputFile, most: int | None) -> Iterator[object]:
    size = 0
    for item, length in read_items(file, json.JSONDecoder()):
        yield None if isinstance(item, BadRecordError) else item
        size += length
        if most is not None and size > most:
            return


def _decoded(content: bytes) -> Iterator[object]:
    for line in content.removeprefix(BYTE_ORDER_MARK).split(b"\n"):
        if line.strip():
            try:
                yield json.loads(line)
            except (ValueError, RecursionError):
                yield None


def _add_json(columns: list[SampledColumn], left_out: list[LeftOut], name: str, values: list[object]) -> None:
    """A member of objects as a column; the members of objects in it as columns of their own."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {dict}:
        objects = [value if isinstance(value, dict) else {} for value in values]
        members = Counter(member for value in objects for member in value)
        if len(members) <= _MOST_MEMBERS or sum(members.values()) * 2 > len(members) * len(values):
            for member in members:
                _add_json(columns, left_out, f"{name}.{member}", [value.get(member) for value in objects])
            return
        # Members that few objects have are data, not names.
        values = [[{KEY: key, VALUE: value} for key, value in found.items()] for found in objects]
        kinds = {list}
    if len(kinds) > 1 and kinds <= {str, int, bool}:
        texts = [notation(value) if isinstance(value, bool | int) else value for value in values]
        columns.append(SampledColumn(name=name, number=len(columns) + 1, values=pa.array(texts), is_mixed=True))
        return
    array = _json_array(values, kinds)
    if array is None:
        left_out.append(LeftOut(name=name, reason=_several_types(kinds)))
        return
    columns.append(SampledColumn(name=name, number=len(columns) + 1, values=array))


#: Objects with more members than this may be maps.
_MOST_MEMBERS = 8


def _json_array(values: list[object], kinds: set[type]) -> Array | None:
    if dict in kinds:
        return None
    try:
        found: Array = pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return None
    return found


_JSON_NAMES = {str: "texts", int: "numbers", float: "numbers", bool: "truth values", list: "lists", dict: "objects"}


def _several_types(kinds: set[type]) -> str:
    names = sorted({_JSON_NAMES.get(kind, "values") for kind in kinds})
    return f"values of several types: {', '.join(names)}" if len(names) > 1 else f"{names[0]} of several types"


# ---- Parquet, ORC, frames


def _read_columnar(table: FileTable, limit: int) -> Table:
    batches: list[Any] = []
    size = rows = 0
    for file in table.files:
        with readable(file), open_table(file, is_parquet=table.kind == "parquet") as opened:
            groups = opened.group_rows()
            rows += sum(groups)
            for group in range(len(groups)):
                for batch in opened.batches([group], list(table.columns)):
                    if size <= limit:
                        batches.append(batch)
                        size += batch.nbytes
    schema = batches[0].schema if batches else pa.schema([])
    found = pa.Table.from_batches([batch.cast(schema) for batch in batches], schema)
    is_whole = found.num_rows == rows
    sample = "" if is_whole else f"a sample of {found.num_rows:,} of {rows:,} rows"
    whole = arrow_table(found, stem=table.stem, shown=table.shown, is_declared=True)
    more = _partition_columns(table, found.num_rows, len(whole.columns), {column.name for column in whole.columns})
    return replace(
        whole, entry={"source": table.source}, is_whole=is_whole, sample=sample, columns=(*whole.columns, *more)
    )


def arrow_table(rows: Rows, *, stem: str, shown: str, is_declared: bool) -> Table:
    """A table of Arrow data; `is_declared` says that its types are meant."""
    columns: list[SampledColumn] = []
    left_out: list[LeftOut] = []
    names = rows.schema.names
    for place, name in enumerate(names):
        if names.count(name) > 1:
            left_out.append(LeftOut(name=name, reason="two columns have this name"))
        else:
            _add_arrow(columns, left_out, name, one_array(rows[place]), is_declared=is_declared)
    return Table(stem=stem, shown=shown, entry={}, columns=tuple(columns), rows=rows.num_rows, left_out=tuple(left_out))


def _add_arrow(
    columns: list[SampledColumn], left_out: list[LeftOut], name: str, values: Array, *, is_declared: bool
) -> None:
    if pa.types.is_struct(values.type):
        for member in values.type:
            path = f"{name}.{member.name}"
            _add_arrow(columns, left_out, path, pc.struct_field(values, [member.name]), is_declared=is_declared)
    else:
        columns.append(SampledColumn(name=name, number=len(columns) + 1, values=values, is_declared=is_declared))
