from __future__ import annotations

import fcntl
import json
import os
import time
from itertools import combinations
from pathlib import Path
from threading import Event, Thread

import pytest

from omnigraph.commit.environment import GraphEnvironment, open_environment
from omnigraph.commit.leftovers import reclaim_staged_files, staged_max_age_s
from omnigraph.commit.rows import GraphCommit
from omnigraph.commit.sidecar import (
    Decision,
    TableClass,
    TableFacts,
    WriterKind,
    classify_table,
    decide,
    delete_sidecar,
    list_sidecars,
    read_sidecar,
    write_sidecar,
)
from omnigraph.commit.transaction import Transaction
from omnigraph.core import failpoints
from omnigraph.core.failpoints import FailpointError
from omnigraph.core.ids import TableKey, new_ulid
from omnigraph.errors import RecoveryRequiredError
from omnigraph.graph.graph import Graph
from omnigraph.storage.datasets.staged import stage_append
from omnigraph.storage.location import MANIFEST, RECOVERIES, STAGING_LOCK, parse_location
from omnigraph.storage.locks import StagingLock
from omnigraph.storage.objects import ControlObjects
from support.manifests import OPERATION, entry, sidecar
from support.subtests import each_case, named_cases

NAME = f"__recovery/{OPERATION}.json"


@pytest.fixture(params=[False, True], ids=["process", "durable"])
def objects(tmp_path, request):
    return ControlObjects(parse_location(tmp_path), durable=request.param)


@each_case("kind", WriterKind)
def test_a_sidecar_comes_back_from_its_file(objects, kind):
    written = sidecar(kind)
    write_sidecar(objects, written)
    assert list_sidecars(objects) == [NAME] == [written.name]
    assert read_sidecar(objects, NAME) == written
    delete_sidecar(objects, NAME)


def test_a_sidecar_without_actor_parent_and_tables_comes_back_too(objects):
    bare = sidecar(actor=None, tables=())
    bare = bare.model_copy(
        update={"commit": bare.commit.model_copy(update={"parent_id": None, "merged_parent_id": None})}
    )
    write_sidecar(objects, bare)
    assert read_sidecar(objects, NAME) == bare


def test_a_sidecar_holds_every_field_of_the_protocol(objects, tmp_path):
    write_sidecar(objects, sidecar())
    body = json.loads((tmp_path / NAME).read_text())
    assert body["format_version"] == 1
    assert (body["operation_id"], body["writer_kind"]) == (OPERATION, "mutation")
    assert set(body["tables"][0]) >= {
        *("table_key", "table_path", "table_branch", "expected_version", "post_commit_pin", "transaction_uuid"),
        "confirmed_version",
    }
    assert set(body["commit"]) == {"commit_id", "parent_id", "merged_parent_id", "merge_strategy", "created_at"}


def test_a_deleted_sidecar_is_gone_and_deleting_it_again_is_fine(objects):
    write_sidecar(objects, sidecar())
    delete_sidecar(objects, NAME)
    assert list_sidecars(objects) == []
    assert read_sidecar(objects, NAME) is None
    delete_sidecar(objects, NAME)


def test_only_whole_sidecars_are_listed_oldest_first(objects, tmp_path):
    newer = sidecar(operation_id="01M7H0J2HPZ4Q2E7CGXD59Z6W9")
    write_sidecar(objects, newer)
    write_sidecar(objects, sidecar())
    for name in (f"{OPERATION}.json#1", "notes.json", f"{OPERATION}.txt", f"{OPERATION}.json.tmp"):
        (tmp_path / "__recovery" / name).write_text("{}")
    assert list_sidecars(objects) == [NAME, newer.name]


def changed(**values: object) -> str:
    return json.dumps(sidecar().model_dump(mode="json") | values)


WHOLE = sidecar().model_dump_json()
DAMAGED = {
    "empty": "",
    "cut_short": WHOLE[: len(WHOLE) // 2],
    "a_list": "[]",
    "null": "null",
    "another_format": changed(format_version=2),
    "an_unknown_field": changed(extra=1),
    "an_unknown_writer": changed(writer_kind="gremlin"),
    "no_commit": changed(commit=None),
    "a_version_that_is_no_number": changed(tables=[entry().model_dump() | {"expected_version": "four"}]),
    "a_missing_uuid": changed(tables=[{k: v for k, v in entry().model_dump().items() if k != "transaction_uuid"}]),
    "another_operation": changed(operation_id="01M7H0J2HPZ4Q2E7CGXD59Z6W9"),
}


@named_cases("text", DAMAGED)
def test_a_damaged_sidecar_is_refused_under_the_id_of_its_file_and_kept(objects, text):
    objects.write(NAME, text.encode())
    with pytest.raises(RecoveryRequiredError, match=NAME) as caught:
        read_sidecar(objects, NAME)
    assert caught.value.operation_id == OPERATION
    assert objects.read(NAME).data == text.encode()


@each_case(
    ("name", "words"),
    [
        ("empty", "it is not valid JSON"),
        ("a_list", "it is an object, not a list"),
        ("another_format", "`format_version` is not 1"),
        ("an_unknown_field", "`extra` is not a known field"),
        ("no_commit", "`commit` is an object, not null"),
        ("a_missing_uuid", "`tables[0].transaction_uuid` is missing"),
        ("a_version_that_is_no_number", "`tables[0].expected_version` is a whole number, not a"),
    ],
)
def test_a_damaged_sidecar_is_explained_by_field(objects, name, words):
    objects.write(NAME, DAMAGED[name].encode())
    with pytest.raises(RecoveryRequiredError) as caught:
        read_sidecar(objects, NAME)
    assert f"problems: 1; {words}" in str(caught.value)


EXACT = [
    WriterKind.INIT,
    WriterKind.MUTATION,
    WriterKind.LOAD,
    WriterKind.EMBED,
    WriterKind.SCHEMA_APPLY,
    WriterKind.REPAIR,
]
LOOSE = [WriterKind.ENSURE_INDICES, WriterKind.OPTIMIZE]
MERGE = [WriterKind.BRANCH_MERGE]

OURS, FOREIGN = "uuid-ours", "uuid-foreign"
NO_MOVEMENT = TableClass.NO_MOVEMENT
EXPECTED = TableClass.ROLLED_PAST_EXPECTED
AT_P1 = TableClass.UNEXPECTED_AT_P1
MULTISTEP = TableClass.UNEXPECTED_MULTISTEP
INCOMPLETE = TableClass.INCOMPLETE_PHASE_B
VIOLATION = TableClass.INVARIANT_VIOLATION

#: Pin 4; HEAD, its transaction, the confirmed version → the class, per group of writers.
TABLE = [
    (None, None, None, VIOLATION, VIOLATION, VIOLATION),
    (3, OURS, None, VIOLATION, VIOLATION, VIOLATION),
    (3, OURS, 3, VIOLATION, VIOLATION, VIOLATION),
    (4, FOREIGN, None, NO_MOVEMENT, NO_MOVEMENT, NO_MOVEMENT),
    (4, OURS, 5, NO_MOVEMENT, NO_MOVEMENT, NO_MOVEMENT),
    (5, OURS, None, EXPECTED, EXPECTED, INCOMPLETE),
    (5, FOREIGN, None, AT_P1, EXPECTED, INCOMPLETE),
    (5, None, None, AT_P1, EXPECTED, INCOMPLETE),
    (6, OURS, None, MULTISTEP, EXPECTED, INCOMPLETE),
    (6, FOREIGN, None, MULTISTEP, EXPECTED, INCOMPLETE),
    (5, OURS, 5, EXPECTED, EXPECTED, EXPECTED),
    (5, OURS, 6, EXPECTED, EXPECTED, AT_P1),
    (6, FOREIGN, 6, MULTISTEP, EXPECTED, EXPECTED),
    (7, FOREIGN, 6, MULTISTEP, EXPECTED, MULTISTEP),
]
CELLS = [
    (kind, head, transaction, confirmed, expected)
    for head, transaction, confirmed, *classes in TABLE
    for kinds, expected in zip((EXACT, LOOSE, MERGE), classes, strict=True)
    for kind in kinds
]


@each_case(("kind", "head", "transaction", "confirmed", "expected"), CELLS)
def test_a_table_is_classified_by_its_head_against_its_pin(kind, head, transaction, confirmed, expected):
    facts = TableFacts(entry=entry(confirmed=confirmed), pin_version=4, head_version=head, head_transaction=transaction)
    assert classify_table(kind, facts) is expected


@each_case(
    ("head", "transaction", "expected"),
    [
        (4, FOREIGN, NO_MOVEMENT),
        (5, FOREIGN, AT_P1),
        (6, FOREIGN, MULTISTEP),
        (7, OURS, EXPECTED),
        (7, FOREIGN, MULTISTEP),
        (8, OURS, MULTISTEP),
    ],
)
@each_case("kind", EXACT)
def test_a_write_of_several_versions_counts_only_when_its_last_one_is_there(kind, head, transaction, expected):
    facts = TableFacts(
        entry=entry().model_copy(update={"post_commit_pin": 7}),
        pin_version=4,
        head_version=head,
        head_transaction=transaction,
    )
    assert classify_table(kind, facts) is expected


def test_every_writer_kind_is_in_the_table():
    assert sorted([*EXACT, *LOOSE, *MERGE]) == sorted(WriterKind)


def rule(kind: WriterKind, found: set[TableClass]) -> Decision:
    """The rule as the specification words it."""
    if VIOLATION in found:
        return Decision.REFUSE
    if found == {NO_MOVEMENT}:
        return Decision.FORGET
    moved = found - {NO_MOVEMENT} if kind in LOOSE else found
    return Decision.ROLL_FORWARD if moved == {EXPECTED} else Decision.ROLL_BACK


@each_case("kind", WriterKind)
@each_case(
    "classes",
    [combination for size in range(1, len(TableClass) + 1) for combination in combinations(TableClass, size)],
    ids="-".join,
)
def test_the_decision_follows_from_the_classes_of_all_tables(kind, classes):
    found = {f"node:{number}": item for number, item in enumerate(classes)}
    assert decide(kind, found, is_published=False) is rule(kind, set(classes))
    assert decide(kind, found, is_published=True) is Decision.FINISH


@each_case(
    ("kind", "classes", "expected"),
    [
        (WriterKind.MUTATION, [EXPECTED, EXPECTED], Decision.ROLL_FORWARD),
        (WriterKind.MUTATION, [EXPECTED, NO_MOVEMENT], Decision.ROLL_BACK),
        (WriterKind.OPTIMIZE, [EXPECTED, NO_MOVEMENT], Decision.ROLL_FORWARD),
        (WriterKind.MUTATION, [NO_MOVEMENT, NO_MOVEMENT], Decision.FORGET),
        (WriterKind.MUTATION, [EXPECTED, AT_P1], Decision.ROLL_BACK),
        (WriterKind.BRANCH_MERGE, [INCOMPLETE, NO_MOVEMENT], Decision.ROLL_BACK),
        (WriterKind.OPTIMIZE, [EXPECTED, VIOLATION], Decision.REFUSE),
        (WriterKind.MUTATION, [], Decision.FORGET),
    ],
)
def test_decisions_of_the_specification_one_by_one(kind, classes, expected):
    found = {f"node:{number}": item for number, item in enumerate(classes)}
    assert decide(kind, found, is_published=False) is expected


# ---- Who may remove staged files, and which: everything when nobody stages, old files otherwise, nothing when in doubt


SCHEMA = "node A { k: String @key }"
ADD = "query q($k: String) { insert A { k: $k } }"
WEEK_S = 7 * 86_400.0


class World:
    """A graph, its environment, and files that a dead writer staged into its table."""

    def __init__(self, root: Path) -> None:
        self.root = root
        with Graph.init(root, SCHEMA) as graph:
            for key in ("a", "b"):
                graph.mutate(ADD, {"k": key})
            self.pin = graph.snapshot().pins[TableKey("node:A")]
        self.environment: GraphEnvironment = open_environment(parse_location(root), durable=False)
        self.paths = [self.pin.location, MANIFEST, RECOVERIES]
        self.before = self.files()
        table = self.environment.tables.open(self.pin.location)
        stage_append(table, table.read())
        self.staged = self.files() - self.before
        assert self.staged

    def files(self) -> set[str]:
        return {str(it.relative_to(self.root)) for it in self.root.rglob("*") if it.is_file()}

    def age(self, seconds: float) -> None:
        then = time.time() - seconds
        for name in self.staged:
            os.utime(self.root / name, (then, then))

    def reclaim(self, *, preview: bool = False) -> set[str]:
        done = reclaim_staged_files(self.environment, self.paths, WEEK_S, preview=preview)
        assert not done.failures
        return {file.name for item in done.removals for file in item.files}

    def keys(self) -> list[str]:
        with Graph.open(self.root) as graph:
            pin = graph.snapshot().pins[TableKey("node:A")]
            table = self.environment.tables.open(pin.location, pin.branch, pin.version)
            return sorted(table.read(["k"])["k"].to_pylist())


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "g.omni")


def test_without_writers_everything_unreferenced_goes(world: World) -> None:
    done = reclaim_staged_files(world.environment, world.paths, WEEK_S)
    assert {file.name for item in done.removals for file in item.files} == world.staged
    assert done.is_complete
    assert done.file_count == len(world.staged)
    assert world.staged.isdisjoint(world.files())
    assert world.keys() == ["a", "b"]
    assert world.reclaim() == set()


def test_beside_a_writer_only_old_files_go(world: World) -> None:
    with world.environment.staging.shared():
        assert world.reclaim() == set()
        world.age(WEEK_S + 60)
        assert world.reclaim() == world.staged


def test_a_preview_removes_nothing(world: World) -> None:
    assert world.reclaim(preview=True) == world.staged
    assert world.staged <= world.files()
    with world.environment.staging.shared():
        assert world.reclaim(preview=True) == set()


def test_what_a_dead_writer_committed_is_settled_first(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: object) -> None:
        raise FailpointError("dead")

    with Graph.open(world.root) as graph, monkeypatch.context() as patch:
        failpoints.reset()
        patch.setenv(failpoints.VARIABLE, "after_table_commit=raise")
        # It cannot settle its own write, so the sidecar stays as after a death.
        patch.setattr("omnigraph.commit.attempt.settle", die)
        with pytest.raises(RecoveryRequiredError):
            graph.mutate(ADD, {"k": "c"})
    failpoints.reset()
    assert world.reclaim(preview=True) == set(), "what it staged may still become visible"
    assert world.reclaim() == world.staged
    assert world.keys() == ["a", "b", "c"]


def test_an_unreadable_sidecar_stops_it(world: World) -> None:
    folder = world.root / "__recovery"
    folder.mkdir(exist_ok=True)
    (folder / f"{new_ulid()}.json").write_text("{")
    with pytest.raises(RecoveryRequiredError):
        world.reclaim()
    assert world.staged <= world.files()


def test_a_sidecar_that_appears_meanwhile_stops_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.commit.leftovers.has_unsettled", lambda _: True)
    assert world.reclaim() == set()
    assert world.staged <= world.files()


def test_a_dataset_that_cannot_be_read_is_reported_and_the_others_are_cleaned(world: World) -> None:
    broken = world.root / "nodes/00000000000000aa"
    (broken / "_versions").mkdir(parents=True)
    (broken / "data").mkdir()
    (broken / "_versions" / f"{2**64 - 2}.manifest").write_bytes(b"garbage")
    (broken / "data" / "0101.lance").write_bytes(b"x")
    done = reclaim_staged_files(world.environment, ["nodes/00000000000000aa", *world.paths], WEEK_S)
    assert set(done.failures) == {"nodes/00000000000000aa"}
    assert (broken / "data" / "0101.lance").exists()
    assert world.staged.isdisjoint(world.files())


def test_a_writer_waits_until_the_files_are_gone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that starts while files are removed stages after that, and loses nothing."""
    from omnigraph.commit import leftovers as module

    started, remove = Event(), module.remove_files
    outcome: list[object] = []

    def write() -> None:
        with Graph.open(world.root) as graph:
            started.set()
            outcome.append(graph.mutate(ADD, {"k": "c"}).commit)

    writer = Thread(target=write)

    def slow(*arguments):
        writer.start()
        assert started.wait(10)
        # A writer that did not wait would be done long before this.
        writer.join(timeout=0.2)
        assert writer.is_alive()
        assert outcome == []
        return remove(*arguments)

    monkeypatch.setattr(module, "remove_files", slow)
    assert world.reclaim() == world.staged
    writer.join(30)
    assert len(outcome) == 1
    assert world.keys() == ["a", "b", "c"]


def test_writers_share_the_lock_and_it_is_taken_alone_only_when_nobody_holds_it(tmp_path: Path) -> None:
    lock = StagingLock(parse_location(tmp_path))
    with lock.try_exclusive() as first:
        assert first
        with lock.try_exclusive() as second:
            assert not second
    with lock.shared(), lock.shared():
        with lock.try_exclusive() as beside:
            assert not beside
        assert not _try_exclusive(tmp_path), "nor from another process"
    with lock.try_exclusive() as again:
        assert again


def _try_exclusive(root: Path) -> bool:
    """Whether a descriptor that knows nothing of our locks gets the file."""
    descriptor = os.open(root / STAGING_LOCK, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)


def test_an_object_store_has_no_lock_that_could_be_given() -> None:
    lock = StagingLock(parse_location("s3://bucket/graph"))
    with lock.shared(), lock.try_exclusive() as held:
        assert not held


def test_a_mutation_holds_the_lock_until_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "g.omni"
    seen: list[bool] = []
    commit = Transaction.commit

    def watched(transaction: Transaction) -> GraphCommit:
        seen.append(_try_exclusive(root))
        return commit(transaction)

    monkeypatch.setattr(Transaction, "commit", watched)
    with Graph.init(root, SCHEMA) as graph:
        graph.mutate(ADD, {"k": "x"})
    assert seen == [False]
    assert _try_exclusive(root)
    assert {"__lock", "__staging.lock"} <= {path.name for path in root.iterdir()}, "beside the data"


def test_the_age_of_staged_files_is_set_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    assert staged_max_age_s() == WEEK_S
    monkeypatch.setenv("OMNIGRAPH_STAGED_MAX_AGE", "12h")
    assert staged_max_age_s() == 43_200
