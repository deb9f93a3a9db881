"""What small writes cost, as ratios within one run.

* one mutation (a node and an edge, one commit) against the bare Lance floor for the same effect on two tables
* the catalog's share (publish, snapshot, open) after many commits against the first hundred
* the whole one-row mutation over the same number of commits
* one mutation of 50 statements against 50 mutations of one statement
* commits per second with 6 processes against one
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
from lance import LanceDataset, LanceOperation
from lance.fragment import write_fragments

from omnigraph.commit.expectations import Expectations
from omnigraph.commit.publisher import Changes, Manifest
from omnigraph.commit.rows import GraphCommit
from omnigraph.core.ids import new_ulid
from omnigraph.graph.graph import Graph
from omnigraph.storage.location import parse_location

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = "node Paper { doi: String @key title: String }\nedge Cites: Paper -> Paper { note: String? }"
QUERIES = """
query first($doi: String) { insert Paper { doi: $doi, title: "t" } }
query both($doi: String, $to: String) {
  insert Paper { doi: $doi, title: "t" }
  insert Cites { from: $doi, to: $to }
}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--rounds", type=int, default=60, help="mutations per measurement")
    parser.add_argument("--commits", type=int, default=2000, help="commits of the catalog measurement")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--name", default="0", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        hammer(options.worker, options.name, options.rounds)
        return
    figures: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder:
        figures |= single_mutation(Path(folder), options.rounds)
        figures |= catalog_share(Path(folder), options.commits)
        # Without compaction each commit adds a fragment to scan, so the full count would take minutes.
        figures |= whole_mutation(Path(folder), min(options.commits, 400))
        figures |= many_statements(Path(folder))
        figures |= processes(Path(folder), options.rounds)
    for name, value in figures.items():
        print(f"{name:<58} {value:>10.2f}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


def single_mutation(folder: Path, rounds: int) -> dict[str, float]:
    """Both sides in turns, on tables that grow alike."""
    floor = BareLance(folder / "bare")
    figures: dict[str, float] = {}
    for durability in ("process", "full"):
        os.environ["OMNIGRAPH_DURABILITY"] = durability
        with Graph.init(folder / f"{durability}.omni", SCHEMA) as graph:
            graph.mutate(QUERIES, {"doi": "root"}, name="first")
            bare, ours = [], []
            for number in range(rounds):
                key = f"{durability}{number}"
                bare.append(timed(lambda key=key: floor.write(key)))
                params = {"doi": key, "to": "root"}
                ours.append(timed(lambda p=params: graph.mutate(QUERIES, p, name="both")))
        base, mine = statistics.median(bare), statistics.median(ours)
        figures[f"bare Lance, two tables, ms ({durability})"] = base * 1e3
        figures[f"one mutation, ms ({durability})"] = mine * 1e3
        figures[f"ratio, target at most 3 with process ({durability})"] = mine / base
    os.environ["OMNIGRAPH_DURABILITY"] = "process"
    return figures


class BareLance:
    """The same two-table effect with nothing around it."""

    def __init__(self, root: Path) -> None:
        nodes = pa.schema([pa.field("id", pa.utf8(), nullable=False), pa.field("title", pa.utf8())])
        edges = pa.schema([pa.field(n, pa.utf8(), nullable=False) for n in ("id", "src", "dst")])
        self._session = lance.Session()
        self._nodes = self._create(root / "nodes", nodes)
        self._edges = self._create(root / "edges", edges)

    def _create(self, path: Path, schema: pa.Schema) -> LanceDataset:
        operation = LanceOperation.Overwrite(schema, [])
        LanceDataset.commit(str(path), operation, enable_stable_row_ids=True, max_retries=0)
        return lance.dataset(str(path), session=self._session)

    def write(self, key: str) -> None:
        """Upsert one node and append one edge."""
        row = pa.table({"id": [key], "title": ["t"]}, schema=self._nodes.schema)
        upsert = self._nodes.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        transaction, _ = upsert.execute_uncommitted(row)
        self._nodes = LanceDataset.commit(self._nodes, transaction, max_retries=0)
        edge = pa.table({"id": [key], "src": [key], "dst": ["root"]}, schema=self._edges.schema)
        transaction = write_fragments(edge, self._edges, return_transaction=True)
        self._edges = LanceDataset.commit(self._edges, transaction, max_retries=0)


def catalog_share(folder: Path, commits: int) -> dict[str, float]:
    """Publish, snapshot and open alone, over many commits."""
    root = folder / "catalog.omni"
    Graph.init(root, SCHEMA).close()
    manifest = Manifest(parse_location(root), durable=False)
    publishes, opens = [], []
    for number in range(commits):
        head = manifest.state().head("main")
        expectations = Expectations(branch="main", incarnation=head.incarnation, schema_hash=head.schema_hash)
        publishes.append(timed(lambda e=expectations: manifest.publish(e, Changes(), make_commit)))
        if number < 100 or number >= commits - 100:
            fresh = Manifest(parse_location(root), durable=False)
            opens.append(timed(lambda m=fresh: m.state()))
    window = min(100, commits // 2)
    early = statistics.mean(publishes[:window]) + statistics.mean(opens[:window])
    late = statistics.mean(publishes[-window:]) + statistics.mean(opens[-window:])
    return {
        "publish, ms, first hundred": statistics.mean(publishes[:window]) * 1e3,
        f"publish, ms, last hundred of {commits}": statistics.mean(publishes[-window:]) * 1e3,
        "open and snapshot, ms, first hundred": statistics.mean(opens[:window]) * 1e3,
        f"open and snapshot, ms, last hundred of {commits}": statistics.mean(opens[-window:]) * 1e3,
        "ratio, target at most 1.3": late / early,
    }


def whole_mutation(folder: Path, commits: int) -> dict[str, float]:
    """The whole mutation over as many commits: data fragments pile up until a compaction folds them."""
    times = []
    with Graph.init(folder / "long.omni", SCHEMA) as graph:
        for number in range(commits):
            params = {"doi": f"l{number}"}
            times.append(timed(lambda p=params: graph.mutate(QUERIES, p, name="first")))
    window = min(100, commits // 2)
    early, late = statistics.median(times[:window]), statistics.median(times[-window:])
    return {
        "one-row mutation, ms, first hundred": early * 1e3,
        f"one-row mutation, ms, last hundred of {commits}": late * 1e3,
        "ratio, reported only": late / early,
    }


def make_commit(head: object, graph_version: int) -> GraphCommit:
    return GraphCommit(
        commit_id=new_ulid(),
        graph_version=graph_version,
        branch="main",
        parent_id=getattr(head, "commit_id", None),
        created_at=0,
        kind="mutation",
        operation_id=new_ulid(),
        schema_hash=getattr(head, "schema_hash", ""),
    )


def many_statements(folder: Path) -> dict[str, float]:
    count = 50
    lines = "\n".join(f'  insert Paper {{ doi: "m{n}", title: "t" }}' for n in range(count))
    together = f"query many() {{\n{lines}\n}}"
    with Graph.init(folder / "many.omni", SCHEMA) as graph:
        one = timed(lambda: graph.mutate(together))
        singles = timed(lambda: [graph.mutate(QUERIES, {"doi": f"s{n}"}, name="first") for n in range(count)])
    return {"50 single mutations, times one of 50 statements": singles / one}


def processes(folder: Path, rounds: int) -> dict[str, float]:
    rates = {}
    for count in (1, 6):
        root = folder / f"processes{count}.omni"
        Graph.init(root, SCHEMA).close()
        script = str(Path(__file__))
        words = [sys.executable, script, "--worker", str(root), "--rounds", str(rounds)]
        begin = time.perf_counter()
        running = [subprocess.Popen([*words, "--name", str(n)]) for n in range(count)]
        if any(process.wait() for process in running):
            sys.exit("a worker failed")
        rates[count] = count * rounds / (time.perf_counter() - begin)
    return {"commits per second, 1 process": rates[1], "commits per second, 6 processes": rates[6]}


def hammer(root: str, name: str, rounds: int) -> None:
    os.environ["OMNIGRAPH_DURABILITY"] = "process"
    with Graph.open(root) as graph:
        for number in range(rounds):
            graph.mutate(QUERIES, {"doi": f"{name}-{number}"}, name="first")


def timed(function: Callable[[], object]) -> float:
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
