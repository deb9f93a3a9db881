"""The traversal index against dictionaries, and walks over it against walks by definition. No disk."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.core.budget import Budget
from omnigraph.core.types import BaseType, EnumType, ListType, PropertyType, Scalar, ScalarType, scalar_of
from omnigraph.core.values import StoredValue
from omnigraph.engine.operators import neighbours as ways
from omnigraph.engine.operators import reach as reachability
from omnigraph.engine.operators.neighbours import (
    AdjacentNeighbours,
    IndexedNeighbours,
    Neighbours,
    Reach,
    ScannedNeighbours,
    neighbours_of,
)
from omnigraph.engine.operators.reach import Question as Reachable
from omnigraph.engine.operators.reach import reach_counts, reach_totals, reach_within
from omnigraph.engine.predicates import keep_true, push_down
from omnigraph.engine.rows import Rows
from omnigraph.engine.tables.adjacency import Adjacency, Side, build_side
from omnigraph.engine.tables.context import Context
from omnigraph.engine.tables.entities import row_id_array
from omnigraph.engine.tables.numberings import Numbering
from omnigraph.engine.tables.runs import ranges
from omnigraph.engine.tables.traversal_index import find_adjacency
from omnigraph.engine.tables.wanted_indexes import WantedIndex, index_spec
from omnigraph.engine.values.comparisons import Fixed, Values, holds
from omnigraph.engine.values.comparisons import Side as SideCompareLaws
from omnigraph.lang.query.ir import (
    CompareOp,
    Comparison,
    Constant,
    Direction,
    Expression,
    Operand,
    ParamRef,
    PropertyRef,
)
from omnigraph.lang.schema.catalog import EdgeDef, IndexKind
from omnigraph.storage.datasets.indexes import stage_indices
from omnigraph.storage.datasets.reads import read_rows, scan_rows
from omnigraph.storage.datasets.staged import commit_staged
from omnigraph.storage.datasets.tables import Table
from omnigraph.storage.location import GraphLocation, parse_location
from support.compared_values import (
    ASKED,
    HELD,
    ORDERED,
    SCALARS,
    Edges,
    asked,
    edges_between,
    held,
    hops,
    is_true,
    partner,
    texts,
)
from support.engine_tables import append, column, delete, new_context, stored, upsert
from support.kernels import MODES, kernels
from support.subtests import each_case

#: Row ids of edges are far from their places, so that one is never taken for the other.
FIRST_EDGE = 1_000


def index_of(edges: Edges) -> Adjacency:
    source, target = (np.array([pair[end] for pair in edges.pairs], np.int64) for end in (0, 1))
    return Adjacency.build(
        source, target, np.arange(len(edges.pairs)) + FIRST_EDGE, sources=edges.sources, targets=edges.targets
    )


def steps_of(side: Side, node: int) -> list[tuple[int, int]]:
    part = slice(int(side.offsets[node]), int(side.offsets[node + 1]))
    edges = (side.edges[part].astype(np.int64) - FIRST_EDGE).tolist()
    return list(zip(side.targets[part].tolist(), edges, strict=True))


def neighbours_in(side: Side, node: int) -> list[int]:
    part = slice(int(side.distinct_offsets[node]), int(side.distinct_offsets[node + 1]))
    return side.distinct_targets[part].tolist()


def directions(edges: Edges) -> list[Direction]:
    """Both ways at once exist only inside one type."""
    return [direction for direction in Direction if direction is not Direction.BOTH or edges.sources == edges.targets]


@settings(max_examples=250)
@given(edges_between())
def test_every_side_has_the_edges_of_every_node(edges: Edges) -> None:
    adjacency = index_of(edges)
    for direction in directions(edges):
        side = adjacency.side(direction)
        nodes = range(edges.begins(direction))
        assert len(side.offsets) == len(side.distinct_offsets) == len(nodes) + 1
        for node in nodes:
            found = steps_of(side, node)
            assert sorted(found) == edges.steps(node, direction)
            assert [target for target, _ in found] == sorted(target for target, _ in found)
            assert neighbours_in(side, node) == sorted(edges.neighbours(node, direction))
    assert adjacency.edge_count == len(edges.pairs)


@settings(max_examples=100)
@given(edges_between())
def test_a_second_pair_of_arrays_exists_only_for_parallel_edges(edges: Edges) -> None:
    side = index_of(edges).side(Direction.OUT)
    has_parallel = len(set(edges.pairs)) < len(edges.pairs)
    assert (side.distinct_targets is not side.targets) == has_parallel
    assert (side.distinct_offsets is not side.offsets) == has_parallel


@settings(max_examples=100)
@given(edges_between())
def test_an_edge_costs_twelve_bytes_per_direction_at_most(edges: Edges) -> None:
    adjacency = index_of(edges)
    for direction in (Direction.OUT, Direction.IN):
        side = adjacency.side(direction)
        copies = 2 if side.distinct_targets is not side.targets else 1
        per_node = copies * 8 * (edges.begins(direction) + 1)
        assert side.nbytes - per_node <= 12 * len(edges.pairs)
    sides = adjacency.known_sides()
    assert adjacency.nbytes == sum(side.nbytes for side in sides.values())
    assert set(sides) == {Direction.OUT, Direction.IN}


def test_a_graph_of_usual_degree_costs_less_than_twelve_bytes_per_edge() -> None:
    """Ten edges per node without parallel ones: the ends, the edges and the offsets of nodes together."""
    nodes, degree = 1_000, 10
    source = np.repeat(np.arange(nodes), degree)
    target = (source + np.tile(np.arange(1, degree + 1), nodes)) % nodes
    side = build_side(source, target, np.arange(nodes * degree), nodes, nodes)
    assert side.nbytes <= 9 * nodes * degree


def test_row_ids_beyond_32_bits_are_kept_whole() -> None:
    large = np.array([2**32, 5, 2**40 + 1])
    side = build_side(np.array([1, 0, 1]), np.array([0, 0, 0]), large, 2, 1)
    assert side.edges[side.offsets[0] : side.offsets[1]].tolist() == [5]
    assert sorted(side.edges[side.offsets[1] :].tolist()) == [2**32, 2**40 + 1]
    narrow = build_side(np.array([0]), np.array([0]), np.array([2**32 - 1]), 1, 1)
    assert narrow.edges.tolist() == [2**32 - 1]
    assert narrow.edges.itemsize == 4


@each_case(("sources", "targets"), [(0, 0), (3, 0), (0, 3), (2, 2)])
def test_no_edges_lead_nowhere(sources: int, targets: int) -> None:
    none = np.zeros(0, np.int64)
    adjacency = Adjacency.build(none, none, none, sources=sources, targets=targets)
    assert adjacency.side(Direction.OUT).offsets.tolist() == [0] * (sources + 1)
    assert adjacency.side(Direction.IN).offsets.tolist() == [0] * (targets + 1)
    assert adjacency.edge_count == 0


def test_a_side_is_made_once() -> None:
    adjacency = index_of(Edges(2, 2, ((0, 1), (1, 1))))
    assert set(adjacency.known_sides()) == {Direction.OUT}
    assert adjacency.side(Direction.BOTH) is adjacency.side(Direction.BOTH)
    assert set(adjacency.known_sides()) == {Direction.OUT, Direction.BOTH}


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), max_size=8))
def test_ranges_run_one_after_the_other(parts: list[tuple[int, int]]) -> None:
    starts, counts = (np.array([part[end] for part in parts], np.int64) for end in (0, 1))
    expected = [start + step for start, count in parts for step in range(count)]
    assert ranges(starts, counts).tolist() == expected


@given(st.lists(st.integers(0, 4), min_size=1, max_size=6), st.lists(st.integers(0, 5), max_size=8))
def test_pairs_of_places_and_targets_follow_the_question(counts: list[int], asked: list[int]) -> None:
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    reach = Reach(offsets[:-1], offsets[1:], np.arange(int(offsets[-1])))
    places = np.array([place % len(counts) for place in asked], np.int64)
    index, found = neighbours_of(reach, places)
    spots = reach.targets[found]
    expected = [
        (number, spot)
        for number, place in enumerate(places.tolist())
        for spot in range(int(offsets[place]), int(offsets[place + 1]))
    ]
    assert list(zip(index.tolist(), spots.tolist(), strict=True)) == expected


# ---- reachability


def walker(edges: Edges, direction: Direction, gap: int = 1) -> AdjacentNeighbours:
    """Walks over the index; the row id of node `n` is `gap * n`."""

    def numbered(count: int) -> Any:
        ids = None if gap == 1 else np.arange(count) * gap
        return SimpleNamespace(numbering=lambda: Numbering(count, ids), budget=Budget())

    begin, end = edges.sources, edges.targets
    if direction is Direction.IN:
        begin, end = end, begin
    return AdjacentNeighbours(index_of(edges), direction, numbered(begin), numbered(end))


def answers(neighbours: Neighbours, row_ids: np.ndarray, low: int, high: int) -> list[list[int]]:
    """Per source, the row ids that it reaches."""
    found: list[list[int]] = []
    question = Reachable(neighbours, neighbours.numbers(row_ids), low, high)
    for start, reach in reach_within(question, Budget()):
        assert start == len(found), "parts follow each other"
        ids = neighbours.row_ids(reach.targets).tolist()
        bounds = zip(reach.starts.tolist(), reach.ends.tolist(), strict=True)
        found += [sorted(ids[begin:end]) for begin, end in bounds]
    return found


def check_sums(neighbours: AdjacentNeighbours, row_ids: np.ndarray, low: int, high: int) -> None:
    """What is reached, counted per source and weighed per node, with and without nodes that are left out."""
    numbers = neighbours.numbers(row_ids)
    question = Reachable(neighbours, numbers, low, high)
    lists = [neighbours.target_numbers(np.array(ids, np.int64)) for ids in answers(neighbours, row_ids, low, high)]
    weights = np.arange(len(numbers)) + 2
    for allowed in (None, np.arange(neighbours.stride) % 2 == 0):
        kept = [nodes if allowed is None else nodes[allowed[nodes]] for nodes in lists]
        totals = np.zeros(neighbours.stride, np.int64)
        for nodes, weight in zip(kept, weights, strict=True):
            totals[nodes] += weight
        assert reach_counts(question, allowed, Budget()).tolist() == [len(nodes) for nodes in kept]
        assert reach_totals(question, weights, allowed, Budget()).tolist() == totals.tolist()


@settings(max_examples=250)
@given(
    edges=edges_between(same_type=True),
    bounds=hops(),
    direction=st.sampled_from(Direction),
    gap=st.sampled_from([1, 3]),
    data=st.data(),
)
def test_reached_is_what_a_walk_by_definition_reaches(edges, bounds, direction, gap, data) -> None:
    nodes = data.draw(st.lists(st.integers(0, edges.sources - 1), min_size=1, unique=True))
    low, high = bounds
    neighbours = walker(edges, direction, gap)
    sources = np.array(nodes, np.int64) * gap
    expected = [sorted(n * gap for n in edges.reached(node, direction, low, high)) for node in nodes]
    for mode in MODES:
        with kernels(mode):
            assert answers(neighbours, sources, low, high) == expected
            check_sums(neighbours, sources, low, high)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("cells", [1, 10, 30])
@settings(max_examples=60)
@given(edges=edges_between(same_type=True), bounds=hops())
def test_parts_of_any_size_give_the_same(cells, mode, edges, bounds) -> None:
    neighbours = walker(edges, Direction.OUT)
    sources = np.arange(edges.sources)
    expected = [sorted(edges.reached(node, Direction.OUT, *bounds)) for node in sources.tolist()]
    with (
        mock.patch.object(reachability, "_BITMAP_CELLS", cells),
        mock.patch.object(reachability, "_STEP_EDGES", 2),
        mock.patch.object(reachability, "_STEP_NODES", 3),
        mock.patch.object(reachability, "_WRITTEN_NODES", cells),
        mock.patch.object(reachability, "_LEAST_SOURCES", 1),
        mock.patch.object(reachability, "_SURELY_SHORT", 0),
        mock.patch.object(reachability, "PART_STEPS", 2),
        kernels(mode),
    ):
        assert answers(neighbours, sources, *bounds) == expected
        check_sums(neighbours, sources, *bounds)


@pytest.mark.parametrize("mode", MODES)
def test_without_sources_nothing_is_reached(mode: str) -> None:
    neighbours = walker(Edges(1, 1, ((0, 0),)), Direction.OUT)
    with kernels(mode):
        assert answers(neighbours, np.zeros(0, np.int64), 1, 2) == []


#: 0 → 1 → 2 → 0 is a cycle, 2 → 3 leaves it, 1 and 3 have loops, 0 → 1 is doubled.
KNOWN = Edges(4, 4, ((0, 1), (0, 1), (1, 2), (2, 0), (2, 3), (1, 1), (3, 3)))


@each_case(
    ("node", "direction", "low", "high", "expected"),
    [
        (0, Direction.OUT, 1, 1, {1}),
        (0, Direction.OUT, 1, 9, {1, 2, 3}),
        (0, Direction.OUT, 2, 2, {2}),
        (0, Direction.OUT, 3, 3, {3}),
        (0, Direction.OUT, 4, 9, set()),
        # The loop of the source counts at hop 1, and only there.
        (1, Direction.OUT, 1, 1, {1, 2}),
        (1, Direction.OUT, 1, 9, {0, 1, 2, 3}),
        (1, Direction.OUT, 2, 9, {0, 3}),
        (3, Direction.OUT, 1, 5, {3}),
        (3, Direction.OUT, 2, 5, set()),
        (3, Direction.IN, 1, 2, {1, 2, 3}),
        (0, Direction.BOTH, 1, 1, {1, 2}),
        (0, Direction.BOTH, 2, 9, {3}),
    ],
)
def test_cycles_loops_and_bounds_on_a_known_graph(node, direction, low, high, expected) -> None:
    assert KNOWN.reached(node, direction, low, high) == expected, "the model itself"
    for mode in MODES:
        with kernels(mode):
            (found,) = answers(walker(KNOWN, direction), np.array([node]), low, high)
            assert found == sorted(expected)


# ---- Three ways to neighbours, one answer: on stored graphs with deleted and replaced rows


NODES = pa.schema([pa.field("id", pa.utf8(), nullable=False)])
EDGES = pa.schema([pa.field(name, pa.utf8(), nullable=False) for name in ("id", "src", "dst")])
GONE = "gone"


def node_rows(names: list[str]) -> pa.Table:
    return pa.table({"id": pa.array(names, pa.utf8())}, schema=NODES)


def store_nodes(location: GraphLocation, path: str, kind: str, count: int) -> Table:
    """Nodes whose row ids have gaps and are unsorted in storage; their ids run against both."""
    names = [f"{kind}{count - number}" for number in range(count)]
    table = stored(location, path, node_rows([GONE, *names]))
    return upsert(delete(table, [GONE]), node_rows(names[:2]))


def edge_rows(edges: Edges, part: range, kinds: tuple[str, str]) -> pa.Table:
    source, target = kinds
    columns = {
        "id": [f"e{edge}" for edge in part],
        "src": [f"{source}{edges.pairs[edge][0] + 1}" for edge in part],
        "dst": [f"{target}{edges.pairs[edge][1] + 1}" for edge in part],
    }
    return pa.table(columns, schema=EDGES)


def store_edges(location: GraphLocation, edges: Edges, kinds: tuple[str, str], *, is_indexed: bool) -> Table:
    """Edges in two fragments with one deleted row between them; an index covers the first."""
    dead = pa.table({"id": [GONE], "src": [f"{kinds[0]}1"], "dst": [f"{kinds[1]}1"]}, schema=EDGES)
    half = len(edges.pairs) // 2
    first = edge_rows(edges, range(half), kinds)
    table = stored(location, "edges/e", pa.concat_tables([first, dead]))
    if is_indexed:
        specs = [index_spec(WantedIndex(column=name, kind=IndexKind.BTREE), 1) for name in ("src", "dst")]
        staged = stage_indices(table, [spec for spec in specs if spec is not None])
        assert staged is not None
        table = commit_staged(staged)
    table = delete(table, [GONE])
    rest = edge_rows(edges, range(half, len(edges.pairs)), kinds)
    return append(table, rest) if rest.num_rows else table


@dataclass
class World:
    """A stored graph: nodes `s1 …` and `t1 …`, or `s1 …` on both ends, and edges `e0 …`."""

    edges: Edges
    context: Context
    kinds: tuple[str, str]

    @property
    def definition(self) -> EdgeDef:
        source, target = (f"N{kind}" for kind in self.kinds)
        return EdgeDef(name="E", source=source, target=target, properties={})

    def ways(self, direction: Direction) -> dict[str, Neighbours]:
        begin, end = self.kinds[::-1] if direction is Direction.IN else self.kinds
        source, target = (self.context.type_entities(f"node:N{kind}") for kind in (begin, end))
        stored_edges = self.context.type_entities("edge:E")
        adjacency = find_adjacency(self.context, self.definition)
        return {
            "adjacent": AdjacentNeighbours(adjacency, direction, source, target),
            "indexed": IndexedNeighbours(stored_edges, direction, source, target),
            "scanned": ScannedNeighbours(stored_edges, direction, source, target),
        }

    def row_ids(self, direction: Direction, nodes: list[int]) -> np.ndarray:
        """Where to begin."""
        kind = self.kinds[1] if direction is Direction.IN else self.kinds[0]
        known = {name: row for row, name in self.names(f"node:N{kind}").items()}
        return np.array([known[f"{kind}{node + 1}"] for node in nodes], np.int64)

    def nodes(self, direction: Direction, row_ids: np.ndarray) -> list[int]:
        """Where it ends."""
        kind = self.kinds[0] if direction is Direction.IN else self.kinds[1]
        names = self.names(f"node:N{kind}")
        return [int(names[row][1:]) - 1 for row in row_ids.tolist()]

    def edge_numbers(self, row_ids: np.ndarray) -> list[int]:
        names = self.names("edge:E")
        return [int(names[row][1:]) for row in row_ids.tolist()]

    def names(self, key: str) -> dict[int, str]:
        rows = read_rows(self.context.type_entities(key).table, ("id",))
        return dict(zip(rows["_rowid"].to_pylist(), rows["id"].to_pylist(), strict=True))


@contextmanager
def stored_world(edges: Edges, *, same_type: bool, is_indexed: bool) -> Iterator[World]:
    folder = tempfile.mkdtemp(prefix="neighbours-")
    try:
        location = parse_location(folder)
        kinds = ("s", "s") if same_type else ("s", "t")
        tables = {"node:Ns": store_nodes(location, "nodes/s", "s", edges.sources)}
        if not same_type:
            tables["node:Nt"] = store_nodes(location, "nodes/t", "t", edges.targets)
        tables["edge:E"] = store_edges(location, edges, kinds, is_indexed=is_indexed)
        yield World(edges, new_context(location, tables), kinds)
    finally:
        shutil.rmtree(folder)


def asked_nodes(edges: Edges, direction: Direction, **options: Any) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, edges.begins(direction) - 1), max_size=6, **options)


def check_steps(world: World, direction: Direction, nodes: list[int]) -> None:
    edges = world.edges
    for name, way in world.ways(direction).items():
        numbers = way.numbers(world.row_ids(direction, nodes))
        places, reach = way.once(numbers)
        ends = world.nodes(direction, way.row_ids(reach.targets))
        for node, place in zip(nodes, places.tolist(), strict=True):
            found = ends[reach.starts[place] : reach.ends[place]]
            assert sorted(found) == sorted(edges.neighbours(node, direction)), (name, "once")
        places, reach = way.edges(numbers)
        assert reach.edges is not None
        ends = world.nodes(direction, way.row_ids(reach.targets))
        taken = world.edge_numbers(np.asarray(reach.edges))
        for node, place in zip(nodes, places.tolist(), strict=True):
            part = slice(int(reach.starts[place]), int(reach.ends[place]))
            steps = sorted(zip(ends[part], taken[part], strict=True))
            assert steps == edges.steps(node, direction), (name, "edges")


def check_reach(world: World, direction: Direction, nodes: list[int], low: int, high: int) -> None:
    sources = world.row_ids(direction, nodes)
    expected = [sorted(world.edges.reached(node, direction, low, high)) for node in nodes]
    for name, way in world.ways(direction).items():
        for mode in MODES if name == "adjacent" else ("auto",):
            found: list[list[int]] = []
            with kernels(mode):
                for _, reach in reach_within(Reachable(way, way.numbers(sources), low, high), Budget()):
                    ends = world.nodes(direction, way.row_ids(reach.targets))
                    bounds = zip(reach.starts.tolist(), reach.ends.tolist(), strict=True)
                    found += [sorted(ends[x:y]) for x, y in bounds]
            assert found == expected, (name, mode)


@settings(max_examples=15)
@given(
    edges=edges_between(same_type=True), is_indexed=st.booleans(), probe=st.sampled_from([1, 2, 1000]), data=st.data()
)
def test_all_ways_agree_inside_one_type(edges, is_indexed, probe, data) -> None:
    with (
        stored_world(edges, same_type=True, is_indexed=is_indexed) as world,
        mock.patch.object(ways, "_PROBE_IDS", probe),
    ):
        for direction in Direction:
            check_steps(world, direction, data.draw(asked_nodes(edges, direction)))
            nodes = data.draw(asked_nodes(edges, direction, unique=True, min_size=1))
            check_reach(world, direction, nodes, *data.draw(hops()))


@settings(max_examples=10)
@given(edges=edges_between(same_type=False), is_indexed=st.booleans(), data=st.data())
def test_all_ways_agree_between_two_types(edges, is_indexed, data) -> None:
    with stored_world(edges, same_type=False, is_indexed=is_indexed) as world:
        for direction in (Direction.OUT, Direction.IN):
            for _ in range(3):
                check_steps(world, direction, data.draw(asked_nodes(edges, direction)))


@pytest.mark.parametrize("direction", Direction)
def test_nobody_has_no_neighbours(direction: Direction) -> None:
    edges = Edges(2, 2, ((0, 1), (1, 1)))
    with stored_world(edges, same_type=True, is_indexed=False) as world:
        check_steps(world, direction, [])


@pytest.mark.parametrize("direction", Direction)
def test_loops_and_parallel_edges_are_counted_alike(direction: Direction) -> None:
    """A loop is one edge from both of its ends; two parallel loops are two."""
    edges = Edges(3, 3, ((0, 0), (0, 0), (0, 1), (1, 0), (0, 1), (2, 1)))
    with stored_world(edges, same_type=True, is_indexed=True) as world:
        check_steps(world, direction, [0, 1, 2, 0])
        for low, high in ((1, 1), (1, 3), (2, 3)):
            check_reach(world, direction, [2, 0, 1], low, high)


# ---- What storage filters and what the engine compares keep the same rows, and the right ones


ENUM = EnumType(("A", "a", "it's", "é"))
PLAIN: list[BaseType] = [*(ScalarType(scalar) for scalar in SCALARS), ENUM]
LISTS: list[BaseType] = [ListType(scalar) for scalar in SCALARS]
NAME = "camelCase"
#: Questions per table: making a table costs more than asking about it.
ROUNDS = 8


@dataclass(frozen=True)
class Question:
    """A predicate, the values of its parameters, and what it means for one value of the column."""

    predicate: Expression
    values: dict[str, StoredValue]
    op: CompareOp
    operand: Any
    is_mirrored: bool

    def holds(self, value: Any) -> bool:
        if self.is_mirrored:
            return is_true(self.op, self.operand, value)
        return is_true(self.op, value, self.operand)


def column_values(base: BaseType) -> st.SearchStrategy[Any]:
    match base:
        case EnumType(names):
            return st.sampled_from(names)
        case ListType(item):
            return st.lists(st.none() | held(item), max_size=3).map(tuple)
        case ScalarType(scalar):
            return held(scalar)
    raise TypeError(base)


@st.composite
def questions(draw: st.DrawFn, base: BaseType, number: int) -> Question:
    """Any comparison of a column with a literal or parameter that the checker allows."""
    scalar = base.item if isinstance(base, ListType) else scalar_of(base)
    assert scalar is not None
    other = draw(partner(scalar))
    base_of_operand: BaseType = ScalarType(other)
    operand_values = texts if scalar_of(base) is Scalar.STRING else asked(other)
    is_mirrored = draw(st.booleans())
    if isinstance(base, ListType):
        op, is_mirrored = CompareOp.CONTAINS, False
    elif is_mirrored and draw(st.booleans()):
        op, base_of_operand = CompareOp.CONTAINS, ListType(other)
        operand_values = st.lists(st.none() | operand_values, max_size=4).map(tuple)
    else:
        ops = list(ORDERED)
        if scalar is Scalar.STRING:
            ops += [CompareOp.STRING_CONTAINS, CompareOp.STARTS_WITH]
        op = draw(st.sampled_from(ops))
    type_ = PropertyType(base_of_operand, nullable=True)
    name, values = f"p{number}", {}
    if draw(st.booleans()):
        value = draw(operand_values)
        operand: Operand = Constant(value, type_)
    else:
        value = draw(st.none() | operand_values)
        operand, values = ParamRef(name, type_), {name: value}
    field = PropertyRef("n", NAME, PropertyType(base, nullable=True))
    left, right = (operand, field) if is_mirrored else (field, operand)
    return Question(Comparison(left, op, right), values, op, value, is_mirrored)


@contextmanager
def table_of(base: BaseType, values: list[Any], covered: int | None) -> Iterator[tuple[GraphLocation, Table]]:
    """A table with one row per value; the first `covered` rows are in an index of the column."""
    folder = tempfile.mkdtemp(prefix="pushdown-")
    try:
        type_ = column(base, []).type
        schema = pa.schema([pa.field("id", pa.utf8(), nullable=False), pa.field(NAME, type_)])
        ids = pa.array([str(place) for place in range(len(values))], pa.utf8())
        rows = pa.table([ids, column(base, values)], schema=schema)
        location = parse_location(folder)
        if covered is None:
            yield location, stored(location, "nodes/x", rows)
            return
        table = stored(location, "nodes/x", rows.slice(0, covered))
        spec = index_spec(WantedIndex(column=NAME, kind=IndexKind.BTREE), covered)
        assert spec is not None
        staged = stage_indices(table, [spec])
        assert staged is not None
        table = commit_staged(staged)
        if covered < len(values):
            table = append(table, rows.slice(covered))
        yield location, table
    finally:
        shutil.rmtree(folder)


def ids_of(table: Table, row_ids: np.ndarray) -> list[str]:
    rows = read_rows(table, ("id",))
    by_row = dict(zip(row_id_array(rows).tolist(), rows["id"].to_pylist(), strict=True))
    return sorted(by_row[row_id] for row_id in row_ids.tolist())


def check(location: GraphLocation, table: Table, held_values: list[Any], asked_of: list[Question]) -> None:
    """Storage and engine keep the rows for which every predicate is true."""
    values = {name: value for item in asked_of for name, value in item.values.items()}
    predicates = [item.predicate for item in asked_of]
    context = new_context(location, {"node:X": table}, {"n": "node:X"}, values)
    expected = sorted(
        str(place) for place, value in enumerate(held_values) if all(item.holds(value) for item in asked_of)
    )

    everything = Rows(count=table.row_count, variables={"n": row_id_array(read_rows(table)).copy()})
    in_memory = keep_true(context, everything, predicates)
    assert ids_of(table, in_memory.variables["n"]) == expected, "the engine compares"

    pushed = push_down(predicates, values)
    found = [row_id_array(batch) for batch in scan_rows(table, (), pushed.filter)]
    row_ids = np.concatenate([*found, np.zeros(0, np.int64)])
    rows = Rows(count=len(row_ids), variables={"n": row_ids})
    kept = keep_true(context, rows, pushed.rest)
    assert ids_of(table, kept.variables["n"]) == expected, f"storage filters {pushed.filter}"
    if not pushed.rest and pushed.filter is not None:
        assert table.count_rows(pushed.filter) == len(expected)


def ask(data: st.DataObject, base: BaseType, *, is_indexed: bool) -> None:
    values = data.draw(st.lists(st.none() | column_values(base), min_size=2, max_size=10), label="column")
    covered = data.draw(st.integers(1, len(values)), label="covered") if is_indexed else None
    with table_of(base, values, covered) as (location, table):
        for _ in range(ROUNDS):
            count = data.draw(st.sampled_from([1, 1, 2]))
            asked_of = [data.draw(questions(base, number)) for number in range(count)]
            check(location, table, values, asked_of)


@pytest.mark.parametrize("base", [*PLAIN, *LISTS], ids=str)
@settings(max_examples=5)
@given(data=st.data())
def test_storage_and_engine_keep_the_same_rows(base: BaseType, data: st.DataObject) -> None:
    ask(data, base, is_indexed=False)


@pytest.mark.parametrize("base", PLAIN, ids=str)
@settings(max_examples=4)
@given(data=st.data())
def test_an_index_over_some_of_the_rows_changes_nothing(base: BaseType, data: st.DataObject) -> None:
    ask(data, base, is_indexed=True)


@each_case("scalar", HELD)
def test_storage_compares_numbers_beside_the_limits_of_other_types(scalar: Scalar) -> None:
    base = ScalarType(scalar)
    values = [*HELD[scalar], None]
    field = PropertyRef("n", NAME, PropertyType(base, nullable=True))
    wrong = []
    with table_of(base, values, None) as (_, table):
        for asked_scalar, value in ASKED:
            operand = Constant(value, PropertyType(ScalarType(asked_scalar)))
            for op in ORDERED:
                pushed = push_down([Comparison(field, op, operand)], {})
                assert pushed.filter is not None
                found = sorted(read_rows(table, ("id",), pushed.filter)["id"].to_pylist())
                expected = sorted(str(place) for place, held_ in enumerate(values) if is_true(op, held_, value))
                if found != expected:
                    wrong.append((op, value, found, expected))
    assert wrong == []


# ---- Comparisons of columns and constants agree with Python's exact arithmetic, whatever the mix of types


@st.composite
def sides(
    draw: st.DrawFn, base: BaseType, count: int, in_columns: Any, in_constants: Any
) -> tuple[SideCompareLaws, list[Any]]:
    """One side of a comparison with its value per row; columns may begin inside a longer array."""
    if draw(st.booleans()):
        value = draw(st.none() | in_constants)
        return Fixed(value, base), [value] * count
    before = draw(st.integers(0, 2))
    size = before + count
    found = draw(st.lists(st.none() | in_columns, min_size=size, max_size=size))
    return Values(column(base, found).slice(before), base), found[before:]


def check_compared(
    op: CompareOp, left: tuple[SideCompareLaws, list[Any]], right: tuple[SideCompareLaws, list[Any]]
) -> None:
    count = len(left[1])
    expected = [is_true(op, x, y) for x, y in zip(left[1], right[1], strict=True)]
    assert holds(op, left[0], right[0], count).tolist() == expected


@settings(max_examples=400)
@given(data=st.data(), count=st.integers(1, 8))
def test_scalars_compare_by_value(data: st.DataObject, count: int) -> None:
    first = data.draw(st.sampled_from(SCALARS))
    second = data.draw(partner(first))
    left = data.draw(sides(ScalarType(first), count, held(first), asked(first)))
    right = data.draw(sides(ScalarType(second), count, held(second), asked(second)))
    for op in ORDERED:
        check_compared(op, left, right)


def lists_of(items: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(st.none() | items, max_size=4).map(tuple)


@settings(max_examples=300)
@given(data=st.data(), count=st.integers(1, 8))
def test_a_list_contains_what_equals_one_of_its_items(data: st.DataObject, count: int) -> None:
    item = data.draw(st.sampled_from(SCALARS))
    member = data.draw(partner(item))
    base = ListType(item)
    left = data.draw(sides(base, count, lists_of(held(item)), lists_of(asked(item))))
    right = data.draw(sides(ScalarType(member), count, held(member), asked(member)))
    check_compared(CompareOp.CONTAINS, left, right)


@settings(max_examples=100)
@given(data=st.data(), count=st.integers(1, 8))
def test_parts_of_texts_are_found_literally(data: st.DataObject, count: int) -> None:
    base = ScalarType(Scalar.STRING)
    left = data.draw(sides(base, count, texts, texts))
    right = data.draw(sides(base, count, texts, texts))
    for op in (CompareOp.STRING_CONTAINS, CompareOp.STARTS_WITH):
        check_compared(op, left, right)
