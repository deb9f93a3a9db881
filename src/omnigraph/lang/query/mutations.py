"""Checks of mutation statements, and the statements they become."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import partial

from omnigraph.core.source import Span, did_you_mean
from omnigraph.core.types import (
    MOMENTS,
    NUMERICS,
    EnumType,
    ListType,
    PropertyType,
    Scalar,
    ScalarType,
    VectorType,
    item_scalar,
    scalar_of,
)
from omnigraph.core.values import coerce_json
from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.expressions import Place, beside, check_enum_value, is_comparable, moment_hint
from omnigraph.lang.query.expressions import value as checked_value
from omnigraph.lang.query.scope import Context, Scope
from omnigraph.lang.schema.catalog import EdgeDef, NodeDef

#: The ends of an edge under the names that mutations use, with their columns.
_ENDS = {"from": "src", "to": "dst"}
_BLOB = ScalarType(Scalar.BLOB)
_STRING = PropertyType(ScalarType(Scalar.STRING))


def check_statement(context: Context, statement: ast.Statement) -> ir.Statement | None:
    """One statement, or None when it is wrong."""
    if isinstance(statement, ast.Upsert) or isinstance(statement_target(statement), ast.Variable):
        context.error("Q000", statement.span, "this statement is not in this edition")
        return None
    catalog, name = context.catalog, statement_target(statement).name
    definition = catalog.nodes.get(name) or catalog.edges.get(name)
    if definition is None:
        _report_unknown_type(context, statement)
        return None
    match statement:
        case ast.Insert():
            return _insert(context, statement, definition)
        case ast.Update():
            return _update(context, statement, definition)
        case ast.Delete():
            predicate = _predicate(context, statement, columns_of(definition))
            if predicate is None:
                return None
            if isinstance(definition, EdgeDef):
                return ir.DeleteEdge(name, predicate)
            return ir.DeleteNode(name, predicate, tuple(edge.name for edge in catalog.incident_edges(name)))


def statement_target(statement: ast.Statement) -> ast.TypeName | ast.Variable:
    """The type or the variable that a statement writes to."""
    if isinstance(statement, ast.Insert | ast.Upsert):
        return ast.TypeName(statement.type_name, statement.type_span)
    return statement.target


def _report_unknown_type(context: Context, statement: ast.Statement) -> None:
    target = statement_target(statement)
    name = target.name
    if name in context.catalog.interfaces:
        context.error("T10", target.span, f"`{name}` is an interface and holds no data")
        return
    known = (*context.catalog.nodes, *context.catalog.edges)
    message = f"there is no node or edge type `{name}`"
    context.error("T10", target.span, message, partial(did_you_mean, name, known))


def columns_of(definition: NodeDef | EdgeDef) -> dict[str, PropertyType]:
    """What statements may name of a type: its properties, and the ends of an edge."""
    ends = dict.fromkeys(_ENDS, _STRING) if isinstance(definition, EdgeDef) else {}
    return ends | {name: prop.type for name, prop in definition.properties.items()}


def _insert(
    context: Context, statement: ast.Insert, definition: NodeDef | EdgeDef
) -> ir.InsertNode | ir.InsertEdge | None:
    columns = columns_of(definition)
    assigned = _assignments(context, statement.assignments, columns, definition.name)
    _check_required(context, statement, columns)
    if isinstance(definition, NodeDef):
        return ir.InsertNode(definition.name, _values(assigned))
    source, target = assigned.pop("from", None), assigned.pop("to", None)
    if source is None or target is None:
        return None
    return ir.InsertEdge(definition.name, source, target, _values(assigned))


def _update(context: Context, statement: ast.Update, node: NodeDef | EdgeDef) -> ir.UpdateNode | None:
    if isinstance(node, EdgeDef):
        message = f"`{node.name}` is an edge type: edges are not updated"
        context.error("T16", statement.target.span, message, "delete the edge and insert it again")
        return None
    columns = columns_of(node)
    assigned = _assignments(context, statement.assignments, columns, node.name)
    members = node.key.members if node.key else ()
    for assignment in statement.assignments:
        if assignment.property in members:
            message = f"`{assignment.property}` is part of the key of `{node.name}` and never changes"
            context.error("Q115", assignment.span, message, "insert a node with the new key, then delete the old one")
    predicate = _predicate(context, statement, columns)
    return None if predicate is None else ir.UpdateNode(node.name, _values(assigned), predicate)


def _values(assigned: Mapping[str, ir.Value]) -> tuple[ir.Assignment, ...]:
    return tuple(ir.Assignment(name, value) for name, value in assigned.items())


def _check_required(context: Context, statement: ast.Insert, columns: Mapping[str, PropertyType]) -> None:
    assigned = {assignment.property for assignment in statement.assignments}
    unknown = assigned - columns.keys()
    missing = [
        f"`{name}`"
        for name, type_ in columns.items()
        # An unknown property that is nearly this one is reported already, and is probably meant to be it.
        if not type_.nullable and name not in assigned and not get_close_matches(name, unknown, n=1)
    ]
    if missing:
        context.error("T12", statement.type_span, f"insert of `{statement.type_name}` lacks {', '.join(missing)}")


def _assignments(
    context: Context, assignments: Iterable[ast.Assignment], columns: Mapping[str, PropertyType], type_name: str
) -> dict[str, ir.Value]:
    """The values of all assignments that are right."""
    values: dict[str, ir.Value] = {}
    seen: set[str] = set()
    for assignment in assignments:
        name = assignment.property
        if name in seen:
            context.error("T13", assignment.span, f"`{name}` is assigned twice")
            continue
        seen.add(name)
        type_ = columns.get(name)
        if type_ is None:
            message = f"`{type_name}` has no property `{name}`"
            context.error("T11", assignment.span, message, partial(did_you_mean, name, columns))
            continue
        value = _assigned_value(context, name, type_, assignment.value)
        if value is not None:
            values[name] = value
    return values


def _assigned_value(context: Context, name: str, type_: PropertyType, expression: ast.Expression) -> ir.Value | None:
    value = _plain_value(context, expression)
    match value:
        case None:
            return None
        case ir.ParamRef():
            if _is_assignable(type_, value.type):
                return value
            what = "now()" if value.name == ir.NOW else f"${value.name}"
            message = f"`{what}` is {value.type}, which does not fit `{name}`, which is {type_}"
            context.error("T7", expression.span, message)
            return None
        case ir.Constant():
            return _assigned_constant(context, name, type_, value, expression)


def _assigned_constant(
    context: Context, name: str, type_: PropertyType, value: ir.Constant, expression: ast.Expression
) -> ir.Constant | None:
    if isinstance(type_.base, EnumType) and value.type.base == _STRING.base:
        checked = check_enum_value(context, type_.base, value, name, expression)
        return ir.Constant(value.value, type_) if checked else None
    if scalar_of(value.type.base) in MOMENTS:
        # Moments are in stored form already; a string never stands for one here.
        if value.type.base == type_.base:
            return ir.Constant(value.value, type_)
    elif item_scalar(type_.base) not in MOMENTS:
        try:
            return ir.Constant(coerce_json(type_, value.value), type_)
        except ValueError as problem:
            context.error("T3", expression.span, f"`{name}` is {type_}: {problem}")
            return None
    elif isinstance(type_.base, ListType) and value.type.base == type_.base:
        return ir.Constant(value.value, type_)
    message = f"{value.type} does not fit `{name}`, which is {type_}"
    context.error("T3", expression.span, message, moment_hint(type_.base, value))
    return None


def _is_assignable(type_: PropertyType, given: PropertyType) -> bool:
    if type_.base == given.base or is_comparable(type_.base, given.base):
        return True
    if type_.base == _BLOB:
        return given.base == _STRING.base
    if isinstance(type_.base, ListType) and isinstance(given.base, ListType):
        return type_.base.item in NUMERICS and given.base.item in NUMERICS
    return False


def _plain_value(context: Context, expression: ast.Expression) -> ir.Value | None:
    found = checked_value(context, Scope(), expression, Place("statement", has_rows=False))
    if found is None or isinstance(found, ir.ParamRef | ir.Constant):
        return found
    context.error("Q000", expression.span, "expressions in statements are not in this edition")
    return None


def _predicate(
    context: Context, statement: ast.Update | ast.Delete, columns: Mapping[str, PropertyType]
) -> ir.MutationPredicate | None:
    written = statement.condition
    if written is None:
        word = "delete" if isinstance(statement, ast.Delete) else "update"
        message = f"{word} of `{statement.target.name}` needs `where`"
        context.error(
            "Q000", statement.span, message, "say which rows, as in `where name = $name`; all are `where true`"
        )
        return None
    if isinstance(written, ast.Binary) and isinstance(written.left, ast.PropertyAccess):
        name = written.left.property
        message = f"`${written.left.variable.name}.{name}` is not a property of the row"
        context.error("Q000", written.left.span, message, f"a property of the row stands alone: `where {name} = …`")
        return None
    if not isinstance(written, ast.Binary) or not isinstance(written.left, ast.Alias):
        context.error("Q000", statement.span, "a `where` with exactly one comparison is needed in this edition")
        return None
    name = written.left.name
    type_ = columns.get(name)
    if type_ is None:
        message = f"there is no property `{name}` to compare"
        context.error("T11", written.span, message, partial(did_you_mean, name, columns))
        return None
    if type_.base == _BLOB:
        context.error("T11", written.span, f"`{name}` is a Blob and cannot be compared")
        return None
    value = _plain_value(context, written.right)
    if value is None:
        return None
    if isinstance(type_.base, ListType | VectorType) or not is_comparable(type_.base, value.type.base):
        _report_mismatch(context, name, type_, value, written.right.span)
        return None
    op = ir.CompareOp(written.operator.value)
    made = beside(ir.PropertyRef("", name, type_), value)
    assert isinstance(made, ir.ParamRef | ir.Constant), "a value stays a value"
    return ir.MutationPredicate(_ENDS.get(name, name), op, made)


def _report_mismatch(context: Context, name: str, type_: PropertyType, value: ir.Value, span: Span) -> None:
    message = f"`{name}` is {type_} and cannot be compared with {value.type}"
    context.error("T7", span, message, moment_hint(type_.base, value))
