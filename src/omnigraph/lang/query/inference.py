"""Parameters of a query that is a whole text: their types follow from what they are compared with or assigned to."""

from __future__ import annotations

from dataclasses import replace

from omnigraph.core.source import Findings
from omnigraph.core.types import BaseType, EnumType, ListType, PropertyType, Scalar, ScalarType, VectorType
from omnigraph.frozen import frozen
from omnigraph.lang.parsing import TypeExpr
from omnigraph.lang.query import ast
from omnigraph.lang.query.expressions import RANK_FUNCTIONS, TEXT_FUNCTIONS, Context, Scope
from omnigraph.lang.query.mutations import columns_of
from omnigraph.lang.query.patterns import check_pattern
from omnigraph.lang.schema.catalog import Catalog

_STRING = ScalarType(Scalar.STRING)
_I64 = ScalarType(Scalar.I64)


@frozen
class Inferred:
    """The parameters of a text, and advice for the variables whose type does not follow from their use."""

    params: tuple[ast.Param, ...]
    advice: dict[str, str]


def infer_params(query: ast.Query, catalog: Catalog, findings: Findings) -> Inferred:
    """The variables of a query that nothing binds, with the types that they need. None of them takes null.

    What is wrong with the query is left to its check.
    """
    uses = _Uses(Context(catalog, Findings(findings.source), {}))
    match query.body:
        case ast.ReadBody():
            scope = Scope()
            uses.of_block(query.body.clauses, scope)
            uses.of_result(query.body, scope)
        case ast.MutationBody(statements):
            for statement in statements:
                uses.of_statement(statement)
    params, advice = [], {}
    for name, types in uses.types.items():
        if len(types) == 1:
            written = replace(_written(next(iter(types))), span=query.name_span)
            params.append(ast.Param(name, written, query.name_span))
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


class _Uses:
    """The types that every free variable stands beside."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.types: dict[str, set[BaseType]] = {}

    # ---- reads

    def of_block(self, clauses: tuple[ast.Clause, ...], scope: Scope) -> None:
        """Look at the clauses of a block; `scope` gains its variables."""
        check_pattern(self._context, clauses, scope)
        for clause in clauses:
            match clause:
                case ast.Binding():
                    self._of_matches(clause, scope)
                case ast.Filter():
                    self._of_filter(clause, scope)
                case ast.Condition(call):
                    self._of_call(call, scope)
                case ast.Negation(inner):
                    self.of_block(inner, scope.child())
                case _:
                    pass

    def of_result(self, body: ast.ReadBody, scope: Scope) -> None:
        """Look at the columns and the order."""
        for expression in (*(item.expression for item in body.projections), *(sort.expression for sort in body.order)):
            match expression:
                case ast.Variable():
                    self._note(expression, None, scope)
                case ast.Call():
                    self._of_call(expression, scope)
                case _:
                    pass

    def _of_matches(self, binding: ast.Binding, scope: Scope) -> None:
        node = self._context.catalog.nodes.get(binding.type_name)
        for match in binding.matches:
            prop = None if node is None else node.properties.get(match.property)
            self._note(match.value, None if prop is None else _element(prop.type.base), scope)

    def _of_filter(self, clause: ast.Filter, scope: Scope) -> None:
        for operand, other in ((clause.left, clause.right), (clause.right, clause.left)):
            base = self._type_of(other, scope)
            if base is not None and clause.operator is ast.Operator.CONTAINS and other is clause.left:
                base = _element(base)
            self._note(operand, base, scope)

    def _of_call(self, call: ast.Call, scope: Scope) -> None:
        """A function of search: the text comes second, a number third."""
        match call:
            case ast.Call("rrf", arguments):
                for argument in arguments[:2]:
                    if isinstance(argument, ast.Call):
                        self._of_call(argument, scope)
                for argument in arguments[2:]:
                    self._note(argument, _I64, scope)
            case ast.Call(function, (_, query, *numbers)) if function in TEXT_FUNCTIONS | RANK_FUNCTIONS:
                # The nearest may be those of a vector or of a text.
                self._note(query, None if function == "nearest" else _STRING, scope)
                for number in numbers:
                    self._note(number, _I64, scope)
            case _:
                pass

    def _type_of(self, expression: ast.Expression, scope: Scope) -> BaseType | None:
        if not isinstance(expression, ast.PropertyAccess):
            return None
        bound = scope.bound.get(expression.variable.name)
        if bound is None or bound.definition is None:
            return None
        prop = bound.definition.properties.get(expression.property)
        return None if prop is None else prop.type.base

    # ---- mutations

    def of_statement(self, statement: ast.Statement) -> None:
        """Look at what a statement assigns and compares."""
        catalog, name = self._context.catalog, statement.type_name
        definition = catalog.nodes.get(name) or catalog.edges.get(name)
        columns = {} if definition is None else columns_of(definition)
        for assignment in () if isinstance(statement, ast.Delete) else statement.assignments:
            self._note(assignment.value, _base(columns, assignment.property))
        if not isinstance(statement, ast.Insert):
            self._note(statement.predicate.value, _base(columns, statement.predicate.property))

    # ---- what is found

    def _note(self, expression: ast.Expression, base: BaseType | None, scope: Scope | None = None) -> None:
        """A variable in a place that takes values of a type; of None nothing is known."""
        if not isinstance(expression, ast.Variable) or expression.name == ast.ANONYMOUS:
            return
        if scope is not None and expression.name in scope.bound:
            return
        found = self.types.setdefault(expression.name, set())
        if base is not None:
            found.add(_STRING if isinstance(base, EnumType) else base)


def _base(columns: dict[str, PropertyType], name: str) -> BaseType | None:
    type_ = columns.get(name)
    return None if type_ is None else type_.base


def _element(base: BaseType) -> BaseType:
    """The type of one value: that of the elements of a list."""
    return ScalarType(base.item) if isinstance(base, ListType) else base
