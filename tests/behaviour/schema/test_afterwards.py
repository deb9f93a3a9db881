"""After a change: handles that were open before, indexes, maintenance."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from behaviour.schema.test_steps import CHANGES
from omnigraph.errors import BadRequestError
from omnigraph.graph.graph import Graph
from support.graphs import everything, run
from support.schema_changes import PAPER, PAPERS, apply, covered, edited, exported, row_ids, values


def test_handles_that_were_open_before_go_on_with_the_new_schema(graph: Graph) -> None:
    query = "query q() { match { $p: Paper } return { $p.year as year } }"
    writer, reader = Graph.open(graph.uri), Graph.open(graph.uri, read_only=True)
    for handle in (graph, writer, reader):
        assert handle.query(query).to_arrow().schema.field("year").type == pa.int32()
    apply(graph, ("year: I32?", "year: I64?"), ("day: Date?", "day: Date? pages: I32?"))
    for handle in (graph, writer, reader):
        assert handle.query(query).to_arrow().schema.field("year").type == pa.int64()
        assert handle.schema == graph.schema
    run(writer, f'update Paper set {{ year: {2**40}, pages: 4 }} where doi = "p0"')
    newest = 'match { $p: Paper { doi: "p0" } } return { $p.year as year, $p.pages as pages }'
    assert values(reader, newest) == [(2**40, 4)]
    with pytest.raises(BadRequestError, match="open for reading only"):
        apply(reader, ("day: Date?", "day: Date? more: I32?"))


def test_a_renamed_column_is_found_by_its_index_again(graph: Graph) -> None:
    apply(graph, ("title: String? @index", 'name: String? @index @rename_from("title")'))
    found = 'match { $p: Paper search($p.name, "trees") } return { $p.doi as doi }'
    assert "name" not in covered(graph, PAPER)
    assert values(graph, found) == [("p1",)]
    graph.ensure_indices()
    assert "name" in covered(graph, PAPER)
    assert values(graph, found) == [("p1",)]
    assert values(graph, 'match { $p: Paper { name: "Trees" } } return { $p.doi as doi }') == [("p1",)]


@pytest.mark.parametrize("name", ["new columns without values", "everything at once"])
def test_maintenance_changes_no_row(graph: Graph, name: str) -> None:
    change = CHANGES[name]
    graph.apply_schema(edited(PAPERS, *change.edits), backfill=change.backfill, engine="local")
    rows, ids = everything(graph), row_ids(graph, PAPER)
    assert graph.optimize(engine="local").commit is not None
    assert (everything(graph), row_ids(graph, PAPER)) == (rows, ids)
    graph.cleanup(keep=1, confirm=True)
    assert everything(Graph.open(graph.uri)) == rows


def test_an_export_loads_into_a_new_graph_of_the_new_schema(graph: Graph, copy_of: Callable[[str], Graph]) -> None:
    change = CHANGES["everything at once"]
    graph.apply_schema(edited(PAPERS, *change.edits), backfill=change.backfill, engine="local")
    other = copy_of("empty")
    other.apply_schema(edited(PAPERS, *change.edits), backfill=change.backfill, engine="local")
    lines = f"{other.uri}.jsonl"
    graph.export(lines, engine="local")
    other.load(lines, mode="append", engine="local")
    assert exported(other) == exported(graph)
