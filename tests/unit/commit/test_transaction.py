"""What becomes of a write that loses races: how often it is prepared, where, and what it leaves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.commit.expectations import HeadIs, NothingFollows, OnlyBranch
from omnigraph.commit.rows import GraphCommit
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.transaction import MAX_TRIES, OPTIMISTIC_TRIES, RetryPolicy, Transaction
from omnigraph.core.ids import TableKey
from omnigraph.errors import (
    BadRequestError,
    BranchesExistError,
    ExpectedVersionMismatchError,
    PreconditionFailedError,
    ReadSetConflictError,
)
from omnigraph.graph.graph import Graph
from omnigraph.storage.datasets.staged import stage_append
from support.graphs import run

PERSON = TableKey("node:Person")
CITY = TableKey("node:City")


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    schema = "node Person { name: String @key  age: I32? }  node City { name: String @key }"
    with Graph.init(tmp_path / "graph", schema) as graph:
        run(graph, 'insert Person { name: "ann" } insert City { name: "oslo" }')
        yield graph


def transaction(graph: Graph, policy: RetryPolicy, branch: str = "main") -> Transaction:
    return Transaction(graph._environment, branch, kind=WriterKind.MUTATION, policy=policy)


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
    return {path.name for path in graph._environment.location.path.rglob("*.lance")}


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
            transaction(graph, RetryPolicy(outside=None, tries=2, keeps_files=keeps)).run(
                rival.prepare
            )
        made[keeps] = len(files(graph) - before)
    assert made[True] - made[False] == 2, "one file per try"


@pytest.mark.parametrize(
    ("statement", "is_repeated"),
    [('insert City { name: "rome" }', True), ('insert Person { name: "bob" }', False)],
)
def test_guarded_tables_decide_whether_it_is_prepared_again(
    graph: Graph, statement: str, is_repeated: bool
) -> None:
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

    fork = graph._environment.location.path / graph.snapshot().pins[CITY].location / "tree" / "dev"
    with (
        pytest.raises(BadRequestError),
        transaction(graph, RetryPolicy(is_bulk=True), "dev") as write,
    ):
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
