"""Mutations: statements become pending rows, and these staged writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.snapshot import Snapshot
from omnigraph.core.arrow import json_column
from omnigraph.core.ids import TableKey
from omnigraph.core.values import StoredValue
from omnigraph.engine.tables.context import Context
from omnigraph.errors.writes import RowImage
from omnigraph.frozen import frozen
from omnigraph.lang.query import ir
from omnigraph.lang.query.signature import types_of_match
from omnigraph.lang.schema.accepted import Identities
from omnigraph.lang.schema.catalog import Catalog, EdgeDef, NodeDef
from omnigraph.lang.schema.rules import TableRules
from omnigraph.storage.datasets.blob_columns import has_references
from omnigraph.storage.datasets.filters import OneOf
from omnigraph.storage.datasets.fragments import stage_delete, stage_replaced_rows
from omnigraph.storage.datasets.staged import StagedWrite, stage_append, stage_upsert
from omnigraph.storage.datasets.tables import Table, TableStore
from omnigraph.writes.columns import CommittedRows, blob_columns, table_schema, texts
from omnigraph.writes.embedding import UnembeddedRows, VectorSource
from omnigraph.writes.matched import run_match
from omnigraph.writes.pending import ExternalIntake, PendingRows, TableDelta, validate
from omnigraph.writes.statements import StatementRunner

# ---- Compiling a mutation to staged writes


@frozen(kw_only=True)
class MutationOutcome:
    """The number of entities that a mutation touched, and what it returns."""

    affected_nodes: int
    affected_edges: int
    #: The rows of a `return`, as JSON values; None without one.
    rows: tuple[Mapping[str, object], ...] | None = None


@frozen(kw_only=True)
class PreparedMutation:
    """A validated mutation: what it changes and what it was validated against. Nothing is staged yet."""

    outcome: MutationOutcome
    deltas: Mapping[TableKey, TableDelta]
    #: Versions of the tables that change.
    touched: Mapping[TableKey, int]
    #: Versions of the tables that were only looked at.
    read: Mapping[TableKey, int]
    #: Whether the mutation only inserts or upserts, so that it may be prepared again after a lost race.
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
    context: Context | None = None,
    vectors: VectorSource | None = None,
) -> PreparedMutation:
    """Run the match and all statements in memory, and validate the final image.

    `context` reads the snapshot for the match; a mutation without one needs none. With `vectors` rows whose text is
    assigned without its vector get one.

    Raises:
        BadRequestError: a value does not fit, or a rule is violated; nothing was written.
        ResourceLimitError: the pending rows need too much memory.
        ExternalBlobPolicyError: an external blob is not allowed.
        ExternalBlobSourceError: an allowed one cannot be read.
    """
    committed = CommittedRows(store, snapshot.pins)
    pending = PendingRows(max_bytes)
    external = external or ExternalIntake()
    external.begin()
    if query.match is not None:
        # Whatever the match looks at must not change until the commit, also where it found nothing.
        committed.read.update(TableKey(f"{item.kind}:{item.type_name}") for item in types_of_match(query, catalog))
    matched = run_match(query, context)
    pending.check_bytes(matched.nbytes)
    runner = StatementRunner(
        catalog=catalog,
        identities=identities,
        committed=committed,
        pending=pending,
        params=params,
        external=external,
        matched=matched,
        unembedded=UnembeddedRows(are_filled=vectors is not None),
    )
    for statement in query.statements:
        runner.run(statement)
    if vectors is not None:
        runner.unembedded.fill(pending, vectors)
    validate(pending.tables, rules, committed)
    if vectors is not None and vectors.are_stand_ins:
        runner.unembedded.clear(pending, vectors)
    deltas = {key: delta for key, delta in pending.tables.items() if not delta.is_empty}
    return PreparedMutation(
        outcome=MutationOutcome(
            affected_nodes=runner.affected.nodes,
            affected_edges=runner.affected.edges,
            rows=runner.returned(query.returns) if query.returns else None,
        ),
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
