"""Sums per group where a group is a small number: one place per group instead of a table of hashes.

Everything here is exact for integers: a batch whose sums might not be is refused, and is added up elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from omnigraph.core.arrow import Array, one_array, pa, pc
from omnigraph.engine.rows import BoolArray, FloatArray, IntArray, Numbers, plain_numbers

#: Counts below this are exact as floats.
_EXACT_FLOAT = 2**53
#: So many groups are counted by comparing with each of them.
_COMPARED_GROUPS = 16
_EXTREMES = {"min": np.minimum, "max": np.maximum}


class Measured(Protocol):
    """One number that is kept per group."""

    @property
    def name(self) -> str:
        """Names it."""
        ...

    @property
    def kind(self) -> str:
        """What it is: `sum`, `count`, `min` or `max`."""
        ...

    @property
    def argument(self) -> object | None:
        """What is measured; None is the row itself."""
        ...


class DenseGroups:
    """Measures of the groups 0 … `size` - 1."""

    def __init__(self, measures: Sequence[Measured], size: int) -> None:
        self._measures = list(measures)
        self._size = size
        #: How many rows every group has.
        self._rows = np.zeros(size, np.int64)
        self._totals: dict[str, FloatArray] = {}
        self._known: dict[str, IntArray] = {}
        self._extremes: dict[str, Numbers] = {}

    @staticmethod
    def bytes_for(measures: Sequence[Measured], size: int) -> int:
        """How many bytes so many groups take, those of one batch while they are made included."""
        return size * 8 * (2 * len(measures) + 3)

    @property
    def nbytes(self) -> int:
        """Bytes that are held between batches."""
        arrays = [self._rows, *self._totals.values(), *self._known.values(), *self._extremes.values()]
        return sum(array.nbytes for array in arrays)

    def add(self, groups: Numbers, weights: IntArray | None, columns: Mapping[str, Array]) -> None:
        """Count rows into their groups; `columns` has the argument of each measure that has one."""
        shares = None if weights is None else weights.astype(np.float64)
        counts = self._counts(groups, shares)
        self._rows += counts
        for measure in self._measures:
            if measure.argument is None:
                continue
            values, places, some = columns[measure.name], groups, shares
            known = counts
            if values.null_count:
                valid = _valid(values)
                places, some = groups[valid], None if shares is None else shares[valid]
                values = values.drop_null()
                known = self._counts(places, some)
            self._know(measure, known)
            if measure.kind == "sum":
                numbers = plain_numbers(values).to_numpy()
                self._add(measure, places, numbers if some is None else _products(numbers, some))
            elif measure.kind in _EXTREMES:
                self._extend(measure, places, plain_numbers(values))

    def add_runs(self, groups: Numbers, lengths: IntArray, columns: Mapping[str, Array]) -> None:
        """Count rows whose groups are runs: the first `lengths[0]` rows are of the first group, and so on."""
        filled = np.flatnonzero(lengths)
        groups, lengths = groups[filled], lengths[filled]
        starts = np.cumsum(lengths) - lengths
        if not len(starts):
            return
        counts = self._counts(groups, lengths.astype(np.float64))
        self._rows += counts
        for measure in self._measures:
            if measure.argument is None:
                continue
            values = columns[measure.name]
            known = counts
            if values.null_count:
                known = self._counts(groups, np.add.reduceat(_valid(values), starts, dtype=np.float64))
            self._know(measure, known)
            if measure.kind == "count":
                continue
            plain = plain_numbers(values)
            if plain.null_count:
                plain = pc.fill_null(plain, _neutral(plain.type.to_pandas_dtype(), measure.kind))
            if measure.kind == "sum":
                self._add(measure, groups, _sums_of_runs(plain.to_numpy(), starts))
            else:
                kernel = _EXTREMES[measure.kind]
                self._extend(measure, groups, pa.array(kernel.reduceat(plain.to_numpy(), starts)))

    def _counts(self, groups: Numbers, shares: FloatArray | None) -> IntArray:
        if shares is None and self._size <= _COMPARED_GROUPS and groups.dtype == np.uint8:
            # A histogram of few groups waits for its own additions.
            return np.array([np.count_nonzero(groups == group) for group in range(self._size)], np.int64)
        return np.bincount(groups, shares, self._size).astype(np.int64, copy=False)

    def _know(self, measure: Measured, counts: IntArray) -> None:
        known = self._known.get(measure.name)
        self._known[measure.name] = counts if known is None else known + counts

    def _add(self, measure: Measured, groups: Numbers, numbers: Numbers) -> None:
        # What is beyond the floats has no sum, which is found out at the end.
        with np.errstate(over="ignore", invalid="ignore"):
            sums = np.bincount(groups, numbers, self._size).astype(np.float64, copy=False)
            total = self._totals.get(measure.name)
            self._totals[measure.name] = sums if total is None else total + sums

    def _extend(self, measure: Measured, groups: Numbers, values: Array) -> None:
        kernel, numbers = _EXTREMES[measure.kind], values.to_numpy()
        known = self._extremes.get(measure.name)
        if known is None:
            known = self._extremes[measure.name] = np.full(self._size, _neutral(numbers.dtype, measure.kind))
        kernel.at(known, groups, numbers)

    def filled(self) -> IntArray:
        """The groups that have rows, ascending."""
        return np.flatnonzero(self._rows)

    def column(self, measure: Measured, groups: IntArray, type_: object) -> Array:
        """A measure of some groups, an extreme as its type; null where all values were null."""
        if measure.argument is None:
            found: Array = pa.array(self._rows[groups])
            return found
        if measure.name not in self._known:
            unknown: Array = pa.nulls(len(groups), type_)
            return unknown
        known = self._known[measure.name][groups]
        if measure.kind == "count":
            found = pa.array(known)
        elif measure.kind == "sum":
            found = pa.array(self._totals[measure.name][groups], mask=_missing(known))
        else:
            found = pa.array(self._extremes[measure.name][groups], mask=_missing(known)).cast(type_)
        return found


def is_exact(kind: str, values: Array, weights: IntArray | None) -> bool:
    """Whether a measure of these values is exact, and means the same, when it is made here.

    Sums of integers are checked by who adds them up: what matters is the sum of all batches.
    """
    if weights is not None and float(weights.max(initial=0)) * len(weights) >= _EXACT_FLOAT:
        return False
    if kind == "count":
        return True
    return pa.types.is_primitive(values.type) and not (kind in _EXTREMES and _has_nan(values))


def _has_nan(values: Array) -> bool:
    """Whether there is a NaN, which is not the extreme of anything but itself."""
    return pa.types.is_floating(values.type) and bool(np.isnan(values.drop_null().to_numpy()).any())


def _products(numbers: Numbers, shares: FloatArray) -> FloatArray:
    with np.errstate(over="ignore", invalid="ignore"):
        return numbers.astype(np.float64, copy=False) * shares


def _sums_of_runs(numbers: Numbers, starts: IntArray) -> FloatArray:
    with np.errstate(over="ignore", invalid="ignore"):
        sums: FloatArray = np.add.reduceat(numbers.astype(np.float64, copy=False), starts)
    return sums


def _missing(known: IntArray) -> BoolArray | None:
    missing: BoolArray = known == 0
    return missing if missing.any() else None


def _valid(values: Array) -> BoolArray:
    valid: BoolArray = np.asarray(values.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    return valid


def _neutral(dtype: npt.DTypeLike, kind: str) -> Any:
    """What changes no measure of this kind."""
    found: np.dtype[Any] = np.dtype(dtype)
    if kind not in _EXTREMES:
        return found.type(0)
    if found.kind == "f":
        return found.type(np.inf if kind == "min" else -np.inf)
    limits = np.iinfo(found)
    return found.type(limits.max if kind == "min" else limits.min)


# ---- Runs


#: Rows that show whether it is worth looking at all of them.
_LOOKED_AT = 1 << 12


def joined_runs(table: pa.Table, keys: Sequence[str], measures: Sequence[Measured]) -> pa.Table | None:
    """Rows of measures joined by keys that ascend already, as the ends of edges do; None where they do not."""
    if not all(pa.types.is_int64(table.schema.field(name).type) and not table[name].null_count for name in keys):
        return None
    if any(not pa.types.is_primitive(table.schema.field(item.name).type) for item in measures):
        return None
    columns = [np.asarray(table[name]) for name in keys]
    if _begins([column[:_LOOKED_AT] for column in columns]) is None:
        return None
    begins = _begins(columns)
    if begins is None:
        return None
    names = [*keys, *(item.name for item in measures)]
    if begins.all():
        return table.select(names)
    if any(item.kind in _EXTREMES and _has_nan(one_array(table[item.name])) for item in measures):
        return None
    starts = np.flatnonzero(begins)
    found: dict[str, object] = {name: pa.array(column[starts]) for name, column in zip(keys, columns, strict=True)}
    for measure in measures:
        found[measure.name] = _reduced(one_array(table[measure.name]), measure.kind, starts)
    return pa.table(found).select(names)


def _begins(columns: Sequence[IntArray]) -> BoolArray | None:
    """Where a run of equal rows begins; None where rows do not ascend."""
    count = len(columns[0])
    begins = np.ones(count, np.bool_)
    is_tied = np.ones(max(count - 1, 0), np.bool_)
    for column in columns:
        if (is_tied & (column[1:] < column[:-1])).any():
            return None
        is_tied &= column[1:] == column[:-1]
    begins[1:] = ~is_tied
    return begins


def _reduced(values: Array, kind: str, starts: IntArray) -> Array:
    """A measure of every run of rows, null where all of its values are; counts are added."""
    plain = plain_numbers(values)
    mask: BoolArray | None = None
    if values.null_count:
        mask = _missing(np.add.reduceat(_valid(values), starts, dtype=np.int64))
        plain = pc.fill_null(plain, _neutral(plain.type.to_pandas_dtype(), kind))
    kernel = _EXTREMES.get(kind, np.add)
    with np.errstate(over="ignore", invalid="ignore"):
        reduced = kernel.reduceat(plain.to_numpy(), starts)
    found: Array = pa.array(reduced, mask=mask).cast(values.type)
    return found
