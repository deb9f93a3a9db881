"""Damage that earlier releases could do on object stores: `doctor` finds it, nothing hangs on it, `repair` heals it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from omnigraph.cli.main import main
from omnigraph.commit.expectations import Expectations
from omnigraph.commit.publisher import Changes
from omnigraph.commit.rows import GraphCommit, Head, commit_row, to_arrow
from omnigraph.errors import StorageError
from omnigraph.graph.graph import Graph
from omnigraph.maintenance import repair as dangling_module
from omnigraph.storage.datasets.staged import OWN_MARK, commit_staged, stage_delete

SCHEMA = """
node Person { name: String @key }
edge Knows: Person -> Person
"""
ADD = """
query add($a: String, $b: String) {
    insert Person { name: $a }
    insert Person { name: $b }
    insert Knows { from: $a, to: $b }
}
"""


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with Graph.init(tmp_path / "g", SCHEMA) as made:
        made.mutate(ADD, {"a": "ann", "b": "bob"})
        made.mutate(ADD, {"a": "cid", "b": "dan"})
        yield made


def errors(graph: Graph) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for item in graph.doctor().findings:
        if item.severity in ("warning", "error"):
            found.setdefault(item.check, []).append(item.message)
    return found


def double_head_commit(graph: Graph) -> str:
    """The commit of the head once more, on top of itself: as a writer and its successor published it both."""
    manifest = graph._environment.manifest
    head = manifest.state().head("main")
    commit = manifest.commits()[head.commit_id]
    view = manifest._look()[0]
    again = replace(commit, parent_id=commit.commit_id, graph_version=commit.graph_version + 1)
    manifest._catalog.append(view, to_arrow([commit_row(again)]))
    return commit.commit_id


def test_whatever_walks_along_a_circle_ends_with_a_typed_error(graph: Graph) -> None:
    commit_id = double_head_commit(graph)
    for walk in (
        graph.commits,
        lambda: graph.snapshot(version=1),
        lambda: graph.snapshot(as_of="1980-01-01"),
        lambda: graph.cleanup(keep=1),
    ):
        with pytest.raises(StorageError, match=f"commit {commit_id} is among its own ancestors"):
            walk()


def test_a_doubled_commit_is_found_and_healed(graph: Graph) -> None:
    before = graph.commits()
    commit_id = double_head_commit(graph)
    assert errors(graph)["history"] == [f"commit {commit_id} is in the catalog more than once"]
    assert graph.repair().doubled_commits == (commit_id,)
    assert "history" in errors(graph), "a preview heals nothing"
    assert graph.repair(confirm=True).doubled_commits == (commit_id,)
    assert graph.commits() == before
    assert errors(graph) == {}
    graph.mutate(ADD, {"a": "eve", "b": "fay"})
    assert len(graph.commits()) == len(before) + 1


def tear(graph: Graph, branch: str = "main") -> None:
    """Publish the removal of a node without its edges, as a torn commit leaves it."""
    environment = graph._environment
    head = environment.manifest.state().head(branch)
    pin = head.pins["node:Person"]  # type: ignore[index]  # keys are plain texts here
    table = environment.tables.open(pin.location, pin.branch, pin.version)
    batch = next(iter(table.scan(["id", "_rowaddr"])))
    address = batch.column("_rowaddr")[batch.column("id").to_pylist().index("bob")].as_py()
    staged = stage_delete(table, [address])
    assert staged is not None
    moved = commit_staged(staged)

    def make_commit(current: Head, graph_version: int) -> GraphCommit:
        last = environment.manifest.commits()[current.commit_id]
        return replace(
            last,
            commit_id=last.commit_id[:-4] + "TORN",
            parent_id=current.commit_id,
            graph_version=graph_version,
        )

    expectations = Expectations(
        branch=branch, incarnation=head.incarnation, schema_hash=head.schema_hash
    )
    torn = replace(pin, version=moved.version, row_count=pin.row_count - 1)
    environment.manifest.publish(expectations, Changes(pins=(torn,)), make_commit)


@pytest.mark.parametrize("nodes_at_once", [1, 2, 1_000])
def test_dangling_edges_are_found_on_every_branch_and_removed(
    graph: Graph, nodes_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dangling_module, "NODES_AT_ONCE", nodes_at_once)
    assert errors(graph) == {}
    tear(graph)
    graph.create_branch("work")
    (on_main, on_work) = errors(graph)["edges"]
    assert on_main.startswith("edge:Knows of branch main has 1 edge without an end")
    assert on_work.startswith("edge:Knows of branch work has 1 edge without an end")
    preview = graph.repair()
    assert [(item.branch, item.count) for item in preview.dangling_edges] == [
        ("main", 1),
        ("work", 1),
    ]
    assert preview.commits == ()
    report = graph.repair(confirm=True, actor="me")
    assert [(commit.branch, commit.kind, commit.actor) for commit in report.commits] == [
        ("main", "repair", "me"),
        ("work", "repair", "me"),
    ]
    assert errors(graph) == {}
    for branch in ("main", "work"):
        assert graph.snapshot(branch).pins["edge:Knows"].row_count == 1  # type: ignore[index]  # a plain text
    assert graph.repair(confirm=True).commits == ()


def run(*words: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main([*words])
    assert not caught.value.code


def test_repair_tells_of_all_of_it_on_the_terminal(
    graph: Graph, capsys: pytest.CaptureFixture[str]
) -> None:
    tear(graph)
    commit_id = double_head_commit(graph)
    run("repair", graph.uri)
    shown = capsys.readouterr().out
    assert f"commit {commit_id} is in the catalog more than once: heal it with --confirm" in shown
    assert "edge:Knows on main: found 1 edges without an end" in shown
    run("repair", graph.uri, "--confirm")
    shown = capsys.readouterr().out
    assert f"commit {commit_id} was in the catalog more than once" in shown
    assert "edge:Knows on main: removed 1 edges without an end" in shown
    with Graph.open(graph.uri) as healed:
        assert errors(healed) == {}


def move_late(graph: Graph) -> None:
    """A version of a table that a writer of omnigraph made and nothing explains."""
    environment = graph._environment
    pin = environment.manifest.state().head("main").pins["node:Person"]  # type: ignore[index]  # a plain text
    table = environment.tables.open(pin.location, pin.branch, pin.version)
    batch = next(iter(table.scan(["_rowaddr"])))
    staged = stage_delete(table, [batch.column("_rowaddr")[0].as_py()])
    assert staged is not None
    moved = commit_staged(staged)
    transaction = moved._dataset.read_transaction(moved.version)
    assert transaction is not None
    assert OWN_MARK in (transaction.transaction_properties or {})


def test_a_late_writer_is_not_called_something_else(graph: Graph) -> None:
    before = graph.snapshot().pins
    move_late(graph)
    (message,) = errors(graph)["drift"]
    assert "a writer that had lost the commit lock moved it" in message
    (person,) = [table for table in graph.repair().tables if table.type_key == "node:Person"]
    assert (str(person.classification), str(person.action)) == ("late_writer", "preview")
    (commit,) = graph.repair(confirm=True).commits
    assert commit.kind == "rollback"
    assert errors(graph) == {}
    after = graph.snapshot().pins
    assert {key: pin.row_count for key, pin in after.items()} == {
        key: pin.row_count for key, pin in before.items()
    }


@pytest.mark.parametrize("write", ["mutate", "optimize"])
def test_the_next_write_undoes_what_a_late_writer_did(graph: Graph, write: str) -> None:
    move_late(graph)
    if write == "mutate":
        graph.mutate(ADD, {"a": "eve", "b": "fay"})
    else:
        report = graph.optimize()
        assert all(table.skipped is None for table in report.tables)
    people = graph.snapshot().pins["node:Person"].row_count  # type: ignore[index]  # a plain text
    assert people == (6 if write == "mutate" else 4)
    assert errors(graph) == {}
