"""What dead processes leave: staged files, half-written control files, datasets and indexes of nothing, drift."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.commit.expectations import Expectations
from omnigraph.commit.publisher import Changes
from omnigraph.commit.rows import GraphCommit, Tombstone
from omnigraph.core.ids import TableKey, new_ulid
from omnigraph.errors import HistoricalVersionReclaimedError, RecoveryRequiredError
from omnigraph.graph.graph import Graph
from omnigraph.storage.answers import new_answer_folder, write_answer
from omnigraph.storage.datasets.staged import commit_staged, create_table, stage_append
from support.histories import PERSON, PLACE, add, files, lines, people, people_at, unused_files


def drop_place(graph: Graph) -> None:
    """Drop a type in the catalog, as a schema change does."""
    pin = graph.snapshot().pins[PLACE]
    snapshot = graph.snapshot()
    stone = Tombstone(
        table_key=PLACE, incarnation=pin.incarnation, version=pin.version, graph_version=0
    )

    def make(head, graph_version):
        return GraphCommit(
            commit_id=new_ulid(),
            graph_version=graph_version,
            branch="main",
            parent_id=head.commit_id,
            created_at=graph._environment.clock(),
            kind="schema_apply",
            operation_id=new_ulid(),
            schema_hash=head.schema_hash,
        )

    expectations = Expectations(
        branch="main", incarnation=snapshot.incarnation, schema_hash=snapshot.schema_hash
    )
    graph._environment.manifest.publish(expectations, Changes(tombstones=(stone,)), make)


def test_staged_files_of_dead_writers_go_at_once_when_nobody_writes(graph: Graph):
    table = graph._open(graph.snapshot().pins[PERSON])
    stage_append(table, table.read())
    before = sum(files(graph.uri).values())
    assert unused_files(graph.uri)
    preview = graph.cleanup(keep=3)
    (person,) = [item for item in preview.datasets if item.type_key == PERSON]
    assert person.staged_files_removed == 1
    done = graph.cleanup(keep=3, confirm=True)
    assert done.bytes_removed == preview.bytes_removed == before - sum(files(graph.uri).values())
    assert unused_files(graph.uri) == set()


def test_files_that_a_writer_stages_now_stay(graph: Graph):
    table = graph._open(graph.snapshot().pins[PERSON])
    with graph._environment.staging.shared():
        staged = stage_append(table, table.read().slice(0, 1))
        young = unused_files(graph.uri)
        report = graph.cleanup(keep=3, confirm=True)
        assert unused_files(graph.uri) == young
        assert any("writers are at work" in note for note in report.notes)
        assert commit_staged(staged).count_rows() == 9


def test_a_dropped_type_goes_as_a_whole_once_no_kept_commit_shows_it(graph: Graph):
    place = graph.snapshot().pins[PLACE]
    old = graph.commits()[0].commit_id
    question = "query q() { match { $p: Place } return { count($p) as n } }"
    drop_place(graph)
    add(graph, "x")
    graph.cleanup(keep=3, confirm=True)
    assert (place.location, None) in lines(graph.uri), "the third commit still shows it"
    add(graph, "y")
    report = graph.cleanup(keep=3, confirm=True)
    (dropped,) = [item for item in report.datasets if item.location == place.location]
    assert dropped.is_dropped
    assert dropped.type_key == PLACE
    assert [name for name in files(graph.uri) if name.startswith(place.location)] == [
        f"{place.location}/_reclaimed"
    ]
    reader = Graph.open(graph.uri, read_only=True)
    with reader, pytest.raises(HistoricalVersionReclaimedError):
        reader.query(question, snapshot=old)
    assert all(item.location != place.location for item in graph.cleanup(keep=3).datasets)


def test_a_dataset_that_was_never_published_goes(graph: Graph):
    schema = pa.schema([pa.field("id", pa.utf8(), nullable=False)])
    path = "nodes/00000000000000aa"
    create_table(graph._environment.location, path, schema)
    with graph._environment.staging.shared():
        graph.cleanup(keep=3, confirm=True)
        assert (path, None) in lines(graph.uri), "a writer may be about to publish it"
    report = graph.cleanup(keep=3, confirm=True)
    assert [item.is_dropped for item in report.datasets if item.location == path] == [True]
    assert not (Path(graph.uri) / path).exists()


def test_what_has_another_name_than_we_give_stays(graph: Graph):
    root = Path(graph.uri)
    schema = pa.schema([pa.field("id", pa.utf8(), nullable=False)])
    create_table(graph._environment.location, "nodes/backup", schema)
    create_table(graph._environment.location, "nodes/00000000000000aa", schema)
    names = (
        "notes#1",
        "nodes/00000000000000aa/notes.txt",
        f"{graph.snapshot().pins[PERSON].location}/data/notes.txt",
        "__derived/mine/set/a.npy",
    )
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("mine")
        os.utime(root / name, (1, 1))
    graph.cleanup(keep=3, confirm=True)
    assert all((root / name).read_text() == "mine" for name in names)
    assert any((root / "nodes/backup/_versions").iterdir())
    assert not (root / "nodes/00000000000000aa/_versions").exists()


def test_drift_stops_the_cleanup_of_its_type_only(graph: Graph):
    for number in range(4):
        graph.mutate(f'query q() {{ insert Place {{ name: "{number}" }} }}')
    table = graph._open(graph.snapshot().pins[PERSON])
    commit_staged(stage_append(table, table.read().slice(0, 1)))
    before = lines(graph.uri)
    report = graph.cleanup(keep=3, confirm=True)
    (error,) = report.errors
    assert error.type_key == PERSON
    assert "omnigraph repair" in str(error.error)
    after = lines(graph.uri)
    assert after[table.path, None] == before[table.path, None]
    assert report.old_versions_removed == 2
    assert people(graph) == {f"p{n}": 1 for n in range(8)}


def test_an_unreadable_sidecar_stops_everything(graph: Graph):
    sidecar = Path(graph.uri) / "__recovery" / f"{new_ulid()}.json"
    sidecar.parent.mkdir(exist_ok=True)
    sidecar.write_text("not a sidecar")
    before = files(graph.uri)
    for confirm in (False, True):
        with pytest.raises(RecoveryRequiredError):
            graph.cleanup(keep=3, confirm=confirm)
    assert files(graph.uri) == before


def test_old_temporary_names_claims_and_indexes_of_nothing_go(graph: Graph):
    root = Path(graph.uri)
    (root / "__recovery").mkdir(exist_ok=True)
    old, young = root / "__recovery" / f"{new_ulid()}.json#1", root / "_schema.pg#2"
    for path in (old, young, root / "__claim-0123"):
        path.write_text("x")
    os.utime(old, (1, 1))
    groups = root / "__derived"
    (groups / "edges-gone" / "set").mkdir(parents=True)
    (groups / "edges-gone" / "set" / "a.npy").write_text("x" * 10)
    knows = graph.snapshot().pins[TableKey("edge:Knows")].location.replace("/", "-")
    (groups / knows / "set").mkdir(parents=True)
    assert graph.cleanup(keep=3).other_files_removed == 2
    report = graph.cleanup(keep=3, confirm=True)
    assert (report.other_files_removed, report.other_bytes_removed) == (2, 11)
    assert [path.exists() for path in (old, young, root / "__claim-0123")] == [False, True, False]
    assert [path.name for path in groups.iterdir()] == [knows]


def test_answers_of_operations_that_are_over_go_and_those_of_others_stay(graph: Graph):
    root = graph._environment.location
    folder = new_answer_folder(root)
    rows = pa.RecordBatch.from_pydict({"n": [1]})
    write_answer(folder, "part-0", rows.schema, [rows])
    mine = Path(graph.uri) / "__staging" / "notes.txt"
    mine.write_text("mine")
    answer = Path(graph.uri) / folder.file("part-0")
    with graph._environment.reading.held():
        # A difference of two commits is a read, and may have tasks that answer.
        assert graph.cleanup(keep=3, confirm=True).other_files_removed == 0
    with graph._environment.staging.shared():
        assert graph.cleanup(keep=3, confirm=True).other_files_removed == 0
    assert answer.exists()
    size = answer.stat().st_size
    preview = graph.cleanup(keep=3)
    assert (preview.other_files_removed, preview.other_bytes_removed) == (1, size)
    report = graph.cleanup(keep=3, confirm=True)
    assert (report.other_files_removed, report.other_bytes_removed) == (1, size)
    assert not answer.parent.exists()
    assert mine.read_text() == "mine"
    mine.unlink()
    write_answer(folder, "part-0", rows.schema, [rows])
    os.utime(answer, (1, 1))
    with graph._environment.staging.shared():
        assert graph.cleanup(keep=3, confirm=True).other_files_removed == 1, "it is old"
    assert not (Path(graph.uri) / "__staging").exists()


def test_the_catalog_keeps_its_newest_version_only(graph: Graph):
    commits = [commit.commit_id for commit in graph.commits()]
    report = graph.cleanup(keep=100, confirm=True)
    assert report.catalog_versions_removed == 8
    assert len(list((Path(graph.uri) / "__manifest" / "_versions").glob("*.manifest"))) == 1
    with Graph.open(graph.uri) as again:
        assert [commit.commit_id for commit in again.commits()] == commits
        assert all(people_at(again, commit_id) is not None for commit_id in commits)
        add(again, "next")
    assert "next" in people(graph)
