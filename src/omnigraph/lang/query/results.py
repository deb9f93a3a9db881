"""Checks of `return`, `order` and `limit`: columns, aggregates, order keys, ranking."""

from __future__ import annotations

from functools import partial

from omnigraph.core.source import did_you_mean
from omnigraph.core.types import NUMERICS, PropertyType, Scalar, ScalarType, scalar_of
from omnigraph.frozen import frozen
from omnigraph.lang.parsing import repeated
from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.expressions import (
    AGGREGATES,
    RANK_FUNCTIONS,
    TEXT_FUNCTIONS,
    Context,
    Scope,
    check_arity,
    property_ref,
    rank,
    result_operand,
)

_BLOB = ScalarType(Scalar.BLOB)
_MAX_LIMIT = 2**63 - 1


@frozen(kw_only=True)
class CheckedResult:
    """The columns, order and limit of a read."""

    projections: tuple[ir.Projection, ...]
    grouped: bool
    rank: ir.Rank | None
    order: tuple[ir.OrderKey, ...]
    limit: int | None


def check_result(context: Context, scope: Scope, body: ast.ReadBody) -> CheckedResult:
    """Resolve everything behind `match`."""
    rank_key = _rank_key(body)
    # Ranking problems come first: a wrong order key would otherwise hide behind its projection.
    _check_ranking(context, body, rank_key)
    columns = [_projection(context, scope, item, rank_key) for item in body.projections]
    _check_columns(context, body)
    grouped = any(_is_call(item.expression, AGGREGATES) for item in body.projections)
    if grouped:
        _check_grouping(context, scope, body)
    if body.limit is not None and body.limit.count > _MAX_LIMIT:
        context.error("Q109", body.limit.span, f"the limit {body.limit.count} is beyond 64 bits")
    shown = _Shown(
        columns={column.name: column for column in columns if column is not None},
        names=frozenset(map(column_name, body.projections)),
        bare=frozenset(item.expression for item in body.projections if item.alias is None),
        grouped=grouped,
    )
    keys = [
        _order_key(context, scope, sort, shown)
        for index, sort in enumerate(body.order)
        if not (index == 0 and rank_key is not None)
    ]
    return CheckedResult(
        projections=tuple(column for column in columns if column is not None),
        grouped=grouped,
        rank=rank(context, scope, rank_key) if rank_key is not None else None,
        order=tuple(key for key in keys if key is not None),
        limit=None if body.limit is None else body.limit.count,
    )


def column_name(projection: ast.Projection) -> str:
    """The name of a result column: its alias, else what the expression is."""
    if projection.alias is not None:
        return projection.alias
    match projection.expression:
        case ast.PropertyAccess(variable, name):
            return f"{variable.name}.{name}"
        case ast.Variable(name) | ast.Alias(name):
            return name
        case ast.Call(function):
            return "literal" if function in ("date", "datetime") else function
        case ast.Literal_() | ast.ListLiteral():
            return "literal"


def _is_call(expression: ast.Expression, functions: frozenset[str]) -> bool:
    return isinstance(expression, ast.Call) and expression.function in functions


def _rank_key(body: ast.ReadBody) -> ast.Call | None:
    """The rank function of the first order key, written there or projected under the alias written there."""
    if not body.order:
        return None
    first = body.order[0].expression
    if isinstance(first, ast.Call) and first.function in RANK_FUNCTIONS:
        return first
    if isinstance(first, ast.Alias):
        for projection in body.projections:
            expression = projection.expression
            if column_name(projection) == first.name and isinstance(expression, ast.Call):
                return expression if expression.function in RANK_FUNCTIONS else None
    return None


def _check_ranking(context: Context, body: ast.ReadBody, rank_key: ast.Call | None) -> None:
    if rank_key is not None:
        _check_rank_limit(context, body, rank_key)
    _check_nearest_alone(context, body, rank_key)
    if rank_key is None:
        return
    first = body.order[0]
    # Written out, `nearest` takes no direction at all; under an alias `asc` says what happens anyway.
    is_directed = first.direction is not None and (first.expression is rank_key or first.direction == "desc")
    if rank_key.function == "nearest" and is_directed:
        context.error("Q113", first.span, "`nearest` takes no direction: the nearest come first")
    if any(_is_call(item.expression, AGGREGATES) for item in body.projections):
        message = f"`{rank_key.function}` ranks entities and cannot order the groups of an aggregate"
        context.error("Q113", first.span, message)


def _check_rank_limit(context: Context, body: ast.ReadBody, rank_key: ast.Call) -> None:
    if body.limit is not None:
        return
    first = body.order[0]
    if rank_key.function == "rrf":
        context.error("T21", first.span, "`rrf` needs a `limit`: it fuses the best entities of two rankings")
    elif rank_key.function == "nearest":
        context.error("T17", first.span, "`nearest` needs a `limit`: every vector is near to some degree")


def _check_nearest_alone(context: Context, body: ast.ReadBody, rank_key: ast.Call | None) -> None:
    """T18: `nearest` and a column are never order keys together."""
    has_nearest = (rank_key is not None and rank_key.function == "nearest") or any(
        _is_call(sort.expression, frozenset({"nearest"})) for sort in body.order
    )
    aliases = [sort for sort in body.order if isinstance(sort.expression, ast.Alias)]
    if rank_key is not None and aliases and aliases[0] is body.order[0]:
        # The first key is the ranking itself, under the name of its column.
        aliases = aliases[1:]
    if has_nearest:
        for sort in aliases:
            context.error("T18", sort.span, "`nearest` cannot be combined with a column as order key")


def _projection(
    context: Context, scope: Scope, projection: ast.Projection, rank_key: ast.Call | None
) -> ir.Projection | None:
    expression = projection.expression
    name = column_name(projection)
    if isinstance(expression, ast.Call):
        if expression.function in AGGREGATES:
            aggregate = _aggregate(context, scope, expression)
            return None if aggregate is None else ir.Projection(name, aggregate[0], aggregate[1])
        if expression.function in RANK_FUNCTIONS:
            if expression != rank_key:
                message = f"`{expression.function}` is returned as a score only when it is the first order key"
                context.error("Q112", expression.span, message, "put the same call into `order`")
                return None
            ranked = _quiet_rank(context, scope, expression)
            return None if ranked is None else ir.Projection(name, ranked, ir.SCORE_TYPE)
    value = result_operand(context, scope, expression)
    if value is None:
        return None
    if value.type.base == _BLOB:
        context.error("T24", expression.span, "a Blob cannot be returned by a query: read it as a cell")
        return None
    return ir.Projection(name, value, value.type)


def _aggregate(context: Context, scope: Scope, call: ast.Call) -> tuple[ir.Aggregate, PropertyType] | None:
    if not check_arity(context, call, 1, 1, "T8"):
        return None
    inner = call.arguments[0]
    if isinstance(inner, ast.Call) and inner.function in AGGREGATES | TEXT_FUNCTIONS | RANK_FUNCTIONS:
        context.error("T8", inner.span, f"`{call.function}` cannot aggregate `{inner.function}`")
        return None
    argument = result_operand(context, scope, inner)
    if argument is None:
        return None
    base = argument.type.base
    if base == _BLOB:
        context.error("T24", inner.span, "a Blob cannot be aggregated")
        return None
    function = ir.AggregateFunction(call.function)
    scalar = scalar_of(base)
    match function:
        case ir.AggregateFunction.COUNT:
            return ir.Aggregate(function, argument), ir.COUNT_TYPE
        case ir.AggregateFunction.SUM | ir.AggregateFunction.AVG:
            if scalar in NUMERICS:
                return ir.Aggregate(function, argument), PropertyType(ScalarType(Scalar.F64), True)
            wanted = "a number"
        case ir.AggregateFunction.MIN | ir.AggregateFunction.MAX:
            if isinstance(argument, ir.EntityRef):
                wanted = "a property"
            elif scalar in NUMERICS or scalar is Scalar.STRING:
                return ir.Aggregate(function, argument), PropertyType(base, True)
            else:
                wanted = "a number or a String"
    what = "a node" if isinstance(argument, ir.EntityRef) else str(argument.type)
    context.error("T8", inner.span, f"`{call.function}` needs {wanted}, found {what}")
    return None


def _check_columns(context: Context, body: ast.ReadBody) -> None:
    # A bare word has no value, and is reported as such.
    columns = (item for item in body.projections if not isinstance(item.expression, ast.Alias))
    for projection in repeated(columns, column_name):
        message = f"two columns are called `{column_name(projection)}`"
        context.error("Q114", projection.span, message, "name one of them with `as`")


def _check_grouping(context: Context, scope: Scope, body: ast.ReadBody) -> None:
    for projection in body.projections:
        expression = projection.expression
        if _is_call(expression, AGGREGATES | RANK_FUNCTIONS):
            continue
        is_parameter = isinstance(expression, ast.Variable) and expression.name not in scope.bound
        if is_parameter or not isinstance(expression, ast.PropertyAccess | ast.Variable):
            context.error("T9", projection.span, "beside an aggregate only properties and variables can be returned")


@frozen(kw_only=True)
class _Shown:
    """The returned columns, as order keys refer to them."""

    columns: dict[str, ir.Projection]
    #: Names of all columns, those of wrong ones included.
    names: frozenset[str]
    #: Expressions that are returned without an alias.
    bare: frozenset[ast.Expression]
    grouped: bool


def _order_key(context: Context, scope: Scope, sort: ast.Sort, shown: _Shown) -> ir.OrderKey | None:
    expression = sort.expression
    descending = sort.direction == "desc"
    match expression:
        case ast.Alias(name):
            if name not in shown.names:
                message = f"there is no column `{name}`"
                context.error("T6", expression.span, message, partial(did_you_mean, name, shown.columns))
                return None
            column = shown.columns.get(name)
            if column is None or not _check_sortable(context, expression, column.type):
                return None
            return ir.OrderKey(ir.ColumnRef(name), descending)
        case ast.PropertyAccess():
            field = property_ref(context, scope, expression)
            if field is None or not _check_sortable(context, expression, field.type):
                return None
            if shown.grouped and expression not in shown.bare:
                message = "in a query with aggregates an order key has to be returned, without an alias"
                context.error("Q113", sort.span, message)
                return None
            return ir.OrderKey(field, descending)
        case ast.Call(function) if function in RANK_FUNCTIONS:
            context.error("Q112", sort.span, f"`{function}` can only be the first order key")
        case ast.Call(function) if function in AGGREGATES:
            message = f"`{function}(…)` cannot be an order key"
            advice = f"return it under a name and order by that: `{function}(…) as n`"
            context.error("Q113", sort.span, message, advice)
        case _:
            context.error("Q113", sort.span, "an order key is a property such as `$p.year` or a column name")
    return None


def _check_sortable(context: Context, expression: ast.Expression, type_: PropertyType) -> bool:
    if type_.base == _BLOB:
        context.error("T24", expression.span, "a Blob cannot be an order key")
        return False
    if scalar_of(type_.base) is None:
        context.error("Q113", expression.span, f"{type_} has no order")
        return False
    return True


def _quiet_rank(context: Context, scope: Scope, call: ast.Call) -> ir.Rank | None:
    """A rank function that is checked as order key as well: its findings are recorded there only."""
    before = context.findings.mark()
    ranked = rank(context, scope, call)
    context.findings.forget(before)
    return ranked
