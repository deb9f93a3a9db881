"""Which state a read sees: heads, commits, graph versions, moments; on main and on branches."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from threading import Barrier, Event
from typing import Any

import pytest

from omnigraph.errors import (
    AmbiguousCommitError,
    BadRequestError,
    BranchNotFoundError,
    CommitNotFoundError,
    NotFoundError,
    PreconditionFailedError,
)
from omnigraph.graph.graph import Graph
from support.graphs import PEOPLE, new_graph, run
from support.subtests import each_case

NAMES = "query names() { match { $p: Person } return { $p.name as name } order { name } }"
EDGES = """
query edges() {
  match { $p: Person $p knows $q }
  return { $p.name as a, $q.name as b }
  order { a, b }
}
"""
ALONE = """
query alone() {
  match { $p: Person not { $p knows $_ } }
  return { $p.name as name }
  order { name }
}
"""
NOON = datetime(2100, 1, 1, 12, tzinfo=UTC)


def minute(number: float) -> datetime:
    return NOON + timedelta(minutes=number)


class World:
    """A graph whose publishes are one minute apart; `commits` maps graph versions to commit ids."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.version = 1
        self.commits = {1: graph.commits()[0].commit_id}

    def step(self, statements: str, branch: str = "main") -> str:
        return self._publish(lambda: run(self.graph, statements, branch)).commit.commit_id

    def fork(self, name: str, base: str = "main") -> None:
        self._publish(lambda: self.graph.create_branch(name, base))

    def _publish(self, act: Callable[[], Any]) -> Any:
        self.version += 1
        now = int(minute(self.version).timestamp()) * 1_000_000
        object.__setattr__(self.graph._core.environment, "clock", lambda: now)
        result = act()
        if hasattr(result, "commit"):
            assert result.commit.graph_version == self.version
            self.commits[self.version] = result.commit.commit_id
        return result


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Main and two branches, one of them made of the other; tests only read it.

    ==  ========  ==================================
     2  main      ada, bob, and ada knows bob
     3  main      cid
     4  side      created
     5  side      dan, and bob knows cid
     6  main      ada is deleted, with her edge
     7  deep      created from side
     8  deep      eve
     9  main      fay
    ==  ========  ==================================
    """
    with new_graph(tmp_path_factory.mktemp("targets"), PEOPLE) as graph:
        made = World(graph)
        made.step('insert Person { name: "ada" } insert Person { name: "bob" }insert Knows { from: "ada", to: "bob" }')
        made.step('insert Person { name: "cid" }')
        made.fork("side")
        made.step('insert Person { name: "dan" } insert Knows { from: "bob", to: "cid" }', "side")
        made.step('delete Person where name = "ada"')
        made.fork("deep", "side")
        made.step('insert Person { name: "eve" }', "deep")
        made.step('insert Person { name: "fay" }')
        yield made


def names(graph: Graph, **target: Any) -> str:
    """The first letters of all people."""
    return "".join(row["name"][0] for row in graph.query(NAMES, **target).to_pylist())


def edges(graph: Graph, **target: Any) -> list[str]:
    return [f"{row['a'][0]}{row['b'][0]}" for row in graph.query(EDGES, **target).to_pylist()]


# ---- heads


def test_the_default_is_the_head_of_main(world: World) -> None:
    assert names(world.graph) == "bcf"
    result = world.graph.query(NAMES)
    assert result.commit_id == world.commits[9]
    assert result.target.to_json() == {"branch": "main"}


@pytest.mark.parametrize(("branch", "people"), [("main", "bcf"), ("side", "abcd"), ("deep", "abcde")])
def test_a_branch_shows_its_head(world: World, branch: str, people: str) -> None:
    assert names(world.graph, branch=branch) == people
    result = world.graph.query(NAMES, branch=branch)
    assert result.commit_id == world.graph.snapshot(branch).commit_id
    assert result.to_json()["target"] == {"branch": branch}


def test_spaces_around_a_branch_name_do_not_matter(world: World) -> None:
    assert names(world.graph, branch=" side ") == "abcd"


def test_a_branch_that_does_not_exist_is_not_found(world: World) -> None:
    with pytest.raises(BranchNotFoundError) as caught:
        world.graph.query(NAMES, branch="nope")
    assert caught.value.branch == "nope"
    with pytest.raises(BadRequestError, match="is not a branch name"):
        world.graph.query(NAMES, branch="no such")


# ---- commits


@each_case(("version", "people"), [(1, ""), (2, "ab"), (3, "abc"), (5, "abcd"), (6, "bc"), (8, "abcde"), (9, "bcf")])
def test_a_snapshot_is_the_state_right_after_a_commit_of_any_branch(world: World, version: int, people: str) -> None:
    commit = world.commits[version]
    result = world.graph.query(NAMES, snapshot=commit)
    assert "".join(row["name"][0] for row in result.to_pylist()) == people
    assert result.commit_id == commit
    assert result.target.to_json() == {"snapshot": commit}


@each_case("commit", ["", "nope", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "mains"])
def test_an_unknown_commit_is_never_the_nearest_one(world: World, commit: str) -> None:
    with pytest.raises(NotFoundError, match="there is no commit"):
        world.graph.query(NAMES, snapshot=commit)


@each_case(
    "ask",
    [
        lambda graph, name: graph.commit(name).commit_id,
        lambda graph, name: graph.snapshot(snapshot=name).commit_id,
        lambda graph, name: graph.query(NAMES, snapshot=name).target.snapshot,
        lambda graph, name: graph.changes(name).cause.graph_commit_id,
        lambda graph, name: graph.diff(name, "main").old.commit_id,
        lambda graph, name: graph.diff("main", f" {name} ").new.commit_id,
        lambda graph, name: graph.export(io.StringIO(), snapshot=name).commit_id,
        lambda graph, name: graph.entity_at("node:Person", "ada", snapshot=name) and graph.commit(name).commit_id,
        lambda graph, name: graph.feed("side", start=f"after:{name}").blocks and graph.commit(name).commit_id,
    ],
)
def test_a_commit_is_named_by_its_beginning_or_its_end(world: World, ask: Callable[[Graph, str], str]) -> None:
    commit, others = world.commits[3], [it for it in world.commits.values() if it != world.commits[3]]
    length = next(n for n in range(4, 27) if not any(it.startswith(commit[:n]) for it in others))
    for name in (commit, commit[:length], commit[-8:], commit[-8:].lower()):
        assert ask(world.graph, name) == commit


def test_letters_that_name_several_commits_or_none_are_told_with_those_that_may_be_meant(world: World) -> None:
    newest_first = [world.commits[version] for version in sorted(world.commits, reverse=True)]
    with pytest.raises(AmbiguousCommitError, match="give more letters") as ambiguous:
        world.graph.commit(newest_first[0][:4])
    assert ambiguous.value.candidates == tuple(newest_first)
    commit = world.commits[3]
    slip = commit[-8:-1] + ("A" if commit[-1] != "A" else "B")
    with pytest.raises(CommitNotFoundError, match=f"there is no commit {slip}: did you mean {commit}?") as unknown:
        world.graph.query(NAMES, snapshot=slip)
    assert commit in unknown.value.candidates
    # Too few letters, and no letters of an id.
    for text in (commit[-3:], "not-a-commit"):
        with pytest.raises(BranchNotFoundError, match="it is not the id of a commit"):
            world.graph.diff(text, "main")


def test_a_branch_comes_before_a_commit_that_its_name_would_name(tmp_path) -> None:
    with new_graph(tmp_path, PEOPLE) as graph:
        first = graph.snapshot().commit_id
        graph.create_branch(first[-6:])
        run(graph, 'insert Person { name: "ada" }', first[-6:])
        assert graph.diff("main", first[-6:]).stats.inserts == 1
        assert graph.create_branch("again", first[-7:].lower()).base == first
        with pytest.raises(PreconditionFailedError):
            graph.mutate('query q() { insert Person { name: "x" } }', branch=first[-6:], if_commit=first[-6:])
        graph.mutate('query q() { insert Person { name: "x" } }', if_commit=first[-6:])


def test_an_unknown_branch_is_told_with_those_that_may_be_meant(world: World) -> None:
    for name, hint in (("sied", "did you mean `side`?"), ("zzz", "known here: `deep`, `main`, `side`")):
        with pytest.raises(BranchNotFoundError) as caught:
            world.graph.snapshot(name)
        assert caught.value.message == f"there is no branch `{name}`: {hint}"


def test_a_snapshot_has_no_branch(world: World) -> None:
    with pytest.raises(BadRequestError, match="give no branch with it"):
        world.graph.query(NAMES, snapshot=world.commits[5], branch="side")


# ---- graph versions


@each_case(
    ("branch", "version", "people", "commit"),
    [
        ("main", 1, "", 1),
        ("main", 2, "ab", 2),
        ("main", 3, "abc", 3),
        ("main", 4, "abc", 3),  # side was created
        ("main", 5, "abc", 3),  # published on side
        ("main", 6, "bc", 6),
        ("main", 8, "bc", 6),  # published on deep
        ("main", 9, "bcf", 9),
        ("side", 4, "abc", 3),  # at its creation
        ("side", 5, "abcd", 5),
        ("side", 6, "abcd", 5),  # published on main
        ("side", 9, "abcd", 5),
        ("deep", 7, "abcd", 5),
        ("deep", 8, "abcde", 8),
        ("deep", 9, "abcde", 8),
    ],
)
def test_a_version_is_the_state_of_the_branch_right_after_that_publish(
    world: World, branch: str, version: int, people: str, commit: int
) -> None:
    result = world.graph.query(NAMES, branch=branch, version=version)
    assert "".join(row["name"][0] for row in result.to_pylist()) == people
    assert result.commit_id == world.commits[commit]
    assert result.target.to_json() == {"branch": branch, "graph_version": version}
    assert str(result.target) == f"branch {branch} at graph version {version}"


@each_case(
    ("branch", "version", "first"),
    [
        ("main", 10, 1),
        ("main", 10**30, 1),
        ("main", 0, 1),
        ("main", -1, 1),
        ("side", 3, 4),
        ("side", 10, 4),
        ("deep", 6, 7),
    ],
)
def test_a_version_in_the_future_or_before_the_branch_is_an_error(
    world: World, branch: str, version: int, first: int
) -> None:
    message = f"branch {branch} has graph versions {first} to 9, not {version}"
    with pytest.raises(NotFoundError, match=message):
        world.graph.query(NAMES, branch=branch, version=version)


def test_a_version_of_an_unknown_branch_is_an_unknown_branch(world: World) -> None:
    with pytest.raises(BranchNotFoundError):
        world.graph.query(NAMES, branch="nope", version=2)


# ---- moments


@each_case(
    ("branch", "at", "people"),
    [
        ("main", 1.5, ""),
        ("main", 2, "ab"),
        ("main", 2.99, "ab"),
        ("main", 3, "abc"),
        ("main", 5, "abc"),
        ("main", 6, "bc"),
        ("main", 100, "bcf"),
        ("side", 2, "ab"),  # inherited from main
        ("side", 4.5, "abc"),
        ("side", 5, "abcd"),
        ("side", 6, "abcd"),
        ("deep", 3, "abc"),  # inherited over two branches
        ("deep", 7.5, "abcd"),
        ("deep", 8, "abcde"),
    ],
)
def test_a_moment_is_the_newest_commit_of_the_branch_until_then(
    world: World, branch: str, at: float, people: str
) -> None:
    moment = minute(at)
    naive = moment.replace(tzinfo=None)
    elsewhere = moment.astimezone(timezone(timedelta(hours=-5, minutes=-30)))
    spellings = [moment, naive, elsewhere, moment.isoformat(), naive.isoformat(), str(elsewhere)]
    assert {names(world.graph, branch=branch, as_of=item) for item in spellings} == {people}


def test_a_moment_is_exact_to_the_microsecond(world: World) -> None:
    just_before = minute(3) - timedelta(microseconds=1)
    assert names(world.graph, as_of=just_before) == "ab"
    assert names(world.graph, as_of=just_before.isoformat()) == "ab"
    assert names(world.graph, as_of="2100-01-01T12:03:00Z") == "abc"


@pytest.mark.parametrize("at", [datetime(1999, 1, 1), "1999-01-01", "0001-01-01T00:00:00+14:00"])
def test_a_moment_before_everything_is_an_error(world: World, at: datetime | str) -> None:
    for branch in ("main", "side"):
        with pytest.raises(NotFoundError, match=f"branch {branch} has no commit at or before"):
            world.graph.query(NAMES, branch=branch, as_of=at)


@each_case("text", ["", "yesterday", "2100-02-30", "12:00", "2100-01-01T25:00", "3"])
def test_a_text_that_is_no_time_is_refused(world: World, text: str) -> None:
    with pytest.raises(BadRequestError, match="is not a time of the form"):
        world.graph.query(NAMES, as_of=text)


@each_case(
    "target",
    [
        {"snapshot": "x", "version": 1},
        {"snapshot": "x", "as_of": "2100-01-01"},
        {"version": 1, "as_of": "2100-01-01"},
        {"snapshot": "x", "version": 1, "as_of": "2100-01-01"},
    ],
    ids="+".join,
)
def test_a_read_has_one_target(world: World, target: dict[str, Any]) -> None:
    with pytest.raises(BadRequestError, match="give one of snapshot, version and as_of"):
        world.graph.query(NAMES, **target)


def test_a_parameter_that_is_given_by_its_name_is_told_where_it_goes(world: World) -> None:
    state: dict[str, Any] = {"day": 1}
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'day': .*query\(text, \{'day': …\}\)"):
        world.graph.query(NAMES, **state)


# ---- what is seen there


@each_case(
    ("version", "found", "alone"), [(1, [], ""), (2, ["ab"], "b"), (3, ["ab"], "bc"), (6, [], "bc"), (9, [], "bcf")]
)
def test_traversals_and_negations_see_the_old_edges(world: World, version: int, found: list[str], alone: str) -> None:
    graph = world.graph
    assert edges(graph) == [], "the traversal index of the head is there first"
    assert edges(graph, branch="side") == ["ab", "bc"]
    assert edges(graph, version=version) == found
    rows = graph.query(ALONE, version=version).to_pylist()
    assert "".join(row["name"][0] for row in rows) == alone


def test_a_deleted_row_is_there_before_it_was_deleted(world: World) -> None:
    text = 'query one() { match { $p: Person { name: "ada" } } return { $p.name as name } }'
    graph = world.graph
    assert graph.query(text).row_count == 0
    assert graph.query(text, snapshot=world.commits[3]).row_count == 1
    assert graph.query(text, version=5).row_count == 1
    assert graph.query(text, as_of=minute(5)).row_count == 1
    assert graph.query(text, version=6).row_count == 0
    assert graph.query(text, branch="deep").row_count == 1


def test_every_reader_sees_the_same_past(world: World) -> None:
    with Graph.open(world.graph.uri, read_only=True) as fresh:
        for version in range(1, 10):
            assert names(fresh, version=version) == names(world.graph, version=version)
        assert edges(fresh, branch="side", version=5) == ["ab", "bc"]


def test_the_past_stays_while_the_head_moves(tmp_path) -> None:
    graph = new_graph(tmp_path, PEOPLE)
    run(graph, 'insert Person { name: "ada", age: 1 }')
    ages = "query ages() { match { $p: Person } return { $p.name as name, $p.age as age } order { name } }"
    past = graph.snapshot()
    for age in range(2, 6):
        run(graph, "update Person set { age: $a } where name = 'ada'".replace("'", '"'), a=age)
        run(graph, "insert Person { name: $n, age: 0 }", n=f"p{age}")
        graph.ensure_indices()
        for target in ({"snapshot": past.commit_id}, {"version": past.graph_version}):
            assert graph.query(ages, **target).to_pylist() == [{"name": "ada", "age": 1}]
        head = graph.query(ages).to_pylist()
        assert head[0] == {"name": "ada", "age": age}
        assert len(head) == age


def test_explain_takes_a_branch(world: World) -> None:
    assert "about 3 rows" in world.graph.explain(NAMES)
    assert "about 5 rows" in world.graph.explain(NAMES, branch="deep")
    with pytest.raises(BranchNotFoundError):
        world.graph.explain(NAMES, branch="nope")


# ---- Readers beside a writer: every answer is the truth of one commit


SCHEMA = """
node Left { k: I32 @key  round: I32 @index }
node Right { k: I32 @key  round: I32 }
edge Pair: Left -> Right
"""
#: Every write adds a pair and moves both sides to the next round, in two types and an edge type, as one commit.
WRITE = """
query next($k: I32) {
  insert Left { k: $k, round: $k }
  insert Right { k: $k, round: $k }
  insert Pair { from: $id, to: $id }
  update Left set { round: $k } where k >= 0
  update Right set { round: $k } where k >= 0
}
""".replace("($k: I32)", "($k: I32, $id: String)")
ROUNDS = 8
READERS = 4

#: Each query with its answer in round n.
QUERIES: list[tuple[str, Callable[[int], list[dict[str, Any]]]]] = [
    ("query counts() { match { $l: Left } return { count($l) as n } }", lambda n: [{"n": n}]),
    (
        "query both() { match { $l: Left $r: Right $l.round = $r.round } return { count($l) as n } }",
        lambda n: [{"n": n * n}],
    ),
    ("query torn() { match { $l: Left $r: Right $l.round != $r.round } return { $l.k, $r.k } }", lambda _: []),
    (
        "query pairs() { match { $l: Left $l pair $r } return { $l.k as a, $r.k as b } order { a } }",
        lambda n: [{"a": k, "b": k} for k in range(1, n + 1)],
    ),
    ("query single() { match { $l: Left not { $l pair $_ } } return { $l.k } }", lambda _: []),
    (
        "query current() { match { $l: Left } return { max($l.round) as m, min($l.round) as n } }",
        lambda n: [{"m": n, "n": n} if n else {"m": None, "n": None}],
    ),
    ("query one() { match { $l: Left { k: 1 } } return { $l.round as r } }", lambda n: [{"r": n}] if n else []),
    (
        "query filtered() { match { $r: Right $r.round > 0 } return { $r.k as k } order { k } }",
        lambda n: [{"k": k} for k in range(1, n + 1)],
    ),
]


@pytest.mark.parametrize(
    "own_handle", [pytest.param(False, id="one handle", marks=pytest.mark.slow), pytest.param(True, id="two handles")]
)
def test_every_answer_belongs_to_one_commit(tmp_path, own_handle: bool) -> None:
    graph = new_graph(tmp_path, SCHEMA)
    readers = Graph.open(graph.uri, read_only=True) if own_handle else graph
    round_of = {graph.snapshot().commit_id: 0}
    start, done = Barrier(READERS + 1), Event()

    def write() -> None:
        start.wait()
        try:
            for number in range(1, ROUNDS + 1):
                receipt = graph.mutate(WRITE, {"k": number, "id": str(number)})
                round_of[receipt.commit.commit_id] = number
                if number % 5 == 0:
                    indexed = graph.ensure_indices()
                    round_of[indexed.commit.commit_id] = number
        finally:
            done.set()

    def read(first: int) -> list[tuple[int, str, list[dict[str, Any]]]]:
        answers = []
        start.wait()
        turn = first
        finished = False
        while not finished or turn < first + len(QUERIES):
            finished = done.is_set()
            place = turn % len(QUERIES)
            result = readers.query(QUERIES[place][0])
            answers.append((place, result.commit_id, result.to_pylist()))
            turn += 1
        return answers

    with ThreadPoolExecutor(READERS + 1) as pool:
        writer = pool.submit(write)
        reading = [pool.submit(read, number) for number in range(READERS)]
        writer.result()
        answers = [answer for future in reading for answer in future.result()]
    seen = set()
    for place, commit_id, rows in answers:
        text, expected = QUERIES[place]
        number = round_of[commit_id]
        assert rows == expected(number), (text, number)
        seen.add(number)
    assert ROUNDS in seen, "everybody read on until after the last write"
    assert len(seen) > 1, "reads and writes overlapped"
    readers.close()


def test_readers_of_one_old_commit_agree(tmp_path) -> None:
    """Threads fill the same caches of the same snapshot at once."""
    graph = new_graph(tmp_path, SCHEMA)
    for number in range(1, 4):
        receipt = graph.mutate(WRITE, {"k": number, "id": str(number)})
        if number == 2:
            commit_id = receipt.commit.commit_id
    start = Barrier(READERS)

    def read(first: int) -> list[list[dict[str, Any]]]:
        start.wait()
        order = [(first + step) % len(QUERIES) for step in range(len(QUERIES))]
        found = {place: graph.query(QUERIES[place][0], snapshot=commit_id) for place in order}
        return [found[place].to_pylist() for place in range(len(QUERIES))]

    with ThreadPoolExecutor(READERS) as pool:
        answers = list(pool.map(read, range(READERS)))
    expected = [expect(2) for _, expect in QUERIES]
    assert answers == [expected] * READERS
