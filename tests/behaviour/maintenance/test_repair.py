"""Repair: what moved a dataset without the catalog is told, and published only when it is safe or forced."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from omnigraph.cli.main import main
from omnigraph.commit.expectations import Expectations
from omnigraph.commit.publisher import Changes
from omnigraph.commit.rows import GraphCommit, Head, commit_row, to_arrow
from omnigraph.errors import BadRequestError, DriftError, StorageError
from omnigraph.graph.graph import Graph
from omnigraph.maintenance import repair as dangling_module
from omnigraph.maintenance.repair import Drift, RepairAction, RepairedTable, classify_drift
from omnigraph.storage.datasets.fragments import stage_delete
from omnigraph.storage.datasets.row_changes import Movement
from omnigraph.storage.datasets.staged import OWN_MARK, commit_staged
from support.subtests import each_case
from support.worn_graphs import CITES, DOC, add, answers, change, dataset, run, stored, worn_graph


def found(graph: Graph, key: str = DOC, **options: bool) -> RepairedTable:
    tables = graph.repair(**options).tables
    return next(table for table in tables if table.type_key == key and table.branch == "main")


def compact_behind(graph: Graph) -> None:
    """As somebody with Lance alone would do it; the indexes are rewritten as well."""
    handle = dataset(graph, DOC)
    handle.optimize.compact_files()
    handle.optimize.optimize_indices()


def test_a_sound_graph_has_no_drift(tmp_path: Path) -> None:
    graph = worn_graph(tmp_path)
    state = graph._core.environment.manifest.state()
    report = graph.repair(confirm=True, force=True)
    assert {table.classification for table in report.tables} == {Drift.NO_DRIFT}
    assert {table.action for table in report.tables} == {RepairAction.NO_OP}
    assert (report.commits, report.has_refused) == ((), False)
    assert graph._core.environment.manifest.state() == state


def test_a_foreign_compaction_is_shown_then_published(tmp_path: Path) -> None:
    graph = worn_graph(tmp_path)
    rows, before = stored(graph, DOC), answers(graph)
    compact_behind(graph)
    shown = found(graph)
    assert (shown.classification, shown.action) == (Drift.VERIFIED_MAINTENANCE, RepairAction.PREVIEW)
    assert shown.lance_head_version > shown.published_dataset_version
    assert "--confirm" in shown.advice
    seen = graph.snapshot().commit_id
    report = graph.repair(confirm=True, actor="act-ops")
    (commit,) = report.commits
    assert (commit.kind, commit.actor, commit.tables) == ("optimize", "act-ops", (DOC,))
    assert found(graph).classification is Drift.NO_DRIFT
    assert (stored(graph, DOC), answers(graph)) == (rows, before)
    run(graph, change(1, 2080), if_commit=seen)


def test_indexes_that_a_foreign_compaction_kept_do_not_answer_for_moved_rows(tmp_path: Path) -> None:
    """Without the deletion marks, only the history of the rows tells what an index knows wrongly."""
    graph = worn_graph(tmp_path)
    before = answers(graph)
    dataset(graph, DOC).optimize.compact_files()
    graph.repair(confirm=True)
    run(graph, 'insert Doc { slug: "new" }')
    graph.ensure_indices()
    run(graph, 'delete Doc where slug = "new"')
    assert answers(graph) == before


def test_changed_rows_are_refused_and_published_by_force_only(tmp_path: Path) -> None:
    graph = worn_graph(tmp_path)
    dataset(graph, DOC).delete("slug = 'd1'")
    pin = graph.snapshot().pins[DOC]
    assert found(graph).action is RepairAction.PREVIEW
    refused = graph.repair(confirm=True)
    assert refused.has_refused
    assert refused.commits == ()
    table = next(table for table in refused.tables if table.type_key == DOC)
    assert (table.classification, table.action) == (Drift.SUSPICIOUS, RepairAction.REFUSED)
    assert "--force" in table.advice
    assert found(graph, force=True).action is RepairAction.PREVIEW, "force alone only looks"
    assert graph.snapshot().pins[DOC] == pin
    commit, *_ = graph.repair(confirm=True, force=True).commits
    assert commit.kind == "repair"
    assert graph.snapshot().pins[DOC].row_count == pin.row_count - 1
    changes = graph.changes(commit.commit_id).changes
    assert [(change.op, change.id) for change in changes] == [("delete", "d1")]


def test_a_compaction_with_a_change_among_it_is_suspicious(tmp_path: Path) -> None:
    graph = worn_graph(tmp_path)
    compact_behind(graph)
    dataset(graph, DOC).delete("slug = 'd1'")
    compact_behind(graph)
    assert found(graph).classification is Drift.SUSPICIOUS


def test_without_its_history_drift_cannot_be_verified(tmp_path: Path) -> None:
    graph = worn_graph(tmp_path)
    compact_behind(graph)
    pin = graph.snapshot().pins[DOC]
    folder = Path(graph.uri) / pin.location / "_versions"
    next_name = f"{2**64 - 1 - pin.version - 1}.manifest"
    (folder / next_name).unlink()
    graph = Graph.open(graph.uri)
    assert found(graph).classification is Drift.UNVERIFIABLE
    assert graph.repair(confirm=True).has_refused
    assert found(graph, confirm=True, force=True).action is RepairAction.FORCED


def test_a_dataset_behind_the_catalog_is_damage_that_no_force_repairs(tmp_path: Path) -> None:
    graph = worn_graph(tmp_path)
    pin = graph.snapshot().pins[CITES]
    newest = Path(graph.uri) / pin.location / "_versions" / f"{2**64 - 1 - pin.version}.manifest"
    kept = shutil.move(newest, tmp_path / "kept")
    (newest.parent / "latest_version_hint.json").unlink(missing_ok=True)
    damaged = Graph.open(graph.uri)
    table = found(damaged, CITES, confirm=True, force=True)
    assert (table.classification, table.action) == (Drift.UNVERIFIABLE, RepairAction.REFUSED)
    assert "damaged" in table.advice
    shutil.move(kept, newest)


def test_a_writer_meets_drift_before_any_effect_and_is_told_what_to_do(tmp_path: Path) -> None:
    graph = worn_graph(tmp_path)
    dataset(graph, DOC).delete("slug = 'd1'")
    state = graph._core.environment.manifest.state()
    with pytest.raises(DriftError, match="omnigraph repair"):
        run(graph, add(60))
    assert graph._core.environment.manifest.state() == state
    assert found(graph).classification is Drift.SUSPICIOUS, "nobody undid it"
    assert list((tmp_path / "g.omni" / "__recovery").iterdir()) == []
    graph.repair(confirm=True, force=True)
    run(graph, add(60))


def test_forks_of_branches_are_looked_at_too(tmp_path: Path) -> None:
    graph = worn_graph(tmp_path)
    graph.create_branch("dev")
    run(graph, add(70), branch="dev")
    dataset(graph, DOC, "dev").optimize.compact_files()
    (drifted,) = [t for t in graph.repair().tables if t.classification != Drift.NO_DRIFT]
    assert (drifted.branch, drifted.type_key) == ("dev", DOC)
    assert [table.branch for table in graph.repair().tables].count("dev") == 1


def test_a_reader_repairs_nothing(tmp_path: Path) -> None:
    uri = worn_graph(tmp_path).uri
    with Graph.open(uri, read_only=True) as reader, pytest.raises(BadRequestError):
        reader.repair()


@each_case(
    ("pin", "head", "moved", "same", "drift"),
    [
        (3, 3, (), False, Drift.NO_DRIFT),
        (3, None, (), False, Drift.UNVERIFIABLE),
        (3, 2, (), False, Drift.UNVERIFIABLE),
        (3, 4, (Movement.LAYOUT,), True, Drift.VERIFIED_MAINTENANCE),
        (3, 4, (Movement.LAYOUT,), False, Drift.SUSPICIOUS),
        (3, 5, (Movement.LAYOUT, Movement.OTHER), True, Drift.SUSPICIOUS),
        (3, 5, (Movement.OTHER, Movement.UNKNOWN), True, Drift.UNVERIFIABLE),
    ],
)
def test_drift_is_classified_from_facts(
    pin: int, head: int | None, moved: tuple[Movement, ...], same: bool, drift: Drift
) -> None:
    assert classify_drift(pin, head, moved, has_same_rows=same) is drift


# ---- Damage that earlier releases could do on object stores: `doctor` finds it, nothing hangs on it, `repair` heals it


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
    manifest = graph._core.environment.manifest
    head = manifest.state().head("main")
    commit = manifest.commits()[head.commit_id]
    view = manifest._look()[0]
    again = replace(commit, parent_id=commit.commit_id, graph_version=commit.graph_version + 1)
    manifest._table.append(view, to_arrow([commit_row(again)]))
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
    assert errors(graph)["history"] == [f"commit {commit_id} is in the manifest more than once"]
    assert graph.repair().doubled_commits == (commit_id,)
    assert "history" in errors(graph), "a preview heals nothing"
    assert graph.repair(confirm=True).doubled_commits == (commit_id,)
    assert graph.commits() == before
    assert errors(graph) == {}
    graph.mutate(ADD, {"a": "eve", "b": "fay"})
    assert len(graph.commits()) == len(before) + 1


def tear(graph: Graph, branch: str = "main") -> None:
    """Publish the removal of a node without its edges, as a torn commit leaves it."""
    environment = graph._core.environment
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
            last, commit_id=last.commit_id[:-4] + "TORN", parent_id=current.commit_id, graph_version=graph_version
        )

    expectations = Expectations(branch=branch, incarnation=head.incarnation, schema_hash=head.schema_hash)
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
    assert [(item.branch, item.count) for item in preview.dangling_edges] == [("main", 1), ("work", 1)]
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


def run_of_damaged_history(*words: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main([*words])
    assert not caught.value.code


def test_repair_tells_of_all_of_it_on_the_terminal(graph: Graph, capsys: pytest.CaptureFixture[str]) -> None:
    tear(graph)
    commit_id = double_head_commit(graph)
    run_of_damaged_history("repair", graph.uri)
    shown = capsys.readouterr().out
    assert f"commit {commit_id} is in the manifest more than once: heal it with --confirm" in shown
    assert "edge:Knows on main: found 1 edges without an end" in shown
    run_of_damaged_history("repair", graph.uri, "--confirm")
    shown = capsys.readouterr().out
    assert f"commit {commit_id} was in the manifest more than once" in shown
    assert "edge:Knows on main: removed 1 edges without an end" in shown
    with Graph.open(graph.uri) as healed:
        assert errors(healed) == {}


def move_late(graph: Graph) -> None:
    """A version of a table that a writer of omnigraph made and nothing explains."""
    environment = graph._core.environment
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
    assert {key: pin.row_count for key, pin in after.items()} == {key: pin.row_count for key, pin in before.items()}


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
