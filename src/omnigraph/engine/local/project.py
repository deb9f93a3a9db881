"""Result columns: values in the types that a result shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

import pyarrow as pa

from omnigraph.engine.local.conditions import with_columns
from omnigraph.engine.local.pushdown import value_of
from omnigraph.query import ir
from omnigraph.types.arrow import arrow_type
from omnigraph.types.kinds import ListType, PropertyType, Scalar, ScalarType

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from omnigraph.engine.local.arrays import ArrowColumn
    from omnigraph.engine.local.context import Context
    from omnigraph.engine.local.rows import Column, Rows
    from omnigraph.types.kinds import BaseType
    from omnigraph.types.values import StoredValue

#: Where the score of the rank key is attached to rows.
SCORE_COLUMN: Column = ("~rank", "score")
ID = "id"


def result_type(base: BaseType) -> pa.DataType:
    """The Arrow type in a result: as stored, but instants are timestamps in UTC, which every reader understands."""
    if base == ScalarType(Scalar.DATETIME):
        return pa.timestamp("ms", tz="UTC")
    if base == ListType(Scalar.DATETIME):
        return pa.list_(pa.field("item", pa.timestamp("ms", tz="UTC")))
    return arrow_type(base)


def result_schema(projections: Iterable[ir.Projection]) -> pa.Schema:
    """The columns of a result."""
    return pa.schema(
        [
            pa.field(
                item.name,
                result_type(item.type.base),
                nullable=item.type.nullable or isinstance(item.expression, ir.Aggregate),
            )
            for item in projections
        ]
    )


def shown(column: ArrowColumn, base: BaseType) -> ArrowColumn:
    """A stored column in the type of a result."""
    wanted = result_type(base)
    if column.type == wanted:
        return column
    if pa.types.is_date64(column.type):
        return column.cast(pa.int64()).cast(wanted)
    if base == ListType(Scalar.DATETIME):
        return column.cast(pa.list_(pa.int64())).cast(wanted)
    return column.cast(wanted)


def entity_columns(operands: Iterable[object]) -> Iterator[Column]:
    """The stored columns behind operands: properties, and the id of a bare variable."""
    for operand in operands:
        match operand:
            case ir.PropertyRef(variable, name):
                yield variable, name
            case ir.EntityRef(variable):
                yield variable, ID
            case _:
                pass


def project(
    context: Context, rows: Rows, projections: Sequence[ir.Projection], schema: pa.Schema
) -> pa.RecordBatch:
    """Rows as a batch of result columns."""
    rows = with_columns(context, rows, entity_columns(item.expression for item in projections))
    arrays = [
        shown(operand_column(context, rows, item.expression), item.type.base)
        for item in projections
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def operand_column(
    context: Context, rows: Rows, operand: ir.Operand | ir.Aggregate | ir.Rank
) -> ArrowColumn:
    """The values of an operand, whose stored columns are read already."""
    match operand:
        case ir.PropertyRef(variable, name):
            return rows.columns[variable, name]
        case ir.EntityRef(variable):
            return rows.columns[variable, ID]
        case ir.ParamRef() | ir.Constant():
            return _repeated(value_of(operand, context.values), operand.type, rows.count)
        case ir.Nearest() | ir.Bm25() | ir.Rrf():
            return rows.columns[SCORE_COLUMN]
        case ir.Aggregate():
            raise AssertionError("aggregates are columns of groups, not of rows")
        case _:
            assert_never(operand)


def _repeated(value: StoredValue, type_: PropertyType, count: int) -> ArrowColumn:
    wanted = arrow_type(type_.base)
    if pa.types.is_date64(wanted):
        return pa.repeat(pa.scalar(value, pa.int64()), count).cast(wanted)
    if pa.types.is_date32(wanted):
        return pa.repeat(pa.scalar(value, pa.int32()), count).cast(wanted)
    plain: Any = list(value) if isinstance(value, tuple) else value
    if pa.types.is_list(wanted) and wanted.value_type in (pa.date32(), pa.date64()):
        narrow = pa.int32() if wanted.value_type == pa.date32() else pa.int64()
        return pa.repeat(pa.scalar(plain, pa.list_(narrow)), count).cast(wanted)
    one: Any = pa.scalar(plain, wanted)
    return pa.repeat(one, count)
