"""Values of expressions: vectors of a batch in three-valued logic, over whatever gives the columns.

The evaluation knows no tables: rows of a match, groups and rows of a statement are all a `Source`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Protocol, assert_never

import numpy as np

from omnigraph.core.arrow import Array, Datum, arrow_type, pa, pc, records, stored_array
from omnigraph.core.types import BaseType, PropertyType
from omnigraph.core.values import StoredValue
from omnigraph.engine.rows import BoolArray
from omnigraph.engine.values import functions
from omnigraph.engine.values.arithmetic import as_array as repeated
from omnigraph.engine.values.arithmetic import calculate, negate
from omnigraph.engine.values.comparisons import Fixed, Side, Values, as_array, truth
from omnigraph.frozen import frozen
from omnigraph.lang.query import ir
from omnigraph.lang.query.functions.table import function_named


class Source(Protocol):
    """A batch that expressions are evaluated over."""

    @property
    def count(self) -> int:
        """How many rows it has."""
        ...

    @property
    def values(self) -> Mapping[str, StoredValue]:
        """The parameters."""
        ...

    def column(self, expression: Reference) -> Array:
        """What only the batch can tell: a value per row, in stored form."""
        ...

    def block(self, expression: ir.BlockValue) -> tuple[Array, BoolArray | None]:
        """The values of a block, null where integers overflow in it, and where that is; None where it nowhere is."""
        ...


#: The expressions that a source answers.
Reference = (
    ir.PropertyRef | ir.EntityRef | ir.TypeOf | ir.PathRef | ir.ColumnRef | ir.TextMatch | ir.Exists | ir.Aggregate
)


@frozen
class Evaluated:
    """The values of an expression, and where integers overflowed in it; None where they nowhere did.

    A value that overflowed is null, so that a condition of a match is unknown there.
    """

    side: Side
    overflow: BoolArray | None = None


_KLEENE = {ir.Connective.AND: pc.and_kleene, ir.Connective.OR: pc.or_kleene}


def evaluate(expression: ir.Expression, source: Source) -> Evaluated:
    """The values of an expression over a batch."""
    match expression:
        case ir.Constant() | ir.ParamRef():
            return Evaluated(Fixed(ir.value_of(expression, source.values), expression.type.base))
        case ir.Comparison(left, op, right):
            first, second = evaluate(left, source), evaluate(right, source)
            found = truth(op, first.side, second.side, source.count)
            return Evaluated(_truths(found), _either(first.overflow, second.overflow))
        case ir.Logical(connective, operands):
            return _logical(connective, [evaluate(operand, source) for operand in operands], source.count)
        case ir.Not(operand):
            inner = evaluate(operand, source)
            return Evaluated(_truths(pc.invert(as_array(inner.side, source.count))), inner.overflow)
        case ir.IsNull(operand):
            inner = evaluate(operand, source)
            found = as_array(inner.side, source.count).is_null()
            if inner.overflow is not None:
                # What overflowed has no value, which is not the same as null.
                found = pc.if_else(pa.array(inner.overflow), pa.scalar(None, pa.bool_()), found)
            return Evaluated(_truths(found), inner.overflow)
        case ir.Arithmetic(left, op, right, type_):
            first, second = evaluate(left, source), evaluate(right, source)
            made = calculate(str(op), _datum(first.side), _datum(second.side), type_)
            return _calculated(made, type_, source.count, _either(first.overflow, second.overflow))
        case ir.Negative(operand, type_):
            inner = evaluate(operand, source)
            return _calculated(negate(_datum(inner.side), type_), type_, source.count, inner.overflow)
        case ir.Function():
            return _function(expression, source)
        case ir.Case():
            return _case(expression, source)
        case ir.BlockValue():
            values, overflow = source.block(expression)
            return Evaluated(Values(values, expression.type.base), overflow)
        case ir.Record():
            return _record(expression, source)
        case (
            ir.PropertyRef()
            | ir.EntityRef()
            | ir.TypeOf()
            | ir.PathRef()
            | ir.ColumnRef()
            | ir.TextMatch()
            | ir.Exists()
            | ir.Aggregate()
        ):
            return Evaluated(Values(source.column(expression), expression.type.base))
        case _:
            assert_never(expression)


def _truths(array: Array) -> Values:
    return Values(array, ir.IsNull.type.base)


def _either(*masks: BoolArray | None) -> BoolArray | None:
    present = [mask for mask in masks if mask is not None]
    return reduce(np.logical_or, present) if present else None


def _datum(side: Side) -> Datum:
    if isinstance(side, Values):
        return side.array
    datum: Datum = stored_array(arrow_type(side.base), [side.value])[0]
    return datum


def _side(made: Datum, base: BaseType, count: int) -> Values:
    return Values(repeated(made, count), base)


def _calculated(
    made: tuple[Datum, Datum | None], type_: PropertyType, count: int, overflow: BoolArray | None
) -> Evaluated:
    value, beyond = made
    if beyond is not None:
        mask = repeated(beyond, count)
        overflow = _either(overflow, np.asarray(mask.to_numpy(zero_copy_only=False), np.bool_))
    return Evaluated(_side(value, type_.base, count), overflow)


def _logical(connective: ir.Connective, operands: Sequence[Evaluated], count: int) -> Evaluated:
    arrays = (as_array(operand.side, count) for operand in operands)
    found = reduce(_KLEENE[connective], arrays)
    return Evaluated(_truths(found), _either(*(operand.overflow for operand in operands)))


def _function(expression: ir.Function, source: Source) -> Evaluated:
    type_, count = expression.type, source.count
    arguments = [evaluate(argument, source) for argument in expression.arguments]
    if expression.name == "coalesce":
        return _coalesced(arguments, type_, count)
    overflow = _either(*(argument.overflow for argument in arguments))
    data = [_datum(argument.side) for argument in arguments]
    function = function_named(expression.name)
    if function is not None and function.can_overflow:
        first, second = data
        return _calculated(calculate(expression.name, first, second, type_), type_, count, overflow)
    return Evaluated(_side(functions.apply(expression.name, data, type_, count), type_.base, count), overflow)


def _coalesced(arguments: Sequence[Evaluated], type_: PropertyType, count: int) -> Evaluated:
    """The first value that is not null; what overflows behind it does not matter."""
    wanted = arrow_type(type_.base)
    found = pa.nulls(count, wanted)
    is_open = np.ones(count, np.bool_)
    overflow: BoolArray | None = None
    for argument in arguments:
        value = _converted(argument.side, type_, count)
        # What overflowed is not null: it has no value at all, and what is behind it does not give it one.
        found = pc.coalesce(found, value if is_open.all() else pc.if_else(pa.array(is_open), value, None))
        if argument.overflow is not None:
            overflow = _either(overflow, argument.overflow & is_open)
            is_open = is_open & ~argument.overflow
        is_open = is_open & np.asarray(value.is_null().to_numpy(zero_copy_only=False), np.bool_)
    return Evaluated(Values(found, type_.base), overflow)


def _converted(side: Side, type_: PropertyType, count: int) -> Array:
    """The values of one of several alternatives, in the type that those have together."""
    return repeated(functions.converted(_datum(side), type_.base), count)


def _case(expression: ir.Case, source: Source) -> Evaluated:
    """The value of the first branch that holds; what overflows in other branches does not matter."""
    count, wanted = source.count, arrow_type(expression.type.base)
    last = None if expression.otherwise is None else evaluate(expression.otherwise, source)
    found = pa.nulls(count, wanted) if last is None else _converted(last.side, expression.type, count)
    overflow = None if last is None else last.overflow
    for test, made in reversed(expression.branches):
        condition, value = evaluate(test, source), evaluate(made, source)
        chosen = pc.fill_null(as_array(condition.side, count), False)
        found = pc.if_else(chosen, _converted(value.side, expression.type, count), found)
        if overflow is not None or value.overflow is not None:
            mask = np.asarray(chosen.to_numpy(zero_copy_only=False), np.bool_)
            nowhere = np.zeros(count, np.bool_)
            taken = nowhere if value.overflow is None else value.overflow
            overflow = np.where(mask, taken, nowhere if overflow is None else overflow)
        overflow = _either(overflow, condition.overflow)
    return Evaluated(Values(found, expression.type.base), overflow)


def _record(expression: ir.Record, source: Source) -> Evaluated:
    """The entity of each row as a record; its first field is the id, which only what is bound to nothing has not."""
    columns = [as_array(evaluate(value, source).side, source.count) for _, value in expression.fields]
    is_missing = columns[0].is_null() if expression.type.nullable else None
    return Evaluated(Values(records(arrow_type(expression.type.base), columns, is_missing), expression.type.base))
