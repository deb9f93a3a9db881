"""Small graphs for the tests of changes, and a way to look at rows that does not go through the code under test."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance

from omnigraph.branches.changes import Change
from omnigraph.branches.diffs import NetChange
from omnigraph.branches.feed import ChangeBlock, FeedPage
from omnigraph.commit.expectations import Expectations
from omnigraph.commit.publisher import Changes
from omnigraph.commit.rows import GraphCommit, Head
from omnigraph.commit.snapshot import Snapshot
from omnigraph.core.ids import TableKey, new_ulid
from omnigraph.graph.graph import Graph

SCHEMA = """
node Person { name: String @key  age: I32?  city: String? @index }
node City { name: String @key  size: I64? }
edge Knows: Person -> Person { since: I32? }
edge LivesIn: Person -> City
"""

#: Type, id and operation of a change.
Told = tuple[str, str, str]
Rows = dict[str, dict[str, dict[str, Any]]]

# ---- writing


def run(graph: Graph, statements: str, branch: str = "main", actor: str | None = None) -> str:
    """Run statements that have an effect; the commit they made."""
    commit = graph.mutate(f"query q() {{ {statements} }}", branch=branch, actor=actor).commit
    assert commit is not None
    return commit.commit_id


def person(name: str, age: int | None = None) -> str:
    rest = "" if age is None else f", age: {age}"
    return f'insert Person {{ name: "{name}"{rest} }} '


def knows(source: str, target: str, since: int = 0) -> str:
    return f'insert Knows {{ from: "{source}", to: "{target}", since: {since} }} '


def set_age(name: str, age: int) -> str:
    return f'update Person set {{ age: {age} }} where name = "{name}"'


def drop(name: str) -> str:
    return f'delete Person where name = "{name}"'


def load(graph: Graph, folder: Path, lines: list[dict[str, Any]], mode: str = "append", **more: Any) -> str:
    """Load lines in process; the commit it made."""
    path = folder / f"{new_ulid()}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    commit = graph.load(path, mode=mode, engine="local", **more).commit
    assert commit is not None
    return commit.commit_id


def merge(graph: Graph, source: str, into: str = "main") -> str:
    """Merge with an effect; the commit it made."""
    commit = graph.merge(source, into).commit
    assert commit is not None
    return commit.commit_id


class NothingToCompact(Exception):
    """No table of the branch has fragments to join."""


def compact(graph: Graph, branch: str = "main") -> str:
    """Compact every table that the branch owns and publish the versions as one commit, without indexes and cleanup."""
    snapshot = graph.snapshot(branch)
    pins = []
    for key, pin in snapshot.pins.items():
        if pin.branch != snapshot.fork_name:
            continue
        dataset = dataset_of(graph, snapshot, key)
        dataset.optimize.compact_files()
        if dataset.version != pin.version:
            pins.append(replace(pin, version=dataset.version))
    if not pins:
        raise NothingToCompact
    expectations = Expectations(
        branch=branch,
        incarnation=snapshot.incarnation,
        schema_hash=snapshot.schema_hash,
        touched={pin.table_key: snapshot.pins[pin.table_key].version for pin in pins},
    )

    def make_commit(head: Head, graph_version: int) -> GraphCommit:
        return GraphCommit(
            commit_id=new_ulid(),
            graph_version=graph_version,
            branch=branch,
            parent_id=head.commit_id,
            created_at=graph._core.environment.clock(),
            kind="optimize",
            operation_id=new_ulid(),
            schema_hash=head.schema_hash,
            tables=tuple(pin.table_key for pin in pins),
        )

    with graph._core.environment.window() as environment:
        changes = Changes(pins=tuple(pins))
        return environment.manifest.publish(expectations, changes, make_commit).commit_id


# ---- looking


def dataset_of(graph: Graph, snapshot: Snapshot, key: str) -> lance.LanceDataset:
    pin = snapshot.pins[TableKey(key)]
    uri = f"{graph.uri}/{pin.location}"
    if pin.branch is not None:
        uri = f"{uri}/tree/{pin.branch}"
    return lance.dataset(uri, version=pin.version)


def rows_of(graph: Graph, branch: str = "main") -> Rows:
    """Every row of a branch by type and id, straight from Lance."""
    snapshot = graph.snapshot(branch)
    return {
        str(key): {row["id"]: row for row in dataset_of(graph, snapshot, key).to_table().to_pylist()}
        for key in snapshot.pins
    }


def compared(before: Rows, after: Rows) -> set[Told]:
    """What differs between two states, the slow way."""
    found: set[Told] = set()
    for key in before.keys() | after.keys():
        old, new = before.get(key, {}), after.get(key, {})
        found |= {(key, entity, "insert") for entity in new.keys() - old.keys()}
        found |= {(key, entity, "delete") for entity in old.keys() - new.keys()}
        both = new.keys() & old.keys()
        found |= {(key, entity, "update") for entity in both if old[entity] != new[entity]}
    return found


# ---- what was told


def told(changes: Iterable[Change | NetChange]) -> list[Told]:
    return [(f"{item.kind}:{item.type_name}", item.id, str(item.op)) for item in changes]


def pages_of(graph: Graph, branch: str = "main", **first: Any) -> Iterator[FeedPage]:
    """All pages of one poll."""
    page = graph.feed(branch, **first)
    yield page
    kept = {key: value for key, value in first.items() if key not in ("start", "cursor")}
    while page.next_page_token is not None:
        assert page.cursor is None
        page = graph.feed(branch, page_token=page.next_page_token, **kept)
        yield page


def poll(graph: Graph, branch: str = "main", **first: Any) -> tuple[list[ChangeBlock], str]:
    """The blocks and the cursor of one poll."""
    blocks: list[ChangeBlock] = []
    page = None
    for page in pages_of(graph, branch, **first):
        blocks += page.blocks
    assert page is not None
    assert page.cursor is not None
    return blocks, page.cursor


def apply(blocks: Iterable[ChangeBlock], state: dict[str, dict[str, Any]]) -> None:
    """Replay changes as a consumer would; every change has to fit the state."""
    for block in blocks:
        for change in block.changes:
            rows = state.setdefault(f"{change.kind}:{change.type_name}", {})
            assert rows.get(change.id) == change.before
            if change.after is None:
                del rows[change.id]
            else:
                rows[change.id] = change.after


def images_of(graph: Graph, branch: str = "main") -> dict[str, dict[str, Any]]:
    """Every row of a branch as changes show it; for properties whose JSON form is the stored value."""
    found: dict[str, dict[str, Any]] = {}
    for key, rows in rows_of(graph, branch).items():
        for entity, row in rows.items():
            is_edge = key.startswith("edge:")
            left_out = ("id", "src", "dst") if is_edge else ("id",)
            image: dict[str, Any] = {"properties": {name: value for name, value in row.items() if name not in left_out}}
            if is_edge:
                image["endpoints"] = {"from": row["src"], "to": row["dst"]}
            found.setdefault(key, {})[entity] = image
    return found
