"""What large changes cost, beside a hand-written PySpark job for the same result, in one run.

    python benchmarks/large_changes.py                     5 M rows (about 6 GB of disk, some minutes)
    python benchmarks/large_changes.py --rows 200000       a quick look

Merge: as many rows as the table has, half of them replace rows and half are new, in random order. The job reads old and
new rows from Parquet, keeps the new ones by key and writes Parquet. Diff and branch merge: all replaced rows against
the state before. The job joins two states by key, compares hashes of the rows and writes the keys that differ.

The driver has 1 GiB of heap unless OMNIGRAPH_SPARK_DRIVER_MEMORY says otherwise. Memory is the peak of driver, JVM and
Python workers together.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from loading.memory import peak_memory

SCHEMA = """
node Paper { doi: String @key  title: String  year: I32 }
edge Cites: Paper -> Paper { context: String? }
"""
#: Ratio to the hand-written job → the target that it is held against.
TARGETS = {"merge": 1.3, "diff": 1.3}
_GROUP_ROWS = 250_000


def main() -> None:
    options = parse_options()
    os.environ.setdefault("OMNIGRAPH_SPARK_DRIVER_MEMORY", "1g")
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        compare(Path(folder), options.rows)


def compare(folder: Path, rows: int) -> None:
    from omnigraph import Graph
    from omnigraph.engine.spark.session import spark_session

    write_papers(folder / "old.parquet", np.arange(rows), "old")
    chosen = np.random.default_rng(7).permutation(np.arange(rows // 2, rows + rows // 2))
    write_papers(folder / "new.parquet", chosen, "new")
    spark = spark_session()
    spark.range(4).count()
    figures: dict[str, float] = {}

    def timed(name: str, work: object) -> None:
        with peak_memory() as peak:
            begin = time.perf_counter()
            work()  # type: ignore[operator]  # any callable
            figures[name] = time.perf_counter() - begin
        shown = f"{figures[name]:9.1f} s   peak {peak.bytes / 2**30:5.2f} GiB"
        print(f"{name:44} {shown}", flush=True)

    graph = Graph.init(folder / "papers.omni", SCHEMA)
    mapping = {"nodes": {"Paper": {"source": str(folder / "old.parquet")}}}
    timed("append", lambda: graph.load(mapping=mapping, mode="append"))
    graph.create_branch("before")
    mapping = {"nodes": {"Paper": {"source": str(folder / "new.parquet")}}}
    timed("merge", lambda: graph.load(mapping=mapping, mode="merge"))
    timed("merge, by hand", lambda: merge_by_hand(spark, folder))
    timed("diff", lambda: print(f"  {graph.diff('before', 'main').stats}"))
    timed("diff, by hand", lambda: diff_by_hand(spark, folder))
    timed("branch merge", lambda: graph.merge("main", into="before"))
    for name, target in TARGETS.items():
        value = figures[name] / figures[f"{name}, by hand"]
        verdict = "ok" if value <= target else "MISSED"
        print(f"{name} / by hand: {value:.2f}   target {target}: {verdict}")


def merge_by_hand(spark: object, folder: Path) -> None:
    """The rows of an upsert, as a Spark job that a person would write."""
    new = spark.read.parquet(str(folder / "new.parquet"))  # type: ignore[attr-defined]
    old = spark.read.parquet(str(folder / "old.parquet"))  # type: ignore[attr-defined]
    kept = old.join(new.select("doi"), "doi", "left_anti")
    kept.unionByName(new).write.mode("overwrite").parquet(str(folder / "merged"))


def diff_by_hand(spark: object, folder: Path) -> None:
    """The keys that differ between the states before and after, with what happened to them."""
    from pyspark.sql import functions as sql

    def hashed(path: Path, name: str) -> object:
        frame = spark.read.parquet(str(path))  # type: ignore[attr-defined]
        return frame.select("doi", sql.sha2(sql.concat_ws("|", *frame.columns), 256).alias(name))

    before, after = hashed(folder / "old.parquet", "old"), hashed(folder / "merged", "new")
    both = before.join(after, "doi", "full")  # type: ignore[attr-defined]
    differs = both.where("old is null or new is null or old != new")
    differs.orderBy("doi").write.mode("overwrite").parquet(str(folder / "differs"))


def write_papers(path: Path, numbers: object, word: str) -> None:
    """Rows of the table, in files of some groups."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    ids = np.asarray(numbers)
    for part, begin in enumerate(range(0, len(ids), 4 * _GROUP_ROWS)):
        some = ids[begin : begin + 4 * _GROUP_ROWS]
        table = pa.table(
            {
                "doi": pa.array([f"10.1000/{number:09}" for number in some.tolist()]),
                "title": pa.array([f"{word} title of {number}" for number in some.tolist()]),
                "year": pa.array((some % 200 + 1800).astype(np.int32)),
            }
        )
        pq.write_table(table, path / f"part-{part:04}.parquet", row_group_size=_GROUP_ROWS)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--scratch", type=Path, default=None, help="a folder with enough room")
    return parser.parse_args()


if __name__ == "__main__":
    main()
