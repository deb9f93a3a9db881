"""What a hop binds, made when it is asked for: the same as arrays that were written out at once."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engine.rows import Deferred, IntArray, Rows, Variables
from omnigraph.engine.tables.context import Context
from omnigraph.engine.tables.edge_columns import EdgeColumns, FromEdge, FromRow, FromTarget, pairs_of
from omnigraph.engine.tables.entities import Entities

SHIFT = 1000


class _Shifted:
    """Entities whose row ids are their numbers and something."""

    def numbering(self) -> _Shifted:
        return self

    def numbers(self, row_ids: IntArray) -> IntArray:
        return row_ids - SHIFT

    def row_ids(self, numbers: IntArray) -> IntArray:
        return numbers + SHIFT


@st.composite
def _hops(draw: st.DrawFn) -> tuple[IntArray, IntArray, IntArray]:
    """The degree of some nodes, the nodes that rows begin at, and the row ids of the rows."""
    degrees = draw(st.lists(st.integers(0, 4), min_size=1, max_size=6))
    if draw(st.booleans()):
        begin = draw(st.integers(0, len(degrees) - 1))
        places = list(range(begin, draw(st.integers(begin + 1, len(degrees)))))
    else:
        places = draw(st.lists(st.integers(0, len(degrees) - 1), min_size=1, max_size=8))
    return np.array(degrees), np.array(places), np.arange(len(places)) * 7


def _written_out(hop: tuple[IntArray, IntArray, IntArray]) -> list[tuple[int, int, int]]:
    degrees, places, ids = hop
    offsets = np.append(0, np.cumsum(degrees)).tolist()
    return [
        (int(row_id), spot + SHIFT, spot + 1)
        for row_id, place in zip(ids, places.tolist(), strict=True)
        for spot in range(offsets[place], offsets[place + 1])
    ]


def _deferred(hop: tuple[IntArray, IntArray, IntArray], kept: list[int] | None) -> Rows:
    """Targets are the places of the pairs, and edges come one behind them."""
    degrees, places, ids = hop
    offsets = np.append(0, np.cumsum(degrees))
    pairs = pairs_of(offsets, places, degrees[places])
    if kept is not None:
        pairs = pairs.keep(np.array(kept, np.int64))
    spots = np.arange(int(degrees.sum()), dtype=np.uint32)
    edges = cast("EdgeColumns", _Edges(spots + 1))
    parts: dict[str, IntArray | Deferred] = {
        "a": FromRow(cast("Context", None), ids, pairs),
        "b": FromTarget(cast("Entities", _Shifted()), spots, pairs),
        "e": FromEdge(edges, pairs),
    }
    return Rows(count=pairs.count, variables=Variables(parts))


class _Edges:
    def __init__(self, edges: Any) -> None:
        self.edges = edges

    def row_ids(self, spots: slice | IntArray) -> IntArray:
        found: IntArray = self.edges[spots].astype(np.int64)
        return found


def _rows(rows: Rows) -> list[tuple[int, ...]]:
    columns = [rows.variables[name].tolist() for name in ("a", "b", "e")]
    assert all(len(column) == rows.count for column in columns)
    return list(zip(*columns, strict=True))


@given(_hops(), st.data())
def test_what_is_deferred_is_what_is_written_out(hop: tuple[IntArray, IntArray, IntArray], data: st.DataObject) -> None:
    every = _written_out(hop)
    kept = None
    if data.draw(st.booleans()):
        kept = data.draw(st.lists(st.sampled_from(range(len(every))), unique=True).map(sorted)) if every else []
        every = [every[place] for place in kept]
    rows = _deferred(hop, kept)
    assert rows.count == len(every)
    assert _rows(rows) == every

    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, len(every))] * 2)))
    part = rows.slice(start, stop)
    assert _rows(part) == every[start:stop]
    inner = sorted(data.draw(st.tuples(*[st.integers(0, stop - start)] * 2)))
    assert _rows(part.slice(*inner)) == every[start:stop][slice(*inner)]

    index = data.draw(st.lists(st.sampled_from(range(stop - start)), max_size=5)) if stop > start else []
    assert _rows(part.take(np.array(index, np.int64))) == [every[start + place] for place in index]
    assert list(part.only({"a"}).variables) == ["a"]


@given(_hops())
def test_numbers_come_with_a_table_or_without(hop: tuple[IntArray, IntArray, IntArray]) -> None:
    rows = _deferred(hop, None)
    every = _written_out(hop)
    table = np.arange(100) * 3
    for name, place, shift in (("a", 0, 0), ("b", 1, SHIFT), ("e", 2, 0)):
        bound = rows.bound(name)
        assert not isinstance(bound, np.ndarray)
        numbers = [row[place] - shift for row in every]
        assert bound.numbers(lambda row_ids: row_ids, None).tolist() == numbers
        assert bound.numbers(lambda row_ids: row_ids, table).tolist() == [number * 3 for number in numbers]


def test_a_variable_of_two_hops_before_is_deferred_twice() -> None:
    first = _deferred((np.array([2, 3]), np.array([0, 1]), np.array([5, 6])), None)
    pairs = pairs_of(np.array([0, 1, 3, 3, 4, 6]), np.arange(5), np.array([1, 2, 0, 1, 2]))
    ids = FromRow(cast("Context", None), first.bound("a"), pairs)

    assert ids.row_ids().tolist() == [5, 5, 5, 6, 6, 6]
    assert ids.slice(2, 5).row_ids().tolist() == [5, 6, 6]
    assert ids.take(np.array([0, 5])).tolist() == [5, 6]
    assert ids.slice(1, 5).numbers(lambda row_ids: row_ids * 2, None).tolist() == [10, 10, 12, 12]
