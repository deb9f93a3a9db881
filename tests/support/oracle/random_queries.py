"""Random read queries that type-check, together with values for their parameters.

They cover the whole grammar of a read. Values come from the pools that worlds draw from, so that comparisons are true
now and then. The number of variables is small on purpose: the oracle multiplies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from support.oracle.graphs import POOLS, EdgeShape, PropertyShape, World, worlds
from support.oracle.kinds import NUMBERS
from support.oracle.matching import named, types_of
from support.oracle.queries import (
    AGGREGATES,
    ANONYMOUS,
    Aggregate,
    AllProperties,
    Binary,
    Bind,
    Bm25,
    Case,
    Clause,
    Column,
    Declared,
    Exists,
    Expression,
    Function,
    Hop,
    IsNull,
    Let,
    ListOf,
    Literal,
    Named,
    Nearest,
    Now,
    Parameter,
    Property,
    Query,
    Rank,
    Return,
    Rrf,
    Sort,
    Unary,
    Value,
    Variable,
    Where,
    compared,
    variables_of,
)
from support.oracle.random_expressions import KINDS, OPERATORS, ExpressionWriter, Scope, family_of, scalar_of

_BOUNDS = ((1, 2), (1, 1), (2, 2), (2, 3), (1, 5), (3, 9))
#: Names of variables by depth of their block; their order is not the order of introduction.
_VARIABLE_NAMES = (("c", "a", "d", "b", "e"), ("x", "v", "z"), ("q", "p", "r"))
#: Largest number of node variables, anonymous ones included.
_MOST_VARIABLES = 4


@dataclass(frozen=True, slots=True, repr=False)
class Question:
    """A query and the values of its parameters."""

    query: Query
    params: dict[str, Any]

    @property
    def text(self) -> str:
        return str(self.query)

    def __repr__(self) -> str:
        return f"Question of {self.params}:\n{self.query}"


@st.composite
def questions(draw: st.DrawFn, world: World | None = None) -> Question:
    """A read query over the schema of `worlds`; with a world, often about values that occur in it."""
    return _Writer(draw, world or {}).question()


@dataclass(frozen=True, slots=True)
class Scenario:
    """A world and queries about it."""

    world: World
    questions: tuple[Question, ...]


def scenarios(count: int = 8) -> st.SearchStrategy[Scenario]:
    """A world and several different queries, because a world costs more to load than a query to run.

    Hypothesis likes to repeat parts of what it drew, and five of six examples would be variations of the sixth. It
    leaves alone what is inside a collection of different things, so the scenario is drawn as one.
    """
    return st.lists(_scenarios(count), min_size=1, max_size=1, unique_by=id).map(lambda one: one[0])


@st.composite
def _scenarios(draw: st.DrawFn, count: int) -> Scenario:
    world = draw(worlds())
    asked = st.lists(questions(world), min_size=count, max_size=count, unique_by=repr)
    return Scenario(world, tuple(draw(asked)))


class _Writer(ExpressionWriter):
    """Draws one query. Simple choices come first, so that failures shrink to simple queries."""

    def __init__(self, draw: st.DrawFn, world: World) -> None:
        super().__init__(draw, world)
        self.variables = 0
        self.edge_variables = 0
        self.lets = 0

    # ---- the query

    def question(self) -> Question:
        scope = Scope()
        clauses = self.block(scope, self.pick([1, 2, 3, 4, 2, 3]), depth=0)
        rank: Rank | None = None
        is_grouped = bool(scope.nodes) and self.chance(3)
        is_distinct = self.chance(6)
        if is_grouped:
            returns = self.grouped_returns(scope)
        else:
            returns = self.plain_returns(scope, groupable=is_distinct)
            rank = self.rank(scope) if not is_distinct and self.chance(4) else None
        order: list[Sort] = []
        if rank is not None:
            order.append(self.rank_key(rank, returns))
        having = self.having(scope, returns) if self.chance(5) else None
        for _ in range(self.pick([0, 1, 1, 2, 3]) if rank is None else self.pick([0, 0, 1])):
            key = self.order_key(scope, returns, is_grouped or is_distinct, rank)
            if key is not None:
                order.append(key)
        limit: int | Parameter | None = self.pick([None, None, 1, 2, 3, 5, 100, 0])
        if limit is None and isinstance(rank, Nearest | Rrf):
            limit = self.pick([3, 1, 10])
        if self.chance(8):
            self.parameter(self.pick(list(POOLS)))
        offset: int | Parameter | None = None
        per: tuple[Expression, ...] = ()
        if order and rank is None:
            match self.pick(["", "", "offset", "per"]):
                case "offset":
                    offset = self.pick([1, 2, 0, 5])
                case "per":
                    keys = [self.order_key(scope, returns, is_grouped or is_distinct, None) for _ in range(2)]
                    per = tuple(key.expression for key in keys[: self.pick([1, 2])] if key is not None)
                    limit = self.pick([1, 2]) if per else limit
        counts = [limit, offset]
        for at, count in enumerate(counts):
            if isinstance(count, int) and rank is None and self.chance(6):
                counts[at] = self.declare(self.pick(["I64", "I32", "U32"]), count)
        query = Query(
            tuple(self.params),
            clauses,
            tuple(returns),
            tuple(order),
            counts[0],
            distinct=is_distinct,
            having=having,
            offset=counts[1],
            per=per,
        )
        return Question(query, self.values)

    # ---- match

    def block(self, scope: Scope, size: int, depth: int) -> tuple[Clause, ...]:
        """Clauses in an order that means the same as the one in which they were made."""
        outer, before, was_in_match = scope.child(), self.variables, self.in_match
        self.in_match = True
        clauses = [self.first_clause(scope, depth)]
        while len(clauses) < size:
            clauses.append(self.clause(scope, depth))
        self.in_match = was_in_match
        if depth:
            self.variables = before
        shuffled = tuple(self.draw(st.permutations(clauses)))
        # Where no binding says what a variable is, the first traversal does: the order may matter then.
        types = types_of(self.shape, named(shuffled), outer.nodes) or {}
        known = {name: type_ for name, type_ in types.items() if not name.startswith("_")}
        return shuffled if known == scope.nodes else tuple(clauses)

    def first_clause(self, scope: Scope, depth: int) -> Clause:
        """A clause that introduces a variable, or inside `not` one that mentions a variable from outside."""
        if depth == 0:
            return self.binding(scope, depth) if self.chance(2) else self.hop(scope, depth)
        kind = self.pick(["hop", "hop", "filter", "again", "text"])
        clause: Clause | None = None
        match kind:
            case "filter":
                clause = self.filter(scope)
            case "again" if scope.nodes:
                clause = self.binding_again(scope)
            case "text":
                clause = self.text_clause(scope)
        if clause is not None and set(variables_of([clause])) & {*scope.nodes, *scope.edges}:
            return clause
        if scope.nodes:
            return self.hop(scope, depth, from_known=True)
        return self.filter(scope)

    def clause(self, scope: Scope, depth: int) -> Clause:
        kinds = ["hop", "filter", "hop", "binding", "hop", "filter", "hop", "binding", "text", "again"]
        kinds += ["expression"] * 4
        if depth < 2 and scope.nodes:
            kinds += ["block"] * 3
        if not depth:
            kinds += ["let"] * 2
        clause: Clause | None = None
        match self.pick(kinds):
            case "hop":
                clause = self.hop(scope, depth)
            case "binding" if self.variables < _MOST_VARIABLES:
                clause = self.binding(scope, depth)
            case "again" if scope.nodes:
                clause = self.binding_again(scope)
            case "text":
                clause = self.text_clause(scope)
            case "block":
                found = self.exists(scope, depth)
                clause = None if found is None else Where(found)
            case "expression":
                found = self.expression(scope, "Bool", depth)
                # Between two variables a bare `true` would be an edge.
                clause = Where(Unary("not", found) if isinstance(found, Literal) else found)
            case "let":
                clause = self.let(scope)
        return clause or self.filter(scope)

    def let(self, scope: Scope) -> Let:
        """A name for a value; blocks have other variables where it is used, so there is none in it."""
        kind, name = self.pick(KINDS), f"n{self.lets}"
        self.lets += 1
        self.in_match = False
        value = self.expression(scope, kind, depth=2)
        self.in_match = True
        scope.lets[name] = kind
        return Let(name, value)

    def text_clause(self, scope: Scope) -> Where | None:
        """A text condition by itself."""
        found = self.text_condition(scope)
        return None if found is None else Where(found)

    def new_variable(self, scope: Scope, depth: int, type_: str) -> str:
        """A name for a node; sometimes none."""
        self.variables += 1
        if self.chance(6) and (depth or scope.nodes):
            return ANONYMOUS
        free = [name for name in _VARIABLE_NAMES[depth] if name not in scope.nodes]
        if not free:
            return ANONYMOUS
        scope.nodes[free[0]] = type_
        return free[0]

    def binding(self, scope: Scope, depth: int) -> Bind:
        type_ = self.pick(list(self.shape.nodes))
        return Bind(self.new_variable(scope, depth, type_), type_, self.inline(type_))

    def binding_again(self, scope: Scope) -> Bind:
        variable = self.pick(list(scope.nodes))
        return Bind(variable, scope.nodes[variable], self.inline(scope.nodes[variable]))

    def inline(self, type_: str) -> tuple[tuple[str, Value], ...]:
        items = [item for item in self.shape.properties(type_).values() if item.scalar or item.item]
        count = self.pick([0, 0, 0, 0, 0, 1, 1, 2])
        chosen = [self.pick(items) for _ in range(count)]
        return tuple((item.name, self.inline_value(type_, item)) for item in chosen)

    def inline_value(self, type_: str, item: PropertyShape) -> Value:
        scalar = scalar_of(item)
        if scalar == "DateTime" and self.chance(6):
            return Now()
        return self.constant(scalar, self.pool(type_, item))

    def hop(self, scope: Scope, depth: int, *, from_known: bool = False) -> Hop:
        """A traversal: from a known variable, between two known ones, or between new ones."""
        known = list(scope.nodes)
        if not from_known:
            # Over two new variables only while there is room for them.
            fresh = [None] if self.variables + 2 <= _MOST_VARIABLES or not known else []
            known = [*known, *fresh] if known else [None]
        start = self.pick(known)
        if start is None:
            edge = self.pick(list(self.shape.edges.values()))
            source = self.new_variable(scope, depth, edge.source)
            return self.finish_hop(scope, depth, edge, source, edge.source, is_fresh=True)
        type_ = scope.nodes[start]
        fitting = [e for e in self.shape.edges.values() if type_ in (e.source, e.target)]
        return self.finish_hop(scope, depth, self.pick(fitting), start, type_)

    def finish_hop(
        self, scope: Scope, depth: int, edge: EdgeShape, start: str, type_: str, *, is_fresh: bool = False
    ) -> Hop:
        other_type = edge.target if type_ == edge.source else edge.source
        candidates = [name for name, known in scope.nodes.items() if known == other_type]
        if candidates and (self.variables >= _MOST_VARIABLES or self.chance(4)):
            other = self.pick(candidates)
        else:
            other = self.new_variable(scope, depth, other_type)
        # If nothing is known about either end, the traversal is read forward and has to be written so.
        turned = not is_fresh and self.chance(3)
        left, right = (other, start) if turned else (start, other)
        undirected = edge.is_loop and self.chance(4)
        edge_variable, bounds = None, None
        match self.pick(["plain", "plain", "bounds", "edge", "edge", "anonymous edge"]):
            case "bounds":
                bounds = self.pick(_BOUNDS if edge.is_loop or self.chance(4) else _BOUNDS[:2])
            case "edge":
                edge_variable = f"w{self.edge_variables}"
                self.edge_variables += 1
                scope.edges[edge_variable] = edge.name
            case "anonymous edge":
                edge_variable = ANONYMOUS
        word = edge.name[0].lower() + edge.name[1:]
        word = self.pick([word, word, edge.name.lower()])
        return Hop(left, word, right, edge_variable, undirected, bounds)

    # ---- conditions

    def filter(self, scope: Scope) -> Where:
        kinds = ["compare"] * 8 + ["string"] * 2 + ["list"] * 2 + ["constants"]
        match self.pick(kinds):
            case "string":
                found = self.string_filter(scope)
            case "list":
                found = self.list_filter(scope)
            case "constants":
                found = self.constant_filter()
            case _:
                found = None
        return found or self.comparison(scope) or self.constant_filter()

    def comparison(self, scope: Scope) -> Where | None:
        properties = scope.properties(lambda item: item.scalar is not None)
        if not properties:
            return None
        left, item = self.pick(properties)
        scalar = item.scalar
        right: Expression
        same = [
            (other, shape)
            for other, shape in properties
            if family_of(str(shape.scalar)) == family_of(scalar) and other != left
        ]
        match self.pick(["constant", "constant", "property", "property", "now"]):
            case "property" if same:
                right, _ = self.pick(same)
            case "now" if scalar == "DateTime":
                right = Now()
            case _:
                types = scope.nodes | scope.edges
                right = self.constant(scalar, self.pool(types[left.variable], item))
        sides = (right, left) if self.chance(3) else (left, right)
        return compared(sides[0], self.pick(OPERATORS), sides[1])

    def string_filter(self, scope: Scope) -> Where:
        operator = self.pick(["contains", "starts_with"])
        strings = [p for p, _ in scope.properties(lambda item: item.scalar == "String")]
        right: Expression
        match self.pick(["property", "property", "literal", "parameter"] if strings else ["literal"]):
            case "property":
                left: Expression = self.pick(strings)
            case "parameter":
                # A bare variable before another one would be read as a traversal.
                return compared(self.parameter("String"), operator, self.literal("String"))
            case _:
                left = self.literal("String")
        if strings and self.chance(4):
            right = self.pick(strings)
        else:
            right = self.constant("String", ("a", "b", "", "%", "_", "graph", "\u0308", "lo"))
        return compared(left, operator, right)

    def list_filter(self, scope: Scope) -> Where:
        lists = scope.properties(lambda item: item.item is not None)
        item: PropertyShape | None = None
        if lists and not self.chance(4):
            left, item = self.pick(lists)
            scalar = scalar_of(item)
        else:
            scalar = self.pick(["I64", "String", "F64", "Date", "Bool", "U32", "F32"])
            if self.chance(2):
                left = self.list_parameter(scalar)
                return compared(left, "contains", self.literal(family_of(scalar)))
            left = self.list_literal(scalar)
        members = scope.properties(lambda item: item.scalar is not None and family_of(item.scalar) == family_of(scalar))
        if members and self.chance(3):
            return compared(left, "contains", self.pick(members)[0])
        pool = self.pool((scope.nodes | scope.edges)[left.variable], item) if item else None
        return compared(left, "contains", self.constant(scalar, pool))

    def constant_filter(self) -> Where:
        """A condition about no variable."""
        scalar = self.pick(list(POOLS))
        left, right = self.constant(scalar), self.constant(scalar)
        return compared(left, self.pick(OPERATORS), right)

    # ---- return

    def plain_returns(self, scope: Scope, *, groupable: bool) -> list[Return]:
        returns: list[Return] = []
        nodes = list(scope.nodes)
        if nodes and self.chance(12):
            returns.append(Return(AllProperties(self.pick(nodes))))
            # Names of columns would meet otherwise.
            return returns
        for _ in range(self.pick([1, 2, 3, 4])):
            expression = self.returned(scope)
            if groupable and isinstance(expression, Property) and self.is_vector(scope, expression):
                continue
            self.add_return(returns, expression)
        if not returns:
            self.add_return(returns, self.atom(scope, "whole"))
        return returns

    def is_vector(self, scope: Scope, field: Property) -> bool:
        types = scope.nodes | scope.edges
        known = self.shape.properties(types[field.variable])
        return field.name in known and known[field.name].type.startswith("Vector")

    def returned(self, scope: Scope) -> Expression:
        properties = scope.properties(lambda item: item.type != "Blob")
        kinds = ["property", "property", "variable", "literal", "parameter", "list", "now", "id"]
        match self.pick([*kinds, *["expression"] * 8, "collect", "inexact"]):
            case "expression":
                return self.expression(scope, self.pick(KINDS))
            case "id" if scope.nodes or scope.edges:
                fields = ["@id", "@type"]
                variable = self.pick([*scope.nodes, *scope.edges])
                return Property(variable, self.pick([*fields, "@src", "@dst"] if variable in scope.edges else fields))
            case "collect":
                found = self.block_value(scope, 0, "collect", self.pick(KINDS))
                if found is not None:
                    return found
            case "inexact":
                return self.inexact(scope)
            case "property" if properties:
                return self.pick(properties)[0]
            case "variable" | "property" if scope.nodes:
                return Variable(self.pick(list(scope.nodes)))
            case "parameter" if self.params:
                return Parameter(self.pick(self.params).name)
            case "parameter":
                return self.parameter(self.pick(list(POOLS)))
            case "list":
                return self.list_literal(self.pick(["String", "I64", "F64", "Date"]))
            case "now":
                return Now()
        return self.literal(self.pick([*POOLS, "number"]))

    def inexact(self, scope: Scope) -> Expression:
        """What two libraries may compute differently in the last digit."""
        vectors = [p for p, _ in scope.properties(lambda item: item.type == "Vector(4)")]
        if vectors and self.chance(2):
            return Function(self.pick(["l2", "cosine"]), (self.pick(vectors), self.pick(vectors)))
        number = self.expression(scope, self.pick(["float", "whole"]))
        if self.chance(3):
            return Function("pow", (number, self.atom(scope, "float")))
        return Function(self.pick(["ln", "exp"]), (number,))

    def add_return(self, returns: list[Return], expression: Expression) -> None:
        alias = f"col{len(returns)}"
        has_name = not isinstance(expression, _UNNAMED) and not (
            isinstance(expression, Aggregate) and expression.clauses is not None
        )
        item = Return(expression, None if has_name and not self.chance(3) else alias)
        if item.column in {known.column for known in returns}:
            item = Return(expression, alias)
        returns.append(item)

    def grouped_returns(self, scope: Scope) -> list[Return]:
        returns: list[Return] = []
        groupable: list[Expression] = [p for p, _ in scope.properties(lambda item: item.scalar is not None)]
        groupable += map(Variable, scope.nodes)
        if self.chance(8):
            lists = scope.properties(lambda i: i.item is not None)
            groupable = [p for p, _ in lists] or groupable
        for _ in range(self.pick([0, 1, 1, 2])):
            self.add_return(returns, self.pick(groupable))
        if self.chance(3):
            self.add_return(returns, self.expression(scope, self.pick(KINDS)))
        for _ in range(self.pick([1, 2, 3])):
            found = self.aggregate(scope)
            self.add_return(returns, self.around(found, returns) if self.chance(4) else found)
        return self.draw(st.permutations(returns))

    def around(self, aggregate: Aggregate, returns: list[Return]) -> Expression:
        """An expression with an aggregate in it."""
        if aggregate.function in ("count", "sum", "avg", "median"):
            other = Literal(self.pick([2, 0.5, 3]))
            return self.pick(
                [
                    Binary(aggregate, self.pick(["+", "*", "-", "/"]), other),
                    Binary(aggregate, "/", Aggregate("count", None)),
                    Binary(aggregate, ">", other),
                    Function("coalesce", (aggregate, Literal(0))),
                ]
            )
        return IsNull(aggregate) if aggregate.function != "collect" else Function("size", (aggregate,))

    def aggregate(self, scope: Scope) -> Aggregate:
        function = self.pick(AGGREGATES)
        if function == "count" and self.chance(4):
            return Aggregate("count", None)
        distinct = function in ("count", "collect", "sum", "avg") and self.chance(3)
        properties = [p for p, _ in scope.properties(lambda item: _is_taken_by(function, item))]
        if function in ("count", "collect") and self.chance(3):
            return Aggregate(function, Variable(self.pick(list(scope.nodes))), distinct)
        if function == "count" and self.chance(6):
            return Aggregate(function, self.pick([Now(), self.constant("Bool")]))
        if self.chance(3):
            kinds = ["whole", "float"] if function not in ("count", "collect", "min", "max") else KINDS
            return Aggregate(function, self.expression(scope, self.pick(kinds)), distinct)
        if not properties or self.chance(8):
            return Aggregate(function, self.constant(self.pick(NUMBERS)))
        argument = self.pick(properties)
        if function == "collect" and self.chance(2):
            fields = [p for p, _ in scope.properties(lambda item: item.scalar is not None)]
            order = (Sort(self.pick(fields), self.pick(["", "asc", "desc"])),) if fields and not distinct else ()
            return Aggregate(function, argument, distinct, order, self.pick([None, 1, 2]))
        return Aggregate(function, argument, distinct)

    def having(self, scope: Scope, returns: list[Return]) -> Expression | None:
        """A condition over columns that have plain names."""
        conditions = []
        for item in returns:
            if not item.column.isidentifier() or isinstance(item.expression, _WITHOUT_TYPE):
                continue
            column = Column(item.column)
            if self.is_number(scope, item.expression):
                conditions.append(Binary(column, self.pick(OPERATORS), Literal(self.pick([1, 0, 2.5, 3]))))
            elif not isinstance(item.expression, ListOf):
                conditions.append(IsNull(column, self.chance(2)))
        if not conditions:
            return None
        condition: Expression = self.pick(conditions)
        if self.chance(3):
            condition = Binary(condition, self.pick(["and", "or"]), self.pick(conditions))
        return Unary("not", condition) if self.chance(4) else condition

    def is_number(self, scope: Scope, expression: Expression) -> bool:
        """Whether a returned expression certainly is a number that no literal is rounded for."""
        if isinstance(expression, Aggregate):
            return expression.function in ("count", "sum", "avg", "stddev", "median")
        return isinstance(expression, Binary) and expression.operator in ("+", "-", "*", "/", "%")

    # ---- order

    def order_key(self, scope: Scope, returns: list[Return], is_grouped: bool, rank: Rank | None) -> Sort | None:
        direction = self.pick(["", "asc", "desc"])
        columns = [
            Column(item.column)
            for item in returns
            if item.column.isidentifier() and self.is_sortable(scope, item.expression)
        ]
        if isinstance(rank, Nearest):
            columns = []
        fields = [p for p, _ in scope.properties(lambda item: item.scalar is not None)]
        if is_grouped:
            returned = [item.expression for item in returns if item.alias is None]
            fields = [item for item in fields if item in returned]
        options = [choice for choice in (fields, columns) if choice]
        if not options:
            return None
        return Sort(self.pick(self.pick(options)), direction, self.pick(["", "", "", "first", "last"]))

    def is_sortable(self, scope: Scope, expression: Expression) -> bool:
        match expression:
            case Property(variable, name):
                if name.startswith("@"):
                    return True
                types = scope.nodes | scope.edges
                return self.shape.properties(types[variable])[name].scalar is not None
            case Named():
                return True
            case Parameter(name):
                type_ = next(p.type for p in self.params if p.name == name)
                return not type_.startswith(("[", "Vector"))
            case ListOf() | Nearest() | Bm25() | Rrf() | Now():
                return False
            case Aggregate(function) if function == "collect":
                return False
            case Function("split" | "element" | "pow" | "ln" | "exp" | "l2" | "cosine"):
                return False
        return True

    def rank(self, scope: Scope) -> Rank | None:
        vectors = [p for p, _ in scope.properties(lambda item: item.type == "Vector(4)")]
        texts = self.text_fields(scope)

        def arm(near: Sequence[Property]) -> Nearest | Bm25 | None:
            if near and (not texts or not self.chance(3)):
                return Nearest(self.pick(near), self.vector(), self.recall())
            return Bm25(self.pick(texts), self.words()) if texts else None

        first = arm(vectors)
        if first is None or not self.chance(2):
            return first
        # Usually both arms rank one variable.
        same = [p for p in vectors if p.variable == first.field.variable]
        second = arm(vectors if self.chance(6) else same)
        if second is None or (isinstance(second, Bm25) and second.field.variable != first.field.variable):
            return first
        k: Parameter | Literal | None = None
        match self.pick(["default", "literal", "parameter"]):
            case "literal":
                k = Literal(self.pick([1, 2, 60, 1000]))
            case "parameter":
                k = self.declare(self.pick(["I64", "U32"]), self.pick([1, 5]))
        return Rrf(first, second, k)

    def recall(self) -> Parameter | Literal | None:
        """The wanted recall: so few rows are all compared, whatever it is."""
        match self.pick(["default", "default", "literal", "parameter"]):
            case "literal":
                return Literal(self.pick([1, 1.0, 0.9, 0.01]))
            case "parameter":
                return self.declare(self.pick(["F64", "F32"]), self.pick([1.0, 0.5]))
        return None

    def rank_key(self, rank: Rank, returns: list[Return]) -> Sort:
        """The rank as first order key; sometimes also returned, sometimes named by its column."""
        direction = "" if isinstance(rank, Nearest) else self.pick(["", "desc", "asc"])
        if not self.chance(2):
            return Sort(rank, direction)
        self.add_return(returns, rank)
        is_named = returns[-1].column.isidentifier() and self.chance(2)
        return Sort(Column(returns[-1].column) if is_named else rank, direction)


#: Expressions whose columns need a name.
_UNNAMED = (Binary, Unary, IsNull, Case, Function, Exists)
#: What `having` leaves alone.
_WITHOUT_TYPE = (Nearest, Bm25, Rrf, Now, AllProperties)


def _is_taken_by(function: str, item: PropertyShape) -> bool:
    """Whether an aggregate takes a property."""
    match function:
        case "count":
            return item.type != "Blob" and not item.type.startswith("Vector") and item.item is None
        case "collect" | "min" | "max":
            return item.scalar is not None
    return item.scalar in NUMBERS


@dataclass(frozen=True, slots=True)
class Judged:
    """A match, two conditions on its rows, a block, and something to count with."""

    clauses: tuple[Clause, ...]
    first: Expression
    second: Expression
    block: tuple[Clause, ...]
    number: Expression
    params: tuple[Declared, ...]
    values: dict[str, Any]

    def asking(self, *more: Clause, returns: tuple[Return, ...], **rest: Any) -> Question:
        """A question about the rows that satisfy further clauses."""
        return Question(Query(self.params, (*self.clauses, *more), returns, **rest), self.values)


@st.composite
def judged_matches(draw: st.DrawFn, world: World) -> Judged:
    """Matches of at least one node with conditions that may stand everywhere: there is no text condition in them."""
    writer, scope = _Writer(draw, world), Scope()
    known = writer.binding(scope, depth=0)
    clauses = (known, *writer.block(scope, writer.pick([1, 2, 3]), depth=0))
    first, second = (writer.expression(scope, "Bool") for _ in range(2))
    block = writer.block(scope.child(), writer.pick([1, 2]), depth=1)
    number = writer.atom(scope, writer.pick(["whole", "float"]))
    return Judged(clauses, first, second, block, number, tuple(writer.params), writer.values)
