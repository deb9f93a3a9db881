"""Changing the schema of a graph: plan, write what is new aside, hold rows against new rules, publish as one commit."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.errors import (
    BranchesExistError,
    ConflictError,
    ExpectedVersionMismatchError,
    ReadSetConflictError,
    SchemaViolationsError,
    UnsupportedSchemaError,
)
from omnigraph.graph.reshaping import plan_tables
from omnigraph.graph.schemas import GraphSchema
from omnigraph.graph.settings import OPTIMISTIC_TRIES, REPREPARATION_BUDGET
from omnigraph.graph.tidying import may_leave_files, tidy_up
from omnigraph.ids import TableKey, new_ulid
from omnigraph.manifest.expectations import Expectations
from omnigraph.manifest.pins import open_pin
from omnigraph.manifest.rows import MAIN
from omnigraph.manifest.snapshot import snapshot_of
from omnigraph.pipeline.checking import add_nulls, check_required, check_rows
from omnigraph.pipeline.problems import Problems
from omnigraph.pipeline.reshaping import reshape_table
from omnigraph.recovery.attempt import Intent, StagedTable, commit_write, discard_staged
from omnigraph.recovery.schema_change import SchemaChange
from omnigraph.recovery.sidecar import WriterKind
from omnigraph.schema.accepted import AcceptedSchema
from omnigraph.schema.catalog import TypeKind
from omnigraph.schema.plan import plan_migration
from omnigraph.storage.location import table_location
from omnigraph.storage.private import close_private, open_private
from omnigraph.storage.staged import plan_table
from omnigraph.wire.schema_changes import SchemaApplyResult
from omnigraph.writes.columns import blob_columns, table_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from omnigraph.graph.reshaping import TableMigration, TableMigrations
    from omnigraph.manifest.rows import GraphCommit
    from omnigraph.manifest.snapshot import Snapshot
    from omnigraph.pipeline.worker_set import WorkerChoice
    from omnigraph.recovery.environment import GraphEnvironment
    from omnigraph.schema.catalog import Catalog
    from omnigraph.schema.compiler import CompiledSchema
    from omnigraph.schema.plan import MigrationPlan
    from omnigraph.storage.staged import StagedWrite
    from omnigraph.storage.tables import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaCall:
    """One call of `apply_schema`."""

    wanted: CompiledSchema
    allow_data_loss: bool
    backfill: Mapping[str, object]
    actor: str | None
    engine: WorkerChoice
    #: May refuse the new catalog before anything happens.
    validate: Callable[[Catalog], None] | None


class SchemaEvolution:
    """Plans and applies schema changes of one graph; whoever calls it has settled what dead writers left."""

    def __init__(
        self, environment: GraphEnvironment, schema_of: Callable[[str], GraphSchema]
    ) -> None:
        self._environment = environment
        self._schema_of = schema_of
        self._has_unknown_files = False

    def plan(
        self,
        wanted: CompiledSchema,
        *,
        allow_data_loss: bool = False,
        backfill: Mapping[str, object] | None = None,
    ) -> MigrationPlan:
        """The steps from the accepted schema to a wanted one."""
        head = self._environment.manifest.state().head(MAIN)
        return plan_migration(
            self._schema_of(head.schema_hash).accepted,
            wanted,
            allow_data_loss=allow_data_loss,
            backfill=backfill,
        )

    def apply(self, call: SchemaCall) -> SchemaApplyResult:
        """Carry a supported plan out in one commit; prepared again when writers move its tables meanwhile."""
        try:
            return self._until_won(call)
        finally:
            if self._has_unknown_files:
                # Tasks that died may have written what nobody knows.
                tidy_up(self._environment, (), has_unknown_files=True)

    def _until_won(self, call: SchemaCall) -> SchemaApplyResult:
        first = self.plan(call.wanted, allow_data_loss=call.allow_data_loss, backfill=call.backfill)
        for number in range(REPREPARATION_BUDGET):
            try:
                if number < OPTIMISTIC_TRIES:
                    return self._try(self._environment, call, first)
                # Writers would go on winning: from now on they wait.
                with self._environment.window() as environment:
                    return self._try(environment, call, first)
            except (ExpectedVersionMismatchError, ReadSetConflictError):
                continue
        return self._try(self._environment, call, first)

    def _try(
        self, environment: GraphEnvironment, call: SchemaCall, first: MigrationPlan
    ) -> SchemaApplyResult:
        state = environment.manifest.state()
        snapshot = snapshot_of(state.head(MAIN))
        accepted = self._schema_of(snapshot.schema_hash)
        plan = plan_migration(
            accepted.accepted,
            call.wanted,
            allow_data_loss=call.allow_data_loss,
            backfill=call.backfill,
        )
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
            return SchemaApplyResult(plan=plan, graph_version=state.graph_version, commit=None)
        if others := sorted(set(state.heads) - {MAIN}):
            raise BranchesExistError(others)
        if call.validate is not None:
            call.validate(call.wanted.catalog)
        migrations = plan_tables(plan, accepted.catalog, call.wanted.catalog)
        wanted = GraphSchema(
            source=call.wanted.source.text,
            accepted=AcceptedSchema(
                catalog=call.wanted.catalog, identities=plan.resolution.identities
            ),
        )
        commit = self._commit(environment, snapshot, migrations, wanted, call)
        return SchemaApplyResult(plan=plan, graph_version=commit.graph_version, commit=commit)

    def _commit(
        self,
        environment: GraphEnvironment,
        snapshot: Snapshot,
        migrations: TableMigrations,
        wanted: GraphSchema,
        call: SchemaCall,
    ) -> GraphCommit:
        with environment.staging.shared():
            work = _Preparation(environment, snapshot, call.engine)
            try:
                for item in migrations.continued:
                    work.prepare(item)
                if work.problems:
                    raise SchemaViolationsError(work.problems.report())
            except BaseException as error:
                # Also after an interrupt: nothing but this run knows the staged files.
                discard_staged(environment, work.staged)
                self._has_unknown_files = may_leave_files(error)
                raise
            expectations = Expectations(
                branch=MAIN,
                incarnation=snapshot.incarnation,
                schema_hash=snapshot.schema_hash,
                touched={item.table_key: item.staged.read_version for item in work.staged},
                read=work.read,
                is_sole=True,
            )
            intent = Intent(
                kind=WriterKind.SCHEMA_APPLY,
                expectations=expectations,
                actor=call.actor,
                schema_change=self._change(environment, migrations, wanted),
            )
            return commit_write(environment, intent, work.staged)

    def _change(
        self, environment: GraphEnvironment, migrations: TableMigrations, wanted: GraphSchema
    ) -> SchemaChange:
        used = {version.pin.location for version in environment.manifest.history().versions}
        new_tables = []
        for definition in migrations.created:
            key = TableKey(definition.table_key)
            kind = TypeKind(key.partition(":")[0])
            incarnation = wanted.identities.types[kind, definition.name].incarnation or 0
            path = table_location(key)
            if path in used:
                path = table_location(key, incarnation)
            if self._environment.lock.can_be_lost:
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

    def __init__(
        self, environment: GraphEnvironment, snapshot: Snapshot, engine: WorkerChoice
    ) -> None:
        self._environment = environment
        self._snapshot = snapshot
        self._engine = engine
        self.staged: list[StagedTable] = []
        #: Versions of tables that were only looked at.
        self.read: dict[TableKey, int] = {}
        self.problems = Problems()

    def prepare(self, item: TableMigration) -> None:
        pin = self._snapshot.pins[item.old_key]
        table = open_pin(self._environment.tables, pin)
        engine = self._engine.for_rows(pin.row_count)
        if item.required:
            problems = check_required(table, item.new_key, item.required, engine)
            self.problems.merge(problems)
            if problems:
                # What is read next takes for granted that there is no null.
                return
        if not item.moves(table.schema):
            if item.rules != type(item.rules)():
                self.read[item.old_key] = pin.version
                self.problems.merge(check_rows(table, item.new_key, item.rules, engine))
            return
        reshaped = reshape_table(table, item.change, engine.workers)
        self.staged.append(
            StagedTable(table_key=item.old_key, incarnation=pin.incarnation, staged=reshaped.staged)
        )
        for name, total in reshaped.null_totals.items():
            add_nulls(self.problems, item.new_key, name, total, reshaped.null_ids[name])
        if not reshaped.null_totals:
            self._check_staged(item, reshaped.staged)

    def _check_staged(self, item: TableMigration, staged: StagedWrite) -> None:
        if item.rules == type(item.rules)():
            return
        with ExitStack() as stack:
            private = open_private(staged)
            stack.callback(close_private, private, self._environment.objects)
            table: Table = private.table
            engine = self._engine.for_rows(table.row_count)
            self.problems.merge(check_rows(table, item.new_key, item.rules, engine))
