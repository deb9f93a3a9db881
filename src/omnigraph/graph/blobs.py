"""Single blob cells, whole or in ranges."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property, partial
from hashlib import sha256
from typing import TYPE_CHECKING, TypeAlias, Unpack

from typing_extensions import override

from omnigraph.api.reading_api import TargetKeywords
from omnigraph.api.results import BLOB_RANGE_BYTES, BlobCell, BlobInfo, BlobKind, BlobStream, check_range, external_blob
from omnigraph.commit.read_target import Target
from omnigraph.commit.targets import reading_pins
from omnigraph.core.source import with_hint
from omnigraph.core.types import Scalar, ScalarType
from omnigraph.errors import BadRequestError, NotFoundError
from omnigraph.graph.open_graph import OpenGraph, graph_method
from omnigraph.lang.schema.catalog import Catalog, EdgeDef, NodeDef
from omnigraph.storage.datasets.tables import Table

if TYPE_CHECKING:
    from omnigraph.storage.datasets.blobs import StoredBlob


# ---- Blob cells


if TYPE_CHECKING:
    Reading: TypeAlias = Callable[[], AbstractContextManager[None]]

_BLOB = ScalarType(Scalar.BLOB)


class BlobReader(BlobStream):
    """One cell of the tables below a graph."""

    def __init__(self, table: Table, blob: StoredBlob, facts: BlobInfo, reading: Reading) -> None:
        self._table = table
        self._blob = blob
        #: Everything but the tag.
        self._facts = facts
        self._reading = reading

    @override
    @property
    def size(self) -> int:
        if self._blob.uri is not None:
            raise external_blob(self._facts.cell, self._blob.uri)
        return self._blob.size

    @cached_property
    def info(self) -> BlobInfo:
        """Describe the cell. Costs one range at most, for the tag of a small value."""
        if self._blob.uri is not None:
            return self._facts
        with self._reading():
            return replace(self._facts, etag=etag_of(self._table, self._blob))

    @override
    def _pieces(self, begin: int, end: int) -> Iterator[bytes]:
        from omnigraph.storage.datasets.blobs import read_blob_range

        while begin < end:
            length = min(BLOB_RANGE_BYTES, end - begin)
            with self._reading():
                piece = read_blob_range(self._table, self._blob, begin, length)
            yield piece
            begin += length


# ---- finding a cell


def find_type(catalog: Catalog, type_key: str) -> NodeDef | EdgeDef:
    """The type of `node:Name` or `edge:Name`; the name of an edge type in any case.

    Raises:
        BadRequestError: it is not of this form.
        NotFoundError: there is no such type.
    """
    kind, _, name = type_key.partition(":")
    if kind not in ("node", "edge") or not name:
        raise BadRequestError(f"{type_key!r} names no type: write node:Name or edge:Name")
    found = catalog.nodes.get(name) if kind == "node" else catalog.edge(name)
    if found is None:
        known = catalog.nodes if kind == "node" else catalog.edges
        raise NotFoundError(with_hint(f"there is no {kind} type {name} at this snapshot", name, known))
    return found


def find_property(definition: NodeDef | EdgeDef, name: str) -> None:
    """Make sure that a property holds blobs.

    Raises:
        NotFoundError: there is no such property.
        BadRequestError: the property is not a Blob.
    """
    found = definition.properties.get(name)
    if found is None:
        raise NotFoundError(with_hint(f"{definition.table_key} has no property {name}", name, definition.properties))
    if found.type.base != _BLOB:
        raise BadRequestError(f"{definition.table_key}.{name} is not a Blob: read it with a query")


def etag_of(table: Table, blob: StoredBlob) -> str:
    """A strong tag: of the bytes where one range holds them, else of the place in a file that never changes."""
    from omnigraph.storage.datasets.blobs import read_blob_range

    if blob.size > BLOB_RANGE_BYTES:
        return f'"file-{blob.place[:40]}"'
    data = read_blob_range(table, blob, 0, blob.size) if blob.size else b""
    return f'"sha256-{sha256(data).hexdigest()}"'


# ---- Operations on blobs


@graph_method
def read_blob(
    graph: OpenGraph,
    type_key: str,
    entity_id: str,
    property_name: str,
    *,
    offset: int = 0,
    length: int | None = None,
    **target: Unpack[TargetKeywords],
) -> bytes:
    check_range(offset, length, limit=BLOB_RANGE_BYTES)
    wanted = graph.target(**target)
    with graph.reading():
        return _open(graph, type_key, entity_id, property_name, wanted).read(offset, length)


@graph_method
def stat_blob(
    graph: OpenGraph, type_key: str, entity_id: str, property_name: str, **target: Unpack[TargetKeywords]
) -> BlobInfo:
    wanted = graph.target(**target)
    with graph.reading():
        return _open(graph, type_key, entity_id, property_name, wanted).info


@graph_method
def open_blob(
    graph: OpenGraph, type_key: str, entity_id: str, property_name: str, **target: Unpack[TargetKeywords]
) -> BlobReader:
    return _open(graph, type_key, entity_id, property_name, graph.target(**target))


def _open(graph: OpenGraph, type_key: str, entity_id: str, property_name: str, target: Target) -> BlobReader:
    """The reader of a cell.

    Raises:
        NotFoundError: there is no such type, property or entity, or the cell is null.
        BadRequestError: the property is not a Blob.
    """
    from omnigraph.storage.datasets.blobs import find_blob, has_row

    snapshot = graph.resolve(target)
    definition = find_type(graph.catalog_of(snapshot), type_key)
    find_property(definition, property_name)
    key = definition.table_key
    pin = snapshot.pins[key]
    table = graph.open_table(pin)
    # Tells a version that was cleaned up from one that is damaged.
    reading = partial(reading_pins, graph.environment.tables, [pin])
    with reading():
        blob = find_blob(table, property_name, entity_id)
        is_there = blob is not None or has_row(table, entity_id)
    if blob is None:
        if not is_there:
            raise NotFoundError(f"there is no {key} {entity_id!r}")
        raise NotFoundError(f"{key} {entity_id!r} has no {property_name}: it is null")
    facts = BlobInfo(
        cell=BlobCell(type_key=key, entity_id=entity_id, property=property_name),
        kind=BlobKind.MANAGED if blob.uri is None else BlobKind.EXTERNAL,
        size=blob.size if blob.uri is None else None,
        etag=None,
        uri=blob.uri,
        target=target,
        snapshot_id=snapshot.commit_id,
    )
    return BlobReader(table, blob, facts, reading)
