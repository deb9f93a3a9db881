"""Random clauses of a match: bindings, traversals of every form, paths, optional parts and conditions."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from support.oracle.graphs import POOLS, EdgeShape, PropertyShape, World
from support.oracle.patterns import Members, is_turned, named, types_of, ways
from support.oracle.queries import (
    ANONYMOUS,
    Bind,
    Clause,
    Column,
    Expression,
    Hop,
    IsNull,
    Let,
    Literal,
    Maybe,
    Now,
    PathOf,
    Property,
    Unary,
    Value,
    Where,
    compared,
    rewritten,
    variables_of,
)
from support.oracle.random_expressions import KINDS, OPERATORS, ExpressionWriter, Scope, family_of, scalar_of

_BOUNDS = ((1, 2), (1, 1), (2, 2), (2, 3), (1, 5), (3, 9))
#: Names of variables by depth of their block; their order is not the order of introduction.
_VARIABLE_NAMES = (("c", "a", "d", "b", "e"), ("x", "v", "z"), ("q", "p", "r"))
#: Largest number of node variables, anonymous ones included; one of several types counts twice.
_MOST_VARIABLES = 4
#: The variable of an edge whose properties stand bare in the condition of a hop.
_EDGE = "~"


class PatternWriter(ExpressionWriter):
    """Draws blocks of clauses. What is drawn is checked against the types of the whole block before it is kept."""

    def __init__(self, draw: st.DrawFn, world: World) -> None:
        super().__init__(draw, world)
        self.variables = 0
        self.edge_variables = 0
        self.lets = 0

    # ---- blocks

    def block(self, scope: Scope, size: int, depth: int, first: Clause | None = None) -> tuple[Clause, ...]:
        """Clauses in an order that means the same as the one in which they were made."""
        before, was_in_match = self.variables, self.in_match
        self.in_match = True
        scope.begin()
        self.add(scope, first or self.first_clause(scope, depth))
        while len(scope.clauses) < size:
            self.add(scope, self.clause(scope, depth))
        self.in_match = was_in_match
        if depth:
            self.variables = before
        clauses = self.in_text_order(tuple(scope.clauses), tuple(scope.clauses))
        shuffled = self.in_text_order(clauses, tuple(self.draw(st.permutations(clauses))))
        # Where no binding says what a variable is, the first traversal does: the order may matter then.
        types = [types_of(self.shape, named(order), scope.outer) for order in (clauses, shuffled)]
        visible = [{name: found for name, found in (some or {}).items() if name[0] != "_"} for some in types]
        return shuffled if visible[0] == visible[1] else clauses

    def in_text_order(self, clauses: tuple[Clause, ...], shuffled: tuple[Clause, ...]) -> tuple[Clause, ...]:
        """Shuffled clauses with the optional blocks behind the patterns and in their own order, which has a meaning."""
        blocks = [clause for clause in clauses if isinstance(clause, Maybe)]
        others = [clause for clause in shuffled if not isinstance(clause, Maybe)]
        patterns = [at for at, clause in enumerate(others, 1) if isinstance(clause, Bind | Hop | PathOf)]
        least = patterns[-1] if patterns else 0
        return (*others[:least], *blocks, *others[least:])

    def add(self, scope: Scope, clause: Clause) -> None:
        scope.clauses.append(clause)
        if isinstance(clause, Bind | Hop | PathOf | Maybe):
            types = types_of(self.shape, named(tuple(scope.clauses)), scope.outer)
            assert types is not None, "only what fits is added"
            scope.learn(types, self.shape.nodes)
        match clause:
            case Bind(variable, written) | Hop(right=variable, types=written) if written:
                scope.declared[variable] = self.shape.members(written)
            case PathOf(hop=Hop(right=variable, types=written)) if written:
                scope.declared[variable] = self.shape.members(written)

    def fits(self, scope: Scope, clause: Clause) -> bool:
        """Whether a clause leaves variables the types that they have, or some of them, and edges their directions."""
        types = types_of(self.shape, named((*scope.clauses, clause)), scope.outer)
        if types is None:
            return False
        before = ways(self.shape, scope.clauses, scope.outer)
        return not is_turned(before, ways(self.shape, (*scope.clauses, clause), scope.outer)) and all(
            set(types[name]) <= set(members) for name, members in scope.types().items() if name in types
        )

    def first_clause(self, scope: Scope, depth: int) -> Clause:
        """A clause that introduces a variable, or inside of a block one that mentions a variable from outside."""
        if depth == 0:
            return self.binding(scope, depth) if self.chance(2) else self.some_hop(scope, depth)
        kind = self.pick(["hop", "hop", "filter", "again", "text", "path"])
        clause: Clause | None = None
        match kind:
            case "filter":
                clause = self.filter(scope)
            case "again":
                clause = self.binding_again(scope)
            case "text":
                clause = self.text_clause(scope)
            case "path":
                clause = self.path(scope, depth, from_known=True)
        if clause is not None and set(variables_of([clause])) & scope.types().keys():
            return clause
        if scope.starts():
            return self.some_hop(scope, depth, from_known=True)
        return self.filter(scope)

    def clause(self, scope: Scope, depth: int) -> Clause:
        kinds = ["hop", "filter", "hop", "binding", "hop", "filter", "hop", "binding", "text", "again", "path"]
        kinds += ["expression"] * 4
        if any(scope.nodes.values()):
            kinds += ["optional"] * (2 if depth == 0 else 1)
        if depth < 2 and any(scope.nodes.values()):
            kinds += ["block"] * 3
        if not depth:
            kinds += ["let"] * 2
        clause: Clause | None = None
        match self.pick(kinds):
            case "hop":
                clause = self.hop(scope, depth)
            case "binding" if self.variables < _MOST_VARIABLES:
                clause = self.binding(scope, depth)
            case "again":
                clause = self.binding_again(scope)
            case "path" if self.variables < _MOST_VARIABLES:
                clause = self.path(scope, depth)
            case "optional" if self.variables < _MOST_VARIABLES:
                clause = self.optional(scope, depth)
            case "text":
                clause = self.text_clause(scope)
            case "block":
                found = self.exists(scope, depth)
                clause = None if found is None else Where(found)
            case "expression":
                clause = Where(self.condition(scope, depth))
            case "let":
                clause = self.let(scope)
        return clause or self.filter(scope)

    def optional(self, scope: Scope, depth: int) -> Maybe | None:
        """`optional { … }` that begins at a known variable and binds another one."""
        before = self.variables
        inside = scope.child()
        inside.begin()
        first = self.path(inside, depth, from_known=True) if self.chance(5) else None
        self.add(inside, first or self.some_hop(inside, depth, from_known=True))
        for _ in range(self.pick([0, 1, 1, 2])):
            kind = self.pick(["filter", "expression", "hop"])
            clause = self.hop(inside, depth) if kind == "hop" and self.variables < _MOST_VARIABLES else None
            if kind == "expression":
                clause = Where(self.condition(inside, depth))
            self.add(inside, clause or self.filter(inside))
        known = scope.types()
        binds = [name for name in inside.types() if name not in known]
        clause = Maybe(tuple(inside.clauses))
        if not binds or not self.fits(scope, clause):
            self.variables = before
            return None
        scope.optional.update(binds)
        return clause

    def condition(self, scope: Scope, depth: int) -> Expression:
        """Any condition that may stand between two variables: a bare `true` would be an edge there."""
        found = self.expression(scope, "Bool", depth)
        return Unary("not", found) if isinstance(found, Literal) else found

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

    # ---- bindings

    def new_variable(self, scope: Scope, depth: int) -> str:
        """A name for a node; sometimes none."""
        self.variables += 1
        if self.chance(6) and (depth or scope.nodes):
            return ANONYMOUS
        free = [name for name in _VARIABLE_NAMES[depth] if name not in scope.nodes]
        return free[0] if free else ANONYMOUS

    def type_names(self) -> tuple[str, ...]:
        """One type, several, or an interface."""
        names = list(self.shape.nodes)
        match self.pick(["one"] * 5 + ["two", "interface", "mixed"]):
            case "two":
                return tuple(self.draw(st.permutations(names))[:2])
            case "interface":
                return (self.pick(["Named", "Named", "Named", "Unused"]),)
            case "mixed":
                return ("Named", self.pick(names))
        return (self.pick(names),)

    def binding(self, scope: Scope, depth: int) -> Bind:
        types = self.type_names()
        members = self.shape.members(types)
        self.variables += len(members) > 1
        return Bind(self.new_variable(scope, depth), types, self.inline(members))

    def binding_again(self, scope: Scope) -> Bind | None:
        known = [
            name
            for name, members in scope.nodes.items()
            if len(members) == 1 and scope.declared.get(name, members) == members and name not in scope.every_optional
        ]
        if not known:
            return None
        variable = self.pick(known)
        members = scope.nodes[variable]
        clause = Bind(variable, members, self.inline(members))
        return clause if self.fits(scope, clause) else None

    def inline(self, members: Members) -> tuple[tuple[str, Value], ...]:
        items = [item for item in self.shape.common(members).values() if item.scalar or item.item]
        if not items:
            return ()
        count = self.pick([0, 0, 0, 0, 0, 1, 1, 2])
        chosen = [self.pick([item for item in items if self.is_plain(members, item)] or items) for _ in range(count)]
        return tuple((item.name, self.inline_value(members, item)) for item in chosen if self.is_plain(members, item))

    def is_plain(self, members: Members, item: PropertyShape) -> bool:
        """Whether all types write the type of a property alike: an enum beside a text is left to persons."""
        return all(self.shape.properties(type_)[item.name].type == item.type for type_ in members)

    def inline_value(self, members: Members, item: PropertyShape) -> Value:
        scalar = scalar_of(item)
        if scalar == "DateTime" and self.chance(6):
            return Now()
        return self.constant(scalar, self.pool(members, item))

    # ---- traversals

    def some_hop(self, scope: Scope, depth: int, *, from_known: bool = False) -> Hop:
        """A traversal of any form, or else a plain one."""
        found = self.hop(scope, depth, from_known=from_known)
        if found is not None:
            return found
        starts = scope.starts() if from_known else []
        if not starts:
            edge = self.pick(list(self.shape.edges.values()))
            left = self.new_variable(scope, depth)
            return Hop(left, (self.word(edge),), ANONYMOUS)
        start = self.pick(starts)
        edge = self.pick(self.edges_at(scope.nodes[start]))
        return Hop(start, (self.word(edge),), ANONYMOUS)

    def hop(self, scope: Scope, depth: int, *, from_known: bool = False) -> Hop | None:
        """A traversal: from a known variable, between two known ones, or between new ones; None where it fits not."""
        before = self.variables, self.edge_variables
        starts: list[str | None] = [*scope.starts()]
        # Over two new variables only while there is room for them.
        if not from_known and (self.variables + 2 <= _MOST_VARIABLES or not starts):
            starts.append(None)
        if not starts:
            return None
        start = self.pick(starts)
        found = self.fresh_hop(scope, depth) if start is None else self.hop_from(scope, depth, start)
        # Which edge a name is bound to does not matter here, so it is only asked without bounds.
        if found.bounds is None:
            match self.pick(["plain", "plain", "edge", "edge", "anonymous edge"]):
                case "edge":
                    found = replace(found, edge_variable=f"w{self.edge_variables}")
                    self.edge_variables += 1
                case "anonymous edge":
                    found = replace(found, edge_variable=ANONYMOUS)
        if self.fits(scope, found):
            return found
        self.variables, self.edge_variables = before
        return None

    def path(self, scope: Scope, depth: int, *, from_known: bool = False) -> PathOf | None:
        """`path $t0 = shortest|all …`: few hops where all of them are asked for."""
        starts = scope.starts()
        if not starts:
            return None
        before = self.variables
        hop = self.hop_from(scope, depth, self.pick(starts))
        choice = self.pick(["shortest", "all"])
        bounds = self.pick([(1, 2), (1, 3), (2, 3), (1, 1), None])
        if choice == "shortest" and bounds is not None:
            bounds = self.pick([bounds, *_BOUNDS])
        name = f"t{self.edge_variables}"
        found = PathOf(name, choice, self.typed_end(scope, replace(hop, bounds=bounds, types=(), matches=())))
        if not self.fits(scope, found):
            self.variables = before
            return None
        self.edge_variables += 1
        return found

    def word(self, edge: EdgeShape) -> str:
        word = edge.name[0].lower() + edge.name[1:]
        return str(self.pick([word, word, edge.name.lower()]))

    def edges_at(self, members: Members) -> list[EdgeShape]:
        """The edge types that begin or end at one of these types."""
        return [edge for edge in self.shape.edges.values() if {edge.source, edge.target} & set(members)]

    def words(self, edges: list[EdgeShape]) -> tuple[str, ...]:
        """One edge type, several of them, or all."""
        match self.pick(["one"] * 6 + ["two", "two", "three", "all"]):
            case "two":
                edges = self.draw(st.permutations(edges))[:2]
            case "three":
                edges = self.draw(st.permutations(edges))[:3]
            case "all":
                return ()
            case _:
                edges = [self.pick(edges)]
        return tuple(map(self.word, edges))

    def fresh_hop(self, scope: Scope, depth: int) -> Hop:
        """A traversal between two new variables, which is read forward."""
        edges = list(self.shape.edges.values())
        words = self.words(edges) or (self.word(edges[0]),)
        left = self.new_variable(scope, depth)
        taken = scope.child()
        taken.nodes.setdefault(left, ())
        right = self.new_variable(taken, depth)
        return self.finished(scope, Hop(left, words, right))

    def hop_from(self, scope: Scope, depth: int, start: str) -> Hop:
        words = self.words(self.edges_at(scope.nodes[start]))
        candidates = [name for name in scope.starts() if name != start or self.chance(4)]
        if candidates and (self.variables >= _MOST_VARIABLES or self.chance(4)):
            other = self.pick(candidates)
        else:
            other = self.new_variable(scope, depth)
        left, right = (other, start) if self.chance(3) else (start, other)
        return self.finished(scope, Hop(left, words, right))

    def finished(self, scope: Scope, hop: Hop) -> Hop:
        """A traversal with bounds, a direction, conditions, and the type of its right end."""
        edges = [self.shape.edge(word) for word in hop.words]
        is_loop = any(edge.is_loop for edge in edges) or len(edges) != 1
        bounds = None
        if self.chance(4):
            bounds = self.pick(_BOUNDS if is_loop or self.chance(4) else _BOUNDS[:2])
        undirected = self.chance(4 if is_loop else 8)
        condition = self.hop_condition(edges) if edges and self.chance(6) else None
        return self.typed_end(scope, replace(hop, bounds=bounds, undirected=undirected, condition=condition))

    def typed_end(self, scope: Scope, hop: Hop) -> Hop:
        """A traversal whose right end has a type where it needs one, and sometimes elsewhere."""
        edges = [self.shape.edge(word) for word in hop.words] or list(self.shape.edges.values())
        is_long = hop.bounds is not None and hop.bounds[1] > 1
        needs_type = not hop.words or (hop.undirected and is_long and any(not edge.is_loop for edge in edges))
        if hop.right == hop.left or hop.right in scope.types() or not (needs_type or self.chance(8)):
            return hop
        ends = sorted({end for edge in edges for end in (edge.source, edge.target)})
        types = (self.pick(ends),) if self.chance(2) else tuple(self.draw(st.permutations(ends))[:2])
        return replace(hop, types=types, matches=self.inline(self.shape.members(types)))

    def hop_condition(self, edges: list[EdgeShape]) -> Expression | None:
        """A condition over properties that all edges have, which stand there bare."""
        members = tuple(edge.name for edge in edges)
        inside = Scope(edges={_EDGE: members})
        found = self.comparison(inside)
        if found is None:
            return None
        condition = found.condition
        nullable = inside.properties(lambda item: item.nullable)
        if nullable and self.chance(3):
            condition = IsNull(self.pick(nullable)[0], self.chance(2))
        bare: Expression = rewritten(condition, lambda part: Column(part.name) if isinstance(part, Property) else None)
        return bare

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
                right = self.constant(scalar, self.pool(scope.types()[left.variable], item))
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
        pool = self.pool(scope.types()[left.variable], item) if item else None
        return compared(left, "contains", self.constant(scalar, pool))

    def constant_filter(self) -> Where:
        """A condition about no variable."""
        scalar = self.pick(list(POOLS))
        left, right = self.constant(scalar), self.constant(scalar)
        return compared(left, self.pick(OPERATORS), right)
