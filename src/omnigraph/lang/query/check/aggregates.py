"""The types of aggregates, order keys and numbers of rows."""

from __future__ import annotations

from omnigraph.core.types import (
    NUMERICS,
    ListType,
    PropertyType,
    RecordListType,
    RecordType,
    Scalar,
    ScalarType,
    item_scalar,
    scalar_of,
)
from omnigraph.lang.query import ir
from omnigraph.lang.query.check.operands import I64, parameter
from omnigraph.lang.query.check.scope import Context
from omnigraph.lang.query.syntax import ast

_BLOB = ScalarType(Scalar.BLOB)


def aggregate_type(
    context: Context, function: ir.AggregateFunction, argument: ir.Expression, written: ast.Expression
) -> PropertyType | None:
    """The type of an aggregate over an argument; T8 for what it cannot be made over."""
    scalar = scalar_of(argument.type.base)
    is_entity = isinstance(argument, ir.EntityRef)
    match function:
        case ir.AggregateFunction.COUNT:
            return ir.COUNT_TYPE
        case ir.AggregateFunction.MIN | ir.AggregateFunction.MAX:
            if scalar is not None and not is_entity:
                return PropertyType(argument.type.base, True)
            wanted = "a property" if is_entity else "a single value"
        case ir.AggregateFunction.COLLECT:
            if scalar is not None:
                return PropertyType(ListType(scalar))
            if isinstance(argument.type.base, RecordType):
                return PropertyType(RecordListType(argument.type.base))
            wanted = "a single value, a node or an object"
        case _:
            if scalar in NUMERICS:
                return PropertyType(ScalarType(Scalar.F64), True)
            wanted = "a number"
    what = str(argument.type)
    if is_entity or isinstance(argument.type.base, RecordType):
        what = "a node" if is_entity else "an object"
    context.error("T8", written.span, f"`{function}` needs {wanted}, found {what}")
    return None


def order_key(expression: ir.Expression, sort: ast.Sort) -> ir.OrderKey:
    """An order key as it is written."""
    nulls_first = None if sort.nulls is None else sort.nulls == "first"
    return ir.OrderKey(expression, sort.direction == "desc", nulls_first)


def check_sortable(context: Context, expression: ast.Expression, type_: PropertyType) -> bool:
    """Whether values of a type have an order."""
    if type_.base == _BLOB:
        context.error("T24", expression.span, "a Blob cannot be an order key")
        return False
    if isinstance(type_.base, RecordType | RecordListType):
        context.error("Q113", expression.span, "objects have no order", "order by a property, as in `$p.name`")
        return False
    if scalar_of(type_.base) is None:
        context.error("Q113", expression.span, f"{type_} has no order")
        return False
    return True


_MAX_COUNT = 2**63 - 1


def count_value(context: Context, count: ast.Count) -> ir.Value | None:
    """A number of rows: a literal, or an integer parameter (Q119)."""
    if isinstance(count.value, int):
        if count.value > _MAX_COUNT:
            context.error("Q109", count.span, f"the number {count.value} is beyond 64 bits")
            return None
        return ir.Constant(count.value, I64)
    reference = parameter(context, count.value)
    if reference is None:
        return None
    if reference.type.nullable or item_scalar(reference.type.base) not in (
        Scalar.I32,
        Scalar.I64,
        Scalar.U32,
        Scalar.U64,
    ):
        message = f"a number of rows is an integer that is never null, `${reference.name}` is {reference.type}"
        context.error("Q119", count.span, message, f"declare it `${reference.name}: I64`")
        return None
    return reference
