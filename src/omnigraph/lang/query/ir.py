"""The intermediate representation: what a query means, independent of any engine.

An engine implements these docstrings and nothing else; two engines that do so give equal rows.

**Rows.** A pipeline turns a bag of rows into a bag of rows. It starts with one row without variables. A row binds each
variable introduced so far to one entity: a node by its id, an edge variable by one stored edge.

**Null logic.** A comparison with null on either side is unknown; only `true` keeps a row. That holds for every
operator, `!=` included. A null list contains nothing. A parameter that is null is an ordinary null operand, never "no
filter".

**Numbers.** Numeric types compare by mathematical value without narrowing: an integer column never equals 2.7. A
literal beside an F32 property is of type F32 itself: it is rounded as if it had been stored, so that 0.1 finds what was
stored as 0.1. Parameters keep their own type: one of F32 is rounded, one of F64 is not. `value_of` gives every value in
the type of its place.

**Order.** Rows are ordered by the order keys; null comes first ascending and last descending; strings compare by code
point, `false` before `true`. Ties are broken by the ids of all bound variables, variables taken by name, ascending, so
the order is total. In a grouped query the group columns make the order total. Without order keys the order is
unspecified, and `limit` then keeps any rows.

**Duplicates.** Rows are never made distinct: what a pipeline emits twice is returned twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import ClassVar

from omnigraph.core.ids import TableKey
from omnigraph.core.types import PropertyType
from omnigraph.frozen import frozen
from omnigraph.lang.query.terms import (
    COUNT_TYPE,
    FUZZY_DEFAULT_EDITS,
    ID_TYPE,
    INSTANT_TYPE,
    NOW,
    RRF_DEFAULT_K,
    RRF_DEPTH_FACTOR,
    RRF_MIN_DEPTH,
    SCORE_TYPE,
    TRUTHS,
    AggregateFunction,
    ArithmeticOp,
    Bm25,
    ColumnRef,
    CompareOp,
    Connective,
    Constant,
    Direction,
    EntityRef,
    Nearest,
    Operand,
    Parameter,
    ParamRef,
    PathChoice,
    PathPart,
    PathRef,
    PropertyRef,
    Rank,
    Rrf,
    Step,
    TextKind,
    TypeOf,
    Value,
    value_of,
)

#: What expressions are made of belongs to this module for everyone who imports it.
__all__ = [
    "COUNT_TYPE",
    "FUZZY_DEFAULT_EDITS",
    "ID_TYPE",
    "INSTANT_TYPE",
    "NOW",
    "RRF_DEFAULT_K",
    "RRF_DEPTH_FACTOR",
    "RRF_MIN_DEPTH",
    "SCORE_TYPE",
    "AggregateFunction",
    "ArithmeticOp",
    "Bm25",
    "ColumnRef",
    "CompareOp",
    "Connective",
    "Constant",
    "Direction",
    "EntityRef",
    "Nearest",
    "Operand",
    "ParamRef",
    "Parameter",
    "PathChoice",
    "PathPart",
    "PathRef",
    "PropertyRef",
    "Rank",
    "Rrf",
    "Step",
    "TextKind",
    "TypeOf",
    "Value",
    "value_of",
]

# ---- conditions: expressions of type Bool, in three-valued logic


def _any_nullable(operands: Iterable[Expression]) -> bool:
    return any(operand.type.nullable for operand in operands)


def _truth(operands: Iterable[Expression]) -> PropertyType:
    return TRUTHS[_any_nullable(operands)]


@frozen
class Comparison:
    """`left op right`; null on either side is unknown."""

    left: Expression
    op: CompareOp
    right: Expression

    @property
    def type(self) -> PropertyType:
        """Bool, nullable if a side is, or if a list may hold a null."""
        return TRUTHS[True] if self.op is CompareOp.CONTAINS else _truth((self.left, self.right))


@frozen
class TextMatch:
    """A text condition on a String property of a node; unknown for a null value or a null query."""

    kind: TextKind
    field: PropertyRef
    query: Value
    edits: Value | None = None

    @property
    def type(self) -> PropertyType:
        """Bool, nullable if the text or the query is."""
        return _truth((self.field, self.query))


@frozen
class Logical:
    """Two or more truth values, joined: `false and null` is false, `true or null` is true."""

    connective: Connective
    operands: tuple[Expression, ...]

    @property
    def type(self) -> PropertyType:
        """Bool, nullable if an operand is."""
        return _truth(self.operands)


@frozen
class Not:
    """The opposite of a truth value; unknown stays unknown."""

    operand: Expression

    @property
    def type(self) -> PropertyType:
        """Bool, nullable if the operand is."""
        return _truth((self.operand,))


@frozen
class IsNull:
    """Whether a value is null; never unknown."""

    operand: Expression
    type: ClassVar[PropertyType] = TRUTHS[False]


@frozen
class Exists:
    """Whether `pipeline`, started with the row, emits any row; never unknown.

    Only the variables in `outer` matter to the inner pipeline.
    """

    outer: tuple[str, ...]
    pipeline: tuple[Op, ...]
    type: ClassVar[PropertyType] = TRUTHS[False]


# ---- values that are computed
#
# A null operand gives null, but for `case` and `coalesce`. An integer beyond 64 bits makes a condition of a match
# unknown; everywhere else it fails the query for the rows that are asked for.


@frozen
class Arithmetic:
    """`left op right`."""

    left: Expression
    op: ArithmeticOp
    right: Expression
    type: PropertyType


@frozen
class Negative:
    """`-operand`."""

    operand: Expression
    type: PropertyType


@frozen
class Function:
    """A function of `omnigraph.lang.query.functions`."""

    name: str
    arguments: tuple[Expression, ...]
    type: PropertyType


@frozen
class Case:
    """The value of the first branch whose condition is true, else that of `otherwise`."""

    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression | None
    type: PropertyType


@frozen
class Aggregate:
    """An aggregate over the rows of one group. Without an argument it counts rows."""

    function: AggregateFunction
    argument: Expression | None
    type: PropertyType
    distinct: bool = False
    order: tuple[OrderKey, ...] = ()
    limit: Value | None = None


@frozen
class BlockValue:
    """An aggregate over the rows that `pipeline`, started with the row, emits.

    Only the variables in `outer` matter to the inner pipeline.
    """

    aggregate: Aggregate
    outer: tuple[str, ...]
    pipeline: tuple[Op, ...]

    @property
    def type(self) -> PropertyType:
        """That of the aggregate."""
        return self.aggregate.type


Expression = (
    PropertyRef
    | EntityRef
    | TypeOf
    | PathRef
    | ParamRef
    | Constant
    | Comparison
    | TextMatch
    | Logical
    | Not
    | IsNull
    | Exists
    | Arithmetic
    | Negative
    | Function
    | Case
    | Aggregate
    | BlockValue
    | ColumnRef
)


def parts(expression: Expression) -> tuple[Expression, ...]:
    """The expressions directly inside of one; what is inside a block is not."""
    match expression:
        case Comparison(left, _, right) | Arithmetic(left, _, right):
            return left, right
        case TextMatch(_, field, query, edits):
            return (field, query) if edits is None else (field, query, edits)
        case Logical(_, operands) | Function(_, operands):
            return operands
        case Not(operand) | IsNull(operand) | Negative(operand):
            return (operand,)
        case Case(branches, otherwise):
            inside = tuple(part for branch in branches for part in branch)
            return inside if otherwise is None else (*inside, otherwise)
        case Aggregate(argument=argument, order=order, limit=limit):
            keys = tuple(key.expression for key in order)
            return tuple(part for part in (argument, *keys, limit) if part is not None)
        case _:
            return ()


def walk(expression: Expression) -> Iterator[Expression]:
    """An expression and everything in it, without what is inside of blocks."""
    yield expression
    for part in parts(expression):
        yield from walk(part)


def rewritten(expression: Expression, change: Callable[[Expression], Expression | None]) -> Expression:
    """An expression with parts replaced; `change` gives what stands for a part, None to look inside of it."""
    changed = change(expression)
    if changed is not None:
        return changed
    match expression:
        case Comparison(left, _, right) | Arithmetic(left, _, right):
            return replace(expression, left=rewritten(left, change), right=rewritten(right, change))
        case Logical(operands=operands):
            return replace(expression, operands=tuple(rewritten(item, change) for item in operands))
        case Function(arguments=arguments):
            return replace(expression, arguments=tuple(rewritten(item, change) for item in arguments))
        case Not(operand) | IsNull(operand) | Negative(operand):
            return replace(expression, operand=rewritten(operand, change))
        case Case(branches, otherwise):
            inside = tuple((rewritten(test, change), rewritten(made, change)) for test, made in branches)
            last = None if otherwise is None else rewritten(otherwise, change)
            return replace(expression, branches=inside, otherwise=last)
        case _:
            return expression


def variables(expression: Expression) -> Iterator[str]:
    """The variables whose entities an expression is made from, those that its blocks begin with included."""
    for found in walk(expression):
        match found:
            case PropertyRef(variable) | EntityRef(variable) | TypeOf(variable) | PathRef(variable):
                yield variable
            case Exists(outer) | BlockValue(_, outer):
                yield from outer
            case _:
                pass


# ---- pipeline


@frozen
class NodeScan:
    """Bind `variable` to every node of `node_type` that satisfies all `filters`.

    Each incoming row is combined with each such node: a scan behind another operator is a cross product.
    """

    variable: str
    node_type: str
    filters: tuple[Expression, ...] = ()


@frozen
class Expand:
    """Bind `target` to the nodes reached from `source` over `edge_type`.

    Without `edge_variable`, per incoming **row**, breadth-first from `source` with `low` to `high` hops:

    * A destination is emitted once, at its first (shortest) reach, and only if that hop is at least `low`. Parallel
      edges therefore collapse.
    * Over an edge whose two endpoint types are equal, the source counts as visited from the start: it is neither
      emitted nor expanded again through a longer cycle. Exception: a stored self-loop on the source emits the source
      at hop 1.
    * Over an edge between different types there is structurally one hop: `high` above 1 adds nothing, `low` above 1
      yields nothing.
    * `BOTH` follows each edge in both directions; each pair is emitted once.

    With `edge_variable` (always one hop), one row is emitted **per stored edge**, so parallel edges stay distinct.

    Rows survive if the destination satisfies all `filters` and the edge all `edge_filters`.
    """

    source: str
    target: str
    edge_type: str
    direction: Direction
    target_type: str
    low: int = 1
    high: int = 1
    filters: tuple[Expression, ...] = ()
    edge_variable: str | None = None
    edge_filters: tuple[Expression, ...] = ()


@frozen
class Filter:
    """Keep the rows for which the predicate is true.

    With `is_strict` an integer beyond 64 bits in it fails the query: it is a `having`.
    """

    predicate: Expression
    is_strict: bool = False


@frozen
class AntiJoin:
    """Keep the rows for which `pipeline`, started with that row, emits no row.

    Only the variables in `outer` matter to the inner pipeline. Unknown inside it counts as no solution.
    """

    outer: tuple[str, ...]
    pipeline: tuple[Op, ...]


@frozen
class SemiJoin:
    """Keep the rows for which `pipeline`, started with that row, emits a row: the opposite of an anti-join."""

    outer: tuple[str, ...]
    pipeline: tuple[Op, ...]


@frozen
class UnionScan:
    """Bind `variable` to every node of all `node_types` that satisfies all `filters`, as a scan of one type does."""

    variable: str
    node_types: tuple[str, ...]
    filters: tuple[Expression, ...] = ()


@frozen
class ExpandEdges:
    """Bind `edge_variable` to every edge that one of `steps` follows from `source`, and `target` to its other end.

    One row is emitted per edge. Rows survive if the edge satisfies all `edge_filters`.
    """

    source: str
    target: str
    steps: tuple[Step, ...]
    target_types: tuple[str, ...]
    edge_variable: str
    edge_filters: tuple[Expression, ...] = ()


@frozen
class Search:
    """Bind `target` to the nodes that are reached from `source` in `low` to `high` hops, each along any of `steps`.

    One breadth-first search over nodes by type and id: a node is emitted once, at its first reach, if that hop is at
    least `low` and its type is among `target_types`; nodes between may be of any type. The source counts as visited,
    except that an edge from it to itself emits it at hop 1. With `edge_filters`, which name `hop`, every hop follows
    only edges that satisfy them.
    """

    source: str
    target: str
    steps: tuple[Step, ...]
    target_types: tuple[str, ...]
    low: int = 1
    high: int = 1
    hop: str = ""
    edge_filters: tuple[Expression, ...] = ()


@frozen
class PathSearch:
    """Bind `path` to paths of `low` to `high` hops from `source`, and `target` to where they end.

    A path is two lists of ids, of its nodes and of its edges. Its end is of one of `target_types`.
    """

    path: str
    choice: PathChoice
    search: Search

    @property
    def source(self) -> str:
        """The variable that paths begin at."""
        return self.search.source

    @property
    def target(self) -> str:
        """The variable that paths end at."""
        return self.search.target


@frozen
class OptionalJoin:
    """Each row with every solution of `pipeline` that begins with it; a row without one stays, bound to nothing.

    `binds` are the variables that the pipeline introduces.
    """

    outer: tuple[str, ...]
    pipeline: tuple[Op, ...]
    binds: tuple[str, ...]


Op = NodeScan | UnionScan | Expand | ExpandEdges | Search | PathSearch | Filter | AntiJoin | SemiJoin | OptionalJoin


# ---- results


@frozen
class Projection:
    """One result column. A projected `Rank` is the score of the order key."""

    name: str
    expression: Expression | Rank
    type: PropertyType


@frozen
class OrderKey:
    """One order key; null comes first ascending and last descending unless `nulls_first` says otherwise."""

    expression: Expression
    descending: bool
    nulls_first: bool | None = None


@frozen(kw_only=True)
class ReadIR:
    """A read query.

    `grouped`: a projection has an aggregate, or rows are made distinct; rows are grouped by all projections without
    an aggregate but constants, null being one group. Without such projections there is always exactly one group, also
    over no rows. `distinct` makes the rows of groups distinct once more.

    `rank`: the entities that satisfy the **whole** pipeline are ranked, and their rows come best score first. Rows of
    one score are ordered by `order`, then by the id of the ranked entity, then by the total order. Rows of entities
    that the ranking leaves out are dropped. In a grouped query the ranking chooses which rows are grouped.

    `having` keeps groups; in a query without groups it is the last filter of the pipeline. `offset` and `limit` are
    applied last; `per` applies the limit to each group of rows that are equal there.
    """

    name: str
    params: tuple[Parameter, ...]
    pipeline: tuple[Op, ...]
    projections: tuple[Projection, ...]
    grouped: bool
    rank: Rank | None
    order: tuple[OrderKey, ...]
    limit: Value | None
    offset: Value | None = None
    per: tuple[Expression, ...] = ()
    having: Expression | None = None
    distinct: bool = False


# ---- mutations


#: The variable of the row that a statement writes: its properties stand alone in the text. Their values are those
#: that earlier statements left.
OWN_ROW = ""


@frozen
class Assignment:
    """A property and its new value; a `Constant` is already in the stored form of the property.

    Properties of `OWN_ROW` are those of the row before the statement, properties of other variables those at the match.
    """

    property: str
    value: Expression


@frozen
class InsertNode:
    """Insert a node: an upsert that replaces the whole row when the type has a key, a strict insert otherwise.

    Properties that are not assigned are null, or stay as they are with `keeps_rest`. `variable` is the new node in
    later statements. Counts one node.
    """

    node_type: str
    assignments: tuple[Assignment, ...]
    variable: str | None = None
    keeps_rest: bool = False


@frozen
class InsertEdge:
    """Insert an edge between two node ids, as a new edge unless the type has a key. Counts one edge.

    `source` and `target` are ids or nodes. With `keeps_rest` an existing edge keeps what is not assigned.
    """

    edge_type: str
    source: Expression
    target: Expression
    assignments: tuple[Assignment, ...]
    keeps_rest: bool = False


@frozen
class UpdateRows:
    """Replace the assigned columns of every matching row, committed or written earlier in this query.

    Matching are the rows for which `predicate` is true, all without one; with `variable` only those that it is bound
    to. A property gets one value in each row, or the mutation fails. Counts matched rows, changed or not.
    """

    type_key: TableKey
    assignments: tuple[Assignment, ...]
    predicate: Expression | None
    variable: str | None = None


@frozen
class DeleteNode:
    """Remove every matching committed node, and every edge of `cascades` that begins or ends at one of them.

    Rows match as those of an update. Counts distinct nodes and edges over all statements of the query.
    """

    node_type: str
    predicate: Expression | None
    #: Edge types incident to the node type, name-sorted.
    cascades: tuple[str, ...]
    variable: str | None = None


@frozen
class DeleteEdge:
    """Remove every matching committed edge. Counts distinct edges over all statements of the query."""

    edge_type: str
    predicate: Expression | None
    variable: str | None = None


Statement = InsertNode | InsertEdge | UpdateRows | DeleteNode | DeleteEdge


def statement_expressions(statement: Statement) -> Iterator[Expression]:
    """The values and the condition of a statement."""
    if isinstance(statement, InsertEdge):
        yield statement.source
        yield statement.target
    if isinstance(statement, InsertNode | InsertEdge | UpdateRows):
        yield from (item.value for item in statement.assignments)
    if isinstance(statement, UpdateRows | DeleteNode | DeleteEdge) and statement.predicate is not None:
        yield statement.predicate


@frozen(kw_only=True)
class MutationIR:
    """A mutation: statements run in order, later ones see earlier ones, all of them become visible together.

    Either all statements write (insert, upsert, update) or all delete.

    `match` runs once, on the state before the mutation. A statement runs once for each combination of entities that the
    variables in it are bound to, and once if there is any row when it has no variable; without a match there is one
    row. `returns` are columns over the rows of the match: properties are those after all statements, of what is
    deleted those before.
    """

    name: str
    params: tuple[Parameter, ...]
    statements: tuple[Statement, ...]
    match: tuple[Op, ...] | None = None
    returns: tuple[Projection, ...] = ()


QueryIR = ReadIR | MutationIR
