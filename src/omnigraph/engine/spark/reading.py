"""Reads of one type from Spark: what was asked for, the snapshot that answers it, and its rows in Spark's types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.engine.spark.columns import to_spark
from omnigraph.engine.spark.worker_memory import spare_collections
from omnigraph.errors import BadRequestError, NotFoundError, StorageError, StorageFailure
from omnigraph.ids import TableKey, edge_table_key, node_table_key
from omnigraph.manifest.pins import open_pin, reading_pins
from omnigraph.manifest.rows import MAIN
from omnigraph.manifest.targets import Target, resolve_target
from omnigraph.recovery.environment import open_environment
from omnigraph.storage.location import parse_location
from omnigraph.storage.partitions import TableAddress, check_condition, scan_schema, table_address
from omnigraph.storage.table_parts import (
    Part,
    TableExtent,
    column_bytes,
    plan_parts,
    scan_part,
    table_extent,
)
from omnigraph.storage.tables import TableStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from omnigraph.manifest.rows import TablePin
    from omnigraph.storage.location import GraphLocation

_OPTIONS = ("path", "type", "branch", "snapshot", "version", "columns", "where")


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedScan:
    """What tasks need to read rows of a pinned table. Travels to the executors."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
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
    extent = table_extent(table)
    return PinnedRead(
        scan=PinnedScan(
            address=table_address(table),
            where=request.where,
            location=environment.location,
            pin=pin,
        ),
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
