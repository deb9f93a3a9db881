"""Checks of everything behind `match`: columns, groups, having, order, offset, limit and ranking."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from omnigraph.core.source import did_you_mean
from omnigraph.core.types import Scalar, ScalarType, VectorType
from omnigraph.frozen import frozen
from omnigraph.lang.query import ir
from omnigraph.lang.query.check.aggregates import check_sortable, count_value, order_key
from omnigraph.lang.query.check.expressions import check, condition
from omnigraph.lang.query.check.operands import entity, property_ref
from omnigraph.lang.query.check.places import AGGREGATES, IN_RETURN, RANK_FUNCTIONS, Place
from omnigraph.lang.query.check.scope import Context, PathVariable, Scope
from omnigraph.lang.query.check.search import rank
from omnigraph.lang.query.check.slips import is_subscript, report_subscript
from omnigraph.lang.query.syntax import ast
from omnigraph.lang.query.syntax.advice import RESERVED
from omnigraph.lang.query.syntax.printing import print_expression

_BLOB = ScalarType(Scalar.BLOB)
#: What differs from row to row by itself, and not because of what it is made of.
_OF_ROWS = (ir.PropertyRef, ir.EntityRef, ir.TypeOf, ir.PathRef, ir.Exists, ir.BlockValue, ir.TextMatch)


@frozen(kw_only=True)
class CheckedResult:
    """The columns, groups, order and limits of a read."""

    projections: tuple[ir.Projection, ...]
    grouped: bool
    having: ir.Expression | None
    rank: ir.Rank | None
    order: tuple[ir.OrderKey, ...]
    offset: ir.Value | None
    limit: ir.Value | None
    per: tuple[ir.Expression, ...]


@dataclass(slots=True)
class _Shown:
    """The returned columns, as `having`, order keys and `per` refer to them."""

    #: By name; None where a column is wrong, which is reported already.
    columns: dict[str, ir.Projection | None] = field(default_factory=dict)
    #: The column that each written expression is returned as.
    written: dict[ast.Expression, str] = field(default_factory=dict)
    grouped: bool = False

    @property
    def made(self) -> list[ir.Projection]:
        """The columns that are right."""
        return [column for column in self.columns.values() if column is not None]


def check_result(context: Context, scope: Scope, body: ast.ReadBody) -> CheckedResult:
    """Resolve everything behind `match`."""
    rank_key = _rank_key(body)
    # Ranking problems come first: a wrong order key would otherwise hide behind its projection.
    if rank_key is not None:
        _check_ranking(context, body, rank_key)
    ranked = rank(context, scope, rank_key) if rank_key is not None else None
    shown = _columns(context, scope, body, rank_key, ranked)
    has_aggregate = any(_has_aggregate(item.expression) for item in shown.made)
    shown.grouped = has_aggregate or body.distinct
    if shown.grouped:
        _check_grouping(context, body, shown)
    having = None if body.having is None else _having(context, scope, body.having, shown)
    keys = [
        _order_key(context, scope, sort, shown)
        for index, sort in enumerate(body.order)
        if not (index == 0 and rank_key is not None)
    ]
    offset, limit = _window(context, body, rank_key)
    per = [
        _returned(context, scope, expression, shown)
        for expression in (body.limit.per if body.limit is not None else ())
    ]
    return CheckedResult(
        projections=tuple(shown.made),
        grouped=shown.grouped,
        having=having,
        rank=ranked,
        order=tuple(key for key in keys if key is not None),
        offset=offset,
        limit=limit,
        per=tuple(item for item in per if item is not None),
    )


# ---- columns


def column_name(projection: ast.Projection) -> str | None:
    """The name of a result column: its alias, else what the expression is; None for what has no name by itself."""
    if projection.alias is not None:
        return projection.alias
    match projection.expression:
        case ast.PropertyAccess(variable, name):
            return f"{variable.name}.{name}"
        case ast.SystemField(variable, name):
            return f"{variable.name}.@{name}"
        case ast.Variable(name) | ast.Alias(name):
            return name
        case ast.Call("rrf"):
            return "_score"
        case ast.Call("nearest" | "bm25" as function, (ast.PropertyAccess(variable), *_)):
            return f"{variable.name}.{'_distance' if function == 'nearest' else '_score'}"
        case ast.Call("date" | "datetime", (ast.Literal_(),)):
            return "literal"
        case ast.Call("now", ()):
            return "now"
        case ast.Call(function, clauses=None) if function in AGGREGATES | RANK_FUNCTIONS:
            return function
        case ast.Literal_() | ast.ListLiteral():
            return "literal"
    return None


def _columns(
    context: Context, scope: Scope, body: ast.ReadBody, rank_key: ast.Call | None, ranked: ir.Rank | None
) -> _Shown:
    shown = _Shown()
    place = replace(IN_RETURN, aliases=frozenset(item.alias for item in body.projections if item.alias is not None))
    before: ast.Projection | None = None
    for projection in body.projections:
        expression = projection.expression
        if before is not None and is_subscript(before.span, expression):
            report_subscript(context, expression)
            continue
        before = projection
        if projection.alias in RESERVED:
            context.error(
                "Q000", projection.span, f"`{projection.alias}` is a reserved word", "give the column another name"
            )
            continue
        if isinstance(expression, ast.AllProperties):
            _all_properties(context, scope, projection, expression, shown)
            continue
        name = column_name(projection)
        is_unnamed = name is None
        if name is None:
            name = print_expression(expression)
        # A bare word has no value, and is reported as such.
        elif name in shown.columns and not isinstance(expression, ast.Alias):
            context.error("Q114", projection.span, f"two columns are called `{name}`", "name one of them with `as`")
            continue
        if not is_unnamed and not isinstance(expression, ast.Literal_ | ast.ListLiteral):
            shown.written.setdefault(_spelt_out(scope, expression), name)
        if rank_key is not None and expression == rank_key:
            shown.columns[name] = None if ranked is None else ir.Projection(name, ranked, ir.SCORE_TYPE)
            continue
        found = _path(scope, expression, ir.PathPart.STEPS) or _value(context, scope, expression, place)
        if is_unnamed and found is not None:
            _report_unnamed(context, projection)
        shown.columns[name] = None if found is None else ir.Projection(name, found, found.type)
    return shown


def _value(context: Context, scope: Scope, expression: ast.Expression, place: Place) -> ir.Expression | None:
    if isinstance(expression, ast.Null):
        context.error("Q120", expression.span, "a column of nothing but null has no type")
        return None
    found = check(context, scope, expression, place)
    if found is not None and found.type.base == _BLOB:
        context.error("T24", expression.span, "a Blob cannot be returned by a query: read it as a cell")
        return None
    return found


def _report_unnamed(context: Context, projection: ast.Projection) -> None:
    text = print_expression(projection.expression)
    words = [found.property for found in ast.walk(projection.expression) if isinstance(found, ast.PropertyAccess)]
    match projection.expression:
        case ast.Call(name, clauses=tuple()):
            words.insert(0, name)
        case ast.Exists(negated):
            words.insert(0, "missing" if negated else "found")
        case _:
            pass
    name = words[0] if words else "value"
    context.error("T43", projection.span, f"the column `{text}` needs a name", f"write `{text} as {name}`")


def _all_properties(
    context: Context, scope: Scope, projection: ast.Projection, expression: ast.AllProperties, shown: _Shown
) -> None:
    """`$p.*`: a column for every property but blobs and vectors."""
    variable = expression.variable
    bound = entity(context, scope, variable, expression.span)
    if projection.alias is not None:
        message = f"`${variable.name}.*` is several columns and takes no name"
        hint = f"leave out `as {projection.alias}`: each column is called as its property"
        context.error("Q110", projection.span, message, hint)
    if bound is None or bound.members is None:
        return
    for property_name in bound.property_names():
        found = property_ref(context, scope, ast.PropertyAccess(variable, property_name, expression.span))
        if found is None or found.type.base == _BLOB or isinstance(found.type.base, VectorType):
            continue
        name = f"{variable.name}.{property_name}"
        if name in shown.columns:
            message = f"two columns are called `{name}`"
            context.error("Q114", projection.span, message, "return each property once")
            continue
        shown.columns[name] = ir.Projection(name, found, found.type)
        shown.written.setdefault(ast.PropertyAccess(variable, property_name), name)


# ---- groups


def _has_aggregate(expression: ir.Expression | ir.Rank) -> bool:
    return not isinstance(expression, ir.Nearest | ir.Bm25 | ir.Rrf) and any(
        isinstance(found, ir.Aggregate) for found in ir.walk(expression)
    )


def _check_grouping(context: Context, body: ast.ReadBody, shown: _Shown) -> None:
    keys = [item.expression for item in shown.made if not _has_aggregate(item.expression)]
    spans = {column_name(item) or print_expression(item.expression): item.span for item in body.projections}
    for column in shown.made:
        span = spans.get(column.name)
        if span is None:
            # One of several columns that are written together: a property, which always groups.
            continue
        if isinstance(column.expression, ir.Nearest | ir.Bm25 | ir.Rrf):
            context.error("T9", span, "a score belongs to one row: it is not a group, and not distinct")
        elif _has_aggregate(column.expression):
            left = next(_ungrouped(column.expression, keys), None)
            if left is not None:
                message = f"`{_text(left)}` stands beside an aggregate and is not returned, so it has no single value"
                context.error("T9", span, message, f"return `{_text(left)}` too, or aggregate it")
        elif isinstance(column.expression, ir.PathRef):
            message = "a path is neither a group nor distinct"
            context.error("T9", span, message, "group by its length, or by its ends")
        elif isinstance(column.type.base, VectorType):
            context.error("T9", span, "vectors are not compared, so they are neither groups nor distinct")


def _ungrouped(expression: ir.Expression, keys: list[ir.Expression | ir.Rank]) -> Iterator[ir.Expression]:
    """The parts of an expression with an aggregate that are neither constant nor a group."""
    if expression in keys or isinstance(expression, ir.Aggregate):
        return
    if isinstance(expression, _OF_ROWS):
        yield expression
        return
    for part in ir.parts(expression):
        yield from _ungrouped(part, keys)


def _text(expression: ir.Expression) -> str:
    match expression:
        case ir.PropertyRef(variable, name):
            return f"${variable}.{name}"
        case ir.EntityRef(variable):
            return f"${variable}"
        case ir.TypeOf(variable):
            return f"${variable}.@type"
        case ir.PathRef(path):
            return f"length(${path})"
        case _:
            return "{ … }"


def _having(context: Context, scope: Scope, expression: ast.Expression, shown: _Shown) -> ir.Expression | None:
    """One condition over columns, returned expressions and constants."""
    names: dict[str, ir.Expression | None] = {
        name: None if column is None else _column_ref(column) for name, column in shown.columns.items()
    }
    for name, column in shown.columns.items():
        if column is not None and isinstance(column.expression, ir.Nearest | ir.Bm25 | ir.Rrf):
            del names[name]
    place = Place("column", has_rows=False, names=names)
    replaced = _with_columns(_spelt_out(scope, expression), shown)
    return condition(context, scope, replaced, place)


def _spelt_out(scope: Scope, expression: ast.Expression, within: frozenset[str] = frozenset()) -> ast.Expression:
    """An expression with what `let` names written out, so that equal expressions have equal trees."""

    def of(part: ast.Expression) -> ast.Expression | None:
        if not isinstance(part, ast.Variable) or part.name in within or part.name not in scope.lets:
            return None
        return _spelt_out(scope, scope.lets[part.name].expression, within | {part.name})

    return ast.rewritten(expression, of)


def _with_columns(expression: ast.Expression, shown: _Shown) -> ast.Expression:
    """An expression with the parts that are returned replaced by the names of their columns."""
    return ast.rewritten(
        expression, lambda part: ast.Alias(shown.written[part], part.span) if part in shown.written else None
    )


def _column_ref(column: ir.Projection) -> ir.ColumnRef:
    return ir.ColumnRef(column.name, column.type, isinstance(column.expression, ir.PropertyRef))


# ---- order


def _path(scope: Scope, expression: ast.Expression, part: ir.PathPart = ir.PathPart.EDGES) -> ir.PathRef | None:
    """A part of a path that is named as a whole: its edges, which paths are ordered by, or the steps that are shown."""
    if not isinstance(expression, ast.Variable) or not isinstance(scope.bound.get(expression.name), PathVariable):
        return None
    return ir.PathRef(expression.name, part, expression.name in scope.optional)


def _is_path(scope: Scope, expression: ast.Expression, shown: _Shown) -> bool:
    """Whether an order key is a path as a whole, by its own name or that of its column."""
    column = shown.columns.get(expression.name) if isinstance(expression, ast.Alias) else None
    return _path(scope, expression) is not None or (column is not None and _is_shown_path(column))


def _is_shown_path(column: ir.Projection) -> bool:
    return isinstance(column.expression, ir.PathRef) and column.expression.part is ir.PathPart.STEPS


def _order_key(context: Context, scope: Scope, sort: ast.Sort, shown: _Shown) -> ir.OrderKey | None:
    found = _returned(context, scope, sort.expression, shown)
    if found is None or not (
        _is_path(scope, sort.expression, shown) or check_sortable(context, sort.expression, found.type)
    ):
        return None
    return order_key(found, sort)


def _returned(context: Context, scope: Scope, expression: ast.Expression, shown: _Shown) -> ir.Expression | None:
    """A column by its name or its expression; in a query without groups also a property, node or path of the match."""
    path = _path(scope, expression)
    if isinstance(expression, ast.Alias):
        if expression.name not in shown.columns:
            message = f"there is no column `{expression.name}`"
            names = [name for name, column in shown.columns.items() if column is not None]
            context.error("T6", expression.span, message, partial(did_you_mean, expression.name, names))
            return None
        column = shown.columns[expression.name]
        if column is not None and isinstance(column.expression, ir.PathRef) and _is_shown_path(column):
            # Paths are ordered by their edges, whatever is shown of them.
            return replace(column.expression, part=ir.PathPart.EDGES)
        return None if column is None else _column_ref(column)
    name = shown.written.get(_spelt_out(scope, expression))
    if name is not None and path is None:
        column = shown.columns[name]
        return None if column is None else _column_ref(column)
    text = print_expression(expression)
    if isinstance(expression, ast.Call) and expression.function in RANK_FUNCTIONS:
        context.error("Q112", expression.span, f"`{expression.function}` can only be the first order key")
        return None
    found = path or check(context, scope, expression, IN_RETURN)
    if found is None:
        return None
    if isinstance(found, ir.Constant | ir.ParamRef):
        message = f"the order key `{text}` is the same in every row"
        context.error("T42", expression.span, message, "order by a property or a column")
        return None
    if not isinstance(found, ir.PropertyRef | ir.EntityRef | ir.TypeOf) and path is None:
        message = f"the order key `{text}` is not returned"
        context.error("T42", expression.span, message, f"return it under a name and order by that: `{text} as n`")
        return None
    if shown.grouped:
        message = f"the order key `{text}` is not returned, and groups have returned values only"
        context.error("T42", expression.span, message, f"return `{text}` too")
        return None
    return found


# ---- ranking and windows


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


def _check_ranking(context: Context, body: ast.ReadBody, rank_key: ast.Call) -> None:
    first = body.order[0]
    if body.limit is None and rank_key.function == "rrf":
        context.error("T21", first.span, "`rrf` needs a `limit`: it fuses the best entities of two rankings")
    elif body.limit is None and rank_key.function == "nearest":
        context.error("T17", first.span, "`nearest` needs a `limit`: every vector is near to some degree")
    # Written out, `nearest` takes no direction at all; under an alias `asc` says what happens anyway.
    is_directed = first.direction is not None and (first.expression is rank_key or first.direction == "desc")
    if rank_key.function == "nearest" and is_directed:
        context.error("Q113", first.span, "`nearest` takes no direction: the nearest come first")


def _window(context: Context, body: ast.ReadBody, rank_key: ast.Call | None) -> tuple[ir.Value | None, ir.Value | None]:
    offset = None if body.offset is None else count_value(context, body.offset)
    limit = None if body.limit is None else count_value(context, body.limit.count)
    if body.offset is not None and not body.order:
        message = "`offset` needs an order: without one any rows may be left out"
        context.error("Q119", body.offset.span, message, "add `order { … }` before it")
    if body.limit is not None and body.limit.per:
        ranks_a_window = rank_key is not None and rank_key.function in ("nearest", "rrf")
        if not body.order:
            message = "`limit … per` needs an order: it keeps the first rows of each group"
            context.error("Q119", body.limit.span, message, "add `order { … }` before it")
        elif body.offset is not None:
            context.error("Q119", body.limit.span, "`limit … per` cannot be combined with `offset`")
        elif ranks_a_window:
            assert rank_key is not None
            message = f"`limit … per` cannot be combined with `{rank_key.function}`, whose window is the limit"
            context.error("Q119", body.limit.span, message)
    return offset, limit
