"""A graph that tells whether a read saw half of a write, or a write was lost; and writers that try to make it so."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omnigraph import Graph
from omnigraph.commit.expectations import PHYSICAL_KINDS
from support.server_processes import Answer, Wire

#: A left, its right and the edge between them are always written together.
SCHEMA = """
node Left { name: String @key  writer: I32 }
node Right { name: String @key  writer: I32 }
node Counter { name: String @key  value: I32 }
edge Pairs: Left -> Right
"""
ADD_PAIR = """query add($name: String, $writer: I32) {
    insert Left { name: $name, writer: $writer }
    insert Right { name: $name, writer: $writer }
    insert Pairs { from: $name, to: $name }
}"""
COUNT_LEFTS = "query lefts() { match { $l: Left } return { count($l) as count } }"
LEFTS = "query lefts() { match { $l: Left } return { $l.name as name } order { $l.name } }"
RIGHTS = "query rights() { match { $r: Right } return { $r.name as name } order { $r.name } }"
HALVES = "query halves() { match { $l: Left  not { $l pairs $r } } return { $l.name as name } }"
ONE = "query one($name: String) { match { $l: Left { name: $name } $l pairs $r } return { $r.name as name } }"
COUNT = "query count($name: String) { match { $c: Counter { name: $name } } return { $c.value as value } }"
SET = "query set($name: String, $value: I32) { update Counter set { value: $value } where name = $name }"
COUNTERS = ("careful", "contended")
DATASETS = ("node:Left", "node:Right", "edge:Pairs")


def make_world(root: Path) -> Path:
    """A graph with two counters at zero and one pair."""
    rows: list[dict[str, Any]] = [
        {"type": "Counter", "data": {"name": name, "value": 0}} for name in COUNTERS
    ]
    rows += [{"type": side, "data": {"name": "first", "writer": 0}} for side in ("Left", "Right")]
    rows.append({"edge": "Pairs", "from": "first", "to": "first", "data": {}})
    lines = root.with_suffix(".jsonl")
    lines.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    with Graph.init(root, SCHEMA) as graph:
        graph.load(lines, mode="append", engine="local")
    return root


@dataclass(slots=True)
class Ledger:
    """What one writer knows about its writes."""

    #: Names of pairs, each with the commit that the server acknowledged.
    pairs: dict[str, str] = field(default_factory=dict)
    #: Commits of acknowledged updates of a counter, with the value that each set.
    updates: list[tuple[str, int]] = field(default_factory=list)
    #: Pairs that were sent and never answered.
    in_doubt: list[str] = field(default_factory=list)
    refusals: list[tuple[int, str]] = field(default_factory=list)

    @property
    def commits(self) -> list[str]:
        return [*self.pairs.values(), *(commit for commit, _ in self.updates)]


def commit_of(answer: Answer) -> str:
    """The commit that a receipt names."""
    assert answer.status == 200, answer.body
    commit_id: str = answer.json()["commit"]["graph_commit_id"]
    return commit_id


def refusal_of(answer: Answer) -> tuple[int, str]:
    """Status and kind of a refusal, which must have the form that all have."""
    document = answer.json()
    assert document["error"], answer.body
    return answer.status, document["kind"]


def names(wire: Wire, query: str, **target: str) -> tuple[list[str], str]:
    """The names that a query finds, and the commit that it read."""
    answer = wire.post("/query", {"query": query, **target})
    assert answer.status == 200, answer.body
    document = answer.json()
    return [row["name"] for row in document["rows"]], document["graph_commit_id"]


def partner(wire: Wire, name: str) -> str | None:
    """The right that belongs to a left."""
    answer = wire.post("/query", {"query": ONE, "params": {"name": name}})
    assert answer.status == 200, answer.body
    found = [row["name"] for row in answer.json()["rows"]]
    return found[0] if len(found) == 1 else None


def count_pairs(wire: Wire) -> int:
    """How many pairs there are."""
    answer = wire.post("/query", {"query": COUNT_LEFTS})
    assert answer.status == 200, answer.body
    count: int = answer.json()["rows"][0]["count"]
    return count


def counter_at(wire: Wire, name: str) -> tuple[int, str]:
    """The value of a counter, and the commit at which it has it."""
    answer = wire.post("/query", {"query": COUNT, "params": {"name": name}})
    assert answer.status == 200, answer.body
    document = answer.json()
    return document["rows"][0]["value"], document["graph_commit_id"]


def check_whole(wire: Wire) -> None:
    """What every reader must see at any time: no half of a pair, in whichever way it looks."""
    answer = wire.get("/snapshot")
    assert answer.status == 200, answer.body
    counts = {
        f"{item['entity_kind']}:{item['type_name']}": item["entity_count"]
        for item in answer.json()["datasets"]
    }
    assert len({counts[key] for key in DATASETS}) == 1, counts
    assert names(wire, HALVES)[0] == []
    lefts, commit_id = names(wire, LEFTS)
    assert names(wire, RIGHTS, snapshot=commit_id) == (lefts, commit_id)


def logical_history(wire: Wire) -> list[str]:
    """The commits that changed rows; writers fold small files in commits of their own."""
    commits = wire.get("/commits").json()["commits"]
    return [item["graph_commit_id"] for item in commits if item["kind"] not in PHYSICAL_KINDS]


def check_ledgers(wire: Wire, ledgers: Iterable[Ledger], before: Iterable[str]) -> None:
    """Whatever was acknowledged is there and in the history once, and the history holds nothing else."""
    kept = list(ledgers)
    check_whole(wire)
    present = set(names(wire, LEFTS)[0]) - {"first"}
    acknowledged = {name for ledger in kept for name in ledger.pairs}
    doubtful = {name for ledger in kept for name in ledger.in_doubt}
    assert acknowledged <= present, "an acknowledged write is lost"
    assert present <= acknowledged | doubtful, "a write happened that was refused"
    history = logical_history(wire)
    assert len(history) == len(set(history))
    commits = [commit for ledger in kept for commit in ledger.commits]
    assert len(commits) == len(set(commits)), "two writes were acknowledged with one commit"
    further = set(history) - set(commits) - set(before)
    assert set(commits) <= set(history), "the commit of an acknowledged write is lost"
    assert len(further) <= len(doubtful), "there are commits that nobody asked for"
