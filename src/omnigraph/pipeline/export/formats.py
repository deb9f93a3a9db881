"""Rows as JSON lines, and as Parquet with its mapping."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NoReturn

import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.core.arrow import Array, Field, arrow_type, pc
from omnigraph.core.ids import TableKey
from omnigraph.core.types import (
    FLOATS,
    BaseType,
    EnumType,
    ListType,
    PropertyType,
    RecordListType,
    RecordType,
    Scalar,
    ScalarType,
    VectorType,
)
from omnigraph.core.values import blob_text, reference_of
from omnigraph.errors import BadRequestError
from omnigraph.errors.text import size_text
from omnigraph.frozen import frozen
from omnigraph.lang.schema.catalog import EdgeDef, NodeDef
from omnigraph.pipeline.sources.records import MAX_LINE_BYTES
from omnigraph.storage.datasets.blob_columns import CELL_PARTS, cell_parts, plain_bytes

# ---- JSON lines


#: Offsets of 64 bits: the lines of one batch may hold large blobs.
_TEXT = pa.large_utf8()
#: One line per row, with its line feed, beside the id that it is sorted by.
LINES = pa.schema([pa.field("id", _TEXT, nullable=False), pa.field("line", _TEXT, nullable=False)])

#: What cannot stand inside a JSON string as it is.
_ESCAPED = r'[\x00-\x1f"\\]'


@frozen(kw_only=True)
class TypeShape:
    """A type as tasks need it: plain values that travel to other processes."""

    table_key: TableKey
    name: str
    is_edge: bool
    properties: tuple[tuple[str, PropertyType], ...]
    #: Blob properties of which some cells refer to addresses.
    referring: frozenset[str] = frozenset()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the dataset, in the order of an export."""
        ends = ("src", "dst") if self.is_edge else ()
        return ("id", *ends, *(name for name, _ in self.properties))


def shape_of(definition: NodeDef | EdgeDef) -> TypeShape:
    """The shape of a type."""
    return TypeShape(
        table_key=definition.table_key,
        name=definition.name,
        is_edge=isinstance(definition, EdgeDef),
        properties=tuple((prop.name, prop.type) for prop in definition.properties.values()),
    )


def json_lines(shape: TypeShape, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of a batch as `LINES`, in its order; the envelope is the one that a load reads.

    Raises:
        BadRequestError: a float is not finite, which JSON cannot express, or a line is longer than a load reads.
    """
    ids = batch.column("id").cast(_TEXT)
    word = "edge" if shape.is_edge else "type"
    pieces: list[Array | str] = [f'{{"{word}":{json.dumps(shape.name)}']
    if shape.is_edge:
        pieces += [',"from":', _quoted(batch.column("src")), ',"to":', _quoted(batch.column("dst"))]
    pieces += [',"data":{"id":', _quoted(ids)]
    for name, type_ in shape.properties:
        column = batch.column(name)
        _check_finite(f"{shape.table_key}.{name}", type_.base, column, ids)
        pieces += [f",{json.dumps(name)}:", pc.fill_null(_json(type_.base, column), "null")]
    lines = _joined(*pieces, "}}\n")
    _check_length(shape, ids, lines)
    return pa.RecordBatch.from_arrays([ids, lines], schema=LINES)


def _check_length(shape: TypeShape, ids: Array, lines: Array) -> None:
    """A line that a load would refuse is not written."""
    sizes = pc.binary_length(lines)
    longest = pc.max(sizes).as_py() or 0
    if longest > MAX_LINE_BYTES + 1:
        refuse_long_line(shape.table_key, ids[pc.index(sizes, longest).as_py()].as_py(), longest)


def refuse_long_line(table_key: str, entity_id: str, size: int) -> NoReturn:
    """Say that a record is too long for a line.

    Raises:
        BadRequestError: always.
    """
    raise BadRequestError(
        f"{table_key} {entity_id!r} makes a line of about {size_text(size)}, and a load reads lines of up to "
        f"{size_text(MAX_LINE_BYTES)}: export as Parquet"
    )


def _json(base: BaseType, column: Array) -> Array:
    """The values of a column as JSON text; a null stays null."""
    match base:
        case EnumType():
            return _quoted(column)
        case ScalarType(scalar):
            return _scalars(scalar, column)
        case ListType(item):
            return _lists(column, lambda values: _scalars(item, values))
        case VectorType():
            return _lists(column, lambda values: _scalars(Scalar.F32, values))
        case RecordType() | RecordListType():
            raise AssertionError("only results have records")


def _scalars(scalar: Scalar, column: Array) -> Array:
    match scalar:
        case Scalar.STRING:
            return _quoted(column)
        case Scalar.BLOB:
            return pa.array(map(_blob, column.to_pylist()), _TEXT)
        case Scalar.DATE:
            return column.cast(pa.int32()).cast(_TEXT)
        case Scalar.DATETIME:
            return column.cast(pa.int64()).cast(_TEXT)
        case Scalar.F32 | Scalar.F64:
            # Arrow gives the fewest digits that read back as the same number. A bare `-0` is an integer to readers
            # of JSON, and loses its sign.
            digits = column.cast(_TEXT)
            found: Array = pc.if_else(pc.equal(digits, "-0"), "-0.0", digits)
            return found
        case _:
            return column.cast(_TEXT)


def _blob(cell: bytes | None) -> str | None:
    # Base64 needs no escaping, an address may.
    if cell is None:
        return None
    text = blob_text(cell)
    return f'"{text}"' if reference_of(cell) is None else json.dumps(text, ensure_ascii=False)


def _quoted(column: Array) -> Array:
    """Texts as JSON strings. Only those with something to escape go through Python."""
    texts = column.cast(_TEXT)
    quoted = _joined('"', texts, '"')
    special = pc.fill_null(pc.match_substring_regex(texts, _ESCAPED), False)
    if not pc.any(special).as_py():
        return quoted
    escaped = (json.dumps(text, ensure_ascii=False) for text in texts.filter(special).to_pylist())
    found: Array = pc.replace_with_mask(quoted, special, pa.array(escaped, _TEXT))
    return found


def _lists(column: Array, render: Callable[[Array], Array]) -> Array:
    """Lists as JSON arrays."""
    items = pc.fill_null(render(pc.list_flatten(column)), "null")
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    lists = pa.ListArray.from_arrays(offsets, items)
    texts = _joined("[", pc.binary_join(lists, pa.scalar(",", _TEXT)), "]")
    found: Array = pc.if_else(column.is_valid(), texts, pa.scalar(None, _TEXT))
    return found


def _joined(*pieces: Array | str) -> Array:
    """Per row all pieces one after the other; null when one of them is."""
    parts = [pa.scalar(piece, _TEXT) if isinstance(piece, str) else piece for piece in pieces]
    found: Array = pc.binary_join_element_wise(*parts, pa.scalar("", _TEXT))
    return found


def _check_finite(owner: str, base: BaseType, column: Array, ids: Array) -> None:
    match base:
        case ScalarType(scalar) if scalar in FLOATS:
            values = column
        case ListType(item) if item in FLOATS:
            values = pc.list_flatten(column)
        case VectorType():
            values = pc.list_flatten(column)
        case _:
            return
    if pc.all(pc.is_finite(values), min_count=0).as_py():
        return
    for row, value in enumerate(column.to_pylist()):
        numbers = value if isinstance(value, list) else [value]
        if any(number is not None and not math.isfinite(number) for number in numbers):
            raise BadRequestError(
                f"{owner} of {ids[row].as_py()!r} holds a number that is not finite, and JSON has none: "
                "correct it, or export as Parquet"
            )


# ---- Parquet files and their mapping


MAPPING = "mapping.yaml"
#: Names in files of the columns that are not properties. The schema language reserves these words.
_ENDS = {"src": "from", "dst": "to"}
_ROW_GROUP_BYTES = 64 * 1024 * 1024
_MOMENT = pa.timestamp("ms", tz="UTC")


def folder_of(shape: TypeShape) -> str:
    """The directory of a type below the target."""
    return f"{'edges' if shape.is_edge else 'nodes'}/{shape.name}"


def parquet_schema(shape: TypeShape) -> pa.Schema:
    """The columns of the files of a type."""
    fixed = [_ENDS.get(name, name) for name in shape.columns if name in ("id", *_ENDS)]
    fields: list[Field] = [pa.field(name, pa.utf8(), nullable=False) for name in fixed]
    fields += [
        pa.field(name, CELL_PARTS if name in shape.referring else _natural_type(type_.base), nullable=type_.nullable)
        for name, type_ in shape.properties
    ]
    return pa.schema(fields)


def write_parquet(path: str, shape: TypeShape, batches: Iterable[pa.RecordBatch]) -> int:
    """Write rows of a type as one file, also when there are none; how many there were."""
    schema = parquet_schema(shape)
    rows = 0
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for group in _row_groups(_natural_rows(batch, schema) for batch in batches):
            writer.write_table(group, row_group_size=group.num_rows)
            rows += group.num_rows
    return rows


def mapping_text(shapes: Sequence[TypeShape]) -> str:
    """The mapping file of an export; paths are relative to it."""
    lines = ["# Reads this export back: give the file to `omnigraph load --mapping`."]
    for kind in ("nodes", "edges"):
        chosen = [shape for shape in shapes if shape.is_edge == (kind == "edges")]
        if chosen:
            lines.append(f"{kind}:")
        for shape in chosen:
            # Quoted: a type may be called `Yes` or `Null`, and YAML knows those words.
            lines.append(f"  {json.dumps(shape.name)}:")
            lines.append(f"    source: {folder_of(shape)}")
            lines.append("    format: parquet")
            lines += [f"    {name}: {name}" for name in ("id", *(_ENDS.values() if shape.is_edge else ()))]
    return "\n".join(lines) + "\n"


def _natural_type(base: BaseType) -> pa.DataType:
    """The type that other programs expect, where it differs from the stored one."""
    match base:
        case ScalarType(Scalar.DATETIME):
            return _MOMENT
        case ScalarType(Scalar.BLOB):
            return pa.binary()
        case ListType(Scalar.DATETIME):
            return pa.list_(_MOMENT)
        case VectorType():
            return pa.list_(pa.float32())
        case _:
            return arrow_type(base)


def _natural_rows(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [_natural(column, field) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _natural(column: Array, field: Field) -> Array:
    wanted = field.type
    if wanted == CELL_PARTS:
        found: Array = cell_parts(column)
        return found
    if pa.types.is_large_binary(column.type):
        column = plain_bytes(column, field.name)
    # By way of the bare number: as a calendar day a date64 would lose its time.
    if pa.types.is_date64(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_list(column.type) and pa.types.is_date64(column.type.value_type):
        column = column.cast(pa.list_(pa.int64()))
    return column if column.type == wanted else column.cast(wanted)


def _row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches gathered into row groups: every write makes one, and small ones read slowly."""
    pending: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        if pending and size + batch.nbytes > _ROW_GROUP_BYTES:
            yield pa.Table.from_batches(pending)
            pending, size = [], 0
        pending.append(batch)
        size += batch.nbytes
    if pending:
        yield pa.Table.from_batches(pending)
