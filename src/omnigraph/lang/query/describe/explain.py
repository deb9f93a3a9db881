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
        case ir.MutationIR():
            lines += _mutation_lines(query)
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
        keys = [item.name for item in query.projections if _groups(item.expression)]
        yield f"{_INDENT}Group by {', '.join(keys)}" if keys else f"{_INDENT}Group all rows"
    yield f"{_INDENT}Project"
    for column in query.projections:
        yield f"{_INDENT * 2}{column.name}: {column.type} = {_column(column.expression)}"
    if query.having is not None:
        yield f"{_INDENT}Having {_expression(query.having)}"
    if query.order:
        yield f"{_INDENT}Order {', '.join(map(_order, query.order))}"
    if query.offset is not None:
        yield f"{_INDENT}Offset {_expression(query.offset)}"
    if query.limit is not None:
        per = f" per {', '.join(map(_expression, query.per))}" if query.per else ""
        yield f"{_INDENT}Limit {_expression(query.limit)}{per}"


def _mutation_lines(query: ir.MutationIR) -> Iterator[str]:
    if query.match is not None:
        yield f"{_INDENT}Match"
        yield from _pipeline(query.match, 2)
    yield from _indented(map(_statement, query.statements))
    if query.returns:
        yield f"{_INDENT}Return"
        for column in query.returns:
            yield f"{_INDENT * 2}{column.name}: {column.type} = {_column(column.expression)}"


def _groups(expression: ir.Expression | ir.Rank) -> bool:
    """Whether a column makes groups: it is neither made of aggregates nor the same in every row."""
    if isinstance(expression, ir.Nearest | ir.Bm25 | ir.Rrf | ir.Constant | ir.ParamRef):
        return False
    return not any(isinstance(found, ir.Aggregate) for found in ir.walk(expression))


def _rank_note(query: ir.ReadIR) -> str:
    if isinstance(query.rank, ir.Rrf) and isinstance(query.limit, ir.Constant) and query.offset is None:
        assert isinstance(query.limit.value, int), "a limit is a number of rows"
        return f" depth {ir.Rrf.depth(query.limit.value)}"
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
                yield f"{pad}Filter {_expression(predicate)}"
            case ir.AntiJoin(outer, inner):
                yield f"{pad}AntiJoin on {', '.join(map(_name, outer))}"
                yield from _pipeline(inner, depth + 1)
            case ir.UnionScan(variable, node_types, filters):
                yield f"{pad}UnionScan {_name(variable)}: {' | '.join(node_types)}{_where(filters)}"
            case ir.ExpandEdges() | ir.Search():
                yield f"{pad}{_several(op)}"
            case ir.PathSearch(path, choice, search):
                yield f"{pad}Path {_name(path)}: {choice} {_several(search)}"
            case ir.OptionalJoin(outer, inner, binds):
                yield f"{pad}OptionalJoin {', '.join(map(_name, binds))} on {', '.join(map(_name, outer))}"
                yield from _pipeline(inner, depth + 1)
            case ir.SemiJoin(outer, inner):
                yield f"{pad}SemiJoin on {', '.join(map(_name, outer))}"
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


def _several(op: ir.ExpandEdges | ir.Search) -> str:
    arrows = {ir.Direction.OUT: "->", ir.Direction.IN: "<-", ir.Direction.BOTH: "<>"}
    ways = " | ".join(f"{step.edge_type}{arrows[step.direction]}{step.target_type}" for step in op.steps)
    target = f"{_name(op.target)}: {' | '.join(op.target_types)}"
    if isinstance(op, ir.ExpandEdges):
        return f"ExpandEdges {_name(op.source)} {_name(op.edge_variable)}:({ways}) {target}{_where(op.edge_filters)}"
    return f"Search {_name(op.source)} ({ways}){{{op.low},{op.high}}} {target}{_where(op.edge_filters)}"


def _where(filters: tuple[ir.Expression, ...]) -> str:
    return f" where {' and '.join(_inside(item, _AND) for item in filters)}" if filters else ""


def _column(expression: ir.Expression | ir.Rank) -> str:
    if isinstance(expression, ir.Nearest | ir.Bm25 | ir.Rrf):
        return f"score of {_rank(expression)}"
    return _expression(expression)


#: How tightly operators bind; comparisons do not chain.
_OR, _AND, _NOT, _COMPARISON, _SUM, _TERM, _MINUS, _PRIMARY = range(8)
_CONNECTIVES = {ir.Connective.OR: _OR, ir.Connective.AND: _AND}
_SUMS = (ir.ArithmeticOp.ADD, ir.ArithmeticOp.SUBTRACT)


def _expression(expression: ir.Expression) -> str:
    return _printed(expression)[0]


def _inside(expression: ir.Expression, least: int) -> str:
    text, strength = _printed(expression)
    return text if strength >= least else f"({text})"


def _printed(expression: ir.Expression) -> tuple[str, int]:
    match expression:
        case ir.Comparison(left, op, right):
            return f"{_inside(left, _SUM)} {op} {_inside(right, _SUM)}", _COMPARISON
        case ir.Logical(connective, operands):
            strength = _CONNECTIVES[connective]
            return f" {connective} ".join(_inside(item, strength + 1) for item in operands), strength
        case ir.Not(ir.IsNull(operand)):
            return f"{_inside(operand, _SUM)} is not null", _COMPARISON
        case ir.Not(operand):
            return f"not {_inside(operand, _NOT)}", _NOT
        case ir.IsNull(operand):
            return f"{_inside(operand, _SUM)} is null", _COMPARISON
        case ir.Arithmetic(left, op, right):
            strength = _SUM if op in _SUMS else _TERM
            return f"{_inside(left, strength)} {op} {_inside(right, strength + 1)}", strength
        case ir.Negative(operand):
            return f"-{_inside(operand, _PRIMARY)}", _MINUS
        case _:
            return _primary(expression), _PRIMARY


def _primary(expression: ir.Expression) -> str:
    match expression:
        case ir.PropertyRef(ir.OWN_ROW, name):
            return "@id" if name == "id" else name
        case ir.PropertyRef(variable, name):
            return f"{_name(variable)}.{name}"
        case ir.EntityRef(variable):
            return f"id({_name(variable)})"
        case ir.TypeOf(variable):
            return f"{_name(variable)}.@type"
        case ir.PathRef(path, ir.PathPart.STEPS):
            return _name(path)
        case ir.PathRef(path, part):
            return f"{part}({_name(path)})"
        case ir.ParamRef(ir.NOW):
            return "now()"
        case ir.ParamRef(name):
            return f"param({name})"
        case ir.Constant(value, type_):
            return "null" if value is None else render_value(type_.base, value)
        case ir.ColumnRef(name):
            return name
        case ir.TextMatch(kind, field, query, edits):
            arguments = (field, query) if edits is None else (field, query, edits)
            return f"{kind}({', '.join(map(_expression, arguments))})"
        case ir.Function(name, inside):
            return f"{name}({', '.join(map(_expression, inside))})"
        case ir.Case(branches, otherwise):
            whens = "".join(f" when {_expression(test)} then {_expression(made)}" for test, made in branches)
            rest = "" if otherwise is None else f" else {_expression(otherwise)}"
            return f"case{whens}{rest} end"
        case ir.Record(variable):
            return f"object({_name(variable)})"
        case ir.Aggregate():
            return _aggregate(expression)
        case ir.Exists(_, pipeline):
            return f"exists {_block(pipeline)}"
        case ir.BlockValue(aggregate, _, pipeline):
            return f"{_aggregate(aggregate)} {_block(pipeline)}"
        case _:
            raise AssertionError(f"{expression!r} has an operator")


def _aggregate(aggregate: ir.Aggregate) -> str:
    match aggregate.argument:
        case None:
            inside = "*"
        case ir.EntityRef(variable):
            inside = _name(variable)
        case argument:
            inside = _expression(argument)
    if aggregate.distinct:
        inside = f"distinct {inside}"
    if aggregate.order:
        inside = f"{inside} order {', '.join(map(_order, aggregate.order))}"
    if aggregate.limit is not None:
        inside = f"{inside} limit {_expression(aggregate.limit)}"
    return f"{aggregate.function}({inside})"


def _block(pipeline: Iterable[ir.Op]) -> str:
    """A block in one line."""
    return f"{{ {'; '.join(line.strip() for line in _pipeline(pipeline, 0))} }}"


def _rank(rank: ir.Rank) -> str:
    match rank:
        case ir.Nearest(field, query, recall):
            wanted = "" if recall is None else f", recall={_expression(recall)}"
            return f"nearest({_expression(field)}, {_expression(query)}{wanted})"
        case ir.Bm25(field, query):
            return f"bm25({_expression(field)}, {_expression(query)})"
        case ir.Rrf(first, second, k):
            return f"rrf({_rank(first)}, {_rank(second)}, k={_expression(k)})"
        case _:
            assert_never(rank)


def _order(key: ir.OrderKey) -> str:
    nulls = "" if key.nulls_first is None else f" nulls {'first' if key.nulls_first else 'last'}"
    match key.expression:
        case ir.EntityRef(variable):
            text = _name(variable)
        case expression:
            text = _expression(expression)
    return f"{text} {'desc' if key.descending else 'asc'}{nulls}"


def _name(variable: str) -> str:
    return variable if variable.startswith("~") else f"${variable}"


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"{_INDENT}{line}" for line in lines)


def _statement(statement: ir.Statement) -> str:
    match statement:
        case ir.InsertNode(node_type, assignments, variable, keeps_rest):
            word = "UpsertNode" if keeps_rest else "InsertNode"
            named = "" if variable is None else f" as {_name(variable)}"
            return f"{word} {node_type} {{ {_assignments(assignments)} }}{named}"
        case ir.InsertEdge(edge_type, source, target, assignments, keeps_rest):
            word = "UpsertEdge" if keeps_rest else "InsertEdge"
            properties = f" {{ {_assignments(assignments)} }}" if assignments else ""
            return f"{word} {edge_type} from {_expression(source)} to {_expression(target)}{properties}"
        case ir.UpdateRows(key, assignments, predicate, variable):
            word = "UpdateEdge" if key.kind == "edge" else "UpdateNode"
            return f"{word} {_target(key.name, variable)} {{ {_assignments(assignments)} }}{_condition(predicate)}"
        case ir.DeleteNode(node_type, predicate, cascades, variable):
            cascade = f" cascade {', '.join(cascades)}" if cascades else ""
            return f"DeleteNode {_target(node_type, variable)}{_condition(predicate)}{cascade}"
        case ir.DeleteEdge(edge_type, predicate, variable):
            return f"DeleteEdge {_target(edge_type, variable)}{_condition(predicate)}"
        case _:
            assert_never(statement)


def _target(type_name: str, variable: str | None) -> str:
    return type_name if variable is None else f"{_name(variable)}: {type_name}"


def _assignments(assignments: Iterable[ir.Assignment]) -> str:
    return ", ".join(f"{item.property}: {_expression(item.value)}" for item in assignments)


def _condition(predicate: ir.Expression | None) -> str:
    return "" if predicate is None else f" where {_expression(predicate)}"
