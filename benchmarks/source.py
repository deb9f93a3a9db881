"""What reading a type from Spark costs, by the data source and by `spark_frame`, beside Spark reading Parquet.

    python benchmarks/source.py                     3 M edges, two cores
    python benchmarks/source.py --edges 300000      a quick look

The same session reads the same rows: counts them, and drains one column, a filter and all columns into nothing. Readers
take turns, and medians of the rounds are compared. Processor time is that of driver, JVM and Python workers together;
on a busy machine it says more than the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from loading.data import SCHEMA, ensure
from loading.processor import tree_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

HERE = Path(__file__).parent
COLUMNS = ["id", "src", "dst", "since", "kind", "weight"]
CONDITION = "weight < 0.1"
BASELINE = "Parquet"
READERS = (BASELINE, "data source", "spark_frame")
#: Question → how many times Parquet's time `spark_frame` may take.
TARGETS = {"count": 2.0, "one number": 2.0, "one text": 2.0, "filter, 10 %": 2.0, "all columns": 1.3}
WARM_ROUNDS = 2


@dataclass(frozen=True, slots=True)
class Readers:
    """The same rows in three ways."""

    spark: SparkSession
    parquet: str
    graph: str

    def read(self, reader: str, columns: list[str], where: str | None = None) -> DataFrame:
        """The frame that a user would write."""
        from omnigraph import spark_frame

        if reader == BASELINE:
            frame = self.spark.read.parquet(self.parquet)
            return (frame.filter(where) if where else frame).select(columns)
        if reader == "spark_frame":
            return spark_frame(self.spark, self.graph, "Knows", columns=columns, where=where)
        source = self.spark.read.format("omnigraph").option("type", "Knows")
        # Spark hands the source no empty list of columns: its users count whatever they loaded.
        source = source.option("columns", ",".join(columns or COLUMNS))
        return (source.option("where", where) if where else source).load(self.graph)

    def questions(self) -> dict[str, Callable[[str], object]]:
        """What is asked of each reader."""
        return {
            "count": lambda reader: self.read(reader, []).count(),
            "one number": lambda reader: drain(self.read(reader, ["weight"])),
            "one text": lambda reader: drain(self.read(reader, ["src"])),
            "filter, 10 %": lambda reader: drain(self.read(reader, COLUMNS, CONDITION)),
            "all columns": lambda reader: drain(self.read(reader, COLUMNS)),
        }


@dataclass(slots=True)
class Times:
    """All rounds of one question by one reader, in seconds."""

    clock: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    def medians(self) -> tuple[float, float]:
        """By the clock and by the processor."""
        return statistics.median(self.clock), statistics.median(self.processor)


def main() -> None:
    options = parse_options()
    os.environ["OMNIGRAPH_SPARK_MASTER"] = f"local[{options.cores}]"
    options.data.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.data) as scratch:
        readers = prepare(Path(scratch), options)
        figures = measure(readers, options.rounds)
    report(figures)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2))


def prepare(scratch: Path, options: argparse.Namespace) -> Readers:
    """A graph, and the rows of its edges as Parquet."""
    from omnigraph import Graph, OmniGraphDataSource, spark_frame
    from omnigraph.spark.session import spark_session

    files = ensure(options.data, options.persons, options.edges, lines=False)
    store, parquet = scratch / "graph.omni", scratch / "knows"
    with Graph.init(store, SCHEMA) as graph:
        graph.load(mapping=files.mapping, mode="append", engine="spark")
    spark = spark_session()
    spark.dataSource.register(OmniGraphDataSource)
    spark_frame(spark, store, "Knows").write.parquet(str(parquet))
    return Readers(spark, str(parquet), str(store))


def measure(readers: Readers, rounds: int) -> dict[str, dict[str, dict[str, float]]]:
    """Medians of every question by every reader."""
    figures: dict[str, dict[str, dict[str, float]]] = {}
    for question, ask in readers.questions().items():
        times = {reader: Times() for reader in READERS}
        for number in range(WARM_ROUNDS + rounds):
            for reader, found in times.items():
                used, begin = tree_seconds(), time.perf_counter()
                ask(reader)
                clock, processor = time.perf_counter() - begin, tree_seconds() - used
                if number >= WARM_ROUNDS:
                    found.clock.append(clock)
                    found.processor.append(processor)
        figures[question] = {
            reader: dict(zip(("clock", "processor"), found.medians(), strict=True)) for reader, found in times.items()
        }
    return figures


def report(figures: dict[str, dict[str, dict[str, float]]]) -> None:
    """Seconds and ratios, by the clock and by processor time."""
    for unit in ("clock", "processor"):
        print(f"\n{unit} seconds      " + "".join(f"{name:>20}" for name in READERS))
        for question, readers in figures.items():
            baseline = readers[BASELINE][unit]
            line = f"{question:18} {baseline:19.3f}"
            for reader in READERS[1:]:
                seconds = readers[reader][unit]
                line += f"{seconds:12.3f} {seconds / baseline:6.2f}x"
            ratio = readers["spark_frame"][unit] / baseline
            verdict = "ok" if ratio <= TARGETS[question] else "MISSED"
            print(f"{line}   target {TARGETS[question]}: {verdict}")


def drain(frame: DataFrame) -> None:
    """Read every row of a frame, and keep nothing."""
    frame.write.format("noop").mode("overwrite").save()


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--persons", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=3_000_000)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--data", type=Path, default=HERE / ".data")
    parser.add_argument("--json", type=Path, help="write all figures to a file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
