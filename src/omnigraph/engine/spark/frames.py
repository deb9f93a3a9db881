"""One node or edge type of a graph as a DataFrame that reads what was asked for, and whose size Spark knows.

A frame is a range of numbers, of which one per task remains, mapped to the rows of a part. Rows that are made this way
pass fewer operators of Spark than those of a data source written in Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions

from omnigraph.engine.spark.columns import batch_schema, spark_schema
from omnigraph.engine.spark.reading import PinnedScan, ReadRequest, pin_read
from omnigraph.manifest.rows import MAIN
from omnigraph.manifest.targets import Target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from os import PathLike

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from omnigraph.storage.table_parts import Part

#: What Spark takes for the size of a row of a number and an empty padding that are made of a range.
_NUMBER_BYTES = 58
#: Spark counts so many numbers in a quarter of a second; they pass for 14 GiB, more than it ever broadcasts.
_MAX_NUMBERS = 1 << 28


def spark_frame(
    spark: SparkSession,
    uri: str | PathLike[str],
    type_name: str,
    *,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    branch: str | None = None,
    snapshot: str | None = None,
    version: int | None = None,
) -> DataFrame:
    """One node or edge type of a graph as a DataFrame. The snapshot is pinned now; tasks read it at every use.

    If a `cleanup` removes the snapshot later, Spark fails with the text of `HistoricalVersionReclaimedError`.

    Exactly the named columns are read: name those that the query uses. `columns=[]` gives rows without columns;
    counting them reads no data. The optimizer knows the size of the frame, so a small one is broadcast in joins.

    Args:
        spark: the session; a classic one or one of Spark Connect.
        uri: the address of the graph.
        type_name: `Paper`, or `node:Paper` and `edge:Cites` when both kinds share a name.
        columns: what the frame holds, in this order; all columns by default.
        where: a condition in the SQL of Lance, evaluated by the scan.
        branch: the branch to read; `main` by default.
        snapshot: a commit id to read instead.
        version: a graph version to read instead.

    Raises:
        BadRequestError: the type is ambiguous, a column unknown, or the condition wrong.
        NotFoundError: there is no such graph, type, branch, commit or version.
    """
    request = ReadRequest(
        uri=str(uri),
        type_name=type_name,
        target=Target(branch=branch or MAIN, snapshot=snapshot, version=version),
        columns=None if columns is None else tuple(columns),
        where=where,
    )
    pinned = pin_read(request)
    schema = spark_schema(pinned.schema)
    parts = pinned.parts(schema.names)
    count = max(1, len(parts))
    if not schema.names and where is None:
        return spark.range(0, pinned.extent.row_count, 1, count).select()
    size = pinned.extent.row_count * pinned.row_bytes(schema.names)
    step = -(-min(_MAX_NUMBERS, max(1, size // _NUMBER_BYTES)) // count)
    return _sized_numbers(spark, count, step).mapInArrow(
        _rows_of_parts(pinned.scan, parts, batch_schema(schema), step), schema
    )


def _sized_numbers(spark: SparkSession, count: int, step: int) -> DataFrame:
    """So many multiples of `step`, each in a partition of its own.

    Spark knows the size of a range, keeps it when the range is filtered, and takes it for the size of the rows that
    Python makes of it. The padding lets few numbers stand for many bytes.
    """
    numbers = spark.range(0, count * step, 1, count)
    firsts = numbers.filter(functions.col("id") % step == 0)
    return firsts.select("id", functions.lit(None).cast("binary").alias("padding"))


def _rows_of_parts(
    scan: PinnedScan, parts: Sequence[Part], wanted: pa.Schema, step: int
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function of the tasks: the rows of the parts whose first numbers come in."""

    def omnigraph_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers: list[Any] = batch.column(0).to_pylist() if parts else []
            for number in numbers:
                yield from scan.read(parts[number // step], wanted)

    return omnigraph_rows
