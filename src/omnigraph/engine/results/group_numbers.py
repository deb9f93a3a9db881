"""Small numbers for combinations of entities, so that their groups need no hashing.

An entity has a dense number already. Where the numbers of several variables multiply to more than there are rows, the
values of the keys are numbered instead: few persons have different genders.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from math import prod
from typing import Protocol

import numpy as np

from omnigraph.engine.results.group_values import combined_values
from omnigraph.engine.results.projection import groupable
from omnigraph.engine.rows import IntArray, Numbers, Rows
from omnigraph.engine.tables.context import Context
from omnigraph.engine.tables.edge_columns import FromRow, looked_up
from omnigraph.engine.tables.entities import Entities
from omnigraph.frozen import frozen
from omnigraph.lang.query import ir

#: So many numbers are always few, and more than so many never are.
_FEW_NUMBERS = 1 << 12
_MOST_NUMBERS = 1 << 23
#: Numbers that one row is worth: a place for each of them costs about as much as hashing the row.
_NUMBERS_PER_ROW = 4


class GroupNumbers(Protocol):
    """The numbers of the groups that rows belong to."""

    @property
    def size(self) -> int:
        """Every number is below it."""
        ...

    def of(self, rows: Rows) -> Numbers:
        """The number of every row."""
        ...

    def runs(self, rows: Rows) -> tuple[Numbers, IntArray] | None:
        """The same as numbers of rows that follow each other, and how many those are; None where nobody knows."""
        ...

    def variables(self, groups: IntArray) -> dict[str, IntArray]:
        """Entities whose keys are those of the groups."""
        ...


@frozen
class GivenNumbers:
    """A variable whose values are such numbers."""

    variable: str
    size: int

    def of(self, rows: Rows) -> Numbers:
        """What it is bound to."""
        return rows.variables[self.variable]

    def runs(self, rows: Rows) -> tuple[Numbers, IntArray] | None:
        """As of a variable that was bound before a hop."""
        ids = rows.bound(self.variable)
        return ids.runs(_same, None) if isinstance(ids, FromRow) else None

    def variables(self, groups: IntArray) -> dict[str, IntArray]:
        """The numbers themselves."""
        return {self.variable: groups}


def _same(numbers: IntArray) -> IntArray:
    return numbers


@frozen
class _Part:
    """The numbers of what one variable is bound to."""

    variable: str
    entities: Entities
    size: int
    #: The number of every entity, and one entity of every number; None where these are dense numbers.
    of_entity: IntArray | None = None
    entity_of: IntArray | None = None

    def row_ids(self, numbers: IntArray) -> IntArray:
        """An entity of every number."""
        entities = numbers if self.entity_of is None else self.entity_of[numbers]
        return self.entities.numbering().row_ids(entities)


@frozen
class _Product:
    """The numbers of several variables, as one."""

    parts: tuple[_Part, ...]
    #: Per variable what a number of it adds, where that comes from a table.
    tables: tuple[Numbers | None, ...]

    @staticmethod
    def of_parts(parts: Sequence[_Part]) -> _Product:
        """The product, whose last variable counts fastest."""
        smallest = np.min_scalar_type(max(prod(part.size for part in parts) - 1, 0))
        tables: list[Numbers | None] = []
        for number, part in enumerate(parts):
            stride = prod(other.size for other in parts[number + 1 :])
            table = part.of_entity
            tables.append(None if table is None else (table * stride).astype(smallest))
        return _Product(tuple(parts), tuple(tables))

    @property
    def size(self) -> int:
        """How many combinations there may be."""
        return prod(part.size for part in self.parts)

    def of(self, rows: Rows) -> Numbers:
        """The number of every row."""
        total: Numbers | None = None
        for place in range(len(self.parts)):
            found = self._numbers(rows, place)
            total = found if total is None else total + found
        assert total is not None, "a product has a part"
        return total

    def runs(self, rows: Rows) -> tuple[Numbers, IntArray] | None:
        """Known of one variable that was bound before a hop."""
        part = self.parts[0]
        ids = rows.bound(part.variable)
        if len(self.parts) > 1 or not isinstance(ids, FromRow):
            return None
        return ids.runs(part.entities.numbering().numbers, self.tables[0])

    def variables(self, groups: IntArray) -> dict[str, IntArray]:
        """Entities whose keys are those of the groups."""
        found: dict[str, IntArray] = {}
        for part in reversed(self.parts):
            groups, own = np.divmod(groups, part.size)
            found[part.variable] = part.row_ids(own)
        return found

    def _numbers(self, rows: Rows, place: int) -> Numbers:
        part, table = self.parts[place], self.tables[place]
        number = part.entities.numbering().numbers
        ids = rows.bound(part.variable)
        found = looked_up(number(ids), table) if isinstance(ids, np.ndarray) else ids.numbers(number, table)
        stride = prod(other.size for other in self.parts[place + 1 :])
        return found if table is not None or stride == 1 else found * stride


def numbered(
    context: Context, keys: Sequence[ir.Expression], variables: Sequence[str], unique: Container[str], rows: int
) -> GroupNumbers | None:
    """Numbers for what some variables are bound to, few for so many rows; None where there are none.

    The keys of `unique` variables differ for all that they are bound to.
    """
    if not all(name in context.tables and context.is_plain(name) for name in variables):
        return None
    most = min(max(_FEW_NUMBERS, _NUMBERS_PER_ROW * rows), _MOST_NUMBERS)
    every = [(name, context.entities(name)) for name in variables]
    if any(entities.row_count > most for _, entities in every):
        return None
    parts = [_Part(name, entities, entities.numbering().count) for name, entities in every]
    is_much = prod(part.size for part in parts) > most
    for place, part in enumerate(parts):
        if part.variable not in unique and part.size <= rows * (_NUMBERS_PER_ROW if is_much else 1):
            parts[place] = _by_value(context, part, keys)
    if prod(part.size for part in parts) > most:
        return None
    return _Product.of_parts(parts)


def _by_value(context: Context, part: _Part, keys: Sequence[ir.Expression]) -> _Part:
    """The same by the values of the keys, if those are plain properties that are kept in memory."""
    own = [key for key in keys if part.variable in ir.variables(key)]
    names = [key.property for key in own if isinstance(key, ir.PropertyRef)]
    entities = part.entities
    if len(names) < len(own) or not all(entities.is_keepable(name) for name in names):
        return part

    numbering = entities.numbering()
    key = (entities.fingerprint, *names)
    known, table = context.caches.value_numbers.get(key) or (None, None)
    if table is None or known is not numbering:
        table = context.budget.patiently(lambda: _value_numbers(entities, names), entities.row_count)
        context.caches.value_numbers.put(key, (numbering, table))
    live = numbering.numbers(numbering.all_row_ids)
    entity_of = np.empty(int(table.max(initial=-1)) + 1, np.int64)
    entity_of[table[live]] = live
    return _Part(part.variable, entities, len(entity_of), table, entity_of)


def _value_numbers(entities: Entities, names: Sequence[str]) -> IntArray:
    """By the number of an entity, a number that is equal for equal values of some properties."""
    numbering = entities.numbering()
    columns = entities.columns(numbering.all_row_ids, names)
    table = np.zeros(numbering.count, np.int64)
    table[numbering.numbers(numbering.all_row_ids)] = combined_values([groupable(columns[name]) for name in names])
    return table
