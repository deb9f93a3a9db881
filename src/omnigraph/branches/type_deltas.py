"""Differences between two snapshots, type by type. A type is its dataset: a renamed one is the same type."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from omnigraph.branches.images import row_images
from omnigraph.branches.selection import Operation
from omnigraph.manifest import open_pin, reading_pins
from omnigraph.pipeline.comparing import delta_between
from omnigraph.pipeline.differences import row_shape

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from omnigraph.branches.images import RowImage
    from omnigraph.branches.selection import ChangeFilter
    from omnigraph.ids import TableKey
    from omnigraph.manifest import Snapshot, TablePin
    from omnigraph.pipeline.elastic import ElasticEngine
    from omnigraph.schema import Catalog, EdgeDef, NodeDef
    from omnigraph.storage import Table, TableStore

_CACHED_DELTAS = 8
_CACHED_BYTES = 256 * 1024 * 1024

_INSERT, _UPDATE, _DELETE = range(3)
_OPS = (Operation.INSERT, Operation.UPDATE, Operation.DELETE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeDelta:
    """What happened to one type between two snapshots."""

    definition: NodeDef | EdgeDef
    old: TablePin | None
    new: TablePin | None
    #: As `pipeline.differences.DELTA`, sorted by id.
    rows: Any

    @property
    def table_key(self) -> TableKey:
        """The type, under its newer name."""
        pin = self.new or self.old
        assert pin is not None, "a type is in one of the snapshots"
        return pin.table_key

    @property
    def type_id(self) -> str:
        """What identifies the type, whatever it is called."""
        pin = self.new or self.old
        assert pin is not None, "a type is in one of the snapshots"
        return str(pin.incarnation)

    @property
    def is_edge(self) -> bool:
        """Whether it is a type of edges."""
        return self.table_key.startswith("edge:")

    @property
    def codes(self) -> NDArray[np.int8]:
        """What happened to each row, as a number; `operation` names it."""
        is_new = np.asarray(self.rows["old"].is_null())
        is_gone = np.asarray(self.rows["new"].is_null())
        return np.where(is_new, _INSERT, np.where(is_gone, _DELETE, _UPDATE)).astype(np.int8)

    def selected(self, filter_: ChangeFilter) -> TypeDelta:
        """Without operations that nobody wants."""
        if not filter_.ops:
            return self
        wanted = [code for code, op in enumerate(_OPS) if filter_.has_op(op)]
        mask = pa.array(np.isin(self.codes, wanted))
        return TypeDelta(
            definition=self.definition, old=self.old, new=self.new, rows=self.rows.filter(mask)
        )


def operation(code: int) -> Operation:
    """The operation behind a number."""
    return _OPS[code]


def definitions_of(catalog: Catalog) -> dict[TableKey, NodeDef | EdgeDef]:
    """The types of a schema by table key."""
    every: list[NodeDef | EdgeDef] = [*catalog.nodes.values(), *catalog.edges.values()]
    return {item.table_key: item for item in every}


class DeltaReader:
    """Compares snapshots, and remembers small answers: pages of one commit ask again and again. Thread-safe."""

    def __init__(self, store: TableStore) -> None:
        self._store = store
        self._known: OrderedDict[tuple[TablePin | None, TablePin | None], Any] = OrderedDict()
        self._lock = Lock()

    def open(self, pin: TablePin) -> Table:
        """The table of a pin."""
        return open_pin(self._store, pin)

    def images(
        self, definition: NodeDef | EdgeDef, pin: TablePin | None, row_ids: Any
    ) -> Mapping[int, RowImage]:
        """Images of rows by row id, from a column of row ids with nulls."""
        wanted = row_ids.drop_null().to_pylist()
        if pin is None or not wanted:
            return {}
        with reading_pins(self._store, [pin]):
            return row_images(self.open(pin), definition, wanted)

    def between(
        self,
        old: Snapshot,
        new: Snapshot,
        types: Mapping[TableKey, NodeDef | EdgeDef],
        filter_: ChangeFilter,
        engine: ElasticEngine,
    ) -> Iterator[TypeDelta]:
        """The differences of all wanted types, by table key; types without any are left out.

        Of a name that means different types in the two snapshots, the older type comes first.
        """
        for before, after in _matched(old, new):
            pin = after or before
            assert pin is not None, "one of a pair is there"
            if before == after or not filter_.has_type(pin.table_key):
                continue
            definition = types[pin.table_key]
            rows = self._delta(before, after, definition, engine)
            delta = TypeDelta(definition=definition, old=before, new=after, rows=rows)
            delta = delta.selected(filter_)
            if len(delta.rows):
                yield delta

    def _delta(
        self,
        old: TablePin | None,
        new: TablePin | None,
        definition: NodeDef | EdgeDef,
        engine: ElasticEngine,
    ) -> Any:
        with self._lock:
            known = self._known.get((old, new))
        if known is not None:
            return known
        before = None if old is None else self.open(old)
        after = None if new is None else self.open(new)
        with reading_pins(self._store, [old, new]):
            rows = delta_between(before, after, row_shape(definition), engine)
        with self._lock:
            self._known[old, new] = rows
            while len(self._known) > _CACHED_DELTAS or self._cached_bytes() > _CACHED_BYTES:
                self._known.popitem(last=False)
        return rows

    def _cached_bytes(self) -> int:
        return sum(int(rows.nbytes) for rows in self._known.values())


def _matched(old: Snapshot, new: Snapshot) -> list[tuple[TablePin | None, TablePin | None]]:
    """The datasets of two snapshots side by side, by table key; what was dropped before what was added."""
    before = {(pin.incarnation, pin.location): pin for pin in old.pins.values()}
    after = {(pin.incarnation, pin.location): pin for pin in new.pins.values()}
    pairs = [(before.get(identity), after.get(identity)) for identity in before | after]

    def order(pair: tuple[TablePin | None, TablePin | None]) -> tuple[str, bool]:
        pin = pair[1] or pair[0]
        assert pin is not None, "one of a pair is there"
        return pin.table_key, pair[0] is None

    return sorted(pairs, key=order)
