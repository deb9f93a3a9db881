"""Creates, lists, deletes and merges branches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from typing_extensions import override

from omnigraph.api.results import BranchReceipt, MergeOutcome, MergeResult
from omnigraph.branches.merge import MergeInput, MergeJob
from omnigraph.branches.truth_table import find_base
from omnigraph.commit.attempt import Intent, StagedTable, commit_write, discard_staged
from omnigraph.commit.environment import OPTIMISTIC_TRIES, REPREPARATION_BUDGET, GraphEnvironment
from omnigraph.commit.expectations import BaseStays, Expectations
from omnigraph.commit.leftovers import UNCLEAR, may_leave_files, tidy_up, unharmed
from omnigraph.commit.rows import MAIN, Head, TablePin
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.snapshot import (
    ManifestState,
    Snapshot,
    branch_at,
    check_new_branch,
    deleted_branch,
    free_fork_name,
    snapshot_at,
    snapshot_of,
)
from omnigraph.commit.sweep import settle_all
from omnigraph.commit.targets import Target, check_pins, open_pin, resolve_target
from omnigraph.core.budget import NO_LIMITS, CancelSignal, ReadLimits, bounded
from omnigraph.core.failpoints import Failpoint, reach
from omnigraph.core.ids import TableKey, check_branch_name, is_ulid
from omnigraph.errors import (
    BadRequestError,
    BranchNotFoundError,
    ConflictError,
    ExpectedVersionMismatchError,
    MergeConflictsError,
    OmniError,
    ReadSetConflictError,
)
from omnigraph.errors.requests import MERGE
from omnigraph.graph.open_graph import OpenGraph
from omnigraph.maintenance.cleanup import reclaim_forks_quietly
from omnigraph.policy.rules import Action
from omnigraph.spark.worker_choice import ElasticEngine

if TYPE_CHECKING:
    from omnigraph.commit.schemas import GraphSchema
    from omnigraph.pipeline.workers import Progress
    from omnigraph.spark.worker_choice import Session
    from omnigraph.storage.datasets.tables import Table


# ---- The façade of branches: create, list, delete, merge


class BranchMethods(OpenGraph):
    """What an open graph does with branches."""

    @override
    def branches(self) -> list[str]:
        return sorted(self._state().heads)

    @override
    def create_branch(self, name: str, base: str = MAIN, actor: str | None = None) -> BranchReceipt:
        self._require_writable()
        name = check_branch_name(name)
        self._authorize(Action.BRANCH_CREATE, actor, branch=base, target=name)
        self._authorize_reading(base, actor)
        self._heal()
        create_branch(self._environment, name, base, actor)
        return BranchReceipt(uri=self.uri, name=name, base=base, actor=actor)

    @override
    def delete_branch(self, name: str, actor: str | None = None) -> BranchReceipt:
        self._require_writable()
        name = check_branch_name(name)
        self._authorize(Action.BRANCH_DELETE, actor, target=name)
        self._heal()
        delete_branch(self._environment, name, actor)
        return BranchReceipt(uri=self.uri, name=name, base=None, actor=actor)

    @override
    def merge(
        self,
        source: str,
        into: str = MAIN,
        *,
        strategy: str | None = None,
        dry_run: bool = False,
        delete_branch: bool = False,
        actor: str | None = None,
        engine: str = "auto",
        spark: Session | None = None,
        progress: Progress | None = None,
        timeout_s: float | None = None,
        cancel: CancelSignal | None = None,
    ) -> MergeResult:
        from omnigraph.pipeline.workers import Silent, operation

        self._require_writable()
        call = MergeCall(
            source=check_branch_name(source),
            target=check_branch_name(into),
            strategy=strategy,
            dry_run=dry_run,
            delete_branch=delete_branch,
            actor=actor,
            engine=engine,
            spark=spark,
            progress=progress or Silent(),
            limits=ReadLimits(timeout_s=timeout_s, cancel=cancel),
            authorize_delete=lambda: self._authorize(
                Action.BRANCH_DELETE, actor, target=call.source
            ),
        )
        self._authorize(Action.BRANCH_MERGE, actor, branch=call.source, target=call.target)
        # Conflicts show the rows of both, and the target shows those of the source afterwards.
        for name in (call.source, call.target):
            self._authorize_reading(name, actor)
        self._heal()
        merger = GraphMerger(self._environment, self._schema_of, self._writer.open_in)
        with operation("merge", self.uri):
            result = merger.merge(call)
        self._writer.fold_after(result.commit)
        return result


# ---- Creating and deleting branches: one head row each, under the commit lock


def create_branch(environment: GraphEnvironment, name: str, base: str, actor: str | None) -> None:
    """Create a branch."""

    def make_head(state: ManifestState, graph_version: int) -> Head:
        check_new_branch(state, name)
        origin = snapshot_of_base(environment, state, base)
        reach(Failpoint.BEFORE_BRANCH_PUBLISH)
        return branch_at(origin, name, graph_version, free_fork_name(state, name), actor)

    with environment.window() as held:
        settle_all(held)
        held.publish_branch(make_head)
        reach(Failpoint.AFTER_BRANCH_PUBLISH)


def snapshot_of_base(environment: GraphEnvironment, state: ManifestState, base: str) -> Snapshot:
    """Where a branch begins: the head of a branch, or a commit of any branch.

    Raises:
        BranchNotFoundError: there is no such branch.
        NotFoundError: there is no such commit.
        BadRequestError: the commit has another schema than the graph has now.
        HistoricalVersionReclaimedError: its data was cleaned up.
    """
    base = base.strip()
    if base in state.heads:
        return snapshot_of(state.heads[base])
    if not is_ulid(base):
        raise BranchNotFoundError(check_branch_name(base))
    origin = resolve_target(environment.manifest, state, Target(snapshot=base))
    if origin.schema_hash != state.head(MAIN).schema_hash:
        raise BadRequestError(
            f"commit {base} has an older schema than the graph: a branch cannot begin there"
        )
    # Under the commit lock, as a cleanup is: what is there now stays, because the branch holds it from here on.
    check_pins(environment.tables, origin.pins.values())
    return origin


def delete_branch(
    environment: GraphEnvironment, name: str, actor: str | None, expected: Head | None = None
) -> None:
    """Delete a branch, or only the one that is expected: first it stops to exist, then its forks go."""

    def make_head(state: ManifestState, graph_version: int) -> Head:
        head = deleted_branch(state, name, graph_version, actor, expected)
        reach(Failpoint.BEFORE_BRANCH_PUBLISH)
        return head

    with environment.window() as held:
        settle_all(held)
        held.publish_branch(make_head)
        reach(Failpoint.AFTER_BRANCH_PUBLISH)
    reclaim_forks_quietly(environment)


# ---- Merges of an open graph: outcome, plan without a lock, commit, plan again when the target moved


STRATEGIES = ("ours", "theirs")
#: Rows up to which a merge may be planned while all writers wait.
_MAX_ROWS_IN_WINDOW = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeCall:
    """One call of `merge`."""

    source: str
    target: str
    strategy: str | None
    dry_run: bool
    delete_branch: bool
    actor: str | None
    engine: str
    spark: Session | None
    progress: Progress
    #: Raises when the actor may not delete the source.
    authorize_delete: Callable[[], None]
    #: Before the commit; what has begun to become visible is finished.
    limits: ReadLimits = NO_LIMITS

    def __post_init__(self) -> None:
        if self.source == self.target:
            raise BadRequestError(f"branch {self.source!r} cannot be merged into itself")
        if self.strategy is not None and self.strategy not in STRATEGIES:
            raise BadRequestError(
                f"there is no strategy {self.strategy!r}: give {' or '.join(STRATEGIES)}"
            )


@dataclass(slots=True)
class _Effort:
    """What the tries of one merge have done so far."""

    forks: dict[TableKey, Table] = field(default_factory=dict)
    changed_rows: int = 0
    #: Whether the last of them may have become visible.
    may_have_effect: bool = False


class GraphMerger:
    """Runs merges. `open_for_writing` gives a table where the target writes, forked at its first write to the type."""

    def __init__(
        self,
        environment: GraphEnvironment,
        schema_of: Callable[[str], GraphSchema],
        open_for_writing: Callable[[GraphEnvironment, Snapshot, TablePin], Table],
    ) -> None:
        self._environment = environment
        self._schema_of = schema_of
        self._open_for_writing = open_for_writing

    def merge(self, call: MergeCall) -> MergeResult:
        """Merge one branch into another; all of it becomes visible at once, or nothing does."""
        engine = ElasticEngine(call.engine, call.spark, call.progress)
        effort = _Effort()
        budget = call.limits.budget()
        try:
            # Not longer: the forks of a source that is deleted afterwards go only when nobody reads.
            with bounded(budget, MERGE), self._environment.reading.held():
                source, result = self._until_won(call, engine, effort)
        except BaseException as error:
            # Also after an interrupt: nobody else knows what was left.
            unknown = may_leave_files(error)
            if effort.forks or unknown:
                tidy_up(self._environment, effort.forks.values(), has_unknown_files=unknown)
            if isinstance(error, UNCLEAR) and not effort.may_have_effect:
                raise unharmed(error, "nothing was written") from error.__cause__
            raise
        if call.delete_branch and not call.dry_run:
            return self._delete_source(call, result, source)
        return result

    def _until_won(
        self, call: MergeCall, engine: ElasticEngine, effort: _Effort
    ) -> tuple[Head, MergeResult]:
        """Plan and commit; again when the target moved in a way that matters.

        A small merge that keeps losing is planned inside the window in the end, where nobody else can move the target.
        A large one never is: it would keep all writers waiting.
        """
        for number in range(REPREPARATION_BUDGET + 1):
            try:
                if number < OPTIMISTIC_TRIES or effort.changed_rows > _MAX_ROWS_IN_WINDOW:
                    return self._try(self._environment, call, engine, effort)
                with self._environment.window() as environment:
                    return self._try(environment, call, engine, effort)
            except (ExpectedVersionMismatchError, ReadSetConflictError):
                if number == REPREPARATION_BUDGET:
                    raise
        raise ConflictError("the target kept moving; try again")

    def _try(
        self,
        environment: GraphEnvironment,
        call: MergeCall,
        engine: ElasticEngine,
        effort: _Effort,
    ) -> tuple[Head, MergeResult]:
        """Plan and commit once; the head of the source that was merged, and the result."""
        # Before the heads are read: from here on nobody removes forks, even if the source is deleted meanwhile.
        with environment.staging.shared():
            state = environment.manifest.state()
            source, target = state.head(call.source), state.head(call.target)
            if source.schema_hash != target.schema_hash:
                raise BadRequestError(
                    f"branch {call.source!r} and branch {call.target!r} have different schemas"
                )
            history = environment.manifest.history()
            base = find_base(history.commits, source.commit_id, target.commit_id)
            outcome = _outcome(set(base.commits), source, target)
            result = MergeResult(
                source=call.source,
                target=call.target,
                outcome=outcome,
                strategy=call.strategy,
                actor=call.actor,
                dry_run=call.dry_run,
            )
            if outcome is MergeOutcome.ALREADY_UP_TO_DATE:
                return source, result
            schema = self._schema_of(target.schema_hash)
            job = MergeJob(
                given=MergeInput(
                    source=snapshot_of(source),
                    target=snapshot_of(target),
                    base=base,
                    bases={commit: snapshot_at(history, commit) for commit in base.commits},
                    catalog=schema.catalog,
                    rules=schema.rules,
                    strategy=call.strategy,
                ),
                engine=engine,
                store=environment.tables,
                objects=environment.objects,
            )
            return source, self._run(environment, job, call, result, effort)

    def _run(
        self,
        environment: GraphEnvironment,
        job: MergeJob,
        call: MergeCall,
        result: MergeResult,
        effort: _Effort,
    ) -> MergeResult:
        source, target = job.given.source, job.given.target
        effort.may_have_effect = False
        is_committed = False
        try:
            with call.progress.stage("compare branches", 1) as stage:
                job.plan()
                effort.changed_rows = job.changed_rows
                stage.update(1, job.changed_rows)
            if not job.conflicts.total:
                with call.progress.stage("copy rows", 1) as stage:
                    job.stage(self._opener(environment, job, call, effort))
                    stage.update(1, job.changed_rows)
                with call.progress.stage("check the result", 1) as stage:
                    job.check()
                    stage.update(1, 0)
            if job.conflicts.total and not call.dry_run:
                found = tuple(job.conflicts.found)
                raise MergeConflictsError(call.source, call.target, found, job.conflicts.total)
            result = replace(result, changes=job.changes)
            if call.dry_run:
                return _preview(result, job)
            intent = Intent(
                kind=WriterKind.BRANCH_MERGE,
                expectations=Expectations.of(
                    target,
                    BaseStays(target.commit_id),
                    touched={key: target.pins[key].version for key in job.writes},
                    read={key: target.pins[key].version for key in job.read - job.writes.keys()},
                ),
                actor=call.actor,
                merged_parent_id=source.commit_id,
                merge_strategy=call.strategy,
            )
            writes = _staged_tables(job)
            is_committed = effort.may_have_effect = True
            with call.progress.stage("commit", 1):
                commit = commit_write(environment, intent, writes)
            if commit.parent_id != target.commit_id:
                # The target got a commit of its own meanwhile, of types that this merge has nothing to do with.
                result = replace(result, outcome=MergeOutcome.MERGED)
            return replace(result, commit=commit)
        finally:
            job.close()
            if not is_committed:
                discard_staged(environment, _staged_tables(job))

    def _opener(
        self,
        environment: GraphEnvironment,
        job: MergeJob,
        call: MergeCall,
        effort: _Effort,
    ) -> Callable[[TablePin], Table]:
        """Where rows are staged; a dry run stages beside the rows that the target reads, and makes no fork."""

        def open_table(pin: TablePin) -> Table:
            if call.dry_run:
                return open_pin(environment.tables, pin)
            table = self._open_for_writing(environment, job.given.target, pin)
            if table.branch != pin.branch:
                effort.forks[pin.table_key] = table
            return table

        return open_table

    def _delete_source(self, call: MergeCall, result: MergeResult, source: Head) -> MergeResult:
        """Delete what was merged, and nothing that came later."""
        try:
            call.authorize_delete()
            delete_branch(self._environment, call.source, call.actor, source)
        except ReadSetConflictError:
            reason = f"branch {call.source} has changed since it was merged: merge it again"
            return replace(result, branch_deleted=False, branch_delete_error=reason)
        except OmniError as error:
            return replace(result, branch_deleted=False, branch_delete_error=error.message)
        return replace(result, branch_deleted=True)


def _outcome(bases: set[str], source: Head, target: Head) -> MergeOutcome:
    if bases == {source.commit_id}:
        return MergeOutcome.ALREADY_UP_TO_DATE
    return MergeOutcome.FAST_FORWARD if bases == {target.commit_id} else MergeOutcome.MERGED


def _staged_tables(job: MergeJob) -> list[StagedTable]:
    pins = job.given.target.pins
    return [
        StagedTable(table_key=key, incarnation=pins[key].incarnation, staged=write)
        for key, write in job.writes.items()
    ]


def _preview(result: MergeResult, job: MergeJob) -> MergeResult:
    found, total = tuple(job.conflicts.found), job.conflicts.total
    outcome = MergeOutcome.CONFLICTS if total else result.outcome
    return replace(result, outcome=outcome, conflicts=found, conflict_total=total)
