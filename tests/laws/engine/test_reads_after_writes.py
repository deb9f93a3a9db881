"""Reads of an open graph between writes, against a graph that is opened for each of them and knows nothing.

What an open graph keeps of a state is made from the state before: numbers, columns, keys and traversal indexes. Every
read that goes through them has to give what a first read gives, on whatever branch and at whatever state.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from omnigraph.engine.tables import adjacency, entities, kept_columns, numberings, traversal_index
from omnigraph.engine.tables.adjacency import Adjacency
from omnigraph.engine.tables.context import Context
from omnigraph.engine.tables.traversal_index import find_adjacency
from omnigraph.errors import (
    BadRequestError,
    BranchNotFoundError,
    ConflictError,
    HistoricalVersionReclaimedError,
    MergeConflictsError,
    NotFoundError,
)
from omnigraph.graph.graph import Graph
from omnigraph.graph.reads import query_context
from omnigraph.lang.query.ir import Direction

SCHEMA = """
node Person { name: String @key  age: I32?  tags: [String]? }
node City { name: String @key }
edge Knows: Person -> Person { since: I32? }
edge Lives: Person -> City
"""
PEOPLE = [f"p{number}" for number in range(7)]
CITIES = ["Oslo", "Rome"]
NAMES = st.sampled_from(PEOPLE)
BRANCHES = st.sampled_from(["main", "main", "one", "two"])
READS = [
    "match { $p: Person } return { $p, $p.name, $p.age, $p.tags } order { $p.name }",
    "match { $p: Person  $p.age > 2 } return { $p.name, $p.age } order { $p.name }",
    "match { $p: Person  $p knows $q } return { $p.name as a, $q.name as b } order { a, b }",
    "match { $p: Person  $p $e:knows $q } return { $p.name as a, $q.name as b, $e.@id, $e.since } order { $e.@id }",
    "match { $p: Person  $p knows $m  $m knows $q } return { $p.name as a, count($q) as n } order { a, n }",
    "match { $p: Person  $p <knows> $q } return { $p.name as a, $q.name as b } order { a, b }",
    "match { $p: Person  $q knows{1,4} $p } return { $p.name as a, $q.name as b } order { a, b }",
    "match { $c: City  $p lives $c  $p knows $q } return { $c.name as c, $q.name as b, $p.age } order { c, b, $p.age }",
    "match { $p: Person  $p knows $q } return { count($q) as n }",
]
KEYED = [
    "match { $p: Person { name: $name } } return { $p.age, $p.tags }",
    "match { $p: Person { name: $name }  $p knows $m  $m knows $q } return { $q.name as b } order { b }",
]


def answers(graph: Graph, **state: Any) -> list[Any]:
    found = [graph.query(text, **state).to_pylist() for text in READS]
    return found + [graph.query(text, {"name": name}, **state).to_pylist() for text in KEYED for name in PEOPLE]


@pytest.fixture(autouse=True)
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep everything of small graphs, and write patches out after a few changes."""
    monkeypatch.setenv("OMNIGRAPH_TRAVERSAL_MODE", "csr")
    monkeypatch.setattr(entities, "_USES_BEFORE_KEPT", 0)
    monkeypatch.setattr(numberings, "DEAD_NUMBERS", 6)
    monkeypatch.setattr(kept_columns, "PATCH_ROWS", 4)
    monkeypatch.setattr(adjacency, "PATCH_EDGES", 4)
    monkeypatch.setattr(traversal_index, "PERSIST_MIN_EDGES", 3)


class ReadsAfterWrites(RuleBasedStateMachine):
    """Writes of all kinds, and reads of all states between them."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.uri = self.folder / "g.omni"
        self.graph = Graph.init(self.uri, SCHEMA)
        self.commits: list[str] = []
        self.checks = 0

    def teardown(self) -> None:
        self.graph.close()
        shutil.rmtree(self.folder)

    @initialize(pairs=st.lists(st.tuples(NAMES, NAMES), min_size=4, max_size=9))
    def fill(self, pairs: list[tuple[str, str]]) -> None:
        texts = [f'insert City {{ name: "{name}" }}' for name in CITIES]
        texts += [
            f'insert Person {{ name: "{name}", age: {place}, tags: ["t{place}"] }}'
            for place, name in enumerate(PEOPLE[:5])
        ]
        texts += [f'insert Knows {{ from: "{a}", to: "{b}" }}' for a, b in pairs if a in PEOPLE[:5] and b in PEOPLE[:5]]
        texts.append('insert Lives { from: "p0", to: "Oslo" }')
        self.graph.mutate("\n".join(texts))
        self.check(branch="main")

    def check(self, **state: Any) -> None:
        self.checks += 1
        if self.checks % 2:
            # Every other time, so that what the open graph saved is read as well.
            shutil.rmtree(self.uri / "__derived", ignore_errors=True)
        with Graph.open(self.uri, read_only=True) as fresh:
            try:
                expected = answers(fresh, **state)
            except (NotFoundError, HistoricalVersionReclaimedError):
                assert "snapshot" in state, "only a past state may have been cleaned up"
                return
        assert answers(self.graph, **state) == expected

    def write(self, branch: str, text: str) -> None:
        if branch not in self.graph.branches():
            branch = "main"
        try:
            commit = self.graph.mutate(text, branch=branch).commit
        except BadRequestError:
            # A key that is taken, or an end that is not there.
            return
        if commit is not None:
            self.commits.append(commit.commit_id)
        self.check(branch=branch)

    @rule(branch=BRANCHES, name=NAMES, age=st.integers(0, 5))
    def insert_person(self, branch: str, name: str, age: int) -> None:
        self.write(branch, f'insert Person {{ name: "{name}", age: {age} }}')

    @rule(branch=BRANCHES, name=NAMES, age=st.integers(0, 5))
    def update_person(self, branch: str, name: str, age: int) -> None:
        self.write(branch, f'update Person set {{ age: {age}, tags: ["x", "{age}"] }} where name = "{name}"')

    @rule(branch=BRANCHES, name=NAMES)
    def delete_person(self, branch: str, name: str) -> None:
        self.write(branch, f'delete Person where name = "{name}"')

    @rule(branch=BRANCHES, pairs=st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=3))
    def insert_edges(self, branch: str, pairs: list[tuple[str, str]]) -> None:
        self.write(branch, "\n".join(f'insert Knows {{ from: "{a}", to: "{b}", since: 1 }}' for a, b in pairs))

    @rule(branch=BRANCHES, name=NAMES, since=st.integers(2, 5))
    def update_edges(self, branch: str, name: str, since: int) -> None:
        self.write(branch, f'update Knows set {{ since: {since} }} where from = "{name}"')

    @rule(branch=BRANCHES, name=NAMES, end=st.sampled_from(["from", "to"]))
    def delete_edges(self, branch: str, name: str, end: str) -> None:
        self.write(branch, f'delete Knows where {end} = "{name}"')

    @rule(branch=BRANCHES, name=NAMES, city=st.sampled_from(CITIES))
    def move(self, branch: str, name: str, city: str) -> None:
        self.write(branch, f'insert Lives {{ from: "{name}", to: "{city}" }}')

    @rule(name=st.sampled_from(["one", "two"]), base=BRANCHES)
    def create(self, name: str, base: str) -> None:
        if name not in self.graph.branches() and base in self.graph.branches():
            self.graph.create_branch(name, base)

    @rule(name=st.sampled_from(["one", "two"]))
    def delete(self, name: str) -> None:
        try:
            self.graph.delete_branch(name)
        except (BranchNotFoundError, BadRequestError):
            return

    @rule(source=BRANCHES, into=BRANCHES)
    def merge(self, source: str, into: str) -> None:
        if source == into or not {source, into} <= set(self.graph.branches()):
            return
        try:
            merged = self.graph.merge(source, into, strategy="theirs")
        except (ConflictError, BadRequestError, MergeConflictsError):
            return
        if merged.commit is not None:
            self.commits.append(merged.commit.commit_id)
        self.check(branch=into)

    @rule()
    def optimize(self) -> None:
        self.graph.optimize(engine="local")
        self.check(branch="main")

    @rule()
    def clean(self) -> None:
        self.graph.cleanup(keep=3, confirm=True)
        self.check(branch="main")

    @rule(number=st.integers(0, 30))
    def look_back(self, number: int) -> None:
        if self.commits:
            self.check(snapshot=self.commits[number % len(self.commits)])

    @rule(branch=BRANCHES)
    def write_out(self, branch: str) -> None:
        self.graph._core.caches.background.settle()
        if branch in self.graph.branches():
            self.check(branch=branch)


ReadsAfterWrites.TestCase.settings = settings(stateful_step_count=20, max_examples=6)
TestReadsAfterWrites = ReadsAfterWrites.TestCase


# ---- readers beside a writer


def test_readers_beside_a_writer_see_whole_states(tmp_path: Path) -> None:
    """Every commit adds a person with an edge from each of the others, or takes one away: counts tell the state."""
    with Graph.init(tmp_path / "g.omni", SCHEMA) as graph:
        start = "\n".join(f'insert Person {{ name: "{name}", age: 1 }}' for name in ("hub", "p0", "p1"))
        graph.mutate(start)
        stop = Event()
        failures: list[object] = []

        def read() -> None:
            text = "match { $h: Person { name: $name }  $p knows $h } return { count($p) as n, sum($p.age) as ages }"
            far = "match { $h: Person { name: $name }  $p knows{1,2} $h } return { count($p) as n }"
            while not stop.is_set():
                (row,) = graph.query(text, {"name": "hub"}).to_pylist()
                if row["n"] != (row["ages"] or 0):
                    failures.append(row)
                (row,) = graph.query(far, {"name": "hub"}).to_pylist()
                if row["n"] not in range(9):
                    failures.append(row)

        def guarded() -> None:
            try:
                read()
            except Exception as error:  # noqa: BLE001  # shown by the main thread
                failures.append(error)

        readers = [Thread(target=guarded) for _ in range(3)]
        for reader in readers:
            reader.start()
        try:
            for number in range(24):
                name = f"n{number % 6}"
                insert = f'insert Person {{ name: "{name}", age: 1 }}\ninsert Knows {{ from: "{name}", to: "hub" }}'
                graph.mutate(insert)
                if number % 3 == 2:
                    graph.mutate(f'delete Person where name = "{name}"')
                    graph.mutate(f'delete Person where name = "n{(number - 1) % 6}"')
                    graph.mutate(f'delete Person where name = "n{(number - 2) % 6}"')
        finally:
            stop.set()
            for reader in readers:
                reader.join()
        assert not failures
        graph._core.caches.background.settle()
        kept = answers(graph)
    with Graph.open(tmp_path / "g.omni", read_only=True) as fresh:
        assert kept == answers(fresh)


# ---- what is read, and what is shared


@pytest.fixture
def friends(tmp_path: Path) -> Iterator[Graph]:
    with Graph.init(tmp_path / "g.omni", SCHEMA) as graph:
        texts = [f'insert Person {{ name: "{name}", age: {place} }}' for place, name in enumerate(PEOPLE)]
        texts += [f'insert Knows {{ from: "{a}", to: "{b}" }}' for a in PEOPLE[:4] for b in PEOPLE[2:]]
        graph.mutate("\n".join(texts))
        answers(graph)
        yield graph


def context_of(graph: Graph) -> Context:
    return query_context(graph._core, graph.snapshot(), {}, {})


def index_of(graph: Graph) -> Adjacency:
    context = context_of(graph)
    return find_adjacency(context, context.catalog.edges["Knows"])


COMMITS = {
    "an edge": 'insert Knows { from: "p6", to: "p0" }',
    "an updated edge": 'update Knows set { since: 7 } where from = "p0"',
    "deleted edges": 'delete Knows where from = "p0"',
    "a node": 'insert Person { name: "new" }',
    "an updated node": 'update Person set { age: 40 } where name = "p1"',
    "a deleted node": 'delete Person where name = "p6"',
}


@pytest.mark.parametrize("text", COMMITS.values(), ids=COMMITS)
def test_the_first_read_after_a_commit_reads_no_table_whole(friends: Graph, text: str) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a whole table is read")

    with (
        mock.patch.object(entities, "read_rows", refuse),
        mock.patch.object(traversal_index, "scan_rows", refuse),
        mock.patch.object(traversal_index, "load_index", refuse),
    ):
        friends.mutate(text)
        kept = answers(friends)
    with Graph.open(friends.uri, read_only=True) as fresh:
        assert kept == answers(fresh)


def test_nothing_is_made_for_writers_that_nobody_reads_after(friends: Graph) -> None:
    friends.mutate(COMMITS["an edge"])
    with mock.patch.object(traversal_index, "read_come", side_effect=AssertionError("nobody asked")):
        friends.mutate(COMMITS["a node"])
        friends.mutate(COMMITS["a deleted node"])


def test_an_update_of_a_property_leaves_the_index_as_it_is(friends: Graph) -> None:
    before = index_of(friends)
    friends.mutate(COMMITS["an updated edge"])
    after = index_of(friends)
    assert after is not before
    assert np.shares_memory(after.side(Direction.OUT)._base.targets, before.side(Direction.OUT)._base.targets)
    assert after.side(Direction.OUT).targets.tolist() == before.side(Direction.OUT).targets.tolist()


@pytest.mark.parametrize(
    "text", [*KEYED[1:], "match { $p: Person { name: $name }  $p $e:knows $q } return { $e.since }"]
)
def test_a_walk_from_one_node_does_not_write_out_the_arrays(
    friends: Graph, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Otherwise the first read after a commit costs what all edges take."""
    monkeypatch.setattr(adjacency, "PATCH_EDGES", 1 << 20)
    friends.mutate("\n".join(f'insert Knows {{ from: "{a}", to: "{b}" }}' for a in PEOPLE for b in PEOPLE))
    answers(friends)
    friends.mutate('insert Person { name: "far" }')
    friends.mutate('insert Knows { from: "far", to: "p5" }\ninsert Knows { from: "p5", to: "far" }')
    before = index_of(friends)
    assert not before.is_written
    friends.query(text, {"name": "far"}).to_pylist()
    out = before.side(Direction.OUT)
    assert not out.is_written


def test_branches_of_equal_content_share_an_index(friends: Graph) -> None:
    friends.create_branch("same")
    context = query_context(friends._core, friends.snapshot(branch="same"), {}, {})
    assert find_adjacency(context, context.catalog.edges["Knows"]) is index_of(friends)


def test_whole_arrays_are_written_out_beside_readers_and_writers(friends: Graph) -> None:
    """A state that was made while the arrays were written out is put above them, and not above the old ones."""
    first = index_of(friends)
    friends.mutate(COMMITS["an edge"])
    second = index_of(friends)
    friends.mutate(COMMITS["deleted edges"])
    third = index_of(friends)
    expected = answers(friends)
    friends._core.caches.background.settle()
    second.write_out()
    rebased = third.rebased(second)
    assert rebased is not None or third.is_written
    if rebased is not None:
        for direction in (Direction.OUT, Direction.IN):
            for name in ("offsets", "targets", "distinct_offsets", "distinct_targets"):
                one, other = (getattr(item.side(direction), name).tolist() for item in (rebased, third))
                assert one == other
            assert rebased.side(direction)._base is second.side(direction).whole()
    assert second.rebased(third) is None, "a state does not follow from a later one"
    assert first.rebased(second) is None
    assert answers(friends) == expected


def test_a_closed_graph_makes_nothing_more(friends: Graph) -> None:
    background = friends._core.caches.background
    friends.close()
    assert background.is_closed
    assert not background.submit("late", lambda: pytest.fail("it was closed"))
