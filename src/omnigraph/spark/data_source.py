"""Types of a graph as DataFrames: `spark_frame`, the data source `omnigraph`, and their columns."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from os import PathLike
from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa
import pyarrow.types as arrow
from pyspark.sql import functions
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from omnigraph.commit.environment import open_environment
from omnigraph.commit.read_target import Target
from omnigraph.commit.rows import MAIN, TablePin
from omnigraph.commit.targets import named_commit_id, open_pin, reading_pins, resolve_target
from omnigraph.core.arrow import Array, Field
from omnigraph.core.ids import TableKey, edge_table_key, node_table_key
from omnigraph.core.lazy_exports import late_types
from omnigraph.errors import BadRequestError, InternalError, NotFoundError, StorageError, StorageFailure
from omnigraph.frozen import frozen
from omnigraph.spark.tasks import Batches, BatchFunction, numbers_in
from omnigraph.storage.datasets.blob_columns import plain_bytes
from omnigraph.storage.datasets.partitions import (
    Part,
    TableAddress,
    TableExtent,
    check_condition,
    column_bytes,
    plan_parts,
    scan_part,
    scan_schema,
    table_address,
    table_extent,
)
from omnigraph.storage.datasets.tables import TableStore
from omnigraph.storage.location import GraphLocation, parse_location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
else:
    globals().update(late_types({"pyspark.sql": "DataFrame SparkSession"}))


# ---- Spark types of table columns
#
# Spark has no unsigned integers, no lists of fixed length and no date with a time of day: `U32` is a bigint, `U64` a
# decimal of 20 digits, a vector an array, `DateTime` a timestamp in UTC.


_U64_DIGITS = 20
_TYPES: tuple[tuple[Callable[[pa.DataType], bool], DataType], ...] = (
    (arrow.is_string, StringType()),
    (arrow.is_large_string, StringType()),
    (arrow.is_binary, BinaryType()),
    (arrow.is_large_binary, BinaryType()),
    (arrow.is_boolean, BooleanType()),
    (arrow.is_int32, IntegerType()),
    (arrow.is_int64, LongType()),
    (arrow.is_uint32, LongType()),
    (arrow.is_uint64, DecimalType(_U64_DIGITS, 0)),
    (arrow.is_float32, FloatType()),
    (arrow.is_float64, DoubleType()),
    (arrow.is_date32, DateType()),
    (arrow.is_date64, TimestampType()),
)


def spark_schema(schema: pa.Schema) -> StructType:
    """The columns of a scan as Spark's types; names, order and nullability stay."""
    return StructType([StructField(item.name, spark_type(item.type), item.nullable) for item in schema])


def spark_type(kind: pa.DataType) -> DataType:
    """The Spark type that holds every value of a stored type."""
    if isinstance(kind, pa.ListType | pa.LargeListType | pa.FixedSizeListType):
        return ArrayType(spark_type(kind.value_type), containsNull=True)
    for fits, found in _TYPES:
        if fits(kind):
            return found
    raise InternalError(f"a column of type {kind} has no Spark type")


def batch_schema(schema: StructType) -> pa.Schema:
    """The exact Arrow types in which Spark takes batches of these columns."""
    return to_arrow_schema(schema, timezone="UTC")


def to_spark(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """A batch of a scan in the types of `batch_schema`. No value changes; one that would not fit raises."""
    if not wanted.names:
        return batch  # made again of no columns, it would have no rows
    columns = [_convert(column, item) for column, item in zip(batch.columns, wanted, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def _convert(column: Array, wanted: Field) -> Array:
    if pa.types.is_large_binary(column.type):
        column = plain_bytes(column, wanted.name)
    if _leaf(column.type) == pa.date64():
        # Arrow takes a date64 for a whole day and would drop its time.
        for step in (pa.int64(), pa.timestamp("ms")):
            column = column.cast(_with_leaf(column.type, step))
    return column if column.type == wanted.type else column.cast(wanted.type)


def _leaf(kind: pa.DataType) -> pa.DataType:
    return _leaf(kind.value_type) if isinstance(kind, pa.ListType) else kind


def _with_leaf(kind: pa.DataType, leaf: pa.DataType) -> pa.DataType:
    return pa.list_(_with_leaf(kind.value_type, leaf)) if isinstance(kind, pa.ListType) else leaf


# ---- Memory of Spark's Python workers


#: Spark sets it in processes that it keeps for further tasks, on executors and for planning.
_KEPT_PROCESS = "SPARK_REUSE_WORKER"


def spare_collections() -> None:
    """Leave what this worker has loaded out of every later garbage collection. Does nothing in other processes.

    A kept worker collects garbage after each task. With pyspark, pyarrow and Lance loaded that takes about 50 ms, more
    than a task that reads a few megabytes. Objects that exist now are mostly modules, and are kept anyway; reference
    counts free the others as before.
    """
    if _KEPT_PROCESS in os.environ:
        _freeze()


@cache
def _freeze() -> None:
    gc.freeze()


# ---- Resolving a read request


_OPTIONS = ("path", "type", "branch", "snapshot", "version", "columns", "where")


@frozen(kw_only=True)
class ReadRequest:
    """One read, checked as far as that goes without the graph."""

    uri: str
    type_name: str
    target: Target
    #: None means all.
    columns: tuple[str, ...] | None
    where: str | None

    def __post_init__(self) -> None:
        names = self.columns or ()
        if not all(names):
            raise BadRequestError("columns holds an empty name: write names joined by commas")
        if len(set(names)) != len(names):
            raise BadRequestError(f"columns names a column twice: {', '.join(names)}")

    @staticmethod
    def from_options(options: Mapping[str, str]) -> ReadRequest:
        """Read the options as Spark hands them over.

        Raises:
            BadRequestError: one is missing, unknown or has no meaning.
        """
        given = {name.lower(): text.strip() for name, text in options.items()}
        if unknown := sorted(set(given) - set(_OPTIONS)):
            known = ", ".join(_OPTIONS[1:])
            raise BadRequestError(f"there is no option {unknown[0]!r}; options are {known}")
        if not given.get("path"):
            raise BadRequestError("name the graph: .load(uri)")
        if not given.get("type"):
            raise BadRequestError('name the type to read: .option("type", "Paper")')
        return ReadRequest(
            uri=given["path"],
            type_name=given["type"],
            target=Target(
                branch=given.get("branch") or MAIN,
                snapshot=given.get("snapshot") or None,
                version=_whole_number(given.get("version")),
            ),
            columns=_names(given.get("columns")),
            where=given.get("where") or None,
        )


@frozen(kw_only=True)
class PinnedScan:
    """A scan of a pinned table, as tasks need it. Travels to the executors."""

    address: TableAddress
    where: str | None
    #: The graph and the version of the table in it: tasks run later, and a cleanup may have come first.
    location: GraphLocation
    pin: TablePin

    def read(self, part: Part, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows of one part, in the types of `wanted`.

        Raises:
            HistoricalVersionReclaimedError: the version was cleaned up since the read was pinned.
            StorageError: it cannot be read.
        """
        spare_collections()
        with reading_pins(TableStore(self.location), [self.pin]):
            for batch in scan_part(self.address, part, wanted.names, self.where):
                if batch.num_rows:
                    yield to_spark(batch, wanted)


@frozen(kw_only=True)
class PinnedRead:
    """A read whose snapshot is decided."""

    scan: PinnedScan
    extent: TableExtent
    #: The columns that were asked for.
    schema: pa.Schema
    #: About how many bytes a value of each column of the table takes.
    column_bytes: Mapping[str, int]

    def row_bytes(self, columns: Iterable[str]) -> int:
        """About how many bytes these columns of a row take."""
        return sum(self.column_bytes[name] for name in columns)

    def parts(self, columns: Sequence[str]) -> tuple[Part, ...]:
        """The table in parts, one for each task that reads these columns; none when it is empty."""
        has_condition = self.scan.where is not None
        return plan_parts(self.extent, self.row_bytes(columns), whole_fragments=has_condition)


def pin_read(request: ReadRequest) -> PinnedRead:
    """Resolve a read once: one look at the manifest, one dataset opened.

    Raises:
        BadRequestError: the type is ambiguous, a column unknown, or the condition wrong.
        NotFoundError: there is no such graph, type, branch, commit or version.
    """
    environment = open_environment(parse_location(request.uri), durable=False)
    try:
        state = environment.manifest.state()
    except StorageError as error:
        if error.failure is StorageFailure.NOT_FOUND:
            raise NotFoundError(f"there is no graph at {request.uri}") from error
        raise
    target = request.target
    if target.snapshot is not None:
        target = replace(target, snapshot=named_commit_id(environment.manifest, target.snapshot))
    snapshot = resolve_target(environment.manifest, state, target)
    pin = snapshot.pins[find_table(request.type_name, snapshot.pins)]
    table = open_pin(environment.tables, pin)
    if request.where is not None:
        check_condition(table, request.where)
    extent = table_extent(table)
    return PinnedRead(
        scan=PinnedScan(address=table_address(table), where=request.where, location=environment.location, pin=pin),
        extent=extent,
        schema=scan_schema(table, request.columns),
        column_bytes=column_bytes(scan_schema(table), extent),
    )


def find_table(type_name: str, known: Iterable[TableKey]) -> TableKey:
    """The table that a user means by `Paper`, `node:Paper` or `edge:Cites`.

    Raises:
        BadRequestError: the bare name is both a node and an edge type.
        NotFoundError: there is no such type; lists those there are.
    """
    known = sorted(known)
    if ":" in type_name:
        found = [key for key in known if key == type_name]
    else:
        both = (node_table_key(type_name), edge_table_key(type_name))
        found = [key for key in known if key in both]
    if len(found) > 1:
        raise BadRequestError(f"{type_name} is a node and an edge type: say {' or '.join(found)}")
    if not found:
        raise NotFoundError(f"there is no type {type_name}; types are {', '.join(known)}")
    return found[0]


def _whole_number(text: str | None) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        raise BadRequestError(f"version={text} is not a graph version: give a whole number")
    return int(text)


def _names(text: str | None) -> tuple[str, ...] | None:
    return tuple(name.strip() for name in text.split(",")) if text else None


# ---- The Spark data source `omnigraph`
#
#     spark.dataSource.register(OmniGraphDataSource)
#     papers = spark.read.format("omnigraph").option("type", "Paper").load("papers.omni")
#
# Spark makes the source once per `load` and keeps it; the snapshot that it reads is pinned then. To a source written
# in Python, Spark 4.3 tells neither which columns a query uses nor how large a table is, and a filter that it pushes
# down stays with the table and falsifies later reads of it. So `columns` and `where` are options, and `spark_frame` is
# faster.


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

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        """There is none: several types have to change in one commit."""
        raise BadRequestError("write with graph.load(frames={...}, mode=...): all types in one commit")

    def __getstate__(self) -> dict[str, object]:
        # Spark pickles the source right after making it and reads from copies: pinned here, all of them see the same
        # snapshot, also when the caller gave a schema and Spark does not ask for ours.
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


# ---- Types as DataFrames of known size
#
# A frame is a range of numbers, of which one per task remains, mapped to the rows of a part. Rows that are made this
# way pass fewer operators of Spark than those of a data source written in Python.


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


def _rows_of_parts(scan: PinnedScan, parts: Sequence[Part], wanted: pa.Schema, step: int) -> BatchFunction:
    """The function of the tasks: the rows of the parts whose first numbers come in."""

    def omnigraph_rows(batches: Batches) -> Batches:
        for number in numbers_in(batches) if parts else ():
            yield from scan.read(parts[number // step], wanted)

    return omnigraph_rows
