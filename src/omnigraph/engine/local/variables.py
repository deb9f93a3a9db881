"""What the variables of a query are bound to, and how long each of them is needed. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from omnigraph.ids import TableKey, edge_table_key, node_table_key
from omnigraph.query import ir

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

#: Stands for the outer row inside the pipeline of an anti-join.
OUTER_ROW = "~outer"


def is_hidden(variable: str) -> bool:
    """Whether a variable has no name in the query text."""
    return variable.startswith("~")


def variable_tables(ops: Iterable[ir.Op]) -> dict[str, TableKey]:
    """The table of every variable that a pipeline binds; a negation has variables of its own."""
    found: dict[str, TableKey] = {}
    for op in ops:
        match op:
            case ir.NodeScan(variable, node_type):
                found[variable] = node_table_key(node_type)
            case ir.Expand():
                found[op.target] = node_table_key(op.target_type)
                if op.edge_variable is not None:
                    found[op.edge_variable] = edge_table_key(op.edge_type)
            case ir.Filter() | ir.AntiJoin():
                pass
            case _:
                assert_never(op)
    return found


def live_after(ops: Sequence[ir.Op], needed: Iterable[str]) -> list[frozenset[str]]:
    """Per operator, the variables that something behind it still asks for."""
    live = frozenset(needed)
    result: list[frozenset[str]] = []
    for op in reversed(ops):
        result.append(live)
        live = (live - frozenset(_introduced(op))) | frozenset(_used(op))
    return result[::-1]


def needed_variables(query: ir.ReadIR) -> frozenset[str]:
    """The variables that the result is made from, those that break ties included."""
    needed = {operand.variable for operand in result_operands(query)}
    if query.rank is not None:
        needed.add(rank_field(query.rank).variable)
    if not query.grouped and (query.order or query.rank is not None):
        needed.update(name for name in variable_names(query.pipeline) if not is_hidden(name))
    return frozenset(needed)


def result_operands(query: ir.ReadIR) -> Iterator[ir.PropertyRef | ir.EntityRef]:
    """What is read of entities for the result columns and order keys."""
    for projection in query.projections:
        match projection.expression:
            case ir.PropertyRef() | ir.EntityRef():
                yield projection.expression
            case ir.Aggregate() if not counts_rows(projection.expression):
                if isinstance(projection.expression.argument, ir.PropertyRef | ir.EntityRef):
                    yield projection.expression.argument
            case _:
                pass
    for key in query.order:
        if isinstance(key.expression, ir.PropertyRef):
            yield key.expression


def counts_rows(aggregate: ir.Aggregate) -> bool:
    """Whether an aggregate is the number of rows: a count of what is never null."""
    if aggregate.function is not ir.AggregateFunction.COUNT:
        return False
    match aggregate.argument:
        case ir.EntityRef():
            return True
        case ir.PropertyRef(type=type_):
            return not type_.nullable
        case _:
            return False


def variable_names(ops: Iterable[ir.Op]) -> Iterator[str]:
    """The variables that a pipeline binds, without those of negations."""
    for op in ops:
        yield from _introduced(op)


def rank_field(rank: ir.Rank) -> ir.PropertyRef:
    """The property whose entities are ranked."""
    return rank_field(rank.first) if isinstance(rank, ir.Rrf) else rank.field


def predicate_variables(predicate: ir.Predicate) -> Iterator[str]:
    """The variables of a predicate."""
    operands = (
        (predicate.left, predicate.right)
        if isinstance(predicate, ir.Comparison)
        else (predicate.field,)
    )
    for operand in operands:
        if isinstance(operand, ir.PropertyRef | ir.EntityRef):
            yield operand.variable


def _introduced(op: ir.Op) -> Iterator[str]:
    match op:
        case ir.NodeScan(variable):
            yield variable
        case ir.Expand():
            yield op.target
            if op.edge_variable is not None:
                yield op.edge_variable
        case ir.Filter() | ir.AntiJoin():
            pass
        case _:
            assert_never(op)


def _used(op: ir.Op) -> Iterator[str]:
    match op:
        case ir.NodeScan():
            pass
        case ir.Expand():
            yield op.source
        case ir.Filter(predicate):
            yield from predicate_variables(predicate)
        case ir.AntiJoin(outer):
            yield from outer
        case _:
            assert_never(op)
