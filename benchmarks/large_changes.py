"""What large changes cost with a small driver, beside hand-written PySpark jobs for the same result, in one run.

    python benchmarks/large_changes.py                     5 M rows, 20 M edges (about 12 GB of disk, half an hour)
    python benchmarks/large_changes.py --rows 200000       a quick look
    python benchmarks/large_changes.py --only merge,both

* merge: as many rows as the table has, half of them replace rows and half are new, in random order. The job reads old
  and new rows from Parquet, keeps the new ones by key and writes Parquet.
* diff: every edge of a table changed. The job joins two states by key, compares hashes of the rows and writes the keys
  that differ.
* both: a branch merge, two fifths of the rows changed on each side, others on the one than on the other.
* unique: three fifths as many rows with one value in a `@unique` property, which has to be reported.
* hubs: four times as many edges, every second one from a hundredth of the nodes.

The driver has 1 GiB of heap unless OMNIGRAPH_SPARK_DRIVER_MEMORY says otherwise. Memory is the peak of all processes
together, of the driver, of its JVM and of the largest Python worker.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from loading.memory import peak_memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from omnigraph import Graph

PAPERS = "node Paper { doi: String @key  title: String  year: I32 }"
CITES = "node Paper { doi: String @key }\nedge Cites: Paper -> Paper { weight: I32? }"
UNIQUE = "node Paper { doi: String @key  title: String @unique  year: I32 }"
#: Ratio to the hand-written job → the target that it is held against.
TARGETS = {"merge": 1.3, "diff": 1.3}
_FILE_ROWS = 1_000_000
_GROUP_ROWS = 250_000


class Session:
    """The folder of one run, its Spark session, and what was measured."""

    def __init__(self, folder: Path, rows: int) -> None:
        from omnigraph.spark.session import spark_session

        self.folder = folder
        self.rows = rows
        self.spark: Any = spark_session()
        self.spark.range(4).count()
        self.figures: dict[str, dict[str, float]] = {}

    def timed(self, name: str, work: Callable[[], object]) -> None:
        """Do something under the clock, and look at memory meanwhile."""
        with peak_memory() as peak:
            begin = time.perf_counter()
            work()
            seconds = time.perf_counter() - begin
        memory = {"all": peak.bytes, "driver": peak.driver, "JVM": peak.jvm, "worker": peak.worker}
        self.figures[name] = {"seconds": seconds, **memory}
        shown = "  ".join(f"{label} {size / 2**30:5.2f}" for label, size in memory.items())
        print(f"{name:34} {seconds:8.1f} s   peak GiB: {shown}", flush=True)

    def graph(self, name: str, schema: str) -> Graph:
        """An empty graph."""
        from omnigraph import Graph

        return Graph.init(self.folder / f"{name}.omni", schema)


def main() -> None:
    options = parse_options()
    os.environ.setdefault("OMNIGRAPH_SPARK_DRIVER_MEMORY", "1g")
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        session = Session(Path(folder), options.rows)
        for name in options.only.split(","):
            CASES[name](session)
            for left in Path(folder).iterdir():
                shutil.rmtree(left)
    for name, target in TARGETS.items():
        if name in session.figures:
            value = session.figures[name]["seconds"] / session.figures[f"{name}, by hand"]["seconds"]
            verdict = "ok" if value <= target else "MISSED"
            print(f"{name} / by hand: {value:.2f}   target {target}: {verdict}")
    if options.json:
        options.json.write_text(json.dumps(session.figures, indent=2), encoding="utf-8")


# ---- cases


def merge(session: Session) -> None:
    rows, folder = session.rows, session.folder
    write_papers(folder / "old", np.arange(rows), "old")
    write_papers(folder / "new", shuffled(rows // 2, rows + rows // 2), "new")
    graph = session.graph("papers", PAPERS)
    load = {name: paper_mapping(folder / name) for name in ("old", "new")}
    session.timed("append", lambda: graph.load(mapping=load["old"], mode="append", engine="spark"))
    session.timed("merge", lambda: graph.load(mapping=load["new"], mode="merge", engine="spark"))
    session.timed("merge, by hand", lambda: merge_by_hand(session))
    expect(graph, "Paper", rows + rows // 2)


def merge_by_hand(session: Session) -> None:
    """The rows of an upsert, as a Spark job that a person would write."""
    new, old = (session.spark.read.parquet(str(session.folder / name)) for name in ("new", "old"))
    kept = old.join(new.select("doi"), "doi", "left_anti")
    kept.unionByName(new).write.mode("overwrite").parquet(str(session.folder / "merged"))


def diff(session: Session) -> None:
    rows, folder = session.rows, session.folder
    nodes = max(1, rows // 50)
    ends = np.arange(rows) % nodes, np.arange(rows) * 7 % nodes
    write_nodes(folder / "nodes", nodes)
    for name, weight in (("old", 1), ("new", 2)):
        order = shuffled(0, rows) if weight == 2 else np.arange(rows)
        write_edges(folder / name, ends[0][order], ends[1][order], weight, order)
    graph = session.graph("cites", CITES)
    mapping = edge_mapping(folder / "old", folder / "nodes")
    session.timed("append edges", lambda: graph.load(mapping=mapping, mode="append", engine="spark"))
    graph.create_branch("before")
    mapping = edge_mapping(folder / "new")
    session.timed("merge edges", lambda: graph.load(mapping=mapping, mode="merge", engine="spark"))

    def compare() -> None:
        with graph.diff("before", "main") as found:
            assert found.stats.updates == rows, found.stats

    session.timed("diff", compare)
    session.timed("diff, by hand", lambda: diff_by_hand(session))
    session.timed("fast-forward", lambda: graph.merge("main", into="before"))


def diff_by_hand(session: Session) -> None:
    """The keys that differ between the states before and after, with what happened to them."""
    from pyspark.sql import functions as sql

    def hashed(path: Path, name: str) -> Any:
        frame = session.spark.read.parquet(str(path))
        return frame.select("id", sql.sha2(sql.concat_ws("|", *frame.columns), 256).alias(name))

    both = hashed(session.folder / "old", "old").join(hashed(session.folder / "new", "new"), "id", "full")
    differs = both.where("old is null or new is null or old != new")
    differs.orderBy("id").write.mode("overwrite").parquet(str(session.folder / "differs"))


def both_sides(session: Session) -> None:
    rows, folder = session.rows, session.folder
    changed = rows * 2 // 5
    write_papers(folder / "old", np.arange(rows), "old")
    write_papers(folder / "ours", shuffled(0, changed), "ours")
    write_papers(folder / "theirs", shuffled(changed, 2 * changed), "theirs")
    graph = session.graph("papers", PAPERS)
    graph.load(mapping=paper_mapping(folder / "old"), mode="append", engine="spark")
    graph.create_branch("work")
    graph.load(mapping=paper_mapping(folder / "ours"), mode="merge", engine="spark")
    graph.load(mapping=paper_mapping(folder / "theirs"), mode="merge", branch="work", engine="spark")

    def take() -> None:
        result = graph.merge("work")
        assert [item.updated for item in result.changes] == [changed], result

    session.timed("branch merge, both sides changed", take)
    expect(graph, "Paper", rows)


def unique(session: Session) -> None:
    from omnigraph.errors import LoadRejectedError

    rows, folder = session.rows * 3 // 5, session.folder
    write_papers(folder / "equal", np.arange(rows), None)
    graph = session.graph("papers", UNIQUE)

    def refused() -> None:
        total = 0
        try:
            graph.load(mapping=paper_mapping(folder / "equal"), mode="append", engine="spark")
        except LoadRejectedError as error:
            total = error.report.total
        assert total == rows - 1, total

    session.timed("one value in all rows, refused", refused)


def hubs(session: Session) -> None:
    rows, folder = session.rows * 4, session.folder
    nodes = max(100, rows // 50)
    random = np.random.default_rng(11)
    sources = np.where(
        random.random(rows) < 0.5, random.integers(0, nodes // 100, rows), random.integers(0, nodes, rows)
    )
    write_nodes(folder / "nodes", nodes)
    write_edges(folder / "edges", sources, random.integers(0, nodes, rows), 1, None)
    graph = session.graph("cites", CITES)
    mapping = edge_mapping(folder / "edges", folder / "nodes")
    session.timed(f"append of {rows:,} edges", lambda: graph.load(mapping=mapping, mode="append", engine="spark"))
    expect(graph, "Cites", rows)


CASES = {"merge": merge, "diff": diff, "both": both_sides, "unique": unique, "hubs": hubs}


# ---- data


def expect(graph: Graph, type_name: str, rows: int) -> None:
    """Compare the rows of a type with what they should be."""
    pins = graph.snapshot().pins
    (found,) = (pin.row_count for key, pin in pins.items() if key.endswith(f":{type_name}"))
    assert found == rows, (type_name, found, rows)


def shuffled(begin: int, end: int) -> Any:
    return np.random.default_rng(7).permutation(np.arange(begin, end))


def paper_mapping(source: Path) -> dict[str, Any]:
    return {"nodes": {"Paper": {"source": str(source)}}}


def edge_mapping(edges: Path, nodes: Path | None = None) -> dict[str, Any]:
    mapping: dict[str, Any] = {"edges": {"Cites": {"source": str(edges), "from": "src", "to": "dst"}}}
    return mapping if nodes is None else {**paper_mapping(nodes), **mapping}


def write_papers(path: Path, numbers: Any, word: str | None) -> None:
    """Rows of the table; without a word all of them have one title."""

    def columns(some: Any) -> dict[str, Any]:
        titles = [f"{word} title of {number}" if word else "the same" for number in some.tolist()]
        years = pa.array((some % 200 + 1800).astype(np.int32))
        return {"doi": dois(some), "title": titles, "year": years}

    write_files(path, numbers, columns)


def write_nodes(path: Path, count: int) -> None:
    write_files(path, np.arange(count), lambda some: {"doi": dois(some)})


def write_edges(path: Path, sources: Any, targets: Any, weight: int, numbers: Any) -> None:
    """Edges with ids from numbers, or without."""

    def columns(places: Any) -> dict[str, Any]:
        found = {"src": dois(sources[places]), "dst": dois(targets[places])}
        if numbers is not None:
            found["id"] = pa.array([f"e{number:010}" for number in numbers[places].tolist()])
        return {**found, "weight": pa.array(np.full(len(places), weight, np.int32))}

    write_files(path, np.arange(len(sources)), columns)


def dois(numbers: Any) -> Any:
    return pa.array([f"10.1000/{number:09}" for number in numbers.tolist()])


def write_files(path: Path, numbers: Any, columns: Callable[[Any], dict[str, Any]]) -> None:
    path.mkdir(parents=True)
    for part, begin in enumerate(range(0, len(numbers), _FILE_ROWS)):
        table = pa.table(columns(numbers[begin : begin + _FILE_ROWS]))
        pq.write_table(table, path / f"part-{part:04}.parquet", row_group_size=_GROUP_ROWS)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--only", default=",".join(CASES), help="cases, such as merge,both")
    parser.add_argument("--scratch", type=Path, default=None, help="a folder with enough room")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
