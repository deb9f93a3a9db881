"""Compaction exchanges fragments and nothing else."""

from __future__ import annotations

import pickle
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import pytest
from lance import LanceDataset

from omnigraph.errors import DriftError, StorageError
from omnigraph.storage import (
    Table,
    commit_compaction,
    commit_staged,
    create_fork,
    discard_compaction,
    find_leftovers,
    list_indexes,
    parse_location,
    plan_compaction,
    run_compaction_task,
    stage_append,
    sync_compaction,
)
from storage.tables import ID, NUMBER, SPECS, TEXT, content, delete, everything, make_table, rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from omnigraph.storage import GraphLocation


@pytest.fixture
def location(tmp_path: Path) -> GraphLocation:
    return parse_location(tmp_path)


def rewrite(table: Table, target_rows: int = 1000) -> list[str]:
    plan = plan_compaction(table, target_rows=target_rows)
    return [run_compaction_task(pickle.loads(pickle.dumps(task))) for task in plan.tasks]


def files(table: Table) -> set[str]:
    root = Path(table._dataset.uri)
    return {str(it.relative_to(root)) for it in root.rglob("*") if it.is_file()}


def test_nothing_but_the_fragments_changes(location: GraphLocation) -> None:
    table = make_table(location, specs=(ID, NUMBER, TEXT))
    before = content(table._dataset)
    compacted = commit_compaction(table, rewrite(table))
    assert compacted.version == table.version + 2 == compacted.latest_version
    assert (table.fragment_count(), compacted.fragment_count()) == (6, 1)
    assert content(compacted._dataset) == before
    assert compacted._dataset.get_fragments()[0].metadata.num_deletions == 0


def test_indexes_cover_the_new_fragments_and_answer_the_same(location: GraphLocation) -> None:
    table = make_table(location, fragments=4, rows_each=40, specs=SPECS)

    def answers(dataset: LanceDataset) -> list[object]:
        nearest = {"column": "vector", "q": [0.5] * 8, "k": 5, "nprobes": 4}
        found = [
            dataset.to_table(columns=["id"], filter="id = 'k77'"),
            dataset.to_table(columns=["id"], filter="n = 3"),
            dataset.to_table(columns=["id", "_score"], full_text_query="word3"),
            dataset.to_table(columns=["id", "_distance"], nearest=nearest),
        ]
        return [sorted(it.to_pylist(), key=str) for it in found]

    before = answers(table._dataset)
    compacted = commit_compaction(table, rewrite(table))
    coverage = list_indexes(compacted)
    assert set(coverage) == {spec.name for spec in SPECS}
    for known in coverage.values():
        assert not known.missing_fragments
        assert not known.lost_fragments
    assert answers(compacted._dataset) == before


def test_old_versions_stay_readable(location: GraphLocation) -> None:
    table = make_table(location, specs=(ID, TEXT))
    before = everything(table._dataset.uri)
    commit_compaction(table, rewrite(table))
    after = everything(table._dataset.uri)
    assert {key: after[key] for key in before} == before


def test_a_fork_is_compacted_without_its_base(location: GraphLocation) -> None:
    base = make_table(location, specs=(ID,))
    fork = create_fork(location, base, "b")
    fork = commit_staged(stage_append(fork, rows(900, 10)))
    before, of_base = content(fork._dataset), content(base._dataset)
    compacted = commit_compaction(fork, rewrite(fork))
    assert (compacted.branch, compacted.version) == ("b", fork.version + 2)
    assert content(compacted._dataset) == before
    assert base.latest_version == base.version
    assert content(lance.dataset(base._dataset.uri)) == of_base


def test_large_fragments_and_empty_tables_have_nothing_to_do(location: GraphLocation) -> None:
    table = make_table(location, fragments=3)
    compacted = commit_compaction(table, rewrite(table))
    assert plan_compaction(compacted, target_rows=5).tasks == ()
    assert plan_compaction(compacted, target_rows=1000).tasks == ()
    assert commit_compaction(compacted, []) is compacted
    assert compacted.latest_version == compacted.version
    empty = make_table(location, path="nodes/e", fragments=1, rows_each=13)
    empty = delete(empty, *(f"k{number}" for number in range(13) if number not in (11, 12)))
    assert plan_compaction(empty, target_rows=1000).tasks == ()


def test_rewriting_moves_nothing(location: GraphLocation) -> None:
    table = make_table(location)
    rewrite(table)
    assert table.latest_version == table.version


def append(table: Table) -> Table:
    return commit_staged(stage_append(table, rows(900, 5)))


def remove(table: Table) -> Table:
    return delete(table, "k3")


@pytest.mark.parametrize("move", [append, remove])
def test_a_table_that_moved_is_drift(
    location: GraphLocation, move: Callable[[Table], Table]
) -> None:
    table = make_table(location)
    results = rewrite(table)
    moved = move(table)
    with pytest.raises(DriftError) as caught:
        commit_compaction(table, results)
    assert (caught.value.expected, caught.value.actual) == (table.version, moved.version)
    assert moved.latest_version == moved.version


@pytest.mark.parametrize("move", [append, remove])
def test_a_race_after_the_check_is_drift_too(
    location: GraphLocation, monkeypatch: pytest.MonkeyPatch, move: Callable[[Table], Table]
) -> None:
    """Lance rebases over the append, and refuses after the delete with a plain OSError."""
    table = make_table(location)
    results = rewrite(table)
    moved = move(table)
    look = Table.latest_version.fget
    assert look is not None
    # The check before the commit still sees the old HEAD.
    looks = chain([table.version], map(look, repeat(table)))
    monkeypatch.setattr(Table, "latest_version", property(lambda _: next(looks)))
    with pytest.raises(DriftError):
        commit_compaction(table, results)
    head = lance.dataset(table._dataset.uri)
    assert head.version > moved.version
    assert content(head) == content(moved._dataset), "whoever won keeps what it wrote"


def test_a_failure_that_is_no_conflict_stays_itself(
    location: GraphLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(location)
    results = rewrite(table)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("lance.optimize.Compaction.commit", full)
    with pytest.raises(StorageError) as caught:
        commit_compaction(table, results)
    assert not isinstance(caught.value, DriftError)


def test_lance_cannot_read_the_transaction_of_a_compaction_that_rewrote_indexes(
    location: GraphLocation,
) -> None:
    """A fact that recovery has to live with; once it no longer holds, transactions can be read everywhere."""
    table = make_table(location, specs=(ID,))
    compacted = commit_compaction(table, rewrite(table))
    with pytest.raises(TypeError):
        compacted._dataset.read_transaction(compacted.version)


def test_discarded_results_leave_no_file(location: GraphLocation) -> None:
    table = make_table(location, specs=(ID,))
    before = files(table)
    results = rewrite(table)
    added = files(table) - before
    assert any(name.endswith(".blob") for name in added)
    assert discard_compaction(table, results) == len(added)
    assert files(table) == before
    assert discard_compaction(table, []) == 0


def test_committed_results_are_never_discarded(location: GraphLocation) -> None:
    table = make_table(location)
    results = rewrite(table)
    compacted = commit_compaction(table, results)
    later = commit_staged(stage_append(compacted, rows(900, 5)))
    before = files(table)
    assert discard_compaction(table, results) == 0
    assert files(table) == before
    assert content(later._dataset)


def test_an_abandoned_compaction_is_found_among_leftovers(location: GraphLocation) -> None:
    table = make_table(location)
    before = files(table)
    rewrite(table)
    found = {it.name for it in find_leftovers(location, table.path).files}
    assert found == {f"{table.path}/{name}" for name in files(table) - before}


def test_every_added_file_is_flushed(
    location: GraphLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(location, specs=(ID, TEXT))
    before = files(table)
    compacted = commit_compaction(table, rewrite(table))
    flushed: set[str] = set()
    root = Path(table._dataset.uri)

    def record(paths) -> None:
        for path in paths:
            inside = path.rglob("*") if path.is_dir() else [path]
            flushed.update(str(it.relative_to(root)) for it in inside if it.is_file())

    monkeypatch.setattr("omnigraph.storage.compaction.sync_files", record)
    sync_compaction(location, table, compacted)
    hint = "_versions/latest_version_hint.json"
    assert flushed - {hint} == files(table) - before - {hint}
