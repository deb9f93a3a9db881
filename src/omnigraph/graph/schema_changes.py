"""Plans, applies and compares schemas."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from omnigraph.api.results import SchemaApplyResult
from omnigraph.commit.environment import GraphEnvironment
from omnigraph.commit.expectations import OnlyBranch
from omnigraph.commit.rows import MAIN
from omnigraph.commit.schema_change import SchemaChange
from omnigraph.commit.schemas import GraphSchema
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.transaction import RetryPolicy, Transaction
from omnigraph.core.ids import TableKey, new_ulid
from omnigraph.errors import ConflictError, SchemaViolationsError, UnsupportedSchemaError
from omnigraph.graph.open_graph import OpenGraph
from omnigraph.lang.schema.accepted import AcceptedSchema
from omnigraph.lang.schema.catalog import Catalog, TypeKind
from omnigraph.lang.schema.compiler import CompiledSchema, as_compiled
from omnigraph.lang.schema.plan import MigrationPlan, plan_between, plan_migration
from omnigraph.pipeline.rewrite import TableMigration, TableMigrations, plan_tables, reshape_table
from omnigraph.pipeline.violations import ViolationCounts, check_columns, check_rows, required
from omnigraph.policy.rules import Action
from omnigraph.storage.datasets.staged import StagedWrite, close_private, open_private, plan_table
from omnigraph.storage.location import table_location
from omnigraph.writes.columns import blob_columns, table_schema

if TYPE_CHECKING:
    from omnigraph.pipeline.worker_set import WorkerChoice
    from omnigraph.pipeline.workers import Progress
    from omnigraph.spark import Session
    from omnigraph.storage.datasets.tables import Table


# ---- Applying a schema change


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


#: Writers that would go on winning wait in the end.
POLICY = RetryPolicy(is_bulk=True)


class SchemaEvolution:
    """Plans and applies schema changes of one graph; its caller has settled what dead writers left."""

    def __init__(self, environment: GraphEnvironment, schema_of: Callable[[str], GraphSchema]) -> None:
        self._environment = environment
        self._schema_of = schema_of

    def plan(
        self, wanted: CompiledSchema, *, allow_data_loss: bool = False, backfill: Mapping[str, object] | None = None
    ) -> MigrationPlan:
        """The steps from the accepted schema to a wanted one."""
        head = self._environment.manifest.state().head(MAIN)
        return plan_migration(
            self._schema_of(head.schema_hash).accepted, wanted, allow_data_loss=allow_data_loss, backfill=backfill
        )

    def apply(self, call: SchemaCall) -> SchemaApplyResult:
        """Carry a supported plan out in one commit; prepared again when writers move its tables meanwhile."""
        first = self.plan(call.wanted, allow_data_loss=call.allow_data_loss, backfill=call.backfill)
        kind = WriterKind.SCHEMA_APPLY
        with Transaction(self._environment, kind=kind, actor=call.actor, policy=POLICY) as transaction:
            return transaction.run(lambda it: self._try(it, call, first))

    def _try(self, transaction: Transaction, call: SchemaCall, first: MigrationPlan) -> SchemaApplyResult:
        uri = self._environment.location.uri
        accepted = self._schema_of(transaction.snapshot.schema_hash)
        plan = plan_migration(
            accepted.accepted, call.wanted, allow_data_loss=call.allow_data_loss, backfill=call.backfill
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
            version = transaction.state.graph_version
            return SchemaApplyResult(uri=uri, plan=plan, graph_version=version, commit=None)
        transaction.require(OnlyBranch())
        if call.validate is not None:
            call.validate(call.wanted.catalog)
        migrations = plan_tables(plan, accepted.catalog, call.wanted.catalog)
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
            commit = transaction.commit(schema_change=self._change(transaction.environment, migrations, wanted))
        return SchemaApplyResult(uri=uri, plan=plan, graph_version=commit.graph_version, commit=commit)

    def _change(self, environment: GraphEnvironment, migrations: TableMigrations, wanted: GraphSchema) -> SchemaChange:
        used = {version.pin.location for version in environment.manifest.history().versions}
        new_tables = []
        for definition in migrations.created:
            key = TableKey(definition.table_key)
            kind = TypeKind(key.kind)
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


# ---- The schema half of the façade


class SchemaMethods(OpenGraph):
    """Schema methods of an open graph."""

    @property
    @override
    def schema(self) -> str:
        return self._schema_of(self._state().head(MAIN).schema_hash).source

    def plan_schema(
        self,
        schema: str | Path | CompiledSchema,
        *,
        allow_data_loss: bool = False,
        backfill: Mapping[str, object] | None = None,
    ) -> MigrationPlan:
        """The steps from the accepted schema to another one; nothing happens.

        `schema` is the path of a `.pg` file, schema text, or a compiled schema. `backfill` maps `Type.property` to the
        value that existing rows get: an expression such as `"en"` in quotes or `coalesce(title, "untitled")`, or a
        plain value that is not text.

        >>> import tempfile
        >>> graph = Graph.init(tempfile.mkdtemp() + "/papers.omni", "node Paper { doi: String @key }")
        >>> plan = graph.plan_schema("node Paper { doi: String @key  year: I32? }")
        >>> [step.describe() for step in plan.steps]
        ['+ node Paper.year: I32?']

        Raises:
            CompilerError: the schema, or a rename hint in it, is wrong.
            BadRequestError: a backfill is wrong.
        """
        evolution = SchemaEvolution(self._environment, self._schema_of)
        return evolution.plan(as_compiled(schema), allow_data_loss=allow_data_loss, backfill=backfill)

    @override
    def apply_schema(
        self,
        schema: str | Path | CompiledSchema,
        *,
        allow_data_loss: bool = False,
        backfill: Mapping[str, object] | None = None,
        actor: str | None = None,
        engine: str = "auto",
        spark: Session | None = None,
        progress: Progress | None = None,
        validate: Callable[[Catalog], None] | None = None,
    ) -> SchemaApplyResult:
        from omnigraph.pipeline.workers import Silent
        from omnigraph.spark import ElasticWorkers

        self._require_writable()
        call = SchemaCall(
            wanted=as_compiled(schema),
            allow_data_loss=allow_data_loss,
            backfill=backfill or {},
            actor=actor,
            engine=ElasticWorkers(engine, spark, progress or Silent()),
            validate=validate,
        )
        self._authorize(Action.SCHEMA_APPLY, actor, target=MAIN)
        self._heal()
        return SchemaEvolution(self._environment, self._schema_of).apply(call)

    def diff_schema(self, one: str, other: str = MAIN) -> SchemaDiff:
        """The differences of the accepted schemas of two commits or branches, as text and as steps.

        Raises:
            BranchNotFoundError: a name is neither a branch nor a commit.
            NotFoundError: there is no such commit, or its branch was deleted.
        """
        state = self._state()
        old, new = (self._history.find(state, name) for name in (one, other))
        return diff_schemas(self._schema_of(old.schema_hash), self._schema_of(new.schema_hash))


# ---- Comparing two accepted schemas


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaDiff:
    """Two schema texts, and the steps between them."""

    old: str
    new: str
    plan: MigrationPlan

    def lines(self, old_name: str, new_name: str) -> list[str]:
        """A unified diff of the texts."""
        old, new = self.old.splitlines(), self.new.splitlines()
        return list(difflib.unified_diff(old, new, old_name, new_name, lineterm=""))


def diff_schemas(old: GraphSchema, new: GraphSchema) -> SchemaDiff:
    """The steps between two accepted schemas; renames are recognised by the stable ids."""
    plan = plan_between(old.accepted, new.accepted)
    return SchemaDiff(old=old.source, new=new.source, plan=plan)
