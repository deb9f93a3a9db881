"""Running the statements of a mutation against the accumulator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

import pyarrow as pa

from omnigraph.errors import BadRequestError
from omnigraph.ids import derive_id, new_ulid
from omnigraph.query import ir
from omnigraph.storage.blobs import blob_bytes
from omnigraph.storage.filters import AnyOf, Compare, Filter, OneOf
from omnigraph.storage.memory import scan_with_pending, select_rows
from omnigraph.types.kinds import Scalar, ScalarType
from omnigraph.types.values import canonical_spelling
from omnigraph.writes.columns import blob_columns, column_array
from omnigraph.writes.committed import PROBE_CHUNK
from omnigraph.writes.values import assigned_value, resolve

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from omnigraph.schema.catalog import Catalog, EdgeDef, NodeDef
    from omnigraph.schema.identity import Identities
    from omnigraph.types.kinds import BaseType
    from omnigraph.types.values import StoredValue
    from omnigraph.writes.accumulator import Accumulator
    from omnigraph.writes.committed import CommittedRows
    from omnigraph.writes.external import ExternalIntake

_STRING = ScalarType(Scalar.STRING)


@dataclass(slots=True)
class Affected:
    """How many entities a mutation touched."""

    nodes: int = 0
    edges: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementRunner:
    """Runs statements in order; each sees what the earlier ones did."""

    catalog: Catalog
    identities: Identities
    committed: CommittedRows
    pending: Accumulator
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
        row = self._assigned(node, statement.assignments)
        if node.key is not None:
            row["id"] = self._derived_id(node, row)
        else:
            row["id"] = new_ulid()
        self.pending.put_rows(node, [row], may_replace=node.key is not None)
        self.affected.nodes += 1

    def _insert_edge(self, statement: ir.InsertEdge) -> None:
        edge = self.catalog.edges[statement.edge_type]
        row = self._assigned(edge, statement.assignments)
        row["id"] = new_ulid()
        for column, value in (("src", statement.source), ("dst", statement.target)):
            end = resolve(value, self.params)
            if end is None:
                raise BadRequestError(f"the {column} of an edge {edge.name} is null")
            row[column] = end
        self.pending.put_rows(edge, [row], may_replace=False)
        self.affected.edges += 1

    def _assigned(
        self, definition: NodeDef | EdgeDef, assignments: Iterable[ir.Assignment]
    ) -> dict[str, StoredValue]:
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

    def _derived_id(self, node: NodeDef, row: Mapping[str, StoredValue]) -> str:
        members = self.identities.key_members(node)
        return derive_id(
            [canonical_spelling(node.properties[name].type.base, row[name]) for name in members]
        )

    # ---- updates

    def _update(self, statement: ir.UpdateNode) -> None:
        node = self.catalog.nodes[statement.node_type]
        filter_ = self._filter(node, statement.predicate)
        delta = self.pending.delta(node)
        if self.committed.is_empty(node.table_key):
            matched = select_rows(delta.rows, filter_)
        else:
            self._reserve_blobs(node, filter_)
            matched = scan_with_pending(self.committed.table(node.table_key), delta.rows, filter_)
        if matched.num_rows == 0:
            return
        for item in statement.assignments:
            type_ = node.properties[item.property].type
            value = assigned_value(
                node.name, item.property, type_, item.value, self.params, external=self.external
            )
            index = matched.schema.get_field_index(item.property)
            field = matched.schema.field(index)
            one = column_array(field, [value])
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
        value = resolve(predicate.value, self.params)
        return Compare(name, base, str(predicate.op), value)


def _columns(rows: pa.Table, *names: str) -> list[list]:  # type: ignore[type-arg]  # values of several types
    return [rows[name].to_pylist() for name in names]
