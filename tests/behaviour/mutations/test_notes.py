"""Why a commit was made: messages and metadata, through every writer, crash and form of the history."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.commit.notes import MAX_MESSAGE_BYTES, MAX_METADATA_BYTES
from omnigraph.core.failpoints import Failpoint, FailpointError, watched
from omnigraph.errors import BadRequestError, RecoveryRequiredError

SCHEMA = "node Paper { doi: String @key  year: I32? }"
METADATA = {"ticket": 17, "share": 0.5, "checked": True, "tool": "cruncher \u2013 2", "parent": None}


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return Graph.init(tmp_path / "papers.omni", SCHEMA)


def insert(graph: Graph, doi: str, **options: Any) -> Any:
    return graph.mutate("insert Paper { doi: $doi }", {"doi": doi}, **options)


def newest(graph: Graph, branch: str = "main") -> tuple[str | None, Any]:
    """The note of the head, as another process reads it."""
    with Graph.open(graph.uri, read_only=True) as other:
        commit = other.commits(branch)[0]
        return commit.message, commit.metadata


def test_a_mutation_keeps_its_message_and_its_metadata(graph: Graph) -> None:
    receipt = insert(graph, "1", message="  first\nsecond  ", metadata=METADATA)
    assert receipt.commit.message == "first\nsecond"
    assert newest(graph) == ("first\nsecond", METADATA)
    assert receipt.commit.to_json()["metadata"] == METADATA


def test_every_writer_of_rows_and_schemas_keeps_them(graph: Graph, tmp_path: Path) -> None:
    lines = tmp_path / "papers.jsonl"
    lines.write_text('{"type": "Paper", "data": {"doi": "2"}}')
    note = {"message": "so", "metadata": {"n": 1}}
    graph.load(lines, mode="append", **note)
    assert newest(graph) == ("so", {"n": 1})
    graph.create_branch("draft")
    insert(graph, "3", branch="draft")
    graph.merge("draft", delete_branch=True, **note)
    assert newest(graph) == ("so", {"n": 1})
    insert(graph, "4")
    assert newest(graph) == (None, None)
    graph.apply_schema(SCHEMA.replace("year", "title: String?  year"), **note)
    assert newest(graph) == ("so", {"n": 1})
    graph.create_branch("other")
    insert(graph, "5", branch="other")
    graph.mutate("branch merge other", message="by a statement")
    assert newest(graph) == ("by a statement", None)


def test_an_embedding_run_keeps_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "mock")
    schema = "node Note { text: String  vec: Vector(4)? @embed(text) }"
    graph = Graph.init(tmp_path / "notes.omni", schema)
    monkeypatch.setenv("OMNIGRAPH_EMBED_ON_WRITE", "0")
    graph.mutate('insert Note { text: "a" }')
    graph.embed(message="vectors", metadata={"run": 1})
    assert newest(graph) == ("vectors", {"run": 1})


def test_changes_and_the_feed_say_why(graph: Graph) -> None:
    receipt = insert(graph, "1", message="so", metadata={"n": 1})
    cause = graph.changes(receipt.commit.commit_id).cause
    assert (cause.message, cause.metadata) == ("so", {"n": 1})
    (block,) = graph.feed(start="beginning").blocks
    assert (block.cause.message, block.cause.metadata) == ("so", {"n": 1})


@pytest.mark.parametrize("place", [Failpoint.AFTER_TABLE_COMMIT, Failpoint.BEFORE_PUBLISH])
def test_a_write_that_recovery_completes_keeps_them(
    graph: Graph, place: Failpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying = False

    def die(reached: Failpoint) -> None:
        nonlocal dying
        dying = dying or reached is place
        if dying:
            # From here on nothing works any more, as if the process were gone.
            raise FailpointError(reached)

    with watched(die), pytest.raises(RecoveryRequiredError):
        insert(graph, "1", message="so", metadata=METADATA)
    with Graph.open(graph.uri) as healed:
        commit = healed.commits()[0]
        assert commit.actor == "omnigraph:recovery"
        assert (commit.message, commit.metadata) == ("so", METADATA)


def test_a_sidecar_without_a_note_is_the_one_of_earlier_releases(graph: Graph) -> None:
    seen: list[dict[str, Any]] = []

    def look(reached: Failpoint) -> None:
        if reached is Failpoint.AFTER_SIDECAR:
            (path,) = Path(graph.uri, "__recovery").glob("*.json")
            seen.append(json.loads(path.read_text())["commit"])

    with watched(look):
        insert(graph, "1")
        insert(graph, "2", message="so")
    assert "message" not in seen[0]
    assert "metadata" not in seen[0]
    assert seen[1]["message"] == "so"
    assert "metadata" not in seen[1]


@pytest.mark.parametrize(
    ("note", "said"),
    [
        ({"message": " \n"}, "blank"),
        ({"message": 1}, "a text, found int"),
        ({"message": "\ud800"}, "half a character at position 1"),
        ({"message": "é" * MAX_MESSAGE_BYTES}, f"at most {MAX_MESSAGE_BYTES:,} bytes, found {2 * MAX_MESSAGE_BYTES:,}"),
        ({"metadata": [1]}, "a flat JSON object, found list"),
        ({"metadata": {"a": {"b": 1}}}, "`a` in the metadata of the commit is a dict"),
        ({"metadata": {"a": float("inf")}}, "`a` in the metadata of the commit is inf"),
        ({"metadata": {1: "a"}}, "names in the metadata of a commit are texts that are not blank, found 1"),
        ({"metadata": {" ": "a"}}, "names in the metadata"),
        ({"metadata": {"a": "x" * MAX_METADATA_BYTES}}, f"at most {MAX_METADATA_BYTES:,} bytes as JSON"),
    ],
)
def test_a_note_of_another_form_is_refused_before_anything_happens(graph: Graph, note: Any, said: str) -> None:
    head = graph.snapshot().commit_id
    with pytest.raises(BadRequestError, match=said):
        insert(graph, "1", **note)
    with pytest.raises(BadRequestError, match=said):
        graph.merge("nowhere", **note)
    assert graph.snapshot().commit_id == head


def test_a_statement_that_makes_no_commit_takes_none(graph: Graph) -> None:
    with pytest.raises(BadRequestError, match="makes no commit that could keep a message"):
        graph.mutate("branch create draft", message="so")
    assert graph.branches() == ["main"]
