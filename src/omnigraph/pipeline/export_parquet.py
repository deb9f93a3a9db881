"""Rows as Parquet files with the natural type of every column, and the mapping by which a load reads them back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.storage.blob_cells import CELL_PARTS, cell_parts, plain_bytes
from omnigraph.types.arrow import arrow_type
from omnigraph.types.kinds import BaseType, ListType, Scalar, ScalarType, VectorType

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from omnigraph.pipeline.export_lines import TypeShape

MAPPING = "mapping.yaml"
#: How a file names the columns of an entity that are no properties. The schema language reserves these words.
_ENDS = {"src": "from", "dst": "to"}
_ROW_GROUP_BYTES = 64 * 1024 * 1024
_MOMENT = pa.timestamp("ms", tz="UTC")


def folder_of(shape: TypeShape) -> str:
    """The directory of a type below the target."""
    return f"{'edges' if shape.is_edge else 'nodes'}/{shape.name}"


def parquet_schema(shape: TypeShape) -> pa.Schema:
    """The columns of the files of a type."""
    fixed = [_ENDS.get(name, name) for name in shape.columns if name in ("id", *_ENDS)]
    fields: list[pa.Field[Any]] = [pa.field(name, pa.utf8(), nullable=False) for name in fixed]
    fields += [
        pa.field(
            name,
            CELL_PARTS if name in shape.referring else _natural_type(type_.base),
            nullable=type_.nullable,
        )
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
            lines += [
                f"    {name}: {name}" for name in ("id", *_ENDS.values()) if _has(shape, name)
            ]
    return "\n".join(lines) + "\n"


def _has(shape: TypeShape, name: str) -> bool:
    return shape.is_edge or name == "id"


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


def _natural(column: Any, field: pa.Field[Any]) -> Any:
    wanted = field.type
    if wanted == CELL_PARTS:
        return cell_parts(column)
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
