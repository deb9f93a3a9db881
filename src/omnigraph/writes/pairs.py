"""Conditions on rows of a type that also mention the match: pairs of rows and combinations for which they are true."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

import numpy as np

from omnigraph.core.arrow import Rows, pa, stored_values
from omnigraph.core.types import ListType, PropertyType, scalar_of
from omnigraph.core.values import StoredValue
from omnigraph.engine.rows import IntArray
from omnigraph.engine.values.comparisons import as_array
from omnigraph.engine.values.expressions import evaluate
from omnigraph.lang.query import ir
from omnigraph.writes.matched import Tuples
from omnigraph.writes.values import StatementRows

#: Pairs that are looked at together.
_MOST_PAIRS = 1 << 18


class PairCondition:
    """A condition on rows of a type and combinations of what the match found.

    Where it says that a value of the row equals one of the match, pairs are looked up; everything else is evaluated
    for the pairs that are left. Rows that can be in no pair are left out by the scan.
    """

    def __init__(self, predicate: ir.Expression, tuples: Tuples, params: Mapping[str, StoredValue]) -> None:
        self._tuples = tuples
        self._params = params
        self._rest: list[ir.Expression] = []
        #: The sides of the row and of the match that are equal.
        self._equal: list[tuple[ir.Expression, ir.Expression]] = []
        on_rows: list[ir.Expression] = []
        numbers = np.arange(tuples.count)
        every = StatementRows(count=tuples.count, values=params, matched=tuples.columns)
        for part in ir.conjuncts(predicate):
            names = set(ir.variables(part))
            if names <= {ir.OWN_ROW}:
                on_rows.append(part)
            elif ir.OWN_ROW not in names:
                numbers = numbers[every.holds(part)[numbers]]
            else:
                self._rest.append(part)
                if (sides := ir.own_equality(part)) is not None:
                    self._equal.append(sides)
        self._numbers = numbers
        self._known = self._matched(numbers)
        wanted = [self._one_of(own, place) for place, (own, _) in enumerate(self._equal)]
        #: What a row has to satisfy by itself.
        self.alone: ir.Expression = ir.Logical(ir.Connective.AND, (*on_rows, *(item for item in wanted if item)))
        self._numbers_of: dict[tuple[StoredValue, ...], list[int]] = defaultdict(list)
        for number, key in zip(numbers.tolist(), zip(*self._known, strict=True), strict=bool(self._known)):
            if None not in key:
                self._numbers_of[key].append(number)

    @property
    def columns(self) -> list[str]:
        """What pairs are found by, of the row."""
        parts = (part for item in self._rest for part in ir.walk(item))
        own = (part for part in parts if isinstance(part, ir.PropertyRef) and part.variable == ir.OWN_ROW)
        return list(dict.fromkeys(part.property for part in own))

    def pairs(self, rows: Rows) -> tuple[IntArray, IntArray]:
        """The places of rows, and the numbers of the combinations that they fit."""
        kept: list[tuple[IntArray, IntArray]] = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
        own = rows.select(self.columns)
        for places, numbers in self._candidates(rows):
            chosen = pa.array(numbers)
            matched = {column: values.take(chosen) for column, values in self._tuples.columns.items()}
            source = StatementRows(
                count=len(places), values=self._params, own=own.take(pa.array(places)), matched=matched
            )
            mask = np.ones(len(places), np.bool_)
            for predicate in self._rest:
                mask &= source.holds(predicate)
            kept.append((places[mask], numbers[mask]))
        return np.concatenate([places for places, _ in kept]), np.concatenate([numbers for _, numbers in kept])

    # ---- inside

    def _matched(self, numbers: IntArray) -> list[list[StoredValue]]:
        """The values of the match that rows have to equal, for some combinations."""
        chosen = pa.array(numbers)
        columns = {column: values.take(chosen) for column, values in self._tuples.columns.items()}
        source = StatementRows(count=len(numbers), values=self._params, matched=columns)
        return [_values(other, source) for _, other in self._equal]

    def _one_of(self, own: ir.Expression, place: int) -> ir.Expression | None:
        """That a property is one of the values that it can have in a pair, so that storage looks for these alone."""
        scalar = scalar_of(self._equal[place][1].type.base)
        if not isinstance(own, ir.PropertyRef) or scalar is None:
            return None
        values = tuple(dict.fromkeys(value for value in self._known[place] if value is not None))
        return ir.Comparison(ir.Constant(values, PropertyType(ListType(scalar))), ir.CompareOp.CONTAINS, own)

    def _candidates(self, rows: Rows) -> Iterator[tuple[IntArray, IntArray]]:
        """Pairs that may fit, some at a time."""
        if not self._equal:
            step = max(1, _MOST_PAIRS // max(rows.num_rows, 1))
            for begin in range(0, len(self._numbers) if rows.num_rows else 0, step):
                some = self._numbers[begin : begin + step]
                yield np.tile(np.arange(rows.num_rows), len(some)), np.repeat(some, rows.num_rows)
            return
        source = StatementRows(count=rows.num_rows, values=self._params, own=rows, matched={})
        keys = zip(*(_values(own, source) for own, _ in self._equal), strict=True)
        places: list[int] = []
        numbers: list[int] = []
        for place, key in enumerate(keys):
            found = self._numbers_of.get(key, ())
            places.extend([place] * len(found))
            numbers.extend(found)
            if len(places) >= _MOST_PAIRS:
                yield np.array(places, np.int64), np.array(numbers, np.int64)
                places, numbers = [], []
        if places:
            yield np.array(places, np.int64), np.array(numbers, np.int64)


def _values(expression: ir.Expression, source: StatementRows) -> list[StoredValue]:
    """The values of an expression that is compared, which is a single value."""
    return stored_values(as_array(evaluate(expression, source).side, source.count))
