"""Repair: what moved a dataset without the catalog is told, and published only when it is safe or forced."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from omnigraph.errors import BadRequestError, DriftError
from omnigraph.graph.graph import Graph
from omnigraph.maintenance.repair import Drift, RepairAction, RepairedTable, classify_drift
from omnigraph.storage.datasets.row_changes import Movement
from support.subtests import each_case
from support.worn_graphs import (
    CITES,
    DOC,
    add,
    answers,
    change,
    dataset,
    run,
    stored,
    worn_graph,
)


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
    state = graph._environment.manifest.state()
    report = graph.repair(confirm=True, force=True)
    assert {table.classification for table in report.tables} == {Drift.NO_DRIFT}
    assert {table.action for table in report.tables} == {RepairAction.NO_OP}
    assert (report.commits, report.has_refused) == ((), False)
    assert graph._environment.manifest.state() == state


def test_a_foreign_compaction_is_shown_then_published(tmp_path: Path) -> None:
    graph = worn_graph(tmp_path)
    rows, before = stored(graph, DOC), answers(graph)
    compact_behind(graph)
    shown = found(graph)
    assert (shown.classification, shown.action) == (
        Drift.VERIFIED_MAINTENANCE,
        RepairAction.PREVIEW,
    )
    assert shown.lance_head_version > shown.published_dataset_version
    assert "--confirm" in shown.advice
    seen = graph.snapshot().commit_id
    report = graph.repair(confirm=True, actor="act-ops")
    (commit,) = report.commits
    assert (commit.kind, commit.actor, commit.tables) == ("optimize", "act-ops", (DOC,))
    assert found(graph).classification is Drift.NO_DRIFT
    assert (stored(graph, DOC), answers(graph)) == (rows, before)
    run(graph, change(1, 2080), if_commit=seen)


def test_indexes_that_a_foreign_compaction_kept_do_not_answer_for_moved_rows(
    tmp_path: Path,
) -> None:
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
    state = graph._environment.manifest.state()
    with pytest.raises(DriftError, match="omnigraph repair"):
        run(graph, add(60))
    assert graph._environment.manifest.state() == state
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
