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

from collections.abc import Callable, Iterator
from dataclasses import replace

from omnigraph.core.ids import TableKey, edge_table_key, node_table_key
from omnigraph.core.types import PropertyType
from omnigraph.frozen import frozen
from omnigraph.lang.query.ir.nodes import (
    Aggregate,
    AntiJoin,
    Arithmetic,
    BlockValue,
    Case,
    Comparison,
    Exists,
    Expand,
    ExpandEdges,
    Expression,
    Filter,
    Function,
    IsNull,
    Logical,
    Negative,
    NodeScan,
    Not,
    Op,
    OptionalJoin,
    OrderKey,
    PathSearch,
    Record,
    Search,
    SemiJoin,
    TextMatch,
    UnionScan,
)
from omnigraph.lang.query.ir.terms import (
    COUNT_TYPE,
    FUZZY_DEFAULT_EDITS,
    ID_TYPE,
    INSTANT_TYPE,
    NOW,
    RRF_DEFAULT_K,
    RRF_DEPTH_FACTOR,
    RRF_MIN_DEPTH,
    SCORE_TYPE,
    STEP,
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
    "STEP",
    "Aggregate",
    "AggregateFunction",
    "AntiJoin",
    "Arithmetic",
    "ArithmeticOp",
    "BlockValue",
    "Bm25",
    "Case",
    "ColumnRef",
    "CompareOp",
    "Comparison",
    "Connective",
    "Constant",
    "Direction",
    "EntityRef",
    "Exists",
    "Expand",
    "ExpandEdges",
    "Expression",
    "Filter",
    "Function",
    "IsNull",
    "Logical",
    "Nearest",
    "Negative",
    "NodeScan",
    "Not",
    "Op",
    "Operand",
    "OptionalJoin",
    "OrderKey",
    "ParamRef",
    "Parameter",
    "PathChoice",
    "PathPart",
    "PathRef",
    "PathSearch",
    "PropertyRef",
    "Rank",
    "Record",
    "Rrf",
    "Search",
    "SemiJoin",
    "Step",
    "TextKind",
    "TextMatch",
    "TypeOf",
    "UnionScan",
    "Value",
    "value_of",
]


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
        case Record(_, fields):
            return tuple(value for _, value in fields)
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


def conjuncts(predicate: Expression) -> Iterator[Expression]:
    """The conditions that all have to be true for one to be; what is always true is none."""
    match predicate:
        case Constant(True):
            return
        case Logical(Connective.AND, operands):
            for operand in operands:
                yield from conjuncts(operand)
        case _:
            yield predicate


# ---- results


@frozen
class Projection:
    """One result column. A projected `Rank` is the score of the order key."""

    name: str
    expression: Expression | Rank
    type: PropertyType


@frozen(kw_only=True)
class ReadIR:
    """A read query.

    `grouped`: a projection has an aggregate, or rows are made distinct; rows are grouped by all projections without
    an aggregate but constants, null being one group. Without such projections there is always exactly one group, also
    over no rows.

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


# ---- mutations


#: The variable of the row that a statement writes: its properties stand alone in the text. Their values are those
#: that earlier statements left.
OWN_ROW = ""


def own_equality(condition: Expression) -> tuple[Expression, Expression] | None:
    """The side of the row that a statement writes and the side of the match, where a condition says they are equal."""
    match condition:
        case Comparison(left, CompareOp.EQ, right):
            for own, other in ((left, right), (right, left)):
                if set(variables(own)) == {OWN_ROW} and OWN_ROW not in (names := set(variables(other))) and names:
                    return own, other
    return None


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


def written_type(statement: Statement) -> TableKey:
    """The type that a statement writes to."""
    match statement:
        case UpdateRows(key):
            return key
        case InsertNode(node_type) | DeleteNode(node_type):
            return node_table_key(node_type)
        case InsertEdge(edge_type) | DeleteEdge(edge_type):
            return edge_table_key(edge_type)


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
