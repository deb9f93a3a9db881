"""The Spark data source `omnigraph`: one node or edge type of a graph as a DataFrame.

    spark.dataSource.register(OmniGraphDataSource)
    papers = spark.read.format("omnigraph").option("type", "Paper").load("papers.omni")

Spark makes the source once per `load` and keeps it; the snapshot that it reads is pinned then. To a source written in
Python, Spark 4.3 tells neither which columns a query uses nor how large a table is, and a filter that it pushes down
stays with the table and falsifies later reads of it. So `columns` and `where` are options, and `frames` is faster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from omnigraph.engine.spark.columns import batch_schema, spark_schema
from omnigraph.engine.spark.reading import PinnedRead, ReadRequest, pin_read
from omnigraph.engine.spark.worker_memory import spare_collections
from omnigraph.errors import BadRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType


class OmniGraphDataSource(DataSource):
    """Reads one type of a graph into a DataFrame; every task reads the same snapshot.

    Options: `type` (`Paper`, or `node:Paper` and `edge:Cites` when both kinds share a name); one of `branch`,
    `snapshot` (a commit id) and `version` (a graph version); `columns` (a comma list); `where` (a condition in the
    SQL of Lance, evaluated by the scan). The graph's address is the argument of `load`.

    All columns in `columns` are read, whatever the query uses. With an empty schema, `.schema(StructType([]))`, rows
    are counted and no data is read. `spark_frame` reads the same rows faster, and tells Spark their size.
    """

    _pinned: PinnedRead | None = None

    @classmethod
    def name(cls) -> str:
        """The name for `spark.read.format`."""
        return "omnigraph"

    def schema(self) -> StructType:
        """The columns of the type, as Spark's types."""
        return spark_schema(self._pin().schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the pinned snapshot. A schema of the caller selects columns; it does not change their types."""
        spare_collections()
        pinned = self._pin()
        available = {item.name: item for item in spark_schema(pinned.schema)}
        for wanted in schema:
            known = available.get(wanted.name)
            if known is None or known.dataType != wanted.dataType:
                found = "no such column" if known is None else known.dataType.simpleString()
                raise BadRequestError(
                    f"the schema asks for {wanted.name} {wanted.dataType.simpleString()}, the graph has {found}: "
                    "leave the schema out, or select columns with the option `columns`"
                )
        return OmniGraphReader(pinned, schema)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        """There is none: several types have to change in one commit."""
        raise BadRequestError(
            "write with graph.load(frames={...}, mode=...): all types in one commit"
        )

    def __getstate__(self) -> dict[str, Any]:
        # Spark pickles the source right after making it and reads from copies: pinned here, all of them see the same
        # snapshot, also when the caller gave a schema and nobody asked for ours.
        self._pin()
        spare_collections()
        return self.__dict__

    def _pin(self) -> PinnedRead:
        if self._pinned is None:
            self._pinned = pin_read(ReadRequest.from_options(self.options))
        return self._pinned


class OmniGraphReader(DataSourceReader):
    """Scans a pinned table, part by part. Travels to the executors."""

    def __init__(self, pinned: PinnedRead, schema: StructType) -> None:
        self._scan = pinned.scan
        self._wanted = batch_schema(schema)
        self._parts = pinned.parts(self._wanted.names)

    def partitions(self) -> Sequence[InputPartition]:
        """One for each part of the table."""
        return [InputPartition(part) for part in self._parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part, in the types of the schema."""
        if partition.value is None:
            return  # what Spark sends for a table without rows
        yield from self._scan.read(partition.value, self._wanted)
