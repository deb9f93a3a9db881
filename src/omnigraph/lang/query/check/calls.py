"""Arguments of calls and operators, what is said of wrong ones, and the functions of paths and entities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from omnigraph.core.types import PropertyType, RecordType, Scalar, ScalarType, VectorType
from omnigraph.lang.query import ir
from omnigraph.lang.query.check.operands import check_arity, entity
from omnigraph.lang.query.check.places import PATH_FUNCTIONS, Place
from omnigraph.lang.query.check.scope import Context, EdgeVariable, PathVariable, Scope
from omnigraph.lang.query.functions.arguments import Argument, Fault, Misuse
from omnigraph.lang.query.syntax import ast
from omnigraph.lang.query.syntax.printing import print_expression
from omnigraph.lang.schema.catalog import EDGE_ENDS

_BLOB = ScalarType(Scalar.BLOB)


def argument_of(expression: ir.Expression) -> Argument:
    """What the table of functions knows of an argument."""
    constant = expression.value if isinstance(expression, ir.Constant) else None
    return Argument(expression.type, constant, is_constant=isinstance(expression, ir.Constant | ir.ParamRef))


_FAULT_CODES = {Fault.TYPE: "T7", Fault.VALUE: "Q109", Fault.COUNT: "Q110", Fault.NULL: "Q120"}


def report_misuse(
    context: Context, misuse: Misuse, expression: ast.Expression, arguments: Sequence[ast.Expression]
) -> None:
    """Record what is wrong with a call."""
    span = expression.span if misuse.position is None else arguments[misuse.position].span
    context.error(_FAULT_CODES[misuse.fault], span, misuse.message, misuse.hint)


def with_minus_explained(context: Context, misuse: Misuse, expression: ast.Binary) -> Misuse:
    """What is wrong with a difference whose minus was meant to begin the next condition or column: ` -x`."""
    sign = context.findings.source.text[expression.left.span.end : expression.right.span.start]
    if not sign.startswith((" ", "\n", "\t", "\r")) or not sign.endswith("-"):
        return misuse
    text = print_expression(ast.Unary("-", expression.right))
    hint = f"what begins with `-` needs parentheses or a comma before it: `({text})`"
    return Misuse(misuse.message, misuse.position, hint, misuse.fault)


def folded(operator: ir.ArithmeticOp, left: object, right: object) -> int | None:
    """The value of two integer literals; None for other numbers and for remainders."""
    if not isinstance(left, int) or not isinstance(right, int):
        return None
    match operator:
        case ir.ArithmeticOp.ADD:
            return left + right
        case ir.ArithmeticOp.SUBTRACT:
            return left - right
        case ir.ArithmeticOp.MULTIPLY:
            return left * right
        case _:
            return None


def path_of(scope: Scope, call: ast.Call) -> str | None:
    """The path that a function is applied to."""
    match call.arguments:
        case (ast.Variable(name), *_) if isinstance(scope.bound.get(name), PathVariable):
            return name
    return None


def function_of_path(context: Context, scope: Scope, call: ast.Call, path: str) -> ir.Expression | None:
    """`length($w)`, `nodes($w)` or `edges($w)`."""
    if call.function not in (*PATH_FUNCTIONS, "length"):
        message = f"`{call.function}` takes no path"
        context.error("Q121", call.span, message, "functions of paths are `length`, `nodes` and `edges`")
        return None
    if not check_arity(context, call, 1, 1, "Q110"):
        return None
    part = ir.PathPart.NODES if call.function == "nodes" else ir.PathPart.EDGES
    reference = ir.PathRef(path, part, path in scope.optional)
    if call.function != "length":
        return reference
    return ir.Function("size", (reference,), replace(ir.COUNT_TYPE, nullable=reference.nullable))


def object_of(context: Context, scope: Scope, call: ast.Call, place: Place) -> ir.Record | None:
    """`object($p)`: the system fields and properties of a node or an edge, without blobs and vectors."""
    if not place.has_rows or place.name == "statement":
        context.error("T45", call.span, "an object belongs to a row of a match and cannot stand here")
        return None
    if not check_arity(context, call, 1, 1, "Q110"):
        return None
    (variable,) = call.arguments
    if not isinstance(variable, ast.Variable):
        message = f"`object` takes a node or an edge, found `{print_expression(variable)}`"
        context.error("T7", variable.span, message, "name a variable of the match, as in `object($p)`")
        return None
    bound = entity(context, scope, variable, variable.span)
    if bound is None or bound.members is None:
        return None
    name, is_optional = variable.name, variable.name in scope.optional
    names = ["id", *(EDGE_ENDS if isinstance(bound, EdgeVariable) else ())]
    fields: list[tuple[str, ir.Expression]] = [(f"@{item}", ir.PropertyRef(name, item, ir.ID_TYPE)) for item in names]
    if len(bound.members) > 1:
        fields.insert(1, ("@type", ir.TypeOf(name)))
    for item in bound.property_names():
        type_ = bound.property_type(item)
        if type_ is not None and not isinstance(type_.base, VectorType) and type_.base != _BLOB:
            fields.append((item, ir.PropertyRef(name, item, type_)))
    base = RecordType(tuple((item, value.type) for item, value in fields))
    return ir.Record(name, tuple(fields), PropertyType(base, is_optional))


def report_misplaced_rank(context: Context, call: ast.Call, place: Place) -> None:
    """Record a ranking where none may stand."""
    if place.name == "match":
        context.error("Q112", call.span, f"`{call.function}` ranks rows: it belongs into `order`")
    elif place.name in ("statement", "a constant"):
        code = "T44" if place.name == "statement" else "T45"
        context.error(code, call.span, f"`{call.function}` ranks rows and cannot stand here")
    else:
        message = f"`{call.function}` is returned as a score only when it is the first order key"
        context.error("Q112", call.span, message, "put the same call into `order`")


def report_misplaced_text(context: Context, call: ast.Call, place: Place) -> None:
    """Record a text condition where none may stand."""
    code = {"statement": "T44", "a constant": "T45"}.get(place.name, "Q111")
    context.error(code, call.span, f"`{call.function}` is a condition: it belongs into `match`")
