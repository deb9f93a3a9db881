"""What one writer does in a race; runs in a thread or in a process of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from omnigraph.commit.snapshot import Snapshot
from omnigraph.core.ids import TableKey
from omnigraph.errors import BadRequestError, ConflictError, OmniError, PreconditionFailedError
from omnigraph.graph.graph import Graph
from omnigraph.graph.open_graph import OpenGraph
from omnigraph.storage.datasets.tables import TableStore
from omnigraph.storage.lease import Tenure
from omnigraph.storage.location import parse_location
from omnigraph.storage.locks import CommitLock

SCHEMA = """
node Person { name: String @key  visits: I64? }
node Note { text: String }
node City0 { name: String @key  visits: I64 }
node City1 { name: String @key  visits: I64 }
node City2 { name: String @key  visits: I64 }
node City3 { name: String @key  visits: I64 }
node City4 { name: String @key  visits: I64 }
node City5 { name: String @key  visits: I64 }
node City6 { name: String @key  visits: I64 }
node City7 { name: String @key  visits: I64 }
edge Knows: Person -> Person { tag: String? }
edge Rates: Person -> Person { by: I64?  @key(src, dst) }
"""
#: Notes get a language; those that are there are English.
WITH_LANGUAGE = SCHEMA.replace("{ text: String }", "{ text: String  lang: String? }")
ENGLISH = {"Note.lang": '"en"'}

ADD_NOTE = "query add($text: String) { insert Note { text: $text } }"
ADD_PERSON = "query add($name: String) { insert Person { name: $name, visits: 0 } }"
ADD_PERSON_AND_EDGE = """
query add($name: String, $hub: String) {
    insert Person { name: $name }
    insert Knows { from: $name, to: $hub, tag: $name }
}
"""
ADD_EDGE = """
query add($from: String, $to: String, $tag: String) {
    insert Knows { from: $from, to: $to, tag: $tag }
}
"""
ADD_RATING = """
query add($from: String, $to: String, $by: I64) { insert Rates { from: $from, to: $to, by: $by } }
"""
DELETE_PERSON = "query drop($name: String) { delete Person where name = $name }"
SET_VISITS = """
query set($name: String, $visits: I64) { update Person set { visits: $visits } where name = $name }
"""

COUNT_VISIT = """
query count($name: String) { match { $p: Person { name: $name } } update $p set { visits: $p.visits + 1 } }
"""
NOTE_WHILE_OPEN = """
query note($text: String) {
    match { $p: Person { name: "hub", visits: 0 } }
    insert Note { text: $text }
}
"""
#: The number of the writer that ends what the others wait for: the same in every crew.
LAST_OF_ALL = 5

#: A bound against endless loops, far above what any race needs.
MOST_TRIES = 3_000

Outcome = dict[str, Any]


def table_rows(graph: Graph, snapshot: Snapshot, key: str, columns: list[str]) -> list[dict[str, Any]]:
    """The rows of one table of a snapshot, read from the dataset itself."""
    pin = snapshot.pins[TableKey(key)]
    store = TableStore(parse_location(graph.uri))
    rows: list[dict[str, Any]] = store.open(pin.location, pin.branch, pin.version).read(columns).to_pylist()
    return rows


def attempt(call: Callable[[], Any], **told: Any) -> Outcome:
    """Run one operation; its receipt with what else is to be told, or its typed failure."""
    try:
        result = call()
    except OmniError as error:
        return {
            "error": type(error).__name__,
            "message": error.message,
            "exit_code": error.exit_code,
            "details": error.details(),
            "lost": isinstance(error, ConflictError | PreconditionFailedError),
            "refused": isinstance(error, BadRequestError),
        }
    commit = getattr(result, "commit", None)
    if commit is not None:
        told |= {"commit": commit.commit_id, "parent": commit.parent_id, "graph_version": commit.graph_version}
    return {name: getattr(result, name) for name in _TOLD if hasattr(result, name)} | told


#: What receipts of mutations, merges and schema changes say, beside their commit.
_TOLD = ("branch", "affected_nodes", "affected_edges", "outcome", "branch_deleted", "applied")


def until_acknowledged(call: Callable[[], Any], outcomes: list[Outcome]) -> Outcome:
    """Submit again what was lost, as a caller with exit code 75 would; any other failure ends it."""
    for _ in range(MOST_TRIES):
        outcome = attempt(call)
        outcomes.append(outcome)
        if not outcome.get("lost"):
            return outcome
    raise AssertionError(f"lost {MOST_TRIES} times in a row")


def insert_notes(graph: Graph, who: int, count: int, branch: str = "main") -> list[Outcome]:
    """Rows without a key: a repeated insert would show as a second row."""
    outcomes: list[Outcome] = []
    for number in range(count):
        text = {"text": f"{who}-{number}"}
        until_acknowledged(lambda text=text: graph.mutate(ADD_NOTE, text, branch=branch), outcomes)
    return outcomes


def insert_pairs(graph: Graph, who: int, count: int, branch: str = "main") -> list[Outcome]:
    """A node and an edge in every mutation."""
    outcomes: list[Outcome] = []
    for number in range(count):
        pair = {"name": f"{who}-{number}", "hub": "hub"}
        until_acknowledged(lambda pair=pair: graph.mutate(ADD_PERSON_AND_EDGE, pair, branch=branch), outcomes)
    return outcomes


def write_own_table(graph: Graph, who: int, count: int) -> list[Outcome]:
    """Insert into a table that nobody else touches, then update the row; nothing is submitted twice."""
    insert = f'query add() {{ insert City{who} {{ name: "c", visits: 0 }} }}'
    update = f'query set($visits: I64) {{ update City{who} set {{ visits: $visits }} where name = "c" }}'
    outcomes = [attempt(lambda: graph.mutate(insert))]
    outcomes += [attempt(lambda n=n: graph.mutate(update, {"visits": n})) for n in range(1, count)]
    return outcomes


def write_own_branch(graph: Graph, who: int, count: int) -> list[Outcome]:
    """Make a branch and update one row on it; nothing is submitted twice."""
    branch = f"team/{who}"
    graph.create_branch(branch)
    return [
        attempt(lambda n=n: graph.mutate(SET_VISITS, {"name": "hub", "visits": n}, branch=branch))
        for n in range(1, count + 1)
    ]


def increment(graph: Graph, who: int, count: int, branch: str = "main") -> list[Outcome]:
    """Read, add one, write back on the condition that nobody wrote meanwhile."""

    def step() -> Any:
        snapshot = graph.snapshot(branch)
        (row,) = table_rows(graph, snapshot, "node:Person", ["visits"])
        value = {"name": "hub", "visits": row["visits"] + 1}
        return graph.mutate(SET_VISITS, value, branch=branch, if_commit=snapshot.commit_id)

    outcomes: list[Outcome] = []
    for _ in range(count):
        until_acknowledged(step, outcomes)
    return outcomes


def increment_by_match(graph: Graph, who: int, count: int) -> list[Outcome]:
    """Add one to what a match reads: what was read is fenced, so no condition is given."""
    outcomes: list[Outcome] = []
    for _ in range(count):
        until_acknowledged(lambda: graph.mutate(COUNT_VISIT, {"name": "hub"}), outcomes)
    return outcomes


def write_while_open(graph: Graph, who: int, count: int) -> list[Outcome]:
    """All but the last writer note something as long as the hub has no visits; the last one ends that.

    What the match reads and what the statement writes are rows of different types.
    """
    outcomes: list[Outcome] = []
    if who == LAST_OF_ALL:
        until_acknowledged(lambda: graph.mutate(SET_VISITS, {"name": "hub", "visits": 1}), outcomes)
        return outcomes
    for number in range(count):
        until_acknowledged(lambda n=number: graph.mutate(NOTE_WHILE_OPEN, {"text": f"{who}-{n}"}), outcomes)
    return outcomes


def insert_edges(graph: Graph, who: int, count: int) -> list[Outcome]:
    """One edge from every person in turn; a person that is gone refuses it."""
    outcomes: list[Outcome] = []
    for number in range(count):
        edge = {"from": f"p{number}", "to": "hub", "tag": f"{who}-{number}"}
        until_acknowledged(lambda edge=edge: graph.mutate(ADD_EDGE, edge), outcomes)
    return outcomes


def rate_alike(graph: Graph, who: int, count: int) -> list[Outcome]:
    """Everybody inserts the same edges, which have a key."""
    outcomes: list[Outcome] = []
    for number in range(count):
        edge = {"from": f"p{number}", "to": "hub", "by": who}
        until_acknowledged(lambda edge=edge: graph.mutate(ADD_RATING, edge), outcomes)
    return outcomes


def append_alike(graph: Graph, who: int, count: int) -> list[Outcome]:
    """Everybody brings the same edges by loads that may not replace any; nothing is submitted twice."""
    records = [{"from": f"p{number}", "to": "hub", "by": who} for number in range(count)]
    return [
        attempt(lambda record=record: graph.load(frames={"Rates": [record]}, mode="append", engine="local"))
        for record in records
    ]


def delete_persons(graph: Graph, who: int, names: list[str]) -> list[Outcome]:
    """Delete persons with all of their edges."""
    outcomes: list[Outcome] = []
    for name in names:
        until_acknowledged(lambda name=name: graph.mutate(DELETE_PERSON, {"name": name}), outcomes)
    return outcomes


def edges_against_deletes(graph: Graph, who: int, count: int) -> list[Outcome]:
    """Even writers insert edges, odd ones delete their sources."""
    if who % 2 == 0:
        return insert_edges(graph, who, count)
    mine = [f"p{number}" for number in range(count) if number % 4 == who // 2]
    return delete_persons(graph, who, mine)


class AnnouncingLock:
    """A commit lock that leaves a mark before it waits, so that a test knows who stands at the door."""

    def __init__(self, inner: CommitLock, mark: Path) -> None:
        self._inner = inner
        self._mark = mark

    @contextmanager
    def held(self, timeout_s: float) -> Iterator[Tenure]:
        self._mark.touch()
        with self._inner.held(timeout_s) as tenure:
            yield tenure


def with_lock(graph: Graph, lock: CommitLock) -> Graph:
    """The same graph with another commit lock."""
    environment = dataclasses.replace(graph._core.environment, lock=lock)
    return Graph(OpenGraph(environment, graph._core.settings, read_only=False))


def update_at_the_door(graph: Graph, who: int, name: str, visits: int, marks: str) -> list[Outcome]:
    """One update, announced when it is prepared and waits for the commit window."""
    lock = AnnouncingLock(graph._core.environment.lock, Path(marks) / f"{who}")
    private = with_lock(graph, lock)
    return [attempt(lambda: private.mutate(SET_VISITS, {"name": name, "visits": visits + who}))]


def create_branch(graph: Graph, who: int, name: str, base: str = "main") -> list[Outcome]:
    return [attempt(lambda: graph.create_branch(name, base), created=name)]


def delete_branch(graph: Graph, who: int, name: str) -> list[Outcome]:
    return [attempt(lambda: graph.delete_branch(name), deleted=name)]


def merge(graph: Graph, who: int, source: str, into: str = "main", count: int = 1, **options: Any) -> list[Outcome]:
    """The same merge, so often; none is submitted again."""
    return [attempt(lambda: graph.merge(source, into, **options), branch=into) for _ in range(count)]


def change_schema(graph: Graph) -> Outcome:
    """One change, never submitted again."""
    return attempt(lambda: graph.apply_schema(WITH_LANGUAGE, backfill=ENGLISH, engine="local"), branch="main")


def read_notes(graph: Graph, count: int) -> list[Outcome]:
    """Read again and again through one handle, with a question that fits both schemas."""
    outcomes: list[Outcome] = []
    for _ in range(count):
        is_new = graph.schema == WITH_LANGUAGE
        rows = graph.query("query all() { match { $n: Note } return { $n.text as text } }")
        outcomes.append({"is_new": is_new, "rows": len(rows.to_pylist())})
    return outcomes


def change_beside_writers(graph: Graph, who: int, count: int) -> list[Outcome]:
    """Two make the same change, one reads, the others write."""
    if who < 2:
        return [change_schema(graph)]
    if who == 2:
        return read_notes(graph, count)
    return insert_notes(graph, who, count)


def change_beside_branches(graph: Graph, who: int) -> list[Outcome]:
    """One changes the schema, one makes a branch; the others do nothing."""
    if who == 0:
        return [change_schema(graph)]
    return create_branch(graph, who, "dev") if who == 1 else []


def initialize(root: str, who: int) -> list[Outcome]:
    """Everybody creates the same graph."""
    return [attempt(lambda: Graph.init(root, SCHEMA, actor=f"init-{who}").close(), created=who)]


JOBS: dict[str, Callable[..., list[Outcome]]] = {
    job.__name__: job
    for job in (
        insert_notes,
        insert_pairs,
        write_own_table,
        write_own_branch,
        increment,
        increment_by_match,
        write_while_open,
        edges_against_deletes,
        rate_alike,
        append_alike,
        update_at_the_door,
        create_branch,
        delete_branch,
        merge,
        change_beside_writers,
        change_beside_branches,
    )
}


def run_job(name: str, root: str, who: int, arguments: dict[str, Any]) -> list[Outcome]:
    """Run a job on a graph of its own."""
    if name == "initialize":
        return initialize(root, who)
    with Graph.open(root) as graph:
        return JOBS[name](graph, who, **arguments)


# ---- A writer that stands before the commit window while another one goes through


class OvertakenLock:
    """A commit lock some of whose takers are overtaken: another one acts just before they enter."""

    def __init__(self, inner: CommitLock, overtake: Callable[[], object], taker: int, times: int) -> None:
        self._inner = inner
        self._overtake = overtake
        self._takers = range(taker, taker + times)
        #: How often it was taken.
        self.taken = 0

    @property
    def can_be_lost(self) -> bool:
        return self._inner.can_be_lost

    @contextmanager
    def held(self, timeout_s: float) -> Iterator[Tenure]:
        self.taken += 1
        if self.taken in self._takers:
            self._overtake()
        with self._inner.held(timeout_s) as tenure:
            yield tenure


def overtaken(graph: Graph, overtake: Callable[[Graph], object], write: int = 1, times: int = 1) -> Graph:
    """A second view of the graph, whose first write, or later ones, are overtaken by `overtake`."""
    other = Graph.open(graph.uri)
    return with_lock(graph, OvertakenLock(graph._core.environment.lock, lambda: overtake(other), write, times))
