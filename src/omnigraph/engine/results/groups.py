"""The result columns of groups: what expressions are evaluated over, having, and the first of an order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import partial

from omnigraph.core.arrow import Array, pa, pc
from omnigraph.core.values import StoredValue
from omnigraph.engine.predicates import computed, refuse_overflow
from omnigraph.engine.results.bounds import Key, Way, candidates
from omnigraph.engine.results.first_rows import can_overflow
from omnigraph.engine.results.projection import with_one_zero
from omnigraph.engine.rows import BoolArray, IntArray, Rows
from omnigraph.engine.tables.context import Context
from omnigraph.engine.values.comparisons import as_array
from omnigraph.engine.values.expressions import Reference, evaluate
from omnigraph.frozen import frozen
from omnigraph.lang.query import ir


@frozen
class Groups:
    """Groups as what expressions are evaluated over: their keys, their aggregates, and the columns made of them."""

    count: int
    values: Mapping[str, StoredValue]
    known: dict[ir.Expression, Array]
    columns: dict[str, Array] = field(default_factory=dict)
    #: Where groups are numbers of rows: those numbers.
    numbers: IntArray | None = None
    #: Keys whose values are read when they are asked for, and the entities that they are read of.
    keys: tuple[ir.Expression, ...] = ()
    entities: tuple[Context, Rows] | None = None

    def column(self, expression: Reference) -> Array:
        """A key, an aggregate, or a result column."""
        if isinstance(expression, ir.ColumnRef):
            return self.columns[expression.name]
        return self.value(expression)

    def block(self, expression: ir.BlockValue) -> tuple[Array, BoolArray | None]:
        """A block that is a key: what overflows in it is refused before."""
        return self.value(expression), None

    def has(self, expression: ir.Expression) -> bool:
        """Whether an expression is a key or an aggregate."""
        return expression in self.known or expression in self.keys

    def value(self, expression: ir.Expression) -> Array:
        """The values of a key or an aggregate."""
        if expression not in self.known:
            assert self.entities is not None, "what is not known is read of entities"
            context, rows = self.entities
            self.known[expression] = with_one_zero(computed(context, rows, expression))
        return self.known[expression]

    def value_at(self, expression: ir.Expression, places: IntArray | None) -> Array:
        """The same of some groups; keys of the others are not read."""
        if places is None:
            return self.value(expression)
        if expression in self.known:
            return self.known[expression].take(pa.array(places))
        assert self.entities is not None, "what is not known is read of entities"
        context, rows = self.entities
        return with_one_zero(computed(context, rows.only(set(ir.variables(expression))).take(places), expression))

    def take(self, places: IntArray) -> Groups:
        """Some groups."""
        index = pa.array(places)
        entities = None if self.entities is None else (self.entities[0], self.entities[1].take(places))
        return Groups(
            len(places),
            self.values,
            {expression: column.take(index) for expression, column in self.known.items()},
            {name: column.take(index) for name, column in self.columns.items()},
            None if self.numbers is None else self.numbers[places],
            self.keys,
            entities,
        )


def first_groups(context: Context, groups: Groups, query: ir.ReadIR, wanted: int | None) -> Groups:
    """The groups that the first `wanted` are among, before values are read that only those need.

    All groups where the others matter too: they are left out or counted later, or may fail the query.
    """
    expressions = {
        item.name: item.expression
        for item in query.projections
        if not isinstance(item.expression, ir.Nearest | ir.Bm25 | ir.Rrf)
    }
    is_whole = query.having is not None or query.per or not query.order or query.rank is not None
    if (
        is_whole
        or wanted is None
        or not all(groups.has(item) and not can_overflow(item) for item in expressions.values())
    ):
        return groups
    ordered = [
        (key.expression.name, Way(key.descending, key.nulls_first))
        for key in query.order
        if isinstance(key.expression, ir.ColumnRef)
    ]
    assert len(ordered) == len(query.order), "groups are ordered by what is returned"
    # Ties are broken by what is left; a column that is ordered by already breaks none.
    ordered += [(name, Way()) for name in expressions]
    keys = [Key(way, partial(groups.value_at, expressions[name])) for name, way in ordered]
    found = candidates(groups.count, keys, wanted, context.budget.check)
    return groups if found is None else groups.take(found)


def group_table(context: Context, groups: Groups, query: ir.ReadIR) -> pa.Table:
    """The result columns of groups, in stored form, without those that `having` leaves out."""
    known: dict[ir.Expression, ir.ColumnRef] = {}
    for item in query.projections:
        assert not isinstance(item.expression, ir.Nearest | ir.Bm25 | ir.Rrf), "a score is no value of a group"
        if groups.has(item.expression):
            known.setdefault(item.expression, ir.ColumnRef(item.name, item.type))
            groups.columns[item.name] = groups.value(item.expression)
    for item in query.projections:
        if item.name not in groups.columns:
            assert not isinstance(item.expression, ir.Nearest | ir.Bm25 | ir.Rrf), "a score is no value of a group"
            # A part that is a key is a value of the group, whatever it was made of.
            expression = ir.rewritten(item.expression, known.get)
            groups.columns[item.name] = _column(context, groups, expression)
    table = pa.table({item.name: groups.columns[item.name] for item in query.projections})
    if query.having is not None:
        truths = pc.fill_null(_column(context, groups, query.having), False)
        table = table.filter(truths)
    return table


def _column(context: Context, groups: Groups, expression: ir.Expression) -> Array:
    found = evaluate(expression, groups)
    if found.overflow is not None:
        refuse_overflow(context, Rows(count=groups.count), found.overflow)
    return as_array(found.side, groups.count)
