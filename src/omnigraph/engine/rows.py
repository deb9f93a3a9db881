"""Rows between operators, and batches that are taken within the budget of a query."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from omnigraph.core.arrow import Array, Batch, pa
from omnigraph.core.budget import PATIENT_ROWS, Budget
from omnigraph.frozen import frozen

# ---- Names for the arrays that travel between operators


IntArray: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
FloatArray: TypeAlias = npt.NDArray[np.float64]
#: Any numpy array of numbers.
Numbers: TypeAlias = npt.NDArray[Any]


def plain_numbers(array: Array) -> Array:
    """Days, milliseconds and truth values as the numbers they are stored as; other numbers as they are."""
    if pa.types.is_date32(array.type):
        return array.cast(pa.int32())
    if pa.types.is_date64(array.type):
        return array.cast(pa.int64())
    if pa.types.is_boolean(array.type):
        return array.cast(pa.int8())
    return array


# ---- Rows between operators


#: A property of a variable.
Column = tuple[str, str]

#: Rows that one batch between operators has at most; an operator that multiplies rows splits its output.
BATCH_ROWS = 1 << 20
#: Row ids and values that one batch has at most: a batch of many variables has fewer rows, so that making one takes
#: well below 100 ms and its memory does not grow with the pattern.
_BATCH_CELLS = 1 << 22
_CELL_BYTES = 8
#: Rows whose ids alone are not worth being counted.
_FEW_ROWS = 1 << 10


def batch_rows(width: int) -> int:
    """The maximal number of rows of a batch with so many variables and columns."""
    return min(BATCH_ROWS, max(1 << 12, _BATCH_CELLS // max(width, 1)))


class Deferred(Protocol):
    """The row ids of a variable, made when they are asked for: an order or a sum over an edge may never ask."""

    def row_ids(self) -> IntArray:
        """All of them."""
        ...

    def take(self, index: IntArray) -> IntArray:
        """Those of the rows at these places."""
        ...

    def slice(self, start: int, stop: int) -> Deferred:
        """Those of the rows from `start` to before `stop`."""
        ...

    def numbers(self, number: Callable[[IntArray], IntArray], table: IntArray | None) -> IntArray:
        """The dense numbers of the entities, per row, or what a table has for them; `number` makes them of row ids."""
        ...

    def columns(self, variable: str, names: Sequence[str]) -> dict[str, Array]:
        """Stored columns of the entities, per row."""
        ...


class Variables(Mapping[str, IntArray]):
    """The row ids of variables, some of them deferred."""

    __slots__ = ("parts",)

    def __init__(self, parts: Mapping[str, IntArray | Deferred]) -> None:
        self.parts = parts

    def __getitem__(self, name: str) -> IntArray:
        """The row ids, made now if they were deferred."""
        part = self.parts[name]
        return part if isinstance(part, np.ndarray) else part.row_ids()

    def __iter__(self) -> Iterator[str]:
        """The names."""
        return iter(self.parts)

    def __len__(self) -> int:
        """The number of names."""
        return len(self.parts)


def _parts_of(variables: Mapping[str, IntArray]) -> Mapping[str, IntArray | Deferred]:
    return variables.parts if isinstance(variables, Variables) else variables


@frozen(kw_only=True)
class Rows:
    """A bag of rows. Immutable; arrays are shared between bags and never written to."""

    count: int
    #: The row id of the entity that each live variable is bound to.
    variables: Mapping[str, IntArray] = field(default_factory=dict)
    #: Properties that were read together with their row.
    columns: Mapping[Column, Array] = field(default_factory=dict)
    #: How many equal rows each row stands for; None means one each.
    weights: IntArray | None = None

    def take(self, index: IntArray) -> Rows:
        """The rows at these places, in this order; a place may repeat."""
        places = pa.array(index)
        return Rows(
            count=len(index),
            variables={
                name: ids[index] if isinstance(ids, np.ndarray) else ids.take(index)
                for name, ids in _parts_of(self.variables).items()
            },
            columns={key: values.take(places) for key, values in self.columns.items()},
            weights=None if self.weights is None else self.weights[index],
        )

    def keep(self, mask: BoolArray) -> Rows:
        """The rows for which the mask is true."""
        return self if mask.all() else self.take(np.flatnonzero(mask))

    def slice(self, start: int, stop: int) -> Rows:
        """The rows from `start` to before `stop`, as far as there are any."""
        stop = min(stop, self.count)
        start = min(start, stop)
        if start == 0 and stop == self.count:
            return self
        return Rows(
            count=stop - start,
            variables=Variables(
                {
                    name: ids[start:stop] if isinstance(ids, np.ndarray) else ids.slice(start, stop)
                    for name, ids in _parts_of(self.variables).items()
                }
            ),
            columns={key: values.slice(start, stop - start) for key, values in self.columns.items()},
            weights=None if self.weights is None else self.weights[start:stop],
        )

    def only(self, live: Collection[str]) -> Rows:
        """The rows without the variables that are not needed any more."""
        if all(name in live for name in self.variables):
            return self
        return replace(
            self,
            variables=Variables({name: ids for name, ids in _parts_of(self.variables).items() if name in live}),
            columns={key: values for key, values in self.columns.items() if key[0] in live},
        )

    def bind(self, variable: str, row_ids: IntArray | Deferred) -> Rows:
        """The rows with one more variable."""
        return replace(self, variables=Variables({**_parts_of(self.variables), variable: row_ids}))

    def bound(self, variable: str) -> IntArray | Deferred:
        """What a variable is bound to, as it is."""
        return _parts_of(self.variables)[variable]

    def attach(self, columns: Mapping[Column, Array]) -> Rows:
        """The rows with more values."""
        return replace(self, columns={**self.columns, **columns})

    def multiplied(self, factors: IntArray | int) -> Rows:
        """Each row standing for `factors` times as many; rows that stand for none are gone."""
        weights = self.weights if self.weights is not None else np.ones(self.count, np.int64)
        rows = replace(self, weights=weights * factors)
        assert rows.weights is not None
        return rows.keep(rows.weights > 0)

    def collapsed(self) -> Rows:
        """Equal rows in a row as one, which stands for all of them; the rows as they are where that saves little."""
        if self.columns or self.count < 2 or self._is_deferred:
            return self
        if not self.variables:
            return Rows(count=1, weights=np.array([self.total]))
        differs = np.ones(self.count, np.bool_)
        differs[1:] = False
        for ids in self.variables.values():
            differs[1:] |= ids[1:] != ids[:-1]
        starts = np.flatnonzero(differs)
        if len(starts) * 2 > self.count:
            return self
        weights = np.diff(starts, append=self.count) if self.weights is None else np.add.reduceat(self.weights, starts)
        return replace(self.take(starts), weights=weights)

    @property
    def _is_deferred(self) -> bool:
        """Whether some row ids would have to be made first."""
        variables = self.variables
        parts = variables.parts if isinstance(variables, Variables) else variables
        return not all(isinstance(ids, np.ndarray) for ids in parts.values())

    @property
    def width(self) -> int:
        """The number of variables, columns and weights each row has."""
        return len(self.variables) + len(self.columns) + (self.weights is not None)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays; what several bags share counts in each of them. Nothing for a few row ids."""
        if self.count < _FEW_ROWS and not self.columns:
            return 0
        # What is deferred counts as if it were there: whoever asks for it allocates it.
        size = self.count * _CELL_BYTES * len(self.variables)
        size += self._column_bytes
        return size if self.weights is None else size + self.weights.nbytes

    def taken_bytes(self, count: int) -> int:
        """About how many bytes `count` of these rows take."""
        per_row = self._column_bytes // max(self.count, 1) + _CELL_BYTES * self.width
        return count * per_row

    @property
    def _column_bytes(self) -> int:
        return sum(int(values.nbytes) for values in self.columns.values())

    @property
    def total(self) -> int:
        """The number of rows these stand for."""
        return self.count if self.weights is None else int(self.weights.sum())

    def written_out(self, start: int, count: int) -> Rows:
        """Up to `count` rows from place `start` of the bag in which a row stands as often as it counts."""
        if self.weights is None:
            return self.slice(start, start + count)
        ends = np.cumsum(self.weights)
        places = np.arange(start, min(start + count, self.total))
        index = np.searchsorted(ends, places, side="right")
        return replace(self.take(index), weights=None)


def concat_rows(parts: Iterable[Rows]) -> Rows:
    """All rows in one bag; every part has the same variables, columns are kept where all parts have them."""
    bags = [part for part in parts if part.count]
    if not bags:
        return Rows(count=0)
    if len(bags) == 1:
        return bags[0]
    shared = set(bags[0].columns).intersection(*(bag.columns for bag in bags[1:]))
    weighted = any(bag.weights is not None for bag in bags)
    return Rows(
        count=sum(bag.count for bag in bags),
        variables={name: np.concatenate([bag.variables[name] for bag in bags]) for name in bags[0].variables},
        columns={key: pa.concat_arrays([bag.columns[key] for bag in bags]) for key in shared},
        weights=np.concatenate([_weights(bag) for bag in bags]) if weighted else None,
    )


def _weights(bag: Rows) -> IntArray:
    return bag.weights if bag.weights is not None else np.ones(bag.count, np.int64)


# ---- Collecting batches within the budget


def read_batches(budget: Budget, batches: Iterator[Batch], table_rows: int) -> Iterator[Batch]:
    """The batches of a scan. Of a large table one may be long in coming: a filter may match nothing for a while."""
    if table_rows < PATIENT_ROWS:
        yield from budget.steps(batches)
        return
    while (batch := budget.patiently(lambda: next(batches, None))) is not None:
        yield batch


def gathered(budget: Budget, batches: Iterable[Rows]) -> Rows:
    """All rows in one bag, which is accounted until the query ends."""
    parts, size = [], 0
    for rows in batches:
        size += budget.hold(rows.nbytes)
        parts.append(rows)
    # The parts and the bag exist at the same time.
    budget.allow(size if len(parts) > 1 else 0)
    return concat_rows(parts)
