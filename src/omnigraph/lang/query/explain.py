"""The intermediate representation as stable, readable text.

One operator per line, indented by nesting; the text is part of the public contract and pinned by golden files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import assert_never

from omnigraph.core.values import render_value
from omnigraph.lang.query import ir

_INDENT = "  "


def explain_ir(query: ir.QueryIR) -> str:
    """The plan of a query."""
    lines = [_head(query)]
    match query:
        case ir.ReadIR():
            lines += _read_lines(query)
        case ir.MutationIR(statements=statements):
            lines += _indented(map(_statement, statements))
    return "\n".join(lines) + "\n"


def _head(query: ir.QueryIR) -> str:
    kind = "read" if isinstance(query, ir.ReadIR) else "mutation"
    params = ", ".join(f"${param.name}: {param.type}" for param in query.params)
    return f"{kind} {query.name}({params})"


def _read_lines(query: ir.ReadIR) -> Iterator[str]:
    yield from _pipeline(query.pipeline, 1)
    if query.rank is not None:
        yield f"{_INDENT}Rank {_rank(query.rank)}{_rank_note(query)}"
    if query.grouped:
        keys = [p.name for p in query.projections if not isinstance(p.expression, ir.Aggregate | ir.Rank)]
        yield f"{_INDENT}Group by {', '.join(keys)}" if keys else f"{_INDENT}Group all rows"
    yield f"{_INDENT}Project"
    for column in query.projections:
        yield f"{_INDENT * 2}{column.name}: {column.type} = {_expression(column.expression)}"
    if query.order:
        keys = [f"{_order(key)} {'desc' if key.descending else 'asc'}" for key in query.order]
        yield f"{_INDENT}Order {', '.join(keys)}"
    if query.limit is not None:
        yield f"{_INDENT}Limit {query.limit}"


def _rank_note(query: ir.ReadIR) -> str:
    if isinstance(query.rank, ir.Rrf) and query.limit is not None:
        return f" depth {ir.Rrf.depth(query.limit)}"
    return ""


def _pipeline(ops: Iterable[ir.Op], depth: int) -> Iterator[str]:
    pad = _INDENT * depth
    for op in ops:
        match op:
            case ir.NodeScan(variable, node_type, filters):
                yield f"{pad}NodeScan {_name(variable)}: {node_type}{_where(filters)}"
            case ir.Expand():
                yield f"{pad}{_expand(op)}"
            case ir.Filter(predicate):
                yield f"{pad}Filter {_predicate(predicate)}"
            case ir.AntiJoin(outer, inner):
                yield f"{pad}AntiJoin on {', '.join(map(_name, outer))}"
                yield from _pipeline(inner, depth + 1)
            case _:
                assert_never(op)


def _expand(op: ir.Expand) -> str:
    edge = op.edge_type if op.edge_variable is None else f"{_name(op.edge_variable)}:{op.edge_type}"
    hops = "" if (op.low, op.high) == (1, 1) else f"{{{op.low},{op.high}}}"
    arrow = {
        ir.Direction.OUT: f"-{edge}{hops}->",
        ir.Direction.IN: f"<-{edge}{hops}-",
        ir.Direction.BOTH: f"<-{edge}{hops}->",
    }[op.direction]
    target = f"{_name(op.target)}: {op.target_type}"
    filters = (*op.filters, *op.edge_filters)
    return f"Expand {_name(op.source)} {arrow} {target}{_where(filters)}"


def _where(filters: tuple[ir.Predicate, ...]) -> str:
    return f" where {' and '.join(map(_predicate, filters))}" if filters else ""


def _predicate(predicate: ir.Predicate) -> str:
    match predicate:
        case ir.Comparison(left, op, right):
            return f"{_operand(left)} {op} {_operand(right)}"
        case ir.TextMatch(kind, field, query, edits):
            arguments = [_operand(field), _operand(query)]
            if edits is not None:
                arguments.append(_operand(edits))
            return f"{kind}({', '.join(arguments)})"
        case _:
            assert_never(predicate)


def _operand(operand: ir.Operand) -> str:
    match operand:
        case ir.PropertyRef(variable, name):
            return f"{_name(variable)}.{name}"
        case ir.EntityRef(variable):
            return f"id({_name(variable)})"
        case ir.ParamRef(ir.NOW):
            return "now()"
        case ir.ParamRef(name):
            return f"param({name})"
        case ir.Constant(value, type_):
            return render_value(type_.base, value)
        case _:
            assert_never(operand)


def _expression(expression: ir.Operand | ir.Aggregate | ir.Rank) -> str:
    match expression:
        case ir.Aggregate(function, ir.EntityRef(variable)):
            return f"{function}({_name(variable)})"
        case ir.Aggregate(function, argument):
            return f"{function}({_operand(argument)})"
        case ir.Nearest() | ir.Bm25() | ir.Rrf():
            return f"score of {_rank(expression)}"
        case _:
            return _operand(expression)


def _rank(rank: ir.Rank) -> str:
    match rank:
        case ir.Nearest(field, query):
            return f"nearest({_operand(field)}, {_operand(query)})"
        case ir.Bm25(field, query):
            return f"bm25({_operand(field)}, {_operand(query)})"
        case ir.Rrf(first, second, k):
            return f"rrf({_rank(first)}, {_rank(second)}, k={_operand(k)})"
        case _:
            assert_never(rank)


def _order(key: ir.OrderKey) -> str:
    match key.expression:
        case ir.ColumnRef(name):
            return name
        case ir.PropertyRef():
            return _operand(key.expression)
        case _:
            assert_never(key.expression)


def _name(variable: str) -> str:
    return variable if variable.startswith("~") else f"${variable}"


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"{_INDENT}{line}" for line in lines)


def _statement(statement: ir.Statement) -> str:
    match statement:
        case ir.InsertNode(node_type, assignments):
            return f"InsertNode {node_type} {{ {_assignments(assignments)} }}"
        case ir.InsertEdge(edge_type, source, target, assignments):
            properties = f" {{ {_assignments(assignments)} }}" if assignments else ""
            return f"InsertEdge {edge_type} from {_operand(source)} to {_operand(target)}{properties}"
        case ir.UpdateNode(node_type, assignments, predicate):
            return f"UpdateNode {node_type} {{ {_assignments(assignments)} }} {_condition(predicate)}"
        case ir.DeleteNode(node_type, predicate, cascades):
            cascade = f" cascade {', '.join(cascades)}" if cascades else ""
            return f"DeleteNode {node_type} {_condition(predicate)}{cascade}"
        case ir.DeleteEdge(edge_type, predicate):
            return f"DeleteEdge {edge_type} {_condition(predicate)}"
        case _:
            assert_never(statement)


def _assignments(assignments: Iterable[ir.Assignment]) -> str:
    return ", ".join(f"{item.property}: {_operand(item.value)}" for item in assignments)


def _condition(predicate: ir.MutationPredicate) -> str:
    return f"where {predicate.property} {predicate.op} {_operand(predicate.value)}"
