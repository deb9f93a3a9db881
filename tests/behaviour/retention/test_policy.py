"""Policies as callers give them, and which commits they leave readable."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import BadRequestError
from omnigraph.graph.graph import Graph
from support.histories import files, lines, people, people_at, readable, unused_files


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({"keep": 3}, 3),
        ({"keep": 5}, 5),
        ({"keep": 100}, 9),
        ({"older_than": "0s"}, 1),
        ({"older_than": timedelta(0)}, 1),
        ({"older_than": "1w"}, 9),
        ({"keep": 4, "older_than": "0"}, 4),
    ],
    ids=str,
)
def test_a_policy_leaves_the_newest_states_readable(
    graph: Graph, policy: dict[str, Any], expected: int
):
    states = [people_at(graph, commit.commit_id) for commit in graph.commits()]
    graph.cleanup(**policy, confirm=True)
    left = [people_at(graph, commit.commit_id) for commit in graph.commits()]
    assert left == [*states[:expected], *[None] * (9 - expected)]
    assert unused_files(graph.uri) == set()


@pytest.mark.parametrize(
    "policy",
    [
        {},
        {"keep": 0},
        {"keep": 2**63},
        {"keep": 10.5},
        {"keep": True},
        {"keep": -1},
        {"older_than": "soon"},
        {"older_than": ""},
        {"older_than": "-1d"},
        {"older_than": timedelta(days=-1)},
        {"older_than": "999999999w"},
    ],
    ids=str,
)
def test_a_policy_that_makes_no_sense_is_refused(graph: Graph, policy: dict[str, Any]):
    before = files(graph.uri)
    with pytest.raises(BadRequestError):
        graph.cleanup(**policy, confirm=True)
    assert files(graph.uri) == before


@pytest.mark.parametrize("keep", [1, 2])
def test_less_than_three_commits_are_never_kept(graph: Graph, keep: int):
    report = graph.cleanup(keep=keep, confirm=True)
    assert report.keep == 3
    assert f"raised from {keep} to 3" in report.notes[0]
    assert readable(graph).count(True) == 3


def test_a_preview_says_what_would_go_and_removes_nothing(graph: Graph):
    before = files(graph.uri)
    preview = graph.cleanup(keep=3, commits=True)
    assert files(graph.uri) == before
    assert (preview.confirmed, preview.old_versions_removed) == (False, 6)
    done = graph.cleanup(keep=3, confirm=True)
    after = files(graph.uri)
    assert done.datasets == preview.datasets
    assert done.bytes_removed == sum(before.values()) - sum(after.values())
    assert preview.bytes_removed == done.bytes_removed
    assert graph.cleanup(keep=3).bytes_removed == 0, "a second run finds nothing"


def test_a_preview_needs_no_writable_graph(graph: Graph):
    with Graph.open(graph.uri, read_only=True) as reader:
        assert reader.cleanup(keep=3).old_versions_removed == 6
        with pytest.raises(BadRequestError, match="reading only"):
            reader.cleanup(keep=3, confirm=True)


def test_types_that_never_moved_keep_their_only_version(graph: Graph):
    graph.cleanup(keep=3, confirm=True)
    place = graph.snapshot().pins["node:Place"]
    assert lines(graph.uri)[place.location, None] == {place.version}


def test_the_report_counts_what_stays_and_why(graph: Graph):
    graph.create_branch("dev", base=graph.commits()[4].commit_id)
    report = graph.cleanup(keep=3)
    assert report.commits_kept == 6
    assert report.kept_because == {
        **{"head": 2, "fork": 1, "merge_base": 1, "count": 6},
        **{"age": 0, "reader": 0},
    }
    document = report.to_json()
    (person,) = [item for item in document["datasets"] if item["type_key"] == "node:Person"]
    assert person["old_versions_removed"] == 3
    assert person["error"] is None
    assert document["total_bytes_removed"] == report.bytes_removed > person["bytes_removed"] > 0


def test_a_handle_that_was_open_before_says_what_is_gone(graph: Graph, tmp_path: Path):
    with Graph.open(graph.uri, read_only=True) as reader:
        old = graph.commits()[6].commit_id
        assert people_at(reader, old) == {"p0": 1, "p1": 1}
        graph.cleanup(keep=3, confirm=True)
        assert people_at(reader, old) in (None, {"p0": 1, "p1": 1}), "never anything else"
        assert people(reader) == people(graph)
    with Graph.open(graph.uri, read_only=True) as reader:
        assert people_at(reader, old) is None
