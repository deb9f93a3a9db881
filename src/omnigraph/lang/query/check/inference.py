"""Parameters of a query that is a whole text: their types follow from what they are compared with or assigned to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from omnigraph.core.source import Findings
from omnigraph.core.types import (
    BaseType,
    EnumType,
    ListType,
    PropertyType,
    RecordListType,
    RecordType,
    Scalar,
    ScalarType,
    VectorType,
    scalar_of,
)
from omnigraph.frozen import frozen
from omnigraph.lang.parsing import TypeExpr
from omnigraph.lang.query import ir
from omnigraph.lang.query.check.expressions import check
from omnigraph.lang.query.check.mutations import columns_of, own_row, statement_target, target_definitions
from omnigraph.lang.query.check.patterns import check_block, check_pattern
from omnigraph.lang.query.check.places import IN_RETURN, RANK_FUNCTIONS, TEXT_FUNCTIONS, Place
from omnigraph.lang.query.check.scope import Context, NodeVariable, Scope
from omnigraph.lang.query.check.traversals import place_of_hop
from omnigraph.lang.query.functions import table as functions
from omnigraph.lang.query.syntax import ast
from omnigraph.lang.schema.catalog import Catalog, NodeDef

_STRING = ScalarType(Scalar.STRING)
_I64 = ScalarType(Scalar.I64)
_F64 = ScalarType(Scalar.F64)
_BOOL = ScalarType(Scalar.BOOL)


@frozen
class Inferred:
    """The parameters of a text, and advice for the variables whose type does not follow from their use."""

    params: tuple[ast.Param, ...]
    advice: dict[str, str]


def infer_params(query: ast.Query, catalog: Catalog, findings: Findings) -> Inferred:
    """The variables of a query that nothing binds, with the types that they need. None of them takes null.

    What is wrong with the query is left to its check.
    """
    uses = _Uses(Context(catalog, Findings(findings.source), {}, check_block))
    match query.body:
        case ast.ReadBody():
            scope = Scope()
            uses.of_block(query.body.clauses, scope)
            uses.of_result(query.body, scope)
        case ast.MutationBody(statements, clauses, returns):
            scope = Scope()
            uses.of_block(clauses or (), scope)
            for statement in statements:
                uses.of_statement(statement, scope)
            for projection in returns:
                uses.of_expression(projection.expression, scope)
    params, advice = [], {}
    for name, types in sorted(uses.types.items(), key=lambda item: uses.first[item[0]]):
        if len(types) == 1:
            written = replace(_written(next(iter(types))), span=query.name_span)
            params.append(ast.Param(name, written, span=query.name_span))
            continue
        shown = sorted(str(PropertyType(item, nullable=False)) for item in types)
        found = f"it is used as {' and as '.join(shown)}" if types else "its use does not say its type"
        example = shown[0] if shown else "Type"
        advice[name] = f"{found}: declare it, as in `query name(${name}: {example}) {{ … }}`"
    return Inferred(tuple(params), advice)


def _written(base: BaseType) -> TypeExpr:
    """A type as a parameter spells it."""
    match base:
        case ScalarType(scalar):
            return TypeExpr("scalar", False, str(scalar))
        case ListType(item):
            return TypeExpr("list", False, str(item))
        case VectorType(dimension):
            return TypeExpr("vector", False, dimension=dimension)
        case EnumType():
            return TypeExpr("scalar", False, str(Scalar.STRING))
        case RecordType() | RecordListType():
            raise AssertionError("no operand is compared with records")


class _Uses:
    """The types that every free variable stands beside."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.types: dict[str, set[BaseType]] = {}
        #: Where every one of them stands first: parameters come in the order of the text.
        self.first: dict[str, int] = {}
        #: Where the expressions stand that are looked at.
        self._place = IN_RETURN

    # ---- reads

    def of_block(self, clauses: tuple[ast.Clause, ...], scope: Scope) -> None:
        """Look at the clauses of a block; `scope` gains its variables."""
        check_pattern(self._context, clauses, scope)
        for clause in clauses:
            match clause:
                case ast.Binding():
                    self._of_matches(clause, scope)
                case ast.Traversal():
                    self._of_traversal(clause, scope)
                case ast.Path(traversal=traversal):
                    self._of_traversal(traversal, scope)
                case ast.Condition(expression):
                    self._note(expression, _BOOL, scope)
                    self.of_expression(expression, scope)
                case ast.Let(_, expression):
                    self.of_expression(expression, scope)
                case ast.Optional(inner):
                    # Its variables are in scope already, and checked once more they would look like outer ones.
                    self.of_block(inner, scope.child())

    def of_result(self, body: ast.ReadBody, scope: Scope) -> None:
        """Look at the columns, the order and the numbers of rows."""
        for expression in (*(item.expression for item in body.projections), *(sort.expression for sort in body.order)):
            self.of_expression(expression, scope)
        if body.having is not None:
            self._note(body.having, _BOOL, scope)
            with self._standing(self._place_of_columns(body, scope)):
                self.of_expression(body.having, scope)
        for count in (body.offset, None if body.limit is None else body.limit.count):
            self._of_count(count, scope)

    def _place_of_columns(self, body: ast.ReadBody, scope: Scope) -> Place:
        """Where `having` stands: bare names are columns."""
        names: dict[str, ir.Expression | None] = {}
        for item in body.projections:
            base = None if item.alias is None else self._type_of(item.expression, scope)
            if item.alias is not None and base is not None:
                names[item.alias] = ir.ColumnRef(item.alias, PropertyType(base, nullable=True))
        return Place("column", has_rows=False, names=names)

    @contextmanager
    def _standing(self, place: Place) -> Iterator[None]:
        """While an expression in this place is looked at."""
        before, self._place = self._place, place
        yield
        self._place = before

    def _of_count(self, count: ast.Count | None, scope: Scope) -> None:
        if count is not None and isinstance(count.value, ast.Variable):
            self._note(count.value, _I64, scope)

    def _of_traversal(self, clause: ast.Traversal, scope: Scope) -> None:
        if clause.binding is not None:
            self._of_matches(clause.binding, scope)
        if clause.hop.condition is None:
            return
        words = clause.hop.words
        every = tuple(self._context.catalog.edges.values())
        edges = tuple(edge for word in words if (edge := self._context.catalog.edge(word.name)) is not None)
        self._note(clause.hop.condition, _BOOL, scope)
        with self._standing(place_of_hop(edges if words else every, ast.ANONYMOUS)):
            self.of_expression(clause.hop.condition, scope)

    def _of_matches(self, binding: ast.Binding, scope: Scope) -> None:
        node = self._context.catalog.nodes.get(binding.types[0].name)
        bound = scope.bound.get(binding.variable.name, NodeVariable(None if node is None else (node,)))
        for match in binding.matches:
            type_ = bound.property_type(match.property) if isinstance(bound, NodeVariable) else None
            self._note(match.value, None if type_ is None else _element(type_.base), scope)
            self.of_expression(match.value, scope)

    def of_expression(self, expression: ast.Expression, scope: Scope) -> None:
        """Look at every part of an expression."""
        if isinstance(expression, ast.Variable):
            self._note(expression, None, scope)
        for part in ast.outside_blocks(expression):
            match part:
                case ast.Binary():
                    self._of_binary(part, scope)
                case ast.Call():
                    self._of_count(part.limit, scope)
                    if part.clauses is None:
                        self._of_call(part, scope)
                case ast.Case(branches, otherwise):
                    last = () if otherwise is None else (otherwise,)
                    self._alike([*(branch.value for branch in branches), *last], scope)
                    for branch in branches:
                        self._note(branch.condition, _BOOL, scope)
                case ast.Unary("not", operand):
                    self._note(operand, _BOOL, scope)
                case _:
                    pass
            block = ast.block_of(part)
            if not block:
                continue
            inside = scope.child()
            self.of_block(block, inside)
            if isinstance(part, ast.Call):
                # What a block is aggregated over sees its variables.
                self._of_call(part, inside)
                for inner in ast.parts(part):
                    self.of_expression(inner, inside)

    def _of_binary(self, expression: ast.Binary, scope: Scope) -> None:
        left, operator, right = expression.left, expression.operator, expression.right
        if operator in (ast.Operator.AND, ast.Operator.OR):
            self._note(left, _BOOL, scope)
            self._note(right, _BOOL, scope)
            return
        if operator in (ast.Operator.IN, ast.Operator.NOT_IN):
            base = self._type_of(left, scope)
            for item in right.items if isinstance(right, ast.ListLiteral) else ():
                self._note(item, base, scope)
            scalar = None if base is None else scalar_of(base)
            self._note(right, None if scalar is None else ListType(scalar), scope)
            listed = self._type_of(right, scope)
            self._note(left, None if listed is None else _element(listed), scope)
            return
        for operand, other in ((left, right), (right, left)):
            base = self._type_of(other, scope)
            if base is not None and operator is ast.Operator.CONTAINS and other is left:
                base = _element(base)
            self._note(operand, base, scope)

    def _alike(self, expressions: list[ast.Expression], scope: Scope) -> None:
        """Expressions that have one type together."""
        bases = [base for item in expressions if (base := self._type_of(item, scope)) is not None]
        for item in expressions:
            self._note(item, bases[0] if bases else None, scope)

    def _of_call(self, call: ast.Call, scope: Scope) -> None:
        """A function of search: the text comes second, a number third; functions of values know what they take."""
        match call:
            case ast.Call("rrf", (_, _, *numbers)):
                for number in numbers:
                    self._note(number, _I64, scope)
            case ast.Call(name, (_, query, *numbers)) if name in TEXT_FUNCTIONS | RANK_FUNCTIONS:
                # The nearest may be those of a vector or of a text.
                self._note(query, None if name == "nearest" else _STRING, scope)
                for number in numbers:
                    if isinstance(number, ast.NamedArgument):
                        self._note(number.value, _F64, scope)
                    else:
                        self._note(number, _I64, scope)
            case ast.Call("coalesce" | "least" | "greatest", arguments):
                self._alike(list(arguments), scope)
            case ast.Call(name, arguments):
                function = functions.function_named(name)
                for position, argument in enumerate(arguments):
                    self._note(argument, None if function is None else _only_type(function, position), scope)

    def _type_of(self, expression: ast.Expression, scope: Scope) -> BaseType | None:
        """The type of an expression, where it is known without the parameters."""
        if isinstance(expression, ast.Null):
            return None
        if isinstance(expression, ast.Alias | ast.MetaName) and self._place.names is None:
            return None
        before = self._context.findings.mark()
        found = check(self._context, scope, expression, self._place)
        self._context.findings.forget(before)
        return None if found is None or isinstance(found, ir.EntityRef) else found.type.base

    # ---- mutations

    def of_statement(self, statement: ast.Statement, scope: Scope) -> None:
        """Look at what a statement assigns and compares; `scope` gains the node that it names."""
        definition = next(iter(target_definitions(self._context, scope, statement_target(statement))), None)
        columns = {} if definition is None else columns_of(definition)
        is_new = isinstance(statement, ast.Insert | ast.Upsert)
        self._place = IN_RETURN if definition is None or is_new else own_row(definition)
        for assignment in () if isinstance(statement, ast.Delete) else statement.assignments:
            type_ = columns.get(assignment.property)
            self._note(assignment.value, None if type_ is None else type_.base, scope)
            self.of_expression(assignment.value, scope)
        if isinstance(statement, ast.Update | ast.Delete) and statement.condition is not None:
            self._note(statement.condition, _BOOL, scope)
            self.of_expression(statement.condition, scope)
        self._place = IN_RETURN
        if isinstance(statement, ast.Insert) and statement.variable is not None:
            members = (definition,) if isinstance(definition, NodeDef) else None
            scope.bound.setdefault(statement.variable.name, NodeVariable(members))

    # ---- what is found

    def _note(self, expression: ast.Expression, base: BaseType | None, scope: Scope | None = None) -> None:
        """A variable in a place that takes values of a type; of None nothing is known."""
        if not isinstance(expression, ast.Variable) or expression.name == ast.ANONYMOUS:
            return
        if scope is not None and (expression.name in scope.bound or expression.name in scope.lets):
            return
        start = expression.span.start
        self.first[expression.name] = min(start, self.first.get(expression.name, start))
        found = self.types.setdefault(expression.name, set())
        if base is not None:
            found.add(_STRING if isinstance(base, EnumType) else base)


def _only_type(function: functions.Function, position: int) -> BaseType | None:
    """The type of an argument that can be of one type alone."""
    kind = function.kind(position)
    scalars = tuple(kind.scalars)
    return ScalarType(scalars[0]) if len(scalars) == 1 and not (kind.takes_lists or kind.takes_vectors) else None


def _element(base: BaseType) -> BaseType:
    """The type of one value: that of the elements of a list."""
    return ScalarType(base.item) if isinstance(base, ListType) else base
