"""Checks of mutation statements, and the statements they become."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    item_scalar,
    record_fields,
    scalar_of,
)
from omnigraph.core.values import coerce_json
from omnigraph.lang.query import ir
from omnigraph.lang.query.check.comparisons import check_enum_value, is_comparable, moment_hint
from omnigraph.lang.query.check.expressions import condition
from omnigraph.lang.query.check.expressions import value as checked_value
from omnigraph.lang.query.check.places import Place
from omnigraph.lang.query.check.results import check_result
from omnigraph.lang.query.check.scope import Context, NodeVariable, Scope
from omnigraph.lang.query.syntax import ast
from omnigraph.lang.query.syntax.printing import print_expression
from omnigraph.lang.schema.catalog import EDGE_ENDS, EdgeDef, NodeDef, embedded_vectors

#: The ends of an edge under the names that mutations use, with their columns.
_ENDS = {"from": "src", "to": "dst"}
_BLOB = ScalarType(Scalar.BLOB)
_STRING = PropertyType(ScalarType(Scalar.STRING))
_BOOL = PropertyType(ScalarType(Scalar.BOOL))


def check_statements(
    context: Context, statements: Iterable[ast.Statement], scope: Scope, *, has_match: bool
) -> tuple[ir.Statement, ...]:
    """The statements that are right. `scope` holds the variables of the match, and gains those of inserts."""
    scope.matched = frozenset(scope.bound) if has_match else None
    return tuple(made for statement in statements for made in _check_statement(context, scope, statement))


def check_returns(context: Context, scope: Scope, body: ast.MutationBody) -> tuple[ir.Projection, ...]:
    """The columns behind the statements: single values of the variables, without aggregates (T44) and blocks (T45)."""
    if not body.returns:
        return ()
    checked = check_result(context, scope, ast.ReadBody((), body.returns, (), None, span=body.span))
    for written, column in zip(body.returns, checked.projections, strict=False):
        if isinstance(column.expression, ir.Nearest | ir.Bm25 | ir.Rrf):
            continue
        for found in ir.walk(column.expression):
            if isinstance(found, ir.Aggregate):
                message = f"`{found.function}` cannot stand behind statements: they return a row for each match"
                context.error("T44", written.span, message, "run a read for it")
            elif isinstance(found, ir.Exists | ir.BlockValue):
                context.error("T45", written.span, "a block cannot stand behind statements", "run a read for it")
        if scalar_of(column.type.base) is None:
            what = "made of objects" if record_fields(column.type.base) else str(column.type)
            context.error("T7", written.span, f"statements return single values, this is {what}")
    return checked.projections


def _asks_for_new(context: Context, scope: Scope, span: Span, expressions: Iterable[ir.Expression]) -> bool:
    """Whether a block begins with a node that the mutation makes, which is reported: blocks are of the match (T45)."""
    for expression in expressions:
        for part in ir.walk(expression):
            new = set(part.outer) - (scope.matched or set()) if isinstance(part, ir.Exists | ir.BlockValue) else ()
            for name in new:
                message = f"`${name}` is new, and a block finds what is there before the statements"
                context.error("T45", span, message, "run a read behind the mutation")
                return True
    return False


def _check_statement(context: Context, scope: Scope, statement: ast.Statement) -> Iterator[ir.Statement]:
    """What a statement becomes: one for each type of its variable, in the order of their names."""
    before = context.findings.error_count
    for definition in _definitions(context, scope, statement_target(statement)):
        made = _of_type(context, scope, statement, definition)
        if made is not None and not _asks_for_new(context, scope, statement.span, ir.statement_expressions(made)):
            yield made
        if context.findings.error_count > before:
            # What is wrong for one type is most often wrong for all.
            return


def _of_type(
    context: Context, scope: Scope, statement: ast.Statement, definition: NodeDef | EdgeDef
) -> ir.Statement | None:
    match statement:
        case ast.Insert(variable=variable):
            made = _insert(context, scope, statement, definition)
            return made if variable is None else _named(context, scope, made, variable, definition)
        case ast.Upsert():
            if definition.key is None:
                message = f"`{definition.name}` has no key, so nothing says which row is meant"
                hint = "use `insert`" + (", or `update` with a condition" if definition.properties else "")
                context.error("T12", statement.type_span, message, hint)
                return None
            return _insert(context, scope, statement, definition)
        case ast.Update():
            return _update(context, scope, statement, definition)
        case ast.Delete(target):
            predicate = _predicate(context, scope, statement, definition)
            variable_name = target.name if isinstance(target, ast.Variable) else None
            if predicate is None and variable_name is None:
                return None
            if isinstance(definition, EdgeDef):
                return ir.DeleteEdge(definition.name, predicate, variable_name)
            cascades = tuple(edge.name for edge in context.catalog.incident_edges(definition.name))
            return ir.DeleteNode(definition.name, predicate, cascades, variable_name)


def statement_target(statement: ast.Statement) -> ast.TypeName | ast.Variable:
    """The type or the variable that a statement writes to."""
    if isinstance(statement, ast.Insert | ast.Upsert):
        return ast.TypeName(statement.type_name, statement.type_span)
    return statement.target


def target_definitions(
    context: Context, scope: Scope, target: ast.TypeName | ast.Variable
) -> tuple[NodeDef | EdgeDef, ...]:
    """The types that a target means; a node type wins over an edge type of its name. None where it means none."""
    if isinstance(target, ast.Variable):
        bound = scope.bound.get(target.name)
        return () if bound is None else tuple(sorted(bound.members or (), key=lambda member: member.name))
    found = context.catalog.nodes.get(target.name) or context.catalog.edges.get(target.name)
    return () if found is None else (found,)


def _definitions(context: Context, scope: Scope, target: ast.TypeName | ast.Variable) -> tuple[NodeDef | EdgeDef, ...]:
    found = target_definitions(context, scope, target)
    if found:
        return found
    name = target.name
    if isinstance(target, ast.TypeName):
        if name in context.catalog.interfaces:
            context.error("T10", target.span, f"`{name}` is an interface and holds no data")
            return ()
        known = (*context.catalog.nodes, *context.catalog.edges)
        message = f"there is no node or edge type `{name}`"
        context.error("T10", target.span, message, partial(did_you_mean, name, known))
    elif name in context.params or name in scope.lets:
        message = f"`${name}` is a value, not a node or an edge"
        context.error("T10", target.span, message, "name the type and say which rows: `Type … where …`")
    elif name not in scope.bound:
        scope.report_unbound(context, target, "T10")
    return ()


def columns_of(definition: NodeDef | EdgeDef) -> dict[str, PropertyType]:
    """What statements may name of a type: its properties, and the ends of an edge."""
    ends = dict.fromkeys(_ENDS, _STRING) if isinstance(definition, EdgeDef) else {}
    return ends | {name: prop.type for name, prop in definition.properties.items()}


def own_row(definition: NodeDef | EdgeDef, *, has_match: bool = False) -> Place:
    """Where conditions and values of existing rows stand: properties and ends have their bare names."""
    names: dict[str, ir.Expression | None] = {
        name: ir.PropertyRef(ir.OWN_ROW, _ENDS.get(name, name) if isinstance(definition, EdgeDef) else name, type_)
        for name, type_ in columns_of(definition).items()
    }
    fields = ("id", *EDGE_ENDS) if isinstance(definition, EdgeDef) else ("id",)
    meta_names: dict[str, ir.Expression] = {name: ir.PropertyRef(ir.OWN_ROW, name, ir.ID_TYPE) for name in fields}
    meta_names["type"] = ir.Constant(definition.name, _STRING)
    return Place("statement", names=names, meta_names=meta_names, has_match=has_match)


# ---- statements


def _insert(
    context: Context, scope: Scope, statement: ast.Insert | ast.Upsert, definition: NodeDef | EdgeDef
) -> ir.InsertNode | ir.InsertEdge | None:
    is_upsert = isinstance(statement, ast.Upsert)
    values = _Values(context, scope, definition, Place("statement", has_match=scope.matched is not None))
    assigned = values.of(statement.assignments)
    _check_required(context, statement, definition)
    if isinstance(definition, NodeDef):
        return ir.InsertNode(definition.name, _assignments(assigned), keeps_rest=is_upsert)
    source, target = assigned.pop("from", None), assigned.pop("to", None)
    if source is None or target is None:
        return None
    return ir.InsertEdge(definition.name, source, target, _assignments(assigned), keeps_rest=is_upsert)


def _named(
    context: Context,
    scope: Scope,
    made: ir.InsertNode | ir.InsertEdge | None,
    variable: ast.Variable,
    definition: NodeDef | EdgeDef,
) -> ir.InsertNode | None:
    """An insert whose node has a name in later statements."""
    name = variable.name
    if not isinstance(definition, NodeDef):
        context.error("T23", variable.span, f"`{definition.name}` is an edge type: only new nodes take a name")
        return None
    if name == ast.ANONYMOUS:
        context.error("Q106", variable.span, "`$_` cannot name a node", "leave `as $_` out")
    elif name in context.params:
        context.error("Q104", variable.span, f"`${name}` is a parameter and a variable at once", "use another name")
    elif name in scope.bound or name in scope.lets:
        context.error("Q106", variable.span, f"`${name}` is defined already", "give the new node another name")
    else:
        scope.bound[name] = NodeVariable((definition,))
    return replace(made, variable=name) if isinstance(made, ir.InsertNode) else None


def _update(
    context: Context, scope: Scope, statement: ast.Update, definition: NodeDef | EdgeDef
) -> ir.UpdateRows | None:
    values = _Values(context, scope, definition, own_row(definition, has_match=scope.matched is not None))
    is_edge = isinstance(definition, EdgeDef)
    for assignment in statement.assignments:
        name = assignment.property
        if is_edge and name in _ENDS:
            message = f"`{name}` is an end of `{definition.name}` and never changes"
            context.error("T16", assignment.span, message, "delete the edge and insert it again")
            values.skipped.add(name)
        elif definition.key is not None and name in definition.key.members:
            message = f"`{name}` is part of the key of `{definition.name}` and never changes"
            what = "an edge" if is_edge else "a node"
            hint = f"insert {what} with the new key, then delete the old one"
            context.error("Q115", assignment.span, message, hint)
    assigned = values.of(statement.assignments)
    predicate = _predicate(context, scope, statement, definition)
    variable = statement.target.name if isinstance(statement.target, ast.Variable) else None
    if predicate is None and variable is None:
        return None
    return ir.UpdateRows(definition.table_key, _assignments(assigned), predicate, variable)


def _assignments(assigned: Mapping[str, ir.Expression]) -> tuple[ir.Assignment, ...]:
    return tuple(ir.Assignment(name, value) for name, value in assigned.items())


def _check_required(context: Context, statement: ast.Insert | ast.Upsert, definition: NodeDef | EdgeDef) -> None:
    """T12: an insert needs what is never null, an upsert what says which row is meant."""
    columns = columns_of(definition)
    required = [name for name, type_ in columns.items() if not type_.nullable]
    if isinstance(statement, ast.Upsert):
        members = () if definition.key is None else definition.key.members
        required = [name for name in required if name in members or (name in _ENDS and _ENDS[name] in members)]
    assigned = {assignment.property for assignment in statement.assignments}
    unknown = assigned - columns.keys()
    # Vectors that are made of assigned texts.
    embedded = {item.property: item.source for item in embedded_vectors(definition) if item.source in assigned}
    missing = [
        name
        for name in required
        # An unknown property that is nearly this one is reported already, and is probably meant to be it.
        if name not in assigned and not get_close_matches(name, unknown, n=1)
        if context.no_embedding or name not in embedded
    ]
    if missing:
        word = "upsert" if isinstance(statement, ast.Upsert) else "insert"
        names = ", ".join(f"`{name}`" for name in missing)
        made = [f"`{name}` would be embedded from `{embedded[name]}`" for name in missing if name in embedded]
        hint = f"{', '.join(made)}, but {context.no_embedding}" if made else None
        context.error("T12", statement.type_span, f"{word} of `{statement.type_name}` lacks {names}", hint)


# ---- assigned values


@dataclass(slots=True)
class _Values:
    """The values that a statement assigns to a row of a type."""

    context: Context
    scope: Scope
    definition: NodeDef | EdgeDef
    place: Place
    #: Names that are reported already.
    skipped: set[str] = field(default_factory=set)

    def of(self, assignments: Iterable[ast.Assignment]) -> dict[str, ir.Expression]:
        """The values of all assignments that are right."""
        columns = columns_of(self.definition)
        values: dict[str, ir.Expression] = {}
        seen: set[str] = set()
        for assignment in assignments:
            name = assignment.property
            if name in seen:
                self.context.error("T13", assignment.span, f"`{name}` is assigned twice")
                continue
            seen.add(name)
            type_ = columns.get(name)
            if type_ is None:
                message = f"`{self.definition.name}` has no property `{name}`"
                self.context.error("T11", assignment.span, message, partial(did_you_mean, name, columns))
                continue
            if name in self.skipped:
                continue
            is_end = isinstance(self.definition, EdgeDef) and name in _ENDS
            value = (self._end if is_end else self._value)(name, type_, assignment.value)
            if value is not None:
                values[name] = value
        return values

    def _end(self, name: str, type_: PropertyType, expression: ast.Expression) -> ir.Expression | None:
        """An end of an edge: a node of its type, or an id."""
        bound = self.scope.bound.get(expression.name) if isinstance(expression, ast.Variable) else None
        if not isinstance(bound, NodeVariable):
            return self._value(name, type_, expression)
        assert isinstance(expression, ast.Variable)
        assert isinstance(self.definition, EdgeDef)
        wanted = self.definition.source if name == "from" else self.definition.target
        if bound.members is None:
            return None
        if bound.names != (wanted,):
            message = f"`${expression.name}` is a `{bound.type_name}`, and `{name}` is a `{wanted}`"
            self.context.error("T5", expression.span, message)
            return None
        return ir.EntityRef(expression.name, wanted, expression.name in self.scope.optional)

    def _value(self, name: str, type_: PropertyType, expression: ast.Expression) -> ir.Expression | None:
        context = self.context
        if isinstance(expression, ast.Null):
            if not type_.nullable:
                context.error("T3", expression.span, f"`{name}` is {type_}, which is never null")
                return None
            return ir.Constant(None, type_)
        if _names_blob(context, expression, self.place):
            return None
        value = checked_value(context, self.scope, expression, self.place)
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
        if _BLOB in (value.type.base, type_.base):
            message = f"`{name}` takes no computed value: give a Blob as a parameter or as a text"
            if type_.base != _BLOB:
                message = "a Blob is no value of a query: it is read as a cell"
            context.error("T7", expression.span, message)
            return None
        if not _is_assignable(type_, value.type):
            text = print_expression(expression)
            message = f"`{text}` is {value.type}, which does not fit `{name}`, which is {type_}"
            context.error("T7", expression.span, message, moment_hint(type_.base, value))
            return None
        return value


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


# ---- conditions


def _predicate(
    context: Context, scope: Scope, statement: ast.Update | ast.Delete, definition: NodeDef | EdgeDef
) -> ir.Expression | None:
    written, target = statement.condition, statement.target
    if written is None:
        if isinstance(target, ast.TypeName):
            word = "delete" if isinstance(statement, ast.Delete) else "update"
            message = f"{word} of `{target.name}` needs `where`"
            hint = "say which rows, as in `where name = $name`; all are `where true`"
            context.error("Q000", statement.span, message, hint)
        return None
    place = own_row(definition, has_match=scope.matched is not None)
    if _names_blob(context, written, place) or _names_unbound(context, scope, written):
        return None
    literals = _ambiguous_literals(written, columns_of(definition))
    for literal in literals:
        message = (
            f"`{literal.text}` is a property of `{definition.name}` and a truth value: a condition reads the value"
        )
        context.error("T46", literal.span, message, "match the rows, as in `match { $x: Type { … } } update $x …`")
    found = condition(context, scope, written, place)
    if found is None and isinstance(target, ast.Variable):
        # Never read: the error is recorded. A statement of a variable may do without a condition.
        return None
    return found


def _ambiguous_literals(expression: ast.Expression, columns: Mapping[str, PropertyType]) -> Sequence[ast.Literal_]:
    return [
        part
        for part in ast.walk(expression)
        if isinstance(part, ast.Literal_) and isinstance(part.value, bool) and part.text in columns
    ]


def _names_blob(context: Context, expression: ast.Expression, place: Place) -> bool:
    """Whether a bare name is that of a Blob (T11): it is read as a cell."""
    found = False
    for name in _bare_names(expression):
        reference = (place.names or {}).get(name.name)
        if reference is not None and reference.type.base == _BLOB:
            context.error("T11", name.span, f"`{name.name}` is a Blob and cannot be compared")
            found = True
    return found


def _bare_names(expression: ast.Expression) -> Iterator[ast.Alias]:
    return (part for part in ast.walk(expression) if isinstance(part, ast.Alias))


def _names_unbound(context: Context, scope: Scope, expression: ast.Expression) -> bool:
    """Whether a property is written with a variable that nothing binds, as reads write it."""
    for part in ast.outside_blocks(expression):
        if not isinstance(part, ast.PropertyAccess) or part.variable.name in (*scope.bound, *scope.lets):
            continue
        if part.variable.name not in context.params:
            message = f"`${part.variable.name}.{part.property}` is not a property of the row"
            hint = f"a property of the row stands alone: `where {part.property} = …`"
            context.error("Q000", part.span, message, hint)
            return True
    return False
