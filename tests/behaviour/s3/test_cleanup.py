"""Cleanup on an object store: nobody can tell who reads or writes, so age decides what else stays."""

from __future__ import annotations

import pytest

from omnigraph.errors import HistoricalVersionReclaimedError
from omnigraph.graph.graph import Graph
from omnigraph.storage.listing import list_files
from omnigraph.storage.location import parse_location
from support.s3_graphs import ADD_PAPER, SCHEMA, values

TITLES = "query q() { match { $p: Paper } return { $p.doi as doi } }"


def test_old_versions_go_and_heads_and_branches_stay(root: str, monkeypatch: pytest.MonkeyPatch):
    with Graph.init(root, SCHEMA) as graph:
        for doi in "abcd":
            graph.mutate(ADD_PAPER, {"doi": doi, "title": doi})
        graph.create_branch("dev", base=graph.commits()[2].commit_id)
        graph.mutate(ADD_PAPER, {"doi": "x", "title": "x"}, branch="dev")
        before = sum(file.size_bytes for file in list_files(parse_location(root), ""))
        if root.startswith("s3://"):
            report = graph.cleanup(keep=3, confirm=True)
            assert report.kept_because["reader"] == 6, "an hour of grace"
            assert len(graph.query(TITLES, snapshot=graph.commits()[3].commit_id)) == 1
        monkeypatch.setenv("OMNIGRAPH_READER_GRACE", "0s")
        preview = graph.cleanup(keep=3, commits=True)
        report = graph.cleanup(keep=3, commits=True, confirm=True)
        assert report.errors == ()
        assert report.old_versions_removed == preview.old_versions_removed > 0
        after = sum(file.size_bytes for file in list_files(parse_location(root), ""))
        assert before - after >= report.bytes_removed - report.catalog_bytes_removed > 0
    with Graph.open(root) as graph:
        assert values(graph, "node:Paper", "doi") == list("abcd")
        assert values(graph, "node:Paper", "doi", "dev") == ["a", "b", "x"]
        states = []
        for commit in graph.commits():
            try:
                states.append(len(graph.query(TITLES, snapshot=commit.commit_id)))
            except HistoricalVersionReclaimedError:
                states.append(None)
        assert states[:3] == [4, 3, 2]
        graph.merge("dev", engine="local")
        assert values(graph, "node:Paper", "doi") == [*"abcd", "x"]
        assert graph.pending_recoveries() == []
        assert graph.doctor().is_healthy
        with graph._environment.window():
            (lock,) = [item for item in graph.doctor().findings if item.check == "lock"]
        assert (lock.severity, "writer" in lock.message) == ("info", True)
