"""Random read queries that type-check, together with values for their parameters.

They cover the whole grammar of a read. Values come from the pools that worlds draw from, so that comparisons are true
now and then. The number of variables is small on purpose: the oracle multiplies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from support.oracle.graphs import POOLS, PropertyShape, World, worlds
from support.oracle.kinds import NUMBERS
from support.oracle.queries import (
    AGGREGATES,
    Aggregate,
    AllProperties,
    Binary,
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
    ListOf,
    Literal,
    Maybe,
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
    Variable,
)
from support.oracle.random_expressions import KINDS, OPERATORS, Scope
from support.oracle.random_patterns import PatternWriter

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


class _Writer(PatternWriter):
    """Draws one query. Simple choices come first, so that failures shrink to simple queries."""

    # ---- the query

    def question(self) -> Question:
        scope = Scope()
        clauses = self.block(scope, self.pick([1, 2, 3, 4, 2, 3]), depth=0)
        rank: Rank | None = None
        is_grouped = bool(scope.nodes) and self.chance(3)
        is_distinct = self.chance(6)
        returns = self.grouped_returns(scope) if is_grouped else self.plain_returns(scope, groupable=is_distinct)
        if not is_distinct and self.chance(12 if is_grouped else 4):
            rank = self.rank(scope)
        order: list[Sort] = []
        if rank is not None:
            order.append(self.rank_key(rank, returns, is_returned=not is_grouped and self.chance(2)))
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

    # ---- return

    def plain_returns(self, scope: Scope, *, groupable: bool) -> list[Return]:
        returns: list[Return] = []
        nodes = [name for name, members in scope.nodes.items() if self.shape.common(members)]
        if nodes and self.chance(12):
            returns.append(Return(AllProperties(self.pick(nodes))))
            # Names of columns would meet otherwise.
            return returns
        for _ in range(self.pick([1, 2, 3, 4])):
            expression = self.returned(scope, groupable=groupable)
            if groupable and isinstance(expression, Property) and self.is_vector(scope, expression):
                continue
            self.add_return(returns, expression)
        if not returns:
            self.add_return(returns, self.atom(scope, "whole"))
        return returns

    def is_vector(self, scope: Scope, field: Property) -> bool:
        types = scope.nodes | scope.edges
        known = self.shape.common(types[field.variable])
        return field.name in known and known[field.name].type.startswith("Vector")

    def returned(self, scope: Scope, *, groupable: bool) -> Expression:
        properties = scope.properties(lambda item: item.type != "Blob")
        kinds = ["property", "property", "variable", "literal", "parameter", "list", "now", "id"]
        if scope.paths and not groupable:
            kinds += ["path"] * 3
        match self.pick([*kinds, *["expression"] * 8, "collect", "inexact", "large"]):
            case "large":
                return self.large(scope)
            case "path":
                return Function(self.pick(["nodes", "edges", "length"]), (Variable(self.pick(scope.paths)),))
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
        things = [] if is_grouped or isinstance(rank, Nearest) else [*map(Variable, (*scope.nodes, *scope.paths))]
        options = [choice for choice in (fields, columns, things) if choice]
        if not options:
            return None
        return Sort(self.pick(self.pick(options)), direction, self.pick(["", "", "", "first", "last"]))

    def is_sortable(self, scope: Scope, expression: Expression) -> bool:
        match expression:
            case Property(variable, name):
                if name.startswith("@"):
                    return True
                types = scope.nodes | scope.edges
                return self.shape.common(types[variable])[name].scalar is not None
            case Variable(name) if name in scope.paths:
                return False
            case Named():
                return True
            case Parameter(name):
                type_ = next(p.type for p in self.params if p.name == name)
                return not type_.startswith(("[", "Vector"))
            case ListOf() | Nearest() | Bm25() | Rrf() | Now():
                return False
            case Aggregate(function) if function == "collect":
                return False
            case Function("split" | "element" | "pow" | "ln" | "exp" | "l2" | "cosine" | "nodes" | "edges" | "object"):
                return False
        return True

    def rank(self, scope: Scope) -> Rank | None:
        there = Scope({name: scope.nodes[name] for name in scope.starts() if len(scope.nodes[name]) == 1})
        vectors = [p for p, _ in there.properties(lambda item: item.type == "Vector(4)")]
        texts = self.text_fields(there)

        def arm(near: Sequence[Property]) -> Nearest | Bm25 | None:
            if near and (not texts or not self.chance(3)):
                return Nearest(self.pick(near), self.vector(), self.recall())
            return Bm25(self.pick(texts), self.wanted_words()) if texts else None

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

    def rank_key(self, rank: Rank, returns: list[Return], *, is_returned: bool) -> Sort:
        """The rank as first order key; sometimes also returned, sometimes named by its column."""
        direction = "" if isinstance(rank, Nearest) else self.pick(["", "desc", "asc"])
        if not is_returned:
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
    """A match, two conditions on its rows, a block with a condition in it, and something to count with."""

    #: The variable that the rows are about.
    subject: str
    clauses: tuple[Clause, ...]
    first: Expression
    second: Expression
    block: tuple[Clause, ...]
    inside: Expression
    #: A traversal from the subject over several edge types, which binds its edge.
    hop: Hop
    number: Expression
    params: tuple[Declared, ...]
    values: dict[str, Any]

    def asking(self, *more: Clause, returns: tuple[Return, ...], **rest: Any) -> Question:
        """A question about the rows that satisfy further clauses."""
        # What is optional comes behind all patterns.
        clauses = sorted((*self.clauses, *more), key=lambda clause: isinstance(clause, Maybe))
        return Question(Query(self.params, tuple(clauses), returns, **rest), self.values)


@st.composite
def judged_matches(draw: st.DrawFn, world: World) -> Judged:
    """Matches of at least one node with conditions that may stand everywhere: there is no text condition in them."""
    writer, scope = _Writer(draw, world), Scope()
    known = writer.binding(scope, depth=0)
    while not writer.shape.members(known.types):
        known = writer.binding(scope, depth=0)
    clauses = writer.block(scope, writer.pick([2, 3, 4]), depth=0, first=known)
    first, second = (writer.condition(scope, depth=0) for _ in range(2))
    inner = scope.child()
    block = writer.block(inner, writer.pick([1, 2]), depth=1)
    inside = writer.condition(inner, depth=2)
    edges = writer.edges_at(scope.nodes[known.variable])
    words = tuple(writer.word(edge) for edge in draw(st.permutations(edges))[:3])
    hop = Hop(known.variable, words, "far", "along", writer.chance(4))
    number = writer.atom(scope, writer.pick(["whole", "float"]))
    return Judged(
        known.variable, clauses, first, second, block, inside, hop, number, tuple(writer.params), writer.values
    )
