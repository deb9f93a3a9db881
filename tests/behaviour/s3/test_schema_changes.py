"""Schema changes on S3: columns, new, renamed, dropped and destroyed tables, and a change that died."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faults.s3.test_recovery import expire_lease
from omnigraph.core.failpoints import VARIABLE, FailpointError
from omnigraph.errors import HistoricalVersionReclaimedError
from omnigraph.graph.graph import Graph
from omnigraph.storage.listing import list_files
from omnigraph.storage.location import parse_location
from support.s3_graphs import ADD_CITING, ADD_NOTE, ADD_PAPER, SCHEMA, check_graph, rows, values

#: A property becomes required under another name, others come and go; one type is new, one renamed, one dropped.
WANTED = """
node Article @rename_from("Paper") {
    doi: String @key
    name: String @rename_from("title")
    reads: I64?
    lang: String
}
node Tag { word: String @key }
edge Cites: Article -> Article { why: String?  weight: F32? }
"""
BACKFILL = {"Article.name": '"untitled"', "Article.lang": '"en"'}
ARTICLES = [
    {"doi": "a", "name": "A", "lang": "en"},
    {"doi": "b", "name": "untitled", "lang": "en"},
]


def change(graph: Graph, **options: Any) -> Any:
    return graph.apply_schema(WANTED, backfill=BACKFILL, engine="local", actor="me", **options)


def names_below(root: str) -> list[str]:
    return [file.name for file in list_files(parse_location(root), "")]


def check_changed(root: str) -> None:
    """The change is there as a whole, and nothing else of it."""
    with Graph.open(root, read_only=True) as graph:
        assert graph.schema == WANTED
        assert set(graph.snapshot().pins) == {"node:Article", "node:Tag", "edge:Cites"}
        assert rows(graph, "node:Article", ["doi", "name", "lang"]) == ARTICLES
    assert [name for name in names_below(root) if name.endswith(".staging")] == []
    check_graph(root)


@pytest.fixture
def graph(s3_root: str) -> Graph:
    """A graph with two papers, one of them citing, and a note."""
    return populated(s3_root)


def populated(root: str) -> Graph:
    made = Graph.init(root, SCHEMA)
    made.mutate(ADD_PAPER, {"doi": "a", "title": "A"})
    made.mutate(ADD_CITING, {"doi": "b", "to": "a"})
    made.mutate(ADD_NOTE, {"text": "hello"})
    return made


@pytest.mark.parametrize(
    "allow_data_loss",
    [pytest.param(False, id="soft", marks=pytest.mark.slow), pytest.param(True, id="hard")],
)
def test_a_change_with_everything_happens_in_one_commit(
    graph: Graph, s3_root: str, allow_data_loss: bool
) -> None:
    before = graph.snapshot()
    result = change(graph, allow_data_loss=allow_data_loss)
    assert graph.snapshot().commit_id == result.commit.commit_id
    assert result.commit.parent_id == before.commit_id
    check_changed(s3_root)
    assert not change(graph, allow_data_loss=allow_data_loss).applied
    notes = "query all() { match { $n: Note } return { $n.text as text } }"
    left = [
        name for name in names_below(s3_root) if name.startswith(before.pins["node:Note"].location)
    ]
    if allow_data_loss:
        assert [name.rpartition("/")[2] for name in left] == ["_reclaimed"]
        with pytest.raises(HistoricalVersionReclaimedError):
            graph.query(notes, snapshot=before.commit_id).to_pylist()
    else:
        found = graph.query(notes, snapshot=before.commit_id)
        assert found.to_pylist() == [{"text": "hello"}]
    graph.mutate('query add() { insert Article { doi: "c", name: "C", lang: "no" } }')
    assert values(graph, "node:Article", "doi") == ["a", "b", "c"]
    check_graph(s3_root)


@pytest.mark.parametrize(
    ("place", "happens"),
    [("after_table_commit", False), ("before_publish", True)],
)
def test_a_change_that_fails_settles_itself(
    graph: Graph, s3_root: str, place: str, happens: bool, fail_at: Callable[[str | None], None]
) -> None:
    fail_at(place)
    if happens:
        assert change(graph).applied
    else:
        with pytest.raises(FailpointError):
            change(graph)
    fail_at(None)
    (record,) = graph.recoveries()
    assert record.recovery_kind == ("RolledForward" if happens else "RolledBack")
    assert (graph.schema == WANTED) is happens
    assert change(graph).applied is not happens
    check_changed(s3_root)


KILLED = """
import sys
from omnigraph.graph.graph import Graph
from behaviour.s3.test_schema_changes import change
change(Graph.open(sys.argv[1]), allow_data_loss=True)
"""


def kill_a_change(root: str, place: str) -> None:
    """A process that dies at a named place of its change, with the commit lock in its hands."""
    tests = str(Path(__file__).parents[2])
    environment = os.environ | {VARIABLE: f"{place}=kill", "PYTHONPATH": tests}
    done = subprocess.run(
        [sys.executable, "-c", KILLED, root], env=environment, capture_output=True, check=False
    )
    assert done.returncode == -9, done.stderr.decode()


@pytest.mark.slow  # a write whose process died shows the same in the default run
def test_a_change_whose_process_died_on_s3_is_completed_when_its_lease_is_over(
    s3_root: str,
) -> None:
    populated(s3_root).close()
    kill_a_change(s3_root, "before_promotion@2")
    with Graph.open(s3_root, read_only=True) as reader:
        # Published, but its files do not have their names yet.
        assert reader.schema == WANTED
        assert rows(reader, "node:Article", ["doi", "name", "lang"]) == ARTICLES
    expire_lease(s3_root)
    with Graph.open(s3_root) as fresh:
        (record,) = fresh.recoveries()
        assert (record.recovery_kind, record.recovery_for_actor) == ("RolledForward", "me")
    check_changed(s3_root)
