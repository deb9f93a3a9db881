"""Writes of an open graph: prepare against a snapshot, commit, prepare again when a race was lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from omnigraph.api.results import MutationResult
from omnigraph.commit.attempt import Intent, StagedTable, commit_write
from omnigraph.commit.branch_queue import Turns
from omnigraph.commit.environment import (
    OPTIMISTIC_TRIES,
    REPREPARATION_BUDGET,
    GraphEnvironment,
    GraphSettings,
)
from omnigraph.commit.expectations import Expectations, HeadIs, NewBranch
from omnigraph.commit.leftovers import may_leave_files, tidy_up
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.snapshot import Snapshot, snapshot_of
from omnigraph.commit.sweep import settle_all
from omnigraph.commit.targets import open_pin
from omnigraph.core.budget import ReadLimits, bounded
from omnigraph.errors import (
    BranchNotFoundError,
    ConflictError,
    ExpectedVersionMismatchError,
    QuerySelectionError,
    ReadSetConflictError,
)
from omnigraph.errors.requests import INDEXES
from omnigraph.lang.query import ir
from omnigraph.lang.query.signature import bind_params
from omnigraph.maintenance.fold import fold_after
from omnigraph.maintenance.indexes import BuiltIndexes, IndexReport, commit_indexes, plan_indexes
from omnigraph.storage.datasets.forks import create_fork, refuse_forks
from omnigraph.writes.mutation import PreparedMutation, prepare_mutation, stage_mutation
from omnigraph.writes.pending import ExternalIntake

if TYPE_CHECKING:
    from omnigraph.commit.rows import GraphCommit, Head, TablePin
    from omnigraph.commit.schemas import GraphSchema
    from omnigraph.core.source import SourceText
    from omnigraph.core.values import StoredValue
    from omnigraph.lang.query.compiler import QueryCompiler
    from omnigraph.storage.datasets.tables import Table

_Outcome = TypeVar("_Outcome")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """One call of `mutate`; `now_ms` and external blobs are the same in all tries."""

    text: str | SourceText
    params: Mapping[str, object] | None
    name: str | None
    branch: str
    actor: str | None
    if_commit: str | None
    now_ms: int
    external: ExternalIntake


class _LostRaceError(Exception):
    """Work lost a race before any effect, and preparing it again is invisible; never leaves this module.

    Inserts may be prepared again whatever the winner did; updates and deletes when it changed no row.
    """

    def __init__(self, conflict: ConflictError) -> None:
        super().__init__(str(conflict))
        self.conflict = conflict


class GraphWriter:
    """Prepares and commits writes. Thread-safe; whoever calls it has settled what dead writers left."""

    def __init__(
        self,
        environment: GraphEnvironment,
        settings: GraphSettings,
        compiler: QueryCompiler,
        schema_of: Callable[[str], GraphSchema],
    ) -> None:
        self._environment = environment
        self._settings = settings
        self._compiler = compiler
        self._schema_of = schema_of
        self._turns = Turns()

    def mutate(
        self,
        text: str | SourceText,
        params: Mapping[str, object] | None,
        *,
        name: str | None,
        branch: str,
        actor: str | None,
        if_commit: str | None,
    ) -> MutationResult:
        """Run one mutation query."""
        call = _Call(
            text=text,
            params=params,
            name=name,
            branch=branch,
            actor=actor,
            if_commit=if_commit,
            now_ms=self._environment.clock() // 1000,
            external=ExternalIntake(
                self._settings.external_blobs, self._settings.mutation_max_bytes
            ),
        )
        with self._turns.on(branch):
            result = self._until_won(lambda environment: self._try_mutation(environment, call))
            # In the same turn: beside other writers a fold would be staged and lose, again and again.
            fold_after(self._environment, self._settings, result.commit)
        return result

    def fold_after(self, commit: GraphCommit | None) -> None:
        """Fold small fragments of the tables that a commit touched, where it is time to. Never fails."""
        if commit is not None:
            with self._turns.on(commit.branch):
                fold_after(self._environment, self._settings, commit)

    def ensure_indices(self, branch: str, actor: str | None, limits: ReadLimits) -> IndexReport:
        """Build what is missing."""
        forks: list[Table] = []

        def attempt(environment: GraphEnvironment) -> IndexReport:
            try:
                return self._try_indexes(environment, branch, actor, forks)
            except (ExpectedVersionMismatchError, ReadSetConflictError) as conflict:
                raise _LostRaceError(conflict) from conflict

        budget = limits.budget()
        try:
            with bounded(budget, INDEXES):
                return self._until_won(attempt)
        except BaseException as error:
            # Also after an interrupt: nothing else knows what was left.
            unknown = may_leave_files(error)
            if forks or unknown:
                tidy_up(self._environment, forks, has_unknown_files=unknown)
            raise

    def _until_won(self, attempt: Callable[[GraphEnvironment], _Outcome]) -> _Outcome:
        """Prepare and commit; again after a lost race, in the end inside the window, where nobody else can win."""
        for number in range(REPREPARATION_BUDGET + 1):
            try:
                if number < OPTIMISTIC_TRIES:
                    return attempt(self._environment)
                with self._environment.window() as environment:
                    return attempt(environment)
            except _LostRaceError as lost:
                if number == REPREPARATION_BUDGET:
                    raise lost.conflict from lost
        raise ConflictError("the branch kept moving; try again")

    # ---- mutations

    def _compile_mutation(
        self, text: str | SourceText, schema: GraphSchema, name: str | None
    ) -> ir.MutationIR:
        query = self._compiler.compile(text, schema.catalog, name)
        if not isinstance(query.ir, ir.MutationIR):
            message = f"`{query.name}` is a read: run it with `query`"
            raise QuerySelectionError(message, (query.name,))
        return query.ir

    def _try_mutation(self, environment: GraphEnvironment, call: _Call) -> MutationResult:
        """Prepare and commit a mutation once.

        Raises:
            _LostRaceError: what it was prepared against moved, and preparing it again is invisible.
        """
        snapshot = snapshot_of(environment.manifest.state().head(call.branch))
        if call.if_commit is not None:
            environment.manifest.locate(Expectations.of(snapshot, HeadIs(call.if_commit)))
        schema = self._schema_of(snapshot.schema_hash)
        query = self._compile_mutation(call.text, schema, call.name)
        values: dict[str, StoredValue] = {**bind_params(query, call.params), ir.NOW: call.now_ms}
        prepared = prepare_mutation(
            query,
            values,
            catalog=schema.catalog,
            identities=schema.identities,
            rules=schema.rules,
            snapshot=snapshot,
            store=environment.tables,
            max_bytes=self._settings.mutation_max_bytes,
            external=call.external,
        )
        try:
            commit = self._commit_mutation(environment, prepared, snapshot, call)
        except (ExpectedVersionMismatchError, ReadSetConflictError) as conflict:
            tables = {*prepared.touched, *prepared.read}
            if prepared.insert_only or environment.manifest.is_same_data(snapshot, tables):
                raise _LostRaceError(conflict) from conflict
            raise
        return MutationResult(
            branch=call.branch,
            query_name=query.name,
            affected_nodes=prepared.outcome.affected_nodes,
            affected_edges=prepared.outcome.affected_edges,
            actor=call.actor,
            commit=commit,
        )

    def _commit_mutation(
        self,
        environment: GraphEnvironment,
        prepared: PreparedMutation,
        snapshot: Snapshot,
        call: _Call,
    ) -> GraphCommit | None:
        requires = () if call.if_commit is None else (HeadIs(call.if_commit),)
        expectations = Expectations.of(
            snapshot, *requires, touched=prepared.touched, read=prepared.read
        )
        if not prepared.deltas:
            if requires:
                environment.manifest.locate(expectations)
            return None
        with environment.staging.shared():
            staged = stage_mutation(
                prepared,
                snapshot,
                lambda key: self.open_in(environment, snapshot, snapshot.pins[key]),
            )
            if not staged:
                return None
            writes = [
                StagedTable(table_key=key, incarnation=snapshot.pins[key].incarnation, staged=write)
                for key, write in staged.items()
            ]
            intent = Intent(kind=WriterKind.MUTATION, expectations=expectations, actor=call.actor)
            return commit_write(environment, intent, writes)

    # ---- indexes

    def _try_indexes(
        self, environment: GraphEnvironment, branch: str, actor: str | None, forks: list[Table]
    ) -> IndexReport:
        snapshot = snapshot_of(environment.manifest.state().head(branch))
        catalog = self._schema_of(snapshot.schema_hash).catalog
        work, pending = plan_indexes(catalog, snapshot, self._open)
        commit = None

        def open_table(pin: TablePin) -> Table:
            table = self.open_in(environment, snapshot, pin)
            if table.branch != pin.branch:
                forks.append(table)
            return table

        if work:
            commit = commit_indexes(environment, snapshot, work, open_table, actor)
        # A run that failed half-way may have been completed by recovery for some tables only.
        done = () if commit is None else commit.tables
        built = [
            BuiltIndexes(type_key=item.table_key, names=tuple(spec.name for spec in item.specs))
            for item in work
            if item.table_key in done
        ]
        return IndexReport(branch=branch, commit=commit, built=tuple(built), pending=tuple(pending))

    # ---- tables

    def _open(self, pin: TablePin) -> Table:
        return open_pin(self._environment.tables, pin)

    def open_for_writing(
        self, snapshot: Snapshot, pin: TablePin, new: NewBranch | None = None
    ) -> Table:
        """The table where a branch writes, which may be a branch that begins at the snapshot."""
        return self.open_in(self._environment, snapshot, pin, new)

    def open_in(
        self,
        environment: GraphEnvironment,
        snapshot: Snapshot,
        pin: TablePin,
        new: NewBranch | None = None,
    ) -> Table:
        """The table where the branch writes: its own fork, made at the first write to the type."""
        fork_name = snapshot.fork_name if new is None else new.fork_name
        if pin.branch == fork_name:
            if fork_name is not None:
                refuse_forks(environment.location)
            return self._open(pin)
        assert fork_name is not None, "main owns its tables"
        with environment.window() as held:
            settle_all(held)
            state = held.manifest.state()
            if new is None:
                _check_pin(state.heads, snapshot, pin)
            else:
                new.check_free(state)
            base = self._open(pin)
            return create_fork(held.location, base, fork_name, check_lock=held.tenure.check)


def _check_pin(heads: Mapping[str, Head], snapshot: Snapshot, pin: TablePin) -> None:
    """Make sure that the branch still reads this version of the table."""
    current = heads.get(snapshot.branch)
    if current is None:
        raise BranchNotFoundError(snapshot.branch)
    if current.incarnation != snapshot.incarnation:
        member = f"branch {snapshot.branch}"
        raise ReadSetConflictError(member, snapshot.incarnation, current.incarnation)
    actual = current.pins.get(pin.table_key)
    if actual != pin:
        version = None if actual is None else actual.version
        raise ExpectedVersionMismatchError(pin.table_key, pin.version, version)
