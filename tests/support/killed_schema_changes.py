"""A graph whose schema changes in every way at once, and what has to hold of it before and after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omnigraph.commit.leftovers import reclaim_staged_files
from omnigraph.graph.graph import Graph
from support.killed_writers import ACTOR, Outcome, check_sound, dataset_of, every_commit

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

SEED = f"""query seed() {{
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


@dataclass(frozen=True, slots=True)
class Change:
    """One way to change the schema; it moves three tables and makes two."""

    name: str
    allow_data_loss: bool
    #: Which of the three tables moves by two versions: the index of a renamed property is dropped.
    two_versions: int | None
    #: How many datasets lose their past, or everything.
    purged: int

    def __str__(self) -> str:
        return self.name


SOFT = Change("soft", allow_data_loss=False, two_versions=2, purged=0)
HARD = Change("hard", allow_data_loss=True, two_versions=None, purged=3)
CHANGES = (SOFT, HARD)
TABLES, NEW_TABLES = 3, 2


def make_populated(root: Path) -> Path:
    """The graph before its schema changes, with its indexes."""
    with Graph.init(root, OLD) as graph:
        graph.mutate(SEED, actor="act-seed")
        graph.ensure_indices()
    return root


def apply(graph: Graph, change: Change, **options: Any) -> Any:
    return graph.apply_schema(
        NEW, backfill=BACKFILL, allow_data_loss=change.allow_data_loss, actor=ACTOR, engine="local", **options
    )


def applying(root: Path, change: Change) -> dict[str, Any]:
    """The job of a child."""
    return {
        "action": "apply_schema",
        "root": str(root),
        "schema": NEW,
        "backfill": BACKFILL,
        "allow_data_loss": change.allow_data_loss,
        "actor": ACTOR,
        "engine": "local",
    }


# ---- looking at a graph from outside


def tables(root: Path, *, at_pin: bool = True) -> dict[str, tuple[list[str], list[Any]]]:
    """The columns and rows of every visible table; the random ids of edges are left out."""
    found = {}
    with Graph.open(root, read_only=True) as graph:
        for key, pin in graph.snapshot().pins.items():
            read = dataset_of(root, pin, at_pin=at_pin).to_table()
            rows = read.to_pylist()
            if key.startswith("edge:"):
                rows = [{k: v for k, v in row.items() if k != "id"} for row in rows]
            assert pin.row_count == len(rows), key
            found[str(key)] = (read.schema.names, sorted(rows, key=str))
    return found


def check_whole(graph: Graph, *, is_new: bool) -> None:
    """Schema text, catalog, tables and queries belong to one schema: the old one, or the new one."""
    assert graph.schema.strip() == (NEW if is_new else OLD).strip()
    keys = {"node:City", "edge:LivesIn"}
    keys |= {"node:Human", "node:Tag", "edge:Tagged"} if is_new else set()
    keys |= set() if is_new else {"node:Person", "node:Ghost", "edge:Haunts"}
    assert set(graph.snapshot().pins) == keys
    people = graph.query(READ_NEW if is_new else READ_OLD).to_pylist()
    assert people == (PEOPLE_NEW if is_new else PEOPLE_OLD)


def files_with_secret(root: Path) -> list[str]:
    return sorted(
        str(path.relative_to(root))
        for path in root.rglob("*")
        if path.is_file() and SECRET.encode() in path.read_bytes()
    )


def check_folders(root: Path) -> None:
    """Nothing lies about: no staged schema file, and no folder of a table that the catalog does not know."""
    assert list(root.glob("*.staging")) == []
    with Graph.open(root, read_only=True) as graph:
        history = graph._environment.manifest.history()
    known = {version.pin.location for version in history.versions}
    found = {f"{kind}/{path.name}" for kind in ("nodes", "edges") for path in (root / kind).iterdir()}
    assert found == known


def check_settled(root: Path, base: Path, change: Change, outcome: Outcome, after: Mapping[str, Any]) -> None:
    """Opening settles: all of the change is there or nothing, with one commit and one record at most."""
    with Graph.open(base, read_only=True) as graph:
        known = [commit.commit_id for commit in every_commit(graph)]
    with Graph.open(root) as graph:
        check_whole(graph, is_new=outcome.happened)
        commits = every_commit(graph)
        records = graph.recoveries()
    check_sound(root)
    check_folders(root)
    assert tables(root) == (after if outcome.happened else tables(base))
    assert [commit.commit_id for commit in commits[: len(known)]] == known
    added = commits[len(known) :]
    assert tuple(commit.actor for commit in added) == outcome.added
    kinds = [record.recovery_kind for record in records]
    assert kinds == ([] if outcome.audit is None else [outcome.audit])
    for record in records:
        assert (record.writer_kind, record.recovery_for_actor) == ("schema_apply", ACTOR)
        assert record.graph_commit_id == (added[0].commit_id if added else None)
    for commit in added:
        assert commit.kind == ("schema_apply" if outcome.happened else "rollback")
    if outcome.happened and change.allow_data_loss:
        assert files_with_secret(root) == []


def check_goes_on(root: Path, change: Change, outcome: Outcome, after: Mapping[str, Any]) -> None:
    """The same change again ends as an undisturbed one does, and writes under its schema work."""
    with Graph.open(root) as graph:
        assert apply(graph, change).applied is not outcome.happened
        paths = [pin.location for pin in graph.snapshot().pins.values()]
        reclaim_staged_files(graph._environment, paths, 0.0)
        check_whole(graph, is_new=True)
        assert tables(root) == after
        assert graph.mutate(NEXT_NEW).commit is not None
    check_sound(root)
    check_folders(root)
    assert bool(files_with_secret(root)) is not change.allow_data_loss
