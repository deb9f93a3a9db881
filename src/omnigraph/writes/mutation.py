"""A mutation from its representation to staged writes, against one snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.query import ir
from omnigraph.storage.blob_cells import has_references
from omnigraph.storage.filters import OneOf
from omnigraph.storage.fragments import stage_replaced_rows
from omnigraph.storage.staged import stage_append, stage_delete, stage_upsert
from omnigraph.writes.accumulator import Accumulator
from omnigraph.writes.columns import texts
from omnigraph.writes.committed import CommittedRows
from omnigraph.writes.external import ExternalIntake
from omnigraph.writes.statements import Affected, StatementRunner
from omnigraph.writes.validate import validate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from omnigraph.ids import TableKey
    from omnigraph.manifest.snapshot import Snapshot
    from omnigraph.schema.catalog import Catalog
    from omnigraph.schema.identity import Identities
    from omnigraph.storage.staged import StagedWrite
    from omnigraph.storage.tables import Table, TableStore
    from omnigraph.types.values import StoredValue
    from omnigraph.writes.accumulator import TableDelta
    from omnigraph.writes.rules import TableRules


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationOutcome:
    """How many entities a mutation touched."""

    affected_nodes: int
    affected_edges: int


@dataclass(frozen=True, slots=True, kw_only=True)
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
    pending = Accumulator(max_bytes)
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
