"""Where expressions may stand, and what they may hold there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import partial

from omnigraph.core.source import Hint, did_you_mean
from omnigraph.core.types import Scalar, ScalarType
from omnigraph.frozen import frozen
from omnigraph.lang.query import ir
from omnigraph.lang.query.check.scope import Context
from omnigraph.lang.query.functions import table as functions
from omnigraph.lang.query.syntax import ast
from omnigraph.lang.query.syntax.advice import JOINED, RESERVED, name_advice
from omnigraph.lang.query.syntax.printing import print_expression

_BLOB = ScalarType(Scalar.BLOB)


AGGREGATES = frozenset(function.value for function in ir.AggregateFunction)


TEXT_FUNCTIONS = frozenset(kind.value for kind in ir.TextKind)


RANK_FUNCTIONS = frozenset({"nearest", "bm25", "rrf"})


VALUE_FUNCTIONS = frozenset({"now", "date", "datetime"})


PATH_FUNCTIONS = frozenset({"nodes", "edges"})


ENTITY_FUNCTIONS = frozenset({"object"})


FUNCTIONS = (
    PATH_FUNCTIONS
    | ENTITY_FUNCTIONS
    | AGGREGATES
    | TEXT_FUNCTIONS
    | RANK_FUNCTIONS
    | VALUE_FUNCTIONS
    | frozenset(functions.names())
)


@frozen
class Place:
    """Where an expression stands, which decides what it may hold."""

    #: How messages call it.
    name: str
    #: Whether rows of the match are there; a constant has none.
    has_rows: bool = True
    #: Whether `search` and its like may stand there.
    texts: bool = False
    #: Whether aggregates over groups may stand there; `check_aggregate` makes them.
    aggregates: bool = False
    #: What bare names mean: result columns, or properties of the row of a statement. None where they mean nothing.
    names: Mapping[str, ir.Expression | None] | None = None
    #: The same for `@id` and its like.
    meta_names: Mapping[str, ir.Expression] = field(default_factory=dict)
    #: Whether a statement stands there behind a match, whose blocks it may use.
    has_match: bool = False
    #: Whether it is an element of a list literal, which holds constants.
    is_listed: bool = False
    #: The names that columns get beside it.
    aliases: frozenset[str] = frozenset()


IN_MATCH = Place("match", texts=True)


IN_RETURN = Place("return", aggregates=True)


CONSTANT = Place("a constant", has_rows=False)


def report_not_returned(context: Context, expression: ast.Expression) -> None:
    """Record that `having` reads something that is not there behind `return` (T45)."""
    text = print_expression(expression)
    hint = f"return it, as in `{text} as n`, or put the condition into `match`"
    context.error("T45", expression.span, f"`{text}` is not returned: `having` reads columns", hint)


def is_of_rows(context: Context, place: Place, expression: ast.PropertyAccess | ast.SystemField) -> bool:
    """Whether a property may stand there; T45 where only constants may."""
    if place.has_rows or expression.variable.name in context.params:
        return True
    text = print_expression(expression)
    if place.name == "column":
        report_not_returned(context, expression)
        return False
    message = f"`{text}` differs from row to row: here stands a constant"
    hint = f"compare in a condition of its own: `$x.property = {text}`"
    if place.is_listed:
        message = f"`{text}` differs from row to row: a list literal holds constants"
        hint = f"compare it beside the list: `… or $x.property = {text}`"
    context.error("T45", expression.span, message, hint)
    return False


def bare_name(context: Context, name: ast.Alias, place: Place) -> ir.Expression | None:
    """What a bare name means there."""
    if place.names is not None:
        if name.name in place.names:
            return place.names[name.name]
        is_row = place.name == "statement"
        message = f"there is no {'property' if is_row else place.name} `{name.name}`"
        hint: Hint = partial(did_you_mean, name.name, place.names)
        if name.name in place.meta_names:
            hint = f"write `@{name.name}`"
        context.error("T11" if is_row else "T6", name.span, message, hint)
        return None
    if name.name in RESERVED:
        context.error(
            "Q000", name.span, f"`{name.name}` is a reserved word", JOINED if name.name in ("and", "or") else None
        )
    elif place.name == "match":
        message = f"`{name.name}` is not a value: a result column cannot be compared in `match`"
        context.error("T7", name.span, message, name_advice(name.name))
    elif name.name in place.aliases:
        message = f"`{name.name}` is a column, and no column is made from another"
        context.error("Q117", name.span, message, f"name the value in `match`: `let ${name.name} = …`")
    elif not place.has_rows or place.name == "statement":
        what = "a constant" if not place.has_rows or place.is_listed else "a value: a new row has none yet"
        message = f"`{name.name}` is not {what}"
        hint = f'write `${name.name}` for a parameter, or `"{name.name}"` for a text'
        if place.is_listed:
            hint += f"; a property is compared beside the list: `… or x = {name.name}`"
        context.error("T45", name.span, message, hint)
    else:
        message = f"`{name.name}` is not a value: properties are written with their variable"
        context.error("Q117", name.span, message, name_advice(name.name))
    return None


def allows_blocks(context: Context, place: Place, expression: ast.Expression) -> bool:
    """Whether a block may stand there; T45 where only constants may."""
    if place.has_rows and (place.name != "statement" or place.has_match):
        return True
    if place.name == "column":
        report_not_returned(context, expression)
    else:
        hint = "write the pattern before the statement: `match { … }`" if place.name == "statement" else None
        context.error("T45", expression.span, "a block needs the rows of a match and cannot stand here", hint)
    return False
