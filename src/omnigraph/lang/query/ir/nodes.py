"""The expressions and operators of the representation. They hold each other: an expression may be a block of operators.

`omnigraph.lang.query.ir` gives all of them, with what they mean together.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from omnigraph.core.types import PropertyType
from omnigraph.frozen import frozen
from omnigraph.lang.query.ir.terms import (
    TRUTHS,
    AggregateFunction,
    ArithmeticOp,
    ColumnRef,
    CompareOp,
    Connective,
    Constant,
    Direction,
    EntityRef,
    ParamRef,
    PathChoice,
    PathRef,
    PropertyRef,
    Step,
    TextKind,
    TypeOf,
    Value,
)

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
    """A function of `omnigraph.lang.query.functions.table`."""

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
class Record:
    """The entity that `variable` is bound to as named values; null where it is bound to nothing."""

    variable: str
    fields: tuple[tuple[str, Expression], ...]
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
    | Record
    | Aggregate
    | BlockValue
    | ColumnRef
)


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


@frozen
class OrderKey:
    """One order key; null comes first ascending and last descending unless `nulls_first` says otherwise."""

    expression: Expression
    descending: bool
    nulls_first: bool | None = None
