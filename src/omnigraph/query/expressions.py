"""Expressions of a query → typed operands.

Every function records what is wrong and returns None for it; a None from below is already reported and stays silent.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from omnigraph.query import ast, ir
from omnigraph.query.scope import Context, EdgeVariable, NodeVariable, Scope
from omnigraph.syntax.suggest import did_you_mean
from omnigraph.types.kinds import (
    NUMERICS,
    BaseType,
    ListType,
    PropertyType,
    Scalar,
    ScalarType,
    integer_range,
    scalar_of,
)
from omnigraph.types.values import parse_date, parse_datetime

if TYPE_CHECKING:
    from omnigraph.schema.catalog import PropertyDef
    from omnigraph.syntax.source import Hint

AGGREGATES = frozenset(function.value for function in ir.AggregateFunction)
TEXT_FUNCTIONS = frozenset(kind.value for kind in ir.TextKind)
RANK_FUNCTIONS = frozenset({"nearest", "bm25", "rrf"})
_VALUE_FUNCTIONS = frozenset({"now", "date", "datetime"})
FUNCTIONS = AGGREGATES | TEXT_FUNCTIONS | RANK_FUNCTIONS | _VALUE_FUNCTIONS

_MAX_I64, _MAX_U64 = (integer_range(scalar)[1] for scalar in (Scalar.I64, Scalar.U64))

_STRING = PropertyType(ScalarType(Scalar.STRING))
_BOOL = PropertyType(ScalarType(Scalar.BOOL))
_I64 = PropertyType(ScalarType(Scalar.I64))
_U64 = PropertyType(ScalarType(Scalar.U64))
_F64 = PropertyType(ScalarType(Scalar.F64))
_DATE = PropertyType(ScalarType(Scalar.DATE))
_DATETIME = PropertyType(ScalarType(Scalar.DATETIME))


def is_comparable(left: BaseType, right: BaseType) -> bool:
    """Whether two types may be compared: the same scalar, or two numbers. Lists, vectors and blobs never are."""
    first, second = scalar_of(left), scalar_of(right)
    if first is None or second is None or Scalar.BLOB in (first, second):
        return False
    return first == second or (first in NUMERICS and second in NUMERICS)


def check_arity(context: Context, call: ast.Call, low: int, high: int, code: str) -> bool:
    """Whether a call has `low` to `high` arguments."""
    count = len(call.arguments)
    if low <= count <= high:
        return True
    wanted = str(low) if low == high else f"{low} to {high}"
    plural = "" if wanted == "1" else "s"
    message = f"`{call.function}` takes {wanted} argument{plural}, found {count}"
    context.error(code, call.span, message)
    return False


def report_unknown_function(context: Context, call: ast.Call) -> None:
    """Record that no function has this name."""
    hint = partial(did_you_mean, call.function, FUNCTIONS)
    context.error("Q110", call.span, f"there is no function `{call.function}`", hint)


def literal(context: Context, expression: ast.Literal_ | ast.ListLiteral) -> ir.Constant | None:
    """A constant of the natural type of its spelling: I64, F64, String, Bool, or a list of one of them.

    An integer that only U64 can hold is a U64.
    """
    if isinstance(expression, ast.ListLiteral):
        return _list_literal(context, expression)
    value = expression.value
    if isinstance(value, bool):
        return ir.Constant(value, _BOOL)
    if isinstance(value, int):
        if value > _MAX_U64:
            message = f"{expression.text} is beyond 64 bits"
            context.error("Q109", expression.span, message)
            return None
        return ir.Constant(value, _I64 if value <= _MAX_I64 else _U64)
    if isinstance(value, float):
        if value == float("inf"):
            context.error("Q109", expression.span, f"{expression.text} is beyond 64 bits")
            return None
        return ir.Constant(value, _F64)
    return ir.Constant(value, _STRING)


def _list_literal(context: Context, expression: ast.ListLiteral) -> ir.Constant | None:
    items: list[ir.Constant] = []
    for element in expression.items:
        if isinstance(element, ast.ListLiteral):
            context.error("Q108", element.span, "lists do not nest")
            return None
        item = (
            value_call(context, element)
            if isinstance(element, ast.Call)
            else literal(context, element)
        )
        if item is None:
            return None
        if isinstance(item, ir.ParamRef):
            context.error("Q108", element.span, "a list literal holds literals only")
            return None
        items.append(item)
    scalars = {scalar_of(item.type.base) for item in items}
    if scalars == {Scalar.I64, Scalar.U64}:
        # There are no negative literals.
        scalars = {Scalar.U64}
    elif len(scalars) > 1 and scalars <= NUMERICS:
        scalars = {Scalar.F64}
    if len(scalars) > 1:
        words = " and ".join(sorted(str(scalar) for scalar in scalars))
        context.error("Q108", expression.span, f"a list holds one type, found {words}")
        return None
    scalar = next(iter(scalars), Scalar.STRING)
    assert scalar is not None, "elements of a list literal are scalars"
    values = tuple(float(i.value) if scalar is Scalar.F64 else i.value for i in items)  # type: ignore[arg-type]  # numbers
    return ir.Constant(values, PropertyType(ListType(scalar)))


def value_call(context: Context, call: ast.Call) -> ir.Value | None:
    """`now()`, `date("…")` or `datetime("…")`."""
    match call.function:
        case "now":
            if not check_arity(context, call, 0, 0, "Q110"):
                return None
            return ir.ParamRef(ir.NOW, ir.INSTANT_TYPE)
        case "date" | "datetime":
            return _moment(context, call)
        case name if name in FUNCTIONS:
            context.error("Q110", call.span, f"`{name}` is not a value and cannot stand here")
        case _:
            report_unknown_function(context, call)
    return None


def _moment(context: Context, call: ast.Call) -> ir.Constant | None:
    argument = call.arguments[0] if len(call.arguments) == 1 else None
    if not isinstance(argument, ast.Literal_) or not isinstance(argument.value, str):
        example = '"2024-05-01"' if call.function == "date" else '"2024-05-01T12:00:00Z"'
        message = f"`{call.function}` takes one string literal: {call.function}({example})"
        context.error("Q109", call.span, message)
        return None
    is_date = call.function == "date"
    try:
        value = parse_date(argument.value) if is_date else parse_datetime(argument.value)
    except ValueError as problem:
        context.error("Q109", argument.span, str(problem))
        return None
    return ir.Constant(value, _DATE if is_date else _DATETIME)


def property_ref(
    context: Context, scope: Scope, access: ast.PropertyAccess
) -> ir.PropertyRef | None:
    """A property of a bound node or edge (T6)."""
    definition = property_definition(context, scope, access)
    if definition is None:
        return None
    return ir.PropertyRef(access.variable.name, access.property, definition.type)


def property_definition(
    context: Context, scope: Scope, access: ast.PropertyAccess
) -> PropertyDef | None:
    """The definition behind `$v.p`; T6 when the variable is not bound or has no such property."""
    bound = scope.bound.get(access.variable.name)
    if bound is None:
        if access.variable.name in context.params:
            message = f"`${access.variable.name}` is a parameter, it has no properties"
            context.error("T6", access.span, message)
        else:
            scope.report_unbound(context, access.variable, "T6")
        return None
    if bound.definition is None:
        return None
    definition = bound.definition.properties.get(access.property)
    if definition is None:
        kind = "edge" if isinstance(bound, EdgeVariable) else "node"
        message = f"{kind} type `{bound.definition.name}` has no property `{access.property}`"
        hint: Hint = partial(did_you_mean, access.property, bound.definition.properties)
        if access.property == "id" and kind == "node":
            hint = f"the id of a node is the variable itself: `${access.variable.name}`"
        context.error("T6", access.span, message, hint)
    return definition


def variable_ref(
    context: Context, scope: Scope, variable: ast.Variable
) -> ir.EntityRef | ir.ParamRef | None:
    """A bare variable: the id of a node, or a parameter."""
    bound = scope.bound.get(variable.name)
    match bound:
        case NodeVariable(definition):
            return ir.EntityRef(variable.name, definition.name) if definition else None
        case EdgeVariable():
            message = f"`${variable.name}` is an edge: only its properties can be used"
            context.error("T23", variable.span, message, f"write `${variable.name}.property`")
            return None
    if variable.name in context.params:
        type_ = context.params[variable.name]
        return ir.ParamRef(variable.name, type_) if type_ else None
    scope.report_unbound(context, variable, "Q107")
    return None


def filter_operand(context: Context, scope: Scope, expression: ast.Expression) -> ir.Operand | None:
    """One side of a comparison in `match`; what has no comparable value is T7."""
    match expression:
        case ast.PropertyAccess():
            return property_ref(context, scope, expression)
        case ast.Variable():
            return variable_ref(context, scope, expression)
        case ast.Literal_() | ast.ListLiteral():
            return literal(context, expression)
        case ast.Alias(name):
            message = f"`{name}` is not a value: a result column cannot be compared in `match`"
            hint = (
                "there is no null literal: a null never compares as true"
                if name == "null"
                else None
            )
            context.error("T7", expression.span, message, hint)
            return None
        case ast.Call(function) if function in TEXT_FUNCTIONS:
            message = f"`{function}` is a condition of its own and cannot be compared"
            context.error("Q111", expression.span, message, f"write `{function}(…)` as a clause")
            return None
        case ast.Call(function) if function in AGGREGATES | RANK_FUNCTIONS:
            message = f"`{function}` cannot stand in `match`"
            context.error("T7", expression.span, message)
            return None
        case ast.Call():
            return value_call(context, expression)


def plain_value(context: Context, expression: ast.Value) -> ir.Value | None:
    """A literal, a declared parameter or `now()`: what may stand in assignments and inline matches (T14)."""
    match expression:
        case ast.Variable(name):
            if name not in context.params:
                message = f"`${name}` is not a parameter"
                context.error(
                    "T14", expression.span, message, partial(_near_parameter, context, name)
                )
                return None
            type_ = context.params[name]
            return ir.ParamRef(name, type_) if type_ else None
        case ast.Call():
            return value_call(context, expression)
        case _:
            return literal(context, expression)


def _near_parameter(context: Context, name: str) -> str:
    hint = did_you_mean(f"${name}", (f"${known}" for known in context.params))
    return hint or "declare it: `query name($x: Type)`"
