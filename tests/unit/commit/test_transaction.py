"""What becomes of a write that loses races: how often it is prepared, where, and what it leaves."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from omnigraph.commit.expectations import Expectations, HeadIs, NothingFollows, OnlyBranch
from omnigraph.commit.publisher import Changes, Manifest
from omnigraph.commit.read_target import Target
from omnigraph.commit.rows import GraphCommit, Head
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.snapshot import branch_at, snapshot_of
from omnigraph.commit.targets import resolve_target
from omnigraph.commit.transaction import MAX_TRIES, OPTIMISTIC_TRIES, RetryPolicy, Transaction
from omnigraph.core.ids import TableKey
from omnigraph.errors import (
    BadRequestError,
    BranchesExistError,
    ExpectedVersionMismatchError,
    NotFoundError,
    PreconditionFailedError,
    ReadSetConflictError,
)
from omnigraph.graph.graph import Graph
from omnigraph.storage.datasets.staged import stage_append
from support.graphs import run
from support.manifests import HASH, commit, create_manifest, open_manifest
from support.subtests import each_case

PERSON = TableKey("node:Person")
CITY = TableKey("node:City")


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    schema = "node Person { name: String @key  age: I32? }  node City { name: String @key }"
    with Graph.init(tmp_path / "graph", schema) as graph:
        run(graph, 'insert Person { name: "ann" } insert City { name: "oslo" }')
        yield graph


def transaction(graph: Graph, policy: RetryPolicy, branch: str = "main") -> Transaction:
    return Transaction(graph._core.environment, branch, kind=WriterKind.MUTATION, policy=policy)


def double(transaction: Transaction) -> GraphCommit:
    """Commit all people once more; nothing is validated."""
    pin = transaction.snapshot.pins[PERSON]
    table = transaction.open_for_writing(pin)
    transaction.stage(pin, stage_append(table, table.read()))
    return transaction.commit()


class Rival:
    """Moves the table of people outside of the window, before the write commits."""

    def __init__(self, graph: Graph, statement: str = 'insert Person { name: "r%d" }') -> None:
        self.graph = graph
        self.statement = statement
        #: Per try of the write, whether it was inside the window.
        self.tries: list[bool] = []

    def prepare(self, transaction: Transaction) -> GraphCommit:
        self.tries.append(transaction.is_alone)
        number = len(self.tries)
        if not transaction.is_alone:
            run(self.graph, self.statement % number if "%d" in self.statement else self.statement)
        return double(transaction)


def files(graph: Graph) -> set[str]:
    return {path.name for path in graph._core.environment.location.path.rglob("*.lance")}


def test_a_write_that_keeps_losing_is_prepared_inside_the_window_in_the_end(graph: Graph) -> None:
    rival = Rival(graph)
    commit = transaction(graph, RetryPolicy()).run(rival.prepare)
    assert rival.tries == [False] * OPTIMISTIC_TRIES + [True]
    assert graph.snapshot().commit_id == commit.commit_id


def test_a_write_that_may_not_wait_gives_up_after_its_tries(graph: Graph) -> None:
    rival = Rival(graph)
    with pytest.raises(ExpectedVersionMismatchError):
        transaction(graph, RetryPolicy(outside=None, tries=5)).run(rival.prepare)
    assert rival.tries == [False] * 5
    assert RetryPolicy().tries == MAX_TRIES


def test_a_large_write_never_enters_the_window(graph: Graph) -> None:
    rival = Rival(graph)
    write = transaction(graph, RetryPolicy(tries=6))
    write.is_large = True
    with pytest.raises(ExpectedVersionMismatchError):
        write.run(rival.prepare)
    assert rival.tries == [False] * 6


def test_a_try_that_lost_leaves_no_file_unless_its_writer_keeps_them(graph: Graph) -> None:
    made = {}
    for keeps in (False, True):
        rival = Rival(graph, 'update Person set { age: 1 } where name = "ann"')
        before = files(graph)
        with pytest.raises(ExpectedVersionMismatchError):
            transaction(graph, RetryPolicy(outside=None, tries=2, keeps_files=keeps)).run(rival.prepare)
        made[keeps] = len(files(graph) - before)
    assert made[True] - made[False] == 2, "one file per try"


@pytest.mark.parametrize(
    ("statement", "is_repeated"), [('insert City { name: "rome" }', True), ('insert Person { name: "bob" }', False)]
)
def test_guarded_tables_decide_whether_it_is_prepared_again(graph: Graph, statement: str, is_repeated: bool) -> None:
    tries = []

    def prepare(write: Transaction) -> None:
        tries.append(1)
        write.guarded = (write.snapshot, {PERSON})
        if len(tries) == 1:
            run(graph, statement)
            raise ReadSetConflictError("a member", 1, 2)

    write = transaction(graph, RetryPolicy())
    if is_repeated:
        write.run(prepare)
    else:
        with pytest.raises(ReadSetConflictError):
            write.run(prepare)
    assert len(tries) == 1 + is_repeated


def test_another_failure_ends_it(graph: Graph) -> None:
    tries = []

    def prepare(_: Transaction) -> None:
        tries.append(1)
        raise BadRequestError("no")

    with pytest.raises(BadRequestError):
        transaction(graph, RetryPolicy()).run(prepare)
    assert tries == [1]


def test_a_failure_after_the_commit_never_repeats_it(graph: Graph) -> None:
    def prepare(write: Transaction) -> None:
        double(write)
        raise ReadSetConflictError("a member", 1, 2)

    count = len(graph.commits())
    with pytest.raises(ReadSetConflictError):
        transaction(graph, RetryPolicy()).run(prepare)
    assert len(graph.commits()) == count + 1


def test_a_schema_that_has_to_stay_ends_it(graph: Graph) -> None:
    tries = []

    def prepare(write: Transaction) -> GraphCommit:
        tries.append(1)
        graph.apply_schema("node Person { name: String @key  age: I32?  note: String? }")
        return double(write)

    with pytest.raises(ReadSetConflictError, match="the schema"):
        transaction(graph, RetryPolicy(keeps_schema=True)).run(prepare)
    assert tries == [1]


def test_forks_that_a_failed_write_made_are_removed(graph: Graph) -> None:
    graph.create_branch("dev")

    def prepare(write: Transaction) -> None:
        write.open_for_writing(write.snapshot.pins[CITY])
        raise BadRequestError("no")

    fork = graph._core.environment.location.path / graph.snapshot().pins[CITY].location / "tree" / "dev"
    with pytest.raises(BadRequestError), transaction(graph, RetryPolicy(is_bulk=True), "dev") as write:
        write.run(prepare)
    assert not fork.exists()


def test_requirements_are_checked_at_once_and_again_when_it_publishes(graph: Graph) -> None:
    head = graph.snapshot().commit_id
    with pytest.raises(PreconditionFailedError):
        transaction(graph, RetryPolicy()).run(lambda it: it.require(HeadIs("another")))

    def prepare(write: Transaction) -> GraphCommit:
        write.require(NothingFollows(head))
        run(graph, 'insert City { name: "rome" }')
        return double(write)

    with pytest.raises(ReadSetConflictError, match="branch main"):
        transaction(graph, RetryPolicy(tries=1)).run(prepare)
    graph.create_branch("dev")
    with pytest.raises(BranchesExistError):
        transaction(graph, RetryPolicy()).run(lambda it: it.require(OnlyBranch()))


# ---- Moments: a commit is later than its parents, and the state at a moment that a branch has passed never changes


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def publish_at(manifest: Manifest, branch: str, commit_id: str, clock: int, **more: object) -> GraphCommit:
    """A commit by a writer whose clock says `clock`."""
    expectations = Expectations(branch=branch, incarnation=manifest.state().head(branch).incarnation, schema_hash=HASH)

    def make(before: Head, version: int) -> GraphCommit:
        return commit(commit_id, version, before.commit_id, branch, created_at=clock, **more)

    return manifest.publish(expectations, Changes(), make)


def fork(manifest: Manifest, name: str, base: str) -> None:
    origin = snapshot_of(manifest.state().head(base))
    manifest.publish_branch(lambda _, version: branch_at(origin, name, version, name))


def seen_at(manifest: Manifest, branch: str, moment: int) -> str | None:
    """The commit that a read of a branch at a moment sees."""
    target = Target(branch=branch, as_of=EPOCH + timedelta(microseconds=moment))
    try:
        return resolve_target(manifest, manifest.state(), target).commit_id
    except NotFoundError:
        return None


@pytest.mark.parametrize("clock", [4, 5])
def test_a_commit_of_a_slow_clock_is_later_than_its_parent(tmp_path: Path, clock: int) -> None:
    manifest = create_manifest(tmp_path)
    made = publish_at(manifest, "main", "c2", clock)
    assert (made.created_at, made.written_at) == (6, clock)
    assert manifest.commit("c2") == made
    # Also for a view that has nothing in memory.
    again = publish_at(open_manifest(tmp_path), "main", "c3", 1)
    assert (again.created_at, again.written_at) == (7, 1)


def test_the_time_of_a_right_clock_is_kept(tmp_path: Path) -> None:
    made = publish_at(create_manifest(tmp_path), "main", "c2", 900)
    assert (made.created_at, made.written_at) == (900, None)


def test_a_merge_is_later_than_both_parents(tmp_path: Path) -> None:
    manifest = create_manifest(tmp_path)
    fork(manifest, "work", "main")
    publish_at(manifest, "work", "w1", 5_000)
    made = publish_at(manifest, "main", "m", 10, merged_parent_id="w1")
    assert (made.created_at, made.written_at) == (5_001, 10)


def test_a_first_commit_on_a_branch_is_later_than_where_it_began(tmp_path: Path) -> None:
    manifest = create_manifest(tmp_path)
    publish_at(manifest, "main", "c2", 5_000)
    fork(manifest, "work", "main")
    assert publish_at(manifest, "work", "w1", 10).created_at == 5_001


def test_a_recovered_commit_keeps_the_time_of_its_writer_beside_its_own(tmp_path: Path) -> None:
    made = publish_at(create_manifest(tmp_path), "main", "c2", 900, written_at=20)
    assert (made.created_at, made.written_at) == (900, 20)


@pytest.mark.parametrize("seed", range(6))
def test_a_moment_that_was_read_is_read_again_whatever_clocks_say(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    manifest = create_manifest(tmp_path)
    known: dict[tuple[str, int], str | None] = {}
    now = 10
    for number in range(25):
        now += chance.randrange(20)
        branches = sorted(manifest.state().heads)
        branch = chance.choice(branches)
        skewed = max(0, now + chance.choice((0, 0, -50, 30, -5)))
        if chance.random() < 0.1:
            fork(manifest, f"b{number}", branch)
        else:
            more: dict[str, object] = {}
            if chance.random() < 0.2:
                # Recovery publishes what a writer of long ago had begun.
                more["written_at"] = max(0, now - 300)
            if chance.random() < 0.2 and len(branches) > 1:
                other = chance.choice([name for name in branches if name != branch])
                more["merged_parent_id"] = manifest.state().head(other).commit_id
            publish_at(manifest, branch, f"n{number}", skewed, **more)
        # What was published stays, so an answer that changed is still another one some steps later.
        if number % 5 == 4:
            assert {key: seen_at(manifest, *key) for key in known} == known
        for name, head in manifest.state().heads.items():
            newest = manifest.commits()[head.commit_id].created_at
            for moment in (newest, chance.randrange(newest + 1)):
                known[name, moment] = seen_at(manifest, name, moment)


@each_case(
    "target",
    [
        {"as_of": 123},
        {"as_of": 1.5},
        {"as_of": True},
        {"as_of": date(2026, 5, 1)},
        {"as_of": "yesterday"},
        {"as_of": ""},
        {"as_of": b"2026-05-01"},
        {"version": True},
        {"version": False},
        {"version": 1.0},
        {"version": "1"},
        {"snapshot": 5},
        {"branch": None},
        {"branch": 7},
    ],
    ids=str,
)
def test_what_names_no_state_is_refused(target: dict[str, object]) -> None:
    with pytest.raises(BadRequestError):
        Target(**target)  # type: ignore[arg-type]  # as a caller without a type checker


@each_case(
    "moment", ["2026-05-01", "2026-05-01T12:00:00Z", datetime(2026, 5, 1), datetime(9999, 12, 31, tzinfo=UTC)], ids=str
)
def test_a_moment_without_a_zone_is_utc(moment: str | datetime) -> None:
    assert not Target(as_of=moment).is_head
