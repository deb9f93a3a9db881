"""Names, literals and moments: what has a value by itself.

Every function records what is wrong and returns None for it.
"""

from __future__ import annotations

from functools import partial
from math import isfinite

from omnigraph.core.source import Findings, Hint, Span, did_you_mean
from omnigraph.core.types import (
    MOMENTS,
    NUMERICS,
    ListType,
    PropertyType,
    Scalar,
    ScalarType,
    integer_range,
    item_scalar,
    scalar_of,
)
from omnigraph.core.values import StoredValue, coerce_json, parse_date, parse_datetime
from omnigraph.lang.query import ir
from omnigraph.lang.query.check.scope import Context, EdgeVariable, NodeVariable, PathVariable, Reports, Scope
from omnigraph.lang.query.syntax import ast
from omnigraph.lang.query.syntax.printing import print_expression

MIN_I64, MAX_I64 = integer_range(Scalar.I64)
_MAX_U64 = integer_range(Scalar.U64)[1]

STRING = PropertyType(ScalarType(Scalar.STRING))
BOOL = PropertyType(ScalarType(Scalar.BOOL))
I64 = PropertyType(ScalarType(Scalar.I64))
_U64 = PropertyType(ScalarType(Scalar.U64))
_F64 = PropertyType(ScalarType(Scalar.F64))
_DATE = PropertyType(ScalarType(Scalar.DATE))
_DATETIME = PropertyType(ScalarType(Scalar.DATETIME))


# ---- literals and moments


def literal(context: Reports, expression: ast.Literal_ | ast.ListLiteral) -> ir.Constant | None:
    """A constant of the natural type of its spelling: I64, F64, String, Bool, or a list of one of them.

    An integer that only U64 can hold is a U64.
    """
    if isinstance(expression, ast.ListLiteral):
        return _list_literal(context, expression)
    value = expression.value
    match value:
        case bool():
            return ir.Constant(value, BOOL)
        case str():
            return ir.Constant(value, STRING)
        case int() if MIN_I64 <= value <= _MAX_U64:
            return ir.Constant(value, I64 if value <= MAX_I64 else _U64)
        case float() if isfinite(value):
            return ir.Constant(value, _F64)
    context.error("Q109", expression.span, f"{expression.text} is beyond 64 bits")
    return None


def _list_literal(context: Reports, expression: ast.ListLiteral) -> ir.Constant | None:
    items: list[ir.Constant] = []
    for element in expression.items:
        if isinstance(element, ast.ListLiteral):
            context.error("Q108", element.span, "lists do not nest")
            return None
        item = _element(context, element)
        if item is None:
            return None
        items.append(item)
    scalars = {scalar_of(item.type.base) for item in items}
    has_negative = any(isinstance(item.value, int) and item.value < 0 for item in items)
    if scalars == {Scalar.I64, Scalar.U64} and not has_negative:
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


def _element(context: Reports, element: ast.Expression) -> ir.Constant | None:
    match element:
        case ast.Literal_():
            return literal(context, element)
        case ast.Call("date" | "datetime", (ast.Literal_(str()) as text,)):
            return moment_of_literal(context, element, text)
        case ast.Call("date" | "datetime"):
            example = '"2024-05-01"' if element.function == "date" else '"2024-05-01T12:00:00Z"'
            message = f"`{element.function}` takes one string literal here: {element.function}({example})"
            context.error("Q109", element.span, message)
        case _:
            context.error("Q108", element.span, "a list literal holds literals only")
    return None


def now(context: Context, call: ast.Call) -> ir.ParamRef | None:
    """`now()`: the one instant of the query."""
    return ir.ParamRef(ir.NOW, ir.INSTANT_TYPE) if check_arity(context, call, 0, 0, "Q110") else None


def moment_of_literal(context: Reports, call: ast.Call, text: ast.Literal_) -> ir.Constant | None:
    """`date("…")` or `datetime("…")`."""
    is_date = call.function == "date"
    assert isinstance(text.value, str), "a moment is spelt as a string"
    try:
        moment = parse_date(text.value) if is_date else parse_datetime(text.value)
    except ValueError as problem:
        context.error("Q109", text.span, str(problem))
        return None
    return ir.Constant(moment, _DATE if is_date else _DATETIME)


def check_arity(context: Context, call: ast.Call, low: int, high: int | None, code: str) -> bool:
    """Whether a call has `low` to `high` arguments; None is any number above `low`."""
    count = len(call.arguments)
    if low <= count and (high is None or count <= high):
        return True
    wanted = str(low) if low == high else f"at least {low}" if high is None else f"{low} to {high}"
    plural = "" if wanted.endswith("1") and low == 1 else "s"
    context.error(code, call.span, f"`{call.function}` takes {wanted} argument{plural}, found {count}")
    return False


# ---- names


def variable_ref(context: Context, scope: Scope, variable: ast.Variable) -> ir.EntityRef | ir.ParamRef | None:
    """A bare variable: the id of a node, or a parameter."""
    bound = scope.bound.get(variable.name)
    match bound:
        case NodeVariable(members):
            is_optional = variable.name in scope.optional
            return None if members is None else ir.EntityRef(variable.name, bound.type_name, is_optional)
        case EdgeVariable():
            message = f"`${variable.name}` is an edge: only its properties can be used"
            hint = f"write `${variable.name}.property`, or `${variable.name}.@id` for its id"
            context.error("T23", variable.span, message, hint)
            return None
        case PathVariable():
            name = variable.name
            message = f"`${name}` is a path: it is not one value"
            hint = f"write `nodes(${name})`, `edges(${name})` or `length(${name})`"
            context.error("Q121", variable.span, message, hint)
            return None
    if variable.name in context.params:
        type_ = context.params[variable.name]
        return ir.ParamRef(variable.name, type_) if type_ else None
    scope.report_unbound(context, variable, "Q107")
    return None


def parameter(context: Context, variable: ast.Variable) -> ir.ParamRef | None:
    """A variable where only parameters may stand (T14)."""
    name = variable.name
    if name not in context.params:
        context.error("T14", variable.span, f"`${name}` is not a parameter", partial(_near_parameter, context, name))
        return None
    type_ = context.params[name]
    return ir.ParamRef(name, type_) if type_ else None


def _near_parameter(context: Context, name: str) -> str:
    from_text = context.advice.get(name)
    near = did_you_mean(f"${name}", (f"${known}" for known in context.params))
    return near or from_text or "declare it: `query name($x: Type)`"


def property_ref(context: Context, scope: Scope, access: ast.PropertyAccess) -> ir.PropertyRef | None:
    """A property of a bound node or edge; T6 when the variable is not bound or has no such property."""
    bound = entity(context, scope, access.variable, access.span)
    if bound is None or bound.members is None:
        return None
    type_ = bound.property_type(access.property)
    if type_ is None:
        _report_unknown_property(context, access, bound)
        return None
    if access.variable.name in scope.optional:
        type_ = PropertyType(type_.base, nullable=True)
    return ir.PropertyRef(access.variable.name, access.property, type_)


def _report_unknown_property(context: Context, access: ast.PropertyAccess, bound: NodeVariable | EdgeVariable) -> None:
    kind = "edge" if isinstance(bound, EdgeVariable) else "node"
    name, members = access.property, bound.members or ()
    types = {member.name: member.properties[name].type for member in members if name in member.properties}
    hint: Hint = partial(did_you_mean, name, bound.property_names())
    if len(members) == 1 or not types:
        word = "type" if len(members) == 1 else "types"
        message = f"{kind} {word} `{bound.type_name}` {'has' if len(members) == 1 else 'have'} no property `{name}`"
    elif len(types) < len(members):
        without = next(member.name for member in members if member.name not in types)
        message = f"`{name}` is no property of `{without}`, and `${access.variable.name}` may be one"
        hint = "several types share the properties that all of them have"
    else:
        listing = " and ".join(f"{type_} in `{type_name}`" for type_name, type_ in types.items())
        message = f"`{name}` is {listing}, so it is not one property of all"
        hint = "ask for each type in a query of its own"
    if context.catalog.edge(name) is not None:
        hint = f"an edge is followed by a traversal: `${access.variable.name} {name} $x`"
    elif name == "id":
        hint = f"the id is `${access.variable.name}.@id`"
    context.error("T6", access.span, message, hint)


#: The system fields of an edge, with the columns that hold them.
EDGE_FIELDS = {"id": "id", "src": "src", "dst": "dst"}


def system_field(context: Context, scope: Scope, access: ast.SystemField) -> ir.Expression | None:
    """`$x.@id` and its like; T6 for one that does not exist."""
    bound = entity(context, scope, access.variable, access.span)
    if bound is None or bound.members is None:
        return None
    is_edge = isinstance(bound, EdgeVariable)
    name = access.variable.name
    is_optional = name in scope.optional
    if access.field == "type":
        is_one = len(bound.members) == 1 and not is_optional
        return ir.Constant(bound.members[0].name, STRING) if is_one else ir.TypeOf(name, is_optional)
    if access.field == "id" or (is_edge and access.field in EDGE_FIELDS):
        return ir.PropertyRef(name, access.field, PropertyType(ir.ID_TYPE.base, is_optional))
    fields = ("@id", "@src", "@dst", "@type") if is_edge else ("@id", "@type")
    kind = "an edge" if is_edge else "a node"
    message = f"{kind} has no `@{access.field}`"
    context.error("T6", access.span, message, f"{kind} has {', '.join(f'`{item}`' for item in fields)}")
    return None


def entity(context: Context, scope: Scope, variable: ast.Variable, span: Span) -> NodeVariable | EdgeVariable | None:
    """The node or edge that a variable is bound to; T6 for any other."""
    bound = scope.bound.get(variable.name)
    if isinstance(bound, PathVariable):
        name = variable.name
        hint = f"write `nodes(${name})`, `edges(${name})` or `length(${name})`"
        context.error("Q121", span, f"`${name}` is a path and has no properties", hint)
        return None
    if bound is None:
        if variable.name in context.params:
            context.error("T6", span, f"`${variable.name}` is a parameter, it has no properties")
        elif variable.name in scope.lets:
            context.error("T6", span, f"`${variable.name}` is a value, it has no properties")
        else:
            scope.report_unbound(context, variable, "T6")
    return bound


# ---- defaults of parameters


def default_value(findings: Findings, param: ast.Param, type_: PropertyType) -> StoredValue:
    """The default of a parameter in stored form: a literal, a list of them, or a moment, that fits its type."""
    written = param.default
    text = f"the default of `${param.name}`"
    if isinstance(written, ast.Null):
        if not type_.nullable:
            findings.error("Q120", written.span, f"{text} is null, and {type_} is never", f"write `{type_}?`")
        return None
    match written:
        case ast.Literal_() | ast.ListLiteral():
            constant = literal(findings, written)
        case ast.Call("date" | "datetime"):
            constant = _element(findings, written)
        case _:
            constant = None
            if written is not None:
                message = f"{text} is a literal, a list of literals or the date of one"
                findings.error("T45", written.span, message, f"found `{print_expression(written)}`")
    if constant is None:
        return None
    is_moment = scalar_of(constant.type.base) in MOMENTS
    if is_moment or item_scalar(type_.base) in MOMENTS:
        if constant.type.base == type_.base:
            return constant.value
        example = 'date("2024-05-01")' if scalar_of(type_.base) is Scalar.DATE else 'datetime("2024-05-01T12:00:00Z")'
        hint = f"write `{example}`" if scalar_of(type_.base) in MOMENTS else None
        findings.error("T3", param.span, f"{text} is {constant.type}, which {type_} is not", hint)
        return None
    try:
        return coerce_json(type_, constant.value)
    except ValueError as problem:
        findings.error("T3", param.span, f"{text} is {type_}: {problem}")
        return None
