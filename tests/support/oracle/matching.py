"""What `match` means: every choice of entities for the variables that makes all clauses true.

Declarative on purpose: nested loops over all entities of a type, and a condition is looked at as soon as its variables
have entities. The open points are listed in `oracle`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, assert_never

from support.oracle import text as words
from support.oracle.graphs import EdgeShape, Row, Shape, World, f32
from support.oracle.queries import (
    ANONYMOUS,
    Bind,
    Clause,
    Expression,
    Hop,
    ListOf,
    Literal,
    Not,
    Now,
    Parameter,
    Property,
    Text,
    Variable,
    Where,
    variables_of,
)

#: A row of a match: the entity of every variable.
Match = dict[str, "Row"]

FUZZY_EDITS = 2


# ---- comparisons


def compare(left: Any, operator: str, right: Any) -> bool | None:
    """`left operator right`; None is unknown. Python compares integers and floats by their exact values."""
    if left is None or right is None:
        return None
    match operator:
        case "=":
            return bool(left == right)
        case "!=":
            return bool(left != right)
        case "<":
            return bool(left < right)
        case "<=":
            return bool(left <= right)
        case ">":
            return bool(left > right)
        case ">=":
            return bool(left >= right)
        case "contains" if isinstance(left, list):
            return any(item is not None and item == right for item in left)
        case "contains":
            return right in left
        case "starts_with":
            return bool(left.startswith(right))
    raise ValueError(f"there is no operator {operator}")


def rounded(value: Any) -> Any:
    """A number, or every number of a list, as 32 bits hold it."""
    if isinstance(value, list):
        return [rounded(part) for part in value]
    return value if value is None else f32(value)


# ---- reach


def distances(edges: Iterable[Row], start: str, *, is_loop: bool, undirected: bool) -> dict[str, int]:
    """The hop at which each node is reached first from `start`; the start itself only over a self-loop."""
    pairs = {(row["src"], row["dst"]) for row in edges}
    if undirected:
        pairs |= {(dst, src) for src, dst in pairs}
    if not is_loop:
        # Ids of the other type mean nothing here: there is one hop.
        return {dst: 1 for src, dst in pairs if src == start}
    found = {start: 1} if (start, start) in pairs else {}
    visited, frontier, hop = {start}, {start}, 0
    while frontier:
        hop += 1
        frontier = {dst for src, dst in pairs if src in frontier} - visited
        visited |= frontier
        found |= dict.fromkeys(frontier, hop)
    return found


# ---- blocks


@dataclass(frozen=True, slots=True)
class _Link:
    """A traversal with its direction resolved: from `source` to `target` along the stored edges."""

    hop: Hop
    edge: EdgeShape
    source: str
    target: str

    @property
    def bounds(self) -> tuple[int, int]:
        return self.hop.bounds or (1, 1)


@dataclass(frozen=True, slots=True)
class Block:
    """The clauses between two braces, with a type for every variable."""

    clauses: tuple[Clause, ...]
    #: The type of every variable that the block sees, edges included.
    types: dict[str, str]
    #: Node variables that the block introduces.
    own: dict[str, str]
    links: tuple[_Link, ...]
    inner: tuple[Block, ...]


class _Names:
    """Every `$_` gets a name of its own; such names begin with an underscore."""

    def __init__(self) -> None:
        self._count = 0

    def named(self, clauses: Iterable[Clause]) -> tuple[Clause, ...]:
        return tuple(map(self._named, clauses))

    def _named(self, clause: Clause) -> Clause:
        match clause:
            case Bind(variable):
                return replace(clause, variable=self._name(variable))
            case Hop(left, _, right, edge_variable):
                bound = None if edge_variable == ANONYMOUS else edge_variable
                ends = {"left": self._name(left), "right": self._name(right)}
                return replace(clause, edge_variable=bound, **ends)
            case Not(clauses):
                return Not(self.named(clauses))
        return clause

    def _name(self, variable: str) -> str:
        if variable != ANONYMOUS:
            return variable
        self._count += 1
        return f"_{self._count}"


def named_clauses(clauses: Iterable[Clause]) -> tuple[Clause, ...]:
    """The clauses with a name for every anonymous node, and without anonymous edges."""
    return _Names().named(clauses)


def is_hidden(variable: str) -> bool:
    return variable.startswith("_")


def types_of(shape: Shape, clauses: Iterable[Clause], outer: Mapping[str, str]) -> dict[str, str] | None:
    """The type of every node variable that a block sees; None when there is none that fits."""
    try:
        return _links(shape, tuple(clauses), outer)[0]
    except _MisfitError:
        return None


class _MisfitError(Exception):
    """A variable would need two types."""


def resolve(shape: Shape, clauses: tuple[Clause, ...], outer: Mapping[str, str]) -> Block:
    types, links = _links(shape, clauses, outer)
    own = {name: type_ for name, type_ in types.items() if name not in outer}
    edges = {str(link.hop.edge_variable): link.edge.name for link in links}
    seen = {**types, **edges}
    inner = tuple(resolve(shape, c.clauses, seen) for c in clauses if isinstance(c, Not))
    return Block(clauses, seen, own, links, inner)


def _links(
    shape: Shape, clauses: tuple[Clause, ...], outer: Mapping[str, str]
) -> tuple[dict[str, str], tuple[_Link, ...]]:
    """Types and directions of a block. Bindings come first, then traversals as their ends become known."""
    bound = {clause.variable: clause.type for clause in clauses if isinstance(clause, Bind)}
    types = {**outer, **bound}
    links: list[_Link] = []
    waiting = [clause for clause in clauses if isinstance(clause, Hop)]
    while waiting:
        hop = next((h for h in waiting if h.left in types or h.right in types), waiting[0])
        waiting.remove(hop)
        edge = shape.edge(hop.word)
        left, right = types.get(hop.left), types.get(hop.right)
        if left in (None, edge.source) and right in (None, edge.target):
            link = _Link(hop, edge, hop.left, hop.right)
        else:
            link = _Link(hop, edge, hop.right, hop.left)
        for variable, type_ in ((link.source, edge.source), (link.target, edge.target)):
            if types.setdefault(variable, type_) != type_:
                raise _MisfitError(f"${variable} is a {types[variable]}, not a {type_}")
        links.append(link)
    return types, tuple(links)


def _introduced(block: Block) -> set[str]:
    """Variables that a block and the blocks inside it introduce."""
    names = set(block.own) | {str(link.hop.edge_variable) for link in block.links}
    return names.union(*map(_introduced, block.inner))


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
        self.world = world
        self._shape = shape
        self._params = params
        self._param_types = param_types
        self._now = now
        self._reach: dict[tuple[str, bool, str], dict[str, int]] = {}

    # ---- match

    def matches(self, block: Block, outer: Match) -> Iterator[Match]:
        """Every way to give the block's own variables entities such that all clauses are true."""
        slots: list[tuple[str, Callable[[Match], Iterable[Row]]]] = [
            (name, lambda _, type_=type_: self.world[type_]) for name, type_ in block.own.items()
        ]
        slots += [
            (str(link.hop.edge_variable), lambda row, link=link: self._edges(link, row))
            for link in block.links
            if link.hop.edge_variable
        ]
        pending = list(self._conditions(block))
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
        slots: Sequence[tuple[str, Callable[[Match], Iterable[Row]]]],
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
        for clause in block.clauses:
            match clause:
                case Bind(variable, _, matches):
                    for name, value in matches:
                        field = Property(variable, name)
                        item = self._shape.properties(block.types[variable])[name].item
                        operator = "=" if item is None else "contains"
                        yield self._comparison(block, Where(field, operator, value))
                case Where():
                    yield self._comparison(block, clause)
                case Text():
                    needs = frozenset(variables_of([clause]))
                    yield _Condition(needs, lambda row, clause=clause: self._reads(clause, row))
                case Hop() | Not():
                    pass
                case _:
                    assert_never(clause)
        for link in block.links:
            if not link.hop.edge_variable:
                needs = frozenset({link.source, link.target})
                yield _Condition(needs, lambda row, link=link: self._reaches(link, row))
        for inner in block.inner:
            needs = frozenset(variables_of(inner.clauses)) - _introduced(inner)
            yield _Condition(needs, lambda row, inner=inner: self._has_none(inner, row))

    def _has_none(self, block: Block, row: Match) -> bool:
        return next(self.matches(block, row), None) is None

    def _comparison(self, block: Block, clause: Where) -> _Condition:
        """A comparison; a number that stands in the query is rounded to 32 bits beside one that has 32 bits."""
        sides = (clause.left, clause.right)
        narrow = [
            isinstance(side, Parameter | Literal | ListOf) and self._is_narrow(block, other)
            for side, other in zip(sides, reversed(sides), strict=True)
        ]

        def holds(row: Match) -> bool:
            left, right = (
                rounded(self.value(side, row)) if is_narrow else self.value(side, row)
                for side, is_narrow in zip(sides, narrow, strict=True)
            )
            return compare(left, clause.operator, right) is True

        return _Condition(frozenset(variables_of([clause])), holds)

    def _is_narrow(self, block: Block, expression: Expression) -> bool:
        """Whether an operand is a 32-bit float, or a list of them."""
        match expression:
            case Property(variable, name):
                shape = self._shape.properties(block.types[variable])[name]
                return "F32" in (shape.scalar, shape.item)
            case Parameter(name):
                return self._param_types[name].strip("[]?") == "F32"
        return False

    def _edges(self, link: _Link, row: Match) -> Iterator[Row]:
        """The stored edges between two entities."""
        ends = row[link.source]["id"], row[link.target]["id"]
        for edge in self.world[link.edge.name]:
            stored = edge["src"], edge["dst"]
            if stored == ends or (link.hop.undirected and stored[::-1] == ends):
                yield edge

    def _reaches(self, link: _Link, row: Match) -> bool:
        source, target = row[link.source]["id"], row[link.target]["id"]
        key = link.edge.name, link.hop.undirected, source
        if key not in self._reach:
            self._reach[key] = distances(
                self.world[link.edge.name], source, is_loop=link.edge.is_loop, undirected=link.hop.undirected
            )
        low, high = link.bounds
        return low <= self._reach[key].get(target, 0) <= high

    def _reads(self, clause: Text, row: Match) -> bool:
        value, query = self.value(clause.field, row), self.value(clause.query, row)
        if value is None or query is None:
            return False
        match clause.function:
            case "search":
                return words.searches(value, query)
            case "match_text":
                return words.matches_text(value, query)
        edits = FUZZY_EDITS if clause.edits is None else self.value(clause.edits, row)
        return words.is_similar(value, query, edits)

    def value(self, expression: Expression, row: Match) -> Any:
        """The value of an expression; None is null."""
        match expression:
            case Property(variable, name):
                return row[variable][name]
            case Variable(name):
                return row[name]["id"]
            case Parameter(name):
                return self._params[name]
            case Literal(value):
                return value
            case ListOf(items):
                values = [item.value for item in items]
                has_float = any(isinstance(value, float) for value in values)
                return [float(v) for v in values] if has_float else values
            case Now():
                return self._now
        raise ValueError(f"{expression} is no value")
