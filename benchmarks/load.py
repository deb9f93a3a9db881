"""What loads cost, beside the same Spark writing Parquet, bare Lance and a graph database, in one run.

    python benchmarks/load.py                       100 k persons, 2 M and 20 M edges (needs about 8 GB of disk)
    python benchmarks/load.py --edges 200000        a quick look

One warm Spark session does everything; the start of its JVM is reported apart. Ratios compare within a run, on the same
files, in the same session. Memory is the peak of driver, JVM and Python workers together.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from loading.data import SCHEMA, Files, ensure
from loading.memory import peak_memory

HERE = Path(__file__).parent
#: Ratio → the target that it is held against.
TARGETS = {
    "append / parquet": 2.0,
    "overwrite / append": 1.2,
    "merge 1 % / append": 0.25,
    "data source / parquet read": 2.0,
    "cli / bare session": 1.5,
}


class Run:
    """Figures of one run."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.figures: dict[str, dict[str, float]] = {}

    def time(self, name: str, work: object) -> float:
        """Run something once under the clock and the memory watch."""
        with peak_memory() as peak:
            begin = time.perf_counter()
            work()  # type: ignore[operator]  # any callable
            seconds = time.perf_counter() - begin
        self.figures[name] = {"seconds": seconds, "peak_gib": peak.bytes / 2**30}
        print(f"{name:42} {seconds:8.2f} s   peak {peak.bytes / 2**30:5.2f} GiB", flush=True)
        return seconds

    def ratio(self, name: str, label: str, ours: str, baseline: str) -> None:
        """Print how two figures relate, and whether that meets its target."""
        value = self.figures[ours]["seconds"] / self.figures[baseline]["seconds"]
        target = TARGETS.get(name)
        verdict = "" if target is None else f"   target {target}: {'ok' if value <= target else 'MISSED'}"
        self.figures[f"{label}: {name}"] = {"ratio": value}
        print(f"{label}: {name:30} {value:8.2f}{verdict}", flush=True)

    def folder(self, name: str) -> Path:
        """An empty place below the scratch directory."""
        path = self.scratch / name
        path.unlink() if path.is_file() else shutil.rmtree(path, ignore_errors=True)
        return path


def main() -> None:
    options = parse_options()
    with tempfile.TemporaryDirectory(dir=options.data.mkdir(parents=True, exist_ok=True) or options.data) as scratch:
        run = Run(Path(scratch))
        session_start(run)
        for edges in options.edges:
            files = ensure(options.data, options.persons, edges, lines=edges == min(options.edges))
            compare_loads(run, files, options)
        if len(options.edges) > 1:
            small, large = (f"{e:,} edges: append from Parquet" for e in (min(options.edges), max(options.edges)))
            growth = run.figures[large]["peak_gib"] / run.figures[small]["peak_gib"]
            print(f"memory, {max(options.edges):,} against {min(options.edges):,} edges: {growth:.2f}")
        if not options.no_cli:
            command_line(run)
    if options.json:
        options.json.write_text(json.dumps(run.figures, indent=2))


def session_start(run: Run) -> None:
    from omnigraph.spark.session import spark_session

    def start() -> None:
        spark_session().range(4).count()

    run.time("start of the JVM and one job", start)


def compare_loads(run: Run, files: Files, options: argparse.Namespace) -> None:
    from omnigraph import Graph
    from omnigraph.spark.session import spark_session

    spark = spark_session()
    label = f"{files.edges:,} edges"
    name = lambda what: f"{label}: {what}"  # noqa: E731  # a prefix, used a dozen times

    def plain_parquet(files: Files = files) -> None:
        out = run.folder("plain")
        for source in ("persons.parquet", "knows"):
            frame = spark.read.parquet(str(files.folder / source))
            frame.write.parquet(str(out / source.removesuffix(".parquet")))

    store = run.folder(f"graph-{files.edges}.omni")
    graph = Graph.init(store, SCHEMA)
    # Warm: classes are loaded, workers started, and the input is in the cache of the system.
    small = ensure(options.data, 1_000, 10_000, lines=False)
    plain_parquet(small)
    Graph.init(run.folder("warm.omni"), SCHEMA).load(mapping=small.mapping, mode="append", engine="spark")
    for path in files.folder.rglob("*.parquet"):
        path.read_bytes()
    # Ours first: its peak of memory should not hold what the JVM kept of another job.
    run.time(name("append from Parquet"), lambda: graph.load(mapping=files.mapping, mode="append", engine="spark"))
    run.time(name("Spark writes plain Parquet"), plain_parquet)
    run.ratio("append / parquet", label, name("append from Parquet"), name("Spark writes plain Parquet"))
    run.time(name("bare Lance, one process, no checks"), lambda: bare_lance(run, files))
    run.ratio("append / bare Lance", label, name("append from Parquet"), name("bare Lance, one process, no checks"))
    if options.peers and copy_into_ladybug(run, files, options, name("ladybug COPY")):
        run.ratio("append / ladybug", label, name("append from Parquet"), name("ladybug COPY"))
    if files.lines.exists():
        lines = Graph.init(run.folder("lines.omni"), SCHEMA)
        run.time(name("append from JSONL"), lambda: lines.load(files.lines, mode="append", engine="spark"))
        run.ratio("append JSONL / append Parquet", label, name("append from JSONL"), name("append from Parquet"))
    changed = one_percent(run, graph)
    mapping = {"edges": {"Knows": {"source": str(changed), "id": "id", "from": "from", "to": "to"}}}
    run.time(name("merge of 1 %"), lambda: graph.load(mapping=mapping, mode="merge", engine="spark"))
    run.ratio("merge 1 % / append", label, name("merge of 1 %"), name("append from Parquet"))
    run.time(
        name("overwrite from Parquet"), lambda: graph.load(mapping=files.mapping, mode="overwrite", engine="spark")
    )
    run.ratio("overwrite / append", label, name("overwrite from Parquet"), name("append from Parquet"))
    read_tables(run, files, store, label)


def bare_lance(run: Run, files: Files) -> None:
    import lance
    import pyarrow.dataset as ds

    out = run.folder("bare")
    for source in ("persons.parquet", "knows"):
        data = ds.dataset(files.folder / source)
        lance.write_dataset(data.scanner().to_reader(), str(out / source))


def copy_into_ladybug(run: Run, files: Files, options: argparse.Namespace, name: str) -> bool:
    """The bulk copy of an embedded graph database, in the environment of the peers."""
    python = options.peers / "bin" / "python"
    if not python.exists():
        print(f"{name}: not measured, {options.peers} is missing (benchmarks/queries.py makes it)")
        return False
    script = HERE / "loading" / "ladybug_copy.py"
    out = run.folder("ladybug")

    def copy() -> None:
        subprocess.run([python, script, files.folder, out], check=True)

    run.time(name, copy)
    return True


def one_percent(run: Run, graph: object) -> Path:
    """One edge in a hundred with another weight, under its id."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = run.folder("changed.parquet")
    pin = graph.snapshot().pins["edge:Knows"]  # type: ignore[attr-defined]  # a Graph
    table = graph._core.open_table(pin)  # type: ignore[attr-defined]  # the same
    rows = table.read(["id", "src", "dst", "since", "kind", "weight"])
    chosen = rows.take(pa.array(np.arange(0, rows.num_rows, 100)))
    chosen = chosen.rename_columns(["id", "from", "to", "since", "kind", "weight"])
    weights = pa.array(np.random.default_rng(3).random(chosen.num_rows))
    pq.write_table(chosen.set_column(5, "weight", weights), out)
    return out


def read_tables(run: Run, files: Files, store: Path, label: str) -> None:
    """Reading through the data source against Spark reading the same rows from Parquet."""
    from omnigraph import OmniGraphDataSource
    from omnigraph.spark.session import spark_session

    spark = spark_session()
    spark.dataSource.register(OmniGraphDataSource)
    plain = run.scratch / "plain" / "knows"

    def drain(frame: object) -> None:
        frame.write.format("noop").mode("overwrite").save()  # type: ignore[attr-defined]  # a DataFrame

    columns = ["from", "to", "since", "kind", "weight"]
    # Warm: the first read starts a planner and workers, and compiles.
    for _ in range(2):
        drain(spark.read.parquet(str(plain)).select(columns))
        drain(source(spark, store))
    run.time(f"{label}: Spark reads Parquet", lambda: drain(spark.read.parquet(str(plain)).select(columns)))
    run.time(f"{label}: Spark reads the data source", lambda: drain(source(spark, store)))
    run.ratio(
        "data source / parquet read", label, f"{label}: Spark reads the data source", f"{label}: Spark reads Parquet"
    )


def source(spark: object, store: Path) -> object:
    """All edges through the data source."""
    reader = spark.read.format("omnigraph").option("type", "Knows")  # type: ignore[attr-defined]  # a session
    return reader.option("columns", "src,dst,since,kind,weight").load(str(store))


def command_line(run: Run) -> None:
    """A small load from the shell against the bare start of a session that runs one job; medians of three."""
    bare = (
        "import os, sys; os.environ['PYSPARK_PYTHON'] = sys.executable\n"
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.master('local[*]').config('spark.ui.enabled', 'false').getOrCreate()\n"
        "function = lambda batches: batches\n"
        "spark.range(4).mapInArrow(function, 'id long').collect()\n"
        "spark.stop()\n"
    )
    store = run.folder("small.omni")
    data = run.scratch / "small.jsonl"
    with data.open("w") as out:
        for number in range(300):
            body = {"pid": f"p{number}", "name": "x", "age": 3, "score": 0.5}
            out.write(json.dumps({"type": "Person", "data": body}) + "\n")
    schema = run.scratch / "schema.pg"
    schema.write_text(SCHEMA)
    omnigraph = [sys.executable, "-m", "omnigraph"]
    subprocess.run([*omnigraph, "init", str(store), "--schema", str(schema)], check=True, stdout=subprocess.DEVNULL)
    load = [*omnigraph, "load", str(store), "--data", str(data), "--mode", "overwrite", "--engine", "spark", "--quiet"]
    # Once aside: the first session of a machine records the class-data archive.
    subprocess.run(load, check=True, stdout=subprocess.DEVNULL)
    times: dict[str, list[float]] = {"cli": [], "bare": []}
    for _ in range(3):
        for name, command in (("bare", [sys.executable, "-c", bare]), ("cli", load)):
            begin = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ)
            times[name].append(time.perf_counter() - begin)
    for name, label in (("bare", "bare session and one job"), ("cli", "omnigraph load of 300 lines")):
        run.figures[label] = {"seconds": sorted(times[name])[1]}
        print(f"{label:42} {sorted(times[name])[1]:8.2f} s")
    run.ratio("cli / bare session", "300 lines", "omnigraph load of 300 lines", "bare session and one job")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--persons", type=int, default=100_000)
    parser.add_argument("--edges", type=int, nargs="+", default=[2_000_000, 20_000_000])
    parser.add_argument("--data", type=Path, default=HERE / ".data")
    parser.add_argument("--peers", type=Path, default=HERE / ".peers")
    parser.add_argument("--no-cli", action="store_true", help="leave out the command line")
    parser.add_argument("--json", type=Path, help="write all figures to a file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
