"""Checks of the search functions: text conditions of `match` and rank functions of `order`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.query import ast, ir
from omnigraph.query.expressions import (
    RANK_FUNCTIONS,
    TEXT_FUNCTIONS,
    check_arity,
    literal,
    property_ref,
    report_unknown_function,
    variable_ref,
)
from omnigraph.query.scope import EdgeVariable
from omnigraph.types.kinds import (
    INTEGERS,
    NUMERICS,
    ListType,
    PropertyType,
    Scalar,
    ScalarType,
    VectorType,
    scalar_of,
)
from omnigraph.types.values import coerce_json

if TYPE_CHECKING:
    from omnigraph.query.scope import Context, Scope

_TEXT_CODES = {"search": "T19", "fuzzy": "T19", "match_text": "T20", "bm25": "T20"}


def text_condition(context: Context, scope: Scope, call: ast.Call) -> ir.TextMatch | None:
    """A call that stands as a clause of its own."""
    function = call.function
    if function not in TEXT_FUNCTIONS:
        if function in RANK_FUNCTIONS:
            message = f"`{function}` ranks rows: it belongs into `order`"
            context.error("Q112", call.span, message)
        elif function in ("count", "sum", "avg", "min", "max", "now", "date", "datetime"):
            context.error("Q110", call.span, f"`{function}(…)` alone is no condition")
        else:
            report_unknown_function(context, call)
        return None
    code = _TEXT_CODES[function]
    if not check_arity(context, call, 2, 3 if function == "fuzzy" else 2, code):
        return None
    field = _text_field(context, scope, call, code)
    query = _text_query(context, scope, call, code)
    kind = ir.TextKind(function)
    edits: ir.Value | None = None
    if kind is ir.TextKind.FUZZY:
        default = PropertyType(ScalarType(Scalar.I64))
        edits = ir.Constant(ir.FUZZY_DEFAULT_EDITS, default)
        if len(call.arguments) == 3:
            edits = _integer(context, scope, call.arguments[2], code, "the number of edits")
            if edits is None:
                return None
    return ir.TextMatch(kind, field, query, edits) if field and query else None


def rank(context: Context, scope: Scope, call: ast.Call) -> ir.Rank | None:
    """A `nearest`, `bm25` or `rrf` call."""
    match call.function:
        case "nearest":
            return _nearest(context, scope, call)
        case "bm25":
            return _bm25(context, scope, call)
        case _:
            return _rrf(context, scope, call)


def _nearest(context: Context, scope: Scope, call: ast.Call) -> ir.Nearest | None:
    if not check_arity(context, call, 2, 2, "T15"):
        return None
    field = _searched_property(context, scope, call, "T15")
    if field is None:
        return None
    if not isinstance(field.type.base, VectorType):
        message = f"`nearest` needs a vector property, `{field.property}` is {field.type}"
        context.error("T15", call.arguments[0].span, message)
        return None
    query = _vector_query(context, scope, call.arguments[1], field.type.base)
    return ir.Nearest(field, query) if query else None


def _vector_query(
    context: Context, scope: Scope, expression: ast.Expression, vector: VectorType
) -> ir.Value | None:
    match expression:
        case ast.ListLiteral():
            constant = literal(context, expression)
            if constant is None:
                return None
            item = constant.type.base.item if isinstance(constant.type.base, ListType) else None
            if item not in NUMERICS:
                context.error("T15", expression.span, f"`nearest` needs {vector.dimension} numbers")
                return None
            try:
                return ir.Constant(
                    coerce_json(PropertyType(vector), constant.value), PropertyType(vector)
                )
            except ValueError as problem:
                context.error("T15", expression.span, str(problem))
                return None
        case ast.Literal_(value) if isinstance(value, str):
            return literal(context, expression)
        case ast.Variable():
            reference = variable_ref(context, scope, expression)
            if isinstance(reference, ir.ParamRef):
                base = reference.type.base
                if base in (vector, ScalarType(Scalar.STRING)):
                    return reference
                message = f"`nearest` needs a {vector} or a String, `${reference.name}` is {reference.type}"
                context.error("T15", expression.span, message)
                return None
            if reference is None:
                return None
    message = f"`nearest` needs a {vector} parameter, a list of numbers or a String"
    context.error("T15", expression.span, message)
    return None


def _bm25(context: Context, scope: Scope, call: ast.Call) -> ir.Bm25 | None:
    if not check_arity(context, call, 2, 2, "T20"):
        return None
    field = _text_field(context, scope, call, "T20")
    query = _text_query(context, scope, call, "T20")
    return ir.Bm25(field, query) if field and query else None


def _rrf(context: Context, scope: Scope, call: ast.Call) -> ir.Rrf | None:
    if not check_arity(context, call, 2, 3, "T21"):
        return None
    arms: list[ir.Nearest | ir.Bm25 | None] = []
    for argument in call.arguments[:2]:
        if isinstance(argument, ast.Call) and argument.function == "nearest":
            arms.append(_nearest(context, scope, argument))
        elif isinstance(argument, ast.Call) and argument.function == "bm25":
            arms.append(_bm25(context, scope, argument))
        else:
            context.error("T21", argument.span, "`rrf` fuses `nearest` and `bm25` rankings")
            arms.append(None)
    k: ir.Value | None = ir.Constant(ir.RRF_DEFAULT_K, PropertyType(ScalarType(Scalar.I64)))
    if len(call.arguments) == 3:
        k = _integer(context, scope, call.arguments[2], "T21", "k")
        if isinstance(k, ir.Constant) and k.value == 0:
            context.error("T21", call.arguments[2].span, "k must be above 0")
            k = None
    first, second = arms
    return ir.Rrf(first, second, k) if first and second and k else None


def _text_field(context: Context, scope: Scope, call: ast.Call, code: str) -> ir.PropertyRef | None:
    field = _searched_property(context, scope, call, code)
    if field is not None and field.type.base != ScalarType(Scalar.STRING):
        message = f"`{call.function}` needs a String property, `{field.property}` is {field.type}"
        context.error(code, call.arguments[0].span, message)
        return None
    return field


def _searched_property(
    context: Context, scope: Scope, call: ast.Call, code: str
) -> ir.PropertyRef | None:
    argument = call.arguments[0]
    if not isinstance(argument, ast.PropertyAccess):
        message = f"the first argument of `{call.function}` is a property such as `$p.title`"
        context.error(code, argument.span, message)
        return None
    if isinstance(scope.bound.get(argument.variable.name), EdgeVariable):
        message = f"`${argument.variable.name}` is an edge: `{call.function}` works on nodes only"
        context.error("T23", argument.span, message)
        return None
    return property_ref(context, scope, argument)


def _text_query(context: Context, scope: Scope, call: ast.Call, code: str) -> ir.Value | None:
    value = _argument_value(context, scope, call.arguments[1])
    if value is None:
        return None
    if isinstance(value, ir.ParamRef | ir.Constant) and value.type.base == ScalarType(
        Scalar.STRING
    ):
        return value
    message = f"the second argument of `{call.function}` is a String literal or parameter"
    context.error(code, call.arguments[1].span, message)
    return None


def _integer(
    context: Context, scope: Scope, expression: ast.Expression, code: str, what: str
) -> ir.Value | None:
    value = _argument_value(context, scope, expression)
    if value is None:
        return None
    if isinstance(value, ir.ParamRef | ir.Constant) and scalar_of(value.type.base) in INTEGERS:
        return value
    context.error(code, expression.span, f"{what} is a whole number, as a literal or a parameter")
    return None


def _argument_value(
    context: Context, scope: Scope, expression: ast.Expression
) -> ir.Operand | _NoValue | None:
    """A literal or parameter; `_NoValue` for anything else, None for what is reported already."""
    match expression:
        case ast.Literal_() | ast.ListLiteral():
            return literal(context, expression)
        case ast.Variable():
            return variable_ref(context, scope, expression)
    return _NO_VALUE


class _NoValue:
    """An expression that is neither a literal nor a parameter."""


_NO_VALUE = _NoValue()
