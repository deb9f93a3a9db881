"""Optimize, folding and repair of graphs on disk and on S3."""

from __future__ import annotations

from omnigraph.core.ids import TableKey
from omnigraph.graph.graph import Graph
from omnigraph.maintenance.fold import FOLD_ACTOR
from omnigraph.storage.listing import list_files
from omnigraph.storage.location import parse_location
from support.s3_graphs import ADD_PAPER, SCHEMA

PAPER = TableKey("node:Paper")
TITLES = "query q() { match { $p: Paper } return { $p.title as t } order { $p.title } }"


def test_a_graph_is_folded_and_optimized(root: str, monkeypatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_FOLD_FRAGMENTS", "2")
    with Graph.init(root, SCHEMA) as graph:
        for doi in ("a", "b", "c", "d"):
            graph.mutate(ADD_PAPER, {"doi": doi, "title": doi})
        assert [commit.actor for commit in graph.commits()].count(FOLD_ACTOR) == 1
        before = graph.query(TITLES).to_pylist()
        report = graph.optimize()
        assert report.commit is not None
        assert graph.optimize().commit is None
        assert graph.pending_indexes() == []
        assert graph.query(TITLES).to_pylist() == before
        assert graph._open(graph.snapshot().pins[PAPER]).fragment_count() == 1
        assert {str(table.classification) for table in graph.repair().tables} == {"no_drift"}
        path = graph.snapshot().pins[PAPER].location
    names = [file.name for file in list_files(parse_location(root), path)]
    assert not [name for name in names if "/_versions/d" in name], "no private version is left"
