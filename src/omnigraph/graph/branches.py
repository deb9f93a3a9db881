"""Creates, lists, deletes and merges branches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from omnigraph.api.listings import branch_list
from omnigraph.api.results import BranchReceipt, MergeOutcome, MergeResult
from omnigraph.branches.merge import MergeInput, MergeJob
from omnigraph.branches.truth_table import find_base
from omnigraph.commit.environment import GraphEnvironment
from omnigraph.commit.expectations import BaseStays
from omnigraph.commit.notes import Note, note_of
from omnigraph.commit.read_target import Target
from omnigraph.commit.rows import MAIN, GraphCommit, Head
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.snapshot import (
    ManifestState,
    Snapshot,
    branch_at,
    check_new_branch,
    check_untagged,
    deleted_branch,
    free_fork_name,
    snapshot_at,
    snapshot_of,
)
from omnigraph.commit.sweep import settled_window
from omnigraph.commit.tags import refuse_tag_name
from omnigraph.commit.targets import check_pins, resolve_target
from omnigraph.commit.transaction import RetryPolicy, Transaction
from omnigraph.core.budget import CancelSignal, ReadLimits, bounded
from omnigraph.core.failpoints import Failpoint, reach
from omnigraph.core.ids import check_branch_name, is_ulid
from omnigraph.errors import BadRequestError, BranchNotFoundError, MergeConflictsError, OmniError, ReadSetConflictError
from omnigraph.errors.requests import MERGE
from omnigraph.errors.writes import STRATEGIES
from omnigraph.frozen import frozen
from omnigraph.graph.open_graph import OpenGraph, graph_method
from omnigraph.maintenance.cleanup import reclaim_forks_quietly
from omnigraph.pipeline.workers import Progress
from omnigraph.policy.rules import Action

if TYPE_CHECKING:
    from omnigraph.spark import ElasticWorkers, Session


# ---- Creating and deleting branches


@graph_method
def branches(graph: OpenGraph) -> list[str]:
    return branch_list(sorted(graph.state().heads))


@graph_method
def create_branch(graph: OpenGraph, name: str, base: str = MAIN, actor: str | None = None) -> BranchReceipt:
    graph.require_writable()
    name, base = check_branch_name(name), graph.state_name(base)
    graph.authorize(Action.BRANCH_CREATE, actor, branch=base, target=name)
    graph.authorize_reading(base, actor)

    def make_head(state: ManifestState, graph_version: int) -> Head:
        check_new_branch(state, name)
        refuse_tag_name(name, graph.environment.manifest.tags())
        origin = _snapshot_of_base(graph.environment, state, base)
        reach(Failpoint.BEFORE_BRANCH_PUBLISH)
        return branch_at(origin, name, graph_version, free_fork_name(state, name), actor)

    _publish(graph.environment, make_head)
    return BranchReceipt(uri=graph.uri, name=name, base=base, actor=actor)


def _snapshot_of_base(environment: GraphEnvironment, state: ManifestState, base: str) -> Snapshot:
    """The snapshot that a branch begins at: the head of a branch, or a commit of any branch.

    Raises:
        BranchNotFoundError: there is no such branch.
        NotFoundError: there is no such commit.
        BadRequestError: the commit has another schema than the graph has now.
        HistoricalVersionReclaimedError: its data was cleaned up.
    """
    if base in state.heads:
        return snapshot_of(state.heads[base])
    if not is_ulid(base):
        raise BranchNotFoundError(check_branch_name(base))
    origin = resolve_target(environment.manifest, state, Target(snapshot=base))
    if origin.schema_hash != state.head(MAIN).schema_hash:
        raise BadRequestError(f"commit {base} has an older schema than the graph: a branch cannot begin there")
    # Under the commit lock, as a cleanup is: what is there now stays, because the branch holds it from here on.
    check_pins(environment.tables, origin.pins.values())
    return origin


@graph_method
def delete_branch(graph: OpenGraph, name: str, actor: str | None = None) -> BranchReceipt:
    graph.require_writable()
    name = check_branch_name(name)
    graph.authorize(Action.BRANCH_DELETE, actor, target=name)
    _delete(graph.environment, name, actor)
    return BranchReceipt(uri=graph.uri, name=name, base=None, actor=actor)


def _delete(environment: GraphEnvironment, name: str, actor: str | None, expected: Head | None = None) -> None:
    """Delete a branch, or only the one that is expected: first it stops to exist, then its forks go."""

    def make_head(state: ManifestState, graph_version: int) -> Head:
        head = deleted_branch(state, name, graph_version, actor, expected)
        check_untagged(head, _tagged_commits(environment))
        reach(Failpoint.BEFORE_BRANCH_PUBLISH)
        return head

    _publish(environment, make_head)
    reclaim_forks_quietly(environment)


def _tagged_commits(environment: GraphEnvironment) -> dict[str, GraphCommit]:
    """The commits that have tags, by the names of these."""
    tags = environment.manifest.tags()
    commits = environment.manifest.commits() if tags else {}
    return {name: commits[tag.commit_id] for name, tag in tags.items() if tag.commit_id in commits}


def _publish(environment: GraphEnvironment, make_head: Callable[[ManifestState, int], Head]) -> None:
    with settled_window(environment) as held:
        held.publish_branch(make_head)
        reach(Failpoint.AFTER_BRANCH_PUBLISH)


# ---- Merging branches


#: Rows up to which a merge may be planned while all writers wait.
_MAX_ROWS_IN_WINDOW = 100_000
POLICY = RetryPolicy(is_bulk=True)


@frozen(kw_only=True)
class MergeCall:
    """One call of `merge`."""

    source: str
    target: str
    strategy: str | None
    dry_run: bool
    check_minimum: bool
    actor: str | None
    note: Note
    workers: ElasticWorkers
    progress: Progress

    def __post_init__(self) -> None:
        if self.source == self.target:
            raise BadRequestError(f"branch {self.source!r} cannot be merged into itself")
        if self.strategy is not None and self.strategy not in STRATEGIES:
            raise BadRequestError(f"there is no strategy {self.strategy!r}: give {' or '.join(STRATEGIES)}")


@graph_method
def merge(
    graph: OpenGraph,
    source: str,
    into: str = MAIN,
    *,
    strategy: str | None = None,
    dry_run: bool = False,
    check_minimum: bool = False,
    delete_branch: bool = False,
    actor: str | None = None,
    message: str | None = None,
    metadata: Mapping[str, object] | None = None,
    engine: str = "auto",
    spark: Session | None = None,
    progress: Progress | None = None,
    timeout_s: float | None = None,
    cancel: CancelSignal | None = None,
) -> MergeResult:
    from omnigraph.pipeline.workers import Silent, operation
    from omnigraph.spark import ElasticWorkers

    graph.require_writable()
    shown = progress or Silent()
    source, target = check_branch_name(source), check_branch_name(into)
    call = MergeCall(
        source=source,
        target=target,
        strategy=strategy,
        dry_run=dry_run,
        check_minimum=check_minimum,
        actor=actor,
        note=note_of(message, metadata),
        workers=ElasticWorkers(engine, spark, shown),
        progress=shown,
    )
    limits = ReadLimits(timeout_s=timeout_s, cancel=cancel)
    graph.authorize(Action.BRANCH_MERGE, actor, branch=source, target=target)
    # Conflicts show the rows of both, and the target shows those of the source afterwards.
    for name in (source, target):
        graph.authorize_reading(name, actor)
    graph.heal()
    with operation("merge", graph.uri):
        merged, result = _merge(graph, call, limits)
    if delete_branch and not dry_run:
        result = _delete_merged(graph, merged, result, actor)
    # Lazy: other work on branches reads no rows.
    from omnigraph.graph.reads import follow_commit

    graph.fold_after(result.commit)
    follow_commit(graph, result.commit)
    return result


def _delete_merged(graph: OpenGraph, merged: Head, result: MergeResult, actor: str | None) -> MergeResult:
    """Delete what was merged, and nothing that came later."""
    try:
        graph.authorize(Action.BRANCH_DELETE, actor, target=merged.branch)
        _delete(graph.environment, merged.branch, actor, merged)
    except ReadSetConflictError:
        reason = f"branch {merged.branch} has changed since it was merged: merge it again"
        return replace(result, branch_deleted=False, branch_delete_error=reason)
    except OmniError as error:
        return replace(result, branch_deleted=False, branch_delete_error=error.message)
    return replace(result, branch_deleted=True)


def _merge(graph: OpenGraph, call: MergeCall, limits: ReadLimits) -> tuple[Head, MergeResult]:
    """Merge at once or not at all; the head of the source that was merged, and the result.

    A small merge that keeps losing is planned inside the window in the end, where no other writer can move the target.
    A large one never is: it would keep all writers waiting. The limits hold before the commit: what has begun to become
    visible is finished.
    """
    environment, budget = graph.environment, limits.budget()
    with (
        Transaction(
            environment, call.target, kind=WriterKind.BRANCH_MERGE, actor=call.actor, note=call.note, policy=POLICY
        ) as transaction,
        bounded(budget, MERGE),
        # Not longer: the forks of a source that is deleted afterwards go only while nothing reads.
        environment.reading.held(),
        # Before the heads are read: from here on no fork is removed, even if the source is deleted meanwhile.
        environment.staging.shared(),
    ):
        return transaction.run(lambda it: _try_merge(graph, it, call))


def _try_merge(graph: OpenGraph, transaction: Transaction, call: MergeCall) -> tuple[Head, MergeResult]:
    """Plan and commit once."""
    environment, target = transaction.environment, transaction.snapshot
    source = transaction.state.head(call.source)
    if source.schema_hash != target.schema_hash:
        raise BadRequestError(f"branch {call.source!r} and branch {call.target!r} have different schemas")
    history = environment.manifest.history()
    base = find_base(history.commits, source.commit_id, target.commit_id)
    outcome = _outcome(set(base.commits), source.commit_id, target.commit_id)
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
    schema = graph.schema_of(target.schema_hash)
    job = MergeJob(
        given=MergeInput(
            source=snapshot_of(source),
            target=target,
            base=base,
            bases={commit: snapshot_at(history, commit) for commit in base.commits},
            catalog=schema.catalog,
            rules=schema.rules,
            strategy=call.strategy,
        ),
        engine=call.workers,
        store=environment.tables,
        objects=environment.objects,
        on_staged=transaction.stage,
        checks_minimum=call.check_minimum,
    )
    try:
        return source, _run_merge(transaction, job, call, result)
    finally:
        job.close()


def _run_merge(transaction: Transaction, job: MergeJob, call: MergeCall, result: MergeResult) -> MergeResult:
    target = transaction.snapshot
    with call.progress.stage("compare branches", 1) as stage:
        job.plan()
        transaction.is_large = job.changed_rows > _MAX_ROWS_IN_WINDOW
        stage.update(1, job.changed_rows)
    if job.conflicts.total:
        with call.progress.stage("check the result", 1) as stage:
            job.check_both(transaction.open)
            stage.update(1, 0)
    else:
        with call.progress.stage("copy rows", 1) as stage:
            # A dry run stages beside the rows that the target reads, and makes no fork.
            job.stage(transaction.open if call.dry_run else transaction.open_for_writing)
            stage.update(1, job.changed_rows)
        with call.progress.stage("check the result", 1) as stage:
            job.check()
            stage.update(1, 0)
    if job.conflicts.total and not call.dry_run:
        raise MergeConflictsError(call.source, call.target, job.conflicts.shown, job.conflicts.total)
    result = replace(result, changes=job.changes)
    if call.dry_run:
        return _preview(result, job)
    read = job.read - transaction.touched.keys()
    transaction.read.update({key: target.pins[key].version for key in read})
    transaction.require(BaseStays(target.commit_id))
    with call.progress.stage("commit", 1):
        merged = job.given.source.commit_id
        commit = transaction.commit(merged_parent_id=merged, merge_strategy=call.strategy)
    if commit.parent_id != target.commit_id:
        # The target got a commit of its own meanwhile, of types that this merge has nothing to do with.
        result = replace(result, outcome=MergeOutcome.MERGED)
    return replace(result, commit=commit)


def _outcome(bases: set[str], source: str, target: str) -> MergeOutcome:
    if bases == {source}:
        return MergeOutcome.ALREADY_UP_TO_DATE
    return MergeOutcome.FAST_FORWARD if bases == {target} else MergeOutcome.MERGED


def _preview(result: MergeResult, job: MergeJob) -> MergeResult:
    total = job.conflicts.total
    outcome = MergeOutcome.CONFLICTS if total else result.outcome
    return replace(result, outcome=outcome, conflicts=job.conflicts.shown, conflict_total=total)
