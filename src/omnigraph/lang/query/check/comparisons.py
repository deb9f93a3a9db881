"""Which types may be compared, in which of them two operands meet, and what is said where they do not."""

from __future__ import annotations

from functools import partial
from typing import TypeVar

from omnigraph.core.source import did_you_mean
from omnigraph.core.types import (
    NUMERICS,
    BaseType,
    EnumType,
    ListType,
    PropertyType,
    Scalar,
    ScalarType,
    item_scalar,
    record_fields,
    scalar_of,
)
from omnigraph.core.values import narrowed, render_value
from omnigraph.lang.query import ir
from omnigraph.lang.query.check.scope import Context, Scope
from omnigraph.lang.query.syntax import ast
from omnigraph.lang.query.syntax.printing import print_expression

_BLOB = ScalarType(Scalar.BLOB)


def is_comparable(left: BaseType, right: BaseType) -> bool:
    """Whether two types may be compared: the same scalar, or two numbers. Lists, vectors and blobs never are."""
    first, second = scalar_of(left), scalar_of(right)
    if first is None or second is None or Scalar.BLOB in (first, second):
        return False
    return first == second or (first in NUMERICS and second in NUMERICS)


def compared(left: ir.Expression, op: ir.CompareOp, right: ir.Expression) -> ir.Comparison:
    """A comparison of two operands; the one place that decides in which types they meet."""
    return ir.Comparison(beside(right, left), op, beside(left, right))


Compared = TypeVar("Compared", bound=ir.Expression)


def beside(other: ir.Expression, operand: Compared) -> Compared | ir.Constant:
    """An operand as it is compared with `other`: beside an F32 property a number of the text is an F32 itself.

    Everything else is compared by value: parameters have a type of their own, and what is computed is not stored.
    """
    is_property = isinstance(other, ir.PropertyRef) or (isinstance(other, ir.ColumnRef) and other.is_property)
    if not isinstance(operand, ir.Constant) or not is_property:
        return operand
    if item_scalar(other.type.base) is not Scalar.F32 or item_scalar(operand.type.base) not in NUMERICS:
        return operand
    is_list = isinstance(operand.type.base, ListType)
    base = ListType(Scalar.F32) if is_list else ScalarType(Scalar.F32)
    return ir.Constant(narrowed(base, operand.value), PropertyType(base, operand.type.nullable))


TEXT_PARTS = {
    ast.Operator.CONTAINS: ir.CompareOp.STRING_CONTAINS,
    ast.Operator.STARTS_WITH: ir.CompareOp.STARTS_WITH,
    ast.Operator.ENDS_WITH: ir.CompareOp.ENDS_WITH,
}


def compare_op(operator: ast.Operator, left: BaseType, right: BaseType) -> ir.CompareOp | None:
    """The operator with its meaning for these types; None when it has none."""
    if operator is ast.Operator.CONTAINS and isinstance(left, ListType):
        return ir.CompareOp.CONTAINS if is_comparable(ScalarType(left.item), right) else None
    if operator in TEXT_PARTS:
        return TEXT_PARTS[operator] if are_texts(left, right) else None
    return ir.CompareOp(operator.value) if is_comparable(left, right) else None


def are_texts(left: BaseType, right: BaseType) -> bool:
    """Whether both are texts: Strings or values of an enum."""
    return scalar_of(left) is Scalar.STRING and scalar_of(right) is Scalar.STRING


def report_incomparable(context: Context, expression: ast.Binary, left: ir.Expression, right: ir.Expression) -> None:
    """Record that an operator does not compare these types (T7)."""
    if record_fields(left.type.base) or record_fields(right.type.base):
        context.error("T7", expression.span, "objects are not compared", "compare the nodes, as in `$p = $q`")
        return
    message = f"`{expression.operator}` cannot compare {left.type} with {right.type}"
    hint = moment_hint(left.type.base, right) or moment_hint(right.type.base, left)
    is_membership = expression.operator is ast.Operator.CONTAINS
    if hint is None and isinstance(left.type.base, ListType) and not is_membership:
        hint = "test membership with `contains`"
    if hint is None and expression.operator in TEXT_PARTS and not isinstance(left.type.base, ListType):
        hint = f"`{expression.operator}` looks into texts" + (" and lists" if is_membership else "")
    if hint is None and {scalar_of(left.type.base), scalar_of(right.type.base)} == {Scalar.DATE, Scalar.DATETIME}:
        hint = "make both one: `date(…)` is the day of a moment, `datetime(…)` the midnight of a day"
    context.error("T7", expression.span, message, hint)


def entities_compared(
    context: Context, expression: ast.Binary, left: ir.Expression, right: ir.Expression
) -> ir.Comparison | None:
    """Whether two nodes or edges are the same."""
    if not isinstance(left, ir.EntityRef) or not isinstance(right, ir.EntityRef):
        entity, side = (left, expression.left) if isinstance(left, ir.EntityRef) else (right, expression.right)
        message = f"`{print_expression(side)}` is a node: compare one of its properties"
        assert isinstance(entity, ir.EntityRef)
        context.error("T7", side.span, message, f"its id is `${entity.variable}.@id`")
        return None
    if expression.operator not in (ast.Operator.EQ, ast.Operator.NE):
        message = f"nodes and edges are the same or not: `{expression.operator}` says nothing about them"
        context.error("T7", expression.span, message, "compare one of their properties")
        return None
    if not set(left.node_type.split(" | ")) & set(right.node_type.split(" | ")):
        message = f"`${left.variable}` is a `{left.node_type}` and `${right.variable}` a `{right.node_type}`: never one"
        context.error("T7", expression.span, message)
        return None
    return ir.Comparison(left, ir.CompareOp(expression.operator.value), right)


def moment_hint(wanted: BaseType, value: ir.Expression) -> str | None:
    """A hint for strings where a moment is meant."""
    if value.type.base != ScalarType(Scalar.STRING):
        return None
    match scalar_of(wanted):
        case Scalar.DATE:
            return 'write `date("2024-05-01")`, or pass a Date parameter'
        case Scalar.DATETIME:
            return 'write `datetime("2024-05-01T12:00:00Z")`, or pass a DateTime parameter'
    return None


def check_enum_value(
    context: Context, enum: EnumType, value: ir.Constant, name: str, expression: ast.Expression
) -> bool:
    """Whether a literal is one of the values of an enum property (T3)."""
    if value.value is None or value.value in enum.values:
        return True
    message = f"{render_value(value.type.base, value.value)} is not a value of `{name}`"
    context.error("T3", expression.span, message, partial(did_you_mean, str(value.value), enum.values))
    return False


def report_node_in(context: Context, scope: Scope, expression: ast.Binary) -> None:
    """A node left of `in`: an edge of that name is written in quotes."""
    left, right = (print_expression(side) for side in (expression.left, expression.right))
    is_edge = isinstance(expression.right, ast.Variable) and expression.right.name in scope.bound
    if is_edge and context.catalog.edge("in") is not None:
        hint = f'the edge is written in quotes: `{left} "in" {right}`'
    elif isinstance(expression.right, ast.ListLiteral | ast.Variable) and not is_edge:
        hint = f"find its id: `{left}.@id in {right}`"
    else:
        hint = f"compare two nodes with `{left} = {right}`"
    context.error("T7", expression.span, f"`in` finds values in lists, `{left}` is a node or an edge", hint)


def report_null(context: Context, null: ast.Null, operator: ast.Operator) -> None:
    """Record that a comparison with null is never true (T7)."""
    hint = "write `is not null`" if operator is ast.Operator.NE else "write `is null`"
    context.error("T7", null.span, f"`{operator}` with null is never true", hint)
