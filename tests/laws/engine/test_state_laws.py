"""Numbers, columns and adjacency of a state that was made from another one, against those that are made at once."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.engine.rows import IntArray
from omnigraph.engine.tables import kept_columns
from omnigraph.engine.tables.adjacency import Adjacency, Side
from omnigraph.engine.tables.kept_columns import Change, ColumnCache
from omnigraph.engine.tables.numberings import Numbering, number_rows
from omnigraph.engine.tables.runs import EdgeList
from omnigraph.lang.query.ir import Direction


def ints(values: object) -> IntArray:
    return np.array(values, np.int64)


# ---- adjacency


@dataclass
class Edges:
    """Edges by row id, and the number of nodes."""

    nodes: int
    ends: dict[int, tuple[int, int]] = field(default_factory=dict)
    #: The next row id.
    following: int = 0

    def add(self, pairs: list[tuple[int, int]]) -> EdgeList:
        ids = list(range(self.following, self.following + len(pairs)))
        self.following += len(pairs)
        self.ends |= dict(zip(ids, pairs, strict=True))
        return listed(dict(zip(ids, pairs, strict=True)))

    def built(self) -> Adjacency:
        every = listed(self.ends)
        return Adjacency.build(every.source, every.target, every.edge, sources=self.nodes, targets=self.nodes)


def listed(ends: dict[int, tuple[int, int]]) -> EdgeList:
    return EdgeList(ints([a for a, _ in ends.values()]), ints([b for _, b in ends.values()]), ints(list(ends)))


def edges_at(side: Side, numbers: IntArray) -> list[list[tuple[int, int]]]:
    places, offsets, targets, edges = side.among(numbers, distinct=False)
    assert edges is not None
    return [
        sorted(zip(*(part[offsets[place] : offsets[place + 1]].tolist() for part in (targets, edges)), strict=True))
        for place in places.tolist()
    ]


def neighbours_at(side: Side, numbers: IntArray) -> list[list[int]]:
    places, offsets, targets, edges = side.among(numbers, distinct=True)
    assert edges is None
    return [targets[offsets[place] : offsets[place + 1]].tolist() for place in places.tolist()]


def assert_equal(found: Adjacency, edges: Edges) -> None:
    expected = edges.built()
    assert found.edge_count == len(edges.ends)
    for direction in Direction:
        side, right = found.side(direction), expected.side(direction)
        assert side.edge_count == right.edge_count
        few = ints([0, edges.nodes - 1, 0])
        for numbers in (few, np.arange(edges.nodes)):
            assert edges_at(side, numbers) == edges_at(right, numbers)
            assert neighbours_at(side, numbers) == neighbours_at(right, numbers)
        assert side.offsets.tolist() == right.offsets.tolist()
        assert side.targets.tolist() == right.targets.tolist()
        assert side.distinct_offsets.tolist() == right.distinct_offsets.tolist()
        assert side.distinct_targets.tolist() == right.distinct_targets.tolist()
        assert edges_at(side, np.arange(edges.nodes)) == edges_at(right, np.arange(edges.nodes))


PAIRS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=6)
#: Nodes that come, edges that come, edges that go by their place, and whether the whole arrays are written then.
STEPS = st.lists(
    st.tuples(st.integers(0, 2), PAIRS, st.lists(st.integers(0, 30), max_size=4), st.booleans()), max_size=6
)


@settings(max_examples=150)
@given(first=PAIRS, steps=STEPS, is_small=st.booleans())
def test_edges_of_a_state_that_was_made_from_another_are_those_that_are_built(
    first: list[tuple[int, int]], steps: list[tuple[int, list[tuple[int, int]], list[int], bool]], is_small: bool
) -> None:
    edges = Edges(nodes=4)
    edges.add([(a % 4, b % 4) for a, b in first])
    adjacency = edges.built()
    for direction in () if is_small else Direction:
        adjacency.side(direction)
    states = [(adjacency, Edges(edges.nodes, dict(edges.ends)))]
    for more, pairs, places, is_written in steps:
        known = list(edges.ends)
        gone = {known[place % len(known)]: edges.ends[known[place % len(known)]] for place in places} if known else {}
        edges.nodes += more
        for row_id in gone:
            del edges.ends[row_id]
        added = edges.add([(a % edges.nodes, b % edges.nodes) for a, b in pairs])
        located = adjacency.located(ints(sorted(gone)), (ints([]), ints([])))
        assert located is not None
        assert sorted(zip(located.edge.tolist(), located.source.tolist(), located.target.tolist(), strict=True)) == [
            (row_id, *gone[row_id]) for row_id in sorted(gone)
        ]
        numbering = Numbering(edges.nodes, None)
        made = adjacency.stepped(located, added, numbering, numbering)
        assert made is not None
        adjacency = made
        if is_written:
            adjacency.write_out()
        states.append((adjacency, Edges(edges.nodes, dict(edges.ends))))
    for state, then in states:
        assert_equal(state, then)


@settings(max_examples=60)
@given(first=PAIRS, steps=STEPS, at=st.integers(0, 5))
def test_a_state_above_arrays_that_were_written_later_is_the_same(
    first: list[tuple[int, int]], steps: list[tuple[int, list[tuple[int, int]], list[int], bool]], at: int
) -> None:
    edges = Edges(nodes=10)
    edges.add(first)
    adjacency = edges.built()
    none, numbering = listed({}), Numbering(10, None)
    states = [adjacency]
    for _, pairs, places, _ in steps:
        known = sorted(edges.ends)
        gone = sorted({known[place % len(known)] for place in places}) if known else []
        removed = adjacency.located(ints(gone), (ints([]), ints([])))
        for row_id in gone:
            del edges.ends[row_id]
        made = adjacency.stepped(removed or none, edges.add(pairs), numbering, numbering)
        assert made is not None
        adjacency = made
        states.append(adjacency)
    earlier = states[min(at, len(states) - 1)]
    sides = {direction: side.whole() for direction, side in earlier.known_sides().items()}
    rebased = adjacency.rebased(earlier)
    if 0 < at < len(states) - 1:
        assert rebased is not None, "it was made from that state"
        assert all(side._base is sides[direction] for direction, side in rebased.known_sides().items())
        assert_equal(rebased, edges)
    assert earlier.rebased(adjacency) is None


def test_a_state_of_another_line_is_not_put_above_these_arrays() -> None:
    edges = Edges(nodes=4)
    edges.add([(0, 1), (1, 2), (2, 3)])
    base, none, numbering = edges.built(), listed({}), Numbering(4, None)
    one = base.stepped(none, listed({7: (0, 3)}), numbering, numbering)
    other = base.stepped(none, listed({7: (3, 0)}), numbering, numbering)
    assert one is not None
    assert other is not None
    one.write_out()
    assert other.rebased(one) is None


def test_edges_that_are_not_there_are_not_removed() -> None:
    edges = Edges(nodes=3)
    edges.add([(0, 1), (1, 2)])
    adjacency, numbering = edges.built(), Numbering(3, None)
    assert adjacency.located(ints([0, 5]), (ints([]), ints([]))) is None
    assert adjacency.stepped(listed({5: (0, 1)}), listed({}), numbering, numbering) is None


@given(pairs=PAIRS, dead=st.sets(st.integers(0, 9), max_size=5))
def test_an_index_without_dead_numbers_and_back(pairs: list[tuple[int, int]], dead: set[int]) -> None:
    numbering = Numbering(10, None, ints(sorted(dead)))
    edges = Edges(nodes=10)
    edges.add([(a, b) for a, b in pairs if a not in dead and b not in dead])
    adjacency = edges.built()
    adjacency.numberings = (numbering, numbering)
    compact = adjacency.without_dead()
    assert compact.sources == compact.targets == 10 - len(dead)
    assert compact.is_consistent()
    assert_equal(compact.with_dead(numbering, numbering), edges)


# ---- numbers and columns


class Rows:
    """The rows of a table: a value by row id."""

    def __init__(self, values: dict[int, str]) -> None:
        self.values = values

    @property
    def ids(self) -> IntArray:
        return ints(sorted(self.values))

    def of(self, row_ids: IntArray) -> pa.Array:
        return pa.array([self.values[row_id] for row_id in row_ids.tolist()], pa.utf8())


#: Rows that go by their place, rows that change by their place, and how far above the last row id each new one is.
CHANGES = st.lists(
    st.tuples(
        st.lists(st.integers(0, 20), max_size=3),
        st.lists(st.integers(0, 20), max_size=3),
        st.lists(st.integers(1, 3), max_size=3),
    ),
    max_size=6,
)


@settings(max_examples=150)
@given(gaps=st.lists(st.integers(1, 2), min_size=1, max_size=8), changes=CHANGES, patch=st.sampled_from([2, 100]))
def test_values_of_a_state_that_was_made_from_another_are_those_of_its_rows(
    gaps: list[int], changes: list[tuple[list[int], list[int], list[int]]], patch: int
) -> None:
    with pytest.MonkeyPatch.context() as settings_of:
        settings_of.setattr(kept_columns, "PATCH_ROWS", patch)
        rows = Rows({row_id: f"v{row_id}" for row_id in (np.cumsum(gaps) - 1).tolist()})
        columns = ColumnCache(1 << 20)
        numbering = number_rows(rows.ids)
        columns.put(numbering, "name", rows.of(rows.ids), "table")
        states = [(numbering, dict(rows.values))]
        for place, (lost, changed, news) in enumerate(changes):
            known = sorted(rows.values)
            gone = {known[number % len(known)] for number in lost} if known else set[int]()
            updated = ({known[number % len(known)] for number in changed} if known else set[int]()) - gone
            last = int(numbering.row_ids(ints([numbering.count - 1]))[0])
            new = (np.cumsum(news) + last).tolist()
            values = {key: value for key, value in rows.values.items() if key not in gone}
            values |= {row_id: f"w{place}-{row_id}" for row_id in (*updated, *new)}
            rows = Rows(values)
            come = ints(sorted([*updated, *new]))
            made = numbering.after(ints(sorted(gone | updated)), come)
            assert made is not None
            assert made.numbering.extends(numbering)
            columns.put_changed(numbering, made.numbering, "name", Change(made.come, rows.of(come), "table"))
            numbering = made.numbering
            states.append((numbering, dict(values)))
        for state, then in states:
            assert_right(columns, state, Rows(then))
        first = states[0][0]
        assert numbering.extends(first)
        assert first.extends(numbering) == (first.count == numbering.count)


def assert_right(columns: ColumnCache, state: Numbering, rows: Rows) -> None:
    assert state.live_count == len(rows.values)
    assert state.all_row_ids.tolist() == rows.ids.tolist()
    column = columns.get(state, "name")
    assert column is not None
    numbers = state.numbers(rows.ids)
    assert state.row_ids(numbers).tolist() == rows.ids.tolist()
    backwards = numbers[::-1]
    assert column.take(backwards).to_pylist() == rows.of(rows.ids[::-1]).to_pylist()
    assert columns.rows(state, "name", column).to_pylist() == rows.of(rows.ids).to_pylist()
    assert [column.value(int(number))[0].as_py() for number in numbers] == rows.of(rows.ids).to_pylist()


def test_states_that_part_do_not_share_the_numbers_that_come_then() -> None:
    base = number_rows(ints([0, 1, 2]))
    one, other = (base.after(ints([]), ints([3])) for _ in range(2))
    assert one is not None
    assert other is not None
    assert one.numbering.extends(base)
    assert other.numbering.extends(base)
    assert not one.numbering.extends(other.numbering)
    assert not other.numbering.extends(one.numbering)
    later = other.numbering.after(ints([1]), ints([4]))
    assert later is not None
    assert later.numbering.extends(other.numbering)
    assert not later.numbering.extends(one.numbering)


@pytest.mark.parametrize(
    ("gone", "come"), [([7], []), ([], [1]), ([0], [1]), ([9], [9])], ids=["unknown", "between", "again", "beyond"]
)
def test_numbers_that_do_not_fit_another_state_are_not_used(gone: list[int], come: list[int]) -> None:
    assert number_rows(ints([0, 2, 3])).after(ints(gone), ints(come)) is None


def test_a_row_that_is_gone_does_not_come_back_under_its_number() -> None:
    made = number_rows(ints([0, 1, 2])).after(ints([1]), ints([]))
    assert made is not None
    assert made.numbering.after(ints([]), ints([1])) is None
    assert made.numbering.after(ints([1]), ints([1])) is None
