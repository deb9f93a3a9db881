"""Which rows may be among the first of an order, without an order of all of them.

A bound comes from a sample: as soon as enough rows are at or before it, one comparison per row drops the others. Rows
that are equal to the bound go on to the next key, as in an exact order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from omnigraph.core.arrow import Array, pa, pc
from omnigraph.engine.results.projection import groupable, order_codes
from omnigraph.engine.rows import BoolArray, IntArray, plain_numbers
from omnigraph.frozen import frozen

#: Values that a bound is taken from.
_SAMPLE_ROWS = 1 << 11
#: How many times more rows than wanted a bound should leave.
_SPARE = 4
#: Fewer rows are put into order at once.
_FEW_ROWS = 1 << 11


@frozen
class Way:
    """How the values of a key are ordered."""

    descending: bool = False
    nulls_first: bool | None = None

    @property
    def nulls_lead(self) -> bool:
        """Whether null comes before everything else."""
        return not self.descending if self.nulls_first is None else self.nulls_first


@frozen
class Key:
    """One thing that orders rows."""

    way: Way
    #: The values at some places, or at all of them.
    values: Callable[[IntArray | None], Array]


def candidates(count: int, keys: Sequence[Key], wanted: int, check: Callable[[], None]) -> IntArray | None:
    """Ascending places that the first `wanted` of `count` rows are among; None where that leaves nothing out.

    Values are read of the rows that earlier keys leave open.
    """
    certain: list[IntArray] = []
    still: IntArray | None = None
    for key in keys:
        if not _is_many(count if still is None else len(still), wanted):
            break
        check()
        values = comparable(key.values(still))
        split = _split(values, key.way, wanted, check)
        if split is None:
            break
        before, same = split
        if same.all():
            # All are tied: the next key is read of all of them.
            continue
        some = np.flatnonzero(before)
        ties = np.flatnonzero(same)
        certain.append(some if still is None else still[some])
        still = ties if still is None else still[ties]
        wanted -= len(some)
        if wanted <= 0:
            still = ties[:0]
            break
    if still is None:
        return None
    return np.sort(np.concatenate([*certain, still]))


def _is_many(count: int, wanted: int) -> bool:
    return count > max(_FEW_ROWS, _SPARE * wanted)


def _split(values: Array, way: Way, wanted: int, check: Callable[[], None]) -> tuple[BoolArray, BoolArray] | None:
    """Masks of the values that are certainly wanted or few, and of those that are equal to the last wanted one.

    The second is empty when the first has enough of them. None where no bound leaves anything out.
    """
    count = len(values)
    sample = values.take(pa.array(np.arange(0, count, max(1, count // _SAMPLE_ROWS))))
    codes = order_codes(sample, descending=way.descending, nulls_first=way.nulls_first)
    in_order = np.argsort(codes, kind="stable")
    place = min(_SPARE * (wanted * len(sample) // count + 1), len(sample) - 1)
    enough: tuple[BoolArray, BoolArray] | None = None
    has_grown = False
    while True:
        check()
        before, same = compared(values, way, sample[int(in_order[place])])
        first = int(np.count_nonzero(before))
        if first >= wanted:
            # All that are wanted come before the bound. Of very many, a nearer bound leaves fewer.
            enough = before, np.zeros(count, np.bool_)
            if has_grown or place == 0 or not _is_many(first, wanted):
                return enough
            place //= _SPARE
        elif first + np.count_nonzero(same) >= wanted:
            return before, same
        elif enough is not None:
            return enough
        elif place == len(sample) - 1:
            return None
        else:
            has_grown = True
            place = min(place * _SPARE, len(sample) - 1)


def comparable(column: Array) -> Array:
    """A column whose values compare as those of an order key do."""
    plain = plain_numbers(column)
    return plain if pa.types.is_primitive(plain.type) else groupable(plain)


def compared(values: Array, way: Way, bound: object) -> tuple[BoolArray, BoolArray]:
    """Which comparable values come before a bound, a scalar of their type, and which are equal to it."""
    nulls = _mask(values.is_null()) if values.null_count else None
    is_float = pa.types.is_floating(values.type)
    scalar: pa.Scalar = bound
    if not scalar.is_valid:
        same = np.zeros(len(values), np.bool_) if nulls is None else nulls
        return (np.zeros(len(values), np.bool_) if way.nulls_lead else ~same), same
    if pa.types.is_primitive(values.type):
        numbers = (pc.fill_null(values, pa.scalar(0, values.type)) if nulls is not None else values).to_numpy()
        number = numbers.dtype.type(scalar.as_py())
        if is_float and np.isnan(number):
            same = np.isnan(numbers)
            before = ~same if way.descending else np.zeros(len(values), np.bool_)
        else:
            before, same = (numbers > number if way.descending else numbers < number), numbers == number
            if is_float and not way.descending:
                before |= np.isnan(numbers)
    else:
        known = values if nulls is None else pc.coalesce(values, scalar)
        before = _mask((pc.greater if way.descending else pc.less)(known, scalar))
        same = _mask(pc.equal(known, scalar))
    if nulls is not None:
        before[nulls] = way.nulls_lead
        same[nulls] = False
    return before, same


def _mask(column: Array) -> BoolArray:
    found: BoolArray = np.asarray(column.to_numpy(zero_copy_only=False), np.bool_)
    return found
