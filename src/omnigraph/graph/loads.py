"""Loads of an open graph: stage once, prepare against the branch as it is, commit, prepare again after a lost race."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

from omnigraph.api.results import LoadResult
from omnigraph.commit.attempt import Attempt, Intent, StagedTable, run_phases
from omnigraph.commit.environment import (
    REPREPARATION_BUDGET,
    GraphEnvironment,
    local_load_max_bytes,
)
from omnigraph.commit.expectations import Expectations, NewBranch
from omnigraph.commit.leftovers import UNCLEAR, may_leave_files, tidy_up, unharmed
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.snapshot import Snapshot, snapshot_of
from omnigraph.commit.targets import open_pin
from omnigraph.core.budget import NO_LIMITS, ReadLimits, bounded
from omnigraph.errors import (
    BadRequestError,
    BranchNotFoundError,
    ConflictError,
    ExpectedVersionMismatchError,
    ReadSetConflictError,
)
from omnigraph.errors.requests import LOAD
from omnigraph.pipeline.keys import new_id_prefix
from omnigraph.pipeline.load.job import LoadJob, PreparedLoad
from omnigraph.pipeline.load.plan import Grammar, LoadPlan, external_rule, shapes_of
from omnigraph.pipeline.load.sources import FrameAccess, check_local, look_at_input
from omnigraph.pipeline.upsert import LoadMode
from omnigraph.pipeline.workers import Progress, operation
from omnigraph.spark.worker_choice import make_engine, session_of_frames
from omnigraph.storage.external import DENY_ALL, ExternalPolicy

if TYPE_CHECKING:
    from omnigraph.commit.rows import TablePin
    from omnigraph.commit.schemas import GraphSchema
    from omnigraph.core.ids import TableKey
    from omnigraph.storage.datasets.tables import Table

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadCall:
    """One call of `load`."""

    source: str | PathLike[str] | None
    mapping: str | PathLike[str] | Mapping[str, object] | None
    frames: Mapping[str, object] | None
    mode: LoadMode
    branch: str
    base: str | None
    actor: str | None
    engine: str
    spark: Any
    dry_run: bool
    grammar: Grammar
    progress: Progress
    #: Raises when the actor may not create the branch.
    authorize_fork: Callable[[], None]
    external_blobs: ExternalPolicy = DENY_ALL
    #: Before the commit; what has begun to become visible is finished.
    limits: ReadLimits = NO_LIMITS


def load_call(mode: str, grammar: str, **rest: Any) -> LoadCall:
    """A call with its choices checked.

    Raises:
        BadRequestError: there is no such mode or grammar.
    """
    for name, value, known in (("mode", mode, LoadMode), ("grammar", grammar, Grammar)):
        if value not in list(known):
            raise BadRequestError(f"there is no {name} {value!r}: give {', '.join(known)}")
    return LoadCall(mode=LoadMode(mode), grammar=Grammar(grammar), **rest)


class GraphLoader:
    """Runs loads. `open_for_writing` gives a table where its branch writes, forked at the first write to the type."""

    def __init__(
        self,
        environment: GraphEnvironment,
        schema_of: Callable[[str], GraphSchema],
        open_for_writing: Callable[[Snapshot, TablePin, NewBranch | None], Table],
    ) -> None:
        self._environment = environment
        self._schema_of = schema_of
        self._open_for_writing = open_for_writing

    def load(self, call: LoadCall) -> LoadResult:
        """Run one load; everything becomes visible at once, or nothing does."""
        environment = self._environment
        budget = call.limits.budget()
        run = _Run(environment, self._schema_of, self._open_for_writing, call)
        with (
            operation("load", environment.location.uri),
            environment.claim_branch(call.branch) if run.creates_branch else nullcontext(),
        ):
            try:
                with bounded(budget, LOAD), environment.staging.shared():
                    return run.execute()
            except UNCLEAR as error:
                if run.has_effect:
                    raise
                raise unharmed(error, "nothing was written") from error.__cause__
            finally:
                run.clean_up()


class _Run:
    def __init__(
        self,
        environment: GraphEnvironment,
        schema_of: Callable[[str], GraphSchema],
        open_for_writing: Callable[[Snapshot, TablePin, NewBranch | None], Table],
        call: LoadCall,
    ) -> None:
        self._environment = environment
        self._open_for_writing = open_for_writing
        self._call = call
        #: Where a new branch begins: fixed for the whole load, whatever its base does meanwhile.
        self._new = self._new_branch()
        self._schema_hash = self._snapshot().schema_hash
        self._schema = schema_of(self._schema_hash)
        #: Forks that this run made.
        self._forks: dict[TableKey, Table] = {}
        #: Whether versions may refer to what was staged.
        self._has_effect = False
        self._may_leave_files = False

    @property
    def creates_branch(self) -> bool:
        """Whether the load makes its branch."""
        return self._new is not None

    @property
    def has_effect(self) -> bool:
        """Whether the load may have become visible."""
        return self._has_effect

    def _new_branch(self) -> NewBranch | None:
        state, call = self._environment.manifest.state(), self._call
        if call.branch in state.heads:
            return None
        if call.base is None:
            hint = "give the branch that it should begin at (`--from`, base=) to create it"
            raise BranchNotFoundError(call.branch, hint)
        # Again, and here it counts: the branch may have been deleted since the call began.
        call.authorize_fork()
        return NewBranch.at(state, call.branch, call.base)

    def _snapshot(self) -> Snapshot:
        """The branch as it is now, or the position that it will begin at."""
        state = self._environment.manifest.state()
        if self._new is None:
            return snapshot_of(state.head(self._call.branch))
        self._new.check_free(state)
        return snapshot_of(self._new.origin)

    def execute(self) -> LoadResult:
        call = self._call
        given = look_at_input(
            call.source, call.mapping, call.frames, self._schema.catalog, _spark_frames
        )
        session = call.spark
        if call.engine == "local":
            check_local(given, local_load_max_bytes())
        else:
            session = session_of_frames(session, given.frames)
        engine = make_engine(call.engine, session, call.progress, given.size_bytes)
        schema = self._schema
        plan = LoadPlan(
            shapes=shapes_of(schema.catalog, schema.identities, schema.rules),
            edge_words={name.casefold(): e.table_key for name, e in schema.catalog.edges.items()},
            grammar=call.grammar,
            id_prefix=new_id_prefix(),
            external=external_rule(
                call.external_blobs, is_overwrite=call.mode is LoadMode.OVERWRITE
            ),
        )
        job = LoadJob(
            given,
            plan,
            call.mode,
            rules=schema.rules,
            engine=engine,
            objects=self._environment.objects,
            root=self._environment.location,
        )
        try:
            job.plan_parts()
            snapshot, tables = self._targets(job)
            job.stage(tables, lambda keys: self._forked(keys)[1])
            return self._until_won(job, snapshot)
        except BaseException as error:
            # Also after an interrupt: tasks may have written what nobody knows.
            self._may_leave_files = may_leave_files(error)
            raise
        finally:
            job.close(is_committed=self._has_effect)

    def _targets(self, job: LoadJob) -> tuple[Snapshot, dict[TableKey, Table]]:
        """The tables that may be written; forks are made only for types that are present, as far as that is known."""
        snapshot = self._snapshot()
        if self._writes_directly(snapshot):
            return snapshot, {key: self._open(pin) for key, pin in snapshot.pins.items()}
        return self._forked(job.likely_types())

    def _forked(self, keys: Iterable[TableKey]) -> tuple[Snapshot, dict[TableKey, Table]]:
        wanted = set(keys)
        for number in range(REPREPARATION_BUDGET + 1):
            snapshot = self._snapshot()
            try:
                return snapshot, {
                    key: self._writable(snapshot, snapshot.pins[key]) for key in wanted
                }
            except ExpectedVersionMismatchError:
                # Another writer made the fork of a type first.
                if number == REPREPARATION_BUDGET:
                    raise
        raise ConflictError("the branch kept moving; try again")

    def _writes_directly(self, snapshot: Snapshot) -> bool:
        """Whether the branch owns all of its tables already."""
        wanted = snapshot.fork_name if self._new is None else self._new.fork_name
        return all(pin.branch == wanted for pin in snapshot.pins.values())

    def _writable(self, snapshot: Snapshot, pin: TablePin) -> Table:
        table = self._open_for_writing(snapshot, pin, self._new)
        if table.branch != pin.branch:
            self._forks[pin.table_key] = table
        return table

    def _open(self, pin: TablePin) -> Table:
        return open_pin(self._environment.tables, pin)

    # ---- commit

    def _until_won(self, job: LoadJob, first: Snapshot) -> LoadResult:
        """Prepare and commit; again when the branch moved before any effect.

        An overwrite reports that instead, also when it moved while the input was read: it would replace rows that
        nobody has seen. Commits that change no row do not matter to it either.
        """
        for number in range(REPREPARATION_BUDGET + 1):
            current = self._snapshot()
            if current.schema_hash != self._schema_hash:
                raise ReadSetConflictError("the schema", self._schema_hash, current.schema_hash)
            snapshot = current if self._may_prepare_again(first) else first
            prepared = None
            try:
                prepared = self._prepare(job, snapshot)
                return self._finish(job, prepared, snapshot)
            except (ExpectedVersionMismatchError, ReadSetConflictError):
                self._abandon(job, prepared)
                is_final = self.creates_branch or not self._may_prepare_again(first)
                if is_final or number == REPREPARATION_BUDGET:
                    raise
            except BaseException:
                # Also after an interrupt: the replaced rows were marked for nothing.
                self._abandon(job, prepared)
                raise
        raise ConflictError("the branch kept moving; try again")

    def _may_prepare_again(self, first: Snapshot) -> bool:
        """Whether the load may look at the branch as it is now, instead of as it was in the beginning."""
        if self._call.mode is not LoadMode.OVERWRITE:
            return True
        if self.creates_branch:
            return False
        return self._environment.manifest.is_same_data(first, first.pins)

    def _abandon(self, job: LoadJob, prepared: PreparedLoad | None) -> None:
        if prepared is not None and not self._has_effect:
            job.abandon(prepared)

    def _prepare(self, job: LoadJob, snapshot: Snapshot) -> PreparedLoad:
        tables = {key: self._writable(snapshot, snapshot.pins[key]) for key in job.row_counts}
        return job.prepare(tables, lambda key: self._open(snapshot.pins[key]))

    def _finish(self, job: LoadJob, prepared: PreparedLoad, snapshot: Snapshot) -> LoadResult:
        call = self._call
        commit = None
        if call.dry_run:
            job.abandon(prepared)
        else:
            pins = snapshot.pins
            expectations = Expectations(
                branch=call.branch,
                incarnation=snapshot.incarnation,
                schema_hash=snapshot.schema_hash,
                touched={key: pins[key].version for key in prepared.writes},
                read={key: pins[key].version for key in prepared.read},
                new_branch=self._new,
            )
            writes = [
                StagedTable(table_key=key, incarnation=pins[key].incarnation, staged=write)
                for key, write in prepared.writes.items()
            ]
            intent = Intent(kind=WriterKind.LOAD, expectations=expectations, actor=call.actor)
            attempt = Attempt(self._environment, intent)
            try:
                with call.progress.stage("commit", 1):
                    commit = run_phases(attempt, writes)
            finally:
                # From the intent on, versions may refer to the fragments, even to those of a write that was undone.
                self._has_effect = self._has_effect or attempt.is_declared
            job.finish(prepared)
        return LoadResult(
            uri=self._environment.location.uri,
            branch=call.branch,
            base=call.base,
            branch_created=self.creates_branch and commit is not None,
            mode=str(call.mode),
            nodes=LoadResult.types_of("node", job.row_counts, prepared.superseded),
            edges=LoadResult.types_of("edge", job.row_counts, prepared.superseded),
            actor=call.actor,
            commit=commit,
            dry_run=call.dry_run,
        )

    # ---- afterwards

    def clean_up(self) -> None:
        """Remove what the load left behind."""
        forks = () if self._has_effect else tuple(self._forks.values())
        if forks or self._may_leave_files:
            tidy_up(self._environment, forks, has_unknown_files=self._may_leave_files)


def _spark_frames() -> FrameAccess:
    # Late: files and frames of this process need no Spark.
    from omnigraph.spark.frames import SparkFrames

    return SparkFrames()
