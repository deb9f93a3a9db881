"""Three ways to neighbours, one answer: on stored graphs with deleted and replaced rows."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.core.budget import Budget
from omnigraph.engine import adjacency as neighbours
from omnigraph.engine.adjacency import (
    AdjacentNeighbours,
    IndexedNeighbours,
    Neighbours,
    ScannedNeighbours,
    reach_within,
)
from omnigraph.engine.context import Context
from omnigraph.engine.expand import find_adjacency
from omnigraph.engine.wanted_indexes import WantedIndex, index_spec
from omnigraph.lang.query.ir import Direction
from omnigraph.lang.schema.catalog import EdgeDef, IndexKind
from omnigraph.storage.datasets.indexes import stage_indices
from omnigraph.storage.datasets.reads import read_rows
from omnigraph.storage.datasets.staged import commit_staged
from omnigraph.storage.datasets.tables import Table
from omnigraph.storage.location import GraphLocation, parse_location
from support.engine_tables import append, delete, new_context, stored, upsert
from support.random_edges import Edges, edges_between, hops

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


def store_edges(
    location: GraphLocation, edges: Edges, kinds: tuple[str, str], *, is_indexed: bool
) -> Table:
    """Edges in two fragments with one deleted row between them; an index covers the first."""
    dead = pa.table({"id": [GONE], "src": [f"{kinds[0]}1"], "dst": [f"{kinds[1]}1"]}, schema=EDGES)
    half = len(edges.pairs) // 2
    first = edge_rows(edges, range(half), kinds)
    table = stored(location, "edges/e", pa.concat_tables([first, dead]))
    if is_indexed:
        specs = [
            index_spec(WantedIndex(column=name, kind=IndexKind.BTREE), 1) for name in ("src", "dst")
        ]
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
            found = ends[reach.offsets[place] : reach.offsets[place + 1]]
            assert sorted(found) == sorted(edges.neighbours(node, direction)), (name, "once")
        places, reach = way.edges(numbers)
        assert reach.edges is not None
        ends = world.nodes(direction, way.row_ids(reach.targets))
        taken = world.edge_numbers(np.asarray(reach.edges))
        for node, place in zip(nodes, places.tolist(), strict=True):
            part = slice(int(reach.offsets[place]), int(reach.offsets[place + 1]))
            steps = sorted(zip(ends[part], taken[part], strict=True))
            assert steps == edges.steps(node, direction), (name, "edges")


def check_reach(world: World, direction: Direction, nodes: list[int], low: int, high: int) -> None:
    sources = world.row_ids(direction, nodes)
    expected = [sorted(world.edges.reached(node, direction, low, high)) for node in nodes]
    for name, way in world.ways(direction).items():
        for is_dense in (True, False) if name == "adjacent" else (False,):
            found: list[list[int]] = []
            reached = reach_within(way, sources, low, high, is_dense=is_dense, budget=Budget())
            for _, reach in reached:
                ends = world.nodes(direction, way.row_ids(reach.targets))
                bounds = reach.offsets.tolist()
                found += [sorted(ends[x:y]) for x, y in pairwise(bounds)]
            assert found == expected, (name, is_dense)


@settings(max_examples=15)
@given(
    edges=edges_between(same_type=True),
    is_indexed=st.booleans(),
    probe=st.sampled_from([1, 2, 1000]),
    data=st.data(),
)
def test_all_ways_agree_inside_one_type(edges, is_indexed, probe, data) -> None:
    with (
        stored_world(edges, same_type=True, is_indexed=is_indexed) as world,
        mock.patch.object(neighbours, "_PROBE_IDS", probe),
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
