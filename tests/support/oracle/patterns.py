"""Blocks of clauses with the types of their variables, and which way every traversal goes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from support.oracle.graphs import EdgeShape, Shape
from support.oracle.queries import (
    ANONYMOUS,
    Aggregate,
    Binary,
    Bind,
    Case,
    Clause,
    Exists,
    Expression,
    Hop,
    IsNull,
    Let,
    Maybe,
    Named,
    PathOf,
    Variable,
    rewritten,
)

#: The types of a variable, sorted; of a path it is this.
Members = tuple[str, ...]
PATH: Members = ("path",)


# ---- names


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


def is_hidden(variable: str) -> bool:
    """Whether a query does not spell a name."""
    return variable.startswith("_")


def substituted(node: Any, lets: Mapping[str, Expression]) -> Any:
    """The same with the expressions of `let` where their names are used."""

    def change(part: Any) -> Any:
        match part:
            case Named(name):
                return substituted(lets[name], lets)
            case Exists(clauses) | Maybe(clauses):
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
    found = dict(lets)
    for clause in clauses:
        match clause:
            case Let(name, expression):
                found[name] = expression
            case Maybe(inner):
                own = lets_of(inner, {})
                found |= {name: _where_found(inner, expression) for name, expression in own.items()}
    return found


def _where_found(clauses: tuple[Clause, ...], expression: Expression) -> Expression:
    """A value of an optional block: null where it has no solution, which is where one of its variables is null."""
    conditions = [IsNull(Variable(name), negated=True) for name in _bound_by(clauses)]
    whole: Expression = conditions[0]
    for condition in conditions[1:]:
        whole = Binary(whole, "and", condition)
    return Case(((whole, expression),))


def _bound_by(clauses: Iterable[Clause]) -> Iterator[str]:
    for clause in clauses:
        match clause:
            case Bind(variable):
                found = [variable]
            case Hop(left, _, right, edge_variable):
                found = [left, right, edge_variable or ANONYMOUS]
            case PathOf(name, _, hop):
                found = [name, *_bound_by([hop])]
            case _:
                found = []
        yield from (name for name in found if name != ANONYMOUS)


def without_lets(clauses: Iterable[Clause], lets: Mapping[str, Expression]) -> tuple[Clause, ...]:
    """The clauses of a block with what is named put in its places."""
    clauses = tuple(clauses)
    known = lets_of(clauses, lets)
    return tuple(substituted(clause, known) for clause in clauses if not isinstance(clause, Let))


# ---- blocks


@dataclass(frozen=True, slots=True)
class Step:
    """One way over an edge type: from a type of nodes to one, along the stored edges or against them."""

    edge: EdgeShape
    is_forward: bool

    @property
    def source(self) -> str:
        """Where the way begins."""
        return self.edge.source if self.is_forward else self.edge.target

    @property
    def target(self) -> str:
        """Where it leads."""
        return self.edge.target if self.is_forward else self.edge.source


@dataclass(frozen=True, slots=True)
class Link:
    """A traversal with every way that leads from its left end to the right one."""

    hop: Hop
    steps: tuple[Step, ...]
    path: PathOf | None

    @property
    def bounds(self) -> tuple[int, int]:
        """The smallest and largest number of hops."""
        return self.hop.bounds or (1, 1)


@dataclass(frozen=True, slots=True)
class Block:
    """The clauses between two braces, with the types of every variable."""

    clauses: tuple[Clause, ...]
    bindings: tuple[Bind, ...]
    #: The types of every variable that the block sees, edges, paths and what is optional included.
    types: dict[str, Members]
    #: Node variables that the block introduces.
    own: dict[str, Members]
    links: tuple[Link, ...]
    #: The optional blocks in it, each of which sees what those before it bind.
    optionals: tuple[Block, ...]
    #: The variables that these bind.
    optional: frozenset[str]


class MisfitError(Exception):
    """A variable would need other types than it has."""


def types_of(shape: Shape, clauses: Iterable[Clause], outer: Mapping[str, Members]) -> dict[str, Members] | None:
    """The types of every variable that a block sees; None when there are none that fit, in it or in blocks inside."""
    try:
        block = resolve(shape, tuple(clauses), outer)
    except MisfitError:
        return None
    return block.types if _fits_inside(shape, block) else None


def _fits_inside(shape: Shape, block: Block) -> bool:
    """Whether there are types for the blocks in the expressions of a block."""
    written = tuple(clause for clause in block.clauses if not isinstance(clause, Maybe))
    return all(types_of(shape, inner, block.types) is not None for inner in _blocks_in(written)) and all(
        _fits_inside(shape, inner) for inner in block.optionals
    )


def links_of(shape: Shape, clauses: Iterable[Clause], outer: Mapping[str, Members]) -> list[Link]:
    """The traversals of a block with those of the blocks in it.

    Raises:
        MisfitError: no types fit.
    """

    def inside(block: Block) -> Iterator[Link]:
        yield from block.links
        written = tuple(clause for clause in block.clauses if not isinstance(clause, Maybe))
        for inner in _blocks_in(written):
            yield from inside(resolve(shape, inner, block.types))
        for optional in block.optionals:
            yield from inside(optional)

    return list(inside(resolve(shape, tuple(clauses), outer)))


#: Which way traversals follow which edges.
Ways = set[tuple[str, str, bool]]


def ways(shape: Shape, clauses: Iterable[Clause], outer: Mapping[str, Members]) -> Ways:
    """The ways of the traversals in clauses, and in the blocks of these; none where no types fit."""
    try:
        links = links_of(shape, named(tuple(clauses)), outer)
    except MisfitError:
        return set()
    return {(repr(link.hop), step.edge.name, step.is_forward) for link in links for step in link.steps}


def is_turned(before: Ways, after: Ways) -> bool:
    """Whether a traversal goes a way afterwards that it did not go before."""
    known = {hop for hop, _, _ in before}
    return any(way not in before for way in after if way[0] in known)


def _blocks_in(node: Any) -> Iterator[tuple[Clause, ...]]:
    """The clauses of the blocks in expressions, without those inside of these."""
    match node:
        case tuple():
            for part in node:
                yield from _blocks_in(part)
        case Exists(tuple(clauses)) | Aggregate(clauses=tuple(clauses)):
            yield clauses
        case _ if is_dataclass(node):
            yield from _blocks_in(tuple(getattr(node, item.name) for item in fields(node)))


def resolve(shape: Shape, clauses: tuple[Clause, ...], outer: Mapping[str, Members]) -> Block:
    """Types and directions of a block. Bindings come first, then traversals as their ends become known.

    Raises:
        MisfitError: no types fit.
    """
    hops = [clause.hop if isinstance(clause, PathOf) else clause for clause in clauses]
    typed = [Bind(hop.right, hop.types, hop.matches) for hop in hops if isinstance(hop, Hop) and hop.types]
    bindings = (*(clause for clause in clauses if isinstance(clause, Bind)), *typed)
    types = {bind.variable: shape.members(bind.types) for bind in bindings} | dict(outer)
    links: list[Link] = []
    waiting = [clause for clause in clauses if isinstance(clause, Hop | PathOf)]
    while waiting:
        clause = next((item for item in waiting if {_hop(item).left, _hop(item).right} & types.keys()), waiting[0])
        waiting.remove(clause)
        link = Link(_hop(clause), _steps(shape, _hop(clause), types), clause if isinstance(clause, PathOf) else None)
        _narrow(link, types, frozenset(outer))
        links.append(link)
    own = {name: members for name, members in types.items() if name not in outer}
    for link in links:
        if link.path is not None:
            types[link.path.name] = PATH
        elif link.hop.edge_variable:
            types[link.hop.edge_variable] = tuple(sorted({step.edge.name for step in link.steps}))
    optionals: list[Block] = []
    before = frozenset(types)
    for clause in clauses:
        if isinstance(clause, Maybe):
            optionals.append(resolve(shape, clause.clauses, types))
            types = optionals[-1].types
    optional = frozenset(types) - before
    return Block(clauses, bindings, types, own, tuple(links), tuple(optionals), optional)


def _hop(clause: Hop | PathOf) -> Hop:
    return clause.hop if isinstance(clause, PathOf) else clause


def _fits(type_: str, members: Members | None) -> bool:
    return members is None or type_ in members


def _steps(shape: Shape, hop: Hop, types: Mapping[str, Members]) -> tuple[Step, ...]:
    """Every way that fits the types of the ends."""
    edges = [shape.edge(word) for word in hop.words] or list(shape.edges.values())
    left, right = types.get(hop.left), types.get(hop.right)
    is_long = hop.bounds is not None and hop.bounds[1] > 1
    if not hop.words and (left is None or right is None):
        raise MisfitError("a wildcard between unknown ends")
    if left is None and right is None and len({(edge.source, edge.target) for edge in edges}) > 1:
        raise MisfitError("several edges between unknown ends")
    if hop.undirected:
        crosses = any(not edge.is_loop for edge in edges)
        if is_long and crosses and right is None:
            raise MisfitError("the end of several hops may have any type")
        both = [Step(edge, is_forward) for edge in edges for is_forward in (True, False)]
        found = [step for step in both if is_long or _leads(step, left, right)]
        if not _joins(found, left, right):
            found = []
    elif is_long and len(hop.words) != 1:
        found = _one_way(hop, edges, left, right)
    else:
        ways = ([Step(edge, True), Step(edge, False)] for edge in edges)
        found = [fitting[0] for way in ways if (fitting := [step for step in way if _leads(step, left, right)])]
    if hop.left == hop.right and not is_long:
        found = [step for step in found if step.edge.is_loop]
    if not found:
        raise MisfitError(f"{hop} leads nowhere")
    return tuple(found)


def _leads(step: Step, left: Members | None, right: Members | None) -> bool:
    return _fits(step.source, left) and _fits(step.target, right)


def _one_way(hop: Hop, edges: Sequence[EdgeShape], left: Members | None, right: Members | None) -> list[Step]:
    """Several edge types over several hops: all forward if one can begin so, else all backward."""
    is_forward = any(_fits(edge.source, left) for edge in edges)
    steps = [Step(edge, is_forward) for edge in edges]
    turned = [edge for edge in edges if not _fits(edge.source, left) and _fits(edge.target, left)]
    if is_forward and hop.words and turned:
        raise MisfitError("one edge would run against the others")
    return steps if _joins(steps, left, right) else []


def _joins(steps: Sequence[Step], left: Members | None, right: Members | None) -> bool:
    """Whether a way may begin at one end, and one may lead to the other."""
    return any(_fits(step.source, left) for step in steps) and any(_fits(step.target, right) for step in steps)


def _narrow(link: Link, types: dict[str, Members], outer: frozenset[str]) -> None:
    """Keep of the types of both ends what a traversal leaves."""
    is_long = link.bounds[1] > 1
    left, right = types.get(link.hop.left), types.get(link.hop.right)
    ways = [step for step in link.steps if is_long or _leads(step, left, right)]
    for name, members in (
        (link.hop.left, {step.source for step in ways}),
        (link.hop.right, {step.target for step in ways}),
    ):
        if name in outer:
            continue
        known = types.get(name)
        kept = tuple(sorted(members if known is None else members & set(known)))
        if not kept and known is not None:
            raise MisfitError(f"${name} has no type")
        types[name] = kept
