"""Loads of an open graph: stage once, prepare against the branch as it is, commit, prepare again after a lost race."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack, closing, nullcontext
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING

from omnigraph.api.results import LoadedType, LoadQuarantine, LoadResult
from omnigraph.commit.environment import local_load_max_bytes
from omnigraph.commit.expectations import NewBranch
from omnigraph.commit.notes import Note
from omnigraph.commit.rows import GraphCommit
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.snapshot import ManifestState, Snapshot
from omnigraph.commit.tags import refuse_tag_name
from omnigraph.commit.transaction import RetryPolicy, Transaction
from omnigraph.core.budget import NO_LIMITS, ReadLimits, bounded
from omnigraph.core.ids import TableKey
from omnigraph.embedding.load_vectors import LoadVectors
from omnigraph.embedding.on_write import writes_embed
from omnigraph.errors import BadRequestError, BranchNotFoundError, LoadReport
from omnigraph.errors.requests import LOAD
from omnigraph.frozen import frozen
from omnigraph.graph.open_graph import OpenGraph
from omnigraph.graph.quarantines import Reload, quarantine_place, quarantined, refuse_inside
from omnigraph.pipeline.engine_choice import AUTO_LOCAL_MAX_BYTES, ChosenEngine, bytes_of, choose_engine
from omnigraph.pipeline.keys import new_id_prefix
from omnigraph.pipeline.load.job import LoadJob
from omnigraph.pipeline.load.prepared import PreparedLoad
from omnigraph.pipeline.shape.leniency import Duplicates, leniency_of
from omnigraph.pipeline.shape.plan import Grammar, LoadPlan, external_rule, shapes_of
from omnigraph.pipeline.sources.planning import (
    FrameAccess,
    LoadInput,
    check_columns,
    check_local,
    look_at_input,
    refuse_unfit,
)
from omnigraph.pipeline.upsert import LoadMode
from omnigraph.pipeline.workers import Progress, operation
from omnigraph.spark import make_engine, session_of_frames
from omnigraph.storage.datasets.tables import Table

if TYPE_CHECKING:
    from omnigraph.spark import Session


@frozen(kw_only=True)
class LoadCall:
    """One call of `load`."""

    source: str | PathLike[str] | None
    mapping: str | PathLike[str] | Mapping[str, object] | None
    frames: Mapping[str, object] | None
    mode: LoadMode
    branch: str
    base: str | None
    actor: str | None
    note: Note
    engine: str
    spark: Session | None
    #: What happens to equal ids and to edges without an end; None: as the mapping says.
    on_duplicate: str | None
    dangling: str | None
    #: The folder for bad records; None: they refuse the load.
    quarantine: str | PathLike[str] | None
    dry_run: bool
    grammar: Grammar
    #: Whether records of a patch may be new rows.
    upsert: bool
    #: Whether every node needs the edges that the schema asks for, also where it never had one.
    check_minimum: bool
    progress: Progress
    #: Before the commit; what has begun to become visible is finished.
    limits: ReadLimits = NO_LIMITS


def check_choices(mode: str, grammar: str, *, upsert: bool) -> tuple[LoadMode, Grammar]:
    """The mode and the grammar of a call.

    Raises:
        BadRequestError: there is no such mode or grammar, or `upsert` does not fit the mode.
    """
    for name, value, known in (("mode", mode, LoadMode), ("grammar", grammar, Grammar)):
        if value not in list(known):
            raise BadRequestError(f"there is no {name} {value!r}: give {', '.join(known)}")
    if upsert and mode != LoadMode.PATCH:
        raise BadRequestError(
            f"`--upsert` (upsert=True) inserts unknown rows of a patch, and the mode is {mode}: give mode patch"
        )
    return LoadMode(mode), Grammar(grammar)


#: It never makes other writers wait, and its fragments serve every try.
POLICY = RetryPolicy(outside=None, keeps_schema=True, keeps_files=True, is_bulk=True)


def load_graph(graph: OpenGraph, call: LoadCall, state: ManifestState) -> LoadResult:
    """Run one load; everything becomes visible at once, or nothing does.

    `state` says whether the load creates its branch, which its caller has allowed.

    Raises:
        BranchNotFoundError: there is no such branch, and no base that it could begin at.
    """
    environment, budget = graph.environment, call.limits.budget()
    new, policy = None, POLICY
    if call.branch not in state.heads:
        if call.base is None:
            hint = "give the branch that it should begin at (`--from`, base=) to create it"
            raise BranchNotFoundError(call.branch, hint)
        refuse_tag_name(call.branch, environment.manifest.tags())
        new, policy = NewBranch.at(state, call.branch, call.base), replace(POLICY, tries=1)
    transaction = Transaction(
        environment, call.branch, kind=WriterKind.LOAD, actor=call.actor, note=call.note, policy=policy, new_branch=new
    )
    with (
        operation("load", environment.location.uri),
        nullcontext() if new is None else environment.claim_branch(call.branch),
        transaction,
        bounded(budget, LOAD),
        environment.staging.shared(),
    ):
        return _Run(graph, transaction, call).execute()


class _Run:
    def __init__(self, graph: OpenGraph, transaction: Transaction, call: LoadCall) -> None:
        self._graph = graph
        self._transaction = transaction
        self._call = call
        self._schema = graph.schema_of(transaction.snapshot.schema_hash)
        root, catalog = graph.environment.location.uri, self._schema.catalog
        self._vectors = LoadVectors(root, catalog, is_dry_run=call.dry_run) if writes_embed(catalog) else None
        self._quarantine = None if call.quarantine is None else quarantine_place(call.quarantine, graph.uri)

    def execute(self) -> LoadResult:
        call = self._call
        with ExitStack() as stack:
            with call.progress.stage("look at the input", 1) as stage:
                access, catalog, is_patch = _spark_frames, self._schema.catalog, call.mode is LoadMode.PATCH
                looked = look_at_input(call.source, call.mapping, call.frames, catalog, access, is_patch=is_patch)
                given = stack.enter_context(closing(looked))
                chosen = _choose(call, given)
                stage.note(str(chosen))
            return replace(self._load(given, chosen), engine=chosen)

    def _load(self, given: LoadInput, chosen: ChosenEngine) -> LoadResult:
        call, schema = self._call, self._schema
        if self._quarantine is not None:
            refuse_inside(self._quarantine, given.places)
        plan = LoadPlan(
            shapes=shapes_of(
                schema.catalog,
                schema.identities,
                schema.rules,
                embeds=None if self._vectors is None else self._vectors.serves,
            ),
            edge_words={name.casefold(): e.table_key for name, e in schema.catalog.edges.items()},
            grammar=call.grammar,
            id_prefix=new_id_prefix(),
            is_patch=call.mode is LoadMode.PATCH,
            inserts_unknown=call.upsert,
            keeps_vectors=call.mode is not LoadMode.APPEND,
            external=external_rule(self._graph.settings.external_blobs, is_overwrite=call.mode is LoadMode.OVERWRITE),
        )
        # What does not fit should not cost the start of Spark.
        check_columns(given, plan)
        replaces = call.mode is LoadMode.UPSERT and given.is_ordered
        leniency = leniency_of(
            given.rules,
            given.unordered_types,
            duplicates=call.on_duplicate,
            dangling=call.dangling,
            default=Duplicates.LAST if replaces else Duplicates.ERROR,
            quarantines=self._quarantine is not None,
        )
        if leniency.quarantines and call.mode is LoadMode.PATCH:
            refuse_unfit(given)
        if call.mode is LoadMode.PATCH and leniency.drops_any:
            raise BadRequestError(
                "a patch drops no edges (`dangling`): its records name edges that exist; leave the rule out, or keep "
                "new edges without an end in a quarantine (`--on-error quarantine=FOLDER`, quarantine=)"
            )
        session = None if chosen.is_local else session_of_frames(call.spark, given.frames)
        job = LoadJob(
            given,
            plan,
            call.mode,
            rules=schema.rules,
            leniency=leniency,
            engine=make_engine(chosen.name, session, call.progress, given.size_bytes),
            objects=self._graph.environment.objects,
            root=self._graph.environment.location,
            checks_minimum=call.check_minimum,
            embedding=self._vectors,
        )
        try:
            job.plan_parts()
            first, tables = self._targets(job)
            job.stage(tables, self._forked)
            result = self._transaction.run(lambda _: self._try(job, first))
            if self._vectors is not None and result.commit is not None:
                self._vectors.forget()
            return result
        finally:
            job.close(is_committed=self._transaction.has_effect)

    def _targets(self, job: LoadJob) -> tuple[Snapshot, dict[TableKey, Table]]:
        """The tables that may be written; forks are made only for types that are present, as far as that is known."""
        transaction = self._transaction
        pins = transaction.begin().pins
        if all(pin.branch == transaction.fork_name for pin in pins.values()):
            tables = {key: transaction.open(pin) for key, pin in pins.items()}
        else:
            tables = self._forked(job.likely_types())
        return transaction.snapshot, tables

    def _forked(self, keys: Iterable[TableKey]) -> dict[TableKey, Table]:
        """Tables where the branch writes; again when another writer made the fork of a type first."""
        wanted = set(keys)
        return self._transaction.run(lambda it: {key: it.open_for_writing(it.snapshot.pins[key]) for key in wanted})

    def _try(self, job: LoadJob, first: Snapshot) -> LoadResult:
        """Prepare and commit once.

        An overwrite does not look at the branch as it is now when rows changed since the beginning, also while the
        input was read: it would replace rows that the load never read.
        """
        transaction = self._transaction
        if self._call.mode is LoadMode.OVERWRITE:
            transaction.guarded = (first, first.pins)
            if not transaction.is_unharmed():
                transaction.snapshot = first
        pins = transaction.snapshot.pins
        prepared = None
        try:
            tables = {key: transaction.open_for_writing(pins[key]) for key in job.row_counts}
            prepared = job.prepare(tables, lambda key: transaction.open(pins[key]))
            return self._finish(job, prepared)
        except BaseException:
            # Also after an interrupt: the replaced rows were marked for nothing.
            if prepared is not None and not transaction.has_effect:
                job.abandon(prepared)
            raise

    def _finish(self, job: LoadJob, prepared: PreparedLoad) -> LoadResult:
        report = job.report(prepared)
        if self._quarantine is None or report is None:
            return self._receipt(job, prepared, report, None, self._commit(job, prepared))
        call = self._call
        again = Reload(
            graph_uri=self._graph.uri,
            branch=call.branch,
            mode=call.mode,
            grammar=str(call.grammar),
            on_duplicate=call.on_duplicate,
            dangling=call.dangling,
            upsert=call.upsert,
            check_minimum=call.check_minimum,
        )
        with quarantined(
            job,
            prepared,
            self._quarantine,
            again,
            report,
            durable=self._graph.environment.durable,
            dry_run=call.dry_run,
            has_effect=lambda: self._transaction.has_effect,
        ) as kept:
            return self._receipt(job, prepared, report, kept, self._commit(job, prepared))

    def _commit(self, job: LoadJob, prepared: PreparedLoad) -> GraphCommit | None:
        call, transaction = self._call, self._transaction
        if call.dry_run:
            job.abandon(prepared)
            return None
        pins = transaction.snapshot.pins
        for key, write in prepared.writes.items():
            transaction.stage(pins[key], write)
        transaction.read.update({key: pins[key].version for key in prepared.read})
        with call.progress.stage("commit", 1):
            commit = transaction.commit()
        job.finish(prepared)
        return commit

    def _receipt(
        self,
        job: LoadJob,
        prepared: PreparedLoad,
        report: LoadReport | None,
        kept: LoadQuarantine | None,
        commit: GraphCommit | None,
    ) -> LoadResult:
        call = self._call
        return LoadResult(
            uri=self._graph.uri,
            branch=call.branch,
            base=call.base,
            branch_created=self._transaction.new_branch is not None and commit is not None,
            mode=str(call.mode),
            nodes=_types("node", job, prepared),
            edges=_types("edge", job, prepared),
            quarantine=kept,
            report=report,
            nulled=dict(sorted(job.nulled.items())),
            embedded=0 if self._vectors is None else self._vectors.embedded,
            actor=call.actor,
            commit=commit,
            dry_run=call.dry_run,
        )


def _choose(call: LoadCall, given: LoadInput) -> ChosenEngine:
    """The engine for an input.

    Raises:
        BadRequestError: there is no such engine, or it does not read this input.
        ResourceLimitError: the input is too large for this process, and Spark was excluded or is not installed.
    """
    most = local_load_max_bytes()
    most_by_itself = min(most, AUTO_LOCAL_MAX_BYTES.read())
    amount = bytes_of("input", given.likely_bytes, most_by_itself, stored=given.size_bytes)
    only_spark = given.only_spark or ("a Spark session was given" if call.spark is not None else "")
    chosen = choose_engine(call.engine, amount, only_spark=only_spark)
    if chosen.is_local:
        check_local(given, most)
    return chosen


def _types(kind: str, job: LoadJob, prepared: PreparedLoad) -> tuple[LoadedType, ...]:
    left_out, repeated = prepared.left_out, prepared.repeated
    rows = {key: count - left_out.bad[key] for key, count in job.row_counts.items()}
    found = LoadResult.types_of(kind, rows, prepared.superseded, repeated=repeated, dropped=left_out.dropped)
    counts = {key.name: count for key, count in prepared.patched.items() if key.kind == kind}
    return tuple(
        replace(item, patched=counts[item.name].patched, inserted=counts[item.name].inserted)
        if item.name in counts
        else item
        for item in found
    )


def _spark_frames() -> FrameAccess:
    # Lazy: files and frames of this process need no Spark.
    from omnigraph.spark import SparkFrames

    return SparkFrames()
