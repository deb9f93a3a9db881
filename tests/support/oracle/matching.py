"""What `match` means: every choice of entities for the variables that makes all clauses true.

Declarative on purpose: nested loops over all entities of a type, and a condition is looked at as soon as its variables
have entities. The open points are listed in `evaluation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from support.oracle import text as words
from support.oracle.aggregates import aggregated
from support.oracle.graphs import Row, Shape, World, f32
from support.oracle.kinds import Known, Types
from support.oracle.patterns import PATH, Block, Link, is_hidden, resolve
from support.oracle.queries import (
    ARITHMETIC,
    Aggregate,
    Binary,
    Bind,
    Case,
    Column,
    Exists,
    Expression,
    Function,
    Hop,
    IsNull,
    ListOf,
    Literal,
    Now,
    Parameter,
    Property,
    Text,
    Unary,
    Variable,
    Where,
    rewritten,
    variables_of,
)
from support.oracle.values import (
    FUNCTIONS,
    OVERFLOW,
    Approximate,
    Identity,
    UndeterminedError,
    calculate,
    compare,
    converted,
    joined,
    negative,
    opposite,
    plain,
    spelled,
)


@dataclass(frozen=True, order=True, slots=True)
class Walked:
    """A path: its edges, the smallest of which make the smallest path, and the nodes that they join."""

    edges: tuple[Identity, ...]
    nodes: tuple[Identity, ...] = field(compare=False)

    @property
    def place(self) -> tuple[str, ...]:
        """What it is ordered by."""
        return tuple(edge.id for edge in self.edges)

    @property
    def steps(self) -> list[dict[str, str | None]]:
        """The path as a result shows it."""
        edges = (None, *self.edges)
        return [
            {
                "node": node.id,
                "node_type": node.type,
                "edge": None if edge is None else edge.id,
                "edge_type": None if edge is None else edge.type,
            }
            for node, edge in zip(self.nodes, edges, strict=True)
        ]


#: A row of a match: the entity of every variable, or its path; None where an optional block has no solution.
Match = dict[str, Any]

FUZZY_EDITS = 2
#: The system fields that a stored row has under another name.
_SYSTEM = {"@id": "id", "@src": "src", "@dst": "dst"}
#: Where a row of results has its columns, for `having` and order keys.
COLUMNS = "="
#: The variable of the edge that the condition of a hop is about.
_EDGE = "~edge"


def rounded(value: Any) -> Any:
    """A number, or every number of a list, as 32 bits hold it."""
    if isinstance(value, list):
        return [rounded(part) for part in value]
    return value if value is None else f32(value)


def identity(entity: Row) -> Identity:
    """What makes an entity the same as another."""
    return Identity(entity["id"], entity["@type"])


def place_of(found: Any) -> tuple[Any, ...]:
    """Where an entity or a path stands among others: nothing first, then by ids, then by types."""
    if found is None:
        return ()
    if isinstance(found, Walked):
        return found.place, tuple(edge.type for edge in found.edges)
    return found["id"], found["@type"]


@dataclass(frozen=True, slots=True)
class _Condition:
    """Something that has to hold once these variables have entities."""

    needs: frozenset[str]
    holds: Callable[[Match], bool]


class Matcher:
    """One query over one world, with values for its parameters."""

    def __init__(
        self, shape: Shape, world: World, params: dict[str, Any], param_types: Mapping[str, str], now: datetime
    ) -> None:
        self.world = {type_: [{**row, "@type": type_} for row in rows] for type_, rows in world.items()}
        self.shape = shape
        self._params = params
        self._param_types = param_types
        self._now = now
        self._reach: dict[tuple[int, Identity], dict[Identity, int]] = {}
        self._blocks: dict[tuple[int, frozenset[tuple[str, tuple[str, ...]]]], Block] = {}
        #: Whether a value was made although a part of it overflowed.
        self.is_doubtful = False

    def types(self, variables: Mapping[str, tuple[str, ...]], columns: Mapping[str, str] | None = None) -> Types:
        """The types of expressions over variables, or over result columns."""
        return Types(self.shape, variables, self._param_types, columns or {}, self._inside)

    def _inside(self, node: Aggregate, types: Types) -> Types:
        return self.types(self._block(node, types).types)

    # ---- match

    def matches(self, block: Block, outer: Match) -> Iterator[Match]:
        """Every way to give the block's own variables entities such that all clauses are true.

        Optional parts come one after the other, then the conditions about what they found.
        """
        conditions = list(self._conditions(block))
        late = [item for item in conditions if item.needs & block.optional]
        rows = self._mandatory(block, outer, [item for item in conditions if item not in late])
        for inner in block.optionals:
            rows = self._with_optional(inner, rows)
        return (row for row in rows if all(condition.holds(row) for condition in late))

    def _with_optional(self, block: Block, rows: Iterable[Match]) -> Iterator[Match]:
        """Each row with the solutions of a block, or with nothing for its variables."""
        for row in rows:
            found = list(self.matches(block, row))
            yield from found or [{**row, **dict.fromkeys(block.types.keys() - row.keys())}]

    def _mandatory(self, block: Block, outer: Match, pending: list[_Condition]) -> Iterator[Match]:
        slots: list[tuple[str, Callable[[Match], Iterable[Any]]]] = [
            (name, lambda _, types=types: [row for type_ in types for row in self.world[type_]])
            for name, types in block.own.items()
        ]
        for link in block.links:
            if link.path is not None:
                slots.append((link.path.name, lambda row, link=link: self._paths(link, row)))
            elif link.hop.edge_variable:
                slots.append((link.hop.edge_variable, lambda row, link=link: self._edges(link, row)))
        known = set(outer)
        due: list[list[_Condition]] = []
        for name in ("", *(name for name, _ in slots)):
            known.add(name)
            due.append([item for item in pending if item.needs <= known])
            pending = [item for item in pending if not item.needs <= known]
        assert not pending, "every variable of a condition is bound"
        return self._choose(slots, due, 0, dict(outer))

    def _choose(
        self,
        slots: Sequence[tuple[str, Callable[[Match], Iterable[Any]]]],
        due: Sequence[Sequence[_Condition]],
        at: int,
        row: Match,
    ) -> Iterator[Match]:
        if not all(condition.holds(row) for condition in due[at]):
            return
        if at == len(slots):
            yield row
            return
        name, candidates = slots[at]
        for entity in candidates(row):
            yield from self._choose(slots, due, at + 1, {**row, name: entity})

    def _conditions(self, block: Block) -> Iterator[_Condition]:
        types = self.types(block.types)
        for bind in block.bindings:
            yield from self._bound(bind, types)
        for clause in block.clauses:
            if isinstance(clause, Where):
                yield self._condition(clause.condition, types)
        for link in block.links:
            if link.path is None and not link.hop.edge_variable:
                needs = frozenset({link.hop.left, link.hop.right})
                yield _Condition(needs, lambda row, link=link: self._reaches(link, row))

    def _bound(self, bind: Bind, types: Types) -> Iterator[_Condition]:
        yield _Condition(frozenset({bind.variable}), lambda row: row[bind.variable] is not None)
        properties = self.shape.common(types.variables[bind.variable])
        for name, value in bind.matches:
            operator = "=" if properties[name].item is None else "contains"
            yield self._condition(Binary(Property(bind.variable, name), operator, value), types)

    def _condition(self, expression: Expression, types: Types) -> _Condition:
        needs = frozenset(variables_of(expression)) & frozenset(types.variables)
        return _Condition(needs, lambda row: self.value(expression, row, types) is True)

    # ---- reach

    def _hops(self, link: Link, node: Identity) -> Iterator[tuple[Identity, Identity]]:
        """The edges that a traversal may follow from a node, each with where it leads; a loop comes twice both ways."""
        for step in link.steps:
            begin, end = ("src", "dst") if step.is_forward else ("dst", "src")
            for edge in self.world[step.edge.name] if step.source == node.type else ():
                if edge[begin] == node.id and self._may_follow(link.hop, edge):
                    yield identity(edge), Identity(edge[end], step.target)

    def _may_follow(self, hop: Hop, edge: Row) -> bool:
        """Whether the condition of a hop is true for an edge; its columns are those of all edges that are named."""
        if hop.condition is None:
            return True
        named = tuple(self.shape.edge(word).name for word in hop.words)
        types = self.types({_EDGE: named})
        condition = rewritten(
            hop.condition, lambda part: Property(_EDGE, part.name) if isinstance(part, Column) else None
        )
        return self.value(condition, {_EDGE: edge}, types) is True

    def _distances(self, link: Link, start: Identity) -> dict[Identity, int]:
        """The hop at which each node is reached first; the start itself only over a self-loop."""
        key = id(link), start
        if key not in self._reach:
            found = {start: 1} if any(node == start for _, node in self._hops(link, start)) else {}
            visited, frontier, hop = {start}, {start}, 0
            while frontier and hop < link.bounds[1]:
                hop += 1
                frontier = {there for here in frontier for _, there in self._hops(link, here)} - visited
                visited |= frontier
                found |= dict.fromkeys(frontier, hop)
            self._reach[key] = found
        return self._reach[key]

    def _reaches(self, link: Link, row: Match) -> bool:
        source, target = row[link.hop.left], row[link.hop.right]
        if source is None or target is None:
            return False
        low, high = link.bounds
        return low <= self._distances(link, identity(source)).get(identity(target), 0) <= high

    def _edges(self, link: Link, row: Match) -> Iterator[Row]:
        """The stored edges between two entities."""
        source, target = row[link.hop.left], row[link.hop.right]
        if source is None or target is None:
            return
        found = {edge for edge, node in self._hops(link, identity(source)) if node == identity(target)}
        for type_ in sorted({edge.type for edge in found}):
            yield from (edge for edge in self.world[type_] if identity(edge) in found)

    def _paths(self, link: Link, row: Match) -> list[Walked]:
        source, target = row[link.hop.left], row[link.hop.right]
        if source is None or target is None or link.path is None:
            return []
        start, end = identity(source), identity(target)
        low, high = link.bounds
        if link.path.choice == "all":
            return self._trails(link, Walked((), (start,)), end, low, high)
        distance = self._distances(link, start).get(end, 0)
        if not low <= distance <= high:
            return []
        # A walk that is as short as any repeats nothing.
        equally_short = self._trails(link, Walked((), (start,)), end, distance, distance)
        return [min(equally_short)]

    def _trails(self, link: Link, begun: Walked, end: Identity, low: int, high: int) -> list[Walked]:
        """Every path that goes on from one, follows no edge twice, and comes to an end."""
        length = len(begun.edges)
        found = [begun] if low <= length <= high and begun.nodes[-1] == end else []
        if length < high:
            # A loop that may be followed both ways is one edge.
            for edge, node in sorted(set(self._hops(link, begun.nodes[-1]))):
                if edge not in begun.edges:
                    longer = Walked((*begun.edges, edge), (*begun.nodes, node))
                    found += self._trails(link, longer, end, low, high)
        return found

    # ---- blocks inside of expressions

    def _block(self, node: Exists | Aggregate, types: Types) -> Block:
        key = id(node), frozenset(types.variables.items())
        if key not in self._blocks:
            assert node.clauses is not None, "a block has clauses"
            self._blocks[key] = resolve(self.shape, node.clauses, types.variables)
        return self._blocks[key]

    def _exists(self, node: Exists, row: Match, types: Types) -> bool:
        found = next(self.matches(self._block(node, types), row), None)
        return (found is None) == node.negated

    def _block_value(self, node: Aggregate, row: Match, types: Types) -> Any:
        block = self._block(node, types)
        inside = self._inside(node, types)
        rows = self.by_ids(self.matches(block, row))
        return aggregated(node, rows, lambda expression, found: self.value(expression, found, inside))

    def by_ids(self, matches: Iterable[Match]) -> list[Match]:
        """Matches in the order of the ids of all their variables."""
        found = list(matches)
        names = sorted(name for name in (found[0] if found else ()) if not is_hidden(name))
        return sorted(found, key=lambda match: [place_of(match[name]) for name in names])

    # ---- values

    def value(self, expression: Expression, row: Match, types: Types) -> Any:
        """The value of an expression; None is null."""
        match expression:
            case Property(variable, name):
                return None if row[variable] is None else row[variable][_SYSTEM.get(name, name)]
            case Variable(name) if types.variables[name] == PATH:
                return row[name]
            case Variable(name):
                return None if row[name] is None else identity(row[name])
            case Parameter(name):
                return self._params[name]
            case Literal(value) | Known(value):
                return value
            case Column(name):
                return row[COLUMNS][name]
            case ListOf(items):
                return self._side_by_side(items, types.of(expression)[1:-1], row, types)
            case Now():
                return self._now
            case Binary(left, operator, right):
                return self._binary(left, operator, right, row, types)
            case Unary(operator, operand):
                value = self.value(operand, row, types)
                return opposite(value) if operator == "not" else negative(value)
            case IsNull(operand, negated):
                value = self.value(operand, row, types)
                return OVERFLOW if value is OVERFLOW else (value is None) != negated
            case Case(branches, otherwise):
                return self._case(branches, otherwise, types.of(expression), row, types)
            case Function(name, arguments):
                return self._function(name, arguments, types.of(expression), row, types)
            case Text():
                return self._reads(expression, row, types)
            case Exists():
                return self._exists(expression, row, types)
            case Aggregate():
                return self._block_value(expression, row, types)
        raise ValueError(f"{expression} is no value")

    def _side_by_side(self, items: Iterable[Expression], type_: str, row: Match, types: Types) -> list[Any]:
        return [converted(self.value(item, row, types), type_) for item in items]

    def _binary(self, left: Expression, operator: str, right: Expression, row: Match, types: Types) -> Any:
        if operator in ("and", "or"):
            first, second = self.value(left, row, types), self.value(right, row, types)
            found = joined(operator, first, second)
            self.is_doubtful |= found is not OVERFLOW and OVERFLOW in (first, second)
            return found
        if operator in ARITHMETIC:
            return calculate(self.value(left, row, types), operator, self.value(right, row, types))
        return compare(self._side(left, right, row, types), operator, self._side(right, left, row, types))

    def _side(self, expression: Expression, other: Expression, row: Match, types: Types) -> Any:
        """One side of a comparison; a number that stands in the query is rounded beside one that has 32 bits."""
        is_narrow = isinstance(other, Property) and types.of(other).strip("[]") == "F32"
        if isinstance(expression, ListOf):
            # Elements keep their own types.
            return [self._side(item, other, row, types) for item in expression.items]
        value = self.value(expression, row, types)
        return rounded(value) if is_narrow and isinstance(expression, Literal) else value

    def _case(
        self,
        branches: Sequence[tuple[Expression, Expression]],
        otherwise: Expression | None,
        type_: str,
        row: Match,
        types: Types,
    ) -> Any:
        for test, value in branches:
            truth = self.value(test, row, types)
            if truth is OVERFLOW:
                return OVERFLOW
            if truth is True:
                return converted(self.value(value, row, types), type_)
        return None if otherwise is None else converted(self.value(otherwise, row, types), type_)

    def _function(self, name: str, arguments: Sequence[Expression], type_: str, row: Match, types: Types) -> Any:
        if name == "coalesce":
            for argument in arguments:
                value = converted(self.value(argument, row, types), type_)
                if value is not None:
                    return value
            return None
        given = [self.value(argument, row, types) for argument in arguments]
        if OVERFLOW in given:
            return OVERFLOW
        if None in given:
            return None
        if any(isinstance(value, Approximate) and not value.is_exact for value in given):
            raise UndeterminedError("a function of a float that is not known to the last digit")
        match given[0]:
            case Walked(edges) as path:
                return len(edges) if name == "length" else [part.id for part in getattr(path, name)]
            case Identity() as entity:
                return self._object(entity, arguments[0], row, types)
        given = [plain(value) for value in given]
        if name in ("least", "greatest"):
            given = [converted(value, type_) for value in given]
            return None if None in given else (min if name == "least" else max)(given)
        if name == "string":
            return spelled(given[0], types.of(arguments[0]))
        found = FUNCTIONS[name](*given)
        return found if isinstance(found, Approximate) else converted(found, type_)

    def _object(self, entity: Identity, written: Expression, row: Match, types: Types) -> dict[str, Any]:
        """`object($p)`: its id, its type if it may have several, and all properties but blobs and vectors."""
        assert isinstance(written, Variable), "only an entity is an object"
        members = types.variables[written.name]
        found: dict[str, Any] = {"@id": entity.id} | ({"@type": entity.type} if len(members) > 1 else {})
        for name, item in self.shape.common(members).items():
            if not item.type.startswith(("Vector", "Blob")):
                found[name] = row[written.name][name]
        return found

    def _reads(self, text: Text, row: Match, types: Types) -> bool | None:
        value, query = self.value(text.field, row, types), self.value(text.query, row, types)
        if value is None or query is None:
            return None
        match text.function:
            case "search":
                return words.searches(value, query)
            case "match_text":
                return words.matches_text(value, query)
        edits = FUZZY_EDITS if text.edits is None else self.value(text.edits, row, types)
        return words.is_similar(value, query, edits)
