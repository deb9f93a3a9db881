"""The Spark data source `omnigraph`: one node or edge type of a graph as a DataFrame.

    spark.dataSource.register(OmniGraphDataSource)
    papers = spark.read.format("omnigraph").option("type", "Paper").load("papers.omni")

Spark makes the source once per `load` and keeps it; the snapshot that it reads is pinned then. Filters of Spark are not
pushed down: in pyspark 4.3 a pushed filter stays with the table and falsifies later reads of it. `where` is pushed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from omnigraph.engine.spark.columns import batch_schema, spark_schema, to_spark
from omnigraph.errors import BadRequestError, NotFoundError, StorageError, StorageFailure
from omnigraph.ids import TableKey, edge_table_key, node_table_key
from omnigraph.manifest import MAIN, Target, open_pin, resolve_target
from omnigraph.recovery import open_environment
from omnigraph.storage import parse_location
from omnigraph.storage.partitions import (
    FragmentGroup,
    TableAddress,
    check_condition,
    list_fragment_groups,
    scan_fragments,
    scan_schema,
    table_address,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

_OPTIONS = ("path", "type", "branch", "snapshot", "version", "columns", "where")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """The options of one read, checked as far as that goes without the graph."""

    uri: str
    type_name: str
    target: Target
    #: None means all.
    columns: tuple[str, ...] | None
    where: str | None

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


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedRead:
    """A read whose snapshot is decided: everything that tasks need, and nothing that could move."""

    address: TableAddress
    groups: tuple[FragmentGroup, ...]
    schema: pa.Schema
    where: str | None


class OmniGraphDataSource(DataSource):
    """Reads one type of a graph into a DataFrame; every task reads the same snapshot.

    Options: `type` (`Paper`, or `node:Paper` and `edge:Cites` when both kinds share a name); one of `branch`,
    `snapshot` (a commit id) and `version` (a graph version); `columns` (a comma list); `where` (a condition in the
    SQL of Lance, evaluated by the scan). The graph's address is the argument of `load`.
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
        return self.__dict__

    def _pin(self) -> PinnedRead:
        if self._pinned is None:
            self._pinned = pin_read(ReadRequest.from_options(self.options))
        return self._pinned


class OmniGraphReader(DataSourceReader):
    """Scans the fragments of a pinned table, group by group. Travels to the executors."""

    def __init__(self, pinned: PinnedRead, schema: StructType) -> None:
        self._pinned = pinned
        self._wanted = batch_schema(schema)

    def partitions(self) -> Sequence[InputPartition]:
        """One per group of fragments."""
        return [InputPartition(group.fragment_ids) for group in self._pinned.groups]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one group, in the types of the schema."""
        if partition.value is None:
            return  # what Spark sends for a table without rows
        pinned = self._pinned
        for batch in scan_fragments(
            pinned.address, partition.value, self._wanted.names, pinned.where
        ):
            if batch.num_rows:
                yield to_spark(batch, self._wanted)


def pin_read(request: ReadRequest) -> PinnedRead:
    """Resolve a read once: one look at the catalog, one dataset opened.

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
    snapshot = resolve_target(environment.manifest, state, request.target)
    pin = snapshot.pins[find_table(request.type_name, snapshot.pins)]
    table = open_pin(environment.tables, pin)
    if request.where is not None:
        check_condition(table, request.where)
    return PinnedRead(
        address=table_address(table),
        groups=list_fragment_groups(table),
        schema=scan_schema(table, request.columns),
        where=request.where,
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
    if not text:
        return None
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise BadRequestError(f"columns={text} holds an empty name: write names joined by commas")
    if len(set(names)) != len(names):
        raise BadRequestError(f"columns={text} names a column twice")
    return names
