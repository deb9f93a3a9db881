"""The first rows of an order, while batches come: what cannot be among them is dropped at once.

Once as many rows are held as are wanted, the last of them is a bound: a row of a later batch that comes behind it is
dropped after one comparison per key. What is left of a batch is cut by bounds that samples of it give, and survivors
are put into exact order. Memory follows how many rows are wanted, not how many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from omnigraph.core.arrow import Array
from omnigraph.engine.predicates import ID, computed, stored_columns, with_columns
from omnigraph.engine.results.bounds import Key, Way, candidates, comparable, compared
from omnigraph.engine.results.projection import first_of_each, key_codes, key_operand, total_order
from omnigraph.engine.rows import IntArray, Rows, concat_rows
from omnigraph.engine.tables.context import Context, is_hidden
from omnigraph.frozen import frozen
from omnigraph.lang.query import ir
from omnigraph.lang.query.functions.table import function_named

#: Rows that are held before those that cannot be among the first are dropped.
_PRUNE_ROWS = 1 << 14
#: The same where all rows are ordered to drop some: the first of every group.
_PRUNE_GROUPED_ROWS = 1 << 19
#: How many times more rows than wanted are held at most.
_SPARE = 4


def first_rows(context: Context, batches: Iterator[Rows], query: ir.ReadIR, per_group: int | None = None) -> Rows:
    """All rows, or the first that are wanted, in total order; with `per_group` the first so many of every group."""
    if context.wanted is not None:
        return _First(context, query, context.wanted).rows(batches)
    budget = context.budget
    held: list[Rows] = []
    count, size, most = 0, 0, _PRUNE_GROUPED_ROWS
    for rows in batches:
        held.append(rows)
        count, size = count + rows.count, size + budget.hold(rows.nbytes)
        if per_group is not None and count > most:
            held = [first_of_groups(context, _sorted(context, held, query), query, per_group)]
            budget.release(size)
            count, size = held[0].count, budget.hold(held[0].nbytes)
            # Groups that have no more rows than are wanted do not become smaller with every batch.
            most = max(_PRUNE_GROUPED_ROWS, 2 * count)
    return _sorted(context, held, query)


def first_of_groups(context: Context, rows: Rows, query: ir.ReadIR, limit: int) -> Rows:
    """Of ordered rows the first `limit` of each group that `per` makes."""
    keys = [ir.OrderKey(part, descending=False) for key in query.per for part in _identity(query, key)]
    rows, codes = key_codes(context, rows.written_out(0, rows.total), query, keys)
    return rows.take(first_of_each(codes, limit, rows.count))


def _identity(query: ir.ReadIR, key: ir.Expression) -> Iterator[ir.Expression]:
    """What makes two rows of one group: of nodes and edges their type too, since several types may share an id."""
    yield key
    operand = key_operand(query, key)
    if isinstance(operand, ir.EntityRef):
        yield ir.TypeOf(operand.variable, operand.nullable)


def _sorted(context: Context, parts: list[Rows], query: ir.ReadIR) -> Rows:
    budget = context.budget
    budget.enter("Order")
    count = sum(part.count for part in parts)
    # All rows once more, a number per row and order key, and the places in order.
    budget.allow(sum(part.nbytes for part in parts) * 2 + count * 8 * (2 + len(query.order)))
    rows = concat_rows(parts)
    if not rows.count:
        return rows
    rows, codes = key_codes(context, rows, query)
    order = total_order(context, rows, codes, context.wanted)
    return budget.patiently(lambda: rows.take(order), len(order))


# ---- The rows that may be among the first


@frozen
class _RowKey:
    """An order key, or the id of a variable where those leave rows tied."""

    way: Way
    values: Callable[[Rows], Array]
    #: What the values are made of; None for an id.
    expression: ir.Expression | None = None


class _First:
    """The first `wanted` rows of a stream."""

    def __init__(self, context: Context, query: ir.ReadIR, wanted: int) -> None:
        self._context = context
        self._query = query
        self._wanted = wanted
        self._most = max(_PRUNE_ROWS, _SPARE * wanted)
        self._keys: list[_RowKey] | None = None
        #: The values of the last row that is held, key by key; none before enough rows are held.
        self._bounds: list[object] = []

    def rows(self, batches: Iterator[Rows]) -> Rows:
        """The first rows of all batches, in total order."""
        budget = self._context.budget
        held: list[Rows] = []
        count, size = 0, 0
        for batch in batches:
            budget.enter("Order")
            rows = self._cut(batch)
            if not rows.count:
                continue
            held.append(rows)
            count, size = count + rows.count, size + budget.hold(rows.nbytes)
            if count > self._most:
                held = [_sorted(self._context, held, self._query)]
                budget.release(size)
                count, size = held[0].count, budget.hold(held[0].nbytes)
                self._bounds = self._bounds_of(held[0])
        return _sorted(self._context, held, self._query)

    def _cut(self, rows: Rows) -> Rows:
        """The rows of a batch that may be among the first."""
        if self._keys is None:
            self._keys = self._keys_of(rows)
        if not self._keys or rows.count <= self._wanted // _SPARE:
            return rows
        first = self._keys[0]
        if first.expression is not None:
            rows = with_columns(self._context, rows, stored_columns((first.expression,)))
        for key in self._keys[1:]:
            if key.expression is not None and can_overflow(key.expression):
                # Whether an integer overflows in a row does not depend on whether the row is among the first.
                key.values(rows)
        values = comparable(first.values(rows))
        if self._bounds:
            rows, values = self._before_bounds(rows, values)
        keys = [
            Key(key.way, partial(_chosen, rows, key.values if number else values))
            for number, key in enumerate(self._keys)
        ]
        found = candidates(rows.count, keys, self._wanted, self._context.budget.check)
        return rows if found is None else rows.take(found)

    def _before_bounds(self, rows: Rows, values: Array) -> tuple[Rows, Array]:
        """The rows that do not come behind the last row that is held, with their values of the first key."""
        assert self._keys is not None, "there are bounds of keys only"
        first, *others = self._keys
        before, same = compared(values, first.way, self._bounds[0])
        places = np.flatnonzero(before | same)
        tied = np.flatnonzero(same[places])
        behind = np.zeros(len(places), np.bool_)
        for key, bound in zip(others, self._bounds[1:], strict=True):
            if not len(tied):
                break
            self._context.budget.check()
            before, same = compared(comparable(key.values(rows.take(places[tied]))), key.way, bound)
            behind[tied[~(before | same)]] = True
            tied = tied[same]
        places = places[~behind]
        return rows.take(places), values.take(places)

    def _bounds_of(self, rows: Rows) -> list[object]:
        """The values of the last wanted row, when there are as many."""
        if rows.count < self._wanted:
            return []
        assert self._keys is not None, "there are rows, so there are keys"
        last = rows.take(np.array([self._wanted - 1]))
        return [comparable(key.values(last))[0] for key in self._keys]

    def _keys_of(self, rows: Rows) -> list[_RowKey]:
        """What the order is made of, as far as single values show which of two rows comes first."""
        context = self._context
        keys: list[_RowKey] = []
        for order in self._query.order:
            operand = key_operand(self._query, order.expression)
            if isinstance(operand, ir.Nearest | ir.Bm25 | ir.Rrf | ir.PathRef):
                # What earlier keys leave tied is kept.
                return keys
            way = Way(order.descending, order.nulls_first)
            keys.append(_RowKey(way, partial(_values, context, operand), operand))
        for name in sorted(name for name in rows.variables if not is_hidden(name)):
            if name not in context.tables or not context.is_plain(name):
                break
            keys.append(_RowKey(Way(), partial(_ids, context, name)))
        return keys


def can_overflow(expression: ir.Expression) -> bool:
    """Whether an integer in it may be beyond 64 bits."""
    for part in ir.walk(expression):
        match part:
            case ir.Arithmetic() | ir.Negative() | ir.BlockValue():
                return True
            case ir.Function(name):
                function = function_named(name)
                if function is not None and function.can_overflow:
                    return True
            case _:
                pass
    return False


def _values(context: Context, operand: ir.Expression, rows: Rows) -> Array:
    return computed(context, rows, operand)


def _ids(context: Context, variable: str, rows: Rows) -> Array:
    return context.columns(variable, rows.variables[variable], (ID,))[ID]


def _chosen(rows: Rows, values: Array | Callable[[Rows], Array], places: IntArray | None) -> Array:
    """Known values at some places, or those of the rows there."""
    if callable(values):
        return values(rows if places is None else rows.take(places))
    return values if places is None else values.take(places)
