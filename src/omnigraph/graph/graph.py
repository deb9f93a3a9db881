"""The façade: one object per open graph. It delegates, it does not think."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph.errors import (
    BadRequestError,
    BlobRangeError,
    BranchNotFoundError,
    ConflictError,
    ExpectedVersionMismatchError,
    NotFoundError,
    QuerySelectionError,
    ReadSetConflictError,
    StorageError,
    StorageFailure,
)
from omnigraph.graph.branches import check_branch_name, new_branch_head
from omnigraph.graph.indexing import (
    BuiltIndexes,
    IndexReport,
    PendingIndex,
    commit_indexes,
    plan_indexes,
)
from omnigraph.graph.initialize import initialize
from omnigraph.graph.reading import GraphReader, ReadCall
from omnigraph.graph.results import MutationResult
from omnigraph.graph.schemas import GraphSchema, read_schema_files
from omnigraph.graph.settings import GraphSettings
from omnigraph.graph.targets import Target
from omnigraph.ids import TableKey
from omnigraph.manifest import MAIN, Expectations, GraphCommit, Snapshot, snapshot_of
from omnigraph.query import QueryCompiler, bind_params, ir
from omnigraph.recovery import (
    GraphEnvironment,
    Intent,
    RecoveryRecord,
    StagedTable,
    WriterKind,
    commit_write,
    has_unsettled,
    list_sidecars,
    open_environment,
    settle_all,
)
from omnigraph.schema import compile_schema, compile_schema_file
from omnigraph.storage import Compare, create_fork, parse_location
from omnigraph.types import Scalar, ScalarType
from omnigraph.writes import PreparedMutation, prepare_mutation, stage_mutation

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from os import PathLike
    from types import TracebackType

    from omnigraph.graph.answer import Result
    from omnigraph.manifest import ManifestState, TablePin
    from omnigraph.storage import Table
    from omnigraph.types import StoredValue

#: How often insert-only work that lost a race is prepared again before the conflict surfaces.
REPREPARATION_BUDGET = 32
#: Lost races after which it is prepared inside the commit window, so that it cannot lose again.
OPTIMISTIC_TRIES = 3
#: Largest range of a blob that one call reads.
BLOB_RANGE_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Call:
    """One call of `mutate`; `now_ms` is fixed over all tries."""

    text: str
    params: Mapping[str, object] | None
    name: str | None
    branch: str
    actor: str | None
    if_commit: str | None
    now_ms: int


class _LostRaceError(Exception):
    """Insert-only work lost a race before any effect; never leaves this module."""

    def __init__(self, conflict: ConflictError) -> None:
        super().__init__(str(conflict))
        self.conflict = conflict


class Graph:
    """An open graph. Thread-safe; close it, or use it in a `with` statement.

    >>> import tempfile
    >>> root = tempfile.mkdtemp() + "/papers.omni"
    >>> with Graph.init(root, "node Paper { doi: String @key }") as graph:
    ...     result = graph.mutate('query add() { insert Paper { doi: "10.1" } }')
    >>> result.affected_nodes
    1
    """

    def __init__(
        self, environment: GraphEnvironment, *, read_only: bool, settings: GraphSettings
    ) -> None:
        self._environment = environment
        self._settings = settings
        self._compiler = QueryCompiler()
        self._schemas: dict[str, GraphSchema] = {}
        self._reader = GraphReader(environment, self._compiler, self._schema_of)
        self.read_only = read_only

    # ---- opening

    @classmethod
    def init(
        cls,
        uri: str | PathLike[str],
        schema: str | Path,
        *,
        actor: str | None = None,
        force: bool = False,
    ) -> Graph:
        """Create a graph; `schema` is the path of a `.pg` file, or schema text.

        Raises:
            CompilerError: the schema is wrong.
            AlreadyInitializedError: the root is in use.
        """
        is_path = isinstance(schema, Path) or "{" not in schema
        compiled = compile_schema_file(schema) if is_path else compile_schema(str(schema))
        graph = cls._at(uri, read_only=False)
        created = initialize(graph._environment, compiled, actor=actor, force=force)
        graph._schemas[created.catalog.schema_hash] = created
        return graph

    @classmethod
    def open(cls, uri: str | PathLike[str], read_only: bool = False) -> Graph:
        """Open a graph. A writable open first settles what dead writers left.

        Raises:
            NotFoundError: there is no graph.
            StorageFormatError: another release wrote it.
        """
        graph = cls._at(uri, read_only=read_only)
        graph._state()
        if not read_only:
            graph._heal()
        graph._schema_of(graph._state().head(MAIN).schema_hash)
        return graph

    @classmethod
    def _at(cls, uri: str | PathLike[str], *, read_only: bool) -> Graph:
        settings = GraphSettings.from_environment()
        environment = open_environment(
            parse_location(uri), durable=settings.durable, lock_timeout_s=settings.lock_timeout_s
        )
        return cls(environment, read_only=read_only, settings=settings)

    def close(self) -> None:
        """Release what the graph holds in memory."""
        self._reader.close()
        self._schemas.clear()

    def __enter__(self) -> Graph:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def uri(self) -> str:
        """The address of the graph."""
        return self._environment.location.uri

    # ---- reading

    @property
    def schema(self) -> str:
        """The accepted schema text."""
        return self._schema_of(self._state().head(MAIN).schema_hash).source

    def query(
        self,
        text: str,
        params: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        branch: str = MAIN,
        snapshot: str | None = None,
        version: int | None = None,
        as_of: str | datetime | None = None,
    ) -> Result:
        """Run one read on one snapshot: a branch head, a commit, a graph version or a moment.

        It never waits for a writer, and nothing that is written meanwhile changes it.

        >>> import tempfile
        >>> root = tempfile.mkdtemp() + "/papers.omni"
        >>> graph = Graph.init(root, "node Paper { doi: String @key }")
        >>> receipt = graph.mutate('query add() { insert Paper { doi: "10.1" } }')
        >>> graph.query("query all() { match { $p: Paper } return { $p.doi as doi } }").to_pylist()
        [{'doi': '10.1'}]

        Raises:
            CompilerError: the query is wrong.
            ParameterError: the parameters do not fit it.
            QuerySelectionError: the text holds no such read.
            NotFoundError: there is no such branch, commit, version or moment.
        """
        target = Target(branch=branch, snapshot=snapshot, version=version, as_of=as_of)
        self._state()
        return self._reader.query(ReadCall(text=text, params=params, name=name, target=target))

    def explain(
        self,
        text: str,
        params: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        branch: str = MAIN,
        analyze: bool = False,
    ) -> str:
        """What a query means and how it would run here; `analyze` runs it and adds rows and times per operator."""
        self._state()
        call = ReadCall(text=text, params=params, name=name, target=Target(branch=branch))
        return self._reader.explain(call, analyze=analyze)

    def snapshot(self, branch: str = MAIN) -> Snapshot:
        """The dataset versions that are visible together at the head of a branch.

        Raises:
            BranchNotFoundError: there is no such branch.
        """
        return snapshot_of(self._state().head(check_branch_name(branch)))

    def branches(self) -> list[str]:
        """The names of all branches, sorted."""
        return sorted(self._state().heads)

    def commits(self, branch: str = MAIN, actor: str | None = None) -> list[GraphCommit]:
        """The history of a branch, newest first: its own commits and those it inherited."""
        current: str | None = self._state().head(check_branch_name(branch)).commit_id
        known = self._environment.manifest.commits()
        history = []
        while current is not None:
            commit = known[current]
            if actor is None or commit.actor == actor:
                history.append(commit)
            current = commit.parent_id
        return history

    def commit(self, commit_id: str) -> GraphCommit:
        """One commit, of any branch.

        Raises:
            NotFoundError: there is no such commit.
        """
        found = self._environment.manifest.commit(commit_id)
        if found is None:
            raise NotFoundError(f"there is no commit {commit_id}")
        return found

    def read_blob(
        self,
        type_key: str,
        entity_id: str,
        property_name: str,
        *,
        branch: str = MAIN,
        offset: int = 0,
        length: int | None = None,
    ) -> bytes:
        """The bytes of one blob cell, or a range of them.

        Raises:
            NotFoundError: no such type, entity or property, or the cell is null.
            BlobRangeError: the range begins behind the value.
            BadRequestError: the range is empty or larger than one call reads.
        """
        if length is not None and not 0 < length <= BLOB_RANGE_BYTES:
            raise BadRequestError(f"a blob range has 1 to {BLOB_RANGE_BYTES} bytes")
        pin = self.snapshot(branch).pins.get(TableKey(type_key))
        if pin is None:
            raise NotFoundError(f"there is no type {type_key}")
        table = self._open(pin)
        if property_name not in table.blob_columns:
            raise NotFoundError(f"{type_key} has no Blob property {property_name}")
        where = Compare("id", ScalarType(Scalar.STRING), "=", entity_id)
        cells = table.read([property_name], where)[property_name].to_pylist()
        value = cells[0] if cells else None
        if value is None:
            raise NotFoundError(f"{type_key} {entity_id!r} has no {property_name}")
        if offset < 0 or (offset >= len(value) and value):
            raise BlobRangeError(offset, offset + (length or len(value)), len(value))
        end = len(value) if length is None else offset + length
        return bytes(value[offset:end])

    # ---- writing

    def mutate(
        self,
        text: str,
        params: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        branch: str = MAIN,
        actor: str | None = None,
        if_commit: str | None = None,
    ) -> MutationResult:
        """Run one mutation query; all of it becomes visible at once, or nothing does.

        With `if_commit` it runs only while the branch head is that commit.

        Raises:
            CompilerError: the query is wrong.
            BadRequestError: a value or a rule of the schema is violated; nothing was written.
            ConflictError: somebody else changed what this mutation read; nothing was written.
            PreconditionFailedError: the head is another commit.
        """
        self._require_writable()
        branch = check_branch_name(branch)
        self._heal()
        now_ms = self._environment.clock() // 1000
        for attempt in range(REPREPARATION_BUDGET + 1):
            call = _Call(text, params, name, branch, actor, if_commit, now_ms)
            try:
                if attempt < OPTIMISTIC_TRIES:
                    return self._try_mutation(self._environment, call)
                # Others keep winning: prepare inside the window, where nobody can.
                with self._environment.window() as environment:
                    return self._try_mutation(environment, call)
            except _LostRaceError as lost:
                if attempt == REPREPARATION_BUDGET:
                    raise lost.conflict from lost
        raise ConflictError("the branch kept moving; try again")

    def create_branch(self, name: str, base: str = MAIN) -> None:
        """Create a branch at the head of another one; no data is copied.

        Raises:
            BranchNotFoundError: there is no such base.
            BadRequestError: the name is taken or not allowed.
        """
        self._require_writable()
        self._heal()
        name, base = check_branch_name(name), check_branch_name(base)
        with self._environment.window() as environment:
            environment.manifest.publish_branch(
                name, lambda state, version: new_branch_head(state, name, base, version)
            )

    # ---- maintaining

    def ensure_indices(self, branch: str = MAIN, *, actor: str | None = None) -> IndexReport:
        """Build every index that the schema declares and the data lacks, as one commit that changes no row.

        Traversal indexes of large edge types are prepared as well. Running it again without new data does nothing.

        Raises:
            BranchNotFoundError: there is no such branch.
            ConflictError: writers kept changing the tables; nothing happened.
        """
        self._require_writable()
        branch = check_branch_name(branch)
        self._heal()
        for attempt in range(OPTIMISTIC_TRIES + 1):
            try:
                if attempt < OPTIMISTIC_TRIES:
                    report = self._try_indexes(self._environment, branch, actor)
                else:
                    with self._environment.window() as environment:
                        report = self._try_indexes(environment, branch, actor)
            except ConflictError:
                if attempt == OPTIMISTIC_TRIES:
                    raise
                continue
            self._reader.prepare_traversals(branch)
            return report
        raise ConflictError("the branch kept moving; try again")

    def pending_indexes(self, branch: str = MAIN) -> list[PendingIndex]:
        """Declared indexes that do not cover every row of a branch, with the reason."""
        snapshot = self.snapshot(branch)
        schema = self._schema_of(snapshot.schema_hash)
        work, pending = plan_indexes(schema.catalog, snapshot, self._open)
        missing = [
            PendingIndex(
                type_key=item.table_key,
                property=spec.column,
                reason=f"{spec.name} does not cover all rows: run `omnigraph optimize`",
            )
            for item in work
            for spec in item.specs
        ]
        return [*pending, *missing]

    def _try_indexes(
        self, environment: GraphEnvironment, branch: str, actor: str | None
    ) -> IndexReport:
        snapshot = snapshot_of(self._state().head(branch))
        catalog = self._schema_of(snapshot.schema_hash).catalog
        work, pending = plan_indexes(catalog, snapshot, self._open)
        commit = None
        if work:
            commit = commit_indexes(
                environment,
                snapshot,
                work,
                lambda pin: self._open_for_writing(environment, snapshot, pin),
                actor,
            )
        built = [
            BuiltIndexes(type_key=item.table_key, names=tuple(spec.name for spec in item.specs))
            for item in work
        ]
        return IndexReport(branch=branch, commit=commit, built=tuple(built), pending=tuple(pending))

    # ---- recovery

    def refresh(self) -> None:
        """Look at the current state again, and settle what dead writers left."""
        if not self.read_only:
            self._heal()
        self._state()

    def recoveries(self) -> list[RecoveryRecord]:
        """Every recovery action, newest first."""
        return self._environment.audit.records()

    def pending_recoveries(self) -> list[str]:
        """Names of the sidecars that are not settled."""
        return list_sidecars(self._environment.objects)

    # ---- inside

    def _state(self) -> ManifestState:
        try:
            return self._environment.manifest.state()
        except StorageError as error:
            if error.failure is StorageFailure.NOT_FOUND:
                raise NotFoundError(f"{error.message}: create one with `omnigraph init`") from error
            raise

    def _heal(self) -> None:
        """Settle sidecars of dead writers; one listing when there are none."""
        if has_unsettled(self._environment):
            with self._environment.window() as environment:
                settle_all(environment)

    def _require_writable(self) -> None:
        if self.read_only:
            raise BadRequestError("the graph is open for reading only")

    def _schema_of(self, schema_hash: str) -> GraphSchema:
        known = self._schemas.get(schema_hash)
        if known is None:
            known = read_schema_files(self._environment.objects, schema_hash)
            self._schemas[schema_hash] = known
        return known

    def _compile_mutation(self, text: str, schema: GraphSchema, name: str | None) -> ir.MutationIR:
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
        snapshot = snapshot_of(self._state().head(call.branch))
        if call.if_commit is not None:
            environment.manifest.check(_precondition(snapshot, call.if_commit))
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
        )
        try:
            commit = self._commit_mutation(environment, prepared, snapshot, call)
        except (ExpectedVersionMismatchError, ReadSetConflictError) as conflict:
            if prepared.insert_only:
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
        expectations = Expectations(
            branch=snapshot.branch,
            incarnation=snapshot.incarnation,
            schema_hash=snapshot.schema_hash,
            touched=prepared.touched,
            read=prepared.read,
            head_commit=call.if_commit,
        )
        if not prepared.deltas:
            if call.if_commit is not None:
                environment.manifest.check(expectations)
            return None
        with environment.staging.shared():
            staged = stage_mutation(
                prepared,
                snapshot,
                lambda key: self._open_for_writing(environment, snapshot, snapshot.pins[key]),
            )
            if not staged:
                return None
            writes = [
                StagedTable(table_key=key, incarnation=snapshot.pins[key].incarnation, staged=write)
                for key, write in staged.items()
            ]
            intent = Intent(kind=WriterKind.MUTATION, expectations=expectations, actor=call.actor)
            return commit_write(environment, intent, writes)

    def _open(self, pin: TablePin) -> Table:
        return self._environment.tables.open(pin.location, pin.branch, pin.version)

    def _open_for_writing(
        self, environment: GraphEnvironment, snapshot: Snapshot, pin: TablePin
    ) -> Table:
        """The table where the branch writes: its own fork, made at the first write to the type."""
        wanted = None if snapshot.branch == MAIN else snapshot.branch
        if pin.branch == wanted:
            return self._open(pin)
        with environment.window():
            settle_all(environment)
            current = environment.manifest.state().heads.get(snapshot.branch)
            if current is None:
                raise BranchNotFoundError(snapshot.branch)
            actual = current.pins.get(pin.table_key)
            if actual != pin:
                version = None if actual is None else actual.version
                raise ExpectedVersionMismatchError(pin.table_key, pin.version, version)
            return create_fork(environment.location, self._open(pin), snapshot.branch)


def _precondition(snapshot: Snapshot, if_commit: str) -> Expectations:
    return Expectations(
        branch=snapshot.branch,
        incarnation=snapshot.incarnation,
        schema_hash=snapshot.schema_hash,
        head_commit=if_commit,
    )
