"""What every operator of one running query shares."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from omnigraph.budget import Budget
from omnigraph.engine.local.caches import LruCache
from omnigraph.engine.local.entities import Entities, Numbering
from omnigraph.engine.local.variables import variable_tables
from omnigraph.manifest.pins import open_pin
from omnigraph.storage.indexes import list_indexes
from omnigraph.together import Together

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from omnigraph.engine.local.adjacency import Adjacency
    from omnigraph.engine.local.arrays import ArrowColumn, IntArray
    from omnigraph.engine.local.text_columns import Scored, TextColumn
    from omnigraph.engine.local.text_segments import Segments
    from omnigraph.engine.local.tokens import Tokens
    from omnigraph.engine.settings import EngineSettings
    from omnigraph.ids import TableKey
    from omnigraph.manifest.rows import TablePin
    from omnigraph.manifest.snapshot import Snapshot
    from omnigraph.query import ir
    from omnigraph.schema.catalog import Catalog
    from omnigraph.storage.derived import DerivedArrays
    from omnigraph.storage.indexes import IndexCoverage
    from omnigraph.storage.tables import Table, TableStore
    from omnigraph.types.values import StoredValue

_KEPT_TEXTS = 8
_KEPT_LOOKUPS = 8
_KEPT_NUMBERINGS = 64
_KEPT_USES = 1024


class QueryEmbedder(Protocol):
    """Turns the text of a `nearest` into a vector."""

    def __call__(self, field: ir.PropertyRef, node_type: str, text: str) -> tuple[float, ...]:
        """The vector of a text in the space of a property."""
        ...


class EngineCaches:
    """What the engine of one open graph keeps between queries. Thread-safe."""

    def __init__(self, settings: EngineSettings, derived: DerivedArrays) -> None:
        self.settings = settings
        self.derived = derived
        self.numberings: LruCache[Numbering] = LruCache(_KEPT_NUMBERINGS)
        self.columns: LruCache[ArrowColumn] = LruCache(
            settings.column_cache_bytes, lambda array: int(array.nbytes)
        )
        self.adjacencies: LruCache[Adjacency] = LruCache(settings.adjacency_entries)
        self.text_columns: LruCache[TextColumn] = LruCache(_KEPT_TEXTS)
        #: Terms of fragments, by the identity of their texts.
        self.text_segments: LruCache[Segments] = LruCache(
            settings.column_cache_bytes, lambda segments: segments.nbytes
        )
        #: Row ids of fragments in storage order, by the identity of the rows that are alive.
        self.part_rows: LruCache[IntArray] = LruCache(
            settings.column_cache_bytes // 4, lambda array: int(array.nbytes)
        )
        self.tokens: LruCache[Tokens] = LruCache(_KEPT_TEXTS)
        #: Work that was done without a traversal index, per state of an edge table.
        self.traversal_debt: LruCache[float] = LruCache(_KEPT_NUMBERINGS)
        #: How often a column was read in small parts, per state of its table.
        self.column_uses: LruCache[int] = LruCache(_KEPT_USES)
        self.key_lookups: LruCache[dict[object, int]] = LruCache(_KEPT_LOOKUPS)
        #: Scans of whole columns that run now.
        self.scans: Together[dict[str, ArrowColumn]] = Together()
        self._indexes: LruCache[Mapping[str, IndexCoverage]] = LruCache(_KEPT_NUMBERINGS)

    def entities(self, table: Table, budget: Budget) -> Entities:
        """The rows of a table, read within a budget."""
        return Entities(
            table,
            budget=budget,
            numberings=self.numberings,
            columns=self.columns,
            column_uses=self.column_uses,
            key_lookups=self.key_lookups,
            scans=self.scans,
            column_budget=self.settings.column_cache_bytes,
        )

    def indexes(self, table: Table) -> Mapping[str, IndexCoverage]:
        """The stored indexes of a table, by name."""
        key = (table.path, table.branch, table.version, table.fingerprint)
        return self._indexes.get_or_build(key, lambda: list_indexes(table))

    def clear(self) -> None:
        """Forget everything."""
        self.numberings.clear()
        self.columns.clear()
        self.adjacencies.clear()
        self.text_columns.clear()
        self.text_segments.clear()
        self.part_rows.clear()
        self.tokens.clear()
        self.key_lookups.clear()
        self.column_uses.clear()
        self.traversal_debt.clear()
        self._indexes.clear()


@dataclass(slots=True, kw_only=True)
class Context:
    """One running query: its snapshot, its parameters and the way to its rows."""

    catalog: Catalog
    snapshot: Snapshot
    store: TableStore
    caches: EngineCaches
    values: Mapping[str, StoredValue]
    tables: Mapping[str, TableKey]
    embed: QueryEmbedder
    #: What the query may use; every operator looks at it.
    budget: Budget = field(default_factory=Budget)
    #: Whether the newest state of a branch is read, so that what follows from it is worth being kept on disk.
    is_head: bool = True
    #: Text conditions that were answered for the whole table already.
    matches: dict[tuple[TableKey, ir.TextMatch], IntArray] = field(default_factory=dict)
    #: The relevance of all rows, by the ranking that asked for it.
    relevances: dict[tuple[TableKey, ir.Bm25], Scored] = field(default_factory=dict)
    _entities: dict[TableKey, Entities] = field(default_factory=dict)

    @property
    def settings(self) -> EngineSettings:
        """The settings of the engine."""
        return self.caches.settings

    def inside(self, pipeline: Sequence[ir.Op]) -> Context:
        """The same query inside a block that binds variables of its own."""
        return replace(self, tables={**self.tables, **variable_tables(pipeline)})

    def type_entities(self, key: TableKey) -> Entities:
        """The rows of a type at the snapshot."""
        known = self._entities.get(key)
        if known is None:
            pin = self.snapshot.pins[key]
            table = open_pin(self.store, pin)
            known = self._entities[key] = self.caches.entities(table, self.budget)
        return known

    def opened_pins(self) -> list[TablePin]:
        """The tables that the query has opened so far."""
        return [self.snapshot.pins[key] for key in self._entities]

    def entities(self, variable: str) -> Entities:
        """The rows that a variable ranges over."""
        return self.type_entities(self.tables[variable])
