"""Where traversal indexes come from: memory, then disk, then a scan; and never a wrong one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.engine.tables import entities, traversal_index
from omnigraph.engine.tables.adjacency import Side
from omnigraph.engine.tables.context import Context, EngineCaches
from omnigraph.engine.tables.traversal_index import find_adjacency, is_adjacency_ready
from omnigraph.lang.query.ir import Direction
from omnigraph.lang.schema.catalog import EdgeDef
from omnigraph.storage.datasets.tables import Table
from omnigraph.storage.derived import DerivedArrays
from omnigraph.storage.location import GraphLocation, parse_location
from support.engine_tables import append, delete, new_context, stored

LIKES = EdgeDef(name="Likes", source="Cat", target="Dog", properties={})
NODES = pa.schema([pa.field("id", pa.utf8(), nullable=False)])
EDGES = pa.schema([pa.field(name, pa.utf8(), nullable=False) for name in ("id", "src", "dst")])
#: Cat and dog per edge; the first two are parallel.
PAIRS = ["aX", "aX", "bX", "cY", "aY"]


def nodes(names: str) -> pa.Table:
    return pa.table({"id": list(names)}, schema=NODES)


def edges(pairs: list[str]) -> pa.Table:
    columns = {
        "id": [f"e{place}" for place in range(len(pairs))],
        "src": [pair[0] for pair in pairs],
        "dst": [pair[1] for pair in pairs],
    }
    return pa.table(columns, schema=EDGES)


@pytest.fixture
def location(tmp_path: Path) -> GraphLocation:
    return parse_location(tmp_path)


@pytest.fixture
def tables(location: GraphLocation) -> dict[str, Table]:
    return {
        "node:Cat": stored(location, "nodes/cat", nodes("abc")),
        "node:Dog": stored(location, "nodes/dog", nodes("XY")),
        "edge:Likes": stored(location, "edges/likes", edges(PAIRS)),
    }


@pytest.fixture(autouse=True)
def _small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traversal_index, "PERSIST_MIN_EDGES", len(PAIRS))


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables whose edges were scanned."""
    found: list[str] = []
    scan = traversal_index.scan_rows

    def noted(table: Table, *arguments: Any, **options: Any) -> Any:
        found.append(table.path)
        return scan(table, *arguments, **options)

    monkeypatch.setattr(traversal_index, "scan_rows", noted)
    return found


def process(location: GraphLocation, tables: dict[str, Table]) -> Context:
    """What another process begins with: nothing in memory, everything on disk."""
    context = new_context(location, tables)
    context.caches = EngineCaches(context.caches.settings, DerivedArrays(location))
    return context


def read(side: Side) -> list[list[list[int]]]:
    """Per node its neighbours once, and its neighbours and edges."""
    found = []
    for node in range(len(side.offsets) - 1):
        once = side.distinct_targets[side.distinct_offsets[node] : side.distinct_offsets[node + 1]]
        part = slice(int(side.offsets[node]), int(side.offsets[node + 1]))
        found.append([once.tolist(), side.targets[part].tolist(), sorted(side.edges[part].tolist())])
    return found


OUT = [[[0, 1], [0, 0, 1], [0, 1, 4]], [[0], [0], [2]], [[1], [1], [3]]]
IN = [[[0, 1], [0, 0, 1], [0, 1, 2]], [[0, 2], [0, 2], [3, 4]]]


def assert_right(context: Context) -> None:
    found = find_adjacency(context, LIKES)
    assert (found.sources, found.targets, found.edge_count) == (3, 2, 5)
    assert read(found.side(Direction.OUT)) == OUT
    assert read(found.side(Direction.IN)) == IN


def set_folders(location: GraphLocation) -> list[Path]:
    return sorted((location.path / "__derived").glob("*/*"))


def test_an_index_is_built_from_one_scan_and_kept_in_memory(location, tables, scans) -> None:
    context = process(location, tables)
    assert not is_adjacency_ready(context, LIKES)
    assert_right(context)
    assert is_adjacency_ready(context, LIKES)
    assert find_adjacency(context, LIKES) is find_adjacency(context, LIKES)
    assert scans == ["edges/likes"]


def test_another_process_maps_it_from_disk(location, tables, scans) -> None:
    find_adjacency(process(location, tables), LIKES)
    other = process(location, tables)
    assert is_adjacency_ready(other, LIKES)
    assert_right(other)
    assert scans == ["edges/likes"], "no second scan"
    side = find_adjacency(other, LIKES).side(Direction.OUT)
    assert isinstance(side.targets.base, np.memmap)
    assert side.distinct_targets is not side.targets, "parallel edges are still known"


def test_without_parallel_edges_nothing_is_stored_twice(location, tables, scans) -> None:
    tables["edge:Likes"] = stored(location, "edges/likes", edges(["aX", "bX", "cY", "aY", "bY"]))
    find_adjacency(process(location, tables), LIKES)
    side = find_adjacency(process(location, tables), LIKES).side(Direction.OUT)
    assert side.distinct_targets is side.targets
    assert side.distinct_offsets is side.offsets
    (folder,) = set_folders(location)
    assert len(list(folder.glob("*.npy"))) == 2 + 2 * 3
    assert scans == ["edges/likes"]


def test_few_edges_are_not_kept_on_disk(monkeypatch, location, tables, scans) -> None:
    monkeypatch.setattr(traversal_index, "PERSIST_MIN_EDGES", len(PAIRS) + 1)
    assert_right(process(location, tables))
    find_adjacency(process(location, tables), LIKES, keep=True)
    assert set_folders(location) == []
    assert len(scans) == 2


def test_a_maintenance_run_makes_both_directions(location, tables) -> None:
    found = find_adjacency(process(location, tables), LIKES, keep=True)
    assert set(found.known_sides()) == {Direction.OUT, Direction.IN}
    assert len(set_folders(location)) == 1
    assert_right(process(location, tables))


@pytest.mark.parametrize("changed", ["edge:Likes", "node:Cat", "node:Dog"])
def test_a_write_to_the_edges_or_either_end_reads_what_changed(location, tables, scans, changed: str) -> None:
    """The index on disk is that of the state before, and stays until a maintenance run writes the new one."""
    find_adjacency(process(location, tables), LIKES)
    (before,) = set_folders(location)
    rows = edges(["bY"]) if changed == "edge:Likes" else nodes("z")
    tables[changed] = append(tables[changed], rows)
    context = process(location, tables)
    assert is_adjacency_ready(context, LIKES)
    found = find_adjacency(context, LIKES)
    assert scans == ["edges/likes"], "no second scan"
    counts = {"edge:Likes": (3, 2, 6), "node:Cat": (4, 2, 5), "node:Dog": (3, 3, 5)}
    assert (found.sources, found.targets, found.edge_count) == counts[changed]
    assert found.side(Direction.OUT).edge_count == found.side(Direction.IN).edge_count == counts[changed][2]
    assert set_folders(location) == [before]
    find_adjacency(context, LIKES, keep=True)
    (after,) = set_folders(location)
    assert after != before, "the older set is gone"
    kept = find_adjacency(process(location, tables), LIKES)
    for direction in (Direction.OUT, Direction.IN):
        assert read(kept.side(direction)) == read(found.side(direction))


def test_an_earlier_index_is_of_no_use_without_its_state(location, tables, scans) -> None:
    find_adjacency(process(location, tables), LIKES)
    after = append(tables["edge:Likes"], edges(["bY"]))
    shutil.rmtree(location.path / "edges" / "likes" / "_versions")
    (location.path / "edges" / "likes" / "_versions").mkdir()
    tables["edge:Likes"] = after
    context = process(location, tables)
    assert not is_adjacency_ready(context, LIKES)
    assert find_adjacency(context, LIKES).edge_count == 6
    assert scans == ["edges/likes"] * 2


def test_too_many_changes_are_not_read_one_by_one(monkeypatch, location, tables, scans) -> None:
    monkeypatch.setattr(entities, "STEP_ROWS", 0)
    context = process(location, tables)
    find_adjacency(context, LIKES)
    other = new_context(location, {**tables, "edge:Likes": append(tables["edge:Likes"], edges(["bY", "cX"]))})
    other.caches = context.caches
    assert not is_adjacency_ready(other, LIKES)
    assert find_adjacency(other, LIKES).edge_count == 7
    assert scans == ["edges/likes"] * 2


def test_deleted_nodes_leave_numbers_without_gaps(location, tables) -> None:
    tables["edge:Likes"] = delete(tables["edge:Likes"], ["e2"])
    tables["node:Cat"] = delete(tables["node:Cat"], ["b"])
    found = find_adjacency(process(location, tables), LIKES)
    assert (found.sources, found.edge_count) == (2, 4)
    expected = [OUT[0], OUT[2]]
    assert read(found.side(Direction.OUT)) == expected


def test_no_edges_have_an_index_too(location, tables) -> None:
    tables["edge:Likes"] = stored(location, "edges/likes", edges([]))
    found = find_adjacency(process(location, tables), LIKES)
    assert (found.sources, found.targets, found.edge_count) == (3, 2, 0)


def damage(location: GraphLocation, name: str, how: str) -> None:
    (folder,) = set_folders(location)
    file = folder / f"{name}.npy"
    if how == "cut":
        file.write_bytes(file.read_bytes()[:-1])
    else:
        file.unlink()


@pytest.mark.parametrize("name", ["counts", "states", "out-offsets", "in-edges", "out-distinct_targets"])
@pytest.mark.parametrize("how", ["cut", "missing"])
def test_a_damaged_index_is_built_again(location, tables, scans, name: str, how: str) -> None:
    find_adjacency(process(location, tables), LIKES)
    damage(location, name, how)
    assert_right(process(location, tables))
    assert scans == ["edges/likes"] * 2


def test_a_damaged_index_is_replaced_on_disk(location, tables, scans) -> None:
    """Otherwise every process would build it again."""
    find_adjacency(process(location, tables), LIKES)
    damage(location, "out-targets", "cut")
    find_adjacency(process(location, tables), LIKES)
    assert_right(process(location, tables))
    assert scans == ["edges/likes"] * 2, "the third process finds a good one"
