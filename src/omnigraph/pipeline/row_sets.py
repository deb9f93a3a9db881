"""Sets of rows by their addresses: a bit for every row of the fragments that have any of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


_OFFSET_MASK = 0xFFFFFFFF
_BITS = 8


class RowSet:
    """Some rows of one table. Small whatever it holds, and picklable, so that tasks get the fragments they read."""

    def __init__(self) -> None:
        self._bits: dict[int, NDArray[np.uint8]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, addresses: NDArray[np.int64]) -> None:
        """Add rows; those that are in it already stay.

        >>> rows = RowSet()
        >>> rows.add(np.array([1 << 32, 1 << 32 | 9]))
        >>> rows.has(np.array([0, 1 << 32, 1 << 32 | 9, 1 << 32 | 99])).tolist(), len(rows)
        ([False, True, True, False], 2)
        """
        for fragment, offsets in _by_fragment(addresses):
            bits = self._bits.get(fragment, np.zeros(0, np.uint8))
            size = int(offsets.max()) // _BITS + 1
            if len(bits) < size:
                bits = np.concatenate([bits, np.zeros(max(size, 2 * len(bits)) - len(bits), np.uint8)])
            before = int(np.bitwise_count(bits).sum())
            np.bitwise_or.at(bits, offsets // _BITS, (1 << (offsets % _BITS)).astype(np.uint8))
            self._bits[fragment] = bits
            self._count += int(np.bitwise_count(bits).sum()) - before

    def has(self, addresses: NDArray[np.int64]) -> NDArray[np.bool_]:
        """A mask of the rows that are in it."""
        found = np.zeros(len(addresses), dtype=bool)
        fragments = addresses >> 32
        for fragment in np.unique(fragments).tolist():
            bits = self._bits.get(fragment)
            if bits is None:
                continue
            here = np.flatnonzero(fragments == fragment)
            offsets = addresses[here] & _OFFSET_MASK
            known = offsets // _BITS < len(bits)
            here, offsets = here[known], offsets[known]
            found[here] = (bits[offsets // _BITS] >> (offsets % _BITS).astype(np.uint8)) & 1
        return found

    def within(self, fragments: Iterable[int]) -> RowSet:
        """Those of some fragments."""
        part = RowSet()
        part._bits = {number: self._bits[number] for number in fragments if number in self._bits}
        part._count = sum(int(np.bitwise_count(bits).sum()) for bits in part._bits.values())
        return part

    def offsets(self, fragment: int) -> NDArray[np.int64]:
        """The positions of rows in a fragment, in order."""
        bits = self._bits.get(fragment)
        if bits is None:
            return np.zeros(0, np.int64)
        return np.flatnonzero(np.unpackbits(bits, bitorder="little"))


def _by_fragment(addresses: NDArray[np.int64]) -> Iterable[tuple[int, NDArray[np.int64]]]:
    fragments = addresses >> 32
    for fragment in np.unique(fragments).tolist():
        yield fragment, addresses[fragments == fragment] & _OFFSET_MASK
