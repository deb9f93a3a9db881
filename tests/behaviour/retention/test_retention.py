"""Policies as callers give them, and which commits they leave readable."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.commit.expectations import Expectations
from omnigraph.commit.publisher import Changes
from omnigraph.commit.rows import GraphCommit, Tombstone
from omnigraph.core.ids import TableKey, new_ulid
from omnigraph.errors import (
    BadRequestError,
    ChangeFeedGapError,
    HistoricalVersionReclaimedError,
    HistoryReclaimedError,
    NotFoundError,
    RecoveryRequiredError,
)
from omnigraph.graph.graph import Graph
from omnigraph.storage.answers import new_answer_folder, write_answer
from omnigraph.storage.datasets.staged import commit_staged, create_table, stage_append
from support.graphs import fork
from support.histories import (
    PERSON,
    PLACE,
    add,
    files,
    lines,
    people,
    people_at,
    readable,
    remove,
    set_age,
    unused_files,
)


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
def test_a_policy_leaves_the_newest_states_readable(graph: Graph, policy: dict[str, Any], expected: int):
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
        **{"head": 2, "fork": 1, "merge_base": 1, "count": 6, "tag": 0},
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


# ---- Branches under cleanup: what they inherit, what they merge, what deleted ones leave


def clean(graph: Graph, **more) -> None:
    report = graph.cleanup(keep=3, confirm=True, **more)
    assert report.errors == ()
    assert unused_files(graph.uri) == set()


def test_a_branch_keeps_the_versions_that_it_inherited(graph: Graph):
    graph.create_branch("dev", base=graph.commits()[5].commit_id)
    before = people(graph, "dev")
    clean(graph)
    assert people(graph, "dev") == before == {"p0": 1, "p1": 1, "p2": 1}
    add(graph, "new", "dev")
    assert people(graph, "dev") == {**before, "new": 1}


@pytest.mark.parametrize("forget", [False, True])
def test_branches_that_parted_long_ago_still_merge(graph: Graph, forget: bool):
    graph.create_branch("dev", base=graph.commits()[6].commit_id)
    for number in range(5):
        add(graph, f"d{number}", "dev")
        set_age(graph, "p0", 10 + number, "dev")
    clean(graph, commits=forget)
    assert readable(graph, "dev")[:3] == [True] * 3
    result = graph.merge("dev")
    assert result.outcome == "merged"
    assert people(graph) == {**{f"p{n}": 1 for n in range(8)}, **{f"d{n}": 1 for n in range(5)}, "p0": 14}


def test_after_a_merge_branches_merge_again_from_the_last_one(graph: Graph):
    graph.create_branch("dev")
    set_age(graph, "p1", 50, "dev")
    graph.merge("dev")
    for number in range(5):
        add(graph, f"m{number}")
        set_age(graph, "p2", number, "dev")
    clean(graph, commits=True)
    remove(graph, "p1", "dev")
    graph.merge("dev")
    assert "p1" not in people(graph)
    assert people(graph)["p2"] == 4


def test_the_forks_of_a_deleted_branch_go_with_everything_that_only_they_held(graph: Graph):
    graph.create_branch("dev")
    before = lines(graph.uri)
    add(graph, "only here", "dev")
    fork = graph.snapshot("dev").pins[PERSON]
    head = graph.snapshot("dev").commit_id
    graph.delete_branch("dev")
    clean(graph)
    assert (fork.location, fork.branch) not in lines(graph.uri)
    assert lines(graph.uri).keys() == before.keys()
    with pytest.raises(NotFoundError):
        people_at(graph, head)


def test_an_unpublished_fork_is_an_orphan(graph: Graph):
    graph.create_branch("dev")
    snapshot = graph.snapshot("dev")
    fork(graph, "dev", PERSON)
    assert (snapshot.pins[PERSON].location, "dev") in lines(graph.uri)
    preview = graph.cleanup(keep=3)
    assert [item.forks_removed for item in preview.datasets if item.type_key == PERSON] == [1]
    before = sum(files(graph.uri).values())
    done = graph.cleanup(keep=3, confirm=True)
    assert done.bytes_removed == preview.bytes_removed == before - sum(files(graph.uri).values())
    assert (snapshot.pins[PERSON].location, "dev") not in lines(graph.uri)
    add(graph, "later", "dev")
    assert "later" in people(graph, "dev")


def test_beside_a_writer_only_forks_go_that_nobody_wrote_to_for_long(graph: Graph):
    graph.create_branch("dev")
    snapshot = graph.snapshot("dev")
    pin = snapshot.pins[PERSON]
    fork(graph, "dev", PERSON)
    with graph._core.environment.staging.shared():
        graph.cleanup(keep=3, confirm=True)
        assert (pin.location, "dev") in lines(graph.uri)
        for path in (Path(graph.uri) / pin.location / "tree" / "dev").rglob("*"):
            os.utime(path, (1, 1))
        graph.cleanup(keep=3, confirm=True)
        assert (pin.location, "dev") not in lines(graph.uri)


def test_old_versions_of_a_fork_go_too(graph: Graph):
    graph.create_branch("dev")
    for number in range(6):
        add(graph, f"d{number}", "dev")
    pin = graph.snapshot("dev").pins[PERSON]
    clean(graph)
    assert lines(graph.uri)[pin.location, "dev"] == {pin.version - n for n in range(3)}
    graph.create_branch("dev2", base="dev")
    add(graph, "deep", "dev2")
    for number in range(4):
        add(graph, f"e{number}", "dev")
    clean(graph)
    assert "deep" in people(graph, "dev2")
    assert pin.version in lines(graph.uri)[pin.location, "dev"], "a fork of the fork begins there"


def test_a_branch_cannot_begin_at_a_state_that_is_gone(graph: Graph):
    old = graph.commits()[6].commit_id
    assert people_at(graph, old) == {"p0": 1, "p1": 1}, "and a handle of it is kept"
    with Graph.open(graph.uri) as other:
        clean(other)
    with pytest.raises(HistoricalVersionReclaimedError):
        graph.create_branch("late", base=old)
    assert graph.branches() == ["main"]


# ---- Commits that leave the history: it begins later, and everything that looked further back says so


def test_the_history_begins_at_the_oldest_kept_commit(graph: Graph):
    before = graph.commits()
    report = graph.cleanup(keep=4, commits=True, confirm=True)
    assert report.commits_forgotten == 4
    assert graph.commits() == before[:4]
    assert graph.log() == before[:4]
    with Graph.open(graph.uri) as again:
        assert again.commits() == before[:4]
        assert again.commits()[-1].parent_id == before[4].commit_id, "it is still recorded"
        with pytest.raises(NotFoundError):
            people_at(again, before[5].commit_id)
        # The first commit identifies the graph: it is known, and its data is gone.
        assert people_at(again, before[-1].commit_id) is None
        add(again, "next")
    assert len(graph.commits()) == 5


def test_moments_before_the_history_are_told_from_moments_before_the_graph(graph: Graph):
    old = graph.commits()[5]
    graph.cleanup(keep=4, commits=True, confirm=True)
    names = "query q() { match { $p: Person } return { $p.name as n } }"
    with pytest.raises(HistoryReclaimedError) as caught:
        graph.query(names, version=old.graph_version)
    assert caught.value.details() == {"history_reclaimed": {"first_known_commit_id": graph.commits()[-1].commit_id}}
    with pytest.raises(HistoryReclaimedError):
        graph.query(names, as_of="2001-01-01")


def test_a_feed_from_before_the_history_has_a_gap(graph: Graph):
    old = graph.feed(start=f"after:{graph.commits()[6].commit_id}", max_commits=1).cursor
    young = graph.feed().cursor
    graph.cleanup(keep=4, commits=True, confirm=True)
    add(graph, "next")
    assert [len(block.changes) for block in graph.feed(cursor=young).blocks] == [1]
    first = graph.commits()[-1].commit_id
    for call in ({"cursor": old}, {"start": "beginning"}, {"start": f"after:{'0' * 26}"}):
        with pytest.raises(ChangeFeedGapError) as caught:
            graph.feed(**call)
        assert caught.value.commit_id == first
    with pytest.raises(HistoryReclaimedError):
        graph.changes(first)
    assert len(graph.feed(start=f"after:{first}").blocks) == 4


def test_snapshots_of_branches_that_began_at_forgotten_commits_are_whole(graph: Graph):
    graph.create_branch("dev", base=graph.commits()[6].commit_id)
    set_age(graph, "p0", 7, "dev")
    graph.merge("dev")
    for number in range(5):
        add(graph, f"d{number}", "dev")
        add(graph, f"m{number}")
    states = {c.commit_id: people_at(graph, c.commit_id) for c in graph.commits("dev")[:3]}
    graph.cleanup(keep=3, commits=True, confirm=True)
    with Graph.open(graph.uri) as again:
        assert {c: people_at(again, c) for c in states} == states
        assert again.merge("dev").outcome == "merged"
        assert people(again)["d4"] == 1
        assert people(again)["p0"] == 7


def test_forgetting_again_does_nothing(graph: Graph):
    graph.cleanup(keep=3, commits=True, confirm=True)
    report = graph.cleanup(keep=3, commits=True, confirm=True)
    assert (report.commits_forgotten, report.bytes_removed) == (0, 0)


# ---- What dead processes leave: staged files, half-written control files, datasets and indexes of nothing, drift


def drop_place(graph: Graph) -> None:
    """Drop a type in the catalog, as a schema change does."""
    pin = graph.snapshot().pins[PLACE]
    snapshot = graph.snapshot()
    stone = Tombstone(table_key=PLACE, incarnation=pin.incarnation, version=pin.version, graph_version=0)

    def make(head, graph_version):
        return GraphCommit(
            commit_id=new_ulid(),
            graph_version=graph_version,
            branch="main",
            parent_id=head.commit_id,
            created_at=graph._core.environment.clock(),
            kind="schema_apply",
            operation_id=new_ulid(),
            schema_hash=head.schema_hash,
        )

    expectations = Expectations(branch="main", incarnation=snapshot.incarnation, schema_hash=snapshot.schema_hash)
    graph._core.environment.manifest.publish(expectations, Changes(tombstones=(stone,)), make)


def test_staged_files_of_dead_writers_go_at_once_when_nobody_writes(graph: Graph):
    table = graph._core.open_table(graph.snapshot().pins[PERSON])
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
    table = graph._core.open_table(graph.snapshot().pins[PERSON])
    with graph._core.environment.staging.shared():
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
    assert [name for name in files(graph.uri) if name.startswith(place.location)] == [f"{place.location}/_reclaimed"]
    reader = Graph.open(graph.uri, read_only=True)
    with reader, pytest.raises(HistoricalVersionReclaimedError):
        reader.query(question, snapshot=old)
    assert all(item.location != place.location for item in graph.cleanup(keep=3).datasets)


def test_a_dataset_that_was_never_published_goes(graph: Graph):
    schema = pa.schema([pa.field("id", pa.utf8(), nullable=False)])
    path = "nodes/00000000000000aa"
    create_table(graph._core.environment.location, path, schema)
    with graph._core.environment.staging.shared():
        graph.cleanup(keep=3, confirm=True)
        assert (path, None) in lines(graph.uri), "a writer may be about to publish it"
    report = graph.cleanup(keep=3, confirm=True)
    assert [item.is_dropped for item in report.datasets if item.location == path] == [True]
    assert not (Path(graph.uri) / path).exists()


def test_what_has_another_name_than_we_give_stays(graph: Graph):
    root = Path(graph.uri)
    schema = pa.schema([pa.field("id", pa.utf8(), nullable=False)])
    create_table(graph._core.environment.location, "nodes/backup", schema)
    create_table(graph._core.environment.location, "nodes/00000000000000aa", schema)
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
    table = graph._core.open_table(graph.snapshot().pins[PERSON])
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
    root = graph._core.environment.location
    folder = new_answer_folder(root)
    rows = pa.RecordBatch.from_pydict({"n": [1]})
    write_answer(folder, "part-0", rows.schema, [rows])
    mine = Path(graph.uri) / "__staging" / "notes.txt"
    mine.write_text("mine")
    answer = Path(graph.uri) / folder.file("part-0")
    with graph._core.environment.reading.begin():
        # A difference of two commits is a read, and may have tasks that answer.
        assert graph.cleanup(keep=3, confirm=True).other_files_removed == 0
    with graph._core.environment.staging.shared():
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
    with graph._core.environment.staging.shared():
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
