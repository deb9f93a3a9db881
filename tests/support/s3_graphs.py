"""A small graph, and what has to hold of it wherever it lies."""

from __future__ import annotations

from typing import Any

from omnigraph.core.ids import TableKey
from omnigraph.graph.graph import Graph
from omnigraph.storage.datasets.tables import TableStore
from omnigraph.storage.location import parse_location

SCHEMA = """
node Paper { doi: String @key  title: String?  reads: I64?  scan: Blob? }
node Note { text: String }
edge Cites: Paper -> Paper { why: String? }
"""
ADD_PAPER = "query add($doi: String, $title: String?) { insert Paper { doi: $doi, title: $title } }"
ADD_NOTE = "query add($text: String) { insert Note { text: $text } }"
ADD_CITING = """
query add($doi: String, $to: String) {
    insert Paper { doi: $doi }
    insert Cites { from: $doi, to: $to, why: $doi }
}
"""
CITE = "query cite($from: String, $to: String) { insert Cites { from: $from, to: $to } }"
READ = "query read($doi: String, $n: I64) { update Paper set { reads: $n } where doi = $doi }"
FORGET = "query forget($doi: String) { delete Paper where doi = $doi }"
ADD_SCAN = "query scan($doi: String, $scan: Blob) { insert Paper { doi: $doi, scan: $scan } }"


def rows(graph: Graph, key: str, columns: list[str], branch: str = "main") -> list[dict[str, Any]]:
    """The rows of a table at the head of a branch, sorted."""
    pin = graph.snapshot(branch).pins[TableKey(key)]
    store = TableStore(parse_location(graph.uri))
    found = store.open(pin.location, pin.branch, pin.version).read(columns).to_pylist()
    return sorted(found, key=lambda row: [str(value) for value in row.values()])


def values(graph: Graph, key: str, column: str, branch: str = "main") -> list[Any]:
    """One column, sorted."""
    return [row[column] for row in rows(graph, key, [column], branch)]


def check_graph(uri: str, *, has_deleted: bool = False) -> None:
    """Linear histories, without gaps unless a branch was deleted; catalog = datasets, nothing left to settle."""
    with Graph.open(uri, read_only=True) as graph:
        assert graph.pending_recoveries() == []
        store = TableStore(parse_location(uri))
        versions = []
        for branch in graph.branches():
            history = graph.commits(branch)[::-1]
            ids = [commit.commit_id for commit in history]
            assert [commit.parent_id for commit in history] == [None, *ids[:-1]]
            versions += [commit.graph_version for commit in history if commit.branch == branch]
            snapshot = graph.snapshot(branch)
            if branch != "main":
                versions.append(snapshot.incarnation)
            for key, pin in snapshot.pins.items():
                table = store.open(pin.location, pin.branch, pin.version)
                assert table.count_rows() == pin.row_count, key
                if pin.branch == snapshot.fork_name:
                    assert table.latest_version == pin.version, f"{key} on {branch} has drifted"
        if not has_deleted:
            assert sorted(versions) == list(range(1, len(versions) + 1))
