"""Small graphs in unusual states: deleted rows, keys, names that mean something elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.graphs import ids_of, new_graph, rows_of, run

ITEM = "node:Item"


@pytest.mark.parametrize(
    "wanted",
    [
        "node Item { k: I32 @key  v: I32  l: [String] }",
        "node Item { k: I32 @key  v: I64  l: [String]  w: String? }",
    ],
    ids=["nothing is written", "columns are written"],
)
def test_deleted_rows_do_not_count(tmp_path: Path, wanted: str) -> None:
    graph = new_graph(tmp_path, "node Item { k: I32 @key  v: I32?  l: [String]? }")
    run(graph, 'insert Item { k: 1, v: 1, l: ["a"] } insert Item { k: 2 }')
    run(graph, "insert Item { k: 3 }")
    run(graph, "delete Item where k > 1")
    graph.apply_schema(wanted, engine="local")
    run(graph, "insert Item { k: 4, v: 4, l: [] } update Item set { v: 9 } where k = 1")
    assert [(row["k"], row["v"], row["l"]) for row in rows_of(graph, ITEM)] == [
        (1, 9, ["a"]),
        (4, 4, []),
    ]


@pytest.mark.parametrize("allow_data_loss", [False, True])
def test_a_table_whose_rows_are_all_deleted_is_empty(tmp_path: Path, allow_data_loss: bool) -> None:
    graph = new_graph(tmp_path, "node Item { k: I32 @key  v: I32?  u: Blob? }")
    run(graph, "insert Item { k: 1 }")
    run(graph, "delete Item where k = 1")
    graph.apply_schema(
        "node Item { k: I32 @key  v: I64  w: String }",
        backfill={"Item.w": '"x"'},
        allow_data_loss=allow_data_loss,
        engine="local",
    )
    run(graph, 'insert Item { k: 2, v: 2, w: "w" }')
    assert rows_of(graph, ITEM) == [{"id": "2", "k": 2, "v": 2, "w": "w"}]


def test_ids_stay_when_a_key_gets_wider_and_another_name(tmp_path: Path) -> None:
    graph = new_graph(
        tmp_path, "node Item { a: String  b: I32  @key(a, b) }\nedge Near: Item -> Item"
    )
    run(graph, 'insert Item { a: "x", b: 1 }')
    graph.apply_schema(
        'node Item { z: String @rename_from("a")  b: I64  @key(z, b) }\nedge Near: Item -> Item',
        engine="local",
    )
    run(graph, f'insert Item {{ z: "x", b: {2**40} }}')
    assert ids_of(graph, ITEM) == {'["x","1"]', f'["x","{2**40}"]'}
    # The same key is the same row, whatever its members are called.
    run(graph, 'insert Item { z: "x", b: 1 }')
    assert len(rows_of(graph, ITEM)) == 2


def test_a_node_may_get_properties_that_are_columns_of_edges(tmp_path: Path) -> None:
    graph = new_graph(tmp_path, "node Item { k: I32 @key }")
    run(graph, "insert Item { k: 1 }")
    graph.apply_schema(
        "node Item { k: I32 @key  src: String?  dst: I32 }",
        backfill={"Item.dst": "k"},
        engine="local",
    )
    assert rows_of(graph, ITEM) == [{"id": "1", "k": 1, "src": None, "dst": 1}]


def test_values_of_two_dropped_properties_change_places(tmp_path: Path) -> None:
    graph = new_graph(tmp_path, "node Item { k: I32 @key  a: String  b: String }")
    run(graph, 'insert Item { k: 1, a: "A", b: "B" }')
    fills: dict[str, Any] = {"Item.c": "b", "Item.d": "a"}
    graph.apply_schema(
        "node Item { k: I32 @key  c: String  d: String }", backfill=fills, engine="local"
    )
    assert rows_of(graph, ITEM) == [{"id": "1", "k": 1, "c": "B", "d": "A"}]
