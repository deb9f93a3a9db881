"""Optimizes tables: fewer fragments, also right after a write, complete indexes, a short manifest."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar

from omnigraph.codec import OMIT_NONE, Document, Key
from omnigraph.commit.attempt import StagedTable, discard_staged
from omnigraph.commit.environment import GraphEnvironment, GraphSettings
from omnigraph.commit.publisher import ManifestFold
from omnigraph.commit.rows import MAIN, GraphCommit, TablePin
from omnigraph.commit.schemas import GraphSchema
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.snapshot import Snapshot, snapshot_of
from omnigraph.commit.sweep import settled_window, undo_late_writers
from omnigraph.commit.targets import open_pin
from omnigraph.commit.transaction import RetryPolicy, Transaction
from omnigraph.core.budget import NO_LIMITS, ReadLimits, bounded
from omnigraph.core.failpoints import Failpoint, reach
from omnigraph.core.ids import TableKey
from omnigraph.errors import ConflictError, ExpectedVersionMismatchError, OmniError
from omnigraph.errors.requests import OPTIMIZE
from omnigraph.frozen import frozen
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.maintenance.indexes import PendingIndex, plan_indexes, table_indexes
from omnigraph.pipeline.workers import Message, Progress, Workers
from omnigraph.spark import ElasticWorkers
from omnigraph.storage.datasets.compaction import (
    CompactionTask,
    choose_fold,
    choose_rewrites,
    exchanged_fragments,
    fragment_facts,
    newest_rows,
    plan_compaction,
    run_compaction_task,
    stage_compaction,
    with_indexes,
)
from omnigraph.storage.datasets.indexes import (
    IndexBuild,
    IndexPartTask,
    IndexSpec,
    build_index_part,
    plan_builds,
    plan_index_parts,
    stage_index_parts,
)
from omnigraph.storage.datasets.staged import PrivateVersion, StagedWrite, close_private, open_private
from omnigraph.storage.datasets.tables import Table

if TYPE_CHECKING:
    from omnigraph.spark import Session


# ---- Compaction as bulk work: the rewrites of all tables are tasks of one stage
#
# Nothing moves here. The caller commits each staged write under the commit protocol, or discards it.


COMPACT_STAGE = "compact"


def compact_tables(workers: Workers, work: Sequence[tuple[Table, Sequence[Sequence[int]]]]) -> list[StagedWrite]:
    """Write groups of fragments anew, as one fragment each; tables without groups are left out.

    Raises:
        SparkError: a task failed on every try. What other tasks wrote is unreferenced, and cleanup removes it.
    """
    plans = [(table, plan_compaction(table, groups)) for table, groups in work]
    messages = iter(workers.run(COMPACT_STAGE, _rewrite, [task for _, tasks in plans for task in tasks]))
    staged = [stage_compaction(table, [str(next(messages)["result"]) for _ in tasks]) for table, tasks in plans]
    return [write for write in staged if write is not None]


def _rewrite(task: CompactionTask) -> Message:
    return {"result": run_compaction_task(task), "rows": task.rows}


# ---- Index builds as bulk work: the parts of all indexes of all tables are tasks of one stage


INDEX_STAGE = "build indexes"
#: A part with fewer rows costs more in its merge than it saves.
MIN_PART_ROWS = 100_000


def build_indexes(
    workers: Workers, work: Sequence[tuple[Table, Iterable[IndexSpec]]], *, min_part_rows: int = MIN_PART_ROWS
) -> list[StagedWrite | None]:
    """What `stage_indices` gives for every table, built by tasks; None where nothing is missing.

    Raises:
        SparkError: a task failed on every try. What other tasks built is unreferenced, and cleanup removes it.
    """
    plans = [(table, _plan(table, specs, workers.parallelism, min_part_rows)) for table, specs in work]
    tasks = [task for _, planned in plans for _, parts in planned for task in parts]
    messages = iter(workers.run(INDEX_STAGE, _build, tasks))
    staged = []
    for table, planned in plans:
        built = [(build, [str(next(messages)["part"]) for _ in parts]) for build, parts in planned]
        staged.append(stage_index_parts(table, built))
    return staged


def _plan(
    table: Table, specs: Iterable[IndexSpec], parts: int, min_rows: int
) -> list[tuple[IndexBuild, list[IndexPartTask]]]:
    return [
        (build, plan_index_parts(table, build, parts=parts, min_rows=min_rows)) for build in plan_builds(table, specs)
    ]


def _build(task: IndexPartTask) -> Message:
    return {"part": build_index_part(task), "rows": task.rows}


# ---- Optimizing a graph: fewer fragments, complete indexes, a short manifest; no row changes
#
# Per table the new fragments are written, then the indexes are built on a private version that has them, both outside
# of the commit window. Inside it each table moves by the two or three versions that were staged, and one commit
# publishes all tables. A table that a writer moved meanwhile is prepared again; the others keep their work.


_log = logging.getLogger(__name__)
#: Tables that writers moved are prepared again, in the end inside the commit window.
POLICY = RetryPolicy(
    tries=7, outside=6, lost=(ExpectedVersionMismatchError,), keeps_schema=True, keeps_files=True, is_bulk=True
)
#: Rows of such tables up to which they are prepared there; with more they are left out.
WINDOW_ROWS = 200_000

DRIFT = "drift_needs_repair"
MOVED = "moved"


@frozen(kw_only=True)
class OptimizedTable(Document):
    """What happened to one table."""

    type_key: str
    fragments_removed: int = 0
    fragments_added: int = 0
    built_indexes: tuple[str, ...] = ()
    committed: bool = False
    #: Why nothing was done although something may be worth it: `drift_needs_repair` or `moved`.
    skipped: str | None = None
    published_dataset_version: int
    lance_head_version: int
    pending_indexes: tuple[PendingIndex, ...] = ()


@frozen(kw_only=True)
class OptimizeReport(Document):
    """The outcome of a run; `commit` is None when no table had anything to gain."""

    computed: ClassVar = {"graph_commit_id": "branch"}

    branch: str
    commit: GraphCommit | None
    #: Sorted by table key.
    tables: Annotated[tuple[OptimizedTable, ...], Key("datasets")]
    catalog: Annotated[ManifestFold, Key("manifest")]
    #: Why the manifest was not folded, although the commit was published: the next run folds it.
    manifest_error: Annotated[str | None, OMIT_NONE] = None

    @property
    def graph_commit_id(self) -> str | None:
        """The commit that published the tables."""
        return None if self.commit is None else self.commit.commit_id


@frozen(kw_only=True)
class OptimizeCall:
    """One call of `optimize`."""

    actor: str | None
    engine: str
    spark: Session | None
    progress: Progress
    #: Before the commit; what has begun to become visible is finished, and so is folding the manifest.
    limits: ReadLimits = NO_LIMITS


@frozen(kw_only=True)
class _Prepared:
    """The staged work of one table."""

    pin: TablePin
    staged: StagedWrite
    built: tuple[str, ...]

    @property
    def write(self) -> StagedTable:
        pin = self.pin
        return StagedTable(table_key=pin.table_key, incarnation=pin.incarnation, staged=self.staged)


def optimize_graph(
    environment: GraphEnvironment, schema_of: Callable[[str], GraphSchema], call: OptimizeCall
) -> OptimizeReport:
    """Optimize every table of main as one commit, then the manifest; its caller has settled what dead writers left.

    A manifest that cannot be folded after the commit is told in the report: the commit stands.

    Raises:
        ConflictError: the schema changed meanwhile; nothing happened.
        SparkError: Spark cannot run; nothing happened.
        QueryTimeoutError, QueryCancelledError: it was stopped before its commit; nothing happened.
    """
    budget = call.limits.budget()
    transaction = Transaction(environment, kind=WriterKind.OPTIMIZE, actor=call.actor, policy=POLICY)
    run = _Run(transaction, schema_of(transaction.snapshot.schema_hash).catalog, call)
    with transaction, bounded(budget, OPTIMIZE), environment.staging.shared():
        commit = run.execute()
    fold, problem = ManifestFold(fragments_removed=0, fragments_added=0, versions_removed=0), None
    try:
        with settled_window(environment) as held:
            fold = held.manifest.fold(tenure=held.tenure)
            held.audit.fold()
    except OmniError as error:
        if commit is None:
            raise
        # A failure alone would read as if nothing had happened.
        problem = error.message
    after = snapshot_of(environment.manifest.state().head(MAIN))
    tables = run.report(commit, after)
    return OptimizeReport(branch=MAIN, commit=commit, tables=tables, catalog=fold, manifest_error=problem)


class _Run:
    def __init__(self, transaction: Transaction, catalog: Catalog, call: OptimizeCall) -> None:
        self._transaction = transaction
        self._catalog = catalog
        self._engine = ElasticWorkers(call.engine, call.spark, call.progress)
        self._prepared: dict[TableKey, _Prepared] = {}
        self._skipped: dict[TableKey, str] = {}
        self._has_begun = False

    def execute(self) -> GraphCommit | None:
        """Prepare and commit; what a writer moved meanwhile is prepared again, and left out in the end."""
        try:
            return self._transaction.run(self._try)
        except BaseException:
            # Also after an interrupt: nothing but this run knows the staged files.
            if not self._transaction.has_effect:
                self._discard(list(self._prepared))
            raise

    def _try(self, transaction: Transaction) -> GraphCommit | None:
        todo, pins = self._todo(), transaction.snapshot.pins
        if transaction.is_alone and sum(pins[key].row_count for key in todo) > WINDOW_ROWS:
            # Writers would go on winning, and for so many rows they cannot wait.
            self._skipped |= dict.fromkeys(todo, MOVED)
            todo = ()
        self._prepare(todo)
        reach(Failpoint.OPTIMIZE_STAGED)
        for item in self._prepared.values():
            transaction.stage(item.pin, item.staged)
        return None if transaction.is_empty else transaction.commit()

    def _todo(self) -> Collection[TableKey]:
        """All tables at first, later those that writers moved; the work on these is forgotten."""
        pins = self._transaction.snapshot.pins
        if not self._has_begun:
            self._has_begun = True
            return list(pins)
        moved = [key for key, item in self._prepared.items() if pins.get(key) != item.pin]
        self._discard(moved)
        return moved

    def _discard(self, keys: Sequence[TableKey]) -> None:
        writes = [self._prepared.pop(key).write for key in keys]
        discard_staged(self._transaction.environment, writes)

    def report(self, commit: GraphCommit | None, after: Snapshot) -> tuple[OptimizedTable, ...]:
        """What happened to every table."""
        done = () if commit is None else commit.tables
        _, pending = plan_indexes(self._catalog, after, self._transaction.open)
        reports = []
        for key, pin in sorted(after.pins.items()):
            work = self._prepared.get(key)
            removed, added = exchanged_fragments(work.staged) if work and key in done else (0, 0)
            reports.append(
                OptimizedTable(
                    type_key=key,
                    fragments_removed=removed,
                    fragments_added=added,
                    built_indexes=work.built if work and key in done else (),
                    committed=key in done,
                    skipped=self._skipped.get(key),
                    published_dataset_version=pin.version,
                    lance_head_version=self._transaction.open(pin).latest_version,
                    pending_indexes=tuple(item for item in pending if item.type_key == key),
                )
            )
        return tuple(reports)

    # ---- preparing

    def _prepare(self, keys: Collection[TableKey]) -> None:
        tables = self._tables(keys)
        rewritten = self._rewrite(tables)
        images: dict[TableKey, PrivateVersion] = {}
        try:
            for key, item in rewritten.items():
                images[key] = open_private(item)
            states = {key: images[key].table if key in images else table for key, table in tables.items()}
            indexes, names = self._build(states)
            for key in tables:
                staged = _joined(rewritten.get(key), images.get(key), indexes.get(key))
                if staged is not None:
                    pin, built = self._transaction.snapshot.pins[key], names.get(key, ())
                    self._prepared[key] = _Prepared(pin=pin, staged=staged, built=built)
        finally:
            for private in images.values():
                close_private(private, self._transaction.environment.objects)

    def _tables(self, keys: Collection[TableKey]) -> dict[TableKey, Table]:
        """The tables that may be changed: those whose HEAD is what the manifest says."""
        found = self._at_head(keys)
        if len(found) == len(keys):
            return found
        # A writer may be in its window just now: look again when none is. At all of them: the same writer may have
        # moved tables that were looked at before.
        with settled_window(self._transaction.environment) as held:
            undo_late_writers(held, MAIN, keys)
            self._transaction.begin()
            found = self._at_head(keys)
        self._skipped |= dict.fromkeys((key for key in keys if key not in found), DRIFT)
        return found

    def _at_head(self, keys: Collection[TableKey]) -> dict[TableKey, Table]:
        pins = self._transaction.snapshot.pins
        tables = {key: self._transaction.open(pins[key]) for key in keys}
        return {key: item for key, item in tables.items() if item.latest_version == item.version}

    def _rewrite(self, tables: Mapping[TableKey, Table]) -> dict[TableKey, StagedWrite]:
        work: dict[TableKey, tuple[Table, Sequence[Sequence[int]]]] = {}
        rows = 0
        for key, table in tables.items():
            facts = fragment_facts(table)
            groups = choose_rewrites(facts)
            if groups:
                chosen = {number for group in groups for number in group}
                rows += sum(fact.rows for fact in facts if fact.number in chosen)
                work[key] = (table, groups)
        if not work:
            return {}
        done = compact_tables(self._engine.for_rows(rows).workers, list(work.values()))
        return dict(zip(work, done, strict=True))

    def _build(
        self, states: Mapping[TableKey, Table]
    ) -> tuple[dict[TableKey, StagedWrite | None], dict[TableKey, tuple[str, ...]]]:
        """The indexes that the tables lack, and their names."""
        work: dict[TableKey, tuple[Table, Sequence[IndexSpec]]] = {}
        names: dict[TableKey, tuple[str, ...]] = {}
        for key, table in states.items():
            specs = self._specs(key, table)
            builds = plan_builds(table, specs)
            if builds:
                work[key] = (table, specs)
                names[key] = tuple(build.spec.name for build in builds)
        if not work:
            return {}, {}
        rows = sum(table.row_count for table, _ in work.values())
        staged = build_indexes(self._engine.for_rows(rows).workers, list(work.values()))
        return dict(zip(work, staged, strict=True)), names

    def _specs(self, key: TableKey, table: Table) -> list[IndexSpec]:
        definition = self._catalog.types.get(key)
        if not table.row_count or definition is None:
            return []
        found = table_indexes(definition, table)
        return [spec for spec in found if not isinstance(spec, PendingIndex)]


def _joined(
    rewritten: StagedWrite | None, image: PrivateVersion | None, indexes: StagedWrite | None
) -> StagedWrite | None:
    """New fragments and indexes of one table as one write."""
    if rewritten is None or image is None:
        return indexes
    return with_indexes(rewritten, image.table, indexes)


# ---- Folding: a writer whose table has collected many small fragments makes one of them, right after its own commit
#
# Small writes stay fast without a command that has to be run. Only the newest fragments that no index covers are
# folded, so that nothing but the fragments changes, and the work is bounded. It is a favour: whatever goes wrong, the
# write before it is done.


#: Who folds, in the history.
FOLD_ACTOR = "omnigraph:fold"
#: What one fold writes at most.
FOLD_MAX_ROWS = 100_000
FOLD_MAX_BYTES = 32 * 1024 * 1024
#: How long a fold waits for the commit lock: its holder is writing, and may fold itself.
_PATIENCE_S = 0.2


def fold_after(environment: GraphEnvironment, settings: GraphSettings, commit: GraphCommit | None) -> None:
    """Fold the tables that a commit touched, where it is time to. Never fails."""
    if commit is None or not settings.folds:
        return
    try:
        _fold(environment, settings.fold_fragments, commit)
    except ConflictError as lost:
        _log.debug("another writer was faster, nothing was folded: %s", lost)
    except Exception as error:  # noqa: BLE001  # the write before it is done, and must not look as if it had failed
        _log.warning("small fragments stay until the next write: %s", error)
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(f"commit {commit.commit_id} is written")
        raise


def _fold(environment: GraphEnvironment, more_than: int, commit: GraphCommit) -> None:
    head = environment.manifest.known_state().head(commit.branch)
    pins = [head.pins[key] for key in commit.tables if key in head.pins]
    candidates = [pin for pin in pins if pin.branch == head.fork_name]
    due = [pin for pin in candidates if _may_fold(open_pin(environment.tables, pin), more_than)]
    if not due:
        return

    def prepare(transaction: Transaction) -> None:
        with transaction.environment.staging.shared():
            for pin in due:
                transaction.stage(pin, _stage_table(transaction.open(pin), more_than))
            if not transaction.is_empty:
                reach(Failpoint.FOLD_STAGED)
                transaction.commit()

    impatient = replace(environment, lock_timeout_s=_PATIENCE_S)
    kind = WriterKind.OPTIMIZE
    Transaction(impatient, commit.branch, kind=kind, actor=FOLD_ACTOR).run(prepare)


def _may_fold(table: Table, more_than: int) -> bool:
    """Whether it is worth looking closer: the question that every write asks."""
    rows = newest_rows(table, more_than + 1)
    return rows is not None and rows <= FOLD_MAX_ROWS


def _stage_table(table: Table, more_than: int) -> StagedWrite | None:
    chosen = choose_fold(
        fragment_facts(table, with_blobs=True), more_than=more_than, max_rows=FOLD_MAX_ROWS, max_bytes=FOLD_MAX_BYTES
    )
    if not chosen:
        return None
    tasks = plan_compaction(table, [chosen])
    return stage_compaction(table, [run_compaction_task(task) for task in tasks])
