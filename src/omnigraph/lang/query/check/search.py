"""The functions of search and rank: their arguments and what they mean."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from omnigraph.core.types import INTEGERS, NUMERICS, ListType, PropertyType, Scalar, ScalarType, VectorType, scalar_of
from omnigraph.core.values import coerce_json
from omnigraph.lang.query import ir
from omnigraph.lang.query.check.operands import check_arity, literal, property_ref, variable_ref
from omnigraph.lang.query.check.scope import Context, EdgeVariable, NodeVariable, Scope
from omnigraph.lang.query.syntax import ast

_I64 = PropertyType(ScalarType(Scalar.I64))

RANKINGS = frozenset({"nearest", "bm25", "rrf"})

# ---- Conditions and rankings


_TEXT_CODES = {"search": "T19", "fuzzy": "T19", "match_text": "T20", "bm25": "T20"}


def text_condition(context: Context, scope: Scope, call: ast.Call) -> ir.TextMatch | None:
    """`search`, `match_text` or `fuzzy`."""
    function = call.function
    code = _TEXT_CODES[function]
    if not check_arity(context, call, 2, 3 if function == "fuzzy" else 2, code):
        return None
    field = _text_field(context, scope, call, code)
    query = _text_query(context, scope, call, code)
    kind = ir.TextKind(function)
    edits: ir.Value | None = ir.Constant(ir.FUZZY_DEFAULT_EDITS, _I64) if kind is ir.TextKind.FUZZY else None
    if len(call.arguments) == 3:
        edits = _integer(context, scope, call.arguments[2], code, "the number of edits")
        if edits is None:
            return None
    return ir.TextMatch(kind, field, query, edits) if field and query else None


def rank(context: Context, scope: Scope, call: ast.Call) -> ir.Rank | None:
    """A `nearest`, `bm25` or `rrf` call."""
    return _rrf(context, scope, call) if call.function == "rrf" else _arm(context, scope, call)


def _nearest(context: Context, scope: Scope, call: ast.Call) -> ir.Nearest | None:
    named = [item for item in call.arguments if isinstance(item, ast.NamedArgument)]
    if len(named) > 1 or named != list(call.arguments[2:]):
        message = "`nearest` takes a property, a vector and, behind both, `recall:` once"
        context.error("T15", (named[-1] if named else call).span, message)
        return None
    if not check_arity(context, replace(call, arguments=call.arguments[:2]), 2, 2, "T15"):
        return None
    recall = _recall(context, scope, named[0].value) if named else None
    if named and recall is None:
        return None
    field = _searched_property(context, scope, call, "T15")
    if field is None:
        return None
    if not isinstance(field.type.base, VectorType):
        message = f"`nearest` needs a vector property, `{field.property}` is {field.type}"
        context.error("T15", call.arguments[0].span, message)
        return None
    query = _vector_query(context, scope, call.arguments[1], field.type.base)
    return ir.Nearest(field, query, recall) if query else None


def _recall(context: Context, scope: Scope, expression: ast.Expression) -> ir.Value | None:
    """The share of the nearest that has to be found."""
    message = "`recall` is a number above 0 and up to 1, as a literal or a parameter"
    found = _argument(context, scope, expression, NUMERICS, code="T15", message=message)
    if isinstance(found, ir.Constant) and not 0 < _number(found) <= 1:
        context.error("T15", expression.span, message)
        return None
    return found


def _number(constant: ir.Constant) -> float:
    return float(constant.value) if isinstance(constant.value, int | float) else 0.0


def _vector_query(context: Context, scope: Scope, expression: ast.Expression, vector: VectorType) -> ir.Value | None:
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
                return ir.Constant(coerce_json(PropertyType(vector), constant.value), PropertyType(vector))
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
    context.error("T15", expression.span, f"`nearest` needs a {vector} parameter, a list of numbers or a String")
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
    first, second = (_arm(context, scope, argument) for argument in call.arguments[:2])
    for arm, argument in zip((first, second), call.arguments, strict=False):
        match argument:
            case ast.Call("nearest", (ast.PropertyAccess() as access, *_)) if arm is not None:
                if _is_of_several_types(context, scope, "rrf", access, "T21"):
                    return None
    k: ir.Value | None = ir.Constant(ir.RRF_DEFAULT_K, _I64)
    if len(call.arguments) == 3:
        k = _integer(context, scope, call.arguments[2], "T21", "k")
        if isinstance(k, ir.Constant) and k.value == 0:
            context.error("T21", call.arguments[2].span, "k must be above 0")
            k = None
    return ir.Rrf(first, second, k) if first and second and k else None


def _arm(context: Context, scope: Scope, argument: ast.Expression) -> ir.Nearest | ir.Bm25 | None:
    match argument:
        case ast.Call("nearest"):
            return _nearest(context, scope, argument)
        case ast.Call("bm25"):
            return _bm25(context, scope, argument)
    context.error("T21", argument.span, "`rrf` fuses `nearest` and `bm25` rankings")
    return None


def _text_field(context: Context, scope: Scope, call: ast.Call, code: str) -> ir.PropertyRef | None:
    field = _searched_property(context, scope, call, code)
    if field is not None and field.type.base != ScalarType(Scalar.STRING):
        message = f"`{call.function}` needs a String property, `{field.property}` is {field.type}"
        context.error(code, call.arguments[0].span, message)
        return None
    return field


def _searched_property(context: Context, scope: Scope, call: ast.Call, code: str) -> ir.PropertyRef | None:
    argument = call.arguments[0]
    if not isinstance(argument, ast.PropertyAccess):
        context.error(code, argument.span, f"the first argument of `{call.function}` is a property such as `$p.title`")
        return None
    if isinstance(scope.bound.get(argument.variable.name), EdgeVariable):
        message = f"`${argument.variable.name}` is an edge: `{call.function}` works on nodes only"
        context.error("T23", argument.span, message)
        return None
    if call.function in RANKINGS and argument.variable.name in scope.optional:
        message = f"`{call.function}` ranks what every row has, and `${argument.variable.name}` is optional"
        context.error("Q123", argument.span, message)
        return None
    if call.function == "bm25" and _is_of_several_types(context, scope, call.function, argument, code):
        return None
    return property_ref(context, scope, argument)


def _is_of_several_types(
    context: Context, scope: Scope, function: str, argument: ast.PropertyAccess, code: str
) -> bool:
    """Whether a ranked variable is of several types, which is reported: only distances compare over types."""
    bound = scope.bound.get(argument.variable.name)
    if not isinstance(bound, NodeVariable) or len(bound.members or ()) < 2:
        return False
    message = f"`{function}` ranks nodes of one type, `${argument.variable.name}` is {bound.type_name}"
    context.error(code, argument.span, message, "rank each type in a query of its own")
    return True


def _text_query(context: Context, scope: Scope, call: ast.Call, code: str) -> ir.Value | None:
    message = f"the second argument of `{call.function}` is a String literal or parameter"
    return _argument(context, scope, call.arguments[1], {Scalar.STRING}, code=code, message=message)


def _integer(context: Context, scope: Scope, expression: ast.Expression, code: str, what: str) -> ir.Value | None:
    message = f"{what} is a whole number, as a literal or a parameter"
    return _argument(context, scope, expression, INTEGERS, code=code, message=message)


def _argument(
    context: Context, scope: Scope, expression: ast.Expression, wanted: Set[Scalar], *, code: str, message: str
) -> ir.Value | None:
    """A literal or parameter of one of these types."""
    if isinstance(expression, ast.Literal_ | ast.ListLiteral | ast.Variable):
        value = (
            variable_ref(context, scope, expression)
            if isinstance(expression, ast.Variable)
            else literal(context, expression)
        )
        if value is None:
            return None
        if isinstance(value, ir.ParamRef | ir.Constant) and scalar_of(value.type.base) in wanted:
            return value
    context.error(code, expression.span, message)
    return None
