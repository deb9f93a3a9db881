"""Vectors of a property in memory: exact distances of all rows, or of some."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from omnigraph.core.arrow import Array, pc
from omnigraph.core.budget import Budget
from omnigraph.engine.rows import BoolArray, FloatArray, IntArray
from omnigraph.frozen import frozen
from omnigraph.storage.datasets.reads import NO_ROW

Float32Array: TypeAlias = npt.NDArray[np.float32]

#: Parts of fewer rows are put together: each step over a part takes some time of its own.
_SMALL_ROWS = 1 << 12
#: Numbers that one step compares.
_STEP_VALUES = 1 << 20
#: Squared lengths above this may overflow in 32 bits.
_WIDE = 1e36
_EPSILON = float(np.finfo(np.float32).eps)
#: Row ids up to so many times the number of rows are looked up in a table.
_TABLE_FACTOR = 8
#: One row in this number is looked at for a first bound of the smallest distances.
_SAMPLED = 16


# ---- Parts: the vectors of one fragment, which never change


@frozen
class VectorPart:
    """The vectors of a fragment in storage order, deleted ones included."""

    vectors: Float32Array
    #: Squared lengths, infinite where there is no vector.
    norms: Float32Array
    #: Where there is a vector; None if everywhere.
    present: BoolArray | None
    #: The largest squared length.
    largest: float

    @property
    def nbytes(self) -> int:
        """The memory that it takes, in bytes."""
        return int(self.vectors.nbytes + self.norms.nbytes)


def make_part(arrays: Sequence[Array], dimension: int) -> VectorPart:
    """The vectors of Arrow arrays of fixed-size lists; null has none."""
    vectors = np.zeros((sum(map(len, arrays)), dimension), np.float32)
    norms = np.full(len(vectors), np.inf, np.float32)
    present = np.zeros(len(vectors), np.bool_)
    largest, start = 0.0, 0
    for array in arrays:
        stop = start + len(array)
        present[start:stop] = is_present = np.asarray(array.is_valid().to_numpy(zero_copy_only=False))
        flat = np.asarray(pc.list_flatten(array).to_numpy(zero_copy_only=False), np.float32).reshape(-1, dimension)
        if len(flat):
            exact = np.einsum("ij,ij->i", flat, flat, dtype=np.float64)
            largest = max(largest, float(exact.max()))
            vectors[start:stop][is_present] = flat
            norms[start:stop][is_present] = np.minimum(exact, _WIDE)
        start = stop
    return VectorPart(vectors, norms, None if present.all() else present, largest)


# ---- Columns: the vectors of a snapshot


@frozen
class _Block:
    """Vectors with the row ids that they have in the snapshot; the norm of a deleted one is infinite."""

    vectors: Float32Array
    norms: Float32Array
    row_ids: IntArray


class VectorColumn:
    """The vectors of all rows of a snapshot. Immutable; safe to share between threads.

    A *place* is the number of a row among all rows in storage order. Distances are compared in 32 bits first; whatever
    rounding could put among the nearest is compared again in 64 bits.
    """

    def __init__(self, parts: Sequence[tuple[VectorPart, IntArray]], dimension: int) -> None:
        self._dimension = dimension
        self._blocks = _blocks(parts, dimension)
        self._starts = np.cumsum([0, *(len(item.row_ids) for item in self._blocks)])
        self._largest = max((part.largest for part, _ in parts), default=0.0)
        self.row_ids: IntArray = np.concatenate([np.zeros(0, np.int64), *(item.row_ids for item in self._blocks)])
        self.nbytes = sum(item.vectors.nbytes + item.norms.nbytes + 2 * item.row_ids.nbytes for item in self._blocks)

    def nearest_places(self, query: FloatArray, count: int | None, places: IntArray | None, budget: Budget) -> IntArray:
        """Places among which the nearest `count` are, with all that are as near as the last of them.

        None for `places` is all rows; rows without a vector are left out.
        """
        if self._largest >= _WIDE or not np.isfinite(query).all() or float(query @ query) >= _WIDE:
            # 32 bits do not hold the squares: everything is compared in 64.
            return self._with_vectors(places)
        squares = self._squares(query.astype(np.float32), places, budget)
        total = len(squares)
        if count is None or count >= total:
            found = np.flatnonzero(np.isfinite(squares))
        else:
            bound = _smallest(squares, count) + 2 * self._error(query)
            found = np.flatnonzero(squares <= bound)
            if not np.isfinite(bound):
                found = found[np.isfinite(squares[found])]
        return found if places is None else places[found]

    def distances(self, query: FloatArray, places: IntArray, budget: Budget) -> FloatArray:
        """The distances of some places, in 64 bits."""
        distances = np.empty(len(places))
        for start, stop in budget.steps(_steps(len(places), self._dimension)):
            vectors = self._rows(places[start:stop])
            distances[start:stop] = np.sqrt(((vectors.astype(np.float64) - query) ** 2).sum(axis=1))
        return distances

    def places(self, row_ids: IntArray) -> IntArray:
        """The places of rows of the snapshot."""
        if self._is_dense:
            return row_ids
        if self._table is not None:
            return self._table[row_ids]
        sorted_ids, order = self._sorted
        found: IntArray = order[np.searchsorted(sorted_ids, row_ids)]
        return found

    # ---- inside

    def _squares(self, query: Float32Array, places: IntArray | None, budget: Budget) -> Float32Array:
        """Squared distances without the squared length of the query, in 32 bits; infinite where there is no vector.

        `vecdot` stays on this thread. A product of matrices is shared out between threads, which takes many times as
        long as soon as something else works beside it, as in a server.
        """
        budget.allow(4 * len(self.row_ids))
        if places is not None and len(places) * 2 < len(self.row_ids):
            squares = np.empty(len(places), np.float32)
            for start, stop in budget.steps(_steps(len(places), self._dimension)):
                some = places[start:stop]
                squares[start:stop] = self._norms(some) - 2 * np.vecdot(self._rows(some), query)
            return squares
        squares = np.empty(len(self.row_ids), np.float32)
        for block, begin in zip(self._blocks, self._starts.tolist(), strict=False):
            for start, stop in budget.steps(_steps(len(block.row_ids), self._dimension)):
                dots = np.vecdot(block.vectors[start:stop], query)
                dots *= -2
                np.add(dots, block.norms[start:stop], out=squares[begin + start : begin + stop])
        return squares if places is None else squares[places]

    def _error(self, query: FloatArray) -> float:
        """The largest difference between a square of 32 bits and the exact one."""
        length, longest = float(np.sqrt(query @ query)), float(np.sqrt(self._largest))
        return _EPSILON * (self._dimension + 8) * (2 * longest * length + longest * longest)

    def _rows(self, places: IntArray) -> Float32Array:
        if len(self._blocks) == 1:
            return np.take(self._blocks[0].vectors, places, axis=0)
        vectors = np.empty((len(places), self._dimension), np.float32)
        for block, inside, offset in self._in_blocks(places):
            vectors[inside] = np.take(block.vectors, places[inside] - offset, axis=0)
        return vectors

    def _norms(self, places: IntArray) -> Float32Array:
        if len(self._blocks) == 1:
            return np.take(self._blocks[0].norms, places)
        norms = np.empty(len(places), np.float32)
        for block, inside, offset in self._in_blocks(places):
            norms[inside] = np.take(block.norms, places[inside] - offset)
        return norms

    def _in_blocks(self, places: IntArray) -> list[tuple[_Block, IntArray, int]]:
        """The blocks that places lie in, with which of the places do, and where the block begins."""
        numbers = np.searchsorted(self._starts, places, side="right") - 1
        found = []
        for number, block in enumerate(self._blocks):
            inside = np.flatnonzero(numbers == number)
            if len(inside):
                found.append((block, inside, int(self._starts[number])))
        return found

    def _with_vectors(self, places: IntArray | None) -> IntArray:
        every = np.arange(len(self.row_ids)) if places is None else places
        found: IntArray = every[np.isfinite(self._norms(every))]
        return found

    @cached_property
    def _is_dense(self) -> bool:
        """Whether every row id is its own place."""
        return bool((self.row_ids == np.arange(len(self.row_ids))).all())

    @cached_property
    def _table(self) -> IntArray | None:
        """The place of every row id, where they are not scattered."""
        highest = int(self.row_ids.max(initial=0))
        if highest > _TABLE_FACTOR * len(self.row_ids):
            return None
        table = np.full(highest + 1, NO_ROW, np.int64)
        alive = np.flatnonzero(self.row_ids != NO_ROW)
        table[self.row_ids[alive]] = alive
        return table

    @cached_property
    def _sorted(self) -> tuple[IntArray, IntArray]:
        order = np.argsort(self.row_ids, kind="stable")
        return self.row_ids[order], order


def _blocks(parts: Sequence[tuple[VectorPart, IntArray]], dimension: int) -> list[_Block]:
    blocks: list[_Block] = []
    small: list[_Block] = []
    for part, row_ids in parts:
        is_deleted = row_ids == NO_ROW
        norms = np.where(is_deleted, np.float32(np.inf), part.norms) if is_deleted.any() else part.norms
        (small if len(row_ids) < _SMALL_ROWS else blocks).append(_Block(part.vectors, norms, row_ids))
    if small:
        blocks.append(
            _Block(
                np.concatenate([item.vectors for item in small]).reshape(-1, dimension),
                np.concatenate([item.norms for item in small]),
                np.concatenate([item.row_ids for item in small]),
            )
        )
    return blocks


def _smallest(values: Float32Array, count: int) -> float:
    """The `count`-th smallest value."""
    sample = values[::_SAMPLED]
    if count < len(sample):
        # The bound of a part bounds the whole: far fewer values are left to be put in order.
        bound = np.partition(sample, count - 1)[count - 1]
        values = values[values <= bound]
    return float(np.partition(values, count - 1)[count - 1])


def _steps(count: int, dimension: int) -> list[tuple[int, int]]:
    height = max(1, _STEP_VALUES // max(dimension, 1))
    return [(start, min(start + height, count)) for start in range(0, count, height)]


def distances_of(vectors: Array, query: FloatArray) -> FloatArray:
    """The distance of each vector in 64 bits; not a number where there is none."""
    present = np.asarray(vectors.is_valid().to_numpy(zero_copy_only=False))
    flat = np.asarray(pc.list_flatten(vectors).to_numpy(zero_copy_only=False), np.float64)
    distances = np.full(len(vectors), np.nan)
    distances[present] = np.sqrt(((flat.reshape(-1, len(query)) - query) ** 2).sum(axis=1))
    return distances
