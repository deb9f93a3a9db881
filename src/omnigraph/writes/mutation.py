"""Mutations: statements become pending rows, and these staged writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import assert_never

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.snapshot import Snapshot
from omnigraph.core.arrow import json_column, stored_array
from omnigraph.core.ids import TableKey, derive_id, new_ulid
from omnigraph.core.types import MOMENTS, BaseType, EnumType, PropertyType, Scalar, ScalarType, item_scalar
from omnigraph.core.values import MANAGED, StoredValue, canonical_spelling, coerce_json, spelled_cell
from omnigraph.errors import BadRequestError
from omnigraph.errors.writes import RowImage
from omnigraph.frozen import frozen
from omnigraph.lang.query import ir
from omnigraph.lang.schema.accepted import Identities
from omnigraph.lang.schema.catalog import Catalog, EdgeDef, NodeDef, member_base
from omnigraph.lang.schema.rules import EndGiven, EnumValues, Example, Required, TableRules, violation_text
from omnigraph.storage.datasets.blob_columns import has_references
from omnigraph.storage.datasets.blobs import blob_bytes
from omnigraph.storage.datasets.filters import AnyOf, Compare, Filter, OneOf
from omnigraph.storage.datasets.fragments import stage_delete, stage_replaced_rows
from omnigraph.storage.datasets.reads import scan_with_pending, select_rows
from omnigraph.storage.datasets.staged import StagedWrite, stage_append, stage_upsert
from omnigraph.storage.datasets.tables import Table, TableStore
from omnigraph.writes.columns import PROBE_CHUNK, CommittedRows, blob_columns, table_schema, texts
from omnigraph.writes.pending import ExternalIntake, PendingRows, TableDelta, validate

# ---- Values of inserted and updated rows


def assigned_value(
    owner: str,
    name: str,
    type_: PropertyType,
    value: ir.Value,
    params: Mapping[str, StoredValue],
    *,
    external: ExternalIntake,
) -> StoredValue:
    """The stored value of an assignment.

    Raises:
        BadRequestError: the value does not fit the property.
        ExternalBlobPolicyError: it is an external blob that is not allowed.
        ExternalBlobSourceError: it is an allowed one that cannot be read.
    """
    given = ir.value_of(value, params)
    if given is None and not type_.nullable:
        missing = Required(type_name=owner, property=name)
        raise BadRequestError(violation_text(missing, Example(None)))
    if isinstance(type_.base, EnumType) and isinstance(given, str):
        rule = EnumValues(type_name=owner, property=name, values=type_.base.values)
        if given not in rule.values:
            raise BadRequestError(violation_text(rule, Example(given)))
    try:
        if type_.base == ScalarType(Scalar.BLOB):
            return None if given is None else _blob(str(given), external)
        # Literals and parameters of moments are in stored form already.
        return given if item_scalar(type_.base) in MOMENTS else coerce_json(type_, given)
    except ValueError as problem:
        raise BadRequestError(f"invalid value for {owner}.{name}: {problem}") from problem


def _blob(text: str, external: ExternalIntake) -> bytes:
    return spelled_cell(text) if text.startswith(MANAGED) else external.copied(text)


# ---- Statements


_STRING = ScalarType(Scalar.STRING)


@dataclass(slots=True)
class Affected:
    """The number of entities that a mutation touched."""

    nodes: int = 0
    edges: int = 0


@frozen(kw_only=True)
class StatementRunner:
    """Runs statements in order; each sees what the earlier ones did."""

    catalog: Catalog
    identities: Identities
    committed: CommittedRows
    pending: PendingRows
    params: Mapping[str, StoredValue]
    affected: Affected
    external: ExternalIntake

    def run(self, statement: ir.Statement) -> None:
        """Run one statement.

        Raises:
            BadRequestError: a value does not fit.
        """
        match statement:
            case ir.InsertNode():
                self._insert_node(statement)
            case ir.InsertEdge():
                self._insert_edge(statement)
            case ir.UpdateNode():
                self._update(statement)
            case ir.DeleteNode():
                self._delete_node(statement)
            case ir.DeleteEdge():
                edge = self.catalog.edges[statement.edge_type]
                filter_ = self._filter(edge, statement.predicate)
                self.affected.edges += self._delete_edges(edge, filter_)
            case _:
                assert_never(statement)

    # ---- inserts

    def _insert_node(self, statement: ir.InsertNode) -> None:
        node = self.catalog.nodes[statement.node_type]
        self._put(node, self._assigned(node, statement.assignments))
        self.affected.nodes += 1

    def _insert_edge(self, statement: ir.InsertEdge) -> None:
        edge = self.catalog.edges[statement.edge_type]
        row = self._assigned(edge, statement.assignments)
        ends = (("src", "from", edge.source), ("dst", "to", edge.target))
        for (column, name, node_type), value in zip(ends, (statement.source, statement.target), strict=True):
            end = ir.value_of(value, self.params)
            if end is None:
                rule = EndGiven(edge_type=edge.name, end=name, node_type=node_type)
                raise BadRequestError(violation_text(rule, Example(None)))
            row[column] = end
        self._put(edge, row)
        self.affected.edges += 1

    def _assigned(self, definition: NodeDef | EdgeDef, assignments: Iterable[ir.Assignment]) -> dict[str, StoredValue]:
        return {
            item.property: assigned_value(
                definition.name,
                item.property,
                definition.properties[item.property].type,
                item.value,
                self.params,
                external=self.external,
            )
            for item in assignments
        }

    def _put(self, definition: NodeDef | EdgeDef, row: dict[str, StoredValue]) -> None:
        """Add a row under the id that its key makes, or under a new one."""
        members = self.identities.key_members(definition)
        spellings = [canonical_spelling(member_base(definition, name), row[name]) for name in members]
        row["id"] = derive_id(spellings) if members else new_ulid()
        self.pending.put_rows(definition, [row], may_replace=bool(members))

    # ---- updates

    def _update(self, statement: ir.UpdateNode) -> None:
        node = self.catalog.nodes[statement.node_type]
        # Before any row is looked for: whether a value is refused must not depend on what is stored.
        assigned = self._assigned(node, statement.assignments)
        filter_ = self._filter(node, statement.predicate)
        delta = self.pending.delta(node)
        if self.committed.is_empty(node.table_key):
            matched = select_rows(delta.rows, filter_)
        else:
            self._reserve_blobs(node, filter_)
            matched = scan_with_pending(self.committed.table(node.table_key), delta.rows, filter_)
        if matched.num_rows == 0:
            return
        for name, value in assigned.items():
            index = matched.schema.get_field_index(name)
            field = matched.schema.field(index)
            one = stored_array(field.type, [value])
            repeated = one.take(pa.array([0] * matched.num_rows, pa.int64()))
            matched = matched.set_column(index, field, repeated)
        self.pending.put(node, matched, may_replace=True)
        self.affected.nodes += matched.num_rows

    def _reserve_blobs(self, node: NodeDef, filter_: Filter) -> None:
        """Blobs that an update carries are refused before they are in memory, when they are too many."""
        if columns := sorted(blob_columns(node)):
            table = self.committed.table(node.table_key)
            self.pending.check_bytes(blob_bytes(table, columns, filter_))

    # ---- deletes

    def _delete_node(self, statement: ir.DeleteNode) -> None:
        node = self.catalog.nodes[statement.node_type]
        delta = self.pending.delta(node)
        gone: list[str] = []
        if not self.committed.is_empty(node.table_key):
            filter_ = self._filter(node, statement.predicate)
            rows = self.committed.select(node.table_key, ["id", "_rowaddr"], filter_)
            for entity_id, address in zip(*_columns(rows, "id", "_rowaddr"), strict=True):
                if entity_id not in delta.deleted:
                    delta.deleted[entity_id] = address
                    gone.append(entity_id)
        self.affected.nodes += len(gone)
        for name in statement.cascades:
            # Looked at even when nothing matched: an edge that arrives meanwhile must not dangle.
            edge = self.catalog.edges[name]
            self.committed.is_empty(edge.table_key)
            for begin in range(0, len(gone), PROBE_CHUNK):
                chunk = gone[begin : begin + PROBE_CHUNK]
                ends = [
                    OneOf(column, chunk)
                    for column, end in (("src", edge.source), ("dst", edge.target))
                    if end == node.name
                ]
                self.affected.edges += self._delete_edges(edge, AnyOf(tuple(ends)))

    def _delete_edges(self, edge: EdgeDef, filter_: Filter) -> int:
        """Record matching committed edges as deleted; how many of them are new."""
        delta = self.pending.delta(edge)
        if self.committed.is_empty(edge.table_key):
            return 0
        columns = ["id", "src", "dst", "_rowaddr"]
        rows = self.committed.select(edge.table_key, columns, filter_)
        before = len(delta.deleted)
        for entity_id, source, target, address in zip(*_columns(rows, *columns), strict=True):
            delta.deleted[entity_id] = address
            delta.deleted_ends[entity_id] = (source, target)
        return len(delta.deleted) - before

    # ---- predicates

    def _filter(self, definition: NodeDef | EdgeDef, predicate: ir.MutationPredicate) -> Compare:
        name = predicate.property
        base: BaseType = _STRING
        if name in definition.properties:
            base = definition.properties[name].type.base
        value = ir.value_of(predicate.value, self.params)
        return Compare(name, base, str(predicate.op), value)


def _columns(rows: pa.Table, *names: str) -> list[list]:  # type: ignore[type-arg]  # values of several types
    return [rows[name].to_pylist() for name in names]


# ---- Compiling a mutation to staged writes


@frozen(kw_only=True)
class MutationOutcome:
    """The number of entities that a mutation touched."""

    affected_nodes: int
    affected_edges: int


@frozen(kw_only=True)
class PreparedMutation:
    """A validated mutation: what it changes and what it was validated against. Nothing is staged yet."""

    outcome: MutationOutcome
    deltas: Mapping[TableKey, TableDelta]
    #: Versions of the tables that change.
    touched: Mapping[TableKey, int]
    #: Versions of the tables that were only looked at.
    read: Mapping[TableKey, int]
    #: Whether the mutation only inserts, so that it may be prepared again after a lost race.
    insert_only: bool


def prepare_mutation(
    query: ir.MutationIR,
    params: Mapping[str, StoredValue],
    *,
    catalog: Catalog,
    identities: Identities,
    rules: Mapping[TableKey, TableRules],
    snapshot: Snapshot,
    store: TableStore,
    max_bytes: int,
    external: ExternalIntake | None = None,
) -> PreparedMutation:
    """Run all statements in memory and validate the final image.

    Raises:
        BadRequestError: a value does not fit, or a rule is violated; nothing was written.
        ResourceLimitError: the pending rows need too much memory.
        ExternalBlobPolicyError: an external blob is not allowed.
        ExternalBlobSourceError: an allowed one cannot be read.
    """
    committed = CommittedRows(store, snapshot.pins)
    pending = PendingRows(max_bytes)
    affected = Affected()
    external = external or ExternalIntake()
    external.begin()
    runner = StatementRunner(
        catalog=catalog,
        identities=identities,
        committed=committed,
        pending=pending,
        params=params,
        affected=affected,
        external=external,
    )
    for statement in query.statements:
        runner.run(statement)
    validate(pending.tables, rules, committed)
    deltas = {key: delta for key, delta in pending.tables.items() if not delta.is_empty}
    return PreparedMutation(
        outcome=MutationOutcome(affected_nodes=affected.nodes, affected_edges=affected.edges),
        deltas=deltas,
        touched={key: snapshot.pins[key].version for key in deltas},
        read={key: snapshot.pins[key].version for key in committed.read if key not in deltas},
        insert_only=all(isinstance(s, ir.InsertNode | ir.InsertEdge) for s in query.statements),
    )


# ---- What a mutation would change


#: Rows that a preview shows, for each type and kind of change.
_EXAMPLES = 3


@frozen(kw_only=True)
class RowChange:
    """The change of one row: an insert has only `after`, a delete only `before`. Blobs are left out of both."""

    id: str
    before: RowImage | None
    after: RowImage | None


@frozen(kw_only=True)
class TablePreview:
    """The changes of a mutation in one table: their numbers, and a few of them, updates first."""

    key: TableKey
    inserted: int
    updated: int
    deleted: int
    examples: tuple[RowChange, ...]


def preview_mutation(prepared: PreparedMutation, committed: CommittedRows) -> Iterator[TablePreview]:
    """What a prepared mutation would change, nodes first; `committed` are the rows that it was prepared against."""
    for key, delta in sorted(prepared.deltas.items(), key=lambda item: (item[0].kind != "node", item[0])):
        ids = texts(delta.rows["id"])
        known = committed.existing_ids(key, ids) if delta.may_replace else set()
        new = [entity_id for entity_id in ids if entity_id not in known]
        shown = [*sorted(known)[:_EXAMPLES], *new[:_EXAMPLES], *sorted(delta.deleted)[:_EXAMPLES]]
        before = _images(delta.definition, committed.select(key, _shown_columns(delta.definition), OneOf("id", shown)))
        after = _images(delta.definition, delta.rows.filter(pc.is_in(delta.rows["id"], pa.array(shown, pa.utf8()))))
        yield TablePreview(
            key=key,
            inserted=len(new),
            updated=len(known),
            deleted=len(delta.deleted),
            examples=tuple(RowChange(id=item, before=before.get(item), after=after.get(item)) for item in shown),
        )


def _shown_columns(definition: NodeDef | EdgeDef) -> list[str]:
    hidden = blob_columns(definition)
    return [field.name for field in table_schema(definition) if field.name not in hidden]


def _images(definition: NodeDef | EdgeDef, rows: pa.Table) -> dict[str, RowImage]:
    """Rows as people see them, by id."""
    values = {
        name: json_column(rows[name].combine_chunks(), prop.type.base)
        for name, prop in definition.properties.items()
        if name not in blob_columns(definition)
    }
    images: dict[str, RowImage] = {}
    for place, entity_id in enumerate(texts(rows["id"])):
        images[entity_id] = {"properties": {name: column[place] for name, column in values.items()}}
        if isinstance(definition, EdgeDef):
            ends = {"from": rows["src"][place].as_py(), "to": rows["dst"][place].as_py()}
            images[entity_id]["endpoints"] = ends
    return images


# ---- Staging


def stage_mutation(
    prepared: PreparedMutation, snapshot: Snapshot, open_for_writing: Callable[[TableKey], Table]
) -> dict[TableKey, StagedWrite]:
    """One staged write per touched table; `open_for_writing` gives the table where it will be committed."""
    staged: dict[TableKey, StagedWrite] = {}
    for key, delta in prepared.deltas.items():
        table = open_for_writing(key)
        write = _stage(table, delta, is_empty=snapshot.pins[key].row_count == 0)
        if write is not None:
            staged[key] = write
    return staged


def _stage(table: Table, delta: TableDelta, *, is_empty: bool) -> StagedWrite | None:
    if delta.deleted:
        return stage_delete(table, list(delta.deleted.values()))
    if not delta.may_replace or is_empty or not _replaces(table, delta):
        # A plain append is several times cheaper than an upsert that replaces nothing.
        return stage_append(table, delta.rows)
    if has_references(delta.rows, table.blob_columns):
        # An update carries blobs that it does not assign, also those that are only references.
        return stage_replaced_rows(table, delta.rows)
    return stage_upsert(table, delta.rows)


def _replaces(table: Table, delta: TableDelta) -> bool:
    ids = texts(delta.rows["id"])
    if len(ids) > 1_000:
        return True
    return table.count_rows(OneOf("id", ids)) > 0
