from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from types import SimpleNamespace

import lance
import pytest

from omnigraph.commit import publisher, rows
from omnigraph.commit.expectations import Expectations, HeadIs
from omnigraph.commit.publisher import FOLD_THRESHOLD, PUBLISHER_RETRY_BUDGET, Changes
from omnigraph.commit.rows import STAMP, PublishedVersion, Tombstone, check_stamp, stamp
from omnigraph.commit.snapshot import snapshot_at
from omnigraph.errors import (
    AlreadyInitializedError,
    BranchNotFoundError,
    ExpectedVersionMismatchError,
    PreconditionFailedError,
    ReadSetConflictError,
    RetryableCommitConflictError,
    StorageError,
    StorageFailure,
    StorageFormatError,
)
from omnigraph.storage import manifest_table as catalog_storage
from support.manifests import CITES, HASH, PAPER, commit, create_manifest, head, open_manifest, pin, publish
from support.subtests import each_case


@pytest.fixture
def manifest(tmp_path):
    return create_manifest(tmp_path)


def fragments(root) -> int:
    return len(lance.dataset(str(root / "__manifest")).get_fragments())


def object_ids(root, prefix: str = "") -> list[str]:
    rows = lance.dataset(str(root / "__manifest")).to_table(["object_id"])
    return sorted(i for i in rows["object_id"].to_pylist() if i.startswith(prefix))


# ---- readers


def test_readers_of_an_outdated_state_have_it_read_once_for_all(manifest, tmp_path, monkeypatch):
    reader = open_manifest(tmp_path)
    assert reader.state().head("main").commit_id == "c1"
    publish(manifest, "c2")
    opened = []
    table = reader._table
    monkeypatch.setattr(reader, "_table", SimpleNamespace(open=lambda: opened.append(1) or table.open()))
    start = Barrier(8)

    def read(_: int) -> str:
        start.wait(timeout=60)
        return reader.state().head("main").commit_id

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(read, range(8))) == ["c2"] * 8
    assert len(opened) == 1


# ---- creation


def test_a_new_catalog_has_one_branch_with_one_commit_without_parent(manifest):
    state = manifest.state()
    assert (state.graph_version, list(state.heads)) == (1, ["main"])
    assert state.head("main").pins == {PAPER: pin(PAPER), CITES: pin(CITES)}
    assert manifest.commit("c1").parent_id is None
    assert manifest.commit("c9") is None


def test_a_catalog_is_created_once(manifest, tmp_path):
    with pytest.raises(AlreadyInitializedError):
        create_manifest(tmp_path)
    assert list(manifest.commits()) == ["c1"]


def test_a_root_without_catalog_is_reported_as_missing(tmp_path):
    with pytest.raises(StorageError) as caught:
        open_manifest(tmp_path).state()
    assert caught.value.failure is StorageFailure.NOT_FOUND


# ---- the stamp


@each_case(
    ("metadata", "advice"),
    [
        ({STAMP: "3"}, "format 3, this release reads 4: export it with the release that wrote it"),
        ({STAMP: "5"}, "format 5, this release reads 4: upgrade omnigraph"),
        ({STAMP: "10"}, "upgrade omnigraph"),
        ({}, "export it with the release that wrote it"),
        ({STAMP: "four"}, "export it with the release that wrote it"),
    ],
)
def test_another_storage_format_is_refused_with_advice(metadata, advice):
    with pytest.raises(StorageFormatError, match=advice) as caught:
        check_stamp(metadata)
    assert caught.value.failure is StorageFailure.CONFIGURATION


def test_our_own_stamp_is_accepted():
    assert stamp() == {STAMP: "4"}
    check_stamp(stamp())


def restamp(root, value: str) -> None:
    dataset = lance.dataset(str(root / "__manifest"))
    metadata = {k.decode(): v.decode() for k, v in (dataset.schema.metadata or {}).items()}
    dataset.update_schema_metadata(metadata | {STAMP: value}, replace=True)


@pytest.mark.parametrize("found", ["3", "5"])
def test_the_stamp_is_checked_before_any_row_is_read_and_again_by_the_publisher(manifest, tmp_path, found):
    manifest.state()
    restamp(tmp_path, found)
    with pytest.raises(StorageFormatError):
        open_manifest(tmp_path).state()
    expectations = Expectations(branch="main", incarnation=1, schema_hash=HASH)
    with pytest.raises(StorageFormatError):
        manifest.publish(expectations, Changes(), lambda h, v: commit("c2", v, h.commit_id))
    assert object_ids(tmp_path, "commit:") == ["commit:c1"]


# ---- publishing


def test_a_publish_shows_its_tables_and_its_commit_together(manifest, tmp_path):
    publish(manifest, "c2", pin(PAPER, 2), touched={PAPER: 1})
    for seen in (manifest, open_manifest(tmp_path)):
        state = seen.state()
        assert (state.graph_version, state.head("main").commit_id) == (2, "c2")
        assert state.head("main").pins == {PAPER: pin(PAPER, 2), CITES: pin(CITES)}
        assert seen.commit("c2").parent_id == "c1"


def test_a_dropped_table_leaves_the_head_and_the_state_of_its_commit(manifest):
    stone = Tombstone(table_key=PAPER, incarnation=1, version=1, graph_version=0)
    expectations = Expectations(branch="main", incarnation=1, schema_hash=HASH)
    changes = Changes(tombstones=(stone,), schema_hash="sha256:two")
    manifest.publish(expectations, changes, lambda h, v: commit("c2", v, h.commit_id, schema_hash="sha256:two"))
    now = manifest.state().head("main")
    assert (set(now.pins), now.schema_hash) == ({CITES}, "sha256:two")
    assert set(snapshot_at(manifest.history(), "c2").pins) == {CITES}
    assert set(snapshot_at(manifest.history(), "c1").pins) == {PAPER, CITES}


def test_the_rebuilt_state_of_every_commit_is_the_state_that_was_published(manifest):
    def make_branch(state, version):
        origin = state.head("main")
        return head("dev", version, version, origin.commit_id, fork_commit_id=origin.commit_id, pins=origin.pins)

    seen = {"c1": manifest.state().head("main").pins}
    publish(manifest, "c2", pin(PAPER, 2))
    seen["c2"] = manifest.state().head("main").pins
    manifest.publish_branch(make_branch)
    publish(manifest, "d1", pin(CITES, 2, branch="dev"), branch="dev")
    seen["d1"] = manifest.state().head("dev").pins
    publish(manifest, "c3", pin(CITES, 2))
    seen["c3"] = manifest.state().head("main").pins
    history = manifest.history()
    assert {name: snapshot_at(history, name).pins for name in seen} == seen


# ---- expectations


def expect(**changed) -> Expectations:
    values = {"branch": "main", "incarnation": 1, "schema_hash": HASH} | changed
    return Expectations(**values)


@pytest.mark.parametrize(
    "expectations",
    [
        expect(),
        expect(touched={PAPER: 2}),
        expect(read={CITES: 1}),
        expect(touched={PAPER: 2, "node:New": None}, read={CITES: 1}, requires=(HeadIs("c2"),)),
    ],
)
def test_expectations_that_hold_give_the_head(manifest, expectations):
    publish(manifest, "c2", pin(PAPER, 2))
    assert manifest.locate(expectations).head.commit_id == "c2"


@pytest.mark.parametrize(
    ("expectations", "error", "details"),
    [
        (
            expect(touched={PAPER: 1}),
            ExpectedVersionMismatchError,
            {"manifest_conflict": {"table_key": PAPER, "expected": 1, "actual": 2}},
        ),
        (
            expect(touched={PAPER: None}),
            ExpectedVersionMismatchError,
            {"manifest_conflict": {"table_key": PAPER, "expected": None, "actual": 2}},
        ),
        (
            expect(touched={"node:Gone": 3}),
            ExpectedVersionMismatchError,
            {"manifest_conflict": {"table_key": "node:Gone", "expected": 3, "actual": None}},
        ),
        (
            expect(read={PAPER: 1}),
            ReadSetConflictError,
            {"read_set_conflict": {"member": PAPER, "expected": 1, "actual": 2}},
        ),
        (
            expect(schema_hash="sha256:old"),
            ReadSetConflictError,
            {"read_set_conflict": {"member": "the schema", "expected": "sha256:old", "actual": HASH}},
        ),
        (
            expect(incarnation=9),
            ReadSetConflictError,
            {"read_set_conflict": {"member": "branch main", "expected": 9, "actual": 1}},
        ),
        (
            expect(requires=(HeadIs("c1"),)),
            PreconditionFailedError,
            {"precondition_failure": {"branch": "main", "expected": "c1", "actual": "c2"}},
        ),
        (expect(branch="dev"), BranchNotFoundError, {}),
    ],
)
def test_an_expectation_that_does_not_hold_is_named_and_nothing_is_published(
    manifest, tmp_path, expectations, error, details
):
    publish(manifest, "c2", pin(PAPER, 2))
    before = object_ids(tmp_path)
    with pytest.raises(error) as caught:
        manifest.publish(expectations, Changes(), lambda h, v: commit("c3", v, h.commit_id))
    assert {key: caught.value.details().get(key) for key in details} == details
    assert object_ids(tmp_path) == before


@pytest.mark.parametrize("kinds", [["optimize"], ["ensure_indices", "optimize"]])
def test_an_expected_head_survives_commits_that_change_no_row(manifest, kinds):
    for number, kind in enumerate(kinds):
        publish(manifest, f"p{number}", pin(PAPER, 2 + number), kind=kind)
    assert manifest.locate(expect(requires=(HeadIs("c1"),))).head.commit_id == f"p{len(kinds) - 1}"


def test_an_expected_head_does_not_survive_a_mutation_below_physical_commits(manifest):
    publish(manifest, "c2", pin(PAPER, 2))
    publish(manifest, "p1", pin(PAPER, 3), kind="optimize")
    assert manifest.locate(expect(requires=(HeadIs("c2"),))).head.commit_id == "p1"
    with pytest.raises(PreconditionFailedError):
        manifest.locate(expect(requires=(HeadIs("c1"),)))


# ---- the fold


def test_the_fold_keeps_every_commit_and_version_and_only_the_newest_heads(manifest, tmp_path):
    published = 1
    while fragments(tmp_path) <= FOLD_THRESHOLD:
        published += 1
        publish(manifest, f"c{published}", pin(PAPER, published))
    assert fragments(tmp_path) == FOLD_THRESHOLD + 1
    before = manifest.history()
    published += 1
    publish(manifest, f"c{published}", pin(PAPER, published))
    assert fragments(tmp_path) == 1
    for seen in (manifest, open_manifest(tmp_path)):
        after = seen.history()
        assert set(after.commits) == {f"c{n}" for n in range(1, published + 1)}
        assert set(before.versions) < set(after.versions)
        assert seen.state().graph_version == published
    assert object_ids(tmp_path, "head:") == [f"head:main@{published}"]
    assert len(object_ids(tmp_path, "version:")) == published + 1
    assert len(object_ids(tmp_path, "table:")) == 2
    for number in range(1, published + 1):
        assert snapshot_at(after, f"c{number}").pins[PAPER].version == number
    open_manifest(tmp_path).locate(expect(requires=(HeadIs(f"c{published}"),)))


def test_the_fold_keeps_the_newest_head_of_every_branch_incarnation(manifest, tmp_path, monkeypatch):
    def branch(**more):
        def make(state, version):
            origin = state.heads.get("dev", state.head("main"))
            incarnation = origin.incarnation if more else version
            return head("dev", incarnation, version, "c1", fork_commit_id="c1", pins=origin.pins, **more)

        return make

    manifest.publish_branch(branch())
    manifest.publish_branch(branch(deleted=True))
    manifest.publish_branch(branch())
    monkeypatch.setattr(publisher, "FOLD_THRESHOLD", 3)
    publish(manifest, "c2", pin(PAPER, 2))
    assert object_ids(tmp_path, "head:") == ["head:dev~2@3", "head:dev~4@4", "head:main@5"]
    state = open_manifest(tmp_path).state()
    assert sorted(state.heads) == ["dev", "main"]
    assert state.head("dev").incarnation == 4


def test_the_cost_of_a_publish_does_not_grow_with_the_history(manifest, tmp_path, monkeypatch):
    written, reads = [], []
    write, read = catalog_storage.write_fragments, lance.LanceDataset.to_table

    def counting_write(rows, *arguments, **options):
        written.append(rows.num_rows)
        return write(rows, *arguments, **options)

    def counting_read(self, *arguments, **options):
        reads.append(options)
        return read(self, *arguments, **options)

    monkeypatch.setattr(catalog_storage, "write_fragments", counting_write)
    monkeypatch.setattr(lance.LanceDataset, "to_table", counting_read)
    for number in range(2, FOLD_THRESHOLD + 2):
        publish(manifest, f"c{number}", pin(PAPER, number))
    assert written == [3] * FOLD_THRESHOLD, "one version, one commit, one head"
    assert reads == [], "a publisher that won knows the state"
    assert fragments(tmp_path) == FOLD_THRESHOLD + 1


# ---- races


def test_a_publish_that_lost_against_an_unrelated_one_is_retried_through(manifest, tmp_path):
    other = open_manifest(tmp_path)
    tries = []

    def make(before, version):
        tries.append(version)
        if len(tries) == 1:
            publish(other, "other", pin(CITES, 2), touched={CITES: 1})
        return commit("ours", version, before.commit_id)

    done = manifest.publish(expect(touched={PAPER: 1}), Changes(pins=(pin(PAPER, 2),)), make)
    assert (tries, done.parent_id, done.graph_version) == ([2, 3], "other", 3)
    pins = open_manifest(tmp_path).state().head("main").pins
    assert (pins[PAPER].version, pins[CITES].version) == (2, 2)


@pytest.mark.parametrize(
    ("expected", "error"),
    [
        ({"touched": {PAPER: 1}}, ExpectedVersionMismatchError),
        ({"read": {PAPER: 1}}, ReadSetConflictError),
        ({"requires": (HeadIs("c1"),)}, PreconditionFailedError),
    ],
)
def test_a_publish_that_lost_against_a_related_one_is_a_conflict(manifest, tmp_path, expected, error):
    other = open_manifest(tmp_path)

    def make(before, version):
        publish(other, "other", pin(PAPER, 2))
        return commit("ours", version, before.commit_id)

    with pytest.raises(error):
        manifest.publish(expect(**expected), Changes(), make)
    assert set(open_manifest(tmp_path).commits()) == {"c1", "other"}


def test_a_publish_that_loses_every_try_gives_up_and_can_be_repeated(manifest, tmp_path):
    other = open_manifest(tmp_path)
    tries = []

    def make(before, version):
        tries.append(version)
        publish(other, f"other{version}", pin(CITES, version))
        return commit("ours", version, before.commit_id)

    with pytest.raises(RetryableCommitConflictError):
        manifest.publish(expect(), Changes(), make)
    assert len(tries) == PUBLISHER_RETRY_BUDGET + 1
    assert "commit:ours" not in object_ids(tmp_path)
    publish(manifest, "ours", pin(PAPER, 2))
    assert object_ids(tmp_path).count("commit:ours") == 1


@pytest.mark.parametrize("writers", [2, 4])
def test_racing_publishers_land_every_publish_exactly_once_in_one_line(manifest, tmp_path, monkeypatch, writers):
    # Nobody gives up and nobody waits: contention is as hard as it can be, across a fold.
    monkeypatch.setattr(publisher, "PUBLISHER_RETRY_BUDGET", 10_000)
    monkeypatch.setattr(publisher, "random", SimpleNamespace(uniform=lambda low, high: 0.0))
    monkeypatch.setattr(publisher, "FOLD_THRESHOLD", 8)
    each, start = 24 // writers, Barrier(writers)

    def run(writer: int) -> list[str]:
        mine = open_manifest(tmp_path)
        start.wait()
        return [publish(mine, f"w{writer}-{n}", pin(PAPER, 100 * writer + n)).commit_id for n in range(each)]

    with ThreadPoolExecutor(writers) as pool:
        acknowledged = [name for names in pool.map(run, range(1, writers + 1)) for name in names]
    found = open_manifest(tmp_path).commits()
    assert set(found) == {"c1", *acknowledged}
    assert len(object_ids(tmp_path, "commit:")) == len(found) == 25
    line = sorted(found.values(), key=lambda item: item.graph_version)
    assert [item.graph_version for item in line] == list(range(1, 26))
    assert [item.parent_id for item in line] == [None, *(item.commit_id for item in line[:-1])]


# ---- old versions of the catalog


def test_folds_remove_old_versions_and_no_commit(manifest, tmp_path):
    stale = open_manifest(tmp_path)
    assert len(stale.commits()) == 1
    count = 2 * FOLD_THRESHOLD + 5
    for number in range(count):
        publish(manifest, f"n{number}")
    kept = len(lance.dataset(str(tmp_path / "__manifest")).versions())
    assert kept <= FOLD_THRESHOLD + publisher.KEPT_VERSIONS + 1
    assert len(stale.commits()) == len(manifest.commits()) == count + 1


def test_versions_that_cannot_be_removed_do_not_fail_a_publish(manifest, monkeypatch, caplog):
    def fail(*_):
        raise StorageError("no")

    monkeypatch.setattr(catalog_storage.ManifestTable, "remove_old_versions", fail)
    for number in range(FOLD_THRESHOLD + 2):
        publish(manifest, f"n{number}")
    assert "old versions of the manifest stay" in caplog.text
    assert len(manifest.commits()) == FOLD_THRESHOLD + 3


STONE = Tombstone(table_key=PAPER, incarnation=2, version=9, graph_version=4)
FULL_COMMIT = commit(
    "01AAA",
    7,
    "01PPP",
    "dev",
    merged_parent_id="01MMM",
    actor="act-ü",
    tables=(PAPER, CITES),
    recovery_for_actor="act-dead",
    schema_source='node Ünï { name: String @key } // "quoted"',
    schema_contract='{"a": 1}',
)
FULL_HEAD = head(
    "team/dev",
    3,
    8,
    "01AAA",
    fork_commit_id="01FFF",
    deleted=True,
    pins={PAPER: pin(PAPER, 4, branch="team/dev"), CITES: pin(CITES, 2, incarnation=6)},
)


def through_arrow(row: dict) -> dict:
    (read,) = rows.to_arrow([row]).to_pylist()
    return read


@pytest.mark.parametrize("item", [FULL_COMMIT, commit("01AAA", 1)])
def test_a_commit_comes_back_from_its_row(item):
    assert rows.read_commit(through_arrow(rows.commit_row(item))) == item


@pytest.mark.parametrize("item", [FULL_HEAD, head("main", 1, 1)])
def test_a_head_comes_back_from_its_row(item):
    assert rows.read_head(through_arrow(rows.head_row(item))) == item


@pytest.mark.parametrize("branch", [None, "dev"])
def test_a_published_version_comes_back_from_its_row(branch):
    item = PublishedVersion(pin=pin(PAPER, 7, branch=branch), branch_key="dev~4", graph_version=9)
    row = rows.version_row(item.pin, item.branch_key, item.graph_version)
    assert rows.read_version(through_arrow(row)) == item


def test_a_tombstone_comes_back_from_its_row():
    assert rows.read_tombstone(through_arrow(rows.tombstone_row(STONE))) == STONE


def test_a_table_row_keeps_location_key_and_graph_version():
    row = through_arrow(rows.table_row(pin(PAPER, incarnation=3), 5))
    assert (row["location"], row["table_key"], row["graph_version"]) == ("nodes/0000000000000003", PAPER, 5)
    assert row["object_type"] == "table"


@each_case(
    ("row", "object_type", "object_id"),
    [
        (rows.table_row(pin(incarnation=3), 5), "table", "table:node:Paper#3"),
        (rows.version_row(pin(version=4), "main", 5), "table_version", "version:node:Paper#1@main@v=4"),
        (rows.version_row(pin(version=4, branch="dev"), "dev~7", 9), "table_version", "version:node:Paper#1@dev~7@v=4"),
        (rows.tombstone_row(STONE), "table_tombstone", "tombstone:node:Paper#2@v=9"),
        (rows.commit_row(FULL_COMMIT), "graph_commit", "commit:01AAA"),
        (rows.head_row(head("main", 1, 6)), "graph_head", "head:main@6"),
        (rows.head_row(FULL_HEAD), "graph_head", "head:team/dev~3@8"),
    ],
)
def test_object_ids_are_those_of_the_format(row, object_type, object_id):
    assert (row["object_type"], row["object_id"]) == (object_type, object_id)


def test_the_plain_branch_name_is_kept_beside_the_object_id():
    assert rows.version_row(pin(branch="dev"), "dev~7", 9)["table_branch"] == "dev"
    assert rows.version_row(pin(), "main", 9)["table_branch"] is None


def test_a_commit_names_its_parents_as_base_objects():
    assert rows.commit_row(FULL_COMMIT)["base_objects"] == ["commit:01PPP", "commit:01MMM"]
    assert rows.commit_row(commit("01AAA", 1))["base_objects"] == []


def test_the_object_id_is_marked_as_the_primary_key():
    field = rows.manifest_schema().field("object_id")
    assert not field.nullable
    assert field.metadata == {b"lance-schema:unenforced-primary-key": b"true"}
