"""One suite over two storages: a graph behaves the same on a disk and on S3."""

from __future__ import annotations

import base64
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Barrier

import pytest

from omnigraph.errors import (
    AlreadyInitializedError,
    BadRequestError,
    BlobRangeError,
    BranchNotFoundError,
    ExpectedVersionMismatchError,
    InitializationClaimedError,
    NotFoundError,
    PreconditionFailedError,
)
from omnigraph.graph.graph import Graph
from omnigraph.storage.location import INIT_CLAIM, parse_location
from omnigraph.storage.locks import LeaseCommitLock, held_file
from omnigraph.storage.objects import ObstoreObjects
from support.s3_graphs import (
    ADD_CITING,
    ADD_NOTE,
    ADD_PAPER,
    ADD_SCAN,
    FORGET,
    READ,
    SCHEMA,
    check_graph,
    rows,
    values,
)


@pytest.fixture
def graph(root: str) -> Graph:
    """A graph with papers a and b, and b cites a."""
    made = Graph.init(root, SCHEMA, actor="me")
    made.mutate(ADD_PAPER, {"doi": "a", "title": "A"})
    made.mutate(ADD_CITING, {"doi": "b", "to": "a"})
    return made


def test_a_new_graph_is_empty_and_opens_again(root: str) -> None:
    with Graph.init(root, SCHEMA, actor="me") as graph:
        assert graph.uri == root
        (genesis,) = graph.commits()
        assert (genesis.graph_version, genesis.actor, genesis.parent_id) == (1, "me", None)
    with Graph.open(root) as graph:
        assert graph.schema == SCHEMA
        assert graph.branches() == ["main"]
        assert graph.snapshot().commit_id == genesis.commit_id
        assert {pin.row_count for pin in graph.snapshot().pins.values()} == {0}
    check_graph(root)


def test_a_second_init_is_refused_and_leaves_the_graph_alone(graph: Graph, root: str) -> None:
    before = graph.snapshot()
    with pytest.raises(AlreadyInitializedError, match="__manifest"):
        Graph.init(root, "node Other { x: String @key }")
    with pytest.raises(AlreadyInitializedError, match="__manifest"):
        Graph.init(root, "node Other { x: String @key }", force=True)
    with Graph.open(root) as again:
        assert again.schema == SCHEMA
        assert again.snapshot() == before


def test_an_init_beside_a_claimed_one_is_refused(root: str) -> None:
    location = parse_location(root)
    objects = ObstoreObjects(location, durable=False)
    with ExitStack() as other:
        if location.is_local:
            location.path.mkdir()
            other.enter_context(held_file(location.path / INIT_CLAIM))
        else:
            other.enter_context(
                LeaseCommitLock(objects, INIT_CLAIM, lease_s=2, renewal_s=0.05).held(0)
            )
        with pytest.raises(InitializationClaimedError):
            Graph.init(root, SCHEMA)
    Graph.init(root, SCHEMA).close()
    assert objects.read(INIT_CLAIM) is None
    check_graph(root)


@pytest.mark.parametrize(
    "left", [b'{"operation_id": "x"}', b"{", b'{"owner": "dead", "expires_at": 1}']
)
def test_the_claim_of_a_dead_init_blocks_nobody(root: str, left: bytes) -> None:
    objects = ObstoreObjects(parse_location(root), durable=False)
    objects.write(INIT_CLAIM, left)
    Graph.init(root, SCHEMA).close()
    assert objects.read(INIT_CLAIM) is None
    check_graph(root)


def test_where_no_graph_is_opening_says_how_to_make_one(root: str) -> None:
    for read_only in (False, True):
        with pytest.raises(NotFoundError, match=r"there is no graph at .* `omnigraph init`"):
            Graph.open(root, read_only=read_only)
    Graph.init(root, SCHEMA).close()


def test_inserts_upserts_updates_and_cascading_deletes_are_visible_together(
    graph: Graph, root: str
) -> None:
    graph.mutate(ADD_PAPER, {"doi": "a", "title": "A2"})
    updated = graph.mutate(READ, {"doi": "b", "n": 3})
    assert (updated.affected_nodes, updated.affected_edges) == (1, 0)
    assert rows(graph, "node:Paper", ["doi", "title", "reads"]) == [
        {"doi": "a", "title": "A2", "reads": None},
        {"doi": "b", "title": None, "reads": 3},
    ]
    deleted = graph.mutate(FORGET, {"doi": "a"})
    assert (deleted.affected_nodes, deleted.affected_edges) == (1, 1)
    assert values(graph, "node:Paper", "doi") == ["b"]
    assert rows(graph, "edge:Cites", ["src", "dst"]) == []
    check_graph(root)


def test_a_refused_mutation_leaves_no_trace(graph: Graph, root: str) -> None:
    before = graph.snapshot()
    with pytest.raises(BadRequestError, match="not found in Paper"):
        graph.mutate(ADD_CITING, {"doi": "c", "to": "nobody"})
    assert graph.snapshot() == before
    assert graph.mutate(READ, {"doi": "nobody", "n": 1}).commit is None
    assert graph.snapshot() == before
    check_graph(root)


def test_snapshots_and_commits_tell_the_history(graph: Graph) -> None:
    newest, middle, genesis = graph.commits()
    assert [c.graph_version for c in (genesis, middle, newest)] == [1, 2, 3]
    assert newest.tables == ("node:Paper", "edge:Cites")
    assert graph.commit(middle.commit_id) == middle
    assert [c.commit_id for c in graph.commits(actor="me")] == [genesis.commit_id]
    snapshot = graph.snapshot()
    assert snapshot.commit_id == newest.commit_id
    assert {key: pin.row_count for key, pin in snapshot.pins.items()} == {
        "node:Paper": 2,
        "node:Note": 0,
        "edge:Cites": 1,
    }
    with pytest.raises(NotFoundError):
        graph.commit("01ARZ3NDEKTSV4RRFFQ69G5FAV")


def test_an_open_graph_sees_what_another_one_writes(graph: Graph, root: str) -> None:
    with Graph.open(root) as other:
        other.mutate(ADD_PAPER, {"doi": "c", "title": "C"})
        assert values(graph, "node:Paper", "doi") == ["a", "b", "c"]
        graph.mutate(ADD_PAPER, {"doi": "d", "title": "D"})
        assert values(other, "node:Paper", "doi") == ["a", "b", "c", "d"]
    check_graph(root)


def test_a_stale_condition_is_refused(graph: Graph) -> None:
    seen = graph.snapshot().commit_id
    assert graph.mutate(READ, {"doi": "a", "n": 1}, if_commit=seen).commit is not None
    with pytest.raises(PreconditionFailedError):
        graph.mutate(READ, {"doi": "a", "n": 2}, if_commit=seen)
    assert values(graph, "node:Paper", "reads") == [1, None]


def test_a_branch_forks_only_the_tables_it_writes(graph: Graph, root: str) -> None:
    graph.create_branch("team/x")
    assert graph.snapshot("team/x").pins == graph.snapshot().pins
    graph.mutate(ADD_PAPER, {"doi": "c", "title": "C"}, branch="team/x")
    graph.mutate(ADD_PAPER, {"doi": "d", "title": "D"})
    pins = graph.snapshot("team/x").pins
    assert pins["node:Paper"].branch == "team/x"
    assert pins["edge:Cites"].branch is None
    assert values(graph, "node:Paper", "doi", "team/x") == ["a", "b", "c"]
    assert values(graph, "node:Paper", "doi") == ["a", "b", "d"]
    graph.mutate(FORGET, {"doi": "a"}, branch="team/x")
    assert rows(graph, "edge:Cites", ["src"], "team/x") == []
    assert rows(graph, "edge:Cites", ["src"]) == [{"src": "b"}]
    check_graph(root)


@pytest.mark.slow  # the same runs on a disk in the default run
def test_a_branch_of_a_branch_starts_where_its_base_is(graph: Graph, root: str) -> None:
    graph.create_branch("one")
    graph.mutate(ADD_NOTE, {"text": "one"}, branch="one")
    graph.create_branch("two", "one")
    graph.mutate(ADD_NOTE, {"text": "two"}, branch="two")
    graph.mutate(ADD_NOTE, {"text": "one again"}, branch="one")
    assert values(graph, "node:Note", "text", "two") == ["one", "two"]
    assert values(graph, "node:Note", "text", "one") == ["one", "one again"]
    assert values(graph, "node:Note", "text") == []
    with Graph.open(root) as again:
        assert again.branches() == ["main", "one", "two"]
        assert values(again, "node:Note", "text", "two") == ["one", "two"]
    with pytest.raises(BranchNotFoundError):
        graph.create_branch("three", "nowhere")
    with pytest.raises(BadRequestError, match="exists already"):
        graph.create_branch("two")
    check_graph(root)


@pytest.mark.parametrize("size", [0, 5, 200_000])
def test_a_blob_cell_comes_back_byte_for_byte(graph: Graph, root: str, size: int) -> None:
    data = bytes(number % 251 for number in range(size))
    text = "base64:" + base64.b64encode(data).decode()
    graph.mutate(ADD_SCAN, {"doi": "s", "scan": text})
    with Graph.open(root, read_only=True) as reader:
        assert reader.read_blob("node:Paper", "s", "scan") == data
        if size:
            assert reader.read_blob("node:Paper", "s", "scan", offset=1, length=3) == data[1:4]
            with pytest.raises(BlobRangeError):
                reader.read_blob("node:Paper", "s", "scan", offset=size)
        with pytest.raises(NotFoundError):
            reader.read_blob("node:Paper", "a", "scan")


def test_a_read_only_graph_refuses_to_write(graph: Graph, root: str) -> None:
    with Graph.open(root, read_only=True) as reader:
        with pytest.raises(BadRequestError, match="reading only"):
            reader.mutate(ADD_NOTE, {"text": "x"})
        assert values(reader, "node:Paper", "doi") == ["a", "b"]


def test_many_commits_fold_the_catalog_and_lose_nothing(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnigraph.commit.publisher.FOLD_THRESHOLD", 6)
    with Graph.init(root, SCHEMA) as graph:
        told = [graph.mutate(ADD_NOTE, {"text": f"{n:02}"}).commit for n in range(9)]
    with Graph.open(root) as graph:
        history = graph.commits()[::-1]
        assert [c.commit_id for c in history[1:]] == [c.commit_id for c in told if c is not None]
        assert values(graph, "node:Note", "text") == [f"{n:02}" for n in range(9)]
    check_graph(root)


def test_threads_that_insert_pairs_lose_and_double_nothing(graph: Graph, root: str) -> None:
    barrier = Barrier(3)

    def writer(who: int) -> list[str]:
        with Graph.open(root) as own:
            barrier.wait()
            made = [
                own.mutate(ADD_CITING, {"doi": f"{who}-{n}", "to": "a"}).commit for n in range(2)
            ]
        return [commit.commit_id for commit in made if commit is not None]

    with ThreadPoolExecutor(3) as pool:
        told = [commit for report in pool.map(writer, range(3)) for commit in report]
    names = [f"{who}-{n}" for who in range(3) for n in range(2)]
    assert values(graph, "node:Paper", "doi") == sorted([*names, "a", "b"])
    assert values(graph, "edge:Cites", "why") == sorted([*names, "b"])
    history = [commit.commit_id for commit in graph.commits()]
    assert len(told) == 6
    assert sorted(history[:6]) == sorted(told)
    assert graph.recoveries() == []
    check_graph(root)


@pytest.mark.slow  # threads that insert pairs race in the default run
def test_threads_that_count_lose_no_acknowledged_update(graph: Graph, root: str) -> None:
    barrier = Barrier(3)

    def writer(_: int) -> int:
        told = 0
        with Graph.open(root) as own:
            barrier.wait()
            while told < 2:
                seen = own.snapshot()
                count = rows(own, "node:Paper", ["doi", "reads"])[0]["reads"] or 0
                try:
                    own.mutate(READ, {"doi": "a", "n": count + 1}, if_commit=seen.commit_id)
                except (PreconditionFailedError, ExpectedVersionMismatchError):
                    continue
                told += 1
        return told

    with ThreadPoolExecutor(3) as pool:
        told = sum(pool.map(writer, range(3)))
    assert rows(graph, "node:Paper", ["doi", "reads"])[0] == {"doi": "a", "reads": told}
    assert told == 6
    assert graph.recoveries() == []
    check_graph(root)
