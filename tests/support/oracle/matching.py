"""What `match` means: every choice of entities for the variables that makes all clauses true.

Declarative on purpose: nested loops over all entities of a type, and a condition is looked at as soon as its variables
have entities. The open points are listed in `evaluation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from support.oracle import text as words
from support.oracle.aggregates import aggregated
from support.oracle.graphs import EdgeShape, Row, Shape, World, f32
from support.oracle.kinds import Known, Types
from support.oracle.queries import (
    ANONYMOUS,
    ARITHMETIC,
    Aggregate,
    Binary,
    Bind,
    Case,
    Clause,
    Column,
    Exists,
    Expression,
    Function,
    Hop,
    IsNull,
    Let,
    ListOf,
    Literal,
    Named,
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

#: A row of a match: the entity of every variable.
Match = dict[str, "Row"]

FUZZY_EDITS = 2
#: Where a row of results has its columns, for `having` and order keys.
COLUMNS = "="


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


def named(node: Any) -> Any:
    """A query or its clauses with a name for every anonymous node, and without anonymous edges.

    Such names begin with an underscore.
    """
    count = 0

    def name_of(variable: str) -> str:
        nonlocal count
        if variable != ANONYMOUS:
            return variable
        count += 1
        return f"_{count}"

    def change(part: Any) -> Any:
        match part:
            case Bind(variable):
                return replace(part, variable=name_of(variable))
            case Hop(left, _, right, edge_variable):
                bound = None if edge_variable == ANONYMOUS else edge_variable
                return replace(part, edge_variable=bound, left=name_of(left), right=name_of(right))
        return None

    return rewritten(node, change)


def substituted(node: Any, lets: Mapping[str, Expression]) -> Any:
    """The same with the expressions of `let` where their names are used."""

    def change(part: Any) -> Any:
        match part:
            case Named(name):
                return substituted(lets[name], lets)
            case Exists(clauses):
                return replace(part, clauses=without_lets(clauses, lets))
            case Aggregate(argument=argument, order=order, clauses=tuple(clauses)):
                inside = lets_of(clauses, lets)
                return replace(
                    part,
                    argument=substituted(argument, inside),
                    order=substituted(order, inside),
                    clauses=without_lets(clauses, lets),
                )
        return None

    return rewritten(node, change)


def lets_of(clauses: Iterable[Clause], lets: Mapping[str, Expression]) -> dict[str, Expression]:
    """The names of `let` that a block sees."""
    return {**lets, **{clause.name: clause.expression for clause in clauses if isinstance(clause, Let)}}


def without_lets(clauses: Iterable[Clause], lets: Mapping[str, Expression]) -> tuple[Clause, ...]:
    """The clauses of a block with what is named put in its places."""
    clauses = tuple(clauses)
    known = lets_of(clauses, lets)
    return tuple(substituted(clause, known) for clause in clauses if not isinstance(clause, Let))


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
    edges = {str(link.hop.edge_variable): link.edge.name for link in links if link.hop.edge_variable}
    return Block(clauses, {**types, **edges}, own, links)


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
        self.shape = shape
        self._params = params
        self._param_types = param_types
        self._now = now
        self._reach: dict[tuple[str, bool, str], dict[str, int]] = {}
        self._blocks: dict[tuple[int, frozenset[tuple[str, str]]], Block] = {}
        #: Whether a value was made although a part of it overflowed.
        self.is_doubtful = False

    def types(self, variables: Mapping[str, str], columns: Mapping[str, str] | None = None) -> Types:
        """The types of expressions over variables, or over result columns."""
        return Types(self.shape, variables, self._param_types, columns or {}, self._inside)

    def _inside(self, node: Aggregate, types: Types) -> Types:
        return self.types(self._block(node, types).types)

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
        types = self.types(block.types)
        for clause in block.clauses:
            match clause:
                case Bind(variable, _, matches):
                    for name, value in matches:
                        item = self.shape.properties(block.types[variable])[name].item
                        operator = "=" if item is None else "contains"
                        yield self._condition(Binary(Property(variable, name), operator, value), types)
                case Where(condition):
                    yield self._condition(condition, types)
        for link in block.links:
            if not link.hop.edge_variable:
                needs = frozenset({link.source, link.target})
                yield _Condition(needs, lambda row, link=link: self._reaches(link, row))

    def _condition(self, expression: Expression, types: Types) -> _Condition:
        needs = frozenset(variables_of(expression)) & frozenset(types.variables)
        return _Condition(needs, lambda row: self.value(expression, row, types) is True)

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
        return sorted(found, key=lambda match: [match[name]["id"] for name in names])

    # ---- values

    def value(self, expression: Expression, row: Match, types: Types) -> Any:
        """The value of an expression; None is null."""
        match expression:
            case Property(variable, name):
                return row[variable][name.removeprefix("@")] if name != "@type" else types.variables[variable]
            case Variable(name):
                return row[name]["id"]
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
        given = [plain(value) for value in given]
        if name in ("least", "greatest"):
            given = [converted(value, type_) for value in given]
            return None if None in given else (min if name == "least" else max)(given)
        if name == "string":
            return spelled(given[0], types.of(arguments[0]))
        found = FUNCTIONS[name](*given)
        return found if isinstance(found, Approximate) else converted(found, type_)

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
