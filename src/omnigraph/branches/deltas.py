"""Differences of two snapshots by type, images of rows, and filters of changes."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from omnigraph.commit.rows import TablePin
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.targets import open_pin, reading_pins
from omnigraph.core.arrow import Array, Column, json_column
from omnigraph.core.cache import LruCache
from omnigraph.core.ids import TableKey
from omnigraph.core.source import with_hint
from omnigraph.core.types import BaseType, Scalar, ScalarType, is_wider
from omnigraph.core.values import blob_text
from omnigraph.errors import BadRequestError
from omnigraph.errors.writes import RowImage
from omnigraph.frozen import frozen
from omnigraph.lang.schema.accepted import AcceptedSchema
from omnigraph.lang.schema.catalog import Catalog, EdgeDef, NodeDef, TypeKind
from omnigraph.pipeline.compare import RowShape, row_shape
from omnigraph.pipeline.deltas import Delta, delta_between
from omnigraph.pipeline.exchange import Scratch, ScratchPlace
from omnigraph.pipeline.worker_set import WorkerChoice
from omnigraph.storage.datasets.filters import ROW_ID
from omnigraph.storage.datasets.row_changes import take_by_row_id
from omnigraph.storage.datasets.tables import Table, TableStore

# ---- Rows as JSON


_BLOB = ScalarType(Scalar.BLOB)


def row_images(
    table: Table, definition: NodeDef | EdgeDef, row_ids: Sequence[int] | NDArray[np.uint64]
) -> dict[int, RowImage]:
    """The images of some rows by row id; rows that do not exist are left out."""
    wanted = np.asarray(row_ids, dtype=np.uint64)
    if not len(wanted):
        return {}
    is_edge = isinstance(definition, EdgeDef)
    stored = {field.name for field in table.schema}
    names = [name for name in definition.properties if name in stored]
    ends = ["src", "dst"] if is_edge else []
    rows = take_by_row_id(table, wanted, [ROW_ID, *ends, *names]).combine_chunks()
    values = {name: _json(rows[name].combine_chunks(), definition.properties[name].type.base) for name in names}
    images: dict[int, RowImage] = {}
    for place, row_id in enumerate(np.asarray(rows[ROW_ID]).tolist()):
        properties = {name: values[name][place] if name in values else None for name in definition.properties}
        image: RowImage = {"properties": properties}
        if is_edge:
            image["endpoints"] = {"from": rows["src"][place].as_py(), "to": rows["dst"][place].as_py()}
        images[int(row_id)] = image
    return images


def _json(column: Array, base: BaseType) -> list[object]:
    if base == _BLOB:
        # As an export spells it, so that it loads again.
        return [None if cell is None else blob_text(cell) for cell in column.to_pylist()]
    return json_column(column, base)


# ---- Filters by kind, type and operation


KINDS = ("node", "edge")
#: Selects nothing, where an empty set would select everything.
_NO_TYPE = frozenset([""])


class Operation(StrEnum):
    """The operation on an entity, in the order in which changes of one entity are listed."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


@frozen(kw_only=True)
class ChangeFilter:
    """Empty members select everything."""

    kinds: frozenset[str] = frozenset()
    #: Names or table keys.
    types: frozenset[str] = frozenset()
    ops: frozenset[str] = frozenset()

    def has_type(self, key: TableKey) -> bool:
        """Whether changes of a type are wanted."""
        if self.kinds and key.kind not in self.kinds:
            return False
        return not self.types or key.name in self.types or key in self.types

    def has_op(self, op: Operation) -> bool:
        """Whether changes of this sort are wanted."""
        return not self.ops or op in self.ops

    def under(self, names: Mapping[TableKey, TableKey]) -> ChangeFilter:
        """The same filter for a state whose types have other names: from the key here to the key there."""
        if not self.types:
            return self
        wanted = frozenset(there for here, there in names.items() if self.has_type(here))
        return replace(self, types=wanted or _NO_TYPE)

    @property
    def digest(self) -> str:
        """The digest of the filter that a token keeps."""
        body = [sorted(self.kinds), sorted(self.types), sorted(self.ops)]
        return sha256(json.dumps(body).encode()).hexdigest()[:16]


def make_filter(
    catalogs: Sequence[Catalog], kinds: Sequence[str] | None, types: Sequence[str] | None, ops: Sequence[str] | None
) -> ChangeFilter:
    """The filter that a caller means, who may name the types of these schemas.

    Raises:
        BadRequestError: there is no such kind, type or operation.
    """
    keys = {key for catalog in catalogs for key in catalog.types}
    known = keys | {key.name for key in keys}
    return ChangeFilter(
        kinds=_checked("kind", kinds, KINDS),
        types=_checked("type", types, known),
        ops=_checked("operation", ops, list(Operation)),
    )


def _checked(what: str, given: Sequence[str] | None, known: Collection[str]) -> frozenset[str]:
    if isinstance(given, str):
        raise BadRequestError(f"a filter takes a list of {what}s: give [{given!r}]")
    for name in given or ():
        if name not in known:
            raise BadRequestError(with_hint(f"there is no {what} {name!r}", name, known))
    return frozenset(given or ())


# ---- Differences of two snapshots by type


_CACHED_DELTAS = 8
_CACHED_BYTES = 256 * 1024 * 1024
#: Deltas in files that are remembered: each of them takes space on a disk.
_CACHED_IN_FILES = 2

#: What Arrow calls the types that others may be widened to.
_WIDE_NAMES = {"I64": "int64", "F64": "float64"}

#: By the codes of `pipeline.compare`.
_OPS = (Operation.INSERT, Operation.UPDATE, Operation.DELETE)


@frozen(kw_only=True)
class TypeDelta:
    """The changes of one type between two snapshots."""

    definition: NodeDef | EdgeDef
    old: TablePin | None
    new: TablePin | None
    rows: Delta

    @property
    def pin(self) -> TablePin:
        """The newer state, or the one that is gone."""
        pin = self.new or self.old
        assert pin is not None, "a type is in one of the snapshots"
        return pin

    @property
    def table_key(self) -> TableKey:
        """The type, under its newer name."""
        return self.pin.table_key

    @property
    def type_id(self) -> str:
        """The id of the type, independent of its name."""
        return str(self.pin.incarnation)

    @property
    def is_edge(self) -> bool:
        """Whether it is a type of edges."""
        return self.table_key.kind == "edge"

    def selected(self, filter_: ChangeFilter) -> TypeDelta:
        """The delta without the operations that the filter excludes."""
        if not filter_.ops:
            return self
        wanted = [code for code, op in enumerate(_OPS) if filter_.has_op(op)]
        return replace(self, rows=self.rows.only(wanted))


def operation(code: int) -> Operation:
    """The operation behind a number."""
    return _OPS[code]


@frozen(kw_only=True)
class KnownType:
    """A type of a schema, and the stable numbers of its properties."""

    definition: NodeDef | EdgeDef
    numbers: Mapping[str, int]


def known_types(schema: AcceptedSchema) -> dict[TableKey, KnownType]:
    """The types of a schema by table key."""
    numbers = schema.identities.types
    return {
        key: KnownType(definition=item, numbers=numbers[TypeKind(key.kind), item.name].properties)
        for key, item in schema.catalog.types.items()
    }


@frozen(kw_only=True)
class State:
    """A snapshot with the types of its schema."""

    snapshot: Snapshot
    types: Mapping[TableKey, KnownType]

    def type_of(self, pin: TablePin | None) -> KnownType | None:
        """The type of a table; None for none."""
        return None if pin is None else self.types[pin.table_key]


class DeltaReader:
    """Compares snapshots, and remembers small answers: pages of one commit ask again and again. Thread-safe."""

    def __init__(self, store: TableStore, place: ScratchPlace) -> None:
        self._store = store
        self._place = place
        least = _CACHED_BYTES // _CACHED_DELTAS
        self._held = LruCache[Delta](_CACHED_BYTES, lambda rows: max(rows.held_bytes, least))
        #: Files go with the last page that reads them.
        self._filed = LruCache[Delta](_CACHED_IN_FILES)

    def open(self, pin: TablePin) -> Table:
        """The table of a pin."""
        return open_pin(self._store, pin)

    def images(self, definition: NodeDef | EdgeDef, pin: TablePin | None, row_ids: Column) -> Mapping[int, RowImage]:
        """Images of rows by row id, from a column of row ids with nulls."""
        wanted = np.asarray(row_ids.drop_null(), dtype=np.uint64)
        if pin is None or not len(wanted):
            return {}
        with reading_pins(self._store, [pin]):
            return row_images(self.open(pin), definition, wanted)

    def between(
        self, old: State, new: State, filter_: ChangeFilter, engine: WorkerChoice, *, keeps_files: bool
    ) -> Iterator[TypeDelta]:
        """The differences of all wanted types, by table key; types without any are left out.

        With `keeps_files` also large ones are remembered: their files go when others take their place.

        Properties are matched by their stable numbers; one that a state does not have counts as null.

        Of a name that means different types in the two snapshots, the older type comes first.
        """
        for before, after in matched_tables(old.snapshot, new.snapshot):
            keys = [pin.table_key for pin in (before, after) if pin is not None]
            if before == after or not any(map(filter_.has_type, keys)):
                continue
            comparison = compare_types(old.type_of(before), new.type_of(after))
            rows = self._delta(before, after, comparison, engine, keeps_files=keeps_files)
            delta = TypeDelta(definition=comparison.definition, old=before, new=after, rows=rows)
            delta = delta.selected(filter_)
            if len(delta.rows):
                yield delta

    def _delta(
        self,
        old: TablePin | None,
        new: TablePin | None,
        comparison: Comparison,
        engine: WorkerChoice,
        *,
        keeps_files: bool,
    ) -> Delta:
        for cache in (self._held, self._filed):
            if (known := cache.get((old, new))) is not None:
                return known
        before = None if old is None else self.open(old)
        after = None if new is None else self.open(new)
        scratch = Scratch(self._place)
        try:
            with reading_pins(self._store, [old, new]):
                rows = delta_between(
                    before,
                    after,
                    comparison.new,
                    engine,
                    scratch,
                    old_shape=comparison.old,
                    is_reshaped=comparison.is_reshaped,
                )
        except BaseException:
            # Also after an interrupt, and now: the trace of a failure would keep the files for as long as it lives.
            scratch.close()
            raise
        if keeps_files or not rows.is_in_files:
            rows = rows.shared()
            (self._filed if rows.is_in_files else self._held).put((old, new), rows)
        return rows

    def forget(self) -> None:
        """Let go of everything that is remembered."""
        self._held.clear()
        self._filed.clear()


@frozen(kw_only=True)
class Comparison:
    """The comparison of rows of a type whose schema may have changed in between."""

    definition: NodeDef | EdgeDef
    old: RowShape
    new: RowShape
    #: Whether the columns differ in more than their names.
    is_reshaped: bool


def compare_types(old: KnownType | None, new: KnownType | None) -> Comparison:
    """Plan the comparison of two states of one type: property by property, in the wider type of both."""
    there = new or old
    assert there is not None, "one of the two is there"
    definition = there.definition
    if old is None or new is None or old == new:
        shape = row_shape(definition)
        return Comparison(definition=definition, old=shape, new=shape, is_reshaped=False)
    before, after = old.definition.properties, new.definition.properties
    old_names = {number: name for name, number in old.numbers.items() if name in before}
    new_names = {number: name for name, number in new.numbers.items() if name in after}
    pairs = [(old_names.get(number), new_names.get(number)) for number in sorted(old_names | new_names)]
    widened: tuple[list[tuple[str, str]], list[tuple[str, str]]] = ([], [])
    is_reshaped = False
    for was, now in pairs:
        if was is None or now is None:
            is_reshaped = True
            continue
        was_type, now_type = before[was].type, after[now].type
        is_reshaped |= was_type.nullable != now_type.nullable
        for side, name, type_, other in ((0, was, was_type, now_type), (1, now, now_type, was_type)):
            if is_wider(other.base, type_.base):
                widened[side].append((name, _WIDE_NAMES[str(other.base)]))
    is_edge = isinstance(definition, EdgeDef)
    fixed = ("id", "src", "dst") if is_edge else ("id",)

    def shape_of(side: int) -> RowShape:
        columns = (*fixed, *(pair[side] for pair in pairs))
        return RowShape(columns=columns, is_edge=is_edge, widened=tuple(widened[side]))

    return Comparison(definition=definition, old=shape_of(0), new=shape_of(1), is_reshaped=is_reshaped)


def matched_tables(old: Snapshot, new: Snapshot) -> list[tuple[TablePin | None, TablePin | None]]:
    """The datasets of two snapshots side by side, by table key; what was dropped before what was added."""
    before = {(pin.incarnation, pin.location): pin for pin in old.pins.values()}
    after = {(pin.incarnation, pin.location): pin for pin in new.pins.values()}
    pairs = [(before.get(identity), after.get(identity)) for identity in before | after]

    def order(pair: tuple[TablePin | None, TablePin | None]) -> tuple[str, bool]:
        pin = pair[1] or pair[0]
        assert pin is not None, "one of a pair is there"
        return pin.table_key, pair[0] is None

    return sorted(pairs, key=order)
