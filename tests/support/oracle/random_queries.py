"""Random read queries that type-check, together with values for their parameters.

They cover the whole grammar of a read. Values come from the pools that worlds draw from, so that comparisons are true
now and then. The number of variables is small on purpose: the oracle multiplies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from hypothesis import strategies as st

from support.oracle.graphs import (
    COMPONENTS,
    POOLS,
    TEXT_PROPERTIES,
    TEXTS,
    WORDS,
    EdgeShape,
    PropertyShape,
    World,
    often_first,
    read_shape,
    worlds,
)
from support.oracle.matching import named_clauses, types_of
from support.oracle.queries import (
    AGGREGATES,
    ANONYMOUS,
    COMPARISONS,
    Aggregate,
    Bind,
    Bm25,
    Clause,
    Column,
    Declared,
    Expression,
    Hop,
    ListOf,
    Literal,
    Nearest,
    Not,
    Now,
    Parameter,
    Property,
    Query,
    Rank,
    Return,
    Rrf,
    Sort,
    Text,
    Value,
    Variable,
    Where,
    moment_text,
    variables_of,
)

NUMBERS = ("I32", "I64", "U32", "U64", "F32", "F64")
_BOUNDS = ((1, 2), (1, 1), (2, 2), (2, 3), (1, 5), (3, 9))
#: Inequalities are true more often.
_OPERATORS = (*COMPARISONS, "!=", "!=", "<=", ">=")
#: Words that are near to those of the texts, or not.
_TYPOS = ("grap", "garph", "lanse", "vectr", "tensro", "graph", "xyz", "lance vektor")
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


def _family(scalar: str) -> str:
    """Scalars of one family compare with each other."""
    return "number" if scalar in NUMBERS else scalar


def _is_writable(value: Any) -> bool:
    """Whether the language has a literal for a value: no negative numbers, no exponents."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return True
    if isinstance(value, int):
        return 0 <= value < 2**64
    return math.copysign(1, value) > 0 and (value == 0 or 1e-3 < value < 1e20)


def _fits(type_: str, value: Any) -> bool:
    """Whether a number is a value of a type of parameters; a 32-bit float may round it."""
    if type_ == "F64":
        return True
    if type_ == "F32":
        return abs(value) < 3e38
    low, high = _RANGES[type_]
    return value == math.floor(value) and low <= value <= high


_RANGES = {"I32": (-(2**31), 2**31 - 1), "I64": (-(2**63), 2**63 - 1), "U32": (0, 2**32 - 1), "U64": (0, 2**64 - 1)}


def _scalar(item: PropertyShape) -> str:
    """What one value of a property, or one item of its list, compares as."""
    found = item.scalar or item.item
    assert found is not None, f"{item.name} has no comparable values"
    return found


_LITERALS = {
    family: [Literal(value) for value in often_first(pool) if _is_writable(value)]
    for family, pool in (*POOLS.items(), ("number", (*POOLS["I64"], *POOLS["F64"])))
}


@dataclass(slots=True)
class _Scope:
    """The variables that a block sees."""

    nodes: dict[str, str] = field(default_factory=dict)
    edges: dict[str, str] = field(default_factory=dict)

    def child(self) -> _Scope:
        return _Scope(dict(self.nodes), dict(self.edges))

    def properties(self, wanted: Callable[[PropertyShape], bool]) -> list[tuple[Property, PropertyShape]]:
        """The properties of all variables that are wanted."""
        shape = read_shape()
        return [
            (Property(variable, item.name), item)
            for variable, type_ in (self.nodes | self.edges).items()
            for item in shape.properties(type_).values()
            if wanted(item)
        ]


class _Writer:
    """Draws one query. Simple choices come first, so that failures shrink to simple queries."""

    def __init__(self, draw: st.DrawFn, world: World) -> None:
        self.draw = draw
        self.world = world
        self.shape = read_shape()
        self.params: list[Declared] = []
        self.values: dict[str, Any] = {}
        self.variables = 0
        self.edge_variables = 0

    def pick(self, options: Sequence[Any]) -> Any:
        return options[0] if len(options) == 1 else self.draw(st.sampled_from(options))

    def chance(self, one_in: int) -> bool:
        return self.draw(st.integers(0, one_in - 1)) == one_in - 1

    # ---- the query

    def question(self) -> Question:
        scope = _Scope()
        clauses = self.block(scope, self.pick([1, 2, 3, 4, 2, 3]), depth=0)
        rank: Rank | None = None
        is_grouped = bool(scope.nodes) and self.chance(3)
        if is_grouped:
            returns = self.grouped_returns(scope)
        else:
            returns = self.plain_returns(scope)
            rank = self.rank(scope) if self.chance(4) else None
        order: list[Sort] = []
        if rank is not None:
            order.append(self.rank_key(rank, returns))
        for _ in range(self.pick([0, 1, 1, 2, 3]) if rank is None else self.pick([0, 0, 1])):
            key = self.order_key(scope, returns, is_grouped, rank)
            if key is not None:
                order.append(key)
        limit = self.pick([None, None, 1, 2, 3, 5, 100, 0])
        if limit is None and isinstance(rank, Nearest | Rrf):
            limit = self.pick([3, 1, 10])
        if self.chance(8):
            self.parameter(self.pick(list(POOLS)))
        query = Query(tuple(self.params), clauses, tuple(returns), tuple(order), limit)
        return Question(query, self.values)

    # ---- match

    def block(self, scope: _Scope, size: int, depth: int) -> tuple[Clause, ...]:
        """Clauses in an order that means the same as the one in which they were made."""
        outer = scope.child()
        clauses = [self.first_clause(scope, depth)]
        while len(clauses) < size:
            clauses.append(self.clause(scope, depth))
        shuffled = tuple(self.draw(st.permutations(clauses)))
        # Where no binding says what a variable is, the first traversal does: the order may matter then.
        types = types_of(self.shape, named_clauses(shuffled), outer.nodes) or {}
        named = {name: type_ for name, type_ in types.items() if not name.startswith("_")}
        return shuffled if named == scope.nodes else tuple(clauses)

    def first_clause(self, scope: _Scope, depth: int) -> Clause:
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
                clause = self.text_condition(scope)
        if clause is not None and set(variables_of([clause])) & {*scope.nodes, *scope.edges}:
            return clause
        if scope.nodes:
            return self.hop(scope, depth, from_known=True)
        return self.filter(scope)

    def clause(self, scope: _Scope, depth: int) -> Clause:
        kinds = ["hop", "filter", "hop", "binding", "hop", "filter", "hop", "binding", "text", "again"]
        if depth < 2 and (scope.nodes or scope.edges):
            kinds += ["not"] * 3
        clause: Clause | None = None
        match self.pick(kinds):
            case "hop":
                clause = self.hop(scope, depth)
            case "binding" if self.variables < _MOST_VARIABLES:
                clause = self.binding(scope, depth)
            case "again" if scope.nodes:
                clause = self.binding_again(scope)
            case "text":
                clause = self.text_condition(scope)
            case "not":
                inner, before = scope.child(), self.variables
                clause = Not(self.block(inner, self.pick([1, 2, 3]), depth + 1))
                self.variables = before
        return clause or self.filter(scope)

    def new_variable(self, scope: _Scope, depth: int, type_: str) -> str:
        """A name for a node; sometimes none."""
        self.variables += 1
        if self.chance(6) and (depth or scope.nodes):
            return ANONYMOUS
        free = [name for name in _VARIABLE_NAMES[depth] if name not in scope.nodes]
        if not free:
            return ANONYMOUS
        scope.nodes[free[0]] = type_
        return free[0]

    def binding(self, scope: _Scope, depth: int) -> Bind:
        type_ = self.pick(list(self.shape.nodes))
        return Bind(self.new_variable(scope, depth, type_), type_, self.inline(type_))

    def binding_again(self, scope: _Scope) -> Bind:
        variable = self.pick(list(scope.nodes))
        return Bind(variable, scope.nodes[variable], self.inline(scope.nodes[variable]))

    def inline(self, type_: str) -> tuple[tuple[str, Value], ...]:
        items = [item for item in self.shape.properties(type_).values() if item.scalar or item.item]
        count = self.pick([0, 0, 0, 0, 0, 1, 1, 2])
        chosen = [self.pick(items) for _ in range(count)]
        return tuple((item.name, self.inline_value(type_, item)) for item in chosen)

    def inline_value(self, type_: str, item: PropertyShape) -> Value:
        scalar = _scalar(item)
        if scalar == "DateTime" and self.chance(6):
            return Now()
        return self.constant(scalar, self.pool(type_, item))

    def hop(self, scope: _Scope, depth: int, *, from_known: bool = False) -> Hop:
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
        self, scope: _Scope, depth: int, edge: EdgeShape, start: str, type_: str, *, is_fresh: bool = False
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

    def filter(self, scope: _Scope) -> Where:
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

    def comparison(self, scope: _Scope) -> Where | None:
        properties = scope.properties(lambda item: item.scalar is not None)
        if not properties:
            return None
        left, item = self.pick(properties)
        scalar = item.scalar
        right: Expression
        same = [
            (other, shape)
            for other, shape in properties
            if _family(str(shape.scalar)) == _family(scalar) and other != left
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
        return Where(sides[0], self.pick(_OPERATORS), sides[1])

    def pool(self, type_: str, item: PropertyShape) -> Sequence[Any]:
        """Values that may equal a property: mostly those that it has."""
        if not self.chance(3):
            found = [row[item.name] for row in self.world.get(type_, ())]
            if item.item is not None:
                found = [part for parts in found for part in parts or ()]
            found = [value for value in found if value is not None]
            if _scalar(item) == "F32":
                # What a person writes for a stored 0.10000000149011612.
                found += [float(f"{value:.6g}") for value in found]
            if found:
                return found
        if item.type.startswith("enum"):
            return item.allowed
        return often_first(TEXTS if item.name in TEXT_PROPERTIES else POOLS[_scalar(item)])

    def string_filter(self, scope: _Scope) -> Where:
        operator = self.pick(["contains", "starts_with"])
        strings = [p for p, _ in scope.properties(lambda item: item.scalar == "String")]
        right: Expression
        match self.pick(["property", "property", "literal", "parameter"] if strings else ["literal"]):
            case "property":
                left: Expression = self.pick(strings)
            case "parameter":
                # A bare variable before another one would be read as a traversal.
                return Where(self.parameter("String"), operator, self.literal("String"))
            case _:
                left = self.literal("String")
        if strings and self.chance(4):
            right = self.pick(strings)
        else:
            right = self.constant("String", ("a", "b", "", "%", "_", "graph", "\u0308", "lo"))
        return Where(left, operator, right)

    def list_filter(self, scope: _Scope) -> Where:
        lists = scope.properties(lambda item: item.item is not None)
        item: PropertyShape | None = None
        if lists and not self.chance(4):
            left, item = self.pick(lists)
            scalar = _scalar(item)
        else:
            scalar = self.pick(["I64", "String", "F64", "Date", "Bool", "U32", "F32"])
            if self.chance(2):
                left = self.list_parameter(scalar)
                return Where(left, "contains", self.literal(_family(scalar)))
            left = self.list_literal(scalar)
        members = scope.properties(lambda item: item.scalar is not None and _family(item.scalar) == _family(scalar))
        if members and self.chance(3):
            return Where(left, "contains", self.pick(members)[0])
        pool = self.pool((scope.nodes | scope.edges)[left.variable], item) if item else None
        return Where(left, "contains", self.constant(scalar, pool))

    def constant_filter(self) -> Where:
        """A condition about no variable."""
        scalar = self.pick(list(POOLS))
        left, right = self.constant(scalar), self.constant(scalar)
        return Where(left, self.pick(_OPERATORS), right)

    def text_condition(self, scope: _Scope) -> Text | None:
        fields = self.text_fields(scope)
        if not fields:
            return None
        function = self.pick(["search", "match_text", "fuzzy"])
        if function != "fuzzy":
            return Text(function, self.pick(fields), self.words())
        edits: Parameter | Literal | None = None
        match self.pick(["default", "literal", "parameter"]):
            case "literal":
                edits = Literal(self.pick([0, 1, 2, 3]))
            case "parameter":
                edits = self.declare(self.pick(["I32", "I64", "U32"]), self.pick([0, 1, 2]))
        return Text("fuzzy", self.pick(fields), self.constant("String", _TYPOS), edits)

    def text_fields(self, scope: _Scope) -> list[Property]:
        nodes = _Scope(scope.nodes)
        return [p for p, _ in nodes.properties(lambda item: item.name in TEXT_PROPERTIES)]

    def words(self) -> Parameter | Literal:
        several = [" ".join(pair) for pair in (WORDS[:2], WORDS[1::-1], WORDS[2:4], WORDS[3:])]
        return self.constant("String", (*WORDS, "Lance", *several, "lance, Graphs"))

    # ---- values

    def constant(self, scalar: str, pool: Sequence[Any] | None = None) -> Parameter | Literal:
        if self.chance(2):
            return self.parameter(scalar, pool)
        return self.literal(_family(scalar), pool)

    def literal(self, family: str, pool: Sequence[Any] | None = None) -> Literal:
        writable = [Literal(value) for value in pool or () if _is_writable(value)]
        return self.pick(writable or _LITERALS[family])

    def list_literal(self, scalar: str) -> ListOf:
        """Numbers of a list are all whole or all not, and small."""
        if scalar in NUMBERS:
            pool = [0.0, 0.5, 2.0, 2.7, 1, 0.1] if scalar.startswith("F") else [0, 1, 2, 2**53 + 1]
            items = [Literal(v) for v in pool]
        else:
            items = _LITERALS[scalar]
        # Without items a list literal is a list of strings.
        least = 0 if scalar == "String" else 1
        return ListOf(tuple(self.pick(items) for _ in range(self.pick([1, 2, least]))))

    def parameter(self, scalar: str, pool: Sequence[Any] | None = None) -> Parameter:
        """A parameter that compares with `scalar`: any number for a number; null if it may be."""
        known = [p.name for p in self.params if _family(p.type) == _family(scalar)]
        if known and self.chance(4 if pool is None else 12):
            return Parameter(self.pick(known))
        value = self.pick(often_first(POOLS[scalar]) if pool is None else pool)
        if scalar in NUMBERS:
            fitting = [type_ for type_ in NUMBERS if _fits(type_, value)]
            scalar = scalar if scalar in fitting and self.chance(2) else self.pick(fitting or ["F64"])
        return self.declare(scalar, self.json_value(scalar, [value]), may_be_null=True)

    def list_parameter(self, scalar: str) -> Parameter:
        items = [self.json_value(scalar) for _ in range(self.pick([0, 1, 2]))]
        if self.chance(4):
            items.append(None)
        return self.declare(f"[{scalar}]", items, may_be_null=True)

    def vector(self) -> Parameter | ListOf:
        if self.chance(2):
            parts = [Literal(self.pick([0.0, 1.0, 2.0, 0.5, 3])) for _ in range(4)]
            return ListOf(tuple(parts))
        parts = [self.pick(COMPONENTS) for _ in range(4)]
        return self.declare("Vector(4)", parts, may_be_null=True)

    def json_value(self, scalar: str, pool: Sequence[Any] | None = None) -> Any:
        """A value of a type as JSON carries it."""
        value = self.pick(often_first(POOLS[scalar]) if pool is None else pool)
        if isinstance(value, date):
            return moment_text(value)
        if scalar not in NUMBERS or scalar.startswith("F"):
            return value
        value = min(int(value), 2**64 - 1)
        return str(value) if self.chance(6) else value

    def declare(self, type_: str, value: Any, *, may_be_null: bool = False) -> Parameter:
        name = f"p{len(self.params)}"
        kinds = ["plain"] * 6 + ["nullable"] * 3 + ["null", "omitted"]
        kind = self.pick(kinds) if may_be_null else "plain"
        self.params.append(Declared(name, type_, kind != "plain"))
        match kind:
            case "plain" | "nullable":
                self.values[name] = value
            case "null":
                self.values[name] = None
        return Parameter(name)

    # ---- return

    def plain_returns(self, scope: _Scope) -> list[Return]:
        returns: list[Return] = []
        for _ in range(self.pick([1, 2, 3, 4])):
            self.add_return(returns, self.returned(scope))
        return returns

    def returned(self, scope: _Scope) -> Expression:
        properties = scope.properties(lambda item: item.type != "Blob")
        match self.pick(["property", "property", "variable", "literal", "parameter", "list", "now"]):
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
        return self.literal(self.pick(list(_LITERALS)))

    def add_return(self, returns: list[Return], expression: Expression) -> None:
        alias = f"col{len(returns)}"
        item = Return(expression, alias if self.chance(3) else None)
        if item.column in {known.column for known in returns}:
            item = Return(expression, alias)
        returns.append(item)

    def grouped_returns(self, scope: _Scope) -> list[Return]:
        returns: list[Return] = []
        groupable: list[Expression] = [p for p, _ in scope.properties(lambda item: item.scalar is not None)]
        groupable += map(Variable, scope.nodes)
        if self.chance(8):
            lists = scope.properties(lambda i: i.item is not None or i.type.startswith("Vector"))
            groupable = [p for p, _ in lists] or groupable
        for _ in range(self.pick([0, 1, 1, 2])):
            self.add_return(returns, self.pick(groupable))
        for _ in range(self.pick([1, 2, 3])):
            self.add_return(returns, self.aggregate(scope))
        return self.draw(st.permutations(returns))

    def aggregate(self, scope: _Scope) -> Aggregate:
        function = self.pick(AGGREGATES)
        properties = [p for p, _ in scope.properties(lambda item: _is_taken_by(function, item))]
        if function == "count" and self.chance(3):
            options = [Variable(self.pick(list(scope.nodes))), Now(), self.constant("Bool")]
            return Aggregate(function, self.pick(options))
        if not properties or self.chance(8):
            return Aggregate(function, self.constant(self.pick(NUMBERS)))
        return Aggregate(function, self.pick(properties))

    # ---- order

    def order_key(self, scope: _Scope, returns: list[Return], is_grouped: bool, rank: Rank | None) -> Sort | None:
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
        return Sort(self.pick(self.pick(options)), direction)

    def is_sortable(self, scope: _Scope, expression: Expression) -> bool:
        match expression:
            case Property(variable, name):
                types = scope.nodes | scope.edges
                return self.shape.properties(types[variable])[name].scalar is not None
            case Parameter(name):
                type_ = next(p.type for p in self.params if p.name == name)
                return not type_.startswith(("[", "Vector"))
            case ListOf() | Nearest() | Bm25() | Rrf():
                return False
        return True

    def rank(self, scope: _Scope) -> Rank | None:
        vectors = [p for p, _ in scope.properties(lambda item: item.type == "Vector(4)")]
        texts = self.text_fields(scope)

        def arm(near: Sequence[Property]) -> Nearest | Bm25 | None:
            if near and (not texts or not self.chance(3)):
                return Nearest(self.pick(near), self.vector())
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

    def rank_key(self, rank: Rank, returns: list[Return]) -> Sort:
        """The rank as first order key; sometimes also returned, sometimes named by its column."""
        direction = "" if isinstance(rank, Nearest) else self.pick(["", "desc", "asc"])
        if not self.chance(2):
            return Sort(rank, direction)
        self.add_return(returns, rank)
        return Sort(Column(returns[-1].column) if self.chance(2) else rank, direction)


def _is_taken_by(function: str, item: PropertyShape) -> bool:
    """Whether an aggregate takes a property."""
    if function == "count":
        return item.type != "Blob"
    return item.scalar in (NUMBERS if function in ("sum", "avg") else (*NUMBERS, "String"))
