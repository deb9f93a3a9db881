"""Builds the declared indexes; reports of maintenance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated

from omnigraph.codec import HIDDEN, Document
from omnigraph.commit.environment import GraphEnvironment
from omnigraph.commit.rows import GraphCommit, TablePin
from omnigraph.commit.schemas import GraphSchema
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.transaction import RetryPolicy, Transaction
from omnigraph.core.budget import Budget, ReadLimits, bounded, work_steps
from omnigraph.core.ids import TableKey
from omnigraph.engine.tables.context import EngineCaches
from omnigraph.engine.tables.entities import Entities
from omnigraph.engine.tables.vector_search import dimension_of, find_recall, index_segments, measure_recall
from omnigraph.engine.tables.wanted_indexes import index_spec, wanted_indexes
from omnigraph.errors.requests import INDEXES
from omnigraph.frozen import frozen
from omnigraph.lang.schema.catalog import Catalog, EdgeDef, IndexKind, NodeDef
from omnigraph.storage.datasets.filters import AllOf, IsNull
from omnigraph.storage.datasets.indexes import IndexSpec, list_indexes, needs_work, stage_indices
from omnigraph.storage.datasets.tables import Table

# ---- What building indexes returns


@frozen(kw_only=True)
class PendingIndex(Document):
    """A declared index that cannot be built yet; the next run tries again."""

    #: Not told where the type is known already.
    type_key: Annotated[str, HIDDEN]
    property: str
    reason: str


@frozen(kw_only=True)
class BuiltIndexes:
    """What one type got."""

    type_key: str
    names: tuple[str, ...]


@frozen(kw_only=True)
class IndexReport:
    """The outcome of a run; `commit` is None when there was nothing to do."""

    branch: str
    commit: GraphCommit | None
    built: tuple[BuiltIndexes, ...]
    pending: tuple[PendingIndex, ...]


# ---- Building declared indexes: derived state, so a run converges and never changes a row


POLICY = RetryPolicy(is_bulk=True)


def plan_indexes(
    catalog: Catalog, snapshot: Snapshot, open_table: Callable[[TablePin], Table]
) -> tuple[dict[TableKey, list[IndexSpec]], list[PendingIndex]]:
    """The indexes that every type lacks, wholly or for some of its fragments, and what it has to wait for."""
    work: dict[TableKey, list[IndexSpec]] = {}
    pending: list[PendingIndex] = []
    for key, definition in catalog.types.items():
        pin = snapshot.pins[key]
        if not pin.row_count:
            continue
        table = open_table(pin)
        existing = list_indexes(table)
        specs = []
        for found in table_indexes(definition, table):
            if isinstance(found, PendingIndex):
                pending.append(found)
            elif needs_work(found, existing.get(found.name), table.row_count):
                specs.append(found)
            elif outside := existing[found.name].missing_rows:
                pending.append(PendingIndex(type_key=key, property=found.column, reason=_outside(outside)))
        if specs:
            work[key] = specs
    return work, pending


def missing_indexes(
    catalog: Catalog, snapshot: Snapshot, open_table: Callable[[TablePin], Table]
) -> list[PendingIndex]:
    """Declared indexes that do not cover every row, with the reason."""
    work, pending = plan_indexes(catalog, snapshot, open_table)
    missing = [
        PendingIndex(
            type_key=key, property=spec.column, reason=f"{spec.name} does not cover all rows: run `omnigraph optimize`"
        )
        for key, specs in work.items()
        for spec in specs
    ]
    return [*pending, *missing]


def _outside(rows: int) -> str:
    count = "1 row is" if rows == 1 else f"{rows} rows are"
    return f"{count} outside of it and compared one by one until a tenth of all is"


def table_indexes(definition: NodeDef | EdgeDef, table: Table) -> Iterator[IndexSpec | PendingIndex]:
    """Every index that a type should have, and those that wait for values."""
    for wanted in wanted_indexes(definition):
        values = 0
        if wanted.kind is IndexKind.VECTOR:
            values = table.row_count - table.count_rows(AllOf((IsNull(wanted.column),)))
            if not values:
                yield PendingIndex(
                    type_key=definition.table_key, property=wanted.column, reason="no row has a vector yet"
                )
                continue
        spec = index_spec(wanted, values)
        if spec is not None:
            yield spec


# ---- The recall of vector indexes


@frozen(kw_only=True)
class MeasuredRecall:
    """How much of the nearest a search through the index of a property finds now."""

    type_key: TableKey
    column: str
    wanted: float
    #: The recall that its searches are chosen for; None where nothing is known of the index, or not enough.
    expected: float | None = None
    #: What was found just now, and the standard error of that.
    found: float = 1.0
    error: float = 0.0

    @property
    def is_low(self) -> bool:
        """Whether less is found than is wanted, by more than chance explains."""
        return self.found + 2 * self.error < self.wanted


#: Other rows are asked about than when the index was built.
_OTHER_SEED = 21
#: The depth of the usual search.
_DEPTH = 10


def measure_indexes(
    catalog: Catalog, snapshot: Snapshot, open_table: Callable[[TablePin], Table], caches: EngineCaches
) -> Iterator[MeasuredRecall]:
    """The recall of every vector index that searches use; reads all vectors that it covers."""
    for definition in catalog.nodes.values():
        pin = snapshot.pins[definition.table_key]
        for wanted in wanted_indexes(definition):
            if wanted.kind is not IndexKind.VECTOR or not pin.row_count:
                continue
            table = open_table(pin)
            entities = caches.entities(table, Budget())
            values = pin.row_count * dimension_of(entities, wanted.column)
            recall = caches.settings.recall_of(definition.name, wanted.column)
            is_exact = recall == 1 or values <= caches.settings.exact_vector_values
            if index_segments(caches, table, wanted.column) and not is_exact:
                yield _measured(definition, wanted.column, entities, caches)


def _measured(definition: NodeDef, name: str, entities: Entities, caches: EngineCaches) -> MeasuredRecall:
    recall = caches.settings.recall_of(definition.name, name)
    curve = find_recall(caches, entities.table, name)
    chosen = None if curve is None else curve.choose(recall, _DEPTH)
    if chosen is None:
        return MeasuredRecall(type_key=definition.table_key, column=name, wanted=recall)
    probes, expected = chosen
    now = measure_recall(entities, name, seed=_OTHER_SEED, probes=(probes,), depths=(_DEPTH,))
    if now is None:
        return MeasuredRecall(type_key=definition.table_key, column=name, wanted=recall)
    return MeasuredRecall(
        type_key=definition.table_key,
        column=name,
        wanted=recall,
        expected=expected,
        found=float(now.recalls[0, 0]),
        error=float(now.errors[0, 0]),
    )


def ensure_indices(
    environment: GraphEnvironment,
    schema_of: Callable[[str], GraphSchema],
    branch: str,
    actor: str | None,
    limits: ReadLimits,
) -> IndexReport:
    """Build everything that the tables of a branch lack and publish it as one commit.

    Raises:
        ConflictError: too many concurrent writes while the indexes were built; nothing happened.
        QueryTimeoutError, QueryCancelledError: it was stopped before its commit; nothing happened.
    """
    kind = WriterKind.ENSURE_INDICES
    budget = limits.budget()
    with (
        Transaction(environment, branch, kind=kind, actor=actor, policy=POLICY) as transaction,
        bounded(budget, INDEXES),
    ):
        return transaction.run(lambda transaction: _build(transaction, schema_of))


def _build(transaction: Transaction, schema_of: Callable[[str], GraphSchema]) -> IndexReport:
    snapshot = transaction.snapshot
    catalog = schema_of(snapshot.schema_hash).catalog
    work, pending = plan_indexes(catalog, snapshot, transaction.open)
    with transaction.environment.staging.shared():
        for key, specs in work_steps(work.items()):
            pin = snapshot.pins[key]
            transaction.stage(pin, stage_indices(transaction.open_for_writing(pin), specs))
        commit = None if transaction.is_empty else transaction.commit()
    # A run that failed half-way may have been completed by recovery for some tables only.
    done = () if commit is None else commit.tables
    built = [
        BuiltIndexes(type_key=key, names=tuple(spec.name for spec in specs))
        for key, specs in work.items()
        if key in done
    ]
    return IndexReport(branch=transaction.branch, commit=commit, built=tuple(built), pending=tuple(pending))
