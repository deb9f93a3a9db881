"""Plans, applies and compares schemas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph.api.results import SchemaApplyResult, SchemaDiff
from omnigraph.commit.environment import GraphEnvironment
from omnigraph.commit.expectations import OnlyBranch
from omnigraph.commit.notes import note_of
from omnigraph.commit.rows import MAIN, Head
from omnigraph.commit.schema_change import SchemaChange
from omnigraph.commit.schemas import GraphSchema
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.snapshot import Snapshot, snapshot_at
from omnigraph.commit.transaction import RetryPolicy, Transaction
from omnigraph.core.ids import TableKey, new_ulid
from omnigraph.errors import BadRequestError, ConflictError, SchemaViolationsError, UnsupportedSchemaError
from omnigraph.frozen import frozen
from omnigraph.graph.open_graph import OpenGraph, graph_method
from omnigraph.lang.schema.accepted import AcceptedSchema
from omnigraph.lang.schema.catalog import Catalog, TypeKind
from omnigraph.lang.schema.compiler import CompiledSchema, as_compiled
from omnigraph.lang.schema.plan import MigrationPlan, plan_between, plan_migration
from omnigraph.pipeline.rewrite import TableMigration, TableMigrations, plan_tables, reshape_table
from omnigraph.pipeline.violations import ViolationCounts, check_columns, check_rows, required
from omnigraph.pipeline.worker_set import WorkerChoice
from omnigraph.pipeline.workers import Progress
from omnigraph.policy.rules import Action
from omnigraph.storage.datasets.staged import StagedWrite, close_private, open_private, plan_table
from omnigraph.storage.datasets.tables import Table
from omnigraph.storage.location import table_location
from omnigraph.writes.columns import blob_columns, table_schema

if TYPE_CHECKING:
    from omnigraph.spark import Session


# ---- Applying a schema change


@frozen(kw_only=True)
class SchemaCall:
    """One call of `apply_schema`."""

    wanted: CompiledSchema
    allow_data_loss: bool
    backfill: Mapping[str, object]
    engine: WorkerChoice
    #: May refuse the new catalog before anything happens.
    validate: Callable[[Catalog], None] | None

    def plan(self, graph: OpenGraph, state: Snapshot | Head) -> MigrationPlan:
        """The steps from the schema of a state to the wanted one."""
        accepted = graph.schema_of(state.schema_hash).accepted
        return plan_migration(accepted, self.wanted, allow_data_loss=self.allow_data_loss, backfill=self.backfill)


#: Writers that would go on winning wait in the end.
POLICY = RetryPolicy(is_bulk=True)


@graph_method
def plan_schema(
    graph: OpenGraph,
    schema: str | Path | CompiledSchema,
    *,
    allow_data_loss: bool = False,
    backfill: Mapping[str, object] | None = None,
) -> MigrationPlan:
    accepted = graph.schema_of(graph.state().head(MAIN).schema_hash).accepted
    return plan_migration(accepted, as_compiled(schema), allow_data_loss=allow_data_loss, backfill=backfill)


@graph_method
def apply_schema(
    graph: OpenGraph,
    schema: str | Path | CompiledSchema,
    *,
    allow_data_loss: bool = False,
    backfill: Mapping[str, object] | None = None,
    actor: str | None = None,
    message: str | None = None,
    metadata: Mapping[str, object] | None = None,
    engine: str = "auto",
    spark: Session | None = None,
    progress: Progress | None = None,
    validate: Callable[[Catalog], None] | None = None,
) -> SchemaApplyResult:
    from omnigraph.pipeline.workers import Silent
    from omnigraph.spark import ElasticWorkers

    graph.require_writable()
    note = note_of(message, metadata)
    call = SchemaCall(
        wanted=as_compiled(schema),
        allow_data_loss=allow_data_loss,
        backfill=backfill or {},
        engine=ElasticWorkers(engine, spark, progress or Silent()),
        validate=validate,
    )
    graph.authorize(Action.SCHEMA_APPLY, actor, target=MAIN)
    graph.heal()
    first = call.plan(graph, graph.environment.manifest.state().head(MAIN))
    kind = WriterKind.SCHEMA_APPLY
    with Transaction(graph.environment, kind=kind, actor=actor, note=note, policy=POLICY) as transaction:
        return transaction.run(lambda it: _try(graph, it, call, first))


def _try(graph: OpenGraph, transaction: Transaction, call: SchemaCall, first: MigrationPlan) -> SchemaApplyResult:
    """Prepare and commit once; again when writers move its tables meanwhile."""
    plan = call.plan(graph, transaction.snapshot)
    if plan.steps and plan.steps != first.steps:
        # It would take back, even destroy, what another change has brought.
        raise ConflictError(
            "the schema was changed meanwhile, so that this change would do something else than was planned; "
            "nothing happened: plan it again"
        )
    if not plan.supported:
        refusals = [f"{step.entity}: {step}" for step in plan.refusals]
        raise UnsupportedSchemaError(refusals, plan.to_json())
    if not plan.steps:
        version = transaction.state.graph_version
        return SchemaApplyResult(uri=graph.uri, plan=plan, graph_version=version, commit=None)
    transaction.require(OnlyBranch())
    if call.validate is not None:
        call.validate(call.wanted.catalog)
    migrations = plan_tables(plan, graph.catalog_of(transaction.snapshot), call.wanted.catalog)
    _refuse_loss_of_tagged(transaction, migrations)
    wanted = GraphSchema(
        source=call.wanted.source.text,
        accepted=AcceptedSchema(catalog=call.wanted.catalog, identities=plan.resolution.identities),
    )
    with transaction.environment.staging.shared():
        work = _Preparation(transaction, call.engine)
        for item in migrations.continued:
            work.prepare(item)
        if work.violations:
            raise SchemaViolationsError(work.violations.report())
        commit = transaction.commit(schema_change=_change(graph.environment, migrations, wanted))
    return SchemaApplyResult(uri=graph.uri, plan=plan, graph_version=commit.graph_version, commit=commit)


def _refuse_loss_of_tagged(transaction: Transaction, migrations: TableMigrations) -> None:
    """Make sure that nothing is destroyed that a tag shows.

    Raises:
        BadRequestError: a table loses its past, or goes, in which a tag has rows.
    """
    manifest = transaction.environment.manifest
    tags = manifest.tags() if migrations.purged else {}
    history = manifest.history()
    doomed = {transaction.snapshot.pins[key].location for key in migrations.purged}
    names = [
        name
        for name, tag in tags.items()
        if tag.commit_id in history.commits
        and any(pin.location in doomed for pin in snapshot_at(history, tag.commit_id).pins.values())
    ]
    if names:
        raise BadRequestError(
            f"this change destroys data that the tags {', '.join(names)} show; nothing happened: delete these tags "
            "first, or drop without --allow-data-loss, which keeps the past readable"
        )


def _change(environment: GraphEnvironment, migrations: TableMigrations, wanted: GraphSchema) -> SchemaChange:
    used = {version.pin.location for version in environment.manifest.history().versions}
    new_tables = []
    for definition in migrations.created:
        key = TableKey(definition.table_key)
        kind = TypeKind(key.kind)
        incarnation = wanted.identities.types[kind, definition.name].incarnation or 0
        path = table_location(key)
        if path in used:
            path = table_location(key, incarnation)
        if environment.lock.can_be_lost:
            # A writer that lost its lease may come late: no other writer ever uses its places.
            path = f"{path}-{new_ulid().lower()}"
        new = plan_table(path, table_schema(definition), blobs=blob_columns(definition))
        new_tables.append((key, incarnation, new))
    return SchemaChange(
        schema_hash=wanted.hash,
        files=wanted.files(),
        new_tables=tuple(new_tables),
        renamed=migrations.renamed,
        dropped=migrations.dropped,
        purged=migrations.purged,
    )


class _Preparation:
    """Everything that happens before the commit window: new columns are written, rows are looked at."""

    def __init__(self, transaction: Transaction, engine: WorkerChoice) -> None:
        self._transaction = transaction
        self._engine = engine
        self.violations = ViolationCounts()

    def prepare(self, item: TableMigration) -> None:
        pin = self._transaction.snapshot.pins[item.old_key]
        table = self._transaction.open(pin)
        engine = self._engine.for_rows(pin.row_count)
        if item.required:
            rules = [required(item.new_key, name) for name in item.required.values()]
            names = {new: old for old, new in item.required.items()}
            nulls = check_columns(table, item.new_key, rules, engine.workers, names)
            self.violations.merge(nulls)
            if nulls:
                # What is read next takes for granted that there is no null.
                return
        if not item.moves(table.schema):
            if item.rules != type(item.rules)():
                self._transaction.read[item.old_key] = pin.version
                self.violations.merge(check_rows(table, item.new_key, item.rules, engine))
            return
        reshaped = reshape_table(table, item.new_key, item.change, engine.workers)
        self._transaction.stage(pin, reshaped.staged)
        self.violations.merge(reshaped.nulls)
        if not reshaped.nulls:
            self._check_staged(item, reshaped.staged)

    def _check_staged(self, item: TableMigration, staged: StagedWrite) -> None:
        if item.rules == type(item.rules)():
            return
        with ExitStack() as stack:
            private = open_private(staged)
            stack.callback(close_private, private, self._transaction.environment.objects)
            table: Table = private.table
            engine = self._engine.for_rows(table.row_count)
            self.violations.merge(check_rows(table, item.new_key, item.rules, engine))


# ---- Comparing two accepted schemas


@graph_method
def diff_schema(graph: OpenGraph, one: str, other: str = MAIN) -> SchemaDiff:
    state = graph.state()
    old, new = (graph.schema_of(graph.history.find(state, graph.state_name(name)).schema_hash) for name in (one, other))
    # Renames are recognised by the stable ids.
    return SchemaDiff(old=old.source, new=new.source, plan=plan_between(old.accepted, new.accepted))
