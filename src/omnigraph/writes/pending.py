"""Pending rows and deletions of one mutation, the rules on them, and its external blobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from omnigraph.core.arrow import Array, stored_values
from omnigraph.core.ids import TableKey
from omnigraph.core.values import StoredValue, canonical_spelling
from omnigraph.errors import BadRequestError, ResourceLimitError
from omnigraph.frozen import frozen
from omnigraph.lang.schema.rules import EdgesPerSource, End, Example, RowRule, TableRules, Unique
from omnigraph.storage.datasets.filters import AnyOf, Compare, Filter, OneOf
from omnigraph.storage.external import DENY_ALL, ExternalPolicy
from omnigraph.writes.columns import PROBE_CHUNK, CommittedRows, TypeDef, rows_table, table_schema, texts
from omnigraph.writes.rules import ChangedRows, Found, check, check_values

# ---- Pending rows of a mutation
#
# Later statements see earlier ones: a pending row shadows the committed row with the same id.


@dataclass(slots=True)
class TableDelta:
    """The row changes of a mutation in one table."""

    definition: TypeDef
    _rows: pa.Table
    #: Rows that were added since `_rows` was last put together.
    _added: list[pa.Table] = field(default_factory=list)
    #: Memory of all pending rows.
    pending_bytes: int = 0
    #: Whether any row may replace a committed one; otherwise all of them are new.
    may_replace: bool = False
    #: Committed rows that go, by id, with their storage addresses.
    deleted: dict[str, int] = field(default_factory=dict)
    #: Ends of deleted edges: edge id → (source id, target id).
    deleted_ends: dict[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def rows(self) -> pa.Table:
        """Final rows, one per id; the last write of an id wins."""
        if self._added:
            self._rows = _last_per_id(pa.concat_tables([self._rows, *self._added]))
            self._added = []
            self.pending_bytes = self._rows.nbytes
        return self._rows

    def put(self, rows: pa.Table, *, may_replace: bool) -> None:
        """Add rows; an id that is pending already is replaced."""
        self.may_replace = self.may_replace or may_replace
        self._added.append(rows)
        self.pending_bytes += rows.nbytes

    def set_column(self, name: str, column: Array) -> None:
        """Give the pending rows other values for one property."""
        rows = self.rows
        place = rows.column_names.index(name)
        self._rows = rows.set_column(place, rows.schema.field(place), column)

    def has(self, ids: Sequence[str]) -> set[str]:
        """Those of the ids that are pending."""
        wanted = pa.array(list(ids), pa.utf8())
        return set(texts(self.rows["id"].filter(pc.is_in(self.rows["id"], wanted))))

    @property
    def is_empty(self) -> bool:
        """Whether nothing would change."""
        return self.rows.num_rows == 0 and not self.deleted


class PendingRows:
    """The deltas of all tables that a mutation touches."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.tables: dict[TableKey, TableDelta] = {}

    def delta(self, definition: TypeDef) -> TableDelta:
        """The delta of a type, made at its first touch."""
        known = self.tables.get(definition.table_key)
        if known is None:
            known = TableDelta(definition, table_schema(definition).empty_table())
            self.tables[definition.table_key] = known
        return known

    def put_rows(self, definition: TypeDef, rows: Sequence[Mapping[str, StoredValue]], *, may_replace: bool) -> None:
        """Add rows of stored values."""
        self.put(definition, rows_table(definition, rows), may_replace=may_replace)

    def put(self, definition: TypeDef, rows: pa.Table, *, may_replace: bool) -> None:
        """Add rows.

        Raises:
            ResourceLimitError: the pending rows of the mutation would need too much memory.
        """
        self.delta(definition).put(rows, may_replace=may_replace)
        self.check_bytes()

    def check_bytes(self, more: int = 0) -> None:
        """Refuse more memory than a mutation may have: for what is pending, and for what is about to be read.

        Raises:
            ResourceLimitError: it would be too much.
        """
        pending = more + sum(delta.pending_bytes for delta in self.tables.values())
        if pending > self._max_bytes:
            raise ResourceLimitError(
                "pending mutation bytes",
                self._max_bytes,
                pending,
                "split the mutation, load the data with `load`, or raise OMNIGRAPH_MUTATION_MAX_BYTES",
            )


def _last_per_id(rows: pa.Table) -> pa.Table:
    """Keep the last of rows with equal ids; the others keep their order."""
    last = {entity_id: position for position, entity_id in enumerate(texts(rows["id"]))}
    if len(last) == rows.num_rows:
        return rows.combine_chunks()
    return rows.take(pa.array(sorted(last.values()), pa.int64())).combine_chunks()


# ---- The rules on the final image, before anything is staged


def validate(
    deltas: Mapping[TableKey, TableDelta], rules: Mapping[TableKey, TableRules], committed: CommittedRows
) -> None:
    """Check every rule against the final image.

    Raises:
        BadRequestError: the first rule that is violated.
    """
    own = {key: rules[key] for key in deltas}
    values = (check_values(key, own[key].values, delta.rows) for key, delta in deltas.items())
    for violation in chain(*values, check(own, PendingChanges(deltas, committed))):
        raise BadRequestError(violation.texts[0])


@frozen
class PendingChanges(ChangedRows):
    """Pending rows and the committed ones that stay, as the checker sees them. An id has one row."""

    deltas: Mapping[TableKey, TableDelta]
    committed: CommittedRows

    @override
    def find(self, key: TableKey, rule: RowRule) -> Iterator[Found]:
        match rule:
            case Unique():
                yield from self._repeated(key, rule)
            case End():
                wanted = set(texts(self.deltas[key].rows[rule.column]))
                if missing := wanted - self.existing(rule.node, wanted):
                    yield Found(len(missing), [Example(min(missing))])
            case EdgesPerSource():
                yield from self._outside(key, rule)

    @override
    def existing(self, key: TableKey, ids: Collection[str]) -> set[str]:
        pending = self.deltas[key].has(list(ids)) if key in self.deltas else set()
        return pending | self.committed.existing_ids(key, set(ids) - pending)

    def _repeated(self, key: TableKey, rule: Unique) -> Iterator[Found]:
        delta = self.deltas[key]
        owners: dict[tuple[str, ...], str] = {}
        for entity_id, spelled in _spelled(rule, delta.rows):
            if (other := owners.setdefault(spelled, entity_id)) != entity_id:
                yield _shared(spelled, other, entity_id)
        if not owners or self.committed.is_empty(key):
            return
        rewritten = set(texts(delta.rows["id"])) | delta.deleted.keys()
        firsts = stored_values(delta.rows[rule.members[0]].unique().drop_null())
        for begin in range(0, len(firsts), PROBE_CHUNK):
            filter_ = _member_filter(rule, firsts[begin : begin + PROBE_CHUNK])
            rows = self.committed.select(key, ["id", *rule.members], filter_)
            for entity_id, spelled in _spelled(rule, rows):
                if spelled in owners and entity_id not in rewritten:
                    yield _shared(spelled, owners[spelled], entity_id)

    def _outside(self, key: TableKey, rule: EdgesPerSource) -> Iterator[Found]:
        delta = self.deltas[key]
        counts = Counter(texts(delta.rows["src"]))
        touched = counts.keys() | {source for source, _ in delta.deleted_ends.values()}
        if rule.node in self.deltas:
            # A source that goes takes all of its edges along.
            touched -= self.deltas[rule.node].deleted.keys()
        gone = delta.deleted.keys() | set(texts(delta.rows["id"]))
        for rows in self.committed.probe(key, "src", touched, ["id", "src"]):
            ids, sources = texts(rows["id"]), texts(rows["src"])
            counts.update(source for edge_id, source in zip(ids, sources, strict=True) if edge_id not in gone)
        for source, count in sorted(counts.items()):
            if count < rule.low or (rule.high is not None and count > rule.high):
                yield Found(1, [Example(source, count=count)])


def _spelled(rule: Unique, rows: pa.Table) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each row's id with the spellings of its members; rows with a null member are left out."""
    members = [stored_values(rows[name]) for name in rule.members]
    for entity_id, values in zip(texts(rows["id"]), zip(*members, strict=True), strict=True):
        if None not in values:
            yield entity_id, tuple(map(canonical_spelling, rule.bases, values))


def _shared(spelled: tuple[str, ...], first: str, second: str) -> Found:
    value = spelled[0] if len(spelled) == 1 else f"({', '.join(spelled)})"
    return Found(1, [Example(value, ids=(first, second))])


def _member_filter(rule: Unique, values: list[StoredValue]) -> Filter:
    column, base = rule.members[0], rule.bases[0]
    if all(isinstance(value, str) for value in values):
        return OneOf(column, [str(value) for value in values])
    return AnyOf(tuple(Compare(column, base, "=", value) for value in values))


# ---- External blobs of a mutation


@dataclass(slots=True)
class ExternalIntake:
    """Takes the bytes of allowed addresses into a mutation.

    Lasts for all tries of one call: a try after a lost race may run inside the commit window, where no writer should
    wait for a server, and has to see the same bytes.
    """

    policy: ExternalPolicy = DENY_ALL
    #: Bytes that all of them may have together.
    max_bytes: int = 0
    _cells: int = 0
    _bytes: int = 0
    _known: dict[str, bytes] = field(default_factory=dict)

    def begin(self) -> None:
        """Count anew, for another try."""
        self._cells = self._bytes = 0

    def copied(self, uri: str) -> bytes:
        """The cell with the bytes behind an address.

        Raises:
            ExternalBlobPolicyError: the address is not allowed.
            ExternalBlobSourceError: it cannot be read.
            ResourceLimitError: there are too many, or they are too large.
        """
        from omnigraph.storage.external import check_bytes, copied_cells

        allowed = self.policy.check(uri)
        self._cells += 1
        check_cells(self._cells)
        if uri not in self._known:
            (self._known[uri],) = copied_cells([allowed], self.max_bytes - self._bytes)
        self._bytes += len(self._known[uri])
        check_bytes(self._bytes, self.max_bytes)
        return self._known[uri]


def check_cells(count: int) -> None:
    """Refuse more external blobs than one operation may bring."""
    from omnigraph.storage.external import EXTERNAL_CELLS

    if count > EXTERNAL_CELLS:
        advice = "split the input, or give the bytes as `base64:…`"
        raise ResourceLimitError("external blobs of one operation", EXTERNAL_CELLS, count, advice)
