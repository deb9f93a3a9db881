"""The façade: one object per open graph. It delegates, it does not think."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from omnigraph.commit.environment import GraphSettings, open_environment
from omnigraph.commit.rows import MAIN
from omnigraph.commit.targets import Target, resolve_target
from omnigraph.core.budget import NO_LIMITS, CancelSignal, ReadLimits
from omnigraph.core.ids import check_branch_name
from omnigraph.graph.blobs import BlobMethods
from omnigraph.graph.branches import BranchMethods
from omnigraph.graph.history import HistoryMethods
from omnigraph.graph.maintenance import EmbeddingMethods, MaintenanceMethods, RetentionMethods
from omnigraph.graph.reads import ReadCall
from omnigraph.graph.schema_changes import SchemaMethods
from omnigraph.lang.schema.compiler import CompiledSchema, as_compiled
from omnigraph.policy.policy import Policy, PolicyGate
from omnigraph.policy.rules import Action
from omnigraph.storage.external import policy_of
from omnigraph.storage.location import parse_location

if TYPE_CHECKING:
    from omnigraph.api.results import ExportResult, ExportTarget, LoadResult, MutationResult
    from omnigraph.api.rows import Result
    from omnigraph.client.remote_graph import RemoteGraph
    from omnigraph.core.source import SourceText
    from omnigraph.maintenance.findings import DoctorReport
    from omnigraph.maintenance.verify import VerifyReport
    from omnigraph.pipeline.workers import Progress
    from omnigraph.spark import Session


class Graph(
    BlobMethods, BranchMethods, EmbeddingMethods, HistoryMethods, MaintenanceMethods, RetentionMethods, SchemaMethods
):
    """An open graph. Thread-safe; close it, or use it in a `with` statement.

    >>> import tempfile
    >>> root = tempfile.mkdtemp() + "/papers.omni"
    >>> with Graph.init(root, "node Paper { doi: String @key }") as graph:
    ...     result = graph.mutate('query add() { insert Paper { doi: "10.1" } }')
    >>> result.affected_nodes
    1
    """

    # ---- opening

    @classmethod
    def init(
        cls,
        uri: str | PathLike[str],
        schema: str | Path | CompiledSchema,
        *,
        actor: str | None = None,
        force: bool = False,
        external_blobs: Sequence[str] | None = None,
        policy: Policy | PolicyGate | str | PathLike[str] | None = None,
    ) -> Graph:
        """Create a graph; `schema` is the path of a `.pg` file, schema text, or a compiled schema.

        The rest is as in `open`.

        Raises:
            CompilerError: the schema is wrong.
            PolicyDeniedError: the actor may not apply a schema to main. Nothing happened.
            AlreadyInitializedError: the root is in use.
        """
        from omnigraph.graph.initialize import initialize

        compiled = as_compiled(schema)
        graph = cls._at(uri, read_only=False, external_blobs=external_blobs, policy=policy)
        graph._authorize(Action.SCHEMA_APPLY, actor, target=MAIN)
        created = initialize(graph._environment, compiled, actor=actor, force=force)
        graph._schemas[created.hash] = created
        return graph

    @classmethod
    def open(
        cls,
        uri: str | PathLike[str],
        read_only: bool = False,
        *,
        external_blobs: Sequence[str] | None = None,
        policy: Policy | PolicyGate | str | PathLike[str] | None = None,
        limits: ReadLimits = NO_LIMITS,
    ) -> Graph:
        """Open a graph. A writable open first settles what dead writers left, and that the graph was moved.

        Writes may bring blobs from below the bases in `external_blobs` (`file:///scans`, `s3://bucket/prefix`,
        `https://host/path`); without it from those in `OMNIGRAPH_EXTERNAL_BLOB_BASES`, and by default from nowhere.

        With a `policy`, or the path of a policy file, every write names its actor and has to be allowed; a
        `PolicyDeniedError` says that nothing happened. Reads are not checked. A
        `PolicyGate` can be given another policy while the graph is open. `limits` bound every read that gives none of
        its own.

        Raises:
            BadRequestError: a base is malformed, or the policy is about a server.
            ConfigurationError: the policy is wrong.
            NotFoundError: there is no graph.
            StorageFormatError: another release wrote it.
        """
        graph = cls._at(uri, read_only=read_only, external_blobs=external_blobs, policy=policy)
        graph._limits = limits
        graph._state()
        if not read_only:
            graph._settle_root()
            graph._heal()
        graph._schema_of(graph._state().head(MAIN).schema_hash)
        return graph

    @classmethod
    def connect(
        cls, url: str, token: str | None = None, graph: str | None = None, *, timeout_s: float | None = None
    ) -> RemoteGraph:
        """A graph behind a server, with the same methods, results and errors.

        The address may name the graph (`https://host/graphs/papers`), or `graph` does; otherwise the only graph of the
        server is meant. The token is that of `OMNIGRAPH_BEARER_TOKEN` unless one is given.

        Raises:
            BadRequestError: the address or the token is malformed, or the server has several graphs.
            UnauthorizedError: the server does not know the token.
            ServerUnreachableError: no response from the server.
        """
        from omnigraph.client.remote_graph import RemoteGraph

        return RemoteGraph.connect(url, token, graph, timeout_s=timeout_s)

    @classmethod
    def examine(cls, uri: str | PathLike[str], *, deep: bool = False, progress: Progress | None = None) -> DoctorReport:
        """As `doctor`, also for a graph that is too broken to be opened."""
        return cls._at(uri, read_only=True).doctor(deep=deep, progress=progress)

    @classmethod
    def verify_at(
        cls,
        uri: str | PathLike[str],
        *,
        branches: Collection[str] | None = None,
        record: bool = False,
        progress: Progress | None = None,
    ) -> VerifyReport:
        """As `verify`, also for a graph that is too broken to be opened."""
        graph = cls._at(uri, read_only=not record)
        return graph.verify(branches=branches, record=record, progress=progress)

    @classmethod
    def _at(
        cls,
        uri: str | PathLike[str],
        *,
        read_only: bool,
        external_blobs: Sequence[str] | None = None,
        policy: Policy | PolicyGate | str | PathLike[str] | None = None,
    ) -> Graph:
        gate = None if policy is None else PolicyGate.for_graph(policy)
        settings = GraphSettings.from_environment()
        if external_blobs is not None:
            settings = replace(settings, external_blobs=policy_of(external_blobs))
        environment = open_environment(
            parse_location(uri),
            durable=settings.durable,
            lock_timeout_s=settings.lock_timeout_s,
            lease_s=settings.lease_s,
        )
        return cls(environment, read_only=read_only, settings=settings, gate=gate)

    @override
    def close(self) -> None:
        self._reader.close()
        if "_history" in self.__dict__:
            self._history.close()
        self._schemas.clear()

    # ---- reading

    @override
    def query(
        self,
        text: str | SourceText,
        params: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        branch: str = MAIN,
        snapshot: str | None = None,
        version: int | None = None,
        as_of: str | datetime | None = None,
        timeout_s: float | None = None,
        cancel: CancelSignal | None = None,
    ) -> Result:
        target = Target(branch=branch, snapshot=snapshot, version=version, as_of=as_of)
        limits = self._limits.during(timeout_s, cancel)
        call = ReadCall(text=text, params=params, name=name, target=target, limits=limits)
        reading = self._environment.reading.begin()
        try:
            return self._reader.query(call, self._state(), reading)
        except BaseException:
            # After any failure: a lock that is not released would stop cleanups as long as the graph is open.
            reading.close()
            raise

    @override
    def explain(
        self,
        text: str | SourceText,
        params: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        branch: str = MAIN,
        analyze: bool = False,
        timeout_s: float | None = None,
        cancel: CancelSignal | None = None,
    ) -> str:
        limits, target = self._limits.during(timeout_s, cancel), Target(branch=branch)
        call = ReadCall(text=text, params=params, name=name, target=target, limits=limits)
        with self._reading():
            return self._reader.explain(call, self._state(), analyze=analyze)

    @override
    def export(
        self,
        target: ExportTarget,
        *,
        branch: str = MAIN,
        snapshot: str | None = None,
        version: int | None = None,
        as_of: str | datetime | None = None,
        types: Sequence[str] | None = None,
        format: str = "jsonl",
        parts: bool = False,
        engine: str = "spark",
        spark: Session | None = None,
        progress: Progress | None = None,
        timeout_s: float | None = None,
        cancel: CancelSignal | None = None,
    ) -> ExportResult:
        from omnigraph.graph.exports import ExportCall, export_snapshot

        wanted = Target(branch=branch, snapshot=snapshot, version=version, as_of=as_of)
        call = ExportCall(
            target=target,
            types=types or None,
            format=format,
            parts=parts,
            engine=engine,
            spark=spark,
            progress=progress,
            limits=ReadLimits(timeout_s=timeout_s, cancel=cancel),
        )
        with self._reading():
            found = resolve_target(self._environment.manifest, self._state(), wanted)
            catalog = self._schema_of(found.schema_hash).catalog
            return export_snapshot(self._environment, found, catalog, call)

    # ---- writing

    @override
    def mutate(
        self,
        text: str | SourceText,
        params: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        branch: str = MAIN,
        actor: str | None = None,
        if_commit: str | None = None,
    ) -> MutationResult:
        self._require_writable()
        branch = check_branch_name(branch)
        self._authorize(Action.CHANGE, actor, branch=branch)
        with self._reading():
            return self._writer.mutate(text, params, name=name, branch=branch, actor=actor, if_commit=if_commit)

    @override
    def load(
        self,
        source: str | PathLike[str] | None = None,
        *,
        frames: Mapping[str, object] | None = None,
        mapping: str | PathLike[str] | Mapping[str, object] | None = None,
        mode: str,
        branch: str = MAIN,
        base: str | None = None,
        actor: str | None = None,
        engine: str = "spark",
        spark: Session | None = None,
        dry_run: bool = False,
        grammar: str = "strict",
        progress: Progress | None = None,
        timeout_s: float | None = None,
        cancel: CancelSignal | None = None,
    ) -> LoadResult:
        from omnigraph.graph.loads import load_call, load_graph
        from omnigraph.pipeline.workers import Silent

        self._require_writable()
        call = load_call(
            mode,
            grammar,
            source=source,
            mapping=mapping,
            frames=frames,
            branch=check_branch_name(branch),
            base=None if base is None else check_branch_name(base),
            actor=actor,
            engine=engine,
            spark=spark,
            dry_run=dry_run,
            progress=progress or Silent(),
            external_blobs=self._settings.external_blobs,
            limits=ReadLimits(timeout_s=timeout_s, cancel=cancel),
        )
        self._authorize(Action.CHANGE, actor, branch=call.branch)
        self._authorize_new_branch(call.branch, call.base, actor)
        self._heal()
        # Again, and here it counts: the branch may have been deleted since the call began.
        state = self._authorize_new_branch(call.branch, call.base, actor)
        with self._reading():
            result = load_graph(self._environment, self._schema_of, call, state)
        self._writer.fold_after(result.commit)
        return result
