"""Small stored tables, and what an engine needs around them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from omnigraph.commit.rows import TablePin
from omnigraph.commit.snapshot import Snapshot
from omnigraph.core.arrow import arrow_type
from omnigraph.core.ids import TableKey
from omnigraph.core.types import BaseType, ListType, Scalar, ScalarType
from omnigraph.core.values import StoredValue
from omnigraph.engine.tables.context import Context, EngineCaches
from omnigraph.engine.tables.settings import EngineSettings
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.storage.datasets.filters import OneOf
from omnigraph.storage.datasets.fragments import stage_delete
from omnigraph.storage.datasets.staged import commit_staged, create_table, stage_append, stage_upsert
from omnigraph.storage.datasets.tables import Table, TableStore
from omnigraph.storage.derived import DerivedArrays
from omnigraph.storage.location import GraphLocation

#: What days and milliseconds are made from.
_RAW = {Scalar.DATE: pa.int32(), Scalar.DATETIME: pa.int64()}


def column(base: BaseType, values: Iterable[Any]) -> pa.Array:
    """Stored values as the column that storage would hold."""
    held = [list(value) if isinstance(value, tuple) else value for value in values]
    type_ = arrow_type(base)
    match base:
        case ScalarType(scalar) if scalar in _RAW:
            return pa.array(held, _RAW[scalar]).cast(type_)
        case ListType(item) if item in _RAW:
            return pa.array(held, pa.list_(_RAW[item])).cast(type_)
    return pa.array(held, type_)


def append(table: Table, rows: pa.Table) -> Table:
    return commit_staged(stage_append(table, rows))


def upsert(table: Table, rows: pa.Table) -> Table:
    return commit_staged(stage_upsert(table, rows))


def delete(table: Table, ids: Sequence[str]) -> Table:
    addresses = table.read(["_rowaddr"], OneOf("id", ids))["_rowaddr"].to_pylist()
    staged = stage_delete(table, addresses)
    assert staged is not None
    return commit_staged(staged)


def stored(location: GraphLocation, path: str, *parts: pa.Table) -> Table:
    """A table with the rows of all parts, a fragment each."""
    table = create_table(location, path, parts[0].schema)
    for part in parts:
        if part.num_rows:
            table = append(table, part)
    return table


def new_caches(location: GraphLocation, **settings: Any) -> EngineCaches:
    """Empty caches that keep nothing on disk."""
    return EngineCaches(EngineSettings(**settings), DerivedArrays(location, writable=False))


def new_context(
    location: GraphLocation,
    tables: Mapping[str, Table],
    variables: Mapping[str, str] | None = None,
    values: Mapping[str, StoredValue] | None = None,
    **settings: Any,
) -> Context:
    """A running query over tables by key, with variables that range over some of them."""
    store = TableStore(location)
    pins = {}
    for name, table in tables.items():
        store.remember(table)
        key = TableKey(name)
        pins[key] = TablePin(
            table_key=key,
            incarnation=1,
            location=table.path,
            branch=table.branch,
            version=table.version,
            row_count=table.row_count,
        )
    return Context(
        catalog=Catalog(interfaces={}, nodes={}, edges={}, schema_hash="sha256:none"),
        snapshot=Snapshot(
            branch="main", incarnation=1, graph_version=1, commit_id="c", schema_hash="sha256:none", pins=pins
        ),
        store=store,
        caches=new_caches(location, **settings),
        values=values or {},
        tables={variable: TableKey(name) for variable, name in (variables or {}).items()},
        embed=_never_embed,
    )


def _never_embed(*_: object) -> tuple[float, ...]:
    raise AssertionError("no test here embeds a text")
