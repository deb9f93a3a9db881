"""Names in scope, expressions as typed operands, and the functions of search and rank."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from math import isfinite
from typing import TypeVar

from omnigraph.core.source import Findings, Hint, Span, did_you_mean, nearest
from omnigraph.core.types import (
    INTEGERS,
    NUMERICS,
    BaseType,
    ListType,
    PropertyType,
    Scalar,
    ScalarType,
    VectorType,
    integer_range,
    item_scalar,
    scalar_of,
)
from omnigraph.core.values import coerce_json, narrowed, parse_date, parse_datetime
from omnigraph.frozen import frozen
from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.advice import function_advice, name_advice
from omnigraph.lang.schema.catalog import Catalog, EdgeDef, NodeDef

# ---- Name resolution and findings


@frozen
class NodeVariable:
    """A variable bound to nodes; `definition` is None when its type is wrong, which is reported already."""

    definition: NodeDef | None


@frozen
class EdgeVariable:
    """A variable bound to edges; `definition` is None when its type is wrong, which is reported already."""

    definition: EdgeDef | None


Bound = NodeVariable | EdgeVariable


@dataclass(slots=True)
class Context:
    """One query under check."""

    catalog: Catalog
    findings: Findings
    #: None marks a parameter whose type is wrong, which is reported already.
    params: dict[str, PropertyType | None]
    #: What to do about a variable that could be a parameter, by its name.
    advice: dict[str, str] = field(default_factory=dict)
    _hidden: int = 0

    def hidden_variable(self) -> str:
        """A variable name that no query can spell."""
        self._hidden += 1
        return f"~{self._hidden}"

    def error(self, code: str, span: Span, message: str, hint: Hint = None) -> None:
        """Record an error and go on."""
        self.findings.error(code, span, message, hint)


@dataclass(slots=True)
class Scope:
    """The variables bound in one block of clauses, those of the blocks around it included."""

    bound: dict[str, Bound] = field(default_factory=dict)

    def child(self) -> Scope:
        """A scope for a nested block: it sees everything here and adds nothing to it."""
        return Scope(dict(self.bound))

    def report_unbound(self, context: Context, variable: ast.Variable, code: str) -> None:
        """Record that a variable is neither bound nor a parameter."""
        names = chain(self.bound, context.params)
        known = (f"${name}" for name in names if not name.startswith("~"))
        name = f"${variable.name}"
        if variable.name == "_":
            context.error(code, variable.span, "`$_` has no value: give the variable a name")
        else:
            hint = partial(_near_variable, context, variable.name, known)
            context.error(code, variable.span, f"variable `{name}` is not bound", hint)


def _near_variable(context: Context, name: str, known: Iterable[str]) -> str | None:
    """A hint for a variable that nothing binds: another one that is near, or how it becomes a parameter."""
    names = list(known)
    advice = context.advice.get(name)
    if advice is not None and nearest(f"${name}", names) is None:
        return advice
    return did_you_mean(f"${name}", names)


# ---- Expressions of a query → typed operands
#
# Every function records what is wrong and returns None for it; a None from below is already reported and stays
# silent.


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


def compared(left: ir.Operand, op: ir.CompareOp, right: ir.Operand) -> ir.Comparison:
    """A comparison of two operands; the one place that decides in which types they meet."""
    return ir.Comparison(beside(right.type, left), op, beside(left.type, right))


Compared = TypeVar("Compared", bound=ir.Operand)


def beside(other: PropertyType, operand: Compared) -> Compared | ir.Value:
    """An operand as it is compared with `other`: beside an F32 a number of the query is an F32 itself.

    What is stored keeps its type: a property of another type is compared by value.
    """
    if not isinstance(operand, ir.ParamRef | ir.Constant) or item_scalar(other.base) is not Scalar.F32:
        return operand
    if item_scalar(operand.type.base) not in NUMERICS:
        return operand
    is_list = isinstance(operand.type.base, ListType)
    base = ListType(Scalar.F32) if is_list else ScalarType(Scalar.F32)
    type_ = PropertyType(base, operand.type.nullable)
    if isinstance(operand, ir.ParamRef):
        return ir.ParamRef(operand.name, type_)
    return ir.Constant(narrowed(base, operand.value), type_)


def check_arity(context: Context, call: ast.Call, low: int, high: int, code: str) -> bool:
    """Whether a call has `low` to `high` arguments."""
    count = len(call.arguments)
    if low <= count <= high:
        return True
    wanted = str(low) if low == high else f"{low} to {high}"
    plural = "" if wanted == "1" else "s"
    context.error(code, call.span, f"`{call.function}` takes {wanted} argument{plural}, found {count}")
    return False


def report_unknown_function(context: Context, call: ast.Call) -> None:
    """Record that no function has this name."""
    hint = partial(function_advice, call.function, FUNCTIONS)
    context.error("Q110", call.span, f"there is no function `{call.function}`", hint)


def literal(context: Context, expression: ast.Literal_ | ast.ListLiteral) -> ir.Constant | None:
    """A constant of the natural type of its spelling: I64, F64, String, Bool, or a list of one of them.

    An integer that only U64 can hold is a U64.
    """
    if isinstance(expression, ast.ListLiteral):
        return _list_literal(context, expression)
    value = expression.value
    match value:
        case bool():
            return ir.Constant(value, _BOOL)
        case str():
            return ir.Constant(value, _STRING)
        case int() if value <= _MAX_U64:
            return ir.Constant(value, _I64 if value <= _MAX_I64 else _U64)
        case float() if isfinite(value):
            return ir.Constant(value, _F64)
    context.error("Q109", expression.span, f"{expression.text} is beyond 64 bits")
    return None


def _list_literal(context: Context, expression: ast.ListLiteral) -> ir.Constant | None:
    items: list[ir.Constant] = []
    for element in expression.items:
        if isinstance(element, ast.ListLiteral):
            context.error("Q108", element.span, "lists do not nest")
            return None
        item = value_call(context, element) if isinstance(element, ast.Call) else literal(context, element)
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
        context.error("Q109", call.span, f"`{call.function}` takes one string literal: {call.function}({example})")
        return None
    is_date = call.function == "date"
    try:
        value = parse_date(argument.value) if is_date else parse_datetime(argument.value)
    except ValueError as problem:
        context.error("Q109", argument.span, str(problem))
        return None
    return ir.Constant(value, _DATE if is_date else _DATETIME)


def property_ref(context: Context, scope: Scope, access: ast.PropertyAccess) -> ir.PropertyRef | None:
    """A property of a bound node or edge; T6 when the variable is not bound or has no such property."""
    bound = scope.bound.get(access.variable.name)
    if bound is None:
        if access.variable.name in context.params:
            context.error("T6", access.span, f"`${access.variable.name}` is a parameter, it has no properties")
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
        return None
    return ir.PropertyRef(access.variable.name, access.property, definition.type)


def variable_ref(context: Context, scope: Scope, variable: ast.Variable) -> ir.EntityRef | ir.ParamRef | None:
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


def operand(
    context: Context,
    scope: Scope,
    expression: ast.PropertyAccess | ast.Variable | ast.Literal_ | ast.ListLiteral | ast.Call,
) -> ir.Operand | None:
    """The value of an expression that has one by itself."""
    match expression:
        case ast.PropertyAccess():
            return property_ref(context, scope, expression)
        case ast.Variable():
            return variable_ref(context, scope, expression)
        case ast.Literal_() | ast.ListLiteral():
            return literal(context, expression)
        case ast.Call():
            return value_call(context, expression)


def filter_operand(context: Context, scope: Scope, expression: ast.Expression) -> ir.Operand | None:
    """One side of a comparison in `match`; what has no comparable value is T7."""
    match expression:
        case ast.Alias(name):
            message = f"`{name}` is not a value: a result column cannot be compared in `match`"
            hint = "there is no null literal: a null never compares as true" if name == "null" else None
            context.error("T7", expression.span, message, hint)
        case ast.Call(function) if function in TEXT_FUNCTIONS:
            message = f"`{function}` is a condition of its own and cannot be compared"
            context.error("Q111", expression.span, message, f"write `{function}(…)` as a clause")
        case ast.Call(function) if function in AGGREGATES | RANK_FUNCTIONS:
            context.error("T7", expression.span, f"`{function}` cannot stand in `match`")
        case _:
            return operand(context, scope, expression)
    return None


def result_operand(context: Context, scope: Scope, expression: ast.Expression) -> ir.Operand | None:
    """The value of a result column, or of what an aggregate is made over."""
    match expression:
        case ast.Alias(name):
            hint = name_advice(name)
            message = f"`{name}` is not a value: properties are written with their variable"
            context.error("Q117", expression.span, message, hint)
        case ast.Call(function) if function in TEXT_FUNCTIONS:
            context.error("Q111", expression.span, f"`{function}` is a condition: it belongs into `match`")
        case _:
            return operand(context, scope, expression)
    return None


def plain_value(context: Context, expression: ast.Value) -> ir.Value | None:
    """A literal, a declared parameter or `now()`: what may stand in assignments and inline matches (T14)."""
    match expression:
        case ast.Variable(name):
            if name not in context.params:
                message = f"`${name}` is not a parameter"
                context.error("T14", expression.span, message, partial(_near_parameter, context, name))
                return None
            type_ = context.params[name]
            return ir.ParamRef(name, type_) if type_ else None
        case ast.Call():
            return value_call(context, expression)
        case _:
            return literal(context, expression)


def _near_parameter(context: Context, name: str) -> str:
    hint = _near_variable(context, name, (f"${known}" for known in context.params))
    return hint or "declare it: `query name($x: Type)`"


# ---- Checks of the search functions


_TEXT_CODES = {"search": "T19", "fuzzy": "T19", "match_text": "T20", "bm25": "T20"}


def text_condition(context: Context, scope: Scope, call: ast.Call) -> ir.TextMatch | None:
    """A call that stands as a clause of its own."""
    function = call.function
    if function not in TEXT_FUNCTIONS:
        if function in RANK_FUNCTIONS:
            context.error("Q112", call.span, f"`{function}` ranks rows: it belongs into `order`")
        elif function in FUNCTIONS:
            context.error("Q110", call.span, f"`{function}(…)` alone is not a condition")
        else:
            report_unknown_function(context, call)
        return None
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
    return property_ref(context, scope, argument)


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
        value = operand(context, scope, expression)
        if value is None:
            return None
        if isinstance(value, ir.ParamRef | ir.Constant) and scalar_of(value.type.base) in wanted:
            return value
    context.error(code, expression.span, message)
    return None
