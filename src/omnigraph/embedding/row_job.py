"""Embedding the rows of an open graph: find them, keep their vectors, commit; prepare again after a lost race.

The slow part, asking a provider, happens outside of everything: no lock, no staged file, no sidecar. Its vectors are
kept, so whatever happens afterwards costs seconds, not another bill.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar

from omnigraph.codec import Document, Key
from omnigraph.commit.environment import GraphEnvironment
from omnigraph.commit.notes import Note
from omnigraph.commit.rows import GraphCommit
from omnigraph.commit.schemas import GraphSchema
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.targets import open_pin
from omnigraph.commit.transaction import LOST_RACES, RetryPolicy, Transaction
from omnigraph.core.budget import NO_LIMITS, PATIENT_ROWS, Budget, ReadLimits, bounded
from omnigraph.core.failpoints import Failpoint, reach
from omnigraph.core.ids import TableKey
from omnigraph.core.source import did_you_mean
from omnigraph.embedding.client import EmbeddingSettings
from omnigraph.embedding.providers import EmbedPurpose, check_model
from omnigraph.embedding.row_vectors import (
    ColumnEdit,
    EmbeddedRows,
    EmbedLimits,
    KeptVectors,
    TextRows,
    VectorsGoneError,
    column_edit,
    embed_rows,
    kept_address,
    stage_edits,
)
from omnigraph.embedding.stale_rows import EmbedTarget, TargetWork, WorkFinder, embed_targets
from omnigraph.errors import BadRequestError, ConflictError
from omnigraph.errors.requests import EMBED
from omnigraph.frozen import frozen
from omnigraph.pipeline.engine_choice import Engine, choose_engine, rows_of
from omnigraph.pipeline.workers import Progress, Workers
from omnigraph.spark import ElasticWorkers, choose_workers
from omnigraph.storage.datasets.partitions import table_address
from omnigraph.storage.datasets.tables import Table

if TYPE_CHECKING:
    from omnigraph.spark import Session

#: Number of texts that this process embeds by itself unless workers are given.
_SMALL_TEXTS = 4_096
#: A guess of what a text takes, for the memory of a session that is started.
_TEXT_BYTES = 4_096
#: Age at which kept vectors are removed.
_KEPT_MS = 7 * 24 * 60 * 60 * 1000


@frozen(kw_only=True)
class EmbeddedProperty(Document):
    """The result of a run for one vector property, or of its preview."""

    type_key: str
    property: str
    #: Rows without a vector, and rows whose text changed since, or that were asked for.
    missing: int
    outdated: int
    #: Rows that lost their vector, because their text is gone; rows that could not, because it must not be null.
    cleared: int
    kept: int
    #: Texts that the provider embedded, and texts whose vectors an earlier run had computed.
    embedded: int
    reused: int
    #: The commit before which changed texts could not be recognised; None when all were.
    checked_since: str | None


@frozen(kw_only=True)
class EmbedResult(Document):
    """The receipt of a run; `commit` is None when there was nothing to do, and after a dry run."""

    computed: ClassVar = {"rows": "properties", "embedded": "rows", "reused": "embedded"}

    uri: str
    branch: str
    provider: str
    model: str
    properties: tuple[EmbeddedProperty, ...]
    dry_run: bool = False
    actor: Annotated[str | None, Key("actor_id")]
    commit: GraphCommit | None

    @property
    def rows(self) -> int:
        """Rows that got a vector or lost it, once per property."""
        return sum(item.missing + item.outdated + item.cleared for item in self.properties)

    @property
    def embedded(self) -> int:
        """Texts that the provider embedded."""
        return sum(item.embedded for item in self.properties)

    @property
    def reused(self) -> int:
        """Texts whose vectors an earlier run had computed."""
        return sum(item.reused for item in self.properties)


@frozen(kw_only=True)
class EmbedCall:
    """One call of `embed`."""

    types: Sequence[str] | None
    branch: str
    reembed: bool
    batch_size: int
    rate: float | None
    engine: str
    spark: Session | None
    actor: str | None
    note: Note
    dry_run: bool
    progress: Progress
    limits: ReadLimits = NO_LIMITS

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise BadRequestError(f"a batch has at least one text, not {self.batch_size}")
        if self.rate is not None and not 0 < self.rate < float("inf"):
            raise BadRequestError(f"a rate is a number of texts per second above 0, not {self.rate}")


#: Asking a provider takes long, so other writers never wait for it.
POLICY = RetryPolicy(outside=None, lost=(*LOST_RACES, VectorsGoneError), keeps_schema=True, is_bulk=True)


def embed_graph(environment: GraphEnvironment, schema_of: Callable[[str], GraphSchema], call: EmbedCall) -> EmbedResult:
    """Run one call; all vectors become visible at once, or none does."""
    budget = call.limits.budget()
    transaction = Transaction(
        environment, call.branch, kind=WriterKind.EMBED, actor=call.actor, note=call.note, policy=POLICY
    )
    schema = schema_of(transaction.snapshot.schema_hash)
    catalog = schema.catalog
    for name in call.types or ():
        if name not in catalog.nodes and name not in catalog.edges:
            hint = did_you_mean(name, [*catalog.nodes, *catalog.edges])
            raise BadRequestError(f"there is no type {name}" + (f": {hint}" if hint else ""))
    targets = embed_targets(catalog, schema.identities, call.types)
    settings = EmbeddingSettings.from_environment()
    for target in targets:
        check_model(target.model, settings.model, str(target), EmbedPurpose.DOCUMENT)
    run = _Run(environment, schema_of, call, targets=targets, settings=settings, budget=budget)
    with transaction, bounded(budget, EMBED):
        try:
            return transaction.run(run.prepare)
        except VectorsGoneError as error:
            raise ConflictError("other runs kept removing vectors; try again") from error


class _Run:
    def __init__(
        self,
        environment: GraphEnvironment,
        schema_of: Callable[[str], GraphSchema],
        call: EmbedCall,
        *,
        targets: Sequence[EmbedTarget],
        settings: EmbeddingSettings,
        budget: Budget,
    ) -> None:
        self._environment = environment
        self._schema_of = schema_of
        self._call = call
        self._targets = targets
        self._settings = settings
        self._budget = budget
        # Most commits change little: comparing each of them on Spark would take longer than embedding.
        comparing = Engine.AUTO if call.engine == Engine.SPARK else call.engine
        self._engine = ElasticWorkers(comparing, call.spark, call.progress)
        #: Texts embedded and vectors found, by target, over all tries.
        self._embedded: defaultdict[str, int] = defaultdict(int)
        self._reused: defaultdict[str, int] = defaultdict(int)
        #: Parts that this run wrote or found.
        self._parts: defaultdict[int, set[str]] = defaultdict(set)

    def prepare(self, transaction: Transaction) -> EmbedResult:
        """Find the rows, embed them, and commit their vectors."""
        work = self._find(transaction.snapshot)
        if self._call.dry_run or all(item.is_empty for item in work):
            return self._result(work, None)
        workers = self._workers(work)
        edits = self._embed(transaction.snapshot, work, workers)
        return self._result(work, self._write(transaction, edits, workers))

    def _find(self, snapshot: Snapshot) -> list[TargetWork]:
        environment = self._environment
        history = environment.manifest.history()
        finder = WorkFinder(
            snapshot, history, environment.tables, self._engine, lambda name: self._schema_of(name).identities
        )
        found = []
        with self._call.progress.stage("find rows", len(self._targets)) as stage:
            rows = 0
            for target in self._targets:
                pin = snapshot.pins[target.table_key]
                table = open_pin(environment.tables, pin)
                found.append(finder.find(target, table, pin, reembed=self._call.reembed))
                rows += len(found[-1].embedded) + len(found[-1].cleared)
                stage.update(len(found), rows)
        return found

    def _workers(self, work: Sequence[TargetWork]) -> Workers:
        call = self._call
        texts = sum(len(item.embedded) for item in work)
        chosen = choose_engine(call.engine, rows_of(texts, _SMALL_TEXTS))
        return choose_workers(chosen.name, call.spark, call.progress, texts * _TEXT_BYTES)

    # ---- vectors

    def _embed(
        self, snapshot: Snapshot, work: Sequence[TargetWork], workers: Workers
    ) -> dict[TableKey, list[ColumnEdit]]:
        """Make sure that all vectors are kept; what becomes of every table."""
        root = self._environment.location.uri
        wanted = [
            TextRows(
                table=table_address(self._open(snapshot, item)),
                source=item.target.source,
                dimension=item.target.dimension,
                row_ids=item.embedded,
            )
            for item in work
        ]
        limits = EmbedLimits(batch_size=self._call.batch_size, rate=self._call.rate)
        found: list[list[EmbeddedRows]] = [[] for _ in work]
        if any(len(item.row_ids) for item in wanted):
            # Tasks of this process ask the provider one after the other, and each answer may take long.
            rows = PATIENT_ROWS if workers.parallelism == 1 else 0
            found = self._budget.patiently(lambda: embed_rows(wanted, root, self._settings, limits, workers), rows)
        edits: defaultdict[TableKey, list[ColumnEdit]] = defaultdict(list)
        for item, pieces in zip(work, found, strict=True):
            self._count(item.target, pieces)
            if not item.is_empty:
                kept = kept_address(root, self._settings, item.target.dimension)
                edits[item.target.table_key].append(column_edit(item, kept, pieces))
        return edits

    def _open(self, snapshot: Snapshot, item: TargetWork) -> Table:
        return open_pin(self._environment.tables, snapshot.pins[item.target.table_key])

    def _count(self, target: EmbedTarget, pieces: Sequence[EmbeddedRows]) -> None:
        known = self._parts[target.dimension]
        # What a later try finds again was counted when it was embedded.
        is_first = str(target) not in self._reused
        self._embedded[str(target)] += sum(item.embedded for item in pieces)
        self._reused[str(target)] += sum(item.reused for item in pieces) if is_first else 0
        known.update(part for item in pieces for part in item.parts)

    # ---- commit

    def _write(
        self, transaction: Transaction, edits: dict[TableKey, list[ColumnEdit]], workers: Workers
    ) -> GraphCommit:
        environment, pins = self._environment, transaction.snapshot.pins
        transaction.touched.update({key: pins[key].version for key in edits})
        # Asking a provider may have taken hours: vectors for a state that is gone are of no use.
        transaction.check()
        with environment.staging.shared():
            for key, changes in edits.items():
                table = transaction.open_for_writing(pins[key])
                write = stage_edits(table, changes, workers)
                transaction.stage(pins[key], write)
            reach(Failpoint.EMBED_STAGED)
            return transaction.commit()

    # ---- afterwards

    def _result(self, work: Sequence[TargetWork], commit: GraphCommit | None) -> EmbedResult:
        if not self._call.dry_run:
            self._forget()
        return EmbedResult(
            uri=self._environment.location.uri,
            branch=self._call.branch,
            provider=str(self._settings.provider),
            model=self._settings.model,
            properties=tuple(
                EmbeddedProperty(
                    type_key=item.target.table_key,
                    property=item.target.property,
                    missing=len(item.missing),
                    outdated=len(item.outdated),
                    cleared=len(item.cleared),
                    kept=item.kept,
                    embedded=self._embedded[str(item.target)],
                    reused=self._reused[str(item.target)],
                    checked_since=item.checked_since,
                )
                for item in work
            ),
            actor=self._call.actor,
            commit=commit,
            dry_run=self._call.dry_run,
        )

    def _forget(self) -> None:
        """Remove kept vectors that are in the graph now, and those that have expired."""
        root, now_ms = self._environment.location.uri, self._environment.clock() // 1000
        for dimension in {target.dimension for target in self._targets}:
            kept = KeptVectors(kept_address(root, self._settings, dimension))
            kept.remove(self._parts[dimension])
            kept.remove_older(now_ms - _KEPT_MS)
