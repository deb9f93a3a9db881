"""The kinds of writes that are killed or fail: what they do, the places that they pass, what has to hold then."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pytest

from omnigraph.commit.rows import GraphCommit
from omnigraph.commit.sweep import RECOVERY_ACTOR
from omnigraph.core.failpoints import Failpoint as F
from omnigraph.graph.graph import Graph
from omnigraph.storage.datasets.indexes import list_indexes
from support.killed_writers import (
    ACTOR,
    NEXT,
    Before,
    Contents,
    check_sound,
    content,
    contents,
    every_commit,
    make_base,
    of_main,
    reclaim,
    sidecars,
    table_files,
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the next one finds after a death."""

    happened: bool
    #: The kind of the record that a recovery left.
    audit: str | None
    #: The actors of the commits that the interrupted write, or its recovery, added.
    added: tuple[str, ...]
    #: How many tables have moved for good, where a write keeps what it finished.
    kept: int | None = None

    @property
    def is_published(self) -> bool:
        """Whether the write itself came to its publish."""
        return self.added == (ACTOR,)


NOTHING = Outcome(False, None, ())
FORGOTTEN = Outcome(False, "RolledBack", ())
ROLLED_BACK = Outcome(False, "RolledBack", (RECOVERY_ACTOR,))
ROLLED_FORWARD = Outcome(True, "RolledForward", (RECOVERY_ACTOR,))
FINISHED = Outcome(True, "RolledForward", (ACTOR,))
COMPLETE = Outcome(True, None, (ACTOR,))

#: Places in the order in which a write passes them, with what a death there leads to.
Places = list[tuple[str, Outcome]]
SIDECAR: Places = [(F.BEFORE_SIDECAR, NOTHING), (F.SIDECAR_WRITE, NOTHING), (F.AFTER_SIDECAR, FORGOTTEN)]


def table_commits(tables: int, undone: Outcome = ROLLED_BACK, complete: Outcome = ROLLED_FORWARD) -> Places:
    """The places before and after the commit of every table."""
    cells = []
    for number in range(1, tables + 1):
        before = FORGOTTEN if number == 1 else undone
        after = complete if number == tables else undone
        cells.append((f"{F.BEFORE_TABLE_COMMIT}@{number}", before))
        cells.append((f"{F.AFTER_TABLE_COMMIT}@{number}", after))
    return cells


def publishing(complete: Outcome = ROLLED_FORWARD) -> Places:
    """The places from the publish to the end of a write."""
    return [
        (F.BEFORE_PUBLISH, complete),
        (F.BEFORE_CATALOG_COMMIT, complete),
        (F.AFTER_PUBLISH, FINISHED),
        (F.SIDECAR_DELETE, FINISHED),
        (F.AFTER_SIDECAR_DELETE, COMPLETE),
    ]


def numbered(place: F, count: int, outcome: Outcome) -> Places:
    return [(f"{place}@{number}", outcome) for number in range(1, count + 1)]


@dataclass(frozen=True, kw_only=True, eq=False)
class Write:
    """One kind of write, how many tables it moves, and where the default run kills it or makes it fail."""

    name: str
    tables: int
    branch: str = "main"
    killed_at: tuple[str, ...] = ()
    failing_at: tuple[str, ...] = ()
    #: What its commits and the records of its recovery call it.
    kind: ClassVar[str]
    #: The method of a graph that does it.
    action: ClassVar[str]

    def __str__(self) -> str:
        return self.name

    def make(self, root: Path) -> Path:
        """The graph that it begins at."""
        return make_base(root)

    def options(self, root: Path) -> dict[str, Any]:
        raise NotImplementedError

    def job(self, root: Path) -> dict[str, Any]:
        """What a child does."""
        return {"action": self.action, "root": str(root), "actor": ACTOR, **self.options(root)}

    def run(self, graph: Graph) -> Any:
        return getattr(graph, self.action)(actor=ACTOR, **self.options(Path(graph.uri)))

    def places(self) -> Places:
        return [*SIDECAR, *table_commits(self.tables), *publishing()]

    def outcome_at(self, place: str) -> Outcome:
        return {str(name): outcome for name, outcome in self.places()}[place]

    def recorded_tables(self) -> int:
        return self.tables

    def check_receipt(self, receipt: Any) -> None:
        """What an undisturbed write gives back."""
        assert receipt.commit is not None

    def changes_rows(self) -> bool:
        return self.tables > 0

    def check_reader(self, root: Path, before: Before, *, is_published: bool) -> None:
        """What a reader sees before anything is settled."""

    def check_added(self, graph: Graph, commit: GraphCommit, outcome: Outcome) -> None:
        """What holds of a commit that the write or its recovery added."""

    def check_left(self, root: Path, before: Before, outcome: Outcome) -> None:
        """What is left of it after it was settled, or undone."""

    def check_goes_on(self, root: Path, before: Before, outcome: Outcome, after: Contents) -> None:
        """The same write again ends as an undisturbed one does, and other writes work."""
        raise NotImplementedError


def check_settled(root: Path, before: Before, write: Write, outcome: Outcome, after: Contents) -> None:
    """Opening settles: all of the write is there or nothing, with one commit and one record at most."""
    assert (before.content != after) is write.changes_rows()
    with Graph.open(root) as graph:
        commits, records = every_commit(graph), graph.recoveries()
        assert [commit.commit_id for commit in commits[: len(before.commits)]] == before.commits
        added = commits[len(before.commits) :]
        assert tuple(commit.actor for commit in added) == outcome.added
        for commit in added:
            assert (commit.branch, commit.kind) == (write.branch, write.kind if outcome.happened else "rollback")
            assert commit.recovery_for_actor == (ACTOR if commit.actor == RECOVERY_ACTOR else None)
            write.check_added(graph, commit, outcome)
    check_sound(root)
    assert contents(root) == (after if outcome.happened else before.content)
    assert [record.recovery_kind for record in records] == ([] if outcome.audit is None else [outcome.audit])
    for record in records:
        assert (record.writer_kind, record.recovery_for_actor) == (write.kind, ACTOR)
        assert record.graph_commit_id == (added[0].commit_id if added else None)
        assert len(record.tables) == write.recorded_tables()
    write.check_left(root, before, outcome)


# ---- mutations


@dataclass(frozen=True, kw_only=True, eq=False)
class Mutation(Write):
    query: str
    kind = "mutation"
    action = "mutate"

    def options(self, root: Path) -> dict[str, Any]:
        return {"text": self.query, "branch": self.branch}

    def check_goes_on(self, root: Path, before: Before, outcome: Outcome, after: Contents) -> None:
        check_next_writes(root, self, after)


def check_next_writes(root: Path, write: Mutation, after: Mapping[str, Any]) -> None:
    """A repetition of the mutation, and another one, succeed and are in the history once."""
    with Graph.open(root) as graph:
        repeated = write.run(graph)
        assert contents(root) == after
        acknowledged = [] if repeated.commit is None else [repeated.commit.commit_id]
        further = graph.mutate(NEXT, branch=write.branch)
        assert further.commit is not None
        acknowledged.append(further.commit.commit_id)
        history = [commit.commit_id for commit in graph.commits(write.branch)]
        assert history[: len(acknowledged)] == acknowledged[::-1]
        assert all(history.count(commit_id) == 1 for commit_id in acknowledged)
        names = [row["name"] for row in content(root, write.branch)["node:Person"]]
        assert names.count("zoe") == 1
    check_sound(root)


#: One writer dies everywhere: what follows the sidecar is the same for all. The others die in and after their commit.
INSERT = Mutation(
    name="insert",
    query='query w() { insert Person { name: "dan", age: 1 } insert City { name: "bonn" } }',
    tables=2,
    killed_at=tuple(str(place) for place, _ in [*SIDECAR, *table_commits(2), *publishing()]),
    failing_at=(
        *(F.AFTER_SIDECAR, "before_table_commit@1", "before_table_commit@2", "after_table_commit@1"),
        *("after_table_commit@2", F.BEFORE_PUBLISH, F.BEFORE_CATALOG_COMMIT, F.AFTER_PUBLISH),
    ),
)
UPSERT = Mutation(
    name="upsert",
    query='query w() { insert Person { name: "ann", age: 31 } insert City { name: "oslo", size: 8 } '
    'insert LivesIn { from: "ann", to: "oslo", year: 9 } }',
    tables=3,
    killed_at=("after_table_commit@1", "after_table_commit@3"),
)
UPDATE = Mutation(
    name="update",
    query='query w() { update Person set { age: 9 } where name = "bob" '
    'update City set { size: 5 } where name = "rome" }',
    tables=2,
    killed_at=(F.BEFORE_PUBLISH,),
    failing_at=("after_table_commit@1",),
)
DELETE = Mutation(
    name="delete_with_cascade",
    query='query w() { delete Person where name = "bob" }',
    tables=3,
    killed_at=("after_table_commit@2", "after_table_commit@3"),
    failing_at=("after_table_commit@2", F.BEFORE_PUBLISH),
)
FORK = Mutation(
    name="first_write_on_a_branch",
    query='query w() { insert Person { name: "eve", age: 2 } insert City { name: "lund" } }',
    tables=2,
    branch="dev",
    killed_at=(F.AFTER_SIDECAR, "after_table_commit@1", F.BEFORE_PUBLISH),
    failing_at=("before_table_commit@1", "after_table_commit@1", F.BEFORE_PUBLISH, F.AFTER_PUBLISH),
)
MUTATIONS = (INSERT, UPSERT, UPDATE, DELETE, FORK)


# ---- loads


NODES = [
    {"type": "Person", "data": {"name": "dan", "age": 1}},
    {"type": "Person", "data": {"name": "eve", "age": 2}},
    {"type": "City", "data": {"name": "bonn", "size": 3}},
]
EDGES = [
    {"edge": "LivesIn", "from": "dan", "to": "bonn"},
    {"edge": "Knows", "from": "eve", "to": "ann", "data": {"since": 3}},
]
REPLACED = [
    *({"type": "Person", "data": {"name": name, "age": 9}} for name in ("ann", "bob", "cid")),
    *({"type": "City", "data": {"name": name, "size": 9}} for name in ("oslo", "rome")),
    # An edge with a key, which exists.
    {"edge": "LivesIn", "from": "ann", "to": "oslo", "data": {"year": 9}},
]


@dataclass(frozen=True, kw_only=True, eq=False)
class Load(Write):
    """One kind of load; it moves all four tables."""

    mode: str
    records: tuple[dict[str, Any], ...] = (*NODES, *EDGES)
    base: str | None = None
    tables: int = 4
    kind = "load"
    action = "load"

    def options(self, root: Path) -> dict[str, Any]:
        source = root.with_name(f"{root.name}-{self}.jsonl")
        source.write_text("".join(json.dumps(record) + "\n" for record in self.records))
        chosen = {"mode": self.mode, "branch": self.branch, "base": self.base}
        return {"source": str(source), "engine": "local", **chosen}

    def places(self) -> Places:
        # A branch that is not there has no commits: until its publish, a load that makes it has not happened.
        undone, complete = (FORGOTTEN, FORGOTTEN) if self.base else (ROLLED_BACK, ROLLED_FORWARD)
        patch = (F.PATCH_VALUES_WRITTEN,) if self.mode == "patch" else ()
        own = (F.LOAD_PLANNED, F.LOAD_FRAGMENTS_WRITTEN, F.LOAD_IDENTIFIED, *patch, F.LOAD_CHECKED)
        commits = table_commits(self.tables, undone, complete)
        return [*((place, NOTHING) for place in own), *SIDECAR, *commits, *publishing(complete)]

    def recorded_tables(self) -> int:
        # Of a branch that the load makes, a record tells no tables.
        return 0 if self.base else self.tables

    def check_left(self, root: Path, before: Before, outcome: Outcome) -> None:
        """One reclaim removes every file that the dead load left; where nothing happened, all that it wrote."""
        reclaim(root)
        assert reclaim(root, preview=True) == set()
        if outcome == NOTHING:
            assert of_main(table_files(root) - table_files(before.root)) == set()

    def check_goes_on(self, root: Path, before: Before, outcome: Outcome, after: Contents) -> None:
        with Graph.open(root) as graph:
            if not outcome.happened or self.mode == "overwrite":
                self.run(graph)
            assert contents(root) == after
            graph.mutate(NEXT, branch=self.branch)
            Load(name="more", mode="merge", records=UPSERT_LOAD.records, branch=self.branch).run(graph)
        rows = {row["name"]: row["age"] for row in content(root, self.branch)["node:Person"]}
        assert rows == {"ann": 9, "bob": 9, "cid": 9, "dan": 1, "eve": 2, "zoe": None}
        check_sound(root)


APPEND = Load(
    name="append",
    mode="append",
    killed_at=(F.LOAD_FRAGMENTS_WRITTEN, "after_table_commit@1"),
    failing_at=(F.BEFORE_SIDECAR, "after_table_commit@2", F.BEFORE_PUBLISH),
)
UPSERT_LOAD = Load(
    name="merge",
    mode="merge",
    records=(*REPLACED, *NODES, *EDGES),
    killed_at=(F.LOAD_IDENTIFIED, F.LOAD_CHECKED, "after_table_commit@4"),
    failing_at=(F.SIDECAR_WRITE, "after_table_commit@2", F.BEFORE_PUBLISH),
)
PATCH = Load(
    name="patch",
    mode="patch",
    records=tuple(REPLACED),
    tables=3,
    killed_at=(F.LOAD_IDENTIFIED, F.PATCH_VALUES_WRITTEN, F.LOAD_CHECKED, "after_table_commit@1", F.BEFORE_PUBLISH),
    failing_at=(F.PATCH_VALUES_WRITTEN, "after_table_commit@1", F.BEFORE_PUBLISH),
)
OVERWRITE = Load(
    name="overwrite",
    mode="overwrite",
    records=(*REPLACED, *NODES, *EDGES),
    killed_at=(F.LOAD_PLANNED, "after_table_commit@2", F.BEFORE_CATALOG_COMMIT),
    failing_at=(F.BEFORE_SIDECAR, F.SIDECAR_WRITE, "after_table_commit@2", F.BEFORE_PUBLISH),
)
FORK_LOAD = Load(
    name="first_load_on_a_branch", mode="append", branch="dev", killed_at=("after_table_commit@3", F.BEFORE_PUBLISH)
)
NEW_BRANCH = Load(
    name="load_of_a_new_branch",
    mode="append",
    branch="new",
    base="main",
    killed_at=("after_table_commit@2", F.BEFORE_PUBLISH, F.AFTER_PUBLISH),
)
LOADS = (APPEND, UPSERT_LOAD, PATCH, OVERWRITE, FORK_LOAD, NEW_BRANCH)


# ---- merges


#: What happened on the source: rows come, change and go in all four tables.
ON_DEV = (
    'query a() { insert Person { name: "dan", age: 1 } insert City { name: "bonn" }'
    ' insert LivesIn { from: "dan", to: "bonn" } insert Person { name: "ann", age: 31 } }',
    'query b() { delete Person where name = "cid" }',
)
#: What happened on main meanwhile.
ON_MAIN = 'query c() { insert Person { name: "eve" } insert City { name: "rome", size: 9 } }'


def make_diverged(root: Path) -> Path:
    """The seeded graph with work on `dev`, on main and, in vain, on `zero`."""
    make_base(root)
    with Graph.open(root) as graph:
        graph.create_branch("side")
        graph.create_branch("zero")
        for query in ON_DEV:
            graph.mutate(query, branch="dev")
        for age in (99, 40):
            graph.mutate(f'query w() {{ update Person set {{ age: {age} }} where name = "bob" }}', branch="zero")
        graph.mutate(ON_MAIN)
    return root


@dataclass(frozen=True, kw_only=True, eq=False)
class Merge(Write):
    source: str
    result: str
    kind = "branch_merge"
    action = "merge"

    def make(self, root: Path) -> Path:
        return make_diverged(root)

    def options(self, root: Path) -> dict[str, Any]:
        return {"source": self.source, "into": self.branch, "engine": "local"}

    def check_receipt(self, receipt: Any) -> None:
        super().check_receipt(receipt)
        assert (receipt.outcome, len(receipt.commit.tables)) == (self.result, self.tables)

    def places(self) -> Places:
        # A merge without tables has no effect before its publish, so nothing has to be undone or completed.
        undone, complete = (ROLLED_BACK, ROLLED_FORWARD) if self.tables else (FORGOTTEN, FORGOTTEN)
        return [
            *((place, NOTHING) for place in (F.MERGE_PLANNED, F.MERGE_STAGED, F.MERGE_CHECKED)),
            *SIDECAR,
            # Until the versions are confirmed nothing tells that all tables moved.
            *table_commits(self.tables, undone, complete=undone),
            *((F.BEFORE_CONFIRM, undone), (f"{F.SIDECAR_WRITE}@2", undone), (F.AFTER_CONFIRM, complete)),
            *publishing(complete),
        ]

    def check_added(self, graph: Graph, commit: GraphCommit, outcome: Outcome) -> None:
        source = graph.snapshot(self.source).commit_id
        # What was undone was not merged, and changed nothing.
        assert commit.merged_parent_id == (source if outcome.happened else None)
        assert bool(graph.changes(commit.commit_id).changes) == (outcome.happened and self.tables > 0)

    def check_left(self, root: Path, before: Before, outcome: Outcome) -> None:
        reclaim(root)
        assert reclaim(root, preview=True) == set()
        if outcome == NOTHING:
            assert of_main(table_files(root)) == of_main(table_files(before.root))

    def check_goes_on(self, root: Path, before: Before, outcome: Outcome, after: Contents) -> None:
        with Graph.open(root) as graph:
            assert (self.run(graph).commit is None) is outcome.happened
            assert contents(root) == after
            assert self.run(graph).outcome == "already_up_to_date"
            for branch in (self.branch, self.source):
                graph.mutate(NEXT, branch=branch)
                names = [row["name"] for row in content(root, branch)["node:Person"]]
                assert names.count("zoe") == 1
        check_sound(root)


INTO_MAIN = Merge(
    name="into_main",
    source="dev",
    tables=4,
    result="merged",
    killed_at=(
        *(F.MERGE_PLANNED, F.MERGE_STAGED, F.MERGE_CHECKED, "after_table_commit@2", "after_table_commit@4"),
        *(f"{F.SIDECAR_WRITE}@2", F.AFTER_CONFIRM),
    ),
    failing_at=("after_table_commit@2", F.BEFORE_CATALOG_COMMIT),
)
#: The target reads tables of main until this merge writes to them.
INTO_UNFORKED = Merge(
    name="into_an_unforked_branch",
    source="dev",
    branch="side",
    tables=4,
    result="fast_forward",
    killed_at=("after_table_commit@1", F.BEFORE_CONFIRM, F.AFTER_CONFIRM, F.AFTER_PUBLISH),
    failing_at=(
        *(F.MERGE_STAGED, F.MERGE_CHECKED, F.SIDECAR_WRITE, "after_table_commit@2"),
        *(f"{F.SIDECAR_WRITE}@2", F.AFTER_CONFIRM, F.AFTER_PUBLISH),
    ),
)
#: The source changed something and changed it back: one commit, and no table moves.
NET_ZERO = Merge(
    name="of_nothing", source="zero", tables=0, result="merged", killed_at=(F.AFTER_CONFIRM, F.AFTER_PUBLISH)
)
MERGES = (INTO_MAIN, INTO_UNFORKED, NET_ZERO)


# ---- schema changes


#: Stands in everything that goes: only a hard drop takes it away.
SECRET = "do-not-tell-anybody"
OLD = """
node City { name: String @key  size: I64? }
node Ghost { name: String @key  note: String? }
node Person { name: String @key  age: I32?  nick: String? @index  secret: String? }
edge Haunts: Ghost -> City
edge LivesIn: Person -> City { since: I32? }
"""
NEW = """
node City { name: String @key  size: I64?  area: F64? }
node Human @rename_from("Person") {
    name: String @key
    years: I64 @rename_from("age")
    alias: String? @index @rename_from("nick")
    lang: String
}
node Tag { name: String @key }
edge LivesIn: Human -> City { since: I32 }
edge Tagged: Human -> Tag
"""
BACKFILL = {"Human.years": "coalesce(age, 0)", "Human.lang": '"en"'}
SEED_OLD = f"""query seed() {{
    insert City {{ name: "oslo", size: 700 }}
    insert City {{ name: "rome" }}
    insert Ghost {{ name: "boo", note: "{SECRET}" }}
    insert Person {{ name: "ann", age: 30, nick: "a", secret: "{SECRET}" }}
    insert Person {{ name: "bob", nick: "b" }}
    insert Haunts {{ from: "boo", to: "oslo" }}
    insert LivesIn {{ from: "ann", to: "oslo", since: 1 }}
}}"""
#: The first write after the change, or after it was undone.
NEXT_NEW = """query next() {
    insert Human { name: "zoe", years: 1, lang: "no" }
    insert Tag { name: "new" }
    insert Tagged { from: "zoe", to: "new" }
    update Human set { years: 31 } where name = "ann"
}"""
NEXT_OLD = """query next() {
    insert Person { name: "zoe", age: 1 }
    insert Haunts { from: "boo", to: "rome" }
    update Person set { age: 31 } where name = "ann"
}"""
READ_NEW = """query all() {
    match { $p: Human }
    return { $p.name as name, $p.years as years, $p.alias as alias, $p.lang as lang }
    order { $p.name asc }
}"""
READ_OLD = """query all() {
    match { $p: Person }
    return { $p.name as name, $p.age as age, $p.nick as nick, $p.secret as secret }
    order { $p.name asc }
}"""
PEOPLE_OLD = [
    {"name": "ann", "age": 30, "nick": "a", "secret": SECRET},
    {"name": "bob", "age": None, "nick": "b", "secret": None},
]
PEOPLE_NEW = [
    {"name": "ann", "years": 30, "alias": "a", "lang": "en"},
    {"name": "bob", "years": 0, "alias": "b", "lang": "en"},
]
BOTH = {"node:City", "edge:LivesIn"}


def check_whole(graph: Graph, *, is_new: bool) -> None:
    """Schema text, catalog, tables and queries belong to one schema: the old one, or the new one."""
    assert graph.schema.strip() == (NEW if is_new else OLD).strip()
    own = {"node:Human", "node:Tag", "edge:Tagged"} if is_new else {"node:Person", "node:Ghost", "edge:Haunts"}
    assert set(graph.snapshot().pins) == BOTH | own
    people = graph.query(READ_NEW if is_new else READ_OLD).to_pylist()
    assert people == (PEOPLE_NEW if is_new else PEOPLE_OLD)


def holds_secret(root: Path) -> bool:
    return any(SECRET.encode() in path.read_bytes() for path in root.rglob("*") if path.is_file())


def check_folders(root: Path) -> None:
    """Nothing lies about: no staged schema file, and no folder of a table that the catalog does not know."""
    assert list(root.glob("*.staging")) == []
    with Graph.open(root, read_only=True) as graph:
        history = graph._core.environment.manifest.history()
    known = {version.pin.location for version in history.versions}
    found = {f"{kind}/{path.name}" for kind in ("nodes", "edges") for path in (root / kind).iterdir()}
    assert found == known


@dataclass(frozen=True, kw_only=True, eq=False)
class Change(Write):
    """One way to change the schema in every way at once; it moves three tables and makes two."""

    allow_data_loss: bool
    #: Which of the three tables moves by two versions: the index of a renamed property is dropped.
    two_versions: int | None = None
    #: How many datasets lose their past, or everything.
    purged: int = 0
    tables: int = 3
    kind = "schema_apply"
    action = "apply_schema"

    def make(self, root: Path) -> Path:
        """The graph before its schema changes, with its indexes."""
        with Graph.init(root, OLD) as graph:
            graph.mutate(SEED_OLD, actor="act-seed")
            graph.ensure_indices()
        return root

    def options(self, root: Path) -> dict[str, Any]:
        chosen = {"allow_data_loss": self.allow_data_loss, "engine": "local"}
        return {"schema": NEW, "backfill": BACKFILL, **chosen}

    def places(self) -> Places:
        commits = table_commits(self.tables)
        if self.two_versions is not None:
            after = f"{F.AFTER_TABLE_COMMIT}@{self.two_versions}"
            commits.insert([place for place, _ in commits].index(after), (F.BETWEEN_VERSIONS, ROLLED_BACK))
        *published, deleting, complete = publishing()
        return [
            *SIDECAR,
            *numbered(F.BEFORE_SCHEMA_FILE, 3, FORGOTTEN),
            *numbered(F.BEFORE_NEW_TABLE, 2, FORGOTTEN),
            (F.AFTER_NEW_TABLES, FORGOTTEN),
            *commits,
            *published,
            *numbered(F.BEFORE_PROMOTION, 3, FINISHED),
            *numbered(F.BEFORE_STAGED_REMOVAL, 3, FINISHED),
            *numbered(F.BEFORE_PURGE, self.purged, FINISHED),
            *(deleting, complete),
        ]

    def recorded_tables(self) -> int:
        # Those that are dropped are recorded too.
        return self.tables

    def check_reader(self, root: Path, before: Before, *, is_published: bool) -> None:
        """A reader sees one schema completely, and leaves everything as it is."""
        left = sidecars(root)
        with Graph.open(root, read_only=True) as reader:
            check_whole(reader, is_new=is_published)
        assert sidecars(root) == left

    def check_left(self, root: Path, before: Before, outcome: Outcome) -> None:
        with Graph.open(root) as graph:
            check_whole(graph, is_new=outcome.happened)
        check_folders(root)
        assert holds_secret(root) is not (outcome.happened and self.allow_data_loss)

    def check_goes_on(self, root: Path, before: Before, outcome: Outcome, after: Contents) -> None:
        with Graph.open(root) as graph:
            assert self.run(graph).applied is not outcome.happened
            reclaim(root)
            check_whole(graph, is_new=True)
            assert contents(root) == after
            assert graph.mutate(NEXT_NEW).commit is not None
        check_sound(root)
        check_folders(root)
        assert holds_secret(root) is not self.allow_data_loss


SOFT = Change(
    name="soft",
    allow_data_loss=False,
    two_versions=2,
    killed_at=(
        *("before_schema_file@3", "before_new_table@2", F.AFTER_NEW_TABLES, "after_table_commit@1"),
        *(F.BETWEEN_VERSIONS, F.BEFORE_PUBLISH, "before_promotion@2", "before_staged_removal@2"),
    ),
    failing_at=(
        *("before_schema_file@2", "before_new_table@1", "before_table_commit@2", "after_table_commit@3"),
        *(F.AFTER_PUBLISH, "before_promotion@1", "before_staged_removal@3", F.SIDECAR_DELETE, F.AFTER_SIDECAR_DELETE),
    ),
)
HARD = Change(
    name="hard",
    allow_data_loss=True,
    purged=3,
    killed_at=("after_table_commit@2", "before_purge@1", "before_purge@3"),
    failing_at=("after_table_commit@2", F.AFTER_PUBLISH, "before_purge@1", "before_purge@3"),
)
CHANGES = (SOFT, HARD)


# ---- maintenance


MORE = (
    'query w() { insert Person { name: "dan", age: 3 } }',
    'query w() { update Person set { age: 31 } where name = "ann" }',
    'query w() { insert City { name: "bonn" } }',
    'query w() { insert Knows { from: "dan", to: "ann" } }',
    'query w() { insert LivesIn { from: "dan", to: "bonn" } }',
    'query w() { delete Person where name = "cid" }',
)
#: In the order in which a run commits them.
TABLES = ("node:City", "node:Person", "edge:Knows", "edge:LivesIn")
QUESTIONS = (
    "match { $p: Person } return { $p.name as x } order { $p.name }",
    'match { $p: Person { name: "ann" } } return { $p.age as x }',
    "match { $p: Person  $p.age >= 30 } return { $p.name as x } order { $p.name }",
    'match { $p: Person  search($p.name, "ann bob cid dan") } return { $p.name as x } order { $p.name }',
    'match { $p: Person } return { $p.name as x } order { bm25($p.name, "cid") }',
    "match { $p: Person  $p knows{1,3} $q } return { $p.name as x, $q.name as y } order { $p.name, $q.name }",
    "match { $c: City  not { $_ livesIn $c } } return { $c.name as x } order { $c.name }",
)


def answers(graph: Graph, branch: str) -> list[list[dict[str, Any]]]:
    return [graph.query(f"query q() {{ {text} }}", branch=branch).to_pylist() for text in QUESTIONS]


@cache
def answers_before(root: Path, branch: str) -> list[list[dict[str, Any]]]:
    with Graph.open(root, read_only=True) as graph:
        return answers(graph, branch)


def covered_tables(graph: Graph, branch: str) -> set[str]:
    """The tables with all indexes over all rows."""
    lacking = {item.type_key for item in graph.pending_indexes(branch)}
    pins = graph.snapshot(branch).pins
    return {str(key) for key, pin in pins.items() if list_indexes(graph._core.open_table(pin))} - lacking


@dataclass(frozen=True, kw_only=True, eq=False)
class Maintenance(Write):
    """Changes no row, whatever happens; what it finished it keeps."""

    def changes_rows(self) -> bool:
        return False

    def check_reader(self, root: Path, before: Before, *, is_published: bool) -> None:
        """A reader settles nothing and reads right."""
        with Graph.open(root, read_only=True) as reader:
            assert answers(reader, self.branch) == answers_before(before.root, self.branch)

    def check_left(self, root: Path, before: Before, outcome: Outcome) -> None:
        with Graph.open(root) as graph:
            assert answers(graph, self.branch) == answers_before(before.root, self.branch)

    def check_goes_on(self, root: Path, before: Before, outcome: Outcome, after: Contents) -> None:
        with Graph.open(root) as graph:
            self.check_completes(graph, outcome)
            assert self.run(graph).commit is None
            assert covered_tables(graph, self.branch) == set(TABLES)
            assert contents(root) == before.content
            assert answers(graph, self.branch) == answers_before(before.root, self.branch)
            graph.mutate(NEXT, branch=self.branch)
            names = [row["name"] for row in content(root, self.branch)["node:Person"]]
            assert names.count("zoe") == 1
            found = 'query q() { match { $p: Person  search($p.name, "zoe") } return { $p.name as x } }'
            assert graph.query(found, branch=self.branch).to_pylist() == [{"x": "zoe"}]
        check_sound(root)

    def check_completes(self, graph: Graph, outcome: Outcome) -> None:
        """The next run does what is missing."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True, eq=False)
class IndexBuild(Maintenance):
    #: Whether there are indexes already, over some of the rows.
    is_later: bool = False
    tables: int = len(TABLES)
    kind = "ensure_indices"
    action = "ensure_indices"

    def make(self, root: Path) -> Path:
        make_base(root)
        if self.is_later:
            with Graph.open(root) as graph:
                graph.ensure_indices()
                for text in MORE:
                    graph.mutate(text)
        return root

    def options(self, root: Path) -> dict[str, Any]:
        return {"branch": self.branch}

    def places(self) -> Places:
        """Tables that did not move stay out of a roll-forward."""
        moving = table_commits(self.tables, ROLLED_FORWARD)
        kept = [(place, replace(outcome, kept=(number + 1) // 2)) for number, (place, outcome) in enumerate(moving)]
        published = [(place, replace(outcome, kept=self.tables)) for place, outcome in publishing()]
        return [*((place, replace(outcome, kept=0)) for place, outcome in SIDECAR), *kept, *published]

    def recorded_tables(self) -> int:
        return self.tables

    def check_added(self, graph: Graph, commit: GraphCommit, outcome: Outcome) -> None:
        assert set(commit.tables) == set(TABLES[: outcome.kept])

    def check_left(self, root: Path, before: Before, outcome: Outcome) -> None:
        super().check_left(root, before, outcome)
        with Graph.open(root) as graph, Graph.open(before.root, read_only=True) as other:
            assert covered_tables(graph, self.branch) == set(TABLES[: outcome.kept])
            if self.branch != "main":
                assert graph.snapshot() == other.snapshot(), "main is left alone"

    def check_completes(self, graph: Graph, outcome: Outcome) -> None:
        """The next run builds exactly what is missing."""
        report = graph.ensure_indices(self.branch)
        assert {item.type_key for item in report.built} == set(TABLES[outcome.kept :])
        assert (report.commit is None) == (outcome.kept == len(TABLES))


@dataclass(frozen=True, kw_only=True, eq=False)
class Optimize(Maintenance):
    """Of fragments with indexes and without, with moved and deleted rows in both."""

    tables: int = 4
    kind = "optimize"
    action = "optimize"

    def make(self, root: Path) -> Path:
        return LATER_BUILD.make(root)

    def options(self, root: Path) -> dict[str, Any]:
        return {}

    def places(self) -> Places:
        between = numbered(F.BETWEEN_VERSIONS, 2, ROLLED_FORWARD)
        # The fold of the catalog, after the commit.
        folding: Places = [(F.IN_FOLD, COMPLETE), ("before_catalog_commit@2", COMPLETE)]
        commits = table_commits(self.tables, ROLLED_FORWARD)
        return [(F.OPTIMIZE_STAGED, NOTHING), *SIDECAR, *between, *commits, *publishing(), *folding]

    def check_completes(self, graph: Graph, outcome: Outcome) -> None:
        graph.optimize()
        assert {graph._core.open_table(pin).fragment_count() for pin in graph.snapshot().pins.values()} == {1}


FIRST_BUILD = IndexBuild(
    name="first_index_build",
    killed_at=(F.SIDECAR_WRITE, "after_table_commit@1", "before_table_commit@3", F.AFTER_PUBLISH),
    failing_at=(
        *(F.BEFORE_SIDECAR, F.AFTER_SIDECAR, "before_table_commit@1", "after_table_commit@1"),
        *("before_table_commit@3", "after_table_commit@4", F.BEFORE_PUBLISH, F.BEFORE_CATALOG_COMMIT),
    ),
)
LATER_BUILD = IndexBuild(
    name="later_index_build", is_later=True, killed_at=(F.AFTER_SIDECAR, "after_table_commit@2", F.BEFORE_PUBLISH)
)
BUILD_ON_A_BRANCH = IndexBuild(
    name="index_build_on_a_branch", branch="dev", killed_at=(F.BEFORE_SIDECAR, "after_table_commit@1", F.BEFORE_PUBLISH)
)
OPTIMIZE = Optimize(
    name="optimize",
    killed_at=(
        *(F.OPTIMIZE_STAGED, "between_versions@1", "between_versions@2", "before_table_commit@3"),
        *(F.BEFORE_PUBLISH, F.IN_FOLD),
    ),
)
MAINTENANCE = (FIRST_BUILD, LATER_BUILD, BUILD_ON_A_BRANCH, OPTIMIZE)


WRITES: tuple[Write, ...] = (*MUTATIONS, *LOADS, *MERGES, *CHANGES, *MAINTENANCE)


def cells(chosen: str) -> list[Any]:
    """Every kind of write at every place that it passes; all but the chosen ones behind the slow marker."""
    return [
        pytest.param(
            write,
            str(place),
            outcome,
            id=f"{write}-{place}",
            marks=() if place in getattr(write, chosen) else pytest.mark.slow,
        )
        for write in WRITES
        for place, outcome in write.places()
        # What a failing optimize leaves to the next one is told by its deaths.
        if chosen == "killed_at" or write is not OPTIMIZE
    ]
