"""Compaction exchanges fragments and nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset
from lance.fragment import write_fragments

from omnigraph.commit import attempt
from omnigraph.core import failpoints
from omnigraph.core.failpoints import VARIABLE, FailpointError
from omnigraph.core.values import reference_cell
from omnigraph.errors import DriftError, StorageError
from omnigraph.graph.graph import Graph
from omnigraph.storage.datasets.compaction import (
    exchanged_fragments,
    plan_compaction,
    run_compaction_task,
    stage_compaction,
)
from omnigraph.storage.datasets.fragments import stage_delete
from omnigraph.storage.datasets.indexes import list_indexes, stage_indices
from omnigraph.storage.datasets.staged import (
    StagedWrite,
    _for_writing,
    check_written,
    commit_staged,
    create_table,
    new_files,
    stage_append,
    stage_upsert,
    sync_commit,
)
from omnigraph.storage.datasets.tables import Table
from omnigraph.storage.datasets.versions import create_fork, find_orphans, list_dataset
from omnigraph.storage.location import GraphLocation, parse_location
from support.tables import (
    ID,
    NUMBER,
    SCHEMA,
    SPECS,
    compact,
    content,
    delete,
    everything,
    make_table,
    rewrite,
    rows,
    stage_optimized,
    vector_hits,
    with_text_index,
)


@pytest.fixture
def location(tmp_path: Path) -> GraphLocation:
    return parse_location(tmp_path)


def files(table: Table) -> set[str]:
    root = Path(table._dataset.uri)
    return {str(it.relative_to(root)) for it in root.rglob("*") if it.is_file()}


def answers(dataset: LanceDataset) -> list[object]:
    """What every kind of index answers, and the same questions without any."""
    conditions = ["id in ('k3', 'k77', 'k61')", "n = 3", "n + 0 = 3"]
    return [
        *(sorted(dataset.to_table(columns=["id"], filter=text)["id"].to_pylist()) for text in conditions),
        vector_hits(dataset, [0.5] * 8),
    ]


def moved_rows() -> pa.Table:
    """Rows of the first fragments with other values in every column that has an index."""
    changed = rows(700, 4)
    return pa.table(
        {
            "id": ["k1", "k3", "k41", "k61"],
            "n": [3, None, 3, 4],
            "text": ["word99 word3", "word99", None, "word99"],
            "vector": changed["vector"],
            "scan": changed["scan"],
        },
        schema=SCHEMA,
    )


def half_covered(location: GraphLocation) -> Table:
    """Fragments with indexes and without, and rows that moved from the former to the latter."""
    table = make_table(location, fragments=3, rows_each=20, specs=SPECS)
    for number in (3, 4):
        table = commit_staged(stage_append(table, rows(number * 20, 20)))
    return commit_staged(stage_upsert(table, moved_rows()))


def test_nothing_but_the_fragments_changes(location: GraphLocation) -> None:
    table = make_table(location)
    before = content(table._dataset)
    compacted = compact(table)
    assert compacted.version == table.version + 1 == compacted.latest_version
    assert (table.fragment_count(), compacted.fragment_count()) == (6, 1)
    assert content(compacted._dataset) == before
    assert compacted._dataset.get_fragments()[0].metadata.num_deletions == 0


def test_fragments_and_indexes_change_together(location: GraphLocation) -> None:
    table = half_covered(location)
    before, found = content(table._dataset), answers(table._dataset)
    staged = stage_optimized(table, SPECS)
    assert table.latest_version == table.version, "nothing has moved yet"
    after = commit_staged(staged)
    assert after.version == staged.made_version == table.version + 3
    assert exchanged_fragments(staged) == (table.fragment_count(), 1)
    assert after.fragment_count() == 1
    coverage = list_indexes(after)
    assert set(coverage) == {spec.name for spec in SPECS}
    for known in coverage.values():
        assert known.covered_fragments
        assert not known.missing_fragments
        assert not known.lost_fragments
    assert content(after._dataset) == before
    assert answers(after._dataset) == found


@pytest.mark.parametrize("steps", [1, 2])
def test_every_version_on_the_way_answers_the_same(
    location: GraphLocation, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    table = half_covered(location)
    before, found = content(table._dataset), answers(table._dataset)
    staged = stage_optimized(table, SPECS)
    failpoints.reset()
    monkeypatch.setenv(VARIABLE, f"between_versions@{steps}=raise")
    with pytest.raises(FailpointError):
        commit_staged(staged)
    monkeypatch.delenv(VARIABLE)
    left = lance.dataset(table._dataset.uri)
    assert left.version == table.version + steps
    assert content(left) == before
    assert answers(left) == found
    # Whoever goes on from there gets indexes that know every row, and no other.
    again = Table(left, table.path, None)
    indexes = stage_indices(again, SPECS)
    assert indexes is not None
    assert answers(commit_staged(indexes)._dataset) == found


def test_fragments_without_indexes_leave_the_indexes_alone(location: GraphLocation) -> None:
    table = half_covered(location)
    found = answers(table._dataset)
    known = list_indexes(table)
    late = [f.fragment_id for f in table._dataset.get_fragments()][3:]
    tasks = plan_compaction(table, [late])
    staged = stage_compaction(table, [run_compaction_task(task) for task in tasks])
    assert staged is not None
    folded = commit_staged(staged)
    assert folded.version == table.version + 1
    for name, coverage in list_indexes(folded).items():
        assert coverage.covered_fragments == known[name].covered_fragments
    assert answers(folded._dataset) == found


def test_references_to_external_blobs_are_neither_followed_nor_lost(location: GraphLocation) -> None:
    table = make_table(location, fragments=2, lost=())
    given = rows(100, 4)
    cells = [reference_cell("s3://scans/1.png"), b"bytes", None, reference_cell("file:///none")]
    place = given.schema.get_field_index("scan")
    given = given.set_column(place, given.schema.field(place), pa.array(cells, pa.large_binary()))
    transaction = write_fragments(
        _for_writing(given, table), table._dataset, return_transaction=True, allow_external_blob_outside_bases=True
    )
    table = commit_staged(StagedWrite(table=table, _transaction=transaction))
    before = table.read(["id", "scan"]).sort_by("id")
    compacted = compact(table)
    assert compacted.fragment_count() == 1
    assert compacted.read(["id", "scan"]).sort_by("id") == before
    assert set(cells) <= set(before["scan"].to_pylist())


def test_a_table_knows_whether_it_is_head(location: GraphLocation) -> None:
    table = make_table(location, fragments=2)
    assert table.is_head()
    later = commit_staged(stage_append(table, rows(900, 1)))
    assert (table.is_head(), later.is_head()) == (False, True)
    fork = create_fork(location, table, "b")
    assert fork.is_head()
    commit_staged(stage_append(fork, rows(910, 1)))
    assert not fork.is_head()


def test_old_versions_stay_readable(location: GraphLocation) -> None:
    table = with_text_index(make_table(location, specs=(ID,)))
    before = everything(table._dataset.uri)
    compact(table)
    after = everything(table._dataset.uri)
    assert {key: after[key] for key in before} == before


def test_an_inverted_index_of_an_earlier_release_goes_with_the_fragments_that_it_covers(
    location: GraphLocation,
) -> None:
    table = with_text_index(make_table(location, specs=(ID,)))
    before = content(table._dataset)
    compacted = commit_staged(stage_optimized(table, (ID,)))
    assert content(compacted._dataset) == before
    assert list_indexes(compacted).keys() == {ID.name}


def test_a_fork_is_compacted_without_its_base(location: GraphLocation) -> None:
    base = make_table(location, fragments=4, rows_each=20, specs=SPECS)
    fork = create_fork(location, base, "b")
    fork = commit_staged(stage_append(fork, rows(900, 10)))
    before, of_base = content(fork._dataset), content(base._dataset)
    found, in_base = answers(fork._dataset), answers(base._dataset)
    compacted = commit_staged(stage_optimized(fork, SPECS))
    assert (compacted.branch, compacted.fragment_count()) == ("b", 1)
    reopened = lance.dataset(fork._dataset.uri)
    assert content(reopened) == before
    assert answers(reopened) == found
    assert base.latest_version == base.version
    assert content(lance.dataset(base._dataset.uri)) == of_base
    assert answers(lance.dataset(base._dataset.uri)) == in_base


def test_large_fragments_and_empty_tables_have_nothing_to_do(location: GraphLocation) -> None:
    table = make_table(location, fragments=3)
    compacted = compact(table)
    assert rewrite(compacted, 5) == rewrite(compacted, 1000) == []
    assert stage_compaction(compacted, []) is None
    empty = make_table(location, path="nodes/e", fragments=1, rows_each=13)
    empty = delete(empty, *(f"k{number}" for number in range(13) if number not in (11, 12)))
    assert rewrite(empty) == []


def test_rewriting_moves_nothing(location: GraphLocation) -> None:
    table = make_table(location)
    rewrite(table)
    assert table.latest_version == table.version


def append(table: Table) -> Table:
    return commit_staged(stage_append(table, rows(900, 5)))


def remove(table: Table) -> Table:
    return delete(table, "k3")


@pytest.mark.parametrize("move", [append, remove])
def test_a_table_that_moved_is_drift(location: GraphLocation, move: Callable[[Table], Table]) -> None:
    table = make_table(location)
    staged = stage_compaction(table, rewrite(table))
    assert staged is not None
    moved = move(table)
    with pytest.raises(DriftError) as caught:
        commit_staged(staged)
    assert (caught.value.expected, caught.value.actual) == (table.version, moved.version)
    assert moved.latest_version == moved.version


@pytest.mark.parametrize("move", [append, remove])
def test_a_race_after_the_check_is_drift_too(
    location: GraphLocation, monkeypatch: pytest.MonkeyPatch, move: Callable[[Table], Table]
) -> None:
    """Lance rebases over the append, and refuses after the delete."""
    table = make_table(location)
    staged = stage_compaction(table, rewrite(table))
    assert staged is not None
    moved = move(table)
    # The check before the commit still sees the old HEAD.
    monkeypatch.setattr(Table, "is_head", lambda _: True)
    with pytest.raises(DriftError):
        commit_staged(staged)
    head = lance.dataset(table._dataset.uri)
    assert content(head) == content(moved._dataset), "whoever won keeps what it wrote"


def test_new_files_are_all_that_a_compaction_wrote(location: GraphLocation) -> None:
    table = half_covered(location)
    before = files(table)
    staged = stage_optimized(table, SPECS)
    added = {name for name in files(table) - before if not name.startswith(("_versions", "_trans"))}
    named = {name.removeprefix(f"{table.path}/") for name in new_files(staged)}
    assert named == added
    assert any(name.endswith(".blob") for name in named), "large blobs of a data file lie in a folder beside it"


def test_an_abandoned_compaction_is_found_among_leftovers(location: GraphLocation) -> None:
    table = make_table(location)
    before = files(table)
    rewrite(table)
    found = {it.name for it in find_orphans(location, list_dataset(location, table.path)).files}
    assert found == {f"{table.path}/{name}" for name in files(table) - before}


def test_every_added_file_is_flushed(location: GraphLocation, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table(location, specs=(ID, NUMBER))
    before = files(table)
    staged = stage_optimized(table, (ID, NUMBER))
    private = {name for name in files(table) - before if name.startswith(("_versions", "_trans"))}
    compacted = commit_staged(staged)
    flushed: set[str] = set()
    root = Path(table._dataset.uri)

    def record(paths) -> None:
        for path in paths:
            inside = path.rglob("*") if path.is_dir() else [path]
            flushed.update(str(it.relative_to(root)) for it in inside if it.is_file())

    monkeypatch.setattr("omnigraph.storage.datasets.staged.sync_files", record)
    sync_commit(location, compacted, staged)
    # A hint and a record of checksums may be lost: nothing is read by them.
    others = {"_versions/latest_version_hint.json", f"_checksums/{compacted.version}.json"}
    assert flushed - others == files(table) - before - private - others


# ---- Files that the disk cut short are found before anything refers to them


COLUMNS = pa.schema([pa.field("id", pa.utf8(), nullable=False), pa.field("n", pa.int64())])
#: So many deleted rows that they are kept as a bitmap instead of a list.
MANY = 20_000


def lettered_rows(numbers: range) -> pa.Table:
    return pa.table({"id": [str(n) for n in numbers], "n": list(numbers)}, schema=COLUMNS)


@pytest.fixture
def table(location: GraphLocation) -> Table:
    made = create_table(location, "nodes/1", COLUMNS)
    return commit_staged(stage_append(made, lettered_rows(range(MANY))))


def cut(location: GraphLocation, staged: StagedWrite, ending: str, by: int) -> None:
    """Take bytes from the end of a staged file, as a full disk does."""
    (path,) = [location.path / name for name in new_files(staged) if name.endswith(ending)]
    os.truncate(path, path.stat().st_size - by)


STAGED = {
    "appended rows": (lambda table: stage_append(table, lettered_rows(range(MANY, MANY + 9))), ".lance"),
    "replaced rows": (lambda table: stage_upsert(table, lettered_rows(range(9))), ".lance"),
    "a few deleted rows": (lambda table: stage_delete(table, range(0, 90, 9)), ".arrow"),
    "many deleted rows": (lambda table: stage_delete(table, range(0, MANY, 2)), ".bin"),
}


@pytest.mark.parametrize("by", [1, 100])
@pytest.mark.parametrize(("stage", "ending"), STAGED.values(), ids=STAGED)
def test_a_staged_file_that_was_cut_short_is_refused(
    location: GraphLocation, table: Table, stage, ending: str, by: int
):
    staged = stage(table)
    check_written(location, staged)
    cut(location, staged, ending, by)
    with pytest.raises(StorageError, match=r"not written completely.*is the disk full"):
        check_written(location, staged)


def test_a_write_whose_file_was_cut_short_has_no_effect_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    root = tmp_path / "graph"
    insert = "query add($doi: String) { insert Paper { doi: $doi } }"

    def cut_and_check(location: GraphLocation, staged: StagedWrite) -> None:
        cut(location, staged, ".lance", by=1)
        check_written(location, staged)

    with Graph.init(root, "node Paper { doi: String @key }") as graph:
        graph.mutate(insert, {"doi": "a"})
        before = graph.snapshot()
        files = {path for path in root.rglob("*") if path.is_file()}
        with monkeypatch.context() as patch:
            patch.setattr(attempt, "check_written", cut_and_check)
            with pytest.raises(StorageError, match="not written completely"):
                graph.mutate(insert, {"doi": "b"})
        assert graph.snapshot() == before
        assert graph.recoveries() == []
        assert {path for path in root.rglob("*") if path.is_file()} == files
        assert graph.mutate(insert, {"doi": "b"}).commit is not None


def test_a_publish_whose_rows_were_cut_short_never_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from omnigraph.storage import manifest_table

    insert = "query add($doi: String) { insert Paper { doi: $doi } }"
    write, cuts = manifest_table.write_fragments, iter((True,))

    def write_cut(*arguments, **options):
        fragments = write(*arguments, **options)
        if next(cuts, False):
            path = tmp_path / "graph/__manifest/data" / fragments[0].files[0].path
            os.truncate(path, path.stat().st_size - 1)
        return fragments

    with Graph.init(tmp_path / "graph", "node Paper { doi: String @key }") as graph:
        with monkeypatch.context() as patch:
            patch.setattr(manifest_table, "write_fragments", write_cut)
            # There is room again, so that the writer completes what it began.
            assert graph.mutate(insert, {"doi": "a"}).commit is not None
        assert [record.recovery_kind for record in graph.recoveries()] == ["RolledForward"]
        found = graph.query("query all() { match { $p: Paper } return { $p.doi as doi } }")
        assert found.to_pylist() == [{"doi": "a"}]
